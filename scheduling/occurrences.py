"""From a recurring schedule to its occurrences: what is to be made now, and where the schedule then stands.

`plan` decides and touches nothing; it is called under the schedule's lock, by the loops and by services that are about
to change the schedule. `write` stores any number of plans in the caller's transaction: occurrences and the advance of
`next_run_at` together, so whoever dies half-way has done neither.
"""

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from django.db import connection

from chronos_site.infra import trace
from chronos_site.infra.sql import statement
from execution import making
from execution.making import NewExecution
from execution.models import Execution
from scheduling.domain import jitter, misfire
from scheduling.domain.rhythm import Rhythm
from scheduling.models import Schedule
from scheduling.snapshot import delivery_of

AHEAD_S = 120.0
"""Occurrences are made so long before their time."""
MOST_AT_ONCE = 500
"""Of one schedule in one plan; the rest comes with the next."""
MOST_ON_RECORD = 100
"""Missed occurrences that get a SKIPPED row each; older ones are told by the schedule's report alone."""

BY_HAND = "skipped_by_hand"

_INSTANT = timedelta(microseconds=1)


@dataclass(slots=True)
class Plan:
    """What one look at a schedule comes to."""

    schedule: Schedule
    next_run_at: datetime | None
    new: list[NewExecution] = field(default_factory=list)
    ran: int = 0
    """Occurrences that are made to run."""
    missed: int = 0
    """Missed occurrences that never fire."""
    report: dict[str, Any] | None = None
    """What the misfire policy came to, where it was asked."""
    fire: frozenset[datetime] = frozenset()
    """The missed times that fire, made rows among them."""
    verdict: misfire.Verdict | None = None

    @property
    def room(self) -> int:
        """How many more occurrences may be made to run."""
        limit = self.schedule.max_runs
        return MOST_AT_ONCE if limit is None else max(0, limit - self.schedule.run_count - self.ran)


def rhythm_of(schedule: Schedule) -> Rhythm:
    return Rhythm(
        expression=schedule.cron,
        timezone=schedule.timezone,
        every_s=schedule.every_s or 0,
        anchor=schedule.anchor,
        starts_at=schedule.starts_at,
        ends_at=schedule.ends_at,
    )


def plan(schedule: Schedule, *, now: datetime, held: Sequence[datetime] = (), ahead_s: float = AHEAD_S) -> Plan:
    """The occurrences from `next_run_at` to `now + ahead_s`; what is late beyond the grace is judged.

    `held`: nominal times of rows that were made, missed their deadline and wait. They are judged together with what was
    never made; what becomes of their rows is up to the caller, by `Plan.fire`.
    """
    planned = Plan(schedule, schedule.next_run_at)
    rhythm = rhythm_of(schedule)
    late_before = now - timedelta(seconds=schedule.misfire_grace_s + schedule.jitter_s)
    if held or (planned.next_run_at is not None and planned.next_run_at < late_before):
        _judge_missed(planned, rhythm, late_before, now, held)
    if planned.next_run_at is not None:
        _plan_coming(planned, rhythm, planned.next_run_at, now + timedelta(seconds=ahead_s))
    return planned


def _plan_coming(planned: Plan, rhythm: Rhythm, first: datetime, until: datetime) -> None:
    times = rhythm.between(first - _INSTANT, until, min(MOST_AT_ONCE, planned.room))
    snapshot = snapshot_of(planned.schedule)
    planned.new += [_on_time(planned.schedule, at, snapshot) for at in times]
    planned.ran += len(times)
    planned.next_run_at = rhythm.after(times[-1] if times else first - _INSTANT)
    _stop_where_spent(planned)


def _judge_missed(
    planned: Plan, rhythm: Rhythm, late_before: datetime, now: datetime, held: Sequence[datetime]
) -> None:
    """Fire the few that the policy lets, put the youngest of the others on record, count the rest."""
    schedule, first = planned.schedule, planned.next_run_at
    verdict = misfire.judge(
        _latest_first(rhythm, first, late_before, held),
        now=now,
        policy=schedule.misfire,
        window_s=schedule.catch_up_window_s,
        limit=max(1, min(schedule.misfire_limit, planned.room + len(held))),
    )
    total = len(held) if first is None else len(held) + rhythm.count(first - _INSTANT, late_before)
    snapshot, made = snapshot_of(schedule), set(held)
    late = [_caught_up(schedule, at, now, snapshot) for at in verdict.fire if at not in made]
    passed_over = (at for at in _latest_first(rhythm, first, late_before, ()) if at not in verdict.fire)
    planned.new += late
    planned.new += [_skipped(schedule, at, verdict, snapshot) for at in islice(passed_over, MOST_ON_RECORD)]
    planned.ran += len(late)
    planned.missed = total - len(verdict.fire)
    planned.fire = frozenset(verdict.fire)
    planned.verdict = verdict
    planned.report = {
        "at": now.isoformat(),
        "policy": schedule.misfire,
        "from": min([at for at in (first, *held) if at is not None], default=now).isoformat(),
        "missed": total,
        "fired": len(verdict.fire),
        "skipped": planned.missed,
    }
    if first is not None:
        planned.next_run_at = rhythm.after(max(first - _INSTANT, late_before))
    _stop_where_spent(planned)


def _stop_where_spent(planned: Plan) -> None:
    if planned.room == 0:
        planned.next_run_at = None


def _latest_first(
    rhythm: Rhythm, first: datetime | None, late_before: datetime, held: Sequence[datetime]
) -> Iterator[datetime]:
    """Missed times, made and unmade, each once, found as they are asked for."""
    unmade = iter(()) if first is None else takewhile(lambda at: at >= first, rhythm.back(late_before))
    last = None
    for at in heapq.merge(unmade, sorted(held, reverse=True), reverse=True):
        if at != last:
            yield at
        last = at


# --- one occurrence ------------------------------------------------------------------------------------------


def snapshot_of(schedule: Schedule) -> dict[str, Any]:
    return {
        **delivery_of(
            job=schedule.job_definition,
            target=schedule.target,
            payload=schedule.payload,
            overrides=schedule.delivery,
            tags=schedule.tags,
        ),
        "schedule_id": schedule.id,
        "trigger": Execution.Trigger.SCHEDULE,
        "overlap": schedule.overlap,
        "concurrency_key": None if schedule.overlap == Execution.Overlap.ALLOW else str(schedule.id),
        "on_deadline": Execution.OnDeadline.MISFIRE,
    }


def _on_time(schedule: Schedule, at: datetime, snapshot: dict[str, Any]) -> NewExecution:
    due_at = at + timedelta(seconds=jitter.offset_s(schedule.id, at, schedule.jitter_s)) if schedule.jitter_s else at
    return NewExecution(
        scheduled_for=at,
        due_at=due_at,
        start_deadline=due_at + timedelta(seconds=schedule.misfire_grace_s),
        traceparent=trace.parse_or_new(None),
        **snapshot,
    )


def skipped_by_hand(schedule: Schedule, at: datetime) -> NewExecution:
    """The record of an occurrence that a person passed over before it was made."""
    return NewExecution(
        scheduled_for=at, skipped=BY_HAND, traceparent=trace.parse_or_new(None), **snapshot_of(schedule)
    )


def _caught_up(schedule: Schedule, at: datetime, now: datetime, snapshot: dict[str, Any]) -> NewExecution:
    """It fires now, and cannot be missed again."""
    return NewExecution(scheduled_for=at, due_at=now, traceparent=trace.parse_or_new(None), **snapshot)


def _skipped(schedule: Schedule, at: datetime, verdict: misfire.Verdict, snapshot: dict[str, Any]) -> NewExecution:
    reason = f"misfire_{verdict.reason(at)}"
    return NewExecution(scheduled_for=at, skipped=reason, traceparent=trace.parse_or_new(None), **snapshot)


# --- storing --------------------------------------------------------------------------------------------------


def write(plans: Sequence[Plan], *, now: datetime) -> int:
    """Make the occurrences and advance the schedules, in the caller's transaction. Returns how many were made.

    An occurrence that exists already, because another made it or a person skipped it, is left as it is.
    """
    new = [(planned.schedule.workspace_id, item) for planned in plans for item in planned.new]
    made = making.insert_executions(new=new, now=now) if new else {}
    with connection.cursor() as cursor:
        cursor.execute(
            statement("scheduling", "advance_schedules"),
            {
                "ids": [planned.schedule.id for planned in plans],
                "next_run_ats": [planned.next_run_at for planned in plans],
                "rans": [planned.ran for planned in plans],
                "misseds": [planned.missed for planned in plans],
                "reports": [None if p.report is None else json.dumps(p.report) for p in plans],
            },
        )
    return len(made)
