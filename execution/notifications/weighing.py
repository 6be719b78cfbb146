"""Weighing: what each new fact means to its rule, in the order in which things happened.

Called by the loop of notifications, under its lock. A failure of a rule that counts or waits for a recovery marks the
job as failing (`NotificationState`); from then on the transaction of a success of that job writes a fact as well. A
success that was on its way while the mark was made is looked for in the table of executions, for some seconds. Dying
half-way rolls everything back; the next tick does it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Q

from execution.models import NotificationFact, NotificationRule, NotificationState

Kind = NotificationFact.Kind
Stage = NotificationFact.Stage
Event = NotificationRule.Event

AT_ONCE = 20_000
LOOK_BACK_S = 15
"""So long after a job was marked its successes are looked for, in case their transaction did not see the mark."""
LOOK_BACK_MOST_S = 600
COUNTED = {Event.FAILURES_IN_ROW.value, Event.RECOVERY.value}
"""A rule with one of these needs to know what came before."""

Key = tuple[UUID, UUID]
"""Rule and job key."""


@dataclass(slots=True)
class _Verdicts:
    """Ids of facts by what becomes of them."""

    told: dict[str, list[int]] = field(default_factory=dict)
    """By the kind as which they are told."""
    silent: list[int] = field(default_factory=list)
    states: dict[Key, NotificationState | None] = field(default_factory=dict)
    """None: the job has recovered."""


def weigh(now: datetime) -> int:
    """Weigh what is new. Returns how many facts."""
    _look_back(now)
    facts = list(NotificationFact.objects.filter(stage=Stage.NEW).order_by("id")[:AT_ONCE])
    if not facts:
        return 0
    rules = NotificationRule.objects.in_bulk({fact.rule_id for fact in facts})
    verdicts = _Verdicts(states=_states_of(facts))
    known = {key for key, state in verdicts.states.items() if state is not None}
    for fact in sorted(facts, key=lambda fact: (fact.at, fact.id)):
        rule = rules.get(fact.rule_id)
        if rule is None or not rule.enabled:
            verdicts.silent.append(fact.id)
        elif fact.kind == Kind.SUCCESS:
            _weigh_success(fact, rule, verdicts)
        else:
            _weigh_failure(fact, rule, verdicts, now)
    _store(verdicts, known)
    return len(facts)


def _states_of(facts: Sequence[NotificationFact]) -> dict[Key, NotificationState | None]:
    wanted = {(fact.rule_id, fact.job_key) for fact in facts}
    found = NotificationState.objects.filter(
        job_key__in={job_key for _, job_key in wanted}, rule_id__in={rule_id for rule_id, _ in wanted}
    )
    return {(state.rule_id, state.job_key): state for state in found}


def _weigh_failure(fact: NotificationFact, rule: NotificationRule, verdicts: _Verdicts, now: datetime) -> None:
    told = fact.kind if fact.kind in rule.events else None
    if fact.kind == Kind.LEADER_MISSING or (fact.kind == Kind.FAILURE and COUNTED & set(rule.events)):
        key = (rule.id, fact.job_key)
        state = verdicts.states.get(key)
        if state is None:
            state = NotificationState(
                rule_id=rule.id,
                job_key=fact.job_key,
                workspace_id=fact.workspace_id,
                last_failed_at=fact.at,
                marked_at=now,
            )
            verdicts.states[key] = state
        state.in_row += 1
        state.last_failed_at = max(state.last_failed_at, fact.at)
        many = rule.failures_in_row if Event.FAILURES_IN_ROW in rule.events else None
        if many is not None and state.in_row >= many and not state.row_told:
            state.row_told = True
            told = Kind.FAILURES_IN_ROW.value
        state.told = state.told or told is not None
    if told is None:
        verdicts.silent.append(fact.id)
    else:
        verdicts.told.setdefault(told, []).append(fact.id)


def _weigh_success(fact: NotificationFact, rule: NotificationRule, verdicts: _Verdicts) -> None:
    key = (rule.id, fact.job_key)
    state = verdicts.states.get(key)
    if state is None or fact.at <= state.last_failed_at:
        verdicts.silent.append(fact.id)
        return
    if state.told and Event.RECOVERY in rule.events:
        verdicts.told.setdefault(Kind.RECOVERY.value, []).append(fact.id)
    else:
        verdicts.silent.append(fact.id)
    verdicts.states[key] = None


def _store(verdicts: _Verdicts, known: set[Key]) -> None:
    for kind, ids in verdicts.told.items():
        NotificationFact.objects.filter(id__in=ids).update(stage=Stage.WAITING, kind=kind)
    if verdicts.silent:
        NotificationFact.objects.filter(id__in=verdicts.silent).update(stage=Stage.SILENT)
    ended = [key for key in known if verdicts.states[key] is None]
    for rule_id, job_key in ended:
        NotificationState.objects.filter(rule_id=rule_id, job_key=job_key).delete()
    # One that recovered and failed again is a new row: its id in memory may be that of the old one.
    open_states = [state for state in verdicts.states.values() if state is not None]
    NotificationState.objects.bulk_create(
        open_states,
        update_conflicts=True,
        unique_fields=["job_key", "rule_id"],
        update_fields=["in_row", "row_told", "told", "last_failed_at"],
    )


def _look_back(now: datetime) -> None:
    """Facts for successes that the transaction of a success may have missed, of jobs that were marked just now."""
    marked = list(
        NotificationState.objects.filter(marked_at__gt=now - timedelta(seconds=LOOK_BACK_S)).values_list(
            "job_key", "last_failed_at"
        )
    )
    if not marked:
        return
    since = max(min(at for _, at in marked), now - timedelta(seconds=LOOK_BACK_MOST_S))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO execution_notificationfact (rule_id, workspace_id, kind, stage, job_key, job_definition_id,"
            " subject_id, status, at, created_at)"
            " SELECT DISTINCT ON (s.id) s.rule_id, s.workspace_id, 'success', 'new', s.job_key, e.job_definition_id,"
            " e.id, e.last_status, e.finished_at, clock_timestamp()"
            " FROM execution_execution e JOIN execution_notificationstate s"
            "  ON s.job_key = coalesce(e.job_definition_id, e.schedule_id, e.id) AND e.finished_at > s.last_failed_at"
            " WHERE e.finished_at > %(since)s AND e.state || '' = 'SUCCEEDED' AND s.job_key = ANY(%(keys)s)"
            " ORDER BY s.id, e.finished_at DESC",
            {"since": since, "keys": sorted({key for key, _ in marked})},
        )


def forget(*, rule_ids: Sequence[UUID]) -> None:
    """What these rules knew and had not yet told: they were deleted or switched off."""
    NotificationState.objects.filter(rule_id__in=rule_ids).delete()
    NotificationFact.objects.filter(Q(stage=Stage.NEW) | Q(stage=Stage.WAITING), rule_id__in=rule_ids).update(
        stage=Stage.SILENT
    )
