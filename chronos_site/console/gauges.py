"""What the whole site looks like now, as plain data: queues, overdue work, leaders, workers, breakers, switches.

`read` asks Postgres and Redis side by side, each for at most `LIMIT_S`, and never raises: a part whose server is away
or slow is None. Every answer is kept for `KEEP_S` and one thread asks at a time, so that many readers (scrapers, the
admin's first page, commands) cost what one costs. Nothing in it belongs to a workspace, and no count goes over a table:
each is bounded, or over rows that an index holds apart.
"""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as WaitedTooLong
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
from redis.exceptions import RedisError

from chronos_site.console.connections import own_connection
from chronos_site.console.selectors.state import Leader, read_leaders, read_queues
from chronos_site.infra.sql import statement
from chronos_site.observability import events
from execution.dispatch.breaker import read_breakers

LIMIT_S = 2.0
"""Longest that a reader waits for each server."""
KEEP_S = 5.0
OVERDUE_GRACE_S = 5.0
"""Work is overdue when nobody took it so long after its time."""
OVERDUE_MOST = 10_000
"""Overdue rows that are counted; where there are more, this is what is said."""
ALIVE_S = 30
"""A worker whose heartbeat is older is gone."""

_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="gauges")
_lock = threading.Lock()
_kept: "tuple[float, Gauges] | None" = None

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Overdue:
    """Executions in one state that nobody has taken since they were due."""

    count: int
    """At most OVERDUE_MOST."""
    oldest_s: float
    """Seconds since the oldest was due; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The live workers of one queue together."""

    count: int
    stopping: int
    in_flight: int
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Stored:
    """What Postgres says."""

    overdue: dict[str, Overdue]
    """By state: PENDING, RETRYING."""
    workers: dict[str, Workers]
    """By the queue that they deliver from."""
    loops: dict[str, float]
    """Seconds since each loop of the house last ticked, where it notes that."""
    switches_off: dict[str, int]
    """How many switches are off, by scope: global, workspace, destination, queue."""
    open_bulk_jobs: dict[str, int]
    """Bulk jobs that have not ended, by state."""
    held_connections: int
    """Connections to this database, whoever holds them."""
    max_connections: int


@dataclass(frozen=True, slots=True)
class Queued:
    """What Redis says."""

    queues: dict[str, int]
    """Messages that wait, by queue."""
    unacked: int
    """Messages that some worker has taken and not yet acknowledged, of all queues."""
    leaders: dict[str, Leader]
    """By lock: scheduler, retry, monitor."""
    breakers: dict[str, int]
    """Destinations by the state of their breaker: open, half_open. The closed ones are not known."""
    stream_length: int
    """Events on the stream job-events."""
    stream_lag: dict[str, int | None]
    """Events that each group of readers has not yet read; None where Redis cannot say."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """One look at the site."""

    at: datetime
    postgres: Stored | None
    """None: Postgres is away, or did not answer in time."""
    redis: Queued | None


def read(*, max_age_s: float = KEEP_S) -> Gauges:
    """The last look where it is at most so old, else a new one. Never raises; takes LIMIT_S at most."""
    global _kept
    with _lock:
        if _kept is not None and time.monotonic() - _kept[0] <= max_age_s:
            return _kept[1]
        looked = _look()
        _kept = (time.monotonic(), looked)
        return looked


def _look() -> Gauges:
    stored, queued = _threads.submit(_read_postgres), _threads.submit(_read_redis)
    until = time.monotonic() + LIMIT_S
    return Gauges(at=datetime.now(UTC), postgres=_outcome(stored, until), redis=_outcome(queued, until))


def _outcome(part: Future[Part], until: float) -> Part | None:
    try:
        return part.result(max(0.0, until - time.monotonic()))
    except (WaitedTooLong, psycopg.Error, RedisError, OSError):
        part.cancel()
        return None


# --- Postgres --------------------------------------------------------------------------------------------------------

_WORKERS = (
    "SELECT queue, count(*), count(*) FILTER (WHERE stopping), sum(in_flight), sum(rate_per_s) FROM execution_worker"
    " WHERE heartbeat_at > clock_timestamp() - %s * interval '1 second' GROUP BY queue"
)
_LOOPS = "SELECT name, extract(epoch FROM clock_timestamp() - ticked_at)::float8 FROM execution_loop"
_SWITCHES = "SELECT scope, count(*) FROM execution_dispatchswitch GROUP BY scope"
_BULK = (
    "SELECT state, count(*) FROM bulk_bulkjob WHERE state IN ('UPLOADED', 'INGESTING', 'RUNNING', 'PAUSED')"
    " GROUP BY state"
)
_CONNECTIONS = (
    "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),"
    " current_setting('max_connections')::int"
)


def _read_postgres() -> Stored:
    with own_connection() as own:
        bounds = {"grace_s": OVERDUE_GRACE_S, "most": OVERDUE_MOST}
        overdue = own.execute(statement("execution", "gauge_overdue"), bounds).fetchall()
        workers = own.execute(_WORKERS, [ALIVE_S]).fetchall()
        connections = own.execute(_CONNECTIONS).fetchone()
        return Stored(
            overdue={state: Overdue(count, max(0.0, oldest or 0.0)) for state, count, oldest in overdue},
            workers={queue: Workers(int(n), int(stops), int(sends), rate) for queue, n, stops, sends, rate in workers},
            loops={name: max(0.0, age) for name, age in own.execute(_LOOPS)},
            switches_off=_by_name(own, _SWITCHES, ("global", "workspace", "destination", "queue")),
            open_bulk_jobs=_by_name(own, _BULK, ("UPLOADED", "INGESTING", "RUNNING", "PAUSED")),
            held_connections=connections[0] if connections else 0,
            max_connections=connections[1] if connections else 0,
        )


def _by_name(own: psycopg.Connection[Any], query: Any, names: tuple[str, ...]) -> dict[str, int]:
    """Each of the names, with 0 where the query has no row for it."""
    return {**dict.fromkeys(names, 0), **dict(own.execute(query).fetchall())}


# --- Redis -----------------------------------------------------------------------------------------------------------


def _read_redis() -> Queued:
    queues, unacked = read_queues()
    breakers = {"open": 0, "half_open": 0}
    for breaker in read_breakers():
        if breaker.state in breakers:
            breakers[breaker.state] += 1
    stream = events.look()
    return Queued(
        queues={queue.queue: queue.messages for queue in queues},
        unacked=unacked,
        leaders={leader.loop: leader for leader in read_leaders()},
        breakers=breakers,
        stream_length=stream.length,
        stream_lag={group.name: group.lag for group in stream.groups},
    )
