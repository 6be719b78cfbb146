"""Fan-out of bulk jobs: chunks of rows become messages on the queue of records, jobs in turn.

Called by the tick. It promises that a chunk is published only after its QUEUED state is committed, that workspaces and
their jobs take turns, and that no more waits in Redis than the live workers deliver in about two seconds. What has no
room goes out through the second, as room comes: workers that have not told their rate yet do not wait for the next
tick. Dying between commit and publish leaves chunks QUEUED under a short lease, which the tick looks at. Two at once
share the chunks.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.db import connection, transaction
from redis.exceptions import RedisError

from bulk import transitions
from bulk.domain.numbering import CHUNK, number_of
from bulk.domain.states import ChunkState, JobState
from bulk.models import BulkChunk, BulkJob
from bulk.publish import RECORDS_QUEUE, Batch, publish_records, records_backlog
from execution import switches

BACKLOG_S = 2.0
LEAST_BACKLOG = 20
"""Messages that may always wait: workers that were idle report no rate."""
BUDGET_S = 0.8
"""Longest that one tick waits for room; the next comes after a second."""
POLL_S = 0.05

Job = tuple[UUID, UUID]
"""A job and its workspace."""


def running_jobs() -> list[Job]:
    """Jobs whose rows may be sent now."""
    closed = switches.read_closed()
    if RECORDS_QUEUE in closed.queues:
        return []
    found = BulkJob.objects.filter(
        state=JobState.RUNNING, cancel_requested_at__isnull=True, job_definition__paused_at__isnull=True
    )
    rows = found.order_by("id").values_list("id", "workspace_id", "target")
    return [(id_, workspace_id) for id_, workspace_id, target in rows if closed.holder(workspace_id, target) is None]


def fan_out(jobs: Sequence[Job]) -> int:
    """Publish the next chunks of these jobs, as far as there is room. Returns how many."""
    room = room_in_backlog()
    shares = shares_of(jobs, room)
    if not shares:
        return 0
    with transaction.atomic():
        taken = transitions.take_chunks(shares=shares)
    batches: list[Batch] = [
        (chunk.job_id, range(chunk.first_row, chunk.first_row + chunk.rows))
        for chunk in sorted(taken, key=lambda chunk: (chunk.first_row, chunk.id))
    ]
    unsent = {(job_id, numbers[0]) for job_id, numbers in publish_records(batches)}
    if unsent:
        transitions.untake_chunks(ids=[chunk.id for chunk in taken if (chunk.job_id, chunk.first_row) in unsent])
    return len(taken) - len(unsent)


def fan_out_as_room_comes(*, budget_s: float = BUDGET_S) -> int:
    """Publish what had no room before, as workers make some, for at most `budget_s` seconds. Returns how many chunks.

    Which jobs may send is asked again each time: a pause or a switch does not wait for the end of the second.
    """
    ends = time.monotonic() + budget_s
    published = 0
    while (jobs := running_jobs()) and _have_waiting(jobs):
        published += fan_out(jobs)
        if time.monotonic() + POLL_S > ends:
            break
        time.sleep(POLL_S)
    return published


def _have_waiting(jobs: Sequence[Job]) -> bool:
    """Whether any of these jobs has a chunk that nobody has published."""
    ids = [job_id for job_id, _ in jobs]
    return BulkChunk.objects.filter(bulk_job_id__in=ids, state=ChunkState.WAITING).exists()


def queue_due(jobs: Sequence[Job]) -> int:
    """Publish the rows of these jobs that are due for another attempt. Returns how many."""
    shares = {job_id: share * CHUNK for job_id, share in shares_of(jobs, room_in_backlog()).items()}
    if not shares:
        return 0
    with transaction.atomic():
        jobs_of = transitions.queue_due(shares=shares)
    by_job: dict[UUID, list[int]] = defaultdict(list)
    for record_id in sorted(jobs_of):
        by_job[jobs_of[record_id]].append(number_of(record_id))
    batches: list[Batch] = [
        (job_id, numbers[start : start + CHUNK])
        for job_id, numbers in by_job.items()
        for start in range(0, len(numbers), CHUNK)
    ]
    unsent = {(job_id, number) for job_id, numbers in publish_records(batches) for number in numbers}
    if unsent:
        transitions.unqueue_due(ids=[i for i in jobs_of if (jobs_of[i], number_of(i)) in unsent])
    return len(jobs_of) - len(unsent)


def shares_of(jobs: Sequence[Job], room: int) -> dict[UUID, int]:
    """How many messages each job may send: the room in equal parts for workspaces, and within them for their jobs."""
    by_workspace: dict[UUID, list[UUID]] = defaultdict(list)
    for job_id, workspace_id in jobs:
        by_workspace[workspace_id].append(job_id)
    shares: dict[UUID, int] = {}
    for own in by_workspace.values():
        for job_id in own:
            shares[job_id] = max(1, room // len(by_workspace) // len(own))
    return shares if room > 0 else {}


def room_in_backlog() -> int:
    """Messages that may still be published now. Redis away counts as room: the publish will say so and give back."""
    try:
        waiting = records_backlog()
    except RedisError:
        return LEAST_BACKLOG
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(rate_per_s), 0) FROM execution_worker"
            " WHERE queue = %s AND heartbeat_at > clock_timestamp() - interval '30 seconds' AND NOT stopping",
            [RECORDS_QUEUE],
        )
        rate = float(cursor.fetchone()[0])
    return int(max(LEAST_BACKLOG, rate * BACKLOG_S / CHUNK)) - waiting
