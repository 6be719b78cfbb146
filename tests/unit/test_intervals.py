"""Intervals: how they are written, and that they keep to their anchor."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.domain import intervals
from scheduling.domain.errors import InvalidSchedule

ANCHOR = datetime(2024, 1, 1, 0, 0, 7, 250_000, tzinfo=UTC)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - naive bounds
lengths = st.integers(1, intervals.LONGEST_S)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90s", 90), ("15m", 900), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800), ("1w2d3h4m5s", 788_645)),
        *(
            ("1h1s", 3601),
            ("060m", 3600),
            ("90m", 5400),
            ("900", 900),
            (900, 900),
            ("0h5m", 300),
            ("3660d", 316_224_000),
        ),
    ],
)
def test_an_interval_reads_as_seconds(text: str | int, seconds: int) -> None:
    assert intervals.parse(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "m", "1", "0", "0s", "-5m", "+5m", "5 m", " 5m", "5m ", "5m\n", "1.5h", "1,5h", "5M", "5min", "5ms"),
        *(
            "30m1h",
            "1m1m",
            "1h-1m",
            "1y",
            "1mo",
            "PT15M",
            "@every 5m",
            "*/5",
            "\u0665m",
            "\uff15m",
            "5\u217f",
            "\u00b2",
        ),
        *("3661d", "9" * 12, "9" * 10_000, "9" * 9 + "w", "1" * 10_000 + "m", "nan", "inf", "1e3"),
        *(0, -1, 10**400, 4.0, float("nan"), True, None, [], {}, b"5m", timedelta(minutes=5)),
    ],
)
def test_what_is_no_interval_is_refused_in_one_short_sentence(text: Any) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        intervals.parse(text, minimum_s=2)
    assert (caught.value.code, caught.value.field) == ("invalid", "every")
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 150


def test_the_least_interval_is_an_argument_and_is_named() -> None:
    assert intervals.parse("1m", minimum_s=60) == 60
    with pytest.raises(InvalidSchedule, match="1m is the least"):
        intervals.parse("59s", minimum_s=60)


@given(lengths)
def test_what_is_written_is_read_back(seconds: int) -> None:
    assert intervals.parse(intervals.write(seconds)) == seconds
    assert intervals.parse(str(seconds)) == seconds


def test_the_first_fire_is_the_anchor_and_then_strictly_later_ones() -> None:
    step = timedelta(minutes=15)
    for early in (ANCHOR - timedelta(days=400), ANCHOR - timedelta(microseconds=1)):
        assert intervals.next_fires(900, ANCHOR, early, 2) == [ANCHOR, ANCHOR + step]
    assert intervals.next_fires(900, ANCHOR, ANCHOR, 2) == [ANCHOR + step, ANCHOR + 2 * step]
    assert intervals.next_fires(900, ANCHOR, ANCHOR + step - timedelta(microseconds=1), 1) == [ANCHOR + step]
    assert intervals.previous_fire(900, ANCHOR, ANCHOR - timedelta(microseconds=1)) is None
    assert intervals.previous_fire(900, ANCHOR, ANCHOR) == ANCHOR
    assert intervals.previous_fire(900, ANCHOR, ANCHOR + step) == ANCHOR + step


def test_real_time_passes_at_clock_changes_whatever_zone_the_moments_are_in() -> None:
    zone = ZoneInfo("Europe/Berlin")
    anchor = datetime(2024, 10, 27, 0, 30, tzinfo=zone)
    fires = intervals.next_fires(3600, anchor, anchor, 4)
    assert [f"{fire.astimezone(zone):%H:%M%z}" for fire in fires] == [
        "01:30+0200",
        "02:30+0200",
        "02:30+0100",
        "03:30+0100",
    ]
    second_pass = datetime(2024, 10, 27, 2, 40, tzinfo=zone, fold=1)
    assert intervals.previous_fire(3600, anchor, second_pass) == datetime(2024, 10, 27, 1, 30, tzinfo=UTC)
    assert intervals.count_between(3600, anchor, anchor, second_pass) == 3


def test_where_the_calendar_ends_there_are_fewer_fires() -> None:
    end = datetime.max.replace(tzinfo=timezone(-timedelta(hours=10)))
    assert intervals.next_fires(86_400, ANCHOR, datetime(9999, 12, 30, 12, tzinfo=UTC), 9) == [
        datetime(9999, 12, 31, 0, 0, 7, 250_000, tzinfo=UTC)
    ]
    assert intervals.next_fires(86_400, ANCHOR, end, 9) == []


@pytest.mark.parametrize(
    ("every_s", "anchor", "count"), [(0, ANCHOR, 1), (60, ANCHOR.replace(tzinfo=None), 1), (60, ANCHOR, -1)]
)
def test_mistakes_of_the_caller_are_told(every_s: int, anchor: datetime, count: int) -> None:
    with pytest.raises(ValueError, match=r"every_s|offset|count"):
        intervals.next_fires(every_s, anchor, ANCHOR.astimezone(UTC), count)


@given(lengths, moments, moments, st.integers(0, 6))
def test_every_fire_is_the_anchor_and_a_whole_number_of_steps(
    every_s: int, anchor: datetime, after: datetime, count: int
) -> None:
    fires = intervals.next_fires(every_s, anchor, after, count)
    assert len(fires) == count
    assert fires == intervals.next_fires(every_s, anchor, after, count + 1)[:count]
    step = timedelta(seconds=every_s)
    for number, fire in enumerate(fires):
        assert fire > after
        assert (fire - anchor) % step == timedelta(0)
        assert fire == fires[0] + number * step
    if fires:
        assert fires[0] == anchor or fires[0] - step <= after


@given(st.integers(1, 10**7), moments, moments, st.integers(0, 40))
def test_looking_back_counting_and_listing_agree(every_s: int, anchor: datetime, after: datetime, steps: int) -> None:
    until = after + timedelta(seconds=every_s * steps)
    listed = intervals.fires_between(every_s, anchor, after, until, 100)
    back = islice(intervals.fires_back(every_s, anchor, until), 100)
    assert listed == sorted(fire for fire in back if fire > after)
    assert intervals.count_between(every_s, anchor, after, until) == len(listed)
    assert intervals.fires_between(every_s, anchor, after, until, 3) == listed[:3]
    assert intervals.previous_fire(every_s, anchor, until) == next(
        iter(listed[::-1]), intervals.previous_fire(every_s, anchor, after)
    )
