"""What a person sees before a schedule is stored: its next fires by the local clock, and what clock changes do to them.

Called by the API's preview and the admin. A line is marked `moved` where wall times of the schedule do not exist and
the fire stands in for them, and `repeated` where the local time comes twice, with the pass that fires.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal

from scheduling.domain import cron, intervals, walk
from scheduling.domain.pattern import DAY, Cron
from scheduling.domain.zones import Span, check_zone, instant_of, span_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One coming fire."""

    at: datetime
    """In UTC."""
    local: datetime
    """The same moment by the clock of the zone, at its plain offset."""
    utc_offset: str
    """`+02:00`"""
    moved: bool
    """A wall time of the schedule does not exist on this day; this is the first moment after the gap."""
    repeated: Literal["first", "second"] | None
    """The local time comes twice on this day, and this is that pass of it."""
    note: str
    """A sentence about either, empty otherwise."""


def preview(expression: str | Cron, timezone: str, after: datetime, count: int) -> list[Line]:
    """The next `count` fires of a cron expression. Raises ScheduleError like `cron.next_fires`."""
    compiled = expression if isinstance(expression, Cron) else cron.parse(expression)
    cron.next_fires(compiled, timezone, after, 1)  # says that it never fires
    return [
        _line(fire.instant, fire.span, timezone, compiled, fire.moved)
        for fire in islice(walk.forwards(compiled, timezone, instant_of(after)), count)
    ]


def preview_interval(every_s: int, anchor: datetime, timezone: str, after: datetime, count: int) -> list[Line]:
    """The next `count` fires of an interval, by the clock of `timezone`."""
    check_zone(timezone)
    lines = []
    for at in intervals.next_fires(every_s, anchor, after, count):
        instant = instant_of(at)
        line = _line(instant, span_at(timezone, instant), timezone, None, moved=False)
        lines.append(_with_microsecond(line, at.microsecond))
    return lines


def _line(instant: int, span: Span, zone: str, compiled: Cron | None, moved: bool) -> Line:
    local = span.local(instant)
    repeated = _repeated(instant, span, zone)
    missing = walk.swallowed(compiled, span) if moved and compiled is not None else None
    if missing is not None:
        note = _moved_note(span.local(missing - span.offset), local)
    elif repeated is not None:
        note = _repeated_note(local, repeated, compiled)
    else:
        note = ""
    return Line(
        at=local.astimezone(UTC),
        local=local,
        utc_offset=local.isoformat()[len("YYYY-MM-DDTHH:MM:SS") :],
        moved=moved,
        repeated=repeated,
        note=note,
    )


def _repeated(instant: int, span: Span, zone: str) -> Literal["first", "second"] | None:
    wall = instant + span.offset
    if wall < span.start + span.before:
        return "second"
    while span.end <= instant + DAY:  # what repeats this wall time is at most a day away
        span = span_at(zone, span.end)
        if span.start + span.offset <= wall < span.start + span.before:
            return "first"
    return None


def _moved_note(missing: datetime, local: datetime) -> str:
    day = "" if missing.date() == local.date() else f" on {local.date()}"
    return (
        f"{_clock(missing)} does not exist on {missing.date()}; it fires at {_clock(local)}{day}, right after the gap."
    )


def _repeated_note(local: datetime, repeated: str, compiled: Cron | None) -> str:
    twice = f"{_clock(local)} comes twice on {local.date()}"
    if compiled is not None and compiled.fixed:
        return f"{twice}; it fires the first time only."
    return f"{twice}; this is the {repeated} time."


def _clock(local: datetime) -> str:
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


def _with_microsecond(line: Line, microsecond: int) -> Line:
    step = timedelta(microseconds=microsecond)
    return Line(
        at=line.at + step,
        local=line.local + step,
        utc_offset=line.utc_offset,
        moved=line.moved,
        repeated=line.repeated,
        note=line.note,
    )
