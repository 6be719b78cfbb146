"""Quiet hours: a daily span in a time zone in which nothing is told. Pure: `now` is an argument.

    {"from": "22:00", "until": "07:00", "timezone": "Europe/Berlin", "days": ["sat", "sun"]}

A span may cross midnight; `days` are those on which it begins, all of them where it is missing. Clock changes move its
ends with the wall clock.
"""

import re
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")


def parse_clock(text: str) -> time:
    """`22:00`. Raises ValueError with a sentence."""
    if not _CLOCK.fullmatch(text):
        raise ValueError("Write a time of day as HH:MM, like 22:00.")
    return time(int(text[:2]), int(text[3:]))


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Raises ValueError with a sentence. The list is asked first: a name is never taken for a path."""
    if name not in available_timezones():
        raise ValueError("There is no such time zone. Write it as in the IANA database, like Europe/Berlin.")
    return ZoneInfo(name)


def is_quiet(quiet: Mapping[str, Any] | None, now: datetime) -> bool:
    """Whether `now` (aware) lies within; the end is exclusive. Equal ends are the whole day."""
    if not quiet:
        return False
    begins, ends = parse_clock(quiet["from"]), parse_clock(quiet["until"])
    local = now.astimezone(zone_of(quiet["timezone"]))
    clock = local.time().replace(tzinfo=None)
    if begins < ends:
        return begins <= clock < ends and _on(quiet, local)
    return (clock >= begins and _on(quiet, local)) or (clock < ends and _on(quiet, local - timedelta(days=1)))


def _on(quiet: Mapping[str, Any], day: datetime) -> bool:
    days = quiet.get("days")
    return not days or DAYS[day.weekday()] in days
