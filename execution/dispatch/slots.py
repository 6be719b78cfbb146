"""In-flight slots of one worker process: one per claimed execution, given back one by one."""

import asyncio
from collections import deque


class Slots:
    """A counting gate that hands out several slots at once, first come first served. For one event loop."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._closed: Exception | None = None

    def close(self, error: Exception) -> None:
        """Refuse whoever waits now or comes later, with `error`."""
        self._closed = error
        for _count, ticket in self._waiting:
            if not ticket.done():
                ticket.set_exception(error)
        self._waiting.clear()

    async def reserve(self, wanted: int) -> int:
        """Wait until `wanted` slots (at most all there are) are free and take them. Returns how many were taken."""
        if self._closed is not None:
            raise self._closed
        count = min(wanted, self.total)
        if not self._waiting and self.free >= count:
            self.free -= count
            return count
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, ticket))
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled() and ticket.exception() is None:
                self.release(count)
            raise
        return count

    def release(self, count: int) -> None:
        self.free += count
        while self._waiting:
            wanted, ticket = self._waiting[0]
            if ticket.done():
                self._waiting.popleft()
                continue
            if self.free < wanted:
                return
            self._waiting.popleft()
            self.free -= wanted
            ticket.set_result(None)
