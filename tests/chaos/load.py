"""The caller of the API: schedules jobs at a steady rate, with an Idempotency-Key each, until all are acknowledged.

What the API acknowledged is one of the checker's three sources. An answer that does not come, or says "later", is asked
for again with the same key and body; anything else is a refusal, and a refusal is a fault.
"""

import random
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from queue import Empty, Queue
from typing import Any

import requests

RETRY = {"max_attempts": 40, "initial_backoff_s": 0.5, "multiplier": 2, "max_backoff_s": 4, "jitter": "full"}
TIMEOUT_S = 3.0
CALLERS = 8
PATIENCE_S = 240.0
BATCH = 20


@dataclass(frozen=True, slots=True)
class Ack:
    """One execution that the API promised."""

    number: int
    execution_id: str
    schedule_id: str
    run_at: datetime
    at: datetime
    tries: int


class Load:
    """`start()`, then `stop()`, which returns once all that was asked is acknowledged or given up."""

    def __init__(self, *, url: str, api_key: str, target: str, tag: str, rng: random.Random, per_s: float) -> None:
        self._url = url
        self._target = target
        self._tag = tag
        self._rng = rng
        self._every_s = 1 / per_s
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self.acks: list[Ack] = []
        self.refusals: list[str] = []
        self.unanswered: list[int] = []
        """Numbers of jobs that were asked for and never acknowledged."""
        self._todo: Queue[list[tuple[int, datetime]]] = Queue()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._plan, name="load", daemon=True)]
        self._threads += [threading.Thread(target=self._call, name=f"caller-{n}", daemon=True) for n in range(CALLERS)]
        self._next = 0
        self.paused = threading.Event()
        """While it is set nothing new is asked for, so that no POST wakes the buckets in the fire loop's place."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def burst(self, count: int, run_at: datetime) -> None:
        """So many jobs for one moment, in batches."""
        while count > 0:
            size = min(count, 500)
            self._todo.put([(self._number(), run_at) for _ in range(size)])
            count -= size

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _plan(self) -> None:
        """Singles at the steady rate, and a batch for one second now and then."""
        at = time.monotonic()
        while not self._ends.is_set():
            if self.paused.is_set():
                pass
            elif self._rng.random() < 0.02:
                self.burst(BATCH, self._soon())
            else:
                self._todo.put([(self._number(), self._soon())])
            at += self._every_s
            self._ends.wait(max(0.0, at - time.monotonic()))

    def _soon(self) -> datetime:
        """Some of them past the fire loop's look-ahead when they are made."""
        return datetime.now(UTC) + timedelta(seconds=self._rng.uniform(0.5, 7))

    def _call(self) -> None:
        with requests.Session() as session:
            while True:
                try:
                    items = self._todo.get(timeout=0.1)
                except Empty:
                    if self._ends.is_set():
                        return
                    continue
                self._ask(session, items)

    def _ask(self, session: requests.Session, items: list[tuple[int, datetime]]) -> None:
        schedules = [self._body(number, run_at) for number, run_at in items]
        path, body = ("", schedules[0]) if len(items) == 1 else ("/batch", {"schedules": schedules})
        key = f"{self._tag}-{items[0][0]}-{len(items)}"
        gives_up = time.monotonic() + PATIENCE_S
        tries = 0
        while time.monotonic() < gives_up:
            tries += 1
            try:
                answer = session.post(
                    f"{self._url}/v1/schedules{path}",
                    json=body,
                    headers={**self._headers, "Idempotency-Key": key},
                    timeout=6,
                )
            except requests.RequestException:
                time.sleep(0.3)
                continue
            if answer.status_code == 201:
                self._note(items, answer.json(), tries)
                return
            if answer.status_code < 500 and answer.status_code not in {409, 429}:
                self.refusals.append(f"{answer.status_code} {answer.text[:300]}")
                break
            time.sleep(0.3)
        self.unanswered += [number for number, _ in items]

    def _body(self, number: int, run_at: datetime) -> dict[str, Any]:
        return {
            "target": {"url": self._target, "method": "POST"},
            "run_at": run_at.isoformat(),
            "payload": {"number": number},
            "delivery": {"timeout_s": TIMEOUT_S, "retry": RETRY},
            "tags": [self._tag],
        }

    def _note(self, items: list[tuple[int, datetime]], answer: dict[str, Any], tries: int) -> None:
        made = answer.get("items", [answer])
        now = datetime.now(UTC)
        for (number, run_at), schedule in zip(items, made, strict=True):
            self.acks.append(Ack(number, schedule["execution_id"], schedule["id"], run_at, now, tries))
