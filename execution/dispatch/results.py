"""Results on their way to the table: flushed within 50 ms, in batches, retried until the lease ends.

A result that is dropped here was never stored: its row stays RUNNING until the lease ends, and is then taken by the
monitor as an unknown outcome.
"""

import asyncio
import logging
from collections.abc import Callable

import psycopg

from execution.dispatch.fence import Fence
from execution.dispatch.flow import Flow
from execution.dispatch.source import Source
from execution.domain.outcome import Result

log = logging.getLogger(__name__)

FLUSH_S = 0.05
BATCH = 500
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


class ResultWriter:
    """For one event loop. `stored` is told of each batch of results that reached its end, stored or not."""

    def __init__(
        self, *, source: Source, fence: Fence, flow: Flow, finished: Callable[[list[Result], set[object]], None]
    ) -> None:
        self._source = source
        self._flow = flow
        self._fence = fence
        self._finished = finished
        self._waiting: list[Result] = []
        self._wake = asyncio.Event()
        self._closing = False

    def add(self, result: Result) -> None:
        self._waiting.append(result)
        self._wake.set()

    async def run(self) -> None:
        """Until `close()`, and then until everything is written."""
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            if len(self._waiting) < BATCH and not self._closing:
                await asyncio.sleep(FLUSH_S)
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            if not self._waiting and not self._closing:
                self._wake.clear()
            if batch:
                await self._write(batch)

    def close(self) -> None:
        self._closing = True
        self._wake.set()

    async def _write(self, batch: list[Result]) -> None:
        """Write one batch; a database that is away is tried again until the leases end."""
        pause = FIRST_PAUSE_S
        stored: set[object] = set()
        held = batch
        while held:
            try:
                stored = set(await self._source.write_results(held))
                break
            except psycopg.Error as error:
                # Deadlocks, lost connections, a server that has become read-only: whatever it is, it may pass. A batch
                # whose COMMIT got through before the link broke is written again without effect: its rows are no
                # longer RUNNING.
                log.warning(
                    "results_wait", extra={"action": "write_results", "waiting": len(held), "error": str(error)[:200]}
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)
            late = [result for result in held if result.claim.lease_until <= result.claim.clock.now()]
            if late:
                log.error("results_dropped", extra={"action": "write_results", "dropped": len(late)})
                gone = {result.claim.id for result in late}
                held = [result for result in held if result.claim.id not in gone]
        if stored:
            await self._fence.record([result for result in batch if result.claim.id in stored])
        await self._flow.record(batch)
        self._finished(batch, stored)
