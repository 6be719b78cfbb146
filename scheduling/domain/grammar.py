"""The grammar of cron expressions: text in, a `Cron` or one clear refusal out.

Five fields (minute, hour, day of month, month, weekday), or six with seconds first, parted by spaces or tabs. A field
is a list of `*`, `*/n`, `a`, `a-b` and `a-b/n`; months and weekdays have English names of three letters; weekday 0 and
7 are Sunday; the day of month also knows `L` (last day), the weekday `5L` (last Friday) and `MON#2` (second Monday).
Letter case does not matter. Macros: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually. Nothing else is
in it. The text is ASCII and has at most 1,000 characters, which bounds the work; six fields written as full lists have
about 560.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

from scheduling.domain.errors import InvalidSchedule, NeverFires, shown
from scheduling.domain.pattern import Cron, can_match, month_table

LONGEST = 1_000
MACROS = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class Field:
    """One place of an expression: its name in messages, its range, its names for numbers."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


SECOND, MINUTE, HOUR = Field("second", 0, 59), Field("minute", 0, 59), Field("hour", 0, 23)
DAY, MONTH = Field("day of month", 1, 31), Field("month", 1, 12, MONTHS)
WEEKDAY = Field("weekday", 0, 7, WEEKDAYS)

ITEM = re.compile(r"(?:(?P<star>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>[0-9]+))?", re.ASCII)
OF_MONTH = re.compile(r"(?P<weekday>\w+?)(?:#(?P<nth>[0-9]+)|(?P<last>L))", re.ASCII)


def read(expression: str) -> Cron:
    """Compile `expression`. Raises InvalidSchedule, or NeverFires where no date of the calendar fits."""
    second, minute, hour, day, month, weekday = _fields(expression)
    last_day, days = _days(day)
    weekdays, nth_weekdays, last_weekdays = _weekdays(weekday)
    months = _mask(month, MONTH)
    both_days = day.startswith("*") or weekday.startswith("*")
    table = month_table(
        days=days,
        last_day=last_day,
        weekdays=weekdays,
        nth_weekdays=nth_weekdays,
        last_weekdays=last_weekdays,
        both_days=both_days,
    )
    cron = Cron(
        expression=expression,
        seconds=_mask(second, SECOND),
        minutes=_mask(minute, MINUTE),
        hours=_mask(hour, HOUR),
        days=days,
        last_day=last_day,
        months=months,
        weekdays=weekdays,
        nth_weekdays=nth_weekdays,
        last_weekdays=last_weekdays,
        both_days=both_days,
        fixed=not minute.startswith("*") and not hour.startswith("*"),
        month_days=table,
    )
    if not can_match(months, table):
        raise NeverFires("expression", f"The expression {shown(expression)} names no date that exists.")
    return cron


def _fields(expression: object) -> list[str]:
    """The six fields in capitals; seconds are `0` where none are written."""
    if not isinstance(expression, str):
        raise InvalidSchedule("expression", "A cron expression is a text of five or six fields.")
    if len(expression) > LONGEST:
        raise InvalidSchedule("expression", f"A cron expression has at most {LONGEST:,} characters.")
    if not expression.isascii() or not expression.replace("\t", " ").isprintable():
        raise InvalidSchedule(
            "expression", f"The cron expression {shown(expression)} has a character that is not plain ASCII text."
        )
    text = expression.upper().strip(" \t")
    if text.startswith("@"):
        if text not in MACROS:
            known = ", ".join(MACROS).lower()
            raise InvalidSchedule("expression", f"The macro {shown(expression)} is unknown; there are {known}.")
        text = MACROS[text]
    fields = text.split()
    if len(fields) not in (5, 6):
        raise InvalidSchedule(
            "expression",
            f"The cron expression {shown(expression)} has {len(fields)} fields; write five (minute, hour, day of "
            "month, month, weekday) or six with seconds first.",
        )
    return fields if len(fields) == 6 else ["0", *fields]


def _mask(text: str, field: Field) -> int:
    bits = 0
    for item in text.split(","):
        bits |= _item(item, field)
    return bits


def _days(text: str) -> tuple[bool, int]:
    """Whether the last day is asked for, and the days as bits."""
    items = text.split(",")
    plain = [item for item in items if item != "L"]
    return len(plain) < len(items), _mask(",".join(plain), DAY) if plain else 0


def _weekdays(text: str) -> tuple[int, tuple[int, int, int, int, int], int]:
    """Weekdays that always match, those of #1 to #5, those of L; 7 has become 0."""
    plain, last, nth = 0, 0, [0, 0, 0, 0, 0]
    for item in text.split(","):
        found = OF_MONTH.fullmatch(item)
        if found is None:
            plain |= _item(item, WEEKDAY)
            continue
        bit = 1 << _number(found["weekday"], WEEKDAY, item) % 7
        if found["last"]:
            last |= bit
        elif found["nth"] in ("1", "2", "3", "4", "5"):
            nth[int(found["nth"]) - 1] |= bit
        else:
            _refuse(item, WEEKDAY, "# takes 1 to 5")
    return (plain | plain >> 7) & 0x7F, (nth[0], nth[1], nth[2], nth[3], nth[4]), last


def _item(item: str, field: Field) -> int:
    """The bits of one item of a list."""
    found = ITEM.fullmatch(item)
    if found is None:
        _refuse(item, field, _hint(item, field))
    low, high = field.low, field.high
    if not found["star"]:
        low = _number(found["first"], field, item)
        high = low if found["last"] is None else _number(found["last"], field, item)
        if found["step"] and found["last"] is None:
            _refuse(item, field, f"a step needs a range: {field.low}-{field.high}/n or */n")
    if high < low:
        _refuse(item, field, "the range runs backwards; write it as two ranges")
    step = int(found["step"] or 1)
    if step == 0:
        _refuse(item, field, "a step is at least 1")
    return sum(1 << value for value in range(low, high + 1, step))


def _number(text: str, field: Field, item: str) -> int:
    if text in field.names:
        return field.names.index(text) + (1 if field is MONTH else 0)
    if not text.isdigit():
        _refuse(item, field, _hint(item, field))
    value = int(text)
    if not field.low <= value <= field.high:
        _refuse(item, field, f"it runs from {field.low} to {field.high}")
    return value


def _hint(item: str, field: Field) -> str:
    """What to do about an item that is in no form of the grammar."""
    if not item:
        return "an entry of the list is empty"
    if item == "?":
        return "write * in place of ?"
    if field is DAY and item.endswith("W"):
        return "W (the nearest working day) is not supported"
    if field.names:
        return f"write numbers or the names {field.names[0]} to {field.names[-1]}"
    return "write *, a number, a range a-b, or a step */n or a-b/n"


def _refuse(item: str, field: Field, why: str) -> NoReturn:
    raise InvalidSchedule("expression", f"The {field.name} {shown(item)} cannot be read: {why}.")
