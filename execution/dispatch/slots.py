"""In-flight slots of one worker process: one per claimed execution, given back one by one."""

import asyncio
from collections import deque


class Slots:
    """A counting gate, first come first served. For one event loop."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._closed: Exception | None = None

    def close(self, error: Exception) -> None:
        """Refuse whoever waits now or comes later, with `error`."""
        self._closed = error
        for _count, ticket in self._waiting:
            if not ticket.done():
                ticket.set_exception(error)
        self._waiting.clear()

    async def reserve(self, wanted: int) -> int:
        """Take up to `wanted` slots: what is free, at least one, waiting for that if need be. Returns how many."""
        if self._closed is not None:
            raise self._closed
        if not self._waiting and self.free > 0:
            return self._take(wanted)
        ticket: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, ticket))
        try:
            return await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled() and ticket.exception() is None:
                self.release(ticket.result())
            raise

    def release(self, count: int) -> None:
        self.free += count
        while self._waiting and self.free > 0:
            wanted, ticket = self._waiting.popleft()
            if not ticket.done():
                ticket.set_result(self._take(wanted))

    def _take(self, wanted: int) -> int:
        count = min(wanted, self.free)
        self.free -= count
        return count
