"""Cron schedules: the table of right answers, the grammar, zones, edges, and hostile input.

The walk over clock changes has a slow oracle of its own in `test_cron_walk.py`.
"""

import pickle
import time
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scheduling.domain import cron
from scheduling.domain.grammar import LONGEST
from tests.unit.cases import rows

NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


def fires(expression: str, zone: str, after: str | datetime, count: int) -> list[str]:
    moment = datetime.fromisoformat(after) if isinstance(after, str) else after
    return [fire.isoformat() for fire in cron.next_fires(expression, zone, moment, count)]


@pytest.mark.parametrize("row", rows("cron"))
def test_a_schedule_fires_as_the_table_says(row: dict[str, Any]) -> None:
    after, expect = datetime.fromisoformat(row["after"]), row["expect"]
    if "error" in expect:
        with pytest.raises(cron.ScheduleError) as caught:
            cron.next_fires(row["expression"], row["timezone"], after, 1)
        assert caught.value.code == expect["error"]
        assert caught.value.field == "expression"
        return
    found = cron.next_fires(row["expression"], row["timezone"], after, len(expect))
    assert [fire.isoformat() for fire in found] == expect
    assert [fire.astimezone(UTC) for fire in found] == [datetime.fromisoformat(at).astimezone(UTC) for at in expect]


@pytest.mark.parametrize(
    ("expression", "same_as"),
    [
        ("  0\t0  * *\t* ", "0 0 * * *"),
        ("00 005 01 * *", "0 5 1 * *"),
        ("0 0 * * sun-Tue,sAt", "0 0 * * 0-2,6"),
        ("0 0 * feb-APR/2 *", "0 0 * 2,4 *"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * 0-7", "0 0 * * *"),
        ("0 0 * * */7", "0 0 * * SUN"),
        ("0 0 * * 1-7/2", "0 0 * * MON,WED,FRI,SUN"),
        ("0 0 * * mon-5", "0 0 * * 1-5"),
        ("0 0 * * 7#2,7L", "0 0 * * SUN#2,sunL"),
        ("*/100 * * * *", "0 * * * *"),
        ("0-59/60 5 * * *", "0 5 * * *"),
        ("5-5 5-6/9 * * *", "5 5 * * *"),
        ("0 5 * * *", "0 0 5 * * *"),
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 0 28,L * *", "0 0 L,28 * *"),
        ("*,5 * * * *", "* * * * *"),
    ],
)
def test_two_ways_to_write_one_schedule_fire_alike(expression: str, same_as: str) -> None:
    assert fires(expression, "Europe/Berlin", NEW_YEAR, 40) == fires(same_as, "Europe/Berlin", NEW_YEAR, 40)


@pytest.mark.parametrize(
    "expression",
    [
        *("* * *", "* * * * * * *", "0 0 1 1 * 2024", "-1 * * * *", "1- * * * *", "-5 * * * *", "1-2-3 * * * *"),
        *("1,,2 * * * *", ",1 * * * *", "1, * * * *", "*/ * * * *", "/5 * * * *", "5/15 * * * *", "*/5/5 * * * *"),
        *("** * * * *", "*5 * * * *", "*-5 * * * *", "+5 * * * *", "1_0 * * * *", "1.0 * * * *", "0x1 * * * *"),
        *("a * * * *", "1-60 * * * *", "0-59/0 * * * *", "*/-1 * * * *", "1-5/+2 * * * *", "*/1e1 * * * *"),
        *("60 0 0 * * *", "0 24 * * *", "0 0 32 * *", "0 0 * 0 *", "0 0 * 13 *", "0 0 * * 8", "0 0 * * 1-8"),
        *("0 0 * * ? ", "0 0 15W * *", "0 0 LW * *", "0 0 L-3 * *", "0 0 L/2 * *", "0 0 1-L * *", "L 0 * * *"),
        *("0 0 * * L", "0 0 * * 8L", "0 0 * * 5L/2", "0 0 * * 1-5L", "0 0 * * MON#0", "0 0 * * MON#6", "0 0 * * #1"),
        *("0 0 * * MON#", "0 0 * * MON#1L", "0 0 * * 1-3#2", "0 0 * * MON##2", "0 0 * * *#2", "0 0 * * *L"),
        *("0 0 * JANUARY *", "0 0 * * MONDAY", "0 0 * MON *", "0 0 * * JAN", "MON 0 * * *", "0 0 * DEC-JAN *"),
        *("0 0 * * SAT-SUN", "@", "@every 5m", "@Every", "@hourly 5", "0 @daily", "@hourlyx", "H * * * *", "~ * * * *"),
        *("0 0 * * \u017fUN", "\uff10 * * * *", "0\u00a00 * * *", "\u00b2 * * * *", "\u0661-5 * * * *"),
        *("0 0 * * *\n", "0 0\n* * *", "0 0 * * *\x00", "0 0\x0b* * *", "0 0\u2003* * *", "0 0 * * *\ud800"),
        *(" ", "\t", "* * * * *" + " " * 1000, "0," * 400 + "0 0 * * *,", "0," * 5000 + "0 * * * *"),
        *("9" * 900 + " * * * *", "*/" + "9" * 10_000 + " * * * *", "\u0663" * 10_000, "-" * 999, "0-" * 450),
        *("#" * 990 + " 0 * * *", "0 0 * * " + "L" * 900, "0 0 " + "L" * 900 + " * *", "0 0 * * " + "1#" * 400),
    ],
)
def test_what_is_not_in_the_grammar_is_invalid_in_one_short_sentence(expression: str) -> None:
    with pytest.raises(cron.InvalidSchedule) as caught:
        cron.parse(expression)
    assert caught.value.code == "invalid"
    assert str(caught.value).isascii()
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["*"] * 5, {}])
def test_what_is_no_text_is_invalid(expression: Any) -> None:
    with pytest.raises(cron.InvalidSchedule):
        cron.next_fires(expression, "UTC", NEW_YEAR, 1)


@pytest.mark.parametrize(
    "expression",
    [
        *("0 0 30 2 *", "0 0 30,31 FEB *", "0 0 31 4,6,9,11 *", "* * 30-31 2 *", "0 0 0 30 2 *"),
        *("0 0 31 2 */2", "0 0 31 11 */7", "0 0 */30 * MON#2"),
    ],
)
def test_a_date_that_does_not_exist_never_fires(expression: str) -> None:
    with pytest.raises(cron.NeverFires) as caught:
        cron.parse(expression)
    assert caught.value.code == "never_fires"
    assert caught.value.field == "expression"


def test_a_rhythm_whose_only_times_are_in_gaps_never_fires_and_that_is_found_out_soon() -> None:
    begun = time.process_time()
    for expression in ("*/15 2 25-31 3 */7", "*/5 * 2 25-31 3 */7"):
        with pytest.raises(cron.NeverFires):
            cron.next_fires(expression, "Europe/Berlin", NEW_YEAR, 1)
    assert time.process_time() - begun < 5
    last = cron.previous_fire("*/15 2 25-31 3 */7", "Europe/Berlin", NEW_YEAR)
    assert last == datetime(1980, 3, 30, 1, 45, tzinfo=UTC)
    assert fires("15 2 25-31 3 */7", "Europe/Berlin", NEW_YEAR, 1) == ["2024-03-31T03:00:00+02:00"]


def test_a_fixed_job_whose_times_are_all_in_gaps_fires_every_year_after_them() -> None:
    expression, start, end = "30 2 25-31 3 */7", datetime(2100, 1, 1, tzinfo=UTC), datetime(2400, 1, 1, tzinfo=UTC)
    later = cron.next_fires(expression, "Europe/Berlin", start, 300)
    assert [fire.year for fire in later] == list(range(2100, 2400))
    assert {fire.hour for fire in later} == {3}
    assert list(islice(cron.fires_back(expression, "Europe/Berlin", end), 300)) == later[::-1]


@pytest.mark.parametrize(
    "zone",
    [
        *("", "Nowhere/Atlantis", "europe/berlin", "Europe", "Europe/", "../UTC", "Europe/../UTC", "/etc/localtime"),
        *("/UTC", "localtime", "posix/UTC", "right/UTC", "posixrules", "UTC ", "UTC\n", "UTC\x00", "+02:00"),
        *("C:\\UTC", "U\u017fC", "A" * 10_000, "tzdata.zi", "zone.tab", "leapseconds", "CEST", None, 5, [], b"UTC"),
    ],
)
def test_a_zone_that_is_not_in_the_iana_data_is_invalid(zone: Any) -> None:
    with pytest.raises(cron.InvalidSchedule, match="Europe/Berlin") as caught:
        cron.next_fires("0 0 * * *", zone, NEW_YEAR, 1)
    assert caught.value.field == "timezone"
    assert str(caught.value).isascii()
    for call in (cron.previous_fire, cron.fires_after, cron.fires_back):
        with pytest.raises(cron.InvalidSchedule):
            call("0 0 * * *", zone, NEW_YEAR)


PARIS, NEW_YORK = "Europe/Paris", "America/New_York"


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # a fire, and just before and after it
        ("0 12 * * *", "UTC", "2024-05-01T11:59:59.999999+00:00", "2024-05-01T12:00:00+00:00"),
        ("0 12 * * *", "UTC", "2024-05-01T12:00:00.000001+00:00", "2024-05-02T12:00:00+00:00"),
        ("* * * * * *", "UTC", "2024-12-31T23:59:59.5+00:00", "2025-01-01T00:00:00+00:00"),
        ("* * * * *", "Asia/Kolkata", "2024-05-01T11:59:59.5-03:00", "2024-05-01T20:30:00+05:30"),
        # the last second of the old offset, the first of the new one
        ("30 2 * * *", PARIS, "2024-03-31T01:59:59+01:00", "2024-03-31T03:00:00+02:00"),
        ("30 2 * * *", PARIS, "2024-03-31T01:59:59.999+01:00", "2024-03-31T03:00:00+02:00"),
        ("30 2 * * *", PARIS, "2024-03-31T03:00:00+02:00", "2024-04-01T02:30:00+02:00"),
        ("0 2,3 * * *", PARIS, "2024-03-31T01:00:00+01:00", "2024-03-31T03:00:00+02:00"),
        ("0 2,3 * * *", PARIS, "2024-03-31T03:00:00+02:00", "2024-04-01T02:00:00+02:00"),
        ("0 3 * * *", PARIS, "2024-03-31T01:00:00+01:00", "2024-03-31T03:00:00+02:00"),
        ("0 2 * * SUN", PARIS, "2024-03-31T01:00:00+01:00", "2024-03-31T03:00:00+02:00"),
        ("30 2 * * MON", PARIS, "2024-03-31T01:00:00+01:00", "2024-04-01T02:30:00+02:00"),
        # seconds change nothing in the rule
        ("15 30 2 * * *", PARIS, "2024-03-31T01:00:00+01:00", "2024-03-31T03:00:00+02:00"),
        ("* 30 2 * * *", PARIS, "2024-03-31T03:00:00+02:00", "2024-04-01T02:30:00+02:00"),
        ("*/20 * * * * *", PARIS, "2024-03-31T01:59:40+01:00", "2024-03-31T03:00:00+02:00"),
        ("*/10 59 1 * * *", NEW_YORK, "2024-11-03T01:59:45-04:00", "2024-11-03T01:59:50-04:00"),
        ("*/10 59 1 * * *", NEW_YORK, "2024-11-03T01:59:50-04:00", "2024-11-04T01:59:00-05:00"),
        ("*/20 * * * * *", NEW_YORK, "2024-11-03T01:59:40-04:00", "2024-11-03T01:00:00-05:00"),
        # inside the repeated hour, in both passes
        ("30 2 * * *", PARIS, "2024-10-27T02:15:00+02:00", "2024-10-27T02:30:00+02:00"),
        ("30 2 * * *", PARIS, "2024-10-27T02:45:00+02:00", "2024-10-28T02:30:00+01:00"),
        ("30 2 * * *", PARIS, "2024-10-27T02:15:00+01:00", "2024-10-28T02:30:00+01:00"),
        ("0 3 * * *", PARIS, "2024-10-27T02:15:00+01:00", "2024-10-27T03:00:00+01:00"),
        ("*/30 2 * * *", PARIS, "2024-10-27T02:50:00+02:00", "2024-10-27T02:00:00+01:00"),
        ("*/30 2 * * SUN", PARIS, "2024-10-27T02:50:00+02:00", "2024-10-27T02:00:00+01:00"),
        ("* 2 27 10 *", PARIS, "2024-10-27T02:59:00+02:00", "2024-10-27T02:00:00+01:00"),
        # months and years
        ("0 0 L 2 *", "UTC", "2023-02-28T00:00:00+00:00", "2024-02-29T00:00:00+00:00"),
        ("0 0 L 2 *", "UTC", "2024-02-29T00:00:00+00:00", "2025-02-28T00:00:00+00:00"),
        ("0 0 * * FRI#5", "UTC", "2024-03-29T00:00:00+00:00", "2024-05-31T00:00:00+00:00"),
        ("0 0 L * FRI", "UTC", "2024-05-28T00:00:00+00:00", "2024-05-31T00:00:00+00:00"),
        ("0 0 L * FRI", "UTC", "2024-05-31T00:00:00+00:00", "2024-06-07T00:00:00+00:00"),
        ("0 0 L * */6", "UTC", "2024-05-28T00:00:00+00:00", "2024-06-30T00:00:00+00:00"),
        ("0 0 29 2 *", "UTC", "2096-02-29T00:00:00+00:00", "2104-02-29T00:00:00+00:00"),
        ("0 0 29 2 *", "America/Santiago", "2096-03-01T00:00:00+00:00", "2104-02-29T00:00:00-03:00"),
        ("30 12 1 1 *", "UTC", "9998-01-01T12:30:00+00:00", "9999-01-01T12:30:00+00:00"),
        ("0 2 * * *", "Europe/Berlin", "8999-06-01T00:00:00+00:00", "8999-06-02T02:00:00+02:00"),
        # before standard time a day of Berlin began at an odd second of UTC
        ("0 0 * * *", "Europe/Berlin", "1880-01-01T12:00:00+00:00", "1880-01-02T00:00:00+00:53:28"),
    ],
)
def test_the_next_fire_at_an_edge(expression: str, zone: str, after: str, expected: str) -> None:
    assert fires(expression, zone, after, 1) == [expected]


@pytest.mark.parametrize(
    ("expression", "zone", "at", "expected"),
    [
        ("30 2 * * SUN", PARIS, "2024-10-27T02:15:00+01:00", "2024-10-27T02:30:00+02:00"),
        ("30 2 * * SUN", PARIS, "2024-10-27T02:15:00+02:00", "2024-10-20T02:30:00+02:00"),
        ("30 2 * * *", PARIS, "2024-10-27T02:30:00+01:00", "2024-10-27T02:30:00+02:00"),
        ("*/30 2 * * *", PARIS, "2024-10-27T02:15:00+01:00", "2024-10-27T02:00:00+01:00"),
        ("30 2 * * SUN", PARIS, "2024-03-31T03:00:00+02:00", "2024-03-31T03:00:00+02:00"),
        ("30 2 * * SUN", PARIS, "2024-03-31T01:59:59+01:00", "2024-03-24T02:30:00+01:00"),
        ("0 9 * * *", "Pacific/Apia", "2011-12-31T08:00:00+14:00", "2011-12-31T00:00:00+14:00"),
        ("15,45 * * * * *", "UTC", "2024-05-01T12:00:10+00:00", "2024-05-01T11:59:45+00:00"),
        ("15,45 30 * * * *", "UTC", "2024-05-01T12:30:14+00:00", "2024-05-01T11:30:45+00:00"),
        ("15,45 30 6 * * *", "UTC", "2024-05-01T06:30:14+00:00", "2024-04-30T06:30:45+00:00"),
        ("15,45 30 6 * * *", "UTC", "2024-05-01T06:31:00+00:00", "2024-05-01T06:30:45+00:00"),
        ("0 0 29 2 *", "UTC", "2104-02-28T00:00:00+00:00", "2096-02-29T00:00:00+00:00"),
        ("0 0 L * *", "UTC", "2024-03-01T00:00:00+00:00", "2024-02-29T00:00:00+00:00"),
    ],
)
def test_the_previous_fire_at_an_edge(expression: str, zone: str, at: str, expected: str) -> None:
    found = cron.previous_fire(expression, zone, datetime.fromisoformat(at))
    assert found is not None
    assert found.isoformat() == expected


@pytest.mark.parametrize("weekday", range(7))
def test_a_leap_day_on_a_weekday_is_found_over_gaps_of_28_and_40_years(weekday: int) -> None:
    leap_days = [date(year, 2, 29) for year in range(2024, 2400, 4) if year % 100 or year % 400 == 0]
    expected = [day for day in leap_days if day.isoweekday() % 7 == weekday]
    found = cron.next_fires(f"0 0 29 2 *,{weekday}", "UTC", NEW_YEAR, len(leap_days))
    assert [fire.date() for fire in found] == leap_days  # a list with * is no restriction
    found = cron.next_fires(f"0 0 */28 2 {weekday}#5", "UTC", NEW_YEAR, len(expected))
    assert [fire.date() for fire in found] == expected
    assert max(later.year - day.year for day, later in pairwise(expected)) == 40


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 10 * *", "10"),
        ("0 0 13 * FRI", "6 13 20 27"),
        ("0 0 10 * FRI", "6 10 13 20 27"),
        ("0 0 */10 * TUE", "31"),
        ("0 0 1-31/10 * MON", "1 2 9 11 16 21 23 30 31"),
        ("0 0 1 * */3", "1"),
        ("0 0 1 * 0-6/3", "1 4 7 8 11 14 15 18 21 22 25 28 29"),
        ("0 0 1,*/15 * MON", "1 2 9 16 23 30 31"),
        ("0 0 *,1 * MON", "2 9 16 23 30"),
        ("0 0 L * MON", "2 9 16 23 30 31"),
        ("0 0 L * *", "31"),
        ("0 0 5 * TUE#1,FRIL", "3 5 27"),
        ("0 0 */2 * TUE#1,FRIL,TUE#2", "3 27"),
    ],
)
def test_the_day_rule_of_vixie(expression: str, days: str) -> None:
    after = datetime(2024, 11, 30, 12, tzinfo=UTC)
    found = cron.fires_between(expression, "UTC", after, after + timedelta(days=31), 100)
    assert " ".join(str(fire.day) for fire in found) == days


@pytest.mark.parametrize(
    "expression",
    ["* * * * *", "* * * * * *", "0 0 29 2 *", "*/15 2 25-31 3 */7", ",".join(map(str, range(60))) + " * * * *"],
)
def test_no_accepted_expression_takes_long(expression: str) -> None:
    begun = time.process_time()
    for zone in ("UTC", "Africa/Casablanca", "Asia/Gaza"):
        for year in (1, 1850, 2024, 9990):
            list(islice(cron.fires_after(expression, zone, datetime(year, 3, 1, tzinfo=UTC)), 3))
            list(islice(cron.fires_back(expression, zone, datetime(year, 3, 1, tzinfo=UTC)), 3))
    assert time.process_time() - begun < 10


def test_an_expression_has_at_most_a_thousand_characters() -> None:
    longest = "0" + ",0" * 495 + " 0 * * *"
    assert len(longest) == LONGEST - 1
    assert fires(longest, "UTC", NEW_YEAR, 2) == fires("0 0 * * *", "UTC", NEW_YEAR, 2)
    with pytest.raises(cron.InvalidSchedule, match="1,000 characters"):
        cron.parse("  " + longest)


def test_where_the_calendar_ends_there_are_fewer_fires_and_then_none() -> None:
    assert len(cron.next_fires("0 0 1 * *", "UTC", datetime(9999, 10, 15, tzinfo=UTC), 10)) == 2
    west = timezone(-timedelta(hours=14))
    for after in (datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=west)):
        for zone in ("Pacific/Kiritimati", "Pacific/Niue"):
            with pytest.raises(cron.NeverFires):
                cron.next_fires("* * * * *", zone, after, 1)
            assert cron.previous_fire("* * * * *", zone, after) is not None
    for first in (datetime.min.replace(tzinfo=UTC), datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))):
        assert cron.next_fires("* * * * *", "Pacific/Kiritimati", first, 1)
        assert cron.previous_fire("* * * * *", "Pacific/Niue", first) is None


@pytest.mark.parametrize("count", [0, 1, 7])
def test_as_many_fires_as_asked_for(count: int) -> None:
    assert len(cron.next_fires("@daily", "Europe/Berlin", NEW_YEAR, count)) == count
    assert len(cron.fires_between("@daily", "UTC", NEW_YEAR, NEW_YEAR + timedelta(days=5), count)) == min(count, 5)


def test_a_negative_count_and_a_moment_without_offset_are_mistakes_of_the_caller() -> None:
    with pytest.raises(ValueError, match="count"):
        cron.next_fires("@daily", "UTC", NEW_YEAR, -1)
    with pytest.raises(ValueError, match="offset"):
        cron.next_fires("@daily", "UTC", NEW_YEAR.replace(tzinfo=None), 1)
    with pytest.raises(ValueError, match="offset"):
        cron.previous_fire("@daily", "UTC", NEW_YEAR.replace(tzinfo=None))


def test_both_ends_of_a_stretch_are_what_they_say() -> None:
    day = timedelta(days=1)
    assert cron.fires_between("@daily", "UTC", NEW_YEAR, NEW_YEAR + day, 9) == [NEW_YEAR + day]
    assert cron.count_between("@daily", "UTC", NEW_YEAR, NEW_YEAR + day) == 1
    assert cron.fires_between("@daily", "UTC", NEW_YEAR, NEW_YEAR, 9) == []
    assert cron.count_between("@daily", "UTC", NEW_YEAR, NEW_YEAR - day) == 0
    assert cron.previous_fire("@daily", "UTC", NEW_YEAR) == NEW_YEAR
    assert cron.previous_fire("@daily", "UTC", NEW_YEAR - timedelta(microseconds=1)) == NEW_YEAR - day


def test_months_of_every_second_are_counted_without_a_walk() -> None:
    begun = time.process_time()
    for zone in ("UTC", "Europe/Berlin"):
        assert cron.count_between("* * * * * *", zone, NEW_YEAR, datetime(2044, 1, 1, tzinfo=UTC)) == 7305 * 86_400
    assert time.process_time() - begun < 2


def test_a_fire_compares_as_an_instant_in_the_repeated_hour_too() -> None:
    zone = ZoneInfo("America/New_York")
    first, second = cron.next_fires("0 1 * * SUN,*", zone.key, datetime(2024, 11, 2, 20, tzinfo=zone), 2)
    assert second - first == timedelta(days=1, hours=1)
    first, second = cron.next_fires("*/60 1 * * *", zone.key, datetime(2024, 11, 2, 20, tzinfo=zone), 2)
    assert second - first == timedelta(hours=1)
    assert first == first.astimezone(UTC)
    assert first != second
    assert pickle.loads(pickle.dumps(second)) == second


def test_an_aware_moment_of_the_same_zone_means_its_own_pass() -> None:
    zone = ZoneInfo("Europe/Paris")
    before = datetime(2024, 10, 27, 2, 15, tzinfo=zone)
    assert fires("30 2 * * *", zone.key, before, 1) == ["2024-10-27T02:30:00+02:00"]
    assert fires("30 2 * * *", zone.key, before.replace(fold=1), 1) == ["2024-10-28T02:30:00+01:00"]
    missing = datetime(2024, 3, 31, 2, 15, tzinfo=zone)  # 01:15 UTC: after the gap
    assert fires("30 2 * * *", zone.key, missing, 1) == ["2024-04-01T02:30:00+02:00"]
    assert fires("*/30 2,3 * * *", zone.key, missing, 1) == ["2024-03-31T03:30:00+02:00"]


def test_a_compiled_expression_is_frozen_hashable_and_shared() -> None:
    compiled = cron.parse("0 9 * * MON#2")
    assert compiled is cron.parse("0 9 * * MON#2")
    assert hash(compiled) == hash(pickle.loads(pickle.dumps(compiled)))
    with pytest.raises(AttributeError):
        compiled.minutes = 1  # type: ignore[misc]
    assert cron.next_fires(compiled, "UTC", NEW_YEAR, 3) == cron.next_fires("0 9 * * MON#2", "UTC", NEW_YEAR, 3)


def test_every_zone_of_the_data_has_a_next_fire() -> None:
    for zone in sorted(cron.zone_names()):
        (fire,) = cron.next_fires("30 2 * * *", zone, datetime(2024, 3, 30, 12, tzinfo=UTC), 1)
        assert timedelta(0) < fire - datetime(2024, 3, 30, 12, tzinfo=UTC) <= timedelta(days=1, hours=1)
