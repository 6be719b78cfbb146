"""The sink of the benchmarks as the measurements see it: start it, forget, ask what arrived."""

import time
from dataclasses import dataclass
from typing import Any

import requests

from chronos_site.stack.processes import free_port
from tests.bench.ground import Ground

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What came since the sink was last asked to forget. Moments are seconds of CLOCK_MONOTONIC."""

    count: int
    first: float
    last: float
    late_ms: list[float]

    @property
    def per_s(self) -> float:
        """From the first arrival to the last."""
        return (self.count - 1) / (self.last - self.first) if self.last > self.first else 0.0


class SinkProcess:
    """The receiver of everything that is delivered; `silent_url` takes a request and never answers."""

    def __init__(self, ground: Ground) -> None:
        port, silent = free_port(), free_port()
        self.child = ground.python("sink", "-m", "tests.bench.sink", str(port), str(silent), ready="sink ready")
        self.url = f"http://127.0.0.1:{port}/deliveries"
        self.silent_url = f"http://127.0.0.1:{silent}/deliveries"
        self._base = f"http://127.0.0.1:{port}"
        self._session = requests.Session()

    def forget(self) -> None:
        self._ask("_forget")

    def count(self) -> int:
        return int(self._ask("_count")["count"])

    def told(self) -> Arrivals:
        return Arrivals(**self._ask("_told"))

    def wait_for(self, count: int, *, most_s: float) -> Arrivals:
        """Until so many have come. Raises TimeoutError after `most_s` seconds."""
        ends = time.monotonic() + most_s
        while (arrived := self.count()) < count:
            if time.monotonic() > ends:
                raise TimeoutError(f"{arrived} of {count} deliveries came within {most_s:g} s")
            time.sleep(POLL_S)
        return self.told()

    def _ask(self, what: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._session.get(f"{self._base}/{what}", timeout=10).json()
        return answer
