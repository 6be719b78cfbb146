"""The purge of schedules that fired once and whose execution has been purged.

Called by the task `maintain`. The lower room purges executions by their retention; what points at nothing then goes
here, in batches, each a transaction of its own.
"""

from django.db import connection

from chronos_site.infra.sql import statement

BATCH = 2000
BATCHES_PER_TICK = 50


def purge_spent_schedules() -> int:
    """One tick. Returns how many were deleted."""
    purged = 0
    for _ in range(BATCHES_PER_TICK):
        with connection.cursor() as cursor:
            cursor.execute(statement("scheduling", "purge_spent_schedules"), {"batch": BATCH})
            deleted = int(cursor.rowcount)
        purged += deleted
        if deleted < BATCH:
            break
    return purged
