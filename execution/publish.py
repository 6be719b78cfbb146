"""Messages onto the queues. A message is a wake-up that carries ids; it may be lost or doubled without harm.

Callers commit first. What cannot be published is returned, never raised: the caller knows what to give back.
"""

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from chronos_site.infra import redis

log = logging.getLogger(__name__)

DISPATCH_QUEUE = "job-dispatch"
TRIGGER_QUEUE = "bucket-triggers"
NOTIFICATIONS_QUEUE = "notifications"
CHUNK = 100
"""Most ids in one dispatch message."""
TRIGGER_TTL_S = 30
"""A trigger that waited longer has been sent again by the fire loop."""


def publish_dispatch(ids: Sequence[UUID]) -> list[UUID]:
    """Publish ids in chunks on the dispatch queue. Returns those that could not be published."""
    return _publish_ids("execution.tasks.dispatch", ids)


def publish_notifications(ids: Sequence[UUID]) -> list[UUID]:
    """The same on the queue of notifications."""
    return _publish_ids("execution.tasks.send_notifications", ids)


def _publish_ids(task: str, ids: Sequence[UUID]) -> list[UUID]:
    sent = 0
    try:
        with current_app.producer_pool.acquire(block=True, timeout=5) as producer:
            for start in range(0, len(ids), CHUNK):
                chunk = ids[start : start + CHUNK]
                current_app.send_task(task, args=[[str(i) for i in chunk]], producer=producer, retry=False)
                sent += len(chunk)
    except (OperationalError, OSError, RedisError) as error:
        log.warning(
            "dispatch_publish_failed",
            extra={"action": "publish", "task": task, "unsent": len(ids) - sent, "error": str(error)},
        )
    return list(ids[sent:])


def publish_triggers(bucket_ids: Iterable[int]) -> list[int]:
    """Publish one fan-out message per bucket. Returns the buckets whose message could not be published."""
    waiting = list(bucket_ids)
    sent = 0
    try:
        with current_app.producer_pool.acquire(block=True, timeout=5) as producer:
            for bucket_id in waiting:
                current_app.send_task(
                    "execution.tasks.fan_out", args=[bucket_id], producer=producer, retry=False, expires=TRIGGER_TTL_S
                )
                sent += 1
    except (OperationalError, OSError, RedisError) as error:
        log.warning(
            "trigger_publish_failed", extra={"action": "publish", "unsent": len(waiting) - sent, "error": str(error)}
        )
    return waiting[sent:]


def dispatch_backlog() -> int:
    """Messages that wait on the dispatch queue (each of up to CHUNK ids). Raises redis' errors."""
    return int(redis.client().llen(DISPATCH_QUEUE))


def triggers_wait() -> bool:
    """Whether other buckets wait for a fan-out."""
    return triggers_waiting() > 0


def triggers_waiting() -> int:
    """How many buckets wait for a fan-out. Redis away counts as none."""
    try:
        return int(redis.client().llen(TRIGGER_QUEUE))
    except RedisError:
        return 0
