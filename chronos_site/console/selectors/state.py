"""How the whole site stands now: leaders, queues, workers, what waits, what is switched off or broken off.

    snapshot = read_snapshot()

Each server is asked once, and what cannot be asked is named in `away` in place of an error: whoever looks at this
looks because something is wrong. Counts stop at `MOST`; a capped count says "that many or more".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chronos_site.beat import LOOP_OF_TASK, SCHEDULER
from chronos_site.celery import QUEUES
from chronos_site.console.selectors.bounded import bounded_cursor, rows_of
from chronos_site.infra import redis
from chronos_site.infra.leader import PREFIX as LEADER_PREFIX
from chronos_site.infra.sql import statement
from execution.dispatch.breaker import BreakerState, read_breakers

MOST = 100_000
LOOPS = (SCHEDULER, *LOOP_OF_TASK.values())
UNACKED = "unacked"
"""The hash in which the broker's transport keeps what was delivered and not acknowledged, of all queues."""
STALE_WORKER_S = 30
LATE_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class Leader:
    """One loop's lock."""

    loop: str
    held: bool
    ends_in_s: float | None
    """When the lock runs out unless it is renewed; None where nobody holds it."""
    epoch: int
    """How many elections there were."""


@dataclass(frozen=True, slots=True)
class QueueLength:
    queue: str
    messages: int


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A process that delivers, by the row that it writes every five seconds."""

    name: str
    queue: str
    state: str
    """busy, idle, draining (told to stop), or stale (silent for 30 s: its claims are given to others)."""
    in_flight: int
    rate_per_s: float
    heartbeat_age_s: float
    started_at: datetime


@dataclass(frozen=True, slots=True)
class SwitchState:
    """What an operator has switched off."""

    id: int
    scope: str
    value: str
    name: str | None
    """The workspace's name, for that scope."""
    at: datetime
    by: str
    reason: str
    waiting: int
    """Executions that name it and wait (not counted for everything and for a queue, which hold back whole loops)."""


@dataclass(frozen=True, slots=True)
class BulkState:
    """A bulk job that has not ended."""

    id: UUID
    workspace: str
    file: str
    state: str
    total: int
    ended: int
    failed: int
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Work:
    """What waits and what became of things, each count capped at MOST."""

    oldest_due_at: datetime | None
    """Of what is due and neither claimed nor held by a pause or a switch; None where nothing is overdue."""
    overdue: int
    """Executions that are due for more than five seconds and still wait, first attempts and retries."""
    queued: int
    running: int
    retrying: int
    dead_letters: int
    """Open ones."""
    delivered_last_minute: int
    failed_last_minute: int


@dataclass(slots=True)
class Snapshot:
    """None: the server that knows it is away (see `away`)."""

    at: datetime | None = None
    """By the database's clock."""
    work: Work | None = None
    workers: list[WorkerState] | None = None
    switches: list[SwitchState] | None = None
    bulk_jobs: list[BulkState] | None = None
    leaders: list[Leader] | None = None
    queues: list[QueueLength] | None = None
    unacked: int | None = None
    breakers: list[BreakerState] | None = None
    """Destinations that have failed since their last sign of life, closed ones among them."""
    away: dict[str, str] = field(default_factory=dict)
    """Why a server could not be asked, by its name: postgres, redis."""


def read_snapshot(*, workspace_ids: Sequence[UUID] | None = None) -> Snapshot:
    """A server that is away raises nothing. Leaders, queues, workers and breakers are the site's as a whole."""
    snapshot = Snapshot()
    try:
        _read_postgres(snapshot, workspace_ids)
    except (DatabaseError, InterfaceError) as error:
        snapshot.away["postgres"] = _first_line(error)
    try:
        snapshot.leaders, snapshot.queues, snapshot.unacked = read_leaders(), *read_queues()
        snapshot.breakers = read_breakers()
    except (RedisError, OSError) as error:
        snapshot.away["redis"] = _first_line(error)
    return snapshot


def read_leaders() -> list[Leader]:
    """One for each loop. Raises redis' errors."""
    with redis.client().pipeline(transaction=False) as pipe:
        for loop in LOOPS:
            pipe.pttl(LEADER_PREFIX + loop)
            pipe.get(f"{LEADER_PREFIX}{loop}:epoch")
        found: list[Any] = pipe.execute()
    return [
        Leader(loop, ttl > 0, ttl / 1000 if ttl > 0 else None, int(epoch or 0))
        for loop, ttl, epoch in zip(LOOPS, found[::2], found[1::2], strict=True)
    ]


def read_queues() -> tuple[list[QueueLength], int]:
    """Messages by queue, and those that were delivered and are not acknowledged yet. Raises redis' errors."""
    with redis.client().pipeline(transaction=False) as pipe:
        for queue in QUEUES:
            pipe.llen(queue)
        pipe.hlen(UNACKED)
        *lengths, unacked = pipe.execute()
    return [QueueLength(queue, length) for queue, length in zip(QUEUES, lengths, strict=True)], int(unacked)


def read_workers(cursor: Any) -> list[WorkerState]:
    """Those that were heard of within a day."""
    cursor.execute(statement("chronos_site.console", "select_workers"))
    return [
        WorkerState(
            name=row["name"],
            queue=row["queue"],
            state=_worker_state(row),
            in_flight=row["in_flight"],
            rate_per_s=round(row["rate_per_s"], 1),
            heartbeat_age_s=round(row["age_s"], 1),
            started_at=row["started_at"],
        )
        for row in rows_of(cursor)
    ]


def read_switches(cursor: Any, *, workspace_ids: Sequence[UUID] | None = None) -> list[SwitchState]:
    """What is off, the oldest first; of the switches of workspaces only those that are asked for."""
    scope = None if workspace_ids is None else list(workspace_ids)
    cursor.execute(statement("chronos_site.console", "select_switches"), {"workspace_ids": scope})
    return [SwitchState(**row) for row in rows_of(cursor)]


def _worker_state(row: dict[str, Any]) -> str:
    if row["age_s"] > STALE_WORKER_S:
        return "stale"
    if row["stopping"]:
        return "draining"
    return "busy" if row["in_flight"] else "idle"


def _read_postgres(snapshot: Snapshot, workspace_ids: Sequence[UUID] | None) -> None:
    scope = {"workspace_ids": None if workspace_ids is None else list(workspace_ids)}
    with bounded_cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        snapshot.at = cursor.fetchone()[0]
        snapshot.workers = read_workers(cursor)
        snapshot.switches = read_switches(cursor, workspace_ids=workspace_ids)
        cursor.execute(statement("chronos_site.console", "select_open_bulk_jobs"), scope)
        snapshot.bulk_jobs = [BulkState(**row) for row in rows_of(cursor)]
        limits = {"most": MOST, "late_after_s": LATE_AFTER_S}
        cursor.execute(statement("chronos_site.console", "count_work"), {**scope, **limits})
        [row] = rows_of(cursor)
        snapshot.work = Work(**row)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
