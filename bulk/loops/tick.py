"""The tick of bulk jobs: every second, whatever their rows and files need to get on.

Called by the task `bulk.tasks.tick`, which the leading beat replica sends. What it promises: a file that nobody reads
is read; chunks are published as workers deliver them; rows that wait are published when they are due; rows whose
message or worker was lost are found within a minute; what is cancelled ends; counts follow within a second; a job whose
rows have all ended gets its results. Two at once share the rows. Dying half-way leaves the rest to the next.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from bulk import fanout, progress, publish, transitions
from bulk.domain.numbering import range_of
from bulk.domain.states import ChunkState, JobState
from bulk.models import BulkChunk, BulkJob
from execution.loops.monitor import STEADY_S, UNKNOWN_CAP, steady_for_s

log = logging.getLogger(__name__)

NAME = "bulk"
LOCK_ID = 0x62756C6B
LOOKED_AT = 500
"""Chunks whose lease ran out that one tick looks at."""
CANCELLED_AT_ONCE = 200
"""Chunks of one job whose rows one tick cancels in one statement."""
CANCEL_STATEMENTS = 20


def tick() -> None:
    """One tick."""
    with transaction.atomic():
        if not _try_lock():
            return
        steady = steady_for_s(NAME) >= STEADY_S
        _wake_readers()
        _cancel_asked()
        jobs = fanout.running_jobs()
    fanout.queue_due(jobs)
    fanout.fan_out(jobs)
    _look_at_late_chunks(steady)
    publish.publish_work(_count())
    fanout.fan_out_as_room_comes()


def _try_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK_ID])
        return bool(cursor.fetchone()[0])


def _wake_readers() -> None:
    """Files that nobody reads: their message was lost, or their worker."""
    unread = BulkJob.objects.filter(
        Q(state=JobState.UPLOADED, created_at__lt=Now() - timedelta(seconds=5)) | Q(state=JobState.INGESTING),
        Q(work_lease_until__isnull=True) | Q(work_lease_until__lt=Now()),
    )
    ids = list(unread.values_list("id", flat=True))
    if ids:
        transaction.on_commit(lambda: publish.publish_work(ids))


def _cancel_asked() -> None:
    asked = BulkJob.objects.filter(
        state__in=[JobState.RUNNING, JobState.PAUSED], cancel_requested_at__isnull=False
    ).values_list("id", flat=True)
    for job_id in asked:
        first, last = range_of(job_id)
        after = first
        for _ in range(CANCEL_STATEMENTS):
            chunks = list(
                BulkChunk.objects.filter(id__gt=after, id__lte=last)
                .exclude(state=ChunkState.DONE)
                .order_by("id")
                .values_list("id", flat=True)[:CANCELLED_AT_ONCE]
            )
            if not chunks:
                break
            transitions.cancel_records(chunk_ids=chunks)
            after = chunks[-1]


def _look_at_late_chunks(steady: bool) -> None:
    """Chunks that are QUEUED for longer than a message may take: what is lost of them is found and sent on."""
    late = list(
        BulkChunk.objects.filter(state=ChunkState.QUEUED, lease_until__lt=Now()).order_by("lease_until")[:LOOKED_AT]
    )
    if not late:
        return
    ids = [chunk.id for chunk in late]
    with transaction.atomic():
        lost = transitions.recover_lost(chunk_ids=ids, unknown_cap=UNKNOWN_CAP) if steady else 0
    with transaction.atomic():
        again = _with_pending_rows(ids)
        transitions.untake_chunks(ids=again)
        transitions.renew_chunks(ids=[i for i in ids if i not in set(again)])
    if lost or again:
        log.warning("bulk_mended", extra={"action": NAME, "lost_claims": lost, "chunks_again": len(again)})


def _with_pending_rows(chunk_ids: Sequence[UUID]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT span.chunk FROM unnest(%(chunks)s::uuid[], %(lasts)s::uuid[]) AS span(chunk, last)"
            " WHERE EXISTS (SELECT 1 FROM bulk_bulkrecord r"
            "  WHERE r.id BETWEEN span.chunk AND span.last AND r.state = 'PENDING')",
            transitions.spans(chunk_ids),
        )
        return [row[0] for row in cursor.fetchall()]


def _count() -> list[UUID]:
    """Bring the counts of jobs up to date, tell whoever watches, and return the jobs whose rows have all ended."""
    jobs = list(BulkJob.objects.filter(state__in=[JobState.RUNNING, JobState.PAUSED]))
    return progress.count(jobs) if jobs else []
