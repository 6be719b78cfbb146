"""Messages onto the queues of bulk jobs. A message is a wake-up that names rows; it may be lost or doubled."""

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from chronos_site.infra import redis

log = logging.getLogger(__name__)

INGEST_QUEUE = "bulk-ingest"
RECORDS_QUEUE = "bulk-records"

Batch = tuple[UUID, Sequence[int]]
"""A job, and numbers of its rows."""


def publish_records(batches: Sequence[Batch]) -> list[Batch]:
    """One message for each batch. Returns those that could not be published."""
    sent = 0
    try:
        with current_app.producer_pool.acquire(block=True, timeout=5) as producer:
            for job_id, numbers in batches:
                current_app.send_task(
                    "bulk.tasks.dispatch_records", args=[str(job_id), list(numbers)], producer=producer, retry=False
                )
                sent += 1
    except (OperationalError, OSError, RedisError) as error:
        log.warning(
            "records_publish_failed",
            extra={"action": "publish", "unsent": len(batches) - sent, "error": str(error)},
        )
    return list(batches[sent:])


def publish_work(job_ids: Iterable[UUID]) -> None:
    """Wake a worker that reads a file or writes results. Best effort: the tick finds what was not woken."""
    try:
        with current_app.producer_pool.acquire(block=True, timeout=5) as producer:
            for job_id in job_ids:
                current_app.send_task("bulk.tasks.work", args=[str(job_id)], producer=producer, retry=False)
    except (OperationalError, OSError, RedisError) as error:
        log.warning("work_publish_failed", extra={"action": "publish", "error": str(error)})


def records_backlog() -> int:
    """Messages that wait. Raises redis' errors."""
    return int(redis.client().llen(RECORDS_QUEUE))
