"""The stream of events, `job-events` in Redis: what happened is told to whoever watches.

`write` is called after a commit, `write_on_commit` before one. Both hand the events to a thread of this process, which
writes whatever has come together with one call every few milliseconds; the caller waits for nothing. Best effort by
contract: Postgres is the truth, and no state depends on an event. A process that dies loses the events of its last
moment. While Redis is away they wait in a bounded buffer; what has no room in it, and what was on its way when Redis
went, is dropped and counted.

`COUNTS` is this process's: `written` and `dropped`, since its start. `look` says how long the stream is and how far its
readers are.
"""

import atexit
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from redis.exceptions import ResponseError

from chronos_site.infra import redis
from chronos_site.infra.ids import new_id

log = logging.getLogger(__name__)

STREAM = "job-events"
MEMBER = "event"
"""The one field of an entry: the event as JSON."""
CAPACITY = 20_000
"""Events that may wait in a process, some ten megabytes."""
BATCH = 500
FLUSH_S = 0.03
AWAY_S = 1.0
"""After a failure Redis is left alone for so long."""
TIMEOUT_S = 1.0
LAST_WORDS_S = 0.5
"""What a process that ends waits for its last events to be written."""

# One script for a whole batch, as for the fence: a command for each event would cost the client three times as much.
# KEYS[1]: the stream. ARGV: about how many entries it keeps, then the events.
ADD_ALL = """
for i = 2, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'event', ARGV[i])
end
"""


@dataclass(slots=True)
class Counts:
    """Of this process, since its start."""

    written: int = 0
    dropped: int = 0


COUNTS = Counts()


class Writer:
    """A buffer and the thread that empties it; the thread starts with the first event."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._client: Any = None
        self._busy = False
        # Of this process and this thread: ids need neither a clock nor Redis.
        self._prefix = new_id().hex
        self._numbers = itertools.count(1)

    def add(self, bodies: Sequence[str]) -> None:
        with self._lock:
            over = len(self._waiting) + len(bodies) - CAPACITY
            if over > 0:
                # The oldest go: who watches wants to know how things stand.
                COUNTS.dropped += over
                for _ in range(min(over, len(self._waiting))):
                    self._waiting.popleft()
            self._waiting.extend(bodies[-CAPACITY:])
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    def flush(self, timeout_s: float) -> None:
        """Wait, for so long at most, until everything is written or dropped."""
        ends = time.monotonic() + timeout_s
        self._hurry.set()
        while (self._waiting or self._busy) and time.monotonic() < ends:
            time.sleep(0.002)
        self._hurry.clear()

    def close(self) -> None:
        """Let go of the connection; the next event opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._hurry.wait(FLUSH_S)
            self._wake.clear()
            while batch := self._take():
                try:
                    written = self._write(batch)
                finally:
                    self._busy = False
                if not written:
                    self._hurry.wait(AWAY_S)

    def _take(self) -> list[str]:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._busy = bool(batch)
        return batch

    def _write(self, batch: list[str]) -> bool:
        """False: Redis is away, and the batch is lost. It may have been written all the same: an id tells doubles."""
        prefix, numbers = self._prefix, self._numbers
        events = [f'{{"id":"{prefix}-{next(numbers)}",{body}' for body in batch]
        try:
            if self._client is None:
                self._client = redis.impatient_client(timeout_s=TIMEOUT_S)
                self._script = self._client.register_script(ADD_ALL)
            self._script(keys=[STREAM], args=[settings.CHRONOS_EVENTS_MAX, *events])
        except Exception as error:
            COUNTS.dropped += len(batch)
            log.warning(
                "events_dropped", extra={"action": "events", "dropped": COUNTS.dropped, "error": repr(error)[:200]}
            )
            return False
        COUNTS.written += len(batch)
        return True


_writer = Writer()


def _begin_anew() -> None:
    """A process that was forked has no thread, and needs ids of its own."""
    global _writer
    _writer = Writer()


def write(bodies: Sequence[str]) -> None:
    """Tell of what is committed. Never waits and never raises."""
    if bodies:
        _writer.add(bodies)


def flush(timeout_s: float = LAST_WORDS_S) -> None:
    """Wait until what was told is written, or dropped."""
    _writer.flush(timeout_s)


def close() -> None:
    """Let go of the connection."""
    _writer.close()


atexit.register(flush)
os.register_at_fork(after_in_child=_begin_anew)


class _Batch:
    """The events of a transaction, as one of its commit hooks."""

    def __init__(self, bodies: list[str]) -> None:
        self.bodies = bodies

    def __call__(self) -> None:
        write(self.bodies)


def write_on_commit(bodies: Sequence[str]) -> None:
    """Tell of it once the transaction is committed, and never where it, or the savepoint, is rolled back."""
    if not bodies:
        return
    savepoints = set(connection.savepoint_ids)
    for within, hook, *_ in reversed(connection.run_on_commit):
        # The same savepoints, so the same fate.
        if isinstance(hook, _Batch) and within == savepoints:
            hook.bodies.extend(bodies)
            return
    transaction.on_commit(_Batch(list(bodies)), robust=True)


# --- watching --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far one group of readers is."""

    name: str
    consumers: int
    pending: int
    """Read by one of them and not yet acknowledged."""
    lag: int | None
    """Not yet read; None where Redis cannot tell, for entries that it had not read were cut off."""


@dataclass(frozen=True, slots=True)
class StreamState:
    length: int
    oldest_at: datetime | None
    groups: list[GroupState] = field(default_factory=list)


def look() -> StreamState:
    """The stream as it is now. Raises redis' errors."""
    client = redis.client()
    try:
        info: Any = client.xinfo_stream(STREAM)
        groups: Any = client.xinfo_groups(STREAM)
    except ResponseError as error:
        if "no such key" in str(error):
            return StreamState(0, None)
        raise
    first = info["first-entry"]
    oldest = datetime.fromtimestamp(int(first[0].split("-")[0]) / 1000, UTC) if first else None
    return StreamState(
        length=int(info["length"]),
        oldest_at=oldest,
        groups=[
            GroupState(
                str(g["name"]), int(g["consumers"]), int(g["pending"]), None if g["lag"] is None else int(g["lag"])
            )
            for g in groups
        ],
    )
