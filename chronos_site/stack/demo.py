"""The demo's story: schedule jobs through the public API, receive them, and compare what was promised with what came.

It knows the API and a receiver, and nothing of the site's inside.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from rich.table import Table

from .receiver import Received, Receiver

SINGLES = 200
BATCH = 50
LEAD_S = 4.0
"""From the first POST to the first job's second."""
SPREAD_S = 10.0
PATIENCE_S = 60.0
"""How long after the last job's second the demo waits for what is missing."""
LATEST_P99_S = 1.0

Say = Callable[[str], None]


class DemoError(RuntimeError):
    """The API refused something that the demo needs."""


@dataclass(frozen=True, slots=True)
class Row:
    """One execution: what was asked, and what the receiver and the API say of it."""

    execution_id: str
    scheduled_for: datetime
    arrivals: list[Received]
    state: str

    @property
    def lateness_s(self) -> float | None:
        """Seconds from the promised time to the first arrival; below zero is too early."""
        return (self.arrivals[0].arrived - self.scheduled_for).total_seconds() if self.arrivals else None


@dataclass(frozen=True, slots=True)
class Totals:
    """The verdict over all rows."""

    accepted: int
    delivered: int
    doubled: int
    lost: int
    early: int
    unfinished: int
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, rows: list[Row]) -> "Totals":
        late = sorted(row.lateness_s for row in rows if row.lateness_s is not None)
        return cls(
            accepted=len(rows),
            delivered=len(late),
            doubled=sum(len(row.arrivals) > 1 for row in rows),
            lost=sum(not row.arrivals for row in rows),
            early=sum(value < 0 for value in late),
            unfinished=sum(row.state != "SUCCEEDED" for row in rows),
            p50_s=percentile(late, 0.50),
            p99_s=percentile(late, 0.99),
        )

    @property
    def faults(self) -> list[str]:
        """Why the demo failed; empty where it ended well."""
        told = {
            f"{self.lost} lost": self.lost,
            f"{self.doubled} doubled": self.doubled,
            f"{self.early} delivered too early": self.early,
            f"{self.unfinished} not shown as SUCCEEDED by the API": self.unfinished,
            f"p99 lateness {self.p99_s:.3f} s is not below {LATEST_P99_S:g} s": not self.p99_s < LATEST_P99_S,
            "nothing was accepted": not self.accepted,
        }
        return [text for text, wrong in told.items() if wrong]


def percentile(ordered: list[float], share: float) -> float:
    """The nearest-rank percentile of sorted values; infinite where there are none."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else math.inf


class Demo:
    """One run against one API. `run` returns the rows; `stopping` ends it early with what there is."""

    def __init__(self, *, url: str, api_key: str, receiver: Receiver, say: Say, stopping: threading.Event) -> None:
        self._url = url
        self._receiver = receiver
        self._say = say
        self._stopping = stopping
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {api_key}"
        self._promised: dict[str, datetime] = {}

    def run(self) -> list[Row]:
        """Raises DemoError where the API refuses, requests' errors where it does not answer."""
        with self._session:
            job = self._post(
                "/v1/job-definitions",
                {
                    "name": "demo",
                    "kind": "http",
                    "target": {"url": self._receiver.url("/hook"), "method": "POST", "headers": {"X-Demo": "yes"}},
                    "payload": {"hello": "from the demo"},
                    "timeout_s": 10,
                    "tags": ["demo"],
                },
            )
            begun = time.time()
            self._schedule_singles(job["id"], begun)
            self._schedule_batch(job["name"], begun)
            self._await_deliveries()
            return self._rows()

    def _schedule_singles(self, job_id: str, begun: float) -> None:
        for number in range(SINGLES):
            if self._stopping.is_set():
                return
            planned = max(begun + LEAD_S + SPREAD_S * number / SINGLES, time.time() + 1)
            body = {"job_definition": job_id, "run_at": _rfc3339(planned), "payload": {"number": number}}
            self._accept(self._post("/v1/schedules", body))
            if (number + 1) % 50 == 0:
                self._say(f"accepted {number + 1} of {SINGLES} jobs, one request each")

    def _schedule_batch(self, job_name: str, begun: float) -> None:
        run_at = _rfc3339(max(begun + LEAD_S + SPREAD_S / 2, time.time() + 2))
        items = [{"job_definition": job_name, "run_at": run_at, "payload": {"batch": i}} for i in range(BATCH)]
        for item in self._post("/v1/schedules/batch", {"schedules": items})["items"]:
            self._accept(item)
        self._say(f"accepted {BATCH} more in one batch, all for the same second")

    def _accept(self, schedule: dict[str, Any]) -> None:
        if schedule["execution_id"] in self._promised:
            raise DemoError(f"two schedules were given one execution, {schedule['execution_id']}")
        self._promised[schedule["execution_id"]] = datetime.fromisoformat(schedule["run_at"])

    def _await_deliveries(self) -> None:
        """Until every execution has arrived and the API knows, or patience ends."""
        deadline = time.time() + PATIENCE_S
        if self._promised:
            deadline += max(0.0, max(self._promised.values()).timestamp() - time.time())
        told = -1.0
        while time.time() < deadline and not self._stopping.wait(0.25):
            arrived = len(self._receiver.by_execution())
            if time.monotonic() - told >= 1:
                told = time.monotonic()
                self._say(f"delivered {arrived} of {len(self._promised)}")
            if arrived >= len(self._promised) and self._all_ended():
                break
        self._stopping.wait(0.5)  # A second delivery of the last one would come about now.

    def _all_ended(self) -> bool:
        states = self._states()
        return all(states.get(execution_id) == "SUCCEEDED" for execution_id in self._promised)

    def _states(self) -> dict[str, str]:
        """Every execution's state, by id, over all pages."""
        found: dict[str, str] = {}
        cursor: str | None = None
        while True:
            parameters = {"limit": "200"} | ({"cursor": cursor} if cursor else {})
            page = self._answer(self._session.get(f"{self._url}/v1/executions", params=parameters, timeout=10))
            found |= {item["id"]: item["state"] for item in page["items"]}
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def _rows(self) -> list[Row]:
        states = self._states()
        arrived = self._receiver.by_execution()
        rows = [
            Row(execution_id, promised, arrived.get(execution_id, []), states.get(execution_id, "unknown"))
            for execution_id, promised in self._promised.items()
        ]
        return sorted(rows, key=lambda row: (row.scheduled_for, row.execution_id))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._answer(self._session.post(f"{self._url}{path}", json=body, timeout=10))

    def _answer(self, response: requests.Response) -> dict[str, Any]:
        if not response.ok:
            raise DemoError(f"{response.request.method} {response.url}: {response.status_code} {response.text[:1000]}")
        answer: dict[str, Any] = response.json()
        return answer


def table_of(rows: list[Row]) -> Table:
    """Every execution: promised, arrived, how late, what the API says, what the receiver saw."""
    table = Table(title="What was promised and what came", title_justify="left")
    table.add_column("execution", no_wrap=True)
    for name in ("scheduled", "delivered", "lateness", "status"):
        table.add_column(name, no_wrap=True, justify="right" if name == "lateness" else "left")
    table.add_column("headers seen by the receiver", no_wrap=True)
    for row in rows:
        late = row.lateness_s
        first = row.arrivals[0] if row.arrivals else None
        table.add_row(
            row.execution_id,
            _clock(row.scheduled_for),
            _clock(first.arrived) if first else "never",
            "" if late is None else f"{late * 1000:.0f} ms",
            row.state,
            _headers_seen(first) if first else "",
        )
    return table


def _headers_seen(request: Received) -> str:
    seen = request.headers
    job = seen.get("x-job-id", "none")
    return (
        f"X-Attempt-Number {seen.get('x-attempt-number')} · X-Job-Id …{job[-6:]} · traceparent …"
        + (seen.get("traceparent", "none")[-11:])
    )


def _clock(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]


def _rfc3339(unix_s: float) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(seconds=round(unix_s, 3))).isoformat()
