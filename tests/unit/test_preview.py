"""The preview: local time, offset, and what clock changes do to a fire."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.domain import cron, intervals
from scheduling.domain.preview import Line, preview, preview_interval


def lines(expression: str, zone: str, after: str, count: int) -> list[Line]:
    return preview(expression, zone, datetime.fromisoformat(after), count)


def marks(found: list[Line]) -> list[tuple[str, str, bool, str | None]]:
    return [(f"{line.local:%m-%d %H:%M}", line.utc_offset, line.moved, line.repeated) for line in found]


def test_a_line_has_the_instant_the_local_time_and_the_offset() -> None:
    (line,) = lines("0 9 * * *", "Europe/Berlin", "2024-07-01T08:00:00+00:00", 1)
    assert line.at == datetime(2024, 7, 2, 7, 0, tzinfo=UTC)
    assert line.at.utcoffset() == timedelta(0)
    assert line.local.isoformat() == "2024-07-02T09:00:00+02:00"
    assert (line.utc_offset, line.moved, line.repeated, line.note) == ("+02:00", False, None, "")


def test_a_time_that_does_not_exist_is_marked_as_moved() -> None:
    found = lines("30 2 * * *", "Europe/Paris", "2024-03-30T00:00:00+00:00", 3)
    assert marks(found) == [
        ("03-30 02:30", "+01:00", False, None),
        ("03-31 03:00", "+02:00", True, None),
        ("04-01 02:30", "+02:00", False, None),
    ]
    assert [line.note for line in found] == [
        "",
        "02:30 does not exist on 2024-03-31; it fires at 03:00, right after the gap.",
        "",
    ]


def test_the_first_of_several_missing_times_is_named_with_its_day() -> None:
    found = lines("15 0 9,10 * * *", "Pacific/Apia", "2011-12-29T22:00:00+00:00", 1)
    assert marks(found) == [("12-31 00:00", "+14:00", True, None)]
    assert found[0].note == (
        "09:00:15 does not exist on 2011-12-30; it fires at 00:00 on 2011-12-31, right after the gap."
    )


def test_a_fixed_time_in_the_repeated_hour_fires_in_the_first_pass_and_says_so() -> None:
    found = lines("30 1 * * *", "America/New_York", "2024-11-02T12:00:00+00:00", 2)
    assert marks(found) == [("11-03 01:30", "-04:00", False, "first"), ("11-04 01:30", "-05:00", False, None)]
    assert found[0].note == "01:30 comes twice on 2024-11-03; it fires the first time only."


def test_a_rhythm_in_the_repeated_hour_fires_in_both_passes_and_says_which() -> None:
    found = lines("*/30 * * * *", "America/New_York", "2024-11-03T04:30:00+00:00", 6)
    assert marks(found) == [
        ("11-03 01:00", "-04:00", False, "first"),
        ("11-03 01:30", "-04:00", False, "first"),
        ("11-03 01:00", "-05:00", False, "second"),
        ("11-03 01:30", "-05:00", False, "second"),
        ("11-03 02:00", "-05:00", False, None),
        ("11-03 02:30", "-05:00", False, None),
    ]
    assert found[3].note == "01:30 comes twice on 2024-11-03; this is the second time."


def test_a_rhythm_is_never_moved() -> None:
    found = lines("*/30 * * * *", "Europe/Paris", "2024-03-31T00:15:00+00:00", 3)
    assert marks(found) == [
        ("03-31 01:30", "+01:00", False, None),
        ("03-31 03:00", "+02:00", False, None),
        ("03-31 03:30", "+02:00", False, None),
    ]


def test_half_an_hour_is_repeated_on_lord_howe() -> None:
    found = lines("*/15 1,2 * * *", "Australia/Lord_Howe", "2024-04-06T14:10:00+00:00", 7)
    assert [(f"{line.local:%H:%M}", line.repeated) for line in found] == [
        *(("01:15", None), ("01:30", "first"), ("01:45", "first"), ("01:30", "second"), ("01:45", "second")),
        *(("02:00", None), ("02:15", None)),
    ]


def test_an_interval_keeps_real_time_by_the_local_clock() -> None:
    anchor = datetime(2024, 10, 27, 0, 0, 0, 500_000, tzinfo=UTC)
    found = preview_interval(3600, anchor, "Europe/Paris", anchor - timedelta(seconds=1), 3)
    assert marks(found) == [
        ("10-27 02:00", "+02:00", False, "first"),
        ("10-27 02:00", "+01:00", False, "second"),
        ("10-27 03:00", "+01:00", False, None),
    ]
    assert found[1].note == "02:00 comes twice on 2024-10-27; this is the second time."
    assert [line.at for line in found] == [line.local for line in found]
    assert [line.at for line in found] == intervals.next_fires(3600, anchor, anchor - timedelta(seconds=1), 3)


@pytest.mark.parametrize(
    ("expression", "zone", "code"),
    [("60 * * * *", "UTC", "invalid"), ("0 0 31 2 *", "UTC", "never_fires"), ("0 0 * * *", "Nowhere", "invalid")],
)
def test_what_is_not_accepted_has_no_preview(expression: str, zone: str, code: str) -> None:
    with pytest.raises(cron.ScheduleError) as caught:
        lines(expression, zone, "2024-01-01T00:00:00+00:00", 3)
    assert caught.value.code == code
    with pytest.raises(cron.ScheduleError):
        preview_interval(60, datetime(2024, 1, 1, tzinfo=UTC), "Nowhere", datetime(2024, 1, 1, tzinfo=UTC), 1)


@given(
    st.sampled_from(["30 2 * * *", "*/20 * * * *", "15 0 1 * *", "0 */3 * * 0", "10 */7 0-3 * * *"]),
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Asia/Gaza", "UTC"]),
    st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - naive bounds
)
def test_a_preview_lists_the_fires_and_its_marks_fit_the_clock(expression: str, zone: str, after: datetime) -> None:
    found = preview(expression, zone, after, 5)
    assert [line.local for line in found] == cron.next_fires(expression, zone, after, 5)
    rhythm = preview_interval(600, after, zone, after, 300)
    by_wall: dict[datetime, list[str | None]] = {}
    for line in rhythm:
        by_wall.setdefault(line.local.replace(tzinfo=None), []).append(line.repeated)
    assert all(passes in ([None], ["first", "second"], ["first"], ["second"]) for passes in by_wall.values())
    middle = rhythm[150].local.replace(tzinfo=None)
    inner = [passes for wall, passes in by_wall.items() if abs(wall - middle) < timedelta(hours=20)]
    assert all(len(passes) == (1 if passes[0] is None else 2) for passes in inner)
    for line in found:
        assert bool(line.note) == (line.moved or line.repeated is not None)
