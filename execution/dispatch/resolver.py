"""Name look-ups for the egress guard, on threads of their own: one that hangs holds up its own sends and no others."""

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor

PATIENCE_S = 5.0
REMEMBER_S = 1.0
"""An answer, also an empty one, serves the sends of one second; each connects to what was judged."""
MOST = 10_000
THREADS = 32


class Resolver:
    """For one event loop. One look-up per name is under way at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolver")
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._asked: dict[str, asyncio.Task[list[str]]] = {}

    async def resolve(self, host: str) -> list[str]:
        """Every address of the name; empty where there is none, or none within `PATIENCE_S`."""
        known = self._known.get(host)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        asked = self._asked.get(host)
        if asked is None:
            asked = self._asked[host] = asyncio.create_task(self._look_up(host))
        # Shielded: who gives up waiting must not take the answer from the others.
        return await asyncio.shield(asked)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _look_up(self, host: str) -> list[str]:
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await asyncio.get_running_loop().run_in_executor(self._threads, _addresses, host)
        except (OSError, UnicodeError, TimeoutError):
            found = []
        finally:
            self._asked.pop(host, None)
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[host] = (time.monotonic() + REMEMBER_S, found)
        return found


def _addresses(host: str) -> list[str]:
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))
