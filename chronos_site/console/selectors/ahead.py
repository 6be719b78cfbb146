"""What is due in the next hour, by minute: executions that exist, and occurrences that schedules will make.

Recurring schedules are materialised two minutes ahead; what they make after that is worked out here from their rhythms,
one for all schedules that share it. Jitter is left out, and so are limits of runs and ends of schedules.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from redis.exceptions import RedisError

from chronos_site.console.selectors.bounded import bounded_cursor, rows_of
from chronos_site.infra import redis
from chronos_site.infra.clock import database_now
from chronos_site.infra.sql import statement
from scheduling.domain.errors import ScheduleError
from scheduling.domain.rhythm import Rhythm

MINUTES = 60
MOST_PENDING = 20_000
"""Executions that are counted in one minute; a minute that holds more says so."""
MOST_RHYTHMS = 2_000
BUDGET_S = 0.1
"""For working out rhythms; what is kept is good for half a minute."""
KEPT_S = 30


@dataclass(frozen=True, slots=True)
class DueMinute:
    """One minute to come; the first is the one that is under way."""

    at: datetime
    pending: int
    """Executions that exist and wait for their time."""
    more: bool
    """There are more than `pending`, which is where counting stops."""
    expected: int
    """Occurrences of recurring schedules that do not exist yet."""


@dataclass(frozen=True, slots=True)
class DueAhead:
    minutes: list[DueMinute]
    complete: bool
    """False: there are so many different rhythms that some are not in `expected`."""


def due_ahead(*, workspace_ids: Sequence[UUID] | None = None, minutes: int = MINUTES) -> DueAhead:
    """By minute, the current one first. Raises django.db's errors."""
    first = int(database_now().timestamp() // 60)
    scope = None if workspace_ids is None else list(workspace_ids)
    with bounded_cursor() as cursor:
        parameters = {"first": first, "minutes": minutes, "most": MOST_PENDING + 1, "workspace_ids": scope}
        cursor.execute(statement("chronos_site.console", "count_due_ahead"), parameters)
        pending = dict(cursor.fetchall())
    expected, complete = _expected(first, minutes, scope)
    return DueAhead(
        [
            DueMinute(
                at=datetime.fromtimestamp(minute * 60, UTC),
                pending=min(pending.get(minute, 0), MOST_PENDING),
                more=pending.get(minute, 0) > MOST_PENDING,
                expected=expected.get(minute, 0),
            )
            for minute in range(first, first + minutes)
        ],
        complete,
    )


def _expected(first: int, minutes: int, scope: list[UUID] | None) -> tuple[dict[int, int], bool]:
    """Occurrences to come by minute, kept in Redis for half a minute; and whether that is all of them."""
    who = "all" if scope is None else hashlib.sha256("".join(sorted(map(str, scope))).encode()).hexdigest()[:32]
    name = f"chronos:console:ahead:{minutes}:{who}"
    try:
        kept: Any = redis.client().get(name)
    except (RedisError, OSError):
        kept = None
    if kept is not None:
        found, complete = json.loads(kept)
        return {int(minute): count for minute, count in found.items()}, complete
    expected, complete = _work_out(first, minutes, scope)
    with suppress(RedisError, OSError):
        redis.client().set(name, json.dumps([expected, complete]), ex=KEPT_S)
    return expected, complete


def _work_out(first: int, minutes: int, scope: list[UUID] | None) -> tuple[dict[int, int], bool]:
    until = datetime.fromtimestamp((first + minutes) * 60, UTC) - timedelta(microseconds=1)
    with bounded_cursor() as cursor:
        parameters = {"until": until, "most": MOST_RHYTHMS + 1, "workspace_ids": scope}
        cursor.execute(statement("chronos_site.console", "select_rhythms"), parameters)
        rhythms = rows_of(cursor)
    ends = time.monotonic() + BUDGET_S
    expected: dict[int, int] = {}
    for row in rhythms[:MOST_RHYTHMS]:
        if time.monotonic() > ends:
            return expected, False
        for minute in _minutes_of(row, until):
            expected[minute] = expected.get(minute, 0) + row["schedules"]
    return expected, len(rhythms) <= MOST_RHYTHMS


def _minutes_of(row: dict[str, Any], until: datetime) -> list[int]:
    begin: datetime = row["next_run_at"]
    try:
        rhythm = (
            Rhythm(expression=row["cron"], timezone=row["timezone"])
            if row["cron"]
            else Rhythm(every_s=row["every_s"], anchor=begin)
        )
        times = rhythm.coming(begin, until, limit=4000)[0]
    except (ScheduleError, IndexError):
        return []
    return [int(at.timestamp() // 60) for at in times]
