"""Time zones as spans of real time with one offset each: the ground that the walk over instants stands on.

The data are those of the pinned `tzdata` package and not of the machine, so that every process of a fleet gives the
same answer; a zone is looked up in that package's own list, so no text of a caller ever becomes a path.

Instants are whole seconds in UTC, counted as `pattern` counts wall times: wall time = instant + offset. Spans are found
in pieces of 366 days by looking at each day and halving where the offset changed; the shortest span in the data is
almost seven days long, and a change moves the clock by at most a day.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from scheduling.domain.errors import InvalidSchedule, shown
from scheduling.domain.pattern import DAY, LAST_DAY

PIECE = 366 * DAY
BACK = 3 * DAY
"""A piece begins this much earlier: what a change repeats must not be cut off at a seam."""
FIRST = 3 * DAY
LAST = (LAST_DAY - 3) * DAY
"""No instant outside of these is asked for: its wall time might be outside of the calendar."""
UNIX = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN = datetime(1, 1, 1)  # noqa: DTZ001 - gets its zone where it is used


@dataclass(frozen=True, slots=True)
class Span:
    """The instants from `start` until before `end`, in which a zone keeps one offset."""

    start: int
    end: int
    offset: int
    """Seconds east of UTC."""
    before: int
    """The offset until `start`; the same as `offset` where a piece begins and no clock changed."""
    origin: datetime
    """The calendar's first moment at this offset, for `Span.local`."""

    def local(self, instant: int) -> datetime:
        """The instant as local time. Its zone is the plain offset, so that comparing and subtracting are right in
        repeated hours too, where times of a `ZoneInfo` are compared by the wall."""
        return self.origin + timedelta(seconds=instant + self.offset - DAY)


def instant_of(moment: datetime) -> int:
    """The whole second that `moment` is in."""
    if moment.tzinfo is None:
        raise ValueError("A moment needs a UTC offset.")
    passed = moment - UNIX
    return (passed.days + UNIX.toordinal()) * DAY + passed.seconds


def span_at(name: str, instant: int) -> Span:
    """The span of zone `name` with that instant, which is between FIRST and LAST."""
    spans = spans_of(name, instant // PIECE)
    return next(span for span in spans if instant < span.end)


def check_zone(name: object) -> None:
    """Raises InvalidSchedule where `name` is not a zone of the IANA data."""
    _zone(name if isinstance(name, str) and len(name) < 100 else "")


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    if name not in zone_names():
        raise InvalidSchedule(
            "timezone", f"The time zone {shown(name)} is unknown; write an IANA name such as Europe/Berlin or UTC."
        )
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """All zones there are."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split())


@lru_cache(maxsize=8192)
def spans_of(name: str, piece: int) -> tuple[Span, ...]:
    """The spans that cover one piece of time, and three days before it."""
    zone = _zone(name)
    start, end = piece * PIECE - BACK, (piece + 1) * PIECE
    offset = _offset(zone, start - 1)
    changes = [(start, offset, offset)]
    for low in range(start - 1, end - 1, DAY):
        high = min(low + DAY, end - 1)
        after = _offset(zone, high)
        if after != offset:
            changes.append((_change(zone, low, high), offset, after))
            offset = after
    ends = [at for at, _, _ in changes[1:]] + [end]
    return tuple(
        Span(at, until, after, before, BEGIN.replace(tzinfo=timezone(timedelta(seconds=after))))
        for (at, before, after), until in zip(changes, ends, strict=True)
    )


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    """The first instant with the new offset; it is after `low` and not after `high`."""
    old = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == old:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: ZoneInfo, instant: int) -> int:
    moment = BEGIN + timedelta(seconds=min(max(instant, FIRST), LAST) - DAY)
    offset = zone.fromutc(moment.replace(tzinfo=zone)).utcoffset()
    assert offset is not None  # noqa: S101 - a ZoneInfo always has one
    return offset.days * DAY + offset.seconds
