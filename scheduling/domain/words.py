"""A schedule in plain English words, made from its compiled sets: what is written differently and means the same reads
the same, and what means something else reads otherwise.

Shape: days, times and months: "every day at 09:00", "on the last Friday of the month at 18:30", "every 20 minutes from
09:00 to 17:40 from Monday to Friday, only in June"; then the zone, which is left out where only a rhythm is said.
"""

from collections.abc import Sequence

from scheduling.domain import cron
from scheduling.domain.intervals import UNITS
from scheduling.domain.pattern import ALL_DAYS, ALL_WEEKDAYS, Cron

FEW = 4
"""Up to so many times of the day are simply listed."""
MONTHS = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONDAY_FIRST = (1, 2, 3, 4, 5, 6, 0)
ORDINALS = ("first", "second", "third", "fourth", "fifth")
UNIT_NAMES = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second"}


def describe(expression: str | Cron, timezone: str) -> str:
    """The schedule in words. Raises ScheduleError where expression or zone is not accepted."""
    cron.check_zone(timezone)
    compiled = expression if isinstance(expression, Cron) else cron.parse(expression)
    times, (days, months) = _times(compiled), _days_and_months(compiled)
    if not times.startswith("at ") or times.endswith("of every hour"):
        text = f"{times} {days}" if days else times
    else:
        text = f"{days or 'every day'} {times}"
    text = f"{text}, only {months}" if months else text
    plain = (
        times in (_every(compiled.minutes, "minute"), _every(compiled.seconds, "second")) and not days and not months
    )
    return text if plain else f"{text} ({timezone})"


def describe_interval(every_s: int) -> str:
    """An interval in words: "every 15 minutes", "every 1 hour and 30 minutes"."""
    parts, rest = [], every_s
    for unit, size in UNITS.items():
        if unit == "w" and every_s % size:
            continue
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {UNIT_NAMES[unit]}{'s' if number > 1 else ''}")
    if len(parts) == 1 and parts[0].startswith("1 "):
        parts[0] = parts[0].removeprefix("1 ")
    return f"every {_join(parts)}"


def _times(compiled: Cron) -> str:
    """The times of a day. Lists begin with "at"."""
    seconds, minutes, hours = (_members(bits) for bits in (compiled.seconds, compiled.minutes, compiled.hours))
    if len(seconds) * len(minutes) * len(hours) <= FEW:
        return f"at {_join([_clock(h, m, s) for h in hours for m in minutes for s in seconds])}"
    if len(seconds) == 1 and len(minutes) == 1:
        return _hourly(hours, minutes[0], seconds[0])
    if seconds == [0]:
        return _by_minutes(compiled.minutes, hours)
    return _by_seconds(compiled.seconds, compiled.minutes, hours)


def _hourly(hours: list[int], minute: int, second: int) -> str:
    """One minute of many hours."""
    if len(hours) == 24:
        if minute == second == 0:
            return "every hour"
        return f"at minute {minute}{f' and second {second}' if second else ''} of every hour"
    step = hours[1] - hours[0]
    if hours == list(range(hours[0], hours[-1] + 1, step)):
        every = "every hour" if step == 1 else f"every {step} hours"
        return f"{every} from {_clock(hours[0], minute, second)} to {_clock(hours[-1], minute, second)}"
    return f"at {_join([_clock(hour, minute, second) for hour in hours])}"


def _by_minutes(minutes: int, hours: list[int]) -> str:
    """Several minutes of an hour, at second 0."""
    every, last = _every(minutes, "minute"), _members(minutes)[-1]
    if every is None:
        return f"at {_numbers('minute', minutes)} {_of_hours(hours)}"
    if len(hours) == 24:
        return every
    if _is_run(hours):
        return f"{every} from {_clock(hours[0], 0, 0)} to {_clock(hours[-1], last, 0)}"
    return f"{every} {_in_hours(hours)}"


def _by_seconds(seconds: int, minutes: int, hours: list[int]) -> str:
    """Several seconds of a minute, or one that is not 0, in several minutes."""
    every, last = _every(seconds, "second"), _members(seconds)[-1]
    if minutes.bit_count() < 60:
        moments = f"{every} in" if every else f"at {_numbers('second', seconds)} of"
        return f"{moments} {_numbers('minute', minutes)} {_of_hours(hours)}"
    if every is None:
        moments = f"every minute at {_numbers('second', seconds)}"
        return moments if len(hours) == 24 else f"{moments} {_in_hours(hours)}"
    if len(hours) == 24:
        return every
    if _is_run(hours):
        return f"{every} from {_clock(hours[0], 0, 0, long=True)} to {_clock(hours[-1], 59, last, long=True)}"
    return f"{every} {_in_hours(hours)}"


def _days_and_months(compiled: Cron) -> tuple[str, str]:
    """`on day 1 of January and July`, or the days and then `in January and July` where the days are several phrases."""
    days, months = _days(compiled), _months(compiled)
    single = days.count("of the month") == 1 and compiled.weekdays in (0, ALL_WEEKDAYS)
    if months.startswith("in ") and single:
        return f"{days.removesuffix('the month')}{months.removeprefix('in ')}", ""
    return days, months


def _days(compiled: Cron) -> str:
    """The days, with their preposition; empty where it is every day."""
    every_day = compiled.days == ALL_DAYS
    every_weekday = compiled.weekdays == ALL_WEEKDAYS
    if compiled.both_days:
        if every_day and every_weekday:
            return ""
        if every_weekday:
            return f"on {_month_days(compiled)}"
        if every_day:
            return _weekdays(compiled, "and")
        return f"on {_month_days(compiled)} when that is {_join(_one_of_weekdays(compiled), 'or')}"
    if every_day or every_weekday:
        return ""
    return f"on {_month_days(compiled)} or {_weekdays(compiled, 'or')}"


def _month_days(compiled: Cron) -> str:
    parts = [_numbers("day", compiled.days)] if compiled.days else []
    parts += ["the last day"] if compiled.last_day else []
    return f"{' and '.join(parts)} of the month"


def _weekdays(compiled: Cron, word: str) -> str:
    of_month = _weekdays_of_month(compiled)
    plain = _plain_weekdays(compiled.weekdays) if compiled.weekdays else ""
    if not of_month:
        return plain
    return f"{f'{plain} {word} ' if plain else ''}on {_join(of_month, word)} of the month"


def _plain_weekdays(weekdays: int) -> str:
    """`from Monday to Friday` for a run, even around the end of the week, and a list otherwise."""
    named = [day for day in MONDAY_FIRST if weekdays >> day & 1]
    begins = [day for day in named if not weekdays >> (day - 1) % 7 & 1]
    if len(begins) == 1 and len(named) > 2:
        return f"from {WEEKDAYS[begins[0]]} to {WEEKDAYS[(begins[0] + len(named) - 1) % 7]}"
    return f"on {_join([WEEKDAYS[day] + 's' for day in named])}"


def _weekdays_of_month(compiled: Cron) -> list[str]:
    found = []
    for ordinal, weekdays in zip((*ORDINALS, "last"), (*compiled.nth_weekdays, compiled.last_weekdays), strict=True):
        found += [f"the {ordinal} {WEEKDAYS[day]}" for day in MONDAY_FIRST if weekdays >> day & 1]
    return found


def _one_of_weekdays(compiled: Cron) -> list[str]:
    plain = [f"a {WEEKDAYS[day]}" for day in MONDAY_FIRST if compiled.weekdays >> day & 1]
    return plain + [f"{weekday} of the month" for weekday in _weekdays_of_month(compiled)]


def _months(compiled: Cron) -> str:
    named = _members(compiled.months)
    if len(named) == 12:
        return ""
    if len(named) > 2 and _is_run(named):
        return f"from {MONTHS[named[0]]} to {MONTHS[named[-1]]}"
    return f"in {_join([MONTHS[month] for month in named])}"


def _every(bits: int, unit: str) -> str | None:
    """`every 15 minutes` where the set is such a rhythm of the 60 places, hour after hour."""
    members = _members(bits)
    step = 60 // len(members)
    if len(members) < 2 or members != list(range(0, 60, step)):
        return None
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _of_hours(hours: list[int]) -> str:
    if len(hours) == 24:
        return "of every hour"
    return f"of the {_listed('hour', hours)}"


def _in_hours(hours: list[int]) -> str:
    return f"in the {_listed('hour', hours)}"


def _numbers(noun: str, bits: int) -> str:
    return _listed(noun, _members(bits))


def _listed(noun: str, numbers: list[int]) -> str:
    """`minute 5`, `minutes 0 to 10 and 30`: runs of three and more are drawn together."""
    parts: list[str] = []
    rest = numbers
    while rest:
        length = next((n for n in range(1, len(rest)) if rest[n] != rest[0] + n), len(rest))
        run, rest = rest[:length], rest[length:]
        parts += [f"{run[0]} to {run[-1]}"] if length > 2 else [str(number) for number in run]
    return f"{noun}{'s' if len(numbers) > 1 else ''} {_join(parts)}"


def _members(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]


def _is_run(numbers: list[int]) -> bool:
    return numbers[-1] - numbers[0] == len(numbers) - 1


def _clock(hour: int, minute: int, second: int, *, long: bool = False) -> str:
    return f"{hour:02}:{minute:02}:{second:02}" if second or long else f"{hour:02}:{minute:02}"


def _join(parts: Sequence[str], word: str = "and") -> str:
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}" if len(parts) > 1 else parts[0]
