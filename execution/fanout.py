"""Fan-out: the due rows of one bucket become QUEUED, then messages on the dispatch queue.

Called by the task `fan_out`, for a bucket that the fire loop or a POST triggered. It promises that a row is published
only after its QUEUED state is committed, that workspaces take turns, and that the backlog stays in Postgres: it
publishes no more than the live workers deliver in about half a second, for what waits in Postgres is ordered, fair and
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

from chronos_site.infra.clock import database_now
from chronos_site.infra.sql import statement
from chronos_site.observability import metrics, tracing
from execution import buckets, overlap, publish, switches, transitions
from execution.domain.states import State
from execution.models import Execution, JobDefinition
from execution.services import JOB_PAUSED, MISFIRE

log = logging.getLogger(__name__)

BATCH = 2000
BUDGET_S = 2.0
"""Longest turn of one bucket. It ends after one batch where others wait for the same threads."""
PATIENCE_S = 0.5
BACKLOG_S = 0.5
"""Seconds of the live workers' deliveries that may wait on the dispatch queue. Whoever comes next waits behind them,
and behind what the workers have claimed."""
LEAST_BACKLOG = 10
"""Messages that may always wait: workers that were idle report no rate."""
POLL_S = 0.05


@dataclass(slots=True)
class FanOut:
    """What one fan-out did."""

    queued: int = 0
    published: int = 0
    parked: int = 0
    held: int = 0
    """Rows that wait for a dispatch switch."""
    expired: int = 0
    skipped: int = 0
    finished: bool = False
    """No due row was left when it ended."""
    unpublished: list[UUID] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Due:
    """A row of select_due.sql: locked, PENDING and due."""

    id: UUID
    job_id: UUID | None
    expired: bool
    on_deadline: str
    concurrency_key: str | None
    overlap: str
    tried: bool
    """A retry that a pause of its job had parked."""


def serve(*, bucket_id: int, budget_s: float = BUDGET_S) -> None:
    """Fan out a bucket, and once it is empty others with due work, as long as none waits for the thread.

    The fire loop lets few wait at a time; after an outage there may be hundreds with little in each.
    """
    ends = time.monotonic() + budget_s
    following: int | None = bucket_id
    while following is not None:
        done = fan_out(bucket_id=following, budget_s=ends - time.monotonic())
        over = not done.finished or publish.triggers_wait() or time.monotonic() >= ends
        following = None if over else _next_bucket()


def _next_bucket() -> int | None:
    """One with due work that nobody is at; it is marked as triggered."""
    horizon_s = settings.CHRONOS_DISPATCH_HORIZON_S
    found = buckets.trigger_due_buckets(now_s=database_now().timestamp(), horizon_s=horizon_s, most=1)
    return found[0] if found else None


def fan_out(*, bucket_id: int, budget_s: float = BUDGET_S) -> FanOut:
    """Queue and publish what is due in a bucket, for at most `budget_s` seconds."""
    done, began_s = FanOut(), time.time()
    ends = time.monotonic() + budget_s
    while time.monotonic() < ends:
        closed = switches.read_closed()
        room = 0 if closed.everything else wait_for_room()
        if room <= 0:
            break
        buckets.keep_triggered(bucket_id=bucket_id)
        ids = take_due(bucket_id, batch_for(room), closed, done)
        if ids is None:
            done.finished = True
            break
        unsent = publish.publish_dispatch(ids)
        done.published += len(ids) - len(unsent)
        if unsent:
            _give_back(bucket_id, unsent)
            done.unpublished = unsent
            break
        if publish.triggers_wait():
            break
    # Last, so that a row which came in meanwhile is seen by the next tick of the fire loop. What is left is triggered
    # by that tick too: messages that sent their own successors would multiply with every POST to a busy bucket.
    buckets.untrigger(bucket_ids=[bucket_id])
    metrics.fired.add(by=done.published)
    if done.queued or done.parked or done.held or done.expired or done.skipped:
        told = {
            "bucket_id": bucket_id,
            "published": done.published,
            "given_back": len(done.unpublished),
            "parked": done.parked,
            "held": done.held,
            "expired": done.expired,
            "skipped": done.skipped,
            "finished": done.finished,
        }
        log.info("fan_out", extra={"action": "fan_out", **told})
        tracing.record("fan_out", began_s=began_s, attributes={f"chronos.{name}": each for name, each in told.items()})
    return done


def wait_for_room() -> int:
    """Room for messages, waiting a moment for it. None: the rows stay where they are ordered, fair and cancellable."""
    ends = time.monotonic() + PATIENCE_S
    while (room := room_in_backlog()) <= 0 and time.monotonic() < ends:
        time.sleep(POLL_S)
    return room


def batch_for(room: int) -> int:
    """Rows to take where there is room for so many messages: half of it, for others look for room at the same time."""
    return min(BATCH, max(1, room // 2) * publish.CHUNK)


def _give_back(bucket_id: int, ids: list[UUID]) -> None:
    """QUEUED → PENDING. Held open meanwhile: the bucket looked empty while its rows were QUEUED."""
    with transaction.atomic():
        buckets.open_buckets([bucket_id])
        transitions.unqueue(ids=ids)


def take_due(bucket_id: int, batch: int, closed: switches.Closed, done: FanOut) -> list[UUID] | None:
    """One committed batch: expired rows end, paused and switched off ones park, the rest is QUEUED. None: none due."""
    with transaction.atomic():
        due = _lock_due(bucket_id, batch)
        if not due:
            return None
        _turn_away_late([row for row in due if row.expired], done)
        fresh = [row for row in due if not row.expired]
        paused = _mark_paused_jobs({row.job_id for row in fresh if row.job_id is not None})
        held = [row.id for row in fresh if row.job_id in paused]
        if held:
            done.parked += park_pending(ids=held, reason=JOB_PAUSED)
        wanted = [row for row in fresh if row.job_id not in paused]
        off = _hold_closed(wanted, closed)
        done.held += len(off)
        queued = _queue([row for row in wanted if row.id not in off], done)
    done.queued += len(queued)
    return [row.id for row in fresh if row.id in queued]


def _lock_due(bucket_id: int, batch: int) -> list[Due]:
    with connection.cursor() as cursor:
        cursor.execute(
            statement("execution", "select_due"),
            {"bucket_id": bucket_id, "horizon_s": settings.CHRONOS_DISPATCH_HORIZON_S, "batch": batch},
        )
        return [Due(*row) for row in cursor.fetchall()]


def _turn_away_late(late: list[Due], done: FanOut) -> None:
    """Past its deadline a row ends as EXPIRED, or waits for the judgement of its schedule's misfire policy."""
    expire = [row.id for row in late if row.on_deadline == Execution.OnDeadline.EXPIRE]
    judge = [row.id for row in late if row.on_deadline == Execution.OnDeadline.MISFIRE]
    if expire:
        done.expired += len(transitions.expire_pending(ids=expire))
    if judge:
        done.parked += park_pending(ids=judge, reason=MISFIRE)


def _hold_closed(rows: list[Due], closed: switches.Closed) -> set[UUID]:
    """Take what is switched off out of its bucket: there, every tick would look at it again."""
    if not rows or not closed.in_part:
        return set()
    found = Execution.objects.filter(id__in=[row.id for row in rows]).values_list("id", "workspace_id", "target")
    return set(transitions.hold_pending(switches=closed.holders(found)))


def _queue(rows: list[Due], done: FanOut) -> set[UUID]:
    """PENDING → QUEUED, those with a concurrency key by the rule of overlap."""
    free = [row.id for row in rows if row.concurrency_key is None]
    queued = set(transitions.queue_pending(ids=free)) if free else set()
    keyed = [
        overlap.Keyed(row.id, row.concurrency_key, row.overlap, row.tried)
        for row in rows
        if row.concurrency_key is not None
    ]
    if keyed:
        admitted = overlap.admit(keyed)
        done.skipped += admitted.skipped
        done.parked += admitted.parked
        queued.update(admitted.queued)
    return queued


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


def park_pending(*, ids: list[UUID], reason: str) -> int:
    """Take PENDING rows out of their bucket, for a reason that names who puts them back. Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE execution_execution SET bucket_id = NULL, park_reason = %s WHERE id = ANY(%s) AND state = %s",
            [reason, ids, State.PENDING],
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
            " WHERE queue = %s AND heartbeat_at > clock_timestamp() - interval '30 seconds' AND NOT stopping",
            [publish.DISPATCH_QUEUE],
        )
        rate = float(cursor.fetchone()[0])
    return int(max(LEAST_BACKLOG, rate * BACKLOG_S / publish.CHUNK)) - waiting
