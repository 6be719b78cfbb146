"""From a recurring schedule to its occurrences: what is to be made now, and where the schedule then stands.

`plan` decides and touches nothing; it is called under the schedule's lock, by the loops and by services that are about
to change the schedule. `write` stores any number of plans in the caller's transaction: occurrences and the advance of
`next_run_at` together, so whoever dies half-way has done neither.
"""

import heapq
import json
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any
from uuid import UUID

from django.db import connection

from chronos_site.infra import trace
from chronos_site.infra.sql import statement
from chronos_site.observability import tracing
from execution import making
from execution.making import NewExecution
from execution.models import Execution
from scheduling.domain import jitter, misfire
from scheduling.domain.errors import ScheduleError
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
CANNOT_BE_FOLLOWED = (ScheduleError, ValueError, OverflowError)
"""What `plan` raises of a schedule that cannot be followed."""

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
    following: datetime | None = None
    """Where the schedule would stand if its last runs had not been made by another."""

    @property
    def room(self) -> int:
        """How many more occurrences may be made to run."""
        limit = self.schedule.max_runs
        return MOST_AT_ONCE if limit is None else max(0, limit - self.schedule.run_count - self.ran)


@dataclass(frozen=True, slots=True)
class Unplannable:
    """A schedule that cannot be followed, and why."""

    schedule: Schedule
    error: Exception


def why_not(error: Exception) -> str:
    """The reason of a pause. Of a refusal by the tables the first line: the next ones show what was to be stored."""
    return f"cannot be followed: {str(error).partition(chr(10))[0]}"[:200]


def rhythm_of(schedule: Schedule) -> Rhythm:
    return Rhythm(
        expression=schedule.cron,
        timezone=schedule.timezone,
        every_s=schedule.every_s or 0,
        anchor=schedule.anchor,
        starts_at=schedule.starts_at,
        ends_at=schedule.ends_at,
    )


def plan_all(schedules: Sequence[Schedule], *, now: datetime) -> Iterator[Plan | Unplannable]:
    """A plan for each; one that cannot be followed does not keep the others from theirs."""
    known = times_on_record(
        [s for s in schedules if s.next_run_at is not None and s.next_run_at < _late_before(s, now)]
    )
    for schedule in schedules:
        try:
            yield plan(schedule, now=now, known=known.get(schedule.id, frozenset()))
        except CANNOT_BE_FOLLOWED as error:
            yield Unplannable(schedule, error)


def times_on_record(schedules: Sequence[Schedule]) -> dict[UUID, frozenset[datetime]]:
    """The nominal times, from each schedule's `next_run_at` on, that have a row already; one query for all.

    There are some where a schedule was set back behind them: what has its row is neither missed nor made again.
    """
    if not schedules:
        return {}
    found: dict[UUID, set[datetime]] = defaultdict(set)
    with connection.cursor() as cursor:
        cursor.execute(
            statement("scheduling", "select_times_on_record"),
            {"ids": [s.id for s in schedules], "firsts": [s.next_run_at for s in schedules]},
        )
        for schedule_id, at in cursor.fetchall():
            found[schedule_id].add(at)
    return {schedule_id: frozenset(times) for schedule_id, times in found.items()}


def plan(
    schedule: Schedule, *, now: datetime, held: Sequence[datetime] = (), known: frozenset[datetime] = frozenset()
) -> Plan:
    """The occurrences from `next_run_at` to two minutes ahead; what is late beyond the grace is judged.

    `held`: nominal times of rows that were made, missed their deadline and wait. They are judged together with what was
    never made; what becomes of their rows is up to the caller, by `Plan.fire`. `known`: `times_on_record`.
    """
    planned = Plan(schedule, schedule.next_run_at)
    rhythm = rhythm_of(schedule)
    late_before = _late_before(schedule, now)
    if held or (planned.next_run_at is not None and planned.next_run_at < late_before):
        _judge_missed(planned, rhythm, late_before, now, held, known - {*held})
    if planned.next_run_at is not None:
        _plan_coming(planned, rhythm, planned.next_run_at, now + timedelta(seconds=AHEAD_S))
    return planned


def _late_before(schedule: Schedule, now: datetime) -> datetime:
    return now - timedelta(seconds=schedule.misfire_grace_s + schedule.jitter_s)


def _plan_coming(planned: Plan, rhythm: Rhythm, first: datetime, until: datetime) -> None:
    times, planned.next_run_at = _coming(rhythm, first, until, min(MOST_AT_ONCE, planned.room))
    snapshot = snapshot_of(planned.schedule)
    planned.new += [_on_time(planned.schedule, at, snapshot) for at in times]
    planned.ran += len(times)
    _stop_where_spent(planned)


@lru_cache(maxsize=1024)
def _coming(
    rhythm: Rhythm, first: datetime, until: datetime, limit: int
) -> tuple[tuple[datetime, ...], datetime | None]:
    """Many schedules of one batch have the same rhythm and stand at the same time."""
    times, following = rhythm.coming(first, until, limit)
    return tuple(times), following


def _judge_missed(
    planned: Plan,
    rhythm: Rhythm,
    late_before: datetime,
    now: datetime,
    held: Sequence[datetime],
    known: frozenset[datetime],
) -> None:
    """Fire the few that the policy lets, put the youngest of the others on record, count the rest."""
    schedule, first = planned.schedule, planned.next_run_at
    verdict = misfire.judge(
        _latest_first(rhythm, first, late_before, held, known),
        now=now,
        policy=schedule.misfire,
        window_s=schedule.catch_up_window_s,
        limit=max(1, min(schedule.misfire_limit, planned.room + len(held))),
    )
    unmade = 0 if first is None else rhythm.count(first - _INSTANT, late_before)
    # On record are also runs by hand, and what was skipped in another rhythm: neither is an occurrence of this one.
    total = len(held) + unmade - sum(at <= late_before and rhythm.has(at) for at in known)
    snapshot, made = snapshot_of(schedule), set(held)
    late = [_caught_up(schedule, at, now, snapshot) for at in verdict.fire if at not in made]
    passed_over = (at for at in _latest_first(rhythm, first, late_before, (), known) if at not in verdict.fire)
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
        planned.following, planned.next_run_at = planned.next_run_at, None


def _latest_first(
    rhythm: Rhythm,
    first: datetime | None,
    late_before: datetime,
    held: Sequence[datetime],
    known: frozenset[datetime],
) -> Iterator[datetime]:
    """Missed times, made and unmade, each once, found as they are asked for."""
    unmade = iter(()) if first is None else takewhile(lambda at: at >= first, rhythm.back(late_before))
    last = None
    for at in heapq.merge(unmade, sorted(held, reverse=True), reverse=True):
        if at != last and at not in known:
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
        traceparent=tracing.new_trace(),
        **snapshot,
    )


def skipped_by_hand(schedule: Schedule, at: datetime) -> NewExecution:
    """The record of an occurrence that a person passed over before it was made."""
    return NewExecution(
        scheduled_for=at, skipped=BY_HAND, traceparent=trace.parse_or_new(None), **snapshot_of(schedule)
    )


def _caught_up(schedule: Schedule, at: datetime, now: datetime, snapshot: dict[str, Any]) -> NewExecution:
    """It fires now, and cannot be missed again."""
    return NewExecution(scheduled_for=at, due_at=now, traceparent=tracing.new_trace(), **snapshot)


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
            statement("scheduling", "advance_schedules"), {"rows": json.dumps([_standing(p, made) for p in plans])}
        )
    return len(made)


def _standing(planned: Plan, made: Container[UUID]) -> dict[str, Any]:
    ran = sum(item.id in made for item in planned.new if not item.skipped)
    next_run_at = planned.next_run_at if ran == planned.ran else planned.next_run_at or planned.following
    return {
        "id": str(planned.schedule.id),
        "next_run_at": None if next_run_at is None else next_run_at.isoformat(),
        "ran": ran,
        "missed": planned.missed,
        "report": planned.report,
    }
