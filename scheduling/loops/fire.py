"""The fire loop: every second, one message per bucket that holds due work.

Called by the task `tick`, which the leading beat replica sends. It promises that every open bucket with claimable work
is triggered in its turn, from whatever minute: a leader that comes after an outage catches up by itself. Dying before
the commit triggers nothing; dying after it leaves buckets marked as triggered without a message, and the mark is good
for five seconds only. Two at once: the second leaves at once, and the mark is a guarded UPDATE besides.
"""

import logging
from dataclasses import dataclass

from django.conf import settings
from django.db import connection, transaction

from chronos_site.infra.clock import database_now
from chronos_site.observability import metrics
from execution import buckets, publish, services, switches

log = logging.getLogger(__name__)

LOCK_ID = 0x6368_726F_6E01
"""Key of the advisory lock that a tick holds."""
MOST_WAITING = 12
"""Most buckets that wait for a fan-out: who comes next waits behind them. A fan-out with time left finds more."""
RELEASE_BATCH = 5000


@dataclass(slots=True)
class Fired:
    """What one tick did."""

    triggered: int = 0
    released: int = 0
    """Executions of resumed jobs, and of what was switched on again, that went back to where they are taken from."""
    skipped: bool = False
    """Another tick was at work."""


def fire_due_buckets() -> Fired:
    """One tick."""
    fired = Fired()
    with transaction.atomic():
        if not _try_lock():
            fired.skipped = True
            return fired
        closed = switches.read_closed()
        if closed.everything:
            return fired
        fired.released = services.release_parked(most=RELEASE_BATCH)
        fired.released += switches.release_held(closed=closed, most=RELEASE_BATCH)
        due = buckets.trigger_due_buckets(
            now_s=database_now().timestamp(),
            horizon_s=settings.CHRONOS_DISPATCH_HORIZON_S,
            most=max(0, MOST_WAITING - publish.triggers_waiting()),
        )
    unsent = publish.publish_triggers(due)
    buckets.untrigger(bucket_ids=unsent)
    fired.triggered = len(due) - len(unsent)
    metrics.buckets_triggered.add(by=fired.triggered)
    if fired.triggered or fired.released or unsent:
        log.info(
            "fired",
            extra={
                "action": "fire",
                "triggered": fired.triggered,
                "released": fired.released,
                "unsent": len(unsent),
            },
        )
    return fired


def _try_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK_ID])
        return bool(cursor.fetchone()[0])
