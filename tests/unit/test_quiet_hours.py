"""Quiet hours by the wall clock of their zone."""

from datetime import UTC, datetime
from typing import Any

import pytest

from execution.domain.quiet_hours import is_quiet, parse_clock, zone_of

NIGHT = {"from": "22:00", "until": "07:00", "timezone": "Europe/Berlin"}
LUNCH = {"from": "12:00", "until": "13:30", "timezone": "UTC"}


@pytest.mark.parametrize(
    ("quiet", "now", "expected"),
    [
        (None, "2030-01-15T23:00", False),
        ({}, "2030-01-15T23:00", False),
        (LUNCH, "2030-01-15T11:59", False),
        (LUNCH, "2030-01-15T12:00", True),
        (LUNCH, "2030-01-15T13:30", False),
        # Winter: UTC+1. Summer: UTC+2.
        (NIGHT, "2030-01-15T20:59", False),
        (NIGHT, "2030-01-15T21:00", True),
        (NIGHT, "2030-07-15T20:00", True),
        (NIGHT, "2030-01-16T05:59", True),
        (NIGHT, "2030-01-16T06:00", False),
        # The clocks go forward at 01:00 UTC on 31 March 2030: the end comes an hour sooner.
        (NIGHT, "2030-03-31T04:59", True),
        (NIGHT, "2030-03-31T05:00", False),
        # A Saturday, and the night that began on it; the Sunday's own night is not quiet.
        ({**NIGHT, "days": ["sat"]}, "2030-01-19T22:00", True),
        ({**NIGHT, "days": ["sat"]}, "2030-01-20T05:00", True),
        ({**NIGHT, "days": ["sat"]}, "2030-01-20T22:00", False),
        ({**LUNCH, "days": ["mon"]}, "2030-01-15T12:30", False),
        ({"from": "00:00", "until": "00:00", "timezone": "UTC"}, "2030-01-15T12:30", True),
        ({"from": "00:00", "until": "00:00", "timezone": "UTC", "days": ["tue"]}, "2030-01-16T12:30", False),
    ],
)
def test_now_lies_within_or_not(quiet: dict[str, Any] | None, now: str, expected: bool) -> None:
    assert is_quiet(quiet, datetime.fromisoformat(now).replace(tzinfo=UTC)) is expected


@pytest.mark.parametrize("text", ["", "7:00", "24:00", "12:60", "12:00:00", "\u0661\u0662:\u0660\u0660"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HH:MM"):
        parse_clock(text)


@pytest.mark.parametrize("name", ["", "../etc/passwd", "Mars/Base", "localtime\x00"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        zone_of(name)
