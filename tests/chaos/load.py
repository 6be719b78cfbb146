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
RHYTHMS = 6
RHYTHM = {"misfire": {"policy": "fire_all", "limit": 500, "grace_s": 300}, "jitter_s": 0}
SETTLED_S = 10.0


@dataclass(frozen=True, slots=True)
class Ack:
    """One execution that the API promised."""

    number: int
    execution_id: str
    schedule_id: str
    run_at: datetime
    at: datetime
    tries: int


@dataclass(slots=True)
class Rhythm:
    """One recurring schedule: every whole `every_s` of the clock it owes an occurrence, between the two moments."""

    schedule_id: str
    every_s: int
    since: datetime
    until: datetime | None = None
    """Known once it is cancelled."""


class Load:
    """`start()`; `stop()`, which returns once all that was asked is acknowledged or given up; then `end_rhythms()`."""

    def __init__(self, *, url: str, api_key: str, target: str, tag: str, rng: random.Random, per_s: float) -> None:
        self._url = url
        self._target = target
        self._tag = tag
        self._rng = rng
        self._every_s = 1 / per_s
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self.acks: list[Ack] = []
        self.rhythms: list[Rhythm] = []
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
        self._begin_rhythms()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def end_rhythms(self) -> None:
        """Cancel the recurring schedules; what was due ten seconds ago has long been sent by then."""
        for rhythm in self.rhythms:
            rhythm.until = datetime.now(UTC) - timedelta(seconds=SETTLED_S)
            self._post(f"/{rhythm.schedule_id}/cancel", None).raise_for_status()

    def _begin_rhythms(self) -> None:
        """Crons and intervals that fall on whole seconds of the clock; late ones all fire."""
        anchor = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        for number in range(RHYTHMS):
            every_s = (2, 3)[number % 2]
            timing = {"cron": "*/2 * * * * *"} if every_s == 2 else {"every": every_s, "anchor": anchor.isoformat()}
            answer = self._post("", {**timing, **RHYTHM, **self._delivery({"rhythm": number})})
            answer.raise_for_status()
            since = datetime.now(UTC) + timedelta(seconds=1)
            self.rhythms.append(Rhythm(answer.json()["id"], every_s, since))

    def _post(self, path: str, body: dict[str, Any] | None) -> requests.Response:
        return requests.post(f"{self._url}/v1/schedules{path}", json=body, headers=self._headers, timeout=10)

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
        return {"run_at": run_at.isoformat(), **self._delivery({"number": number})}

    def _delivery(self, payload: dict[str, int]) -> dict[str, Any]:
        return {
            "target": {"url": self._target, "method": "POST"},
            "payload": payload,
            "delivery": {"timeout_s": TIMEOUT_S, "retry": RETRY},
            "tags": [self._tag],
        }

    def _note(self, items: list[tuple[int, datetime]], answer: dict[str, Any], tries: int) -> None:
        made = answer.get("items", [answer])
        now = datetime.now(UTC)
        for (number, run_at), schedule in zip(items, made, strict=True):
            self.acks.append(Ack(number, schedule["execution_id"], schedule["id"], run_at, now, tries))
