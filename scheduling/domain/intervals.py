"""Intervals: a schedule that fires every so many seconds of real time, counted from an anchor that is stored with it.

Fires are anchor + n * every for n = 0, 1, 2, …: each is computed from the anchor and never from the fire before, so
nothing drifts and a restart changes nothing. Real time has no clock changes, so zones play no part; answers are in UTC.

An interval is written `90s`, `15m`, `1h30m`, `2d` or `1w`: whole numbers, each unit once, the larger first. A plain
number is seconds.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from scheduling.domain.errors import InvalidSchedule, shown

UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
LONGEST_S = 3_660 * 86_400
"""Ten years."""
UNIX = datetime(1970, 1, 1, tzinfo=UTC)
WRITTEN = re.compile("".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in UNITS))


def parse(text: str | int, *, minimum_s: int = 1) -> int:
    """The seconds that `text` names, from `minimum_s` to ten years. Raises InvalidSchedule."""
    every_s = _seconds(text)
    if every_s < max(minimum_s, 1):
        raise InvalidSchedule("every", f"The interval {_as_given(text)} is too short; {write(minimum_s)} is the least.")
    if every_s > LONGEST_S:
        raise InvalidSchedule("every", f"The interval {_as_given(text)} is too long; {write(LONGEST_S)} is the most.")
    return every_s


def write(every_s: int) -> str:
    """The shortest text that `parse` reads as `every_s`: 5400 is `1h30m`."""
    parts = []
    for unit, size in UNITS.items():
        if unit == "w" and every_s % size:
            continue
        number, every_s = divmod(every_s, size)
        parts.append(f"{number}{unit}" if number else "")
    return "".join(parts) or "0s"


def next_fires(every_s: int, anchor: datetime, after: datetime, count: int) -> list[datetime]:
    """The next `count` fires strictly after `after`; the anchor itself is the first fire there is."""
    if count < 0:
        raise ValueError("count is 0 or more.")
    return list(islice(fires_after(every_s, anchor, after), count))


def previous_fire(every_s: int, anchor: datetime, at_or_before: datetime) -> datetime | None:
    """The latest fire at or before that moment; None before the anchor."""
    return next(fires_back(every_s, anchor, at_or_before), None)


def fires_between(every_s: int, anchor: datetime, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The first `limit` fires after `after` and not after `until`, in order."""
    wanted = min(limit, count_between(every_s, anchor, after, until))
    return next_fires(every_s, anchor, after, max(wanted, 0))


def count_between(every_s: int, anchor: datetime, after: datetime, until: datetime) -> int:
    """How many fires there are after `after` and not after `until`."""
    return max(0, _number_at(every_s, anchor, until) - max(_number_at(every_s, anchor, after), -1))


def fires_after(every_s: int, anchor: datetime, after: datetime) -> Iterator[datetime]:
    """Fires strictly after `after`, in order, found as they are asked for."""
    number = max(_number_at(every_s, anchor, after) + 1, 0)
    while True:
        try:
            fire = anchor.astimezone(UTC) + timedelta(seconds=every_s * number)
        except OverflowError:  # the calendar ends
            return
        yield fire
        number += 1


def fires_back(every_s: int, anchor: datetime, at_or_before: datetime) -> Iterator[datetime]:
    """Fires at or before that moment, the latest first, found as they are asked for."""
    for number in range(_number_at(every_s, anchor, at_or_before), -1, -1):
        yield anchor.astimezone(UTC) + timedelta(seconds=every_s * number)


def _number_at(every_s: int, anchor: datetime, moment: datetime) -> int:
    """The number of the latest fire at or before `moment`; negative before the anchor."""
    if anchor.tzinfo is None or moment.tzinfo is None:
        raise ValueError("A moment needs a UTC offset.")
    if every_s < 1:
        raise ValueError("every_s is 1 or more.")
    return ((moment - UNIX) - (anchor - UNIX)) // timedelta(seconds=every_s)


def _seconds(text: object) -> int:
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if isinstance(text, str) and 0 < len(text) <= 60:
        if re.fullmatch("[0-9]{1,12}", text):
            return int(text)
        found = WRITTEN.fullmatch(text)
        if found:
            return sum(int(number or 0) * size for number, size in zip(found.groups(), UNITS.values(), strict=True))
    raise InvalidSchedule(
        "every", f"The interval {_as_given(text)} cannot be read; write it like 90s, 15m, 1h30m, 2d or 1w."
    )


def _as_given(text: object) -> str:
    if isinstance(text, int) and not isinstance(text, bool):
        return f"of {text} seconds" if abs(text) < 10**15 else "given"
    return shown(text if isinstance(text, str) else type(text).__name__)
