"""Delivered, failed and late by minute, for the last hour.

At a thousand deliveries a second an hour holds millions of rows: too many to count for every look at a page. But a
minute that is over changes no more, so it is counted once, for all workspaces, and kept in Redis; the newest ones are
counted anew every two seconds. Whoever asks counts the newest missing minutes until `budget_s` is used up; those that
are left show no numbers (`counted` is False) until the next who asks. Without Redis nothing is kept, and the same rule
holds. A result that was written more than half a minute late, after an outage of the database, is not in the numbers.
"""

import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import OperationalError
from redis.exceptions import RedisError

from chronos_site.console.selectors.bounded import bounded_cursor
from chronos_site.infra import redis
from chronos_site.infra.clock import database_now
from chronos_site.infra.sql import statement

log = logging.getLogger(__name__)

MINUTES = 60
BUDGET_S = 0.2
SEALED_AFTER_S = 30
"""So long after its end a minute is taken for complete: results are written in batches, and a batch may wait."""
KEPT_S = 2 * 60 * 60
FRESH_MS = 2000
PREFIX = "chronos:console:minute:"

STEPS = 80
LONGEST_LN = math.log(3_600_000)
"""Lateness is counted in 80 steps from 1 ms to an hour, each 21 % above the one before: a percentile is that exact."""


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute by the database's clock. Lateness is that of first attempts: from `due_at` to their begin."""

    at: datetime
    """Its begin."""
    counted: bool = False
    delivered: int = 0
    failed: int = 0
    ended_otherwise: int = 0
    """Cancelled, skipped or expired."""
    late_p50_ms: float | None = None
    """None where no first attempt ended."""
    late_p99_ms: float | None = None


@dataclass(slots=True)
class _Tally:
    delivered: int = 0
    failed: int = 0
    other: int = 0
    late: dict[int, int] = field(default_factory=dict)

    def add(self, other: "_Tally") -> None:
        self.delivered += other.delivered
        self.failed += other.failed
        self.other += other.other
        for step, count in other.late.items():
            self.late[step] = self.late.get(step, 0) + count

    def text(self) -> str:
        return json.dumps([self.delivered, self.failed, self.other, self.late], separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> "_Tally":
        delivered, failed, other, late = json.loads(text)
        return cls(delivered, failed, other, {int(step): count for step, count in late.items()})


Counted = dict[str, _Tally]
"""By workspace id."""


def minutes_until_now(
    *, workspace_ids: Sequence[UUID] | None = None, minutes: int = MINUTES, budget_s: float = BUDGET_S
) -> list[Minute]:
    """The last `minutes`, oldest first; the last of them is the one that is not over. Raises django.db's errors."""
    until = time.monotonic() + budget_s
    now_s = database_now().timestamp()
    current = int(now_s // 60)
    wanted = list(range(current, current - minutes, -1))
    known = _kept(wanted, workspace_ids)
    for minute in wanted:
        if minute in known:
            continue
        left = until - time.monotonic()
        if left <= 0:
            break
        counted = _count(minute, max(left, 0.05))
        if counted is None:
            break
        _keep(minute, counted, sealed=now_s > (minute + 1) * 60 + SEALED_AFTER_S)
        known[minute] = _total(counted, workspace_ids)
    return [_minute(minute, known.get(minute)) for minute in reversed(wanted)]


def _minute(minute: int, tally: _Tally | None) -> Minute:
    at = datetime.fromtimestamp(minute * 60, UTC)
    if tally is None:
        return Minute(at)
    return Minute(
        at=at,
        counted=True,
        delivered=tally.delivered,
        failed=tally.failed,
        ended_otherwise=tally.other,
        late_p50_ms=_percentile(tally.late, 0.5),
        late_p99_ms=_percentile(tally.late, 0.99),
    )


def _percentile(late: dict[int, int], share: float) -> float | None:
    """The middle of the step that holds it; the first step is "on time", the last "an hour or more"."""
    total = sum(late.values())
    if not total:
        return None
    seen = 0
    for step in sorted(late):
        seen += late[step]
        if seen >= share * total:
            break
    return 0.0 if step <= 0 else round(math.exp(LONGEST_LN * (min(step, STEPS + 1) - 0.5) / STEPS), 1)


def _total(counted: Counted, workspace_ids: Sequence[UUID] | None) -> _Tally:
    total = _Tally()
    wanted = counted if workspace_ids is None else {str(one) for one in workspace_ids}
    for workspace_id, tally in counted.items():
        if workspace_id in wanted:
            total.add(tally)
    return total


def _count(minute: int, limit_s: float) -> Counted | None:
    """None where there was not the time for it."""
    begin = datetime.fromtimestamp(minute * 60, UTC)
    end = datetime.fromtimestamp((minute + 1) * 60, UTC)
    counted: Counted = {}
    try:
        with bounded_cursor(limit_s) as cursor:
            parameters = {"begin": begin, "end": end, "longest": LONGEST_LN, "steps": STEPS}
            cursor.execute(statement("chronos_site.console", "count_minute"), parameters)
            for workspace_id, state, step, count in cursor.fetchall():
                tally = counted.setdefault(str(workspace_id), _Tally())
                if state == "SUCCEEDED":
                    tally.delivered += count
                elif state == "FAILED":
                    tally.failed += count
                else:
                    tally.other += count
                if step is not None:
                    tally.late[step] = tally.late.get(step, 0) + count
    except OperationalError as error:
        if "statement timeout" not in str(error):
            raise
        return None
    return counted


# --- what is kept --------------------------------------------------------------------------------


def _kept(minutes: Sequence[int], workspace_ids: Sequence[UUID] | None) -> dict[int, _Tally]:
    """The tallies that Redis holds. A minute's hash has a total (`all`) and a field for each workspace."""
    fields = ["all"] if workspace_ids is None else ["all", *(str(one) for one in workspace_ids)]
    try:
        with redis.client().pipeline(transaction=False) as pipe:
            for minute in minutes:
                pipe.hmget(f"{PREFIX}{minute}", fields)
            found: list[list[str | None]] = pipe.execute()
    except (RedisError, OSError):
        return {}
    known: dict[int, _Tally] = {}
    for minute, (total, *parts) in zip(minutes, found, strict=True):
        if total is None:
            continue
        known[minute] = _Tally.of_text(total) if workspace_ids is None else _Tally()
        for text in parts:
            if text is not None:
                known[minute].add(_Tally.of_text(text))
    return known


def _keep(minute: int, counted: Counted, *, sealed: bool) -> None:
    name = f"{PREFIX}{minute}"
    values: dict[Any, Any] = {workspace_id: tally.text() for workspace_id, tally in counted.items()}
    values["all"] = _total(counted, None).text()
    try:
        with redis.client().pipeline(transaction=True) as pipe:
            pipe.delete(name)
            pipe.hset(name, mapping=values)
            pipe.pexpire(name, KEPT_S * 1000 if sealed else FRESH_MS)
            pipe.execute()
    except (RedisError, OSError) as error:
        log.debug("minute_not_kept", extra={"action": "console", "error": str(error)})
