"""A cron expression in compiled form, and the search for the wall times that fit it. Knows nothing of time zones.

Wall times are whole seconds: the proleptic ordinal of the day (1 January of year 1 is day 1) times 86,400, plus the
second of the day. Sets are bit masks: bit n of `hours` is hour n. The search goes day by day through a table with the
matching days of the 28 kinds of month (7 first weekdays, 4 lengths), so no expression makes it slow; the longest way
between two matching days of the calendar is 40 years (29 February on a given weekday, across a year like 2100).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

DAY = 86_400
LAST_DAY = date.max.toordinal()
LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
ALL_DAYS = (1 << 32) - 2
ALL_WEEKDAYS = (1 << 7) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """An accepted expression. Made by `scheduling.domain.cron.parse` alone."""

    expression: str
    """As it was written."""
    seconds: int
    minutes: int
    hours: int
    days: int
    """Bits 1 to 31."""
    last_day: bool
    """`L` in the field of the day of month."""
    months: int
    """Bits 1 to 12."""
    weekdays: int
    """Bits 0 to 6, 0 is Sunday."""
    nth_weekdays: tuple[int, int, int, int, int]
    """For #1 to #5 the weekdays that are asked for."""
    last_weekdays: int
    """The weekdays of `5L`."""
    both_days: bool
    """Vixie's rule: a day field that starts with `*` makes both necessary; otherwise either is enough."""
    fixed: bool
    """Neither minute nor hour starts with `*`: the rule of Debian's cron for clock changes applies."""
    month_days: tuple[int, ...] = field(repr=False, compare=False)
    """The matching days of each kind of month, see `month_table`."""

    def at_or_after(self, wall: int) -> int | None:
        """The first matching wall time that is not before `wall`; None behind the end of the year 9999."""
        day, time = divmod(wall, DAY)
        found = self._day_from(day)
        if found == day:
            later = self._time_from(time)
            if later is not None:
                return day * DAY + later
            found = self._day_from(day + 1)
        if found is None:
            return None
        return found * DAY + _low(self.hours, 0) * 3600 + _low(self.minutes, 0) * 60 + _low(self.seconds, 0)

    def at_or_before(self, wall: int) -> int | None:
        """The last matching wall time that is not after `wall`; None before the year 1."""
        day, time = divmod(wall, DAY)
        found = self._day_until(day)
        if found == day:
            earlier = self._time_until(time)
            if earlier is not None:
                return day * DAY + earlier
            found = self._day_until(day - 1)
        if found is None:
            return None
        return found * DAY + _high(self.hours, 23) * 3600 + _high(self.minutes, 59) * 60 + _high(self.seconds, 59)

    def any_between(self, start: int, end: int) -> bool:
        """Whether a wall time in [start, end) matches."""
        found = self.at_or_after(start)
        return found is not None and found < end

    def count_between(self, start: int, end: int) -> int:
        """How many wall times in [start, end) match; the cost grows with the months between, not with the number."""
        if end <= start:
            return 0
        return self._count_before(end, start // DAY) - self._count_before(start, start // DAY)

    def days_in(self, year: int, month: int, first: int) -> int:
        """The matching days of a month as bits 1 to 31; `first` is the ordinal of its first day."""
        if not self.months >> month & 1:
            return 0
        return self.month_days[first % 7 * 4 + _length(year, month) - 28]

    def _day_from(self, day: int) -> int | None:
        if day > LAST_DAY:
            return None
        at = date.fromordinal(max(day, 1))
        year, month, first = at.year, at.month, at.toordinal() - at.day + 1
        bits = self.days_in(year, month, first) >> at.day << at.day
        while not bits:
            first += _length(year, month)
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            if year > date.max.year:
                return None
            bits = self.days_in(year, month, first)
        return first - 1 + _low(bits, 0)

    def _day_until(self, day: int) -> int | None:
        if day < 1:
            return None
        at = date.fromordinal(min(day, LAST_DAY))
        year, month, first = at.year, at.month, at.toordinal() - at.day + 1
        bits = self.days_in(year, month, first) & (2 << at.day) - 1
        while not bits:
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            if year < date.min.year:
                return None
            first -= _length(year, month)
            bits = self.days_in(year, month, first)
        return first - 1 + _high(bits, 31)

    def _time_from(self, time: int) -> int | None:
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        found_hour = _low(self.hours, hour)
        if found_hour == hour:
            found_minute = _low(self.minutes, minute)
            if found_minute == minute:
                found_second = _low(self.seconds, second)
                if found_second >= 0:
                    return hour * 3600 + minute * 60 + found_second
                found_minute = _low(self.minutes, minute + 1)
            if found_minute >= 0:
                return hour * 3600 + found_minute * 60 + _low(self.seconds, 0)
            found_hour = _low(self.hours, hour + 1)
        if found_hour < 0:
            return None
        return found_hour * 3600 + _low(self.minutes, 0) * 60 + _low(self.seconds, 0)

    def _time_until(self, time: int) -> int | None:
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        found_hour = _high(self.hours, hour)
        if found_hour == hour:
            found_minute = _high(self.minutes, minute)
            if found_minute == minute:
                found_second = _high(self.seconds, second)
                if found_second >= 0:
                    return hour * 3600 + minute * 60 + found_second
                found_minute = _high(self.minutes, minute - 1)
            if found_minute >= 0:
                return hour * 3600 + found_minute * 60 + _high(self.seconds, 59)
            found_hour = _high(self.hours, hour - 1)
        if found_hour < 0:
            return None
        return found_hour * 3600 + _high(self.minutes, 59) * 60 + _high(self.seconds, 59)

    def _count_before(self, wall: int, origin: int) -> int:
        """Matches from the begin of the day `origin` until `wall`, `wall` itself left out."""
        day, time = divmod(wall, DAY)
        per_minute, per_hour = self.seconds.bit_count(), self.seconds.bit_count() * self.minutes.bit_count()
        days = 0
        at = self._day_from(origin)
        while at is not None and at < day:
            first = at - date.fromordinal(at).day + 1
            end = min(day - first + 1, 32)
            month = date.fromordinal(first)
            bits = self.days_in(month.year, month.month, first) & (1 << end) - 1
            days += (bits >> at - first + 1).bit_count()
            at = self._day_from(first + _length(month.year, month.month))
        counted = days * per_hour * self.hours.bit_count()
        if self._day_from(day) != day:
            return counted
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        counted += _below(self.hours, hour) * per_hour
        if self.hours >> hour & 1:
            counted += _below(self.minutes, minute) * per_minute
            if self.minutes >> minute & 1:
                counted += _below(self.seconds, second)
        return counted


def month_table(
    *,
    days: int,
    last_day: bool,
    weekdays: int,
    nth_weekdays: Sequence[int],
    last_weekdays: int,
    both_days: bool,
) -> tuple[int, ...]:
    """The matching days of a month that begins on weekday w and has n days, at index `w * 4 + n - 28`."""
    weeks = [(asked, 0xFE << nth * 7) for nth, asked in enumerate(nth_weekdays)]  # #1 is one of the days 1 to 7
    table = []
    for first in range(7):
        for length in range(28, 32):
            exists = (2 << length) - 2
            by_day = days | (1 << length if last_day else 0)
            by_weekday = _on(weekdays, first)
            for asked, week in (*weeks, (last_weekdays, 0x7F << length - 6)):
                if asked:
                    by_weekday |= _on(asked, first) & week
            table.append((by_day & by_weekday if both_days else by_day | by_weekday) & exists)
    return tuple(table)


def can_match(months: int, month_days: Sequence[int]) -> bool:
    """Whether some year has a matching day: each kind of year comes within the 400 years of the calendar's cycle."""
    for month in range(1, 13):
        lengths = (28, 29) if month == 2 else (LENGTHS[month],)
        if months >> month & 1 and any(month_days[w * 4 + n - 28] for w in range(7) for n in lengths):
            return True
    return False


def _on(weekdays: int, first: int) -> int:
    """The days, bits 1 to 31, that are one of `weekdays` in a month whose day 1 has the weekday `first`."""
    week = (weekdays >> first | weekdays << 7 - first) & ALL_WEEKDAYS
    return (week | week << 7 | week << 14 | week << 21 | week << 28) << 1 & ALL_DAYS


def _length(year: int, month: int) -> int:
    return 29 if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else LENGTHS[month]


def _low(bits: int, start: int) -> int:
    """The lowest member that is not below `start`, or -1."""
    rest = bits >> start
    return start + (rest & -rest).bit_length() - 1 if rest else -1


def _high(bits: int, end: int) -> int:
    """The highest member that is not above `end`, or -1."""
    return (bits & (1 << end + 1) - 1).bit_length() - 1


def _below(bits: int, end: int) -> int:
    """How many members are below `end`."""
    return (bits & (1 << end) - 1).bit_count()
