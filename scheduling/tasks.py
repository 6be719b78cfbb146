"""Celery's tasks of this room: they call, and hold no logic."""

import logging
from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from chronos_site.api.idempotency import purge_idempotency_records
from chronos_site.infra.clock import database_now
from execution import buckets
from scheduling.loops import fire
from scheduling.loops.ahead import look_ahead
from scheduling.loops.purge import purge_spent_schedules
from scheduling.loops.settle import settle_schedules

log = logging.getLogger(__name__)


@shared_task(name="scheduling.tasks.tick")
def tick() -> None:
    fire.fire_due_buckets()
    look_ahead()


@shared_task(name="scheduling.tasks.settle")
def settle() -> None:
    settle_schedules()


@shared_task(name="scheduling.tasks.maintain")
def maintain() -> None:
    closed = buckets.close_old_buckets(now_s=database_now().timestamp())
    purged = purge_idempotency_records(older_than=timezone.now() - timedelta(hours=24))
    spent = purge_spent_schedules()
    log.info(
        "maintained",
        extra={
            "action": "maintain",
            "buckets_closed": closed,
            "idempotency_purged": purged,
            "schedules_purged": spent,
        },
    )
