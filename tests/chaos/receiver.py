"""The receiver of the chaos runs: writes every request to a log that is on the disk before it answers, and misbehaves.

    receiver.mode = "500"; ...; receiver.mode = "ok"

The log holds what was answered in full: a status where the answer left whole, null where it was meant not to.
"""

import gzip
import json
import os
import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from chronos_site.stack.receiver import Answer, Received, Receiver

BOMB = gzip.compress(b"\0" * 50_000_000, 9)

MODES: dict[str, Answer] = {
    "ok": Answer(),
    "slow": Answer(delay_s=1.0),
    "500": Answer(status=500, body=b"no"),
    "429": Answer(status=429, body=b"later", headers={"Retry-After": "2"}),
    "hang": Answer(delay_s=12.0),
    "drip": Answer(body=b"x" * 60, drip_s=0.5),
    "body": Answer(body=b"y" * 10, drip_s=0.3),
    "reset": Answer(reset=True),
    "huge": Answer(body=b"z" * 8_000_000),
    "gzip": Answer(body=BOMB, headers={"Content-Encoding": "gzip"}),
}
UNANSWERED = {"hang", "drip", "reset"}
"""Modes whose answer no sender waits for, or gets: each lasts longer than the jobs' timeout."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request as it came."""

    at: datetime
    execution_id: str
    attempt: int
    status: int | None
    """None: no whole answer was meant to be given."""
    path: str = ""


class ChaosReceiver(Receiver):
    """`mode` says what is done with the next requests; `logged()` is what the log holds."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.mode = "ok"
        self.count = 0
        """Requests so far."""
        self._path = log
        self._log = log.open("a", encoding="utf-8")
        self._waiting: deque[tuple[dict[str, Any], threading.Event]] = deque()
        self._wake = threading.Event()
        self._writer = threading.Thread(target=self._write, name="receiver-log", daemon=True)
        self._writer.start()

    def answer_to(self, request: Received) -> Answer:
        mode = self.mode
        answer = MODES[mode]
        arrival = Arrival(
            at=request.arrived,
            execution_id=request.headers.get("x-execution-id", ""),
            attempt=int(request.headers.get("x-attempt-number", "0")),
            status=None if mode in UNANSWERED else answer.status,
            path=request.path,
        )
        written = threading.Event()
        self._waiting.append(
            (
                {
                    "at": arrival.at.isoformat(),
                    "execution_id": arrival.execution_id,
                    "attempt": arrival.attempt,
                    "status": arrival.status,
                    "path": arrival.path,
                },
                written,
            )
        )
        self._wake.set()
        written.wait(30)
        self.count += 1
        return answer

    def logged(self) -> list[Arrival]:
        """What the log on the disk holds."""
        with self._path.open(encoding="utf-8") as log:
            lines = [json.loads(line) for line in log]
        return [
            Arrival(
                datetime.fromisoformat(line["at"]), line["execution_id"], line["attempt"], line["status"], line["path"]
            )
            for line in lines
        ]

    def record(self, request: Received) -> None:
        """The log is the record; bodies are not kept."""

    def _write(self) -> None:
        """Everything that waits goes to the disk with one fsync."""
        while True:
            self._wake.wait()
            self._wake.clear()
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            self._log.writelines(json.dumps(line) + "\n" for line, _ in batch)
            self._log.flush()
            os.fsync(self._log.fileno())
            for _, written in batch:
                written.set()
