"""Chronos: from 20,000 due executions to the last stored result, with the processes that deliver, as in production.

One worker fans out, one or two dispatch. The clock starts with the first tick of the fire loop (the benchmark sends one
each second, as beat does) and ends when the last execution is SUCCEEDED in PostgreSQL.
"""

import statistics
import time
from dataclasses import dataclass
from datetime import timedelta

import psutil
from django.db import connection

from chronos_site.infra.clock import database_now
from chronos_site.stack.processes import Child
from chronos_site.tenancy.models import Workspace
from chronos_site.tenancy.services import create_workspace
from execution.domain.buckets import SHARD_SPACE
from execution.models import Execution
from scheduling import tasks
from tests.bench.arrivals import SinkProcess
from tests.bench.figures import Figure, median
from tests.bench.ground import Ground
from tests.bench.usage import Usage
from tests.making import make_executions

COUNT = 20_000
FEW, MANY = 1_000, 100_000
PATIENCE_S = 180.0
POLL_S = 0.05
BATCH = 2000
LATER_MIN = 60

_BRING_FORWARD = """
WITH moved AS (
    UPDATE execution_execution
    SET due_at = due_at - %(minutes)s * interval '1 minute', bucket_id = bucket_id - %(minutes)s * %(space)s
    RETURNING bucket_id
)
INSERT INTO execution_bucket (id, state, opened_at) SELECT DISTINCT bucket_id, 'OPEN', now() FROM moved
"""


@dataclass(frozen=True, slots=True)
class Run:
    per_s: float
    worker_cpu_s_per_1000: float
    cpu_s_per_1000: float
    """Workers, PostgreSQL and Valkey together."""
    worker_mib: float


def measure_deliveries(ground: Ground, sink: SinkProcess, *, runs: int) -> list[Figure]:
    workspace = create_workspace(name="bench-deliveries")
    fanout, first = ground.site()
    deliver(ground, sink, workspace, [fanout, first], BATCH)  # Connections, prepared statements, imports.
    one = [deliver(ground, sink, workspace, [fanout, first], COUNT) for _ in range(runs)]
    few = [deliver(ground, sink, workspace, [fanout, first], FEW) for _ in range(runs)]
    many = deliver(ground, sink, workspace, [fanout, first], MANY)
    second = ground.dispatch_worker()
    deliver(ground, sink, workspace, [fanout, first, second], BATCH)
    two = [deliver(ground, sink, workspace, [fanout, first, second], COUNT) for _ in range(runs)]
    ground.stop(fanout, first, second)
    return [
        median("Chronos, 1 dispatch worker", [run.per_s for run in one], "/s", key="deliveries_per_s.chronos_1"),
        *_costs("Chronos", one),
        # As many processes as the peers have.
        median("Chronos, 2 dispatch workers", [run.per_s for run in two], "/s", key="deliveries_per_s.chronos"),
        Figure(
            "Chronos: CPU of two dispatch workers to that of one, for each delivery",
            _median_cpu(two) / _median_cpu(one),
            "",
            key="cpu_ratio_two_workers",
        ),
        Figure(
            f"Chronos: dispatch CPU at {MANY:,} due to that at {FEW:,}, for each delivery",
            many.worker_cpu_s_per_1000 / _median_cpu(few),
            "",
            most=1.2,
            key="cpu_ratio_100k",
        ),
    ]


def _median_cpu(done: list[Run]) -> float:
    return statistics.median(run.worker_cpu_s_per_1000 for run in done)


def _costs(what: str, done: list[Run]) -> list[Figure]:
    whole = statistics.median(run.cpu_s_per_1000 for run in done)
    peak = statistics.median(run.worker_mib for run in done)
    return [
        Figure(f"{what}: CPU of the dispatch worker for 1,000", _median_cpu(done), "s", key="cpu_s_per_1000.chronos"),
        Figure(f"{what}: CPU with servers for 1,000", whole, "s", key="cpu_s_per_1000.chronos_with_servers"),
        Figure(f"{what}: memory of the dispatch worker at its most", peak, "MiB", key="peak_mib.chronos"),
    ]


def deliver(ground: Ground, sink: SinkProcess, workspace: Workspace, workers: list[Child], count: int) -> Run:
    """One run; `workers`: the one that fans out, then those that dispatch. Raises TimeoutError."""
    clear()
    _make_due(workspace, sink.url, count)
    sink.forget()
    dispatch = [psutil.Process(worker.pid) for worker in workers[1:]]
    others = [psutil.Process(workers[0].pid), ground.server("postgres"), ground.server("valkey")]
    with Usage(dispatch) as usage, Usage(others) as beside:
        begun = time.monotonic()
        wait_until_delivered(sink, count)
        took = time.monotonic() - begun
    cpu = usage.cpu_s / count * 1000
    return Run(count / took, cpu, cpu + beside.cpu_s / count * 1000, usage.peak_mib)


def _make_due(workspace: Workspace, url: str, count: int) -> None:
    """Made for later, then all due at once: nothing is delivered while the others are still being made."""
    later = database_now() + timedelta(minutes=LATER_MIN)
    for start in range(0, count, BATCH):
        make_executions(workspace, url, min(BATCH, count - start), due_at=later)
    with connection.cursor() as cursor:
        cursor.execute(_BRING_FORWARD, {"minutes": LATER_MIN, "space": SHARD_SPACE})
        cursor.execute("VACUUM ANALYZE execution_execution")


def wait_until_delivered(sink: SinkProcess, count: int) -> None:
    """PostgreSQL has the last word; it is asked once all have arrived, for each count reads the whole table."""
    ends, tick_at = time.monotonic() + PATIENCE_S, 0.0
    while sink.count() < count or Execution.objects.filter(state="SUCCEEDED").count() < count:
        if time.monotonic() > ends:
            raise TimeoutError(f"less than {count} executions were delivered within {PATIENCE_S:g} s")
        if time.monotonic() >= tick_at:
            tasks.tick()
            tick_at = time.monotonic() + 1
        time.sleep(POLL_S)


def clear() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE execution_execution, execution_bucket, execution_deadletter")
