"""The loop of notifications: every second, from facts to messages on the queue.

Called by the task `notifications_tick`, which the leading beat replica sends; and by workers of the queue while no
replica leads (`execution.notifications.watch`). What it promises: facts are weighed and grouped once, whoever looks at
the same moment (an advisory lock, and under it a lock for each rule); notifications that are due are published; what a
crash or a lost message has left is found within a minute. Dying half-way leaves the rest to the next.
"""

import logging
from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction

from chronos_site.infra.clock import database_now
from execution import publish
from execution.loops.monitor import STEADY_S, UNKNOWN_CAP, steady_for_s
from execution.models import NotificationFact, NotificationState
from execution.notifications import facts, grouping, transitions, weighing
from execution.notifications.leaders import missing_leader

log = logging.getLogger(__name__)

NAME = "notifications"
LOCK_ID = 0x6E6F7469
BATCH = 1000
PURGED_AT_ONCE = 5000
PURGES = 10


def tick() -> None:
    """One tick, as the leader sends it."""
    steady = steady_for_s(NAME) >= STEADY_S
    look(steady=steady, missing=missing_leader())


def look(*, steady: bool, missing: str) -> None:
    """One look at everything. `missing` names the leaders that have not been heard of for too long."""
    with transaction.atomic():
        if _try_lock():
            _note_leaders(missing)
            now = database_now()
            weighing.weigh(now)
            grouping.group_waiting(now)
    if steady:
        transitions.recover_lost(unknown_cap=UNKNOWN_CAP)
    publish_due()


def publish_due() -> None:
    """Publish what is due; what could not be published is due again at once."""
    with transaction.atomic():
        ids = transitions.queue_due(most=BATCH)
    unsent = publish.publish_notifications(ids) if ids else []
    if unsent:
        transitions.unqueue_due(ids=unsent)


def purge() -> int:
    """Remove what has been told long ago, in small batches. Returns how many rows."""
    gone = 0
    for table, old in (
        ("execution_notificationfact", "created_at < %(before)s AND stage IN ('told', 'silent')"),
        ("execution_notification", "finished_at < %(before)s"),
    ):
        for _ in range(PURGES):
            count = _delete(table, old)
            gone += count
            if count < PURGED_AT_ONCE:
                break
    if gone:
        log.info("notifications_purged", extra={"action": NAME, "rows": gone})
    return gone


def _delete(table: str, old: str) -> int:
    before = database_now() - timedelta(days=settings.CHRONOS_RETENTION_DAYS)
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {old} ORDER BY id LIMIT %(most)s)",  # noqa: S608 - names of our own
            {"before": before, "most": PURGED_AT_ONCE},
        )
        return int(cursor.rowcount)


def _try_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK_ID])
        return bool(cursor.fetchone()[0])


def _note_leaders(missing: str) -> None:
    """A fact once when a leader is missing, and once when all are back."""
    kinds, new = NotificationFact.Kind, NotificationFact.Stage.NEW
    states = list(NotificationState.objects.filter(job_key=facts.SITE_KEY))
    if missing and not states:
        facts.record_fact(kind=kinds.LEADER_MISSING, workspace_id=None, job_key=facts.SITE_KEY, reason=missing)
    elif states and not missing:
        now = database_now()
        NotificationFact.objects.bulk_create(
            NotificationFact(
                rule_id=state.rule_id, kind=kinds.SUCCESS, stage=new, job_key=facts.SITE_KEY, at=now, created_at=now
            )
            for state in states
        )
