"""What a dispatch worker holds in memory with 1,000 sends under way."""

import time

import psutil

from chronos_site.infra import redis
from chronos_site.tenancy.services import create_workspace
from execution.models import Execution
from scheduling import tasks
from tests.bench.arrivals import SinkProcess
from tests.bench.delivery import clear
from tests.bench.figures import Figure
from tests.bench.ground import Ground
from tests.bench.usage import Usage
from tests.making import make_executions

IN_FLIGHT = 1000
PLACES = 1600
"""One host gets two thirds of them."""
TIMEOUT_S = 20.0
PATIENCE_S = 15.0


def _forget_breakers() -> None:
    client = redis.client()
    keys = list(client.scan_iter("chronos:breaker*"))
    if keys:
        client.delete(*keys)


def measure_memory(ground: Ground, sink: SinkProcess) -> list[Figure]:
    clear()
    _forget_breakers()  # That of the receiver that never answers is open after other measurements.
    workers = ground.site(CHRONOS_MAX_IN_FLIGHT=str(PLACES))
    workspace = create_workspace(name="bench-memory")
    make_executions(workspace, sink.silent_url, IN_FLIGHT, timeout_s=TIMEOUT_S, payload={"n": "x" * 1000})
    ends = time.monotonic() + PATIENCE_S
    with Usage([psutil.Process(workers[1].pid)]) as usage:
        while Execution.objects.filter(state="RUNNING", attempt=1).count() < IN_FLIGHT:
            if time.monotonic() > ends:
                raise TimeoutError(f"less than {IN_FLIGHT} sends were under way within {PATIENCE_S:g} s")
            tasks.tick()
            time.sleep(0.5)
        time.sleep(3)
    ground.stop(*workers)
    what = f"memory of a dispatch worker with {IN_FLIGHT:,} in flight"
    return [Figure(what, usage.peak_mib, "MiB", most=250, key="worker_rss_mib")]
