"""How far a bulk job is: counted from its chunks, told to whoever watches."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from bulk.domain.numbering import range_of
from bulk.domain.states import JobState
from bulk.models import BulkJob
from bulk.watchers import tell
from chronos_site.infra.clock import database_now
from chronos_site.infra.sql import statement

SMOOTHING = 0.3
"""Weight of the last second in the rate that is shown."""
COUNTS = ("succeeded", "failed", "cancelled")


def count(jobs: Sequence[BulkJob]) -> list[UUID]:
    """Store the counts and rates of these jobs. Returns those whose rows have all ended and that nobody works at."""
    now = database_now()
    spans = [range_of(job.id) for job in jobs]
    with connection.cursor() as cursor:
        cursor.execute(
            statement("bulk", "sum_chunks"),
            {"jobs": [job.id for job in jobs], "firsts": [s[0] for s in spans], "lasts": [s[1] for s in spans]},
        )
        sums = {row[0]: row[1:] for row in cursor.fetchall()}
    over: list[UUID] = []
    moved: list[UUID] = []
    for job in jobs:
        *counts, done = sums[job.id]
        before = job.succeeded + job.failed + job.cancelled
        elapsed_s = (now - job.counted_at).total_seconds() if job.counted_at else 0.0
        if elapsed_s > 0:
            rate = max(0, sum(counts) - before) / elapsed_s
            job.rate_per_s = rate if before == 0 else SMOOTHING * rate + (1 - SMOOTHING) * job.rate_per_s
        if job.state != JobState.RUNNING or done:
            job.rate_per_s = 0.0
        changed = [name for name, value in zip(COUNTS, counts, strict=True) if getattr(job, name) != value]
        job.succeeded, job.failed, job.cancelled = counts
        job.counted_at = now
        if changed or job.rate_per_s:
            BulkJob.objects.filter(id=job.id, state=job.state).update(
                succeeded=job.succeeded,
                failed=job.failed,
                cancelled=job.cancelled,
                rate_per_s=job.rate_per_s,
                counted_at=now,
            )
            moved.append(job.id)
        if done and (job.work_lease_until is None or job.work_lease_until < now):
            over.append(job.id)
    tell(moved)
    return over


def shown(job: BulkJob) -> dict[str, Any]:
    """The progress as people and programs are told it."""
    ended = job.invalid + job.succeeded + job.failed + job.cancelled
    left = max(0, job.total - ended)
    known = job.state in (JobState.RUNNING, JobState.PAUSED) or job.finished_at is not None
    return {
        "id": str(job.id),
        "state": job.state,
        "held": job.held,
        "cancel_requested": job.cancel_requested_at is not None,
        "total": job.total,
        "total_known": known,
        "invalid": job.invalid,
        "succeeded": job.succeeded,
        "failed": job.failed,
        "cancelled": job.cancelled,
        "left": left,
        "read_share": min(1.0, job.cursor_offset / job.size_bytes) if job.size_bytes else 1.0,
        "rate_per_s": round(job.rate_per_s, 1),
        "seconds_left": round(left / job.rate_per_s, 1) if job.rate_per_s > 0 and left else None,
        "error_code": job.error_code,
        "error_text": job.error_text,
        "results": job.results_bytes is not None,
    }
