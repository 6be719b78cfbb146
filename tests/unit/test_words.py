"""Schedules in words: the shapes, and that two schedules which differ never read alike."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.domain import cron
from scheduling.domain.intervals import UNITS
from scheduling.domain.words import describe, describe_interval

BERLIN = "Europe/Berlin"
ADDED_UP = "every 1 day, 1 hour, 1 minute and 1 second"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        # rhythms
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0,30 * * * *", "every 30 minutes"),
        ("0-59/20 0-23 1-31 1-12 0-7", "every 20 minutes"),
        ("0 */15 * * * *", "every 15 minutes"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("*/10 * * * SAT,SUN", "every 10 minutes on Saturdays and Sundays (Europe/Berlin)"),
        ("*/10 * * JUN *", "every 10 minutes, only in June (Europe/Berlin)"),
        ("*/20 9-17 * * MON-FRI", "every 20 minutes from 09:00 to 17:40 from Monday to Friday (Europe/Berlin)"),
        ("* 8 * * *", "every minute from 08:00 to 08:59 (Europe/Berlin)"),
        ("*/5 9,12,17 * * *", "every 5 minutes in the hours 9, 12 and 17 (Europe/Berlin)"),
        ("*/5 * 8-10 * * *", "every 5 seconds from 08:00:00 to 10:59:55 (Europe/Berlin)"),
        ("* * 9,12 * * *", "every second in the hours 9 and 12 (Europe/Berlin)"),
        ("*/5 3 * * * *", "every 5 seconds in minute 3 of every hour (Europe/Berlin)"),
        ("*/5 3,7 9-17 * * *", "every 5 seconds in minutes 3 and 7 of the hours 9 to 17 (Europe/Berlin)"),
        # what is no rhythm is listed
        ("*/25 * * * *", "at minutes 0, 25 and 50 of every hour (Europe/Berlin)"),
        ("1-59/20 * * * *", "at minutes 1, 21 and 41 of every hour (Europe/Berlin)"),
        ("5 * * * *", "at minute 5 of every hour (Europe/Berlin)"),
        ("30 5 * * * *", "at minute 5 and second 30 of every hour (Europe/Berlin)"),
        ("30 * * * * *", "every minute at second 30 (Europe/Berlin)"),
        ("15,45 * * * * *", "every minute at seconds 15 and 45 (Europe/Berlin)"),
        ("15,45 * 3-5 * * *", "every minute at seconds 15 and 45 in the hours 3 to 5 (Europe/Berlin)"),
        ("15,45 */30 * * * *", "at seconds 15 and 45 of minutes 0 and 30 of every hour (Europe/Berlin)"),
        ("3,7 1-3,8 * * MON", "on Mondays at minutes 3 and 7 of the hours 1 to 3 and 8 (Europe/Berlin)"),
        ("1-30 9 * * *", "every day at minutes 1 to 30 of the hour 9 (Europe/Berlin)"),
        # hours
        ("@hourly", "every hour (Europe/Berlin)"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00 (Europe/Berlin)"),
        ("30 */2 * * *", "every 2 hours from 00:30 to 22:30 (Europe/Berlin)"),
        ("1 2,3,5,7,11 * * *", "every day at 02:01, 03:01, 05:01, 07:01 and 11:01 (Europe/Berlin)"),
        # times
        ("0 9 * * *", "every day at 09:00 (Europe/Berlin)"),
        ("5 0 9 * * *", "every day at 09:00:05 (Europe/Berlin)"),
        ("0,30 9,17 * * *", "every day at 09:00, 09:30, 17:00 and 17:30 (Europe/Berlin)"),
        ("0 */6 * * *", "every day at 00:00, 06:00, 12:00 and 18:00 (Europe/Berlin)"),
        ("@weekly", "on Sundays at 00:00 (Europe/Berlin)"),
        ("0 0 * * SUN-THU", "from Sunday to Thursday at 00:00 (Europe/Berlin)"),
        ("0 0 * * 0,5,6", "from Friday to Sunday at 00:00 (Europe/Berlin)"),
        ("0 0 * * 1,3,5", "on Mondays, Wednesdays and Fridays at 00:00 (Europe/Berlin)"),
        # days of the month
        ("@monthly", "on day 1 of the month at 00:00 (Europe/Berlin)"),
        ("@yearly", "on day 1 of January at 00:00 (Europe/Berlin)"),
        ("15 7 29 2 *", "on day 29 of February at 07:15 (Europe/Berlin)"),
        ("0 0 1-7,15,L * *", "on days 1 to 7 and 15 and the last day of the month at 00:00 (Europe/Berlin)"),
        ("0 0 L 2,6 *", "on the last day of February and June at 00:00 (Europe/Berlin)"),
        ("0 0 L 6-8 *", "on the last day of the month at 00:00, only from June to August (Europe/Berlin)"),
        ("30 18 * * 5L", "on the last Friday of the month at 18:30 (Europe/Berlin)"),
        ("30 18 * 2 FRIL", "on the last Friday of February at 18:30 (Europe/Berlin)"),
        ("0 9 * * MON#2,7#5", "on the second Monday and the fifth Sunday of the month at 09:00 (Europe/Berlin)"),
        ("0 9 * * WED,MON#1", "on Wednesdays and on the first Monday of the month at 09:00 (Europe/Berlin)"),
        ("0 9 * 5 3,1#1", "on Wednesdays and on the first Monday of the month at 09:00, only in May (Europe/Berlin)"),
        # both day fields
        ("0 0 13 * FRI", "on day 13 of the month or on Fridays at 00:00 (Europe/Berlin)"),
        ("0 0 L * 5#1", "on the last day of the month or on the first Friday of the month at 00:00 (Europe/Berlin)"),
        ("0 0 1 5 FRI", "on day 1 of the month or on Fridays at 00:00, only in May (Europe/Berlin)"),
        ("0 0 L * 1-3", "on the last day of the month or from Monday to Wednesday at 00:00 (Europe/Berlin)"),
        ("0 0 */10 * MON", "on days 1, 11, 21 and 31 of the month when that is a Monday at 00:00 (Europe/Berlin)"),
        ("@daily", "every day at 00:00 (Europe/Berlin)"),
        ("0 0 1-31 * MON", "every day at 00:00 (Europe/Berlin)"),
        ("0 0 13 * 0-6", "every day at 00:00 (Europe/Berlin)"),
        ("0 0 * * *,MON#1", "every day at 00:00 (Europe/Berlin)"),
        ("0 0 13 * *", "on day 13 of the month at 00:00 (Europe/Berlin)"),
    ],
)  # fmt: skip
def test_a_schedule_reads_in_plain_words(expression: str, words: str) -> None:
    assert describe(expression, BERLIN) == words
    assert describe(cron.parse(expression), BERLIN) == words


def test_days_that_must_be_both_read_as_a_condition() -> None:
    assert describe("0 0 */15 * 1,2#1,5L", "UTC") == (
        "on days 1, 16 and 31 of the month when that is a Monday, the first Tuesday of the month "
        "or the last Friday of the month at 00:00 (UTC)"
    )


def test_what_is_not_accepted_has_no_words() -> None:
    for expression, zone in (("60 * * * *", "UTC"), ("0 0 31 2 *", "UTC"), ("* * * * *", "Nowhere")):
        with pytest.raises(cron.ScheduleError):
            describe(expression, zone)


def test_schedules_that_differ_never_read_alike() -> None:
    """Fields from a small stock, so that near misses are many."""
    rng = random.Random(5)
    clock = ["0", "5", "*", "*/30", "0,30", "5-7", "*/7", "0-59/10", "1,5,9", "*/20"]
    hours = ["0", "9", "*", "*/2", "9-11", "9,11", "9-17/2", "1-3,8", "0-23/6", "*/5"]
    days = ["*", "1", "13", "L", "1,L", "*/10", "1-31", "1-7", "*/2"]
    months = ["*", "1", "6-8", "1,7", "*/3", "2"]
    weekdays = ["*", "1", "FRI", "1-5", "0,6", "MON#1", "5L", "1,5L", "*/3", "1,3,5", "MON#1,MON#3", "0-6"]
    read: dict[str, set[Any]] = {}
    for _ in range(12_000):
        fields = [rng.choice(stock) for stock in (clock, clock, hours, days, months, weekdays)]
        try:
            compiled = cron.parse(" ".join(fields))
        except cron.NeverFires:
            continue
        words = describe(compiled, BERLIN)
        meaning = (compiled.seconds, compiled.minutes, compiled.hours, compiled.months, compiled.month_days)
        read.setdefault(words, set()).add(meaning)
        assert len(read[words]) == 1, (words, fields)
    assert len(read) > 5_000


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((1, "every second"), (45, "every 45 seconds"), (60, "every minute"), (900, "every 15 minutes")),
        *((3600, "every hour"), (86_400, "every day"), (604_800, "every week"), (1_209_600, "every 2 weeks")),
        *((5400, "every 1 hour and 30 minutes"), (691_200, "every 8 days"), (90_061, ADDED_UP)),
    ],
)  # fmt: skip
def test_an_interval_reads_in_plain_words(seconds: int, words: str) -> None:
    assert describe_interval(seconds) == words


@given(st.integers(1, 10**8))
def test_the_parts_of_an_interval_add_up(seconds: int) -> None:
    sizes = dict(zip(("week", "day", "hour", "minute", "second"), UNITS.values(), strict=True))
    words = describe_interval(seconds).removeprefix("every ").replace(" and ", ", ").split(", ")
    parts = [part.split() if " " in part else ["1", part] for part in words]
    assert sum(int(number) * sizes[unit.removesuffix("s")] for number, unit in parts) == seconds
