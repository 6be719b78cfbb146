"""Readers of the stream `job-events`, in consumer groups: each entry of a group goes to one of its consumers.

`Reader.run` reads, hands what it read to a sink, and acknowledges what the sink has taken: at least once. An entry that
was read and not acknowledged is pending; where its consumer has gone, another of the group claims it after
`claim_after_s`. What the stream no longer holds cannot be handed over: it is counted (`lost`).

A sink is any callable of `Sink`: whoever wants the events in Python (to judge SLAs, say) passes a function of its own
and a group of its own. Redis away, or a sink that raises: the same entries are tried again after a pause.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from chronos_site.infra import redis
from chronos_site.observability.events import MEMBER, STREAM

log = logging.getLogger(__name__)

BATCH = 500
BLOCK_MS = 1000
TIMEOUT_S = 5.0
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
CLAIM_AFTER_S = 30.0
CLAIM_EVERY_S = 1.0
FORGET_EVERY_S = 60.0
FORGET_AFTER_S = 3600.0
"""A consumer that was not seen for so long, and has nothing pending, is removed from the group."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event as it stands in the stream."""

    entry_id: str
    text: str
    """The event as JSON."""

    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found


Sink = Callable[[Sequence[Entry]], None]
"""Takes entries, in their order, and returns once it has them; may be handed the same ones again."""


@dataclass(slots=True)
class Read:
    """What a reader has done since its start."""

    delivered: int = 0
    claimed: int = 0
    """Of them, those that another consumer had read and not acknowledged."""
    lost: int = 0
    """Pending entries that the stream no longer held."""
    failures: int = 0
    """Times that Redis or the sink failed."""


class Reader:
    """One consumer of one group."""

    def __init__(
        self,
        *,
        group: str,
        consumer: str,
        sink: Sink,
        claim_after_s: float = CLAIM_AFTER_S,
        from_start: bool = True,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """A group that is new begins with all that the stream holds, or with what comes from now on.

        `on_ready` is called once the group is there.
        """
        self.group = group
        self.consumer = consumer
        self._sink = sink
        self._claim_after_ms = int(claim_after_s * 1000)
        self._first_id = "0" if from_start else "$"
        self._on_ready = on_ready
        self.read = Read()
        self._stop = threading.Event()
        self._looks_back = True
        """Whether this consumer may have read what it has not acknowledged."""
        self._claim_at = self._forget_at = 0.0

    def stop(self) -> None:
        """What is in hand is finished first. From any thread, also from a signal's handler."""
        self._stop.set()

    def run(self, *, once: bool = False) -> Read:
        """Until `stop()`; with `once` until nothing is left to read; then what Redis or the sink raise is raised."""
        tries = 0
        with redis.impatient_client(timeout_s=TIMEOUT_S) as client:
            while not self._stop.is_set():
                try:
                    found = self._turn(client, wait=not once)
                except Exception as error:
                    self._looks_back = True
                    if once:
                        raise
                    self._failed(error)
                    self._stop.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                    tries += 1
                    continue
                tries = 0
                if once and not found:
                    break
        return self.read

    def _failed(self, error: Exception) -> None:
        self.read.failures += 1
        expected = isinstance(error, RedisError | OSError)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "events_wait",
            extra={"action": "consume_events", "group": self.group, "error": repr(error)[:300]},
            exc_info=None if expected else error,
        )

    def _turn(self, client: Redis, *, wait: bool) -> int:
        """What this consumer has pending, else what others have left behind, else what is new. Returns how many."""
        if self._looks_back:
            self._ensure_group(client)
        entries = self._own_pending(client) or self._left_behind(client) or self._fresh(client, wait=wait)
        if entries:
            self._looks_back = True
            self._sink(entries)
            client.xack(STREAM, self.group, *[entry.entry_id for entry in entries])
            self.read.delivered += len(entries)
            self._looks_back = False
        return len(entries)

    def _ensure_group(self, client: Redis) -> None:
        """A Redis that was emptied has neither stream nor group."""
        try:
            client.xgroup_create(STREAM, self.group, id=self._first_id, mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        # What comes while Redis is emptied later is not to be passed over.
        self._first_id = "0"
        self._on_ready()
        self._on_ready = lambda: None

    def _own_pending(self, client: Redis) -> list[Entry]:
        if not self._looks_back:
            return []
        found: Any = client.xreadgroup(self.group, self.consumer, {STREAM: "0"}, count=BATCH)
        entries = self._entries(client, _of_stream(found))
        self._looks_back = bool(entries)
        return entries

    def _left_behind(self, client: Redis) -> list[Entry]:
        if time.monotonic() < self._claim_at:
            return []
        answer: Any = client.xautoclaim(
            STREAM, self.group, self.consumer, min_idle_time=self._claim_after_ms, start_id="0-0", count=BATCH
        )
        self.read.lost += len(answer[2]) if len(answer) > 2 else 0
        entries = self._entries(client, answer[1])
        if entries:
            self.read.claimed += len(entries)
            log.info("events_claimed", extra={"action": "consume_events", "group": self.group, "claimed": len(entries)})
        return entries

    def _fresh(self, client: Redis, *, wait: bool) -> list[Entry]:
        found: Any = client.xreadgroup(
            self.group, self.consumer, {STREAM: ">"}, count=BATCH, block=BLOCK_MS if wait else None
        )
        return self._entries(client, _of_stream(found))

    def _entries(self, client: Redis, found: list[tuple[str, dict[str, str] | None]]) -> list[Entry]:
        """Those that are there; those that were cut off the stream meanwhile are let go."""
        gone = [entry_id for entry_id, fields in found if not fields]
        if gone:
            self.read.lost += len(gone)
            client.xack(STREAM, self.group, *gone)
        return [Entry(entry_id, fields.get(MEMBER, "{}")) for entry_id, fields in found if fields]

    def _forget_the_dead(self, client: Redis) -> None:
        """Remove consumers that have long been gone and left nothing: each process that ran has a name of its own."""
        if time.monotonic() < self._forget_at:
            return
        self._forget_at = time.monotonic() + FORGET_EVERY_S
        consumers: Any = client.xinfo_consumers(STREAM, self.group)
        for found in consumers:
            gone = int(found["idle"]) > FORGET_AFTER_S * 1000 and int(found["pending"]) == 0
            if gone and found["name"] != self.consumer:
                client.xgroup_delconsumer(STREAM, self.group, found["name"])


def _of_stream(found: Any) -> list[tuple[str, dict[str, str] | None]]:
    """The entries of our one stream in an answer of XREADGROUP, in either form that the client gives it."""
    if not found:
        return []
    if isinstance(found, dict):
        parts = found.get(STREAM) or [[]]
        return list(parts[0])
    return list(found[0][1])
