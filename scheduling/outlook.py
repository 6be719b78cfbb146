"""What lies ahead of schedules, as people ask for it: in words, the next time, the next few.

Computed from the rhythm, for the row's own `next_run_at` runs two minutes ahead of the clock. Whatever a person has
passed over or cancelled is seen. A schedule that cannot be followed (its zone has left the data) shows nothing ahead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from uuid import UUID

from django.db.models import Min, QuerySet

from execution.domain.states import TERMINAL
from execution.models import Execution
from scheduling.domain import preview, words
from scheduling.domain.errors import ScheduleError
from scheduling.domain.preview import Line
from scheduling.models import Schedule
from scheduling.occurrences import rhythm_of

Kind, State = Schedule.Kind, Schedule.State

_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Ahead:
    """One coming occurrence."""

    line: Line
    skipped: bool
    """It will not fire: a person passed over it, or cancelled it."""


def describe(schedule: Schedule) -> str:
    """The schedule in plain English words."""
    if schedule.run_at is not None:
        return f"once, at {schedule.run_at:%Y-%m-%d %H:%M:%S} UTC"
    try:
        if schedule.cron:
            return words.describe(schedule.cron, schedule.timezone)
        return words.describe_interval(schedule.every_s or 0)
    except (ScheduleError, IndexError) as error:
        return f"cannot be followed: {error}"


def next_runs(schedules: Sequence[Schedule], *, now: datetime) -> dict[UUID, datetime | None]:
    """When each fires next; None where it does not. At most two queries, however many there are."""
    recurring = [s for s in schedules if s.state == State.ACTIVE and s.kind != Kind.ONCE]
    gone = _passed_over(recurring, now) if recurring else set()
    spent = [schedule.id for schedule in recurring if schedule.next_run_at is None]
    last = _last_made(spent, now) if spent else {}
    found: dict[UUID, datetime | None] = {schedule.id: None for schedule in schedules}
    found.update({s.id: s.run_at for s in schedules if s.state == State.ACTIVE and s.run_at and s.run_at > now})
    for schedule in recurring:
        found[schedule.id] = last.get(schedule.id) if schedule.id in spent else _next(schedule, now, gone)
    return found


def upcoming(schedule: Schedule, *, now: datetime, count: int) -> list[Ahead]:
    """The next few occurrences of an active schedule, by its own clock."""
    if schedule.state != State.ACTIVE:
        return []
    if schedule.kind == Kind.ONCE:
        if schedule.run_at is None or schedule.run_at <= now:
            return []
        return [Ahead(preview.preview_interval(1, schedule.run_at, "UTC", now, 1)[0], skipped=False)]
    after = now if schedule.starts_at is None else max(now, schedule.starts_at - _INSTANT)
    ends_at = schedule.ends_at
    lines = takewhile(lambda line: ends_at is None or line.at <= ends_at, _lines(schedule, after, count))
    gone = _passed_over([schedule], now)
    left = _runs_left(schedule, now)
    return [Ahead(line, (schedule.id, line.at) in gone) for line in list(lines)[:left]]


def _lines(schedule: Schedule, after: datetime, count: int) -> list[Line]:
    try:
        if schedule.cron:
            return preview.preview(schedule.cron, schedule.timezone, after, count)
        assert schedule.anchor is not None  # noqa: S101 - an interval has one
        return preview.preview_interval(schedule.every_s or 0, schedule.anchor, schedule.timezone, after, count)
    except ScheduleError:
        return []


def _next(schedule: Schedule, now: datetime, gone: set[tuple[UUID, datetime]]) -> datetime | None:
    try:
        at = rhythm_of(schedule).after(now)
        while at is not None and (schedule.id, at) in gone:
            at = rhythm_of(schedule).after(at)
    except ScheduleError:
        return None
    return at


def _passed_over(schedules: Sequence[Schedule], now: datetime) -> set[tuple[UUID, datetime]]:
    """Coming occurrences that have ended already."""
    rows = _coming([schedule.id for schedule in schedules], now).filter(state__in=TERMINAL)
    return {(key, at) for key, at in rows.values_list("schedule_id", "scheduled_for") if key is not None}


def _last_made(ids: Sequence[UUID], now: datetime) -> dict[UUID, datetime]:
    """The next of what is made already, for schedules that make no more."""
    rows = _coming(ids, now).exclude(state__in=TERMINAL).values_list("schedule_id").annotate(at=Min("scheduled_for"))
    return {key: at for key, at in rows if key is not None}


def _runs_left(schedule: Schedule, now: datetime) -> int | None:
    """How many coming occurrences `max_runs` allows; None where there is no such limit."""
    if schedule.max_runs is None:
        return None
    made = _coming([schedule.id], now)
    if schedule.next_run_at is not None:
        made = made.filter(scheduled_for__lt=schedule.next_run_at)
    return max(0, schedule.max_runs - schedule.run_count) + made.count()


def _coming(ids: Sequence[UUID], now: datetime) -> QuerySet[Execution]:
    """Occurrences that are made and lie ahead: two minutes' worth, and what was skipped before it was made."""
    return Execution.objects.filter(
        schedule_id__in=ids, scheduled_for__gt=now, run_no=0, trigger=Execution.Trigger.SCHEDULE
    )
