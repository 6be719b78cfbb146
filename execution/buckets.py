"""Buckets: opened by whoever adds rows, triggered by the fire loop, closed when their minute is long over.

The promise: a row that is PENDING in a bucket is never left in a CLOSED one. Adding holds a key-share lock on the
bucket until its rows are committed; closing takes the bucket alone (FOR UPDATE) and only then, in a second statement,
looks for rows: one statement would look with a snapshot from before the lock was granted, and leave a row behind. The
lock is the weakest that closing conflicts with: a plain share lock would also keep the fire loop from marking a bucket
as triggered while rows stream into it (docs/adr/0003-bucket-locks.md).
"""

from collections.abc import Iterable

from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from chronos_site.infra.sql import statement
from execution.domain.buckets import SHARD_SPACE, first_bucket_of_minute
from execution.models import Bucket

HOLD = "SELECT id, state FROM execution_bucket WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE"
CLOSE_AFTER_S = 300
CLOSE_BATCH = 200


def open_buckets(bucket_ids: Iterable[int]) -> None:
    """Make the buckets and hold them open until the caller's transaction ends. Must run inside a transaction.

    Everybody locks in ascending order, so batches that share buckets do not deadlock.
    """
    wanted = sorted(set(bucket_ids))
    with connection.cursor() as cursor:
        cursor.execute(HOLD, [wanted])
        held = cursor.fetchall()
        if len(held) < len(wanted):
            # Most are there already. Two who make the same ones meet here, in ascending order again; the locks they
            # hold by now let each other pass.
            missing = sorted(set(wanted) - {bucket_id for bucket_id, _state in held})
            cursor.execute(
                "INSERT INTO execution_bucket (id, state, opened_at)"
                " SELECT b, 'OPEN', %s FROM unnest(%s::bigint[]) AS b ORDER BY b ON CONFLICT (id) DO NOTHING",
                [timezone.now(), missing],
            )
            cursor.execute(HOLD, [wanted])
            held = cursor.fetchall()
        shut = [bucket_id for bucket_id, state in held if state == Bucket.State.CLOSED]
        if shut:
            cursor.execute(
                "UPDATE execution_bucket SET state = 'OPEN', closed_at = NULL, triggered_at = NULL"
                " WHERE id IN (SELECT id FROM execution_bucket WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE)",
                [shut],
            )


def trigger_due_buckets(*, now_s: float, horizon_s: float, most: int) -> list[int]:
    """Mark and return open buckets with claimable work, workspaces in turn, by the database's clock `now_s`."""
    with connection.cursor() as cursor:
        cursor.execute(
            statement("execution", "select_claimable_buckets"),
            {
                "end_bucket": first_bucket_of_minute(now_s + horizon_s) + SHARD_SPACE,
                "horizon_s": horizon_s,
                "most": most,
            },
        )
        return sorted(row[0] for row in cursor.fetchall())


def untrigger(*, bucket_ids: list[int]) -> None:
    """Clear the guard of buckets whose trigger could not be published: the next tick fires them."""
    if bucket_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE execution_bucket SET triggered_at = NULL WHERE id IN (SELECT id FROM execution_bucket"
                " WHERE id = ANY(%s) AND triggered_at IS NOT NULL ORDER BY id FOR NO KEY UPDATE)",
                [sorted(bucket_ids)],
            )


def keep_triggered(*, bucket_id: int) -> None:
    """Renew the guard of a bucket that a fan-out is at work on, so that no tick triggers it beside."""
    Bucket.objects.filter(id=bucket_id).update(triggered_at=Now())


def close_old_buckets(*, now_s: float) -> int:
    """Close buckets whose minute ended five minutes ago and which hold no PENDING row. Returns how many."""
    end = first_bucket_of_minute(now_s - CLOSE_AFTER_S)
    closed = 0
    while True:
        empty = _empty_buckets(end)
        now_closed = sum(_close(bucket_id) for bucket_id in empty)
        closed += now_closed
        if len(empty) < CLOSE_BATCH or not now_closed:
            return closed


def _empty_buckets(end: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM execution_bucket b WHERE state = 'OPEN' AND id < %s AND NOT EXISTS"
            " (SELECT 1 FROM execution_execution e WHERE e.bucket_id = b.id AND e.state = 'PENDING')"
            " ORDER BY id LIMIT %s",
            [end, CLOSE_BATCH],
        )
        return [row[0] for row in cursor.fetchall()]


def _close(bucket_id: int) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM execution_bucket WHERE id = %s AND state = 'OPEN' FOR UPDATE SKIP LOCKED", [bucket_id]
        )
        if cursor.fetchone() is None:
            return 0
        cursor.execute(
            "UPDATE execution_bucket SET state = 'CLOSED', closed_at = clock_timestamp() WHERE id = %s"
            " AND NOT EXISTS (SELECT 1 FROM execution_execution WHERE bucket_id = %s AND state = 'PENDING')",
            [bucket_id, bucket_id],
        )
        return int(cursor.rowcount)
