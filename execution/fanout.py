"""Fan-out: the due rows of one bucket become QUEUED, then messages on the dispatch queue.

Called by the task `fan_out`, for a bucket that the fire loop or a POST triggered. It promises that a row is published
only after its QUEUED state is committed, that workspaces take turns, and that the backlog stays in Postgres: it
publishes no more than the live workers deliver in about two seconds, for what waits in Postgres is ordered, fair and
cancellable. Dying before the commit leaves the rows PENDING; dying between commit and publish leaves them QUEUED with
a short lease, which the monitor finds. Two at once share the rows (SKIP LOCKED).
"""

import logging
import time
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from redis.exceptions import RedisError

from chronos_site.infra.sql import statement
from execution import buckets, publish, transitions
from execution.domain.states import State
from execution.models import JobDefinition

log = logging.getLogger(__name__)

BATCH = 2000
BUDGET_S = 2.0
"""Longest turn of one bucket: others wait for the same threads."""
PATIENCE_S = 0.5
BACKLOG_S = 2.0
"""Seconds of the live workers' deliveries that may wait on the dispatch queue."""
LEAST_BACKLOG = 20
"""Messages that may always wait: workers that were idle report no rate."""
POLL_S = 0.05


@dataclass(slots=True)
class FanOut:
    """What one fan-out did."""

    queued: int = 0
    published: int = 0
    parked: int = 0
    expired: int = 0
    finished: bool = False
    """No due row was left when it ended."""
    unpublished: list[UUID] = field(default_factory=list)


def fan_out(*, bucket_id: int, budget_s: float = BUDGET_S) -> FanOut:
    """Queue and publish what is due in a bucket, for at most `budget_s` seconds."""
    done = FanOut()
    ends = time.monotonic() + budget_s
    while time.monotonic() < ends:
        room = _wait_for_room()
        if room <= 0:
            break
        buckets.keep_triggered(bucket_id=bucket_id)
        ids = _take_due(bucket_id, min(BATCH, room * publish.CHUNK), done)
        if ids is None:
            done.finished = True
            break
        unsent = publish.publish_dispatch(ids)
        done.published += len(ids) - len(unsent)
        if unsent:
            _give_back(bucket_id, unsent)
            done.unpublished = unsent
            break
    # Last, so that a row which came in meanwhile is seen by the next tick of the fire loop. What is left is triggered
    # by that tick too: messages that sent their own successors would multiply with every POST to a busy bucket.
    buckets.untrigger(bucket_ids=[bucket_id])
    if done.queued or done.parked or done.expired:
        log.info(
            "fan_out",
            extra={
                "action": "fan_out",
                "bucket_id": bucket_id,
                "published": done.published,
                "given_back": len(done.unpublished),
                "parked": done.parked,
                "expired": done.expired,
                "finished": done.finished,
            },
        )
    return done


def _wait_for_room() -> int:
    """Room for messages, waiting a moment for it. None: the rows stay where they are ordered, fair and cancellable."""
    ends = time.monotonic() + PATIENCE_S
    while (room := room_in_backlog()) <= 0 and time.monotonic() < ends:
        time.sleep(POLL_S)
    return room


def _give_back(bucket_id: int, ids: list[UUID]) -> None:
    """QUEUED → PENDING. Held open meanwhile: the bucket looked empty while its rows were QUEUED."""
    with transaction.atomic():
        buckets.open_buckets([bucket_id])
        transitions.unqueue(ids=ids)


def _take_due(bucket_id: int, batch: int, done: FanOut) -> list[UUID] | None:
    """One committed batch: expired rows end, rows of paused jobs park, the rest is QUEUED. None: nothing was due."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                statement("execution", "select_due"),
                {"bucket_id": bucket_id, "horizon_s": settings.CHRONOS_DISPATCH_HORIZON_S, "batch": batch},
            )
            due: list[tuple[UUID, UUID | None, bool]] = cursor.fetchall()
        if not due:
            return None
        late = [row_id for row_id, _job, expired in due if expired]
        if late:
            done.expired += len(transitions.expire_pending(ids=late))
        paused = _mark_paused_jobs({job for _id, job, expired in due if job is not None and not expired})
        held = [row_id for row_id, job, expired in due if not expired and job in paused]
        if held:
            done.parked += park_pending(ids=held)
        due_now = [row_id for row_id, job, expired in due if not expired and job not in paused]
        queued = set(transitions.queue_pending(ids=due_now)) if due_now else set()
    done.queued += len(queued)
    return [row_id for row_id in due_now if row_id in queued]


def _mark_paused_jobs(job_ids: set[UUID]) -> set[UUID]:
    """Which of these jobs are paused. Their rows are locked, so that a resume sees what is parked under it."""
    if not job_ids:
        return set()
    paused = list(
        JobDefinition.objects.filter(id__in=job_ids, paused_at__isnull=False)
        .order_by("id")
        # Not waited for: whoever holds the job may wait for these very rows. The gate looks again.
        .select_for_update(no_key=True, skip_locked=True)
        .values_list("id", flat=True)
    )
    if paused:
        JobDefinition.objects.filter(id__in=paused).update(has_parked=True)
    return set(paused)


def park_pending(*, ids: list[UUID]) -> int:
    """Take PENDING rows out of their bucket until their job is resumed. Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE execution_execution SET bucket_id = NULL, park_reason = 'job_paused'"
            " WHERE id = ANY(%s) AND state = %s",
            [ids, State.PENDING],
        )
        return int(cursor.rowcount)


def room_in_backlog() -> int:
    """Dispatch messages that may still be published now; shared by all who publish.

    Redis away counts as room: the publish will say so and give back.
    """
    try:
        waiting = publish.dispatch_backlog()
    except RedisError:
        return LEAST_BACKLOG
    if waiting < LEAST_BACKLOG:
        return LEAST_BACKLOG - waiting
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(rate_per_s), 0) FROM execution_worker"
            " WHERE heartbeat_at > clock_timestamp() - interval '30 seconds' AND NOT stopping"
        )
        rate = float(cursor.fetchone()[0])
    return int(max(LEAST_BACKLOG, rate * BACKLOG_S / publish.CHUNK)) - waiting
