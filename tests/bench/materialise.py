"""How fast cron schedules become executions, in how much memory, and what a tick costs where nothing is due."""

import gc
import resource
import statistics
import time
from datetime import timedelta

from django.db import connection

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.services import create_workspace
from execution import services as execution_services
from execution.models import Execution
from scheduling import tasks
from scheduling.loops.materialise import materialise_due
from tests.bench.figures import Figure

DUE = 100_000
FEW, MANY = 100, 1_000_000
TICKS = 200

_FILL = """
INSERT INTO scheduling_schedule (
    id, workspace_id, kind, job_definition_id, target, delivery, tags, cron, timezone, jitter_s, misfire,
    misfire_grace_s, catch_up_window_s, misfire_limit, overlap, next_run_at, run_count, missed_count, state,
    pause_reason, version, created_at, updated_at
)
SELECT
    gen_random_uuid(), %(workspace)s, 'cron', %(job)s,
    CASE WHEN %(job)s::uuid IS NULL THEN jsonb_build_object(
        'url', 'https://example.com/' || n, 'method', 'POST', 'headers', '{}'::jsonb) END,
    '{}', '{}',
    to_char(wall, 'FMMI') || ' ' || CASE n %% 3 WHEN 0 THEN '*' ELSE to_char(wall, 'FMHH24') END || ' * * *',
    'UTC', 0, 'fire_once', 60, 86400, 100, 'allow', at, 0, 0, 'ACTIVE', '', 1, now(), now()
FROM generate_series(1, %(count)s) AS n, (SELECT %(next)s::timestamptz AT TIME ZONE 'UTC' AS wall) w,
     LATERAL (SELECT %(next)s::timestamptz AS at) t
"""


def measure() -> list[Figure]:
    """Needs an empty database."""
    return [*_idle_ticks(), *_due_in_one_minute()]


def _fill(count: int, *, next_in_s: float, with_job: bool) -> None:
    workspace = create_workspace(name=f"bench-{count}-{with_job}-{next_in_s:g}")
    job = None
    if with_job:
        target = {"url": "https://example.com/", "method": "POST", "headers": {}}
        job = execution_services.create_job_definition(workspace=workspace, name="bench", target=target).id
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        at = (database_now() + timedelta(seconds=next_in_s)).replace(second=0, microsecond=0)
        cursor.execute(_FILL, {"workspace": workspace.id, "job": job, "count": count, "next": at})
        cursor.execute("ANALYZE scheduling_schedule")


def _clear() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE scheduling_schedule, execution_execution, execution_bucket")


def _idle_ticks() -> list[Figure]:
    """Nothing is due: a whole tick of the scheduler, at few schedules and at many, in turn."""
    costs = {}
    for count in (FEW, MANY):
        _fill(count, next_in_s=86_400, with_job=False)
        tasks.tick()
        took = []
        for _ in range(TICKS):
            begun = time.perf_counter()
            tasks.tick()
            took.append((time.perf_counter() - begun) * 1000)
        costs[count] = statistics.median(took)
        _clear()
    return [
        Figure(f"tick with nothing due, {FEW} schedules (median of {TICKS})", costs[FEW], "ms"),
        Figure(f"tick with nothing due, {MANY:,} schedules (median of {TICKS})", costs[MANY], "ms"),
        Figure("ratio of the two", costs[MANY] / costs[FEW], "", most=1.2),
    ]


def _due_in_one_minute() -> list[Figure]:
    """100,000 schedules of their own target each, and as many of one job, due at once."""
    figures = []
    for with_job in (True, False):
        _fill(DUE, next_in_s=90, with_job=with_job)
        gc.collect()
        begun = time.perf_counter()
        while materialise_due().schedules:
            continue
        took = time.perf_counter() - begun
        made = Execution.objects.count()
        kind = "of one job definition" if with_job else "with a target each"
        figures.append(Figure(f"occurrences made per second, {DUE:,} cron schedules {kind}", made / took, "/s", 5000))
        assert made == DUE, f"{made} occurrences"
        _clear()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.append(Figure("memory of the process at its most", peak, "MB", most=200))
    return figures
