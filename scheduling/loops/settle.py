"""The settle loop: reads from the rows of the lower room what has become of this room's schedules.

Called by the task `settle`, every few seconds. No event has to arrive for it: what a tick misses, the next one finds.
Schedules that have nothing left to fire are completed; those whose last executions all failed for good are paused,
where they ask for it.
"""

import logging
from dataclasses import dataclass

from django.db import connection

from chronos_site.infra.sql import statement
from scheduling import recurring, transitions

log = logging.getLogger(__name__)

MOST = 10_000
MOST_PAUSED = 500


@dataclass(slots=True)
class Settled:
    completed: int = 0
    paused: int = 0


def settle_schedules() -> Settled:
    """One tick."""
    settled = Settled()
    settled.completed = len(transitions.complete_ended(most=MOST)) + len(transitions.complete_spent(most=MOST))
    with connection.cursor() as cursor:
        cursor.execute(statement("scheduling", "select_failing_schedules"), {"most": MOST_PAUSED})
        failing = cursor.fetchall()
    for schedule_id, workspace_id, failures in failing:
        reason = f"{failures} executions in a row failed for good"
        recurring.pause_failing(workspace_id=workspace_id, schedule_id=schedule_id, reason=reason)
        settled.paused += 1
        log.warning("schedule_paused", extra={"action": "settle", "schedule_id": str(schedule_id), "reason": reason})
    return settled
