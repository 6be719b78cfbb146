"""The worker's row: written every 5 s with its rate and what it has in flight.

A worker that could not write for 20 s starts no new send: by then others may take it for dead (at 30 s).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool

log = logging.getLogger(__name__)

EVERY_S = 5.0
SILENT_S = 20.0


class Heartbeat:
    """For one event loop. `count()` answers (deliveries so far, in flight now)."""

    def __init__(
        self,
        *,
        pool: AsyncConnectionPool[Any],
        worker_id: UUID,
        name: str,
        queue: str,
        count: Callable[[], tuple[int, int]],
    ) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._name = name
        self._queue = queue
        self._count = count
        self._written = time.monotonic()
        self._counted = (time.monotonic(), 0)

    @property
    def silent(self) -> bool:
        """Too long without a written heartbeat to begin anything."""
        return time.monotonic() - self._written > SILENT_S

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.write(stopping=False)
            except psycopg.Error as error:
                log.warning("heartbeat_failed", extra={"action": "heartbeat", "error": str(error)[:200]})
            await asyncio.sleep(EVERY_S)

    async def write(self, *, stopping: bool) -> None:
        begun = time.monotonic()
        delivered, in_flight = self._count()
        since, before = self._counted
        rate = (delivered - before) / max(begun - since, 0.001)
        async with self._pool.connection(timeout=EVERY_S) as db:
            await db.execute(
                "INSERT INTO execution_worker"
                " (id, name, queue, started_at, heartbeat_at, in_flight, rate_per_s, stopping)"
                " VALUES (%(id)s, %(name)s, %(queue)s, clock_timestamp(), clock_timestamp(),"
                " %(in_flight)s, %(rate)s, %(stopping)s)"
                " ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at,"
                " in_flight = excluded.in_flight, rate_per_s = excluded.rate_per_s, stopping = excluded.stopping",
                {
                    "id": self._worker_id,
                    "name": self._name,
                    "queue": self._queue,
                    "in_flight": in_flight,
                    "rate": rate,
                    "stopping": stopping,
                },
            )
        self._counted = (begun, delivered)
        # The moment before the write, not after it: a write that hung must not count as fresh.
        self._written = begun
