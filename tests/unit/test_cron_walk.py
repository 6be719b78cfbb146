"""The walk over clock changes against an oracle that is slow and simple: it looks at every minute of real time."""

import calendar
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import islice, pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import cron, zones
from scheduling.domain.preview import preview

MINUTE = timedelta(minutes=1)
ZONES = {
    "Europe/Berlin": 2024,
    "America/New_York": 2024,
    "Australia/Lord_Howe": 2024,  # half an hour
    "America/Santiago": 2024,  # no midnight
    "America/Sao_Paulo": 2018,
    "Asia/Beirut": 2024,
    "Africa/Cairo": 2024,
    "Africa/Casablanca": 2024,  # back for Ramadan
    "Antarctica/Troll": 2024,  # two hours
    "Pacific/Apia": 2011,  # a day is left out
    "Pacific/Kwajalein": 1993,
    "America/Caracas": 2016,
    "Asia/Pyongyang": 2015,
    "Asia/Kathmandu": 1985,  # a quarter of an hour
    "Asia/Gaza": 2040,  # a week between two changes
}
EXPRESSIONS = (
    *("30 2 * * *", "0,15,30,45 2 * * *", "30 0,1 * * *", "*/15 2 * * *", "0 * * * *", "15 23 * * *", "0 0 * * *"),
    *("0 9 * * *", "0-59 0-23 * * *", "0 */2 * * 0", "0 3 * * *", "5 1-3 * * 0,5,6", "*/7 0-2 */2 * *", "59 23 L * *"),
    *("0 0 1-7 * 0", "10 0 * * 5L", "0 0,12 30 * 0#2", "20 2 31 3 *", "45 1 * * 0", "0 * 30 12 *", "30,59 23 * * 6"),
)
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


@cache
def clock_of(zone: str) -> ZoneInfo:
    """By the pinned data: a machine's own may be older."""
    with resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=zone)


class Tick(NamedTuple):
    """One minute of real time by the clock of a zone."""

    instant: datetime
    wall: datetime
    second_pass: bool
    missing: tuple[datetime, ...]
    """The minutes that the clock leapt over right before."""


@cache
def windows(zone: str) -> tuple[tuple[Tick, ...], ...]:
    """Three days around each change of the clock in the zone's year."""
    start = datetime(ZONES[zone], 1, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=hour) for hour in range(366 * 24)]
    offsets = [hour.astimezone(clock_of(zone)).utcoffset() for hour in hours]
    changes = [hour for hour, (old, new) in zip(hours, pairwise(offsets), strict=False) if old != new]
    assert changes
    return tuple(ticks(zone, change - timedelta(hours=36), 72 * 60) for change in changes)


def ticks(zone: str, start: datetime, minutes: int) -> tuple[Tick, ...]:
    found, before = [], None
    for number in range(minutes):
        local = (start + number * MINUTE).astimezone(clock_of(zone))
        wall = local.replace(tzinfo=None, fold=0)
        leapt = (wall - before) // MINUTE - 1 if before is not None else 0
        missing = tuple(before + step * MINUTE for step in range(1, leapt + 1)) if before is not None else ()
        found.append(Tick(local.astimezone(UTC), wall, local.fold == 1, missing))
        before = wall
    return tuple(found)


def oracle(expression: str, window: tuple[Tick, ...]) -> list[datetime]:
    """The fires after the window's first minute."""
    fields = expression.split()
    minute, hour = (values(text, *limits) for text, limits in zip(fields[:2], LIMITS, strict=False))
    day_matches = cache(lambda day: matches_day(fields, day))
    fixed = not fields[0].startswith("*") and not fields[1].startswith("*")

    def matches(wall: datetime) -> bool:
        return wall.minute in minute and wall.hour in hour and day_matches(wall.date())

    return [
        tick.instant
        for tick in window[1:]
        if (matches(tick.wall) and not (fixed and tick.second_pass)) or (fixed and any(map(matches, tick.missing)))
    ]


def matches_day(fields: list[str], day: date) -> bool:
    if day.month not in values(fields[3], *LIMITS[3]):
        return False
    length = calendar.monthrange(day.year, day.month)[1]
    by_day = any(day.day == length if item == "L" else day.day in values(item, 1, 31) for item in fields[2].split(","))
    by_weekday = any(matches_weekday(item, day, length) for item in fields[4].split(","))
    both = fields[2].startswith("*") or fields[4].startswith("*")
    return by_day and by_weekday if both else by_day or by_weekday


def matches_weekday(item: str, day: date, length: int) -> bool:
    weekday = day.isoweekday() % 7
    if item.endswith("L"):
        return weekday == int(item[:-1]) and day.day + 7 > length
    if "#" in item:
        asked, nth = item.split("#")
        return weekday == int(asked) and (day.day - 1) // 7 + 1 == int(nth)
    return weekday in values(item, 0, 6)


def values(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for item in text.split(","):
        stretch, _, step = item.partition("/")
        first, _, last = stretch.partition("-")
        start, end = (low, high) if first == "*" else (int(first), int(last or first))
        found.update(range(start, end + 1, int(step or 1)))
    return found


def written(low: int, high: int) -> st.SearchStrategy[str]:
    """A field in any of its forms."""
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, high + 5)
    star = st.just("*") | step.map(lambda by: f"*/{by}")
    stepped = st.tuples(span, step).map(lambda parts: f"{parts[0]}/{parts[1]}")
    item = number.map(str) | span | stepped
    return star | st.lists(item | star, min_size=1, max_size=3).map(",".join)


days = written(1, 31) | st.sampled_from(["L", "1,L", "L,15-20"])
weekdays = written(0, 6) | st.sampled_from(["5L", "0#1", "6#3,0#5", "1,0L", "6L,0#4"])
dates = st.just(("*", "*", "*")) | st.tuples(days, written(1, 12), weekdays)
expressions = st.tuples(written(0, 59), written(0, 23), dates).map(lambda parts: " ".join((*parts[:2], *parts[2])))
moments = st.datetimes(datetime(1880, 1, 1), datetime(2150, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - naive bounds


def listed(expression: str, zone: str, window: tuple[Tick, ...]) -> list[datetime]:
    first, last = window[0].instant, window[-1].instant
    found = cron.fires_between(expression, zone, first, last, 10_000)
    assert found == list(
        reversed([fire for fire in islice(cron.fires_back(expression, zone, last), len(found) + 1) if fire > first])
    )
    assert cron.count_between(expression, zone, first, last) == len(found)
    return [fire.astimezone(UTC) for fire in found]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("zone", ZONES)
def test_around_every_clock_change_fires_are_those_of_the_slow_walk(zone: str, expression: str) -> None:
    for window in windows(zone):
        assert listed(expression, zone, window) == oracle(expression, window)


@settings(max_examples=150)
@given(expressions, st.sampled_from(sorted(ZONES)), st.integers(0, 9))
def test_any_expression_fires_as_in_the_slow_walk(expression: str, zone: str, number: int) -> None:
    window = windows(zone)[number % len(windows(zone))]
    try:
        assert listed(expression, zone, window) == oracle(expression, window)
    except cron.NeverFires:
        assert oracle(expression, window) == []


@settings(max_examples=150)
@given(expressions, st.sampled_from(sorted(ZONES)), st.integers(0, 9), st.integers(0, 72 * 60 - 1))
def test_a_walk_may_begin_at_any_minute_in_either_direction(expression: str, zone: str, number: int, at: int) -> None:
    window = windows(zone)[number % len(windows(zone))]
    expected, start = oracle(expression, window), window[at].instant
    try:
        later = list(islice(cron.fires_after(expression, zone, start), 3))
        earlier = list(islice(cron.fires_back(expression, zone, start), 3))
    except cron.NeverFires:
        assert expected == []
        return
    assert [fire for fire in later if fire <= window[-1].instant] == [fire for fire in expected if fire > start][:3]
    past = [fire for fire in reversed(expected) if fire <= start][:3]
    assert [fire for fire in earlier if fire > window[0].instant] == past


@settings(max_examples=150)
@given(expressions, st.sampled_from(sorted(ZONES)), moments, st.booleans())
def test_fires_come_strictly_later_in_order_and_match_the_clock_or_a_gap(
    expression: str, zone: str, after: datetime, with_seconds: bool
) -> None:
    text = f"*/20 {expression}" if with_seconds else expression
    try:
        found = cron.next_fires(text, zone, after, 6)
    except cron.NeverFires:
        return
    assert found[:3] == cron.next_fires(text, zone, after, 3)
    assert all(earlier < later for earlier, later in pairwise([after, *found]))
    assert cron.previous_fire(text, zone, found[-1]) == found[-1]
    for earlier, later in pairwise(found):
        assert cron.previous_fire(text, zone, later - timedelta(microseconds=1)) == earlier
    fields = expression.split()
    for fire in found:
        before = (fire - timedelta(seconds=1)).astimezone(clock_of(zone)).utcoffset()
        gap = fire.utcoffset() != before
        assert gap or (fire.minute in values(fields[0], 0, 59) and fire.hour in values(fields[1], 0, 23))
        assert gap or (fire.second in (0, 20, 40) if with_seconds else fire.second == 0)
        assert gap or matches_day(fields, fire)
        assert fire.astimezone(clock_of(zone)).replace(tzinfo=None) == fire.replace(tzinfo=None)


@pytest.mark.parametrize("expression", ["*/10 * * * * *", "0 30 2 * * *", "15,45 * 2 * * *", "7 0 0,1,2 * * 0"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"])
def test_six_fields_follow_the_same_rule(zone: str, expression: str) -> None:
    second, *rest = expression.split()
    fixed = not rest[0].startswith("*") and not rest[1].startswith("*")
    for window in windows(zone):
        expected = set()
        for fire in oracle(" ".join(rest), window):
            tick = window[(fire - window[0].instant) // MINUTE]
            if fixed and tick.missing:
                expected.add(fire)
            if tick.wall.minute in values(rest[0], 0, 59) and tick.wall.hour in values(rest[1], 0, 23):
                expected |= {fire + timedelta(seconds=at) for at in values(second, 0, 59)}
        found = cron.fires_between(expression, zone, window[0].instant + MINUTE, window[-1].instant, 10**6)
        in_window = [fire for fire in sorted(expected) if window[0].instant + MINUTE < fire <= window[-1].instant]
        assert found == in_window
        back = islice(cron.fires_back(expression, zone, window[-1].instant), len(found))
        assert list(back) == found[::-1]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/New_York"])
@pytest.mark.parametrize("shift", [-5400, -900, 0, 900, 5400])
def test_the_answers_do_not_depend_on_where_the_pieces_of_a_zone_begin(
    zone: str, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for window in windows(zone):
        change = zones.instant_of(window[0].instant) + 36 * 3600
        piece = min(
            ((change + shift) // number for number in range(2000, 8000)), key=lambda size: (change + shift) % size
        )
        assert (change + shift) % piece < 60  # a seam is that near to where it is wanted
        with monkeypatch.context() as patch:
            patch.setattr(zones, "PIECE", piece)
            zones.spans_of.cache_clear()
            for expression in EXPRESSIONS[:6]:
                assert listed(expression, zone, window) == oracle(expression, window)
            marks = [(line.local, line.repeated) for line in preview("*/20 * * * *", zone, window[0].instant, 216)]
        zones.spans_of.cache_clear()
        assert marks == [(line.local, line.repeated) for line in preview("*/20 * * * *", zone, window[0].instant, 216)]
