"""What it costs to take due rows, with nothing else in the table and with a million rows that wait for their time."""

import statistics
import time

from django.db import connection

from chronos_site.tenancy.services import create_workspace
from execution import fanout, switches
from execution.domain.buckets import SHARD_SPACE
from execution.models import Execution
from tests.bench.delivery import clear
from tests.bench.figures import Figure
from tests.making import copy_execution, make_executions

ROUNDS = 15
BATCH = 2000


def measure_claims(*, pending: int) -> list[Figure]:
    """Median time in which one batch of due rows becomes QUEUED, in one process, without and with `pending` others."""
    clear()
    empty = _median_ms()
    clear()
    _fill(pending)
    full = _median_ms()
    clear()
    key = "claim_cost_ratio_1m" if pending == 1_000_000 else f"claim_cost_ratio_{pending}"
    return [
        Figure(f"taking {BATCH:,} due rows, nothing else pending (median of {ROUNDS})", empty, "ms"),
        Figure(f"taking {BATCH:,} due rows, {pending:,} pending (median of {ROUNDS})", full, "ms"),
        Figure("ratio of the two", full / empty, "", most=1.2, key=key),
    ]


def _median_ms() -> float:
    workspace = create_workspace(name=f"bench-claims-{time.monotonic_ns()}")
    took = []
    for _ in range(ROUNDS):
        rows = make_executions(workspace, "https://example.com/", BATCH)
        buckets = sorted({row.bucket_id for row in rows if row.bucket_id is not None})
        closed = switches.read_closed()
        begun = time.perf_counter()
        # The one part of the fan-out that meets the table; its publishing does not depend on what is pending.
        queued = [fanout.take_due(bucket, BATCH, closed, fanout.FanOut()) for bucket in buckets]
        took.append((time.perf_counter() - begun) * 1000)
        taken = sum(len(ids or ()) for ids in queued)
        if taken != BATCH:
            raise RuntimeError(f"{taken} of {BATCH} rows were taken")
        Execution.objects.filter(id__in=[row.id for row in rows]).delete()
    return statistics.median(took[ROUNDS // 5 :])


def _fill(count: int) -> None:
    """So many rows that are due over the next day, in their buckets: copies of one that was made properly."""
    (row,) = make_executions(create_workspace(name="bench-pending"), "https://example.com/", 1)
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
    copy_execution(
        row,
        count,
        due_at="due_at + interval '1 hour' + n %% 86400 * interval '1 second'",
        bucket_id=f"bucket_id + (60 + n %% 86400 / 60) * {SHARD_SPACE}",
    )
    Execution.objects.filter(id=row.id).delete()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE execution_execution")
