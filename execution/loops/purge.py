"""The purge: ended executions, closed buckets and workers that are long gone, in small batches.

Called by the task `monitor_tick` after the mending. Each batch is its own transaction, so no delete holds its locks
for long and autovacuum keeps pace; what a tick does not get to is left for the next. Dying half-way loses nothing.
"""

import logging
from dataclasses import asdict, dataclass

from django.conf import settings
from django.db import connection

from chronos_site.infra.sql import statement
from execution.domain.buckets import first_bucket_of_minute

log = logging.getLogger(__name__)

BATCH = 2000
BATCHES_PER_TICK = 5
BUCKET_RETENTION_S = 86_400
WORKER_RETENTION_S = 86_400


@dataclass(slots=True)
class Purged:
    executions: int = 0
    buckets: int = 0
    workers: int = 0


def purge_ended(*, now_s: float) -> Purged:
    """One tick, by the database's clock `now_s`."""
    purged = Purged()
    for _ in range(BATCHES_PER_TICK):
        deleted = _execute(
            statement("execution", "purge_executions"),
            {"retention_s": settings.CHRONOS_RETENTION_DAYS * 86_400, "batch": BATCH},
        )
        purged.executions += deleted
        if deleted < BATCH:
            break
    purged.buckets = _execute(
        "DELETE FROM execution_bucket WHERE id IN (SELECT id FROM execution_bucket"
        " WHERE state = 'CLOSED' AND id < %(end)s ORDER BY id LIMIT %(batch)s FOR UPDATE SKIP LOCKED)",
        {"end": first_bucket_of_minute(now_s - BUCKET_RETENTION_S), "batch": BATCH},
    )
    purged.workers = _execute(
        "DELETE FROM execution_worker WHERE heartbeat_at < clock_timestamp() - %(age_s)s * interval '1 second'",
        {"age_s": WORKER_RETENTION_S},
    )
    if any(asdict(purged).values()):
        log.info("purged", extra={"action": "purge", **asdict(purged)})
    return purged


def _execute(sql: str, params: dict[str, float]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)
