"""How late deliveries are: 6,000 spread over a minute, alone and with one receiver in ten that never answers."""

import statistics
import time
from datetime import datetime, timedelta

import psutil
from django.db import connection

from chronos_site.infra import trace
from chronos_site.infra.clock import database_now
from chronos_site.tenancy.services import create_workspace
from execution import services
from execution.models import Execution
from execution.services import NewExecution
from scheduling import tasks
from tests.bench.arrivals import Arrivals, SinkProcess
from tests.bench.delivery import clear
from tests.bench.figures import Figure
from tests.bench.ground import Ground
from tests.bench.usage import Usage

SPREAD_S = 60
PER_S = 100
AHEAD_S = 5.0
AFTER_S = 5.0
HANGING_S = 30.0
HANGING_EACH = 10
"""One in so many goes to the receiver that never answers."""


def measure_lateness(ground: Ground, sink: SinkProcess) -> list[Figure]:
    workers = ground.site()
    dispatch = [psutil.Process(workers[1].pid)]
    _spread(sink, count=200, over_s=2, hanging=False)  # Connections, prepared statements, imports.
    with Usage(dispatch) as usage:
        calm = _spread(sink, count=PER_S * SPREAD_S, over_s=SPREAD_S, hanging=False)
    with Usage(dispatch) as busy:
        beside = _spread(sink, count=PER_S * SPREAD_S, over_s=SPREAD_S, hanging=True)
    ground.stop(*workers)
    p50, p99 = _percentile(calm, 50), _percentile(calm, 99)
    early = sum(late < 0 for late in calm.late_ms + beside.late_ms)
    beside_p99 = _percentile(beside, 99)
    return [
        Figure("lateness at 100 a second, median", p50, "ms", most=25, key="lateness_ms.p50"),
        Figure("lateness at 100 a second, p99", p99, "ms", most=250, key="lateness_ms.p99"),
        Figure("deliveries that came early", early, "", most=0, key="lateness_ms.early"),
        Figure(
            "p99 of the others with one receiver in ten hanging 30 s",
            beside_p99,
            "ms",
            most=2 * p99,
            key="lateness_ms.p99_beside_hanging",
        ),
        Figure(
            "their rate, to that without",
            beside.per_s / (calm.per_s * (HANGING_EACH - 1) / HANGING_EACH),
            "",
            least=0.8,
            key="rate_beside_hanging",
        ),
        Figure(
            "memory of the dispatch worker at its most (some 300 in flight)",
            max(usage.peak_mib, busy.peak_mib),
            "MiB",
            most=250,
            key="worker_rss_mib_hanging",
        ),
    ]


def _spread(sink: SinkProcess, *, count: int, over_s: float, hanging: bool) -> Arrivals:
    """Deliver so many, evenly spread; what came of those whose receiver answers."""
    clear()
    workspace = create_workspace(name=f"bench-lateness-{count}-{hanging}")
    begin = database_now().replace(microsecond=0) + timedelta(seconds=AHEAD_S)
    new = [
        _execution(sink, begin + timedelta(seconds=over_s * n / count), silent=hanging and n % HANGING_EACH == 0)
        for n in range(count)
    ]
    for start in range(0, count, 2000):
        services.create_executions(workspace=workspace, new=new[start : start + 2000])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE execution_execution")
    sink.forget()
    ends = time.monotonic() + AHEAD_S + over_s + AFTER_S
    while time.monotonic() < ends:
        tasks.tick()
        time.sleep(1)
    answered = count - (count // HANGING_EACH if hanging else 0)
    arrived = sink.told()
    if arrived.count != answered:
        raise RuntimeError(f"{arrived.count} of {answered} deliveries came")
    while hanging and Execution.objects.filter(state="RUNNING").exists():
        time.sleep(1)  # So that the next measurement has the worker for itself.
    return arrived


def _execution(sink: SinkProcess, due_at: datetime, *, silent: bool) -> NewExecution:
    return NewExecution(
        scheduled_for=due_at,
        trigger=Execution.Trigger.RUN,
        traceparent=trace.parse_or_new(None),
        kind="http",
        target={"url": sink.silent_url if silent else sink.url, "method": "POST", "headers": {}},
        payload={"n": 1},
        timeout_s=HANGING_S,
        retry={"max_attempts": 1},
        job_definition_id=None,
    )


def _percentile(arrivals: Arrivals, percent: int) -> float:
    return statistics.quantiles(arrivals.late_ms, n=100, method="inclusive")[percent - 1]
