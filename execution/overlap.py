"""Overlap: what a due execution does while another with its concurrency key is under way.

Called by fan-out inside the transaction of its batch, with rows it has locked. The rule is a constraint (one row
QUEUED, RUNNING or RETRYING for each key): two occurrences that are looked at by two fan-outs at the same moment, or by
one, pass any other check. So one row per key is tried at a time, and whoever meets the constraint does what its policy
says: `skip` ends it as SKIPPED; `queue_one` parks it until the other ends, a second parked one is SKIPPED;
`cancel_running` asks the other to cancel, takes its key and goes. A retry that a pause of its job had parked waits like
`queue_one`, whatever its policy. Nothing is passed over in silence: every SKIPPED row has its reason.

A parked row is let go by the end of the one before it, in the same transaction, and by the monitor's sweep.

Whoever meets a key that another has just taken waits for the other's transaction. So two batches that share keys take
their turns before either tries one; else each would wait for a key of the other.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from execution import transitions
from execution.models import Execution

OVERLAP = "overlap"
"""The reason of a SKIPPED row, and the park reason of one that waits."""
QUEUE_FULL = "overlap_queue_full"
LOCK_SPACE = 0x6F76_6572
"""Namespace of the advisory locks by which batches take their turns."""
LOCKS = 256
"""So many stand for all keys: a lock for each key of a large batch would fill the server's table of locks."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A due row with a concurrency key."""

    id: UUID
    key: str
    policy: str
    tried: bool
    """A retry: whatever its policy, it is not passed over any more, and takes nothing over."""


@dataclass(slots=True)
class Admitted:
    """What became of keyed rows."""

    queued: list[UUID] = field(default_factory=list)
    skipped: int = 0
    parked: int = 0


def admit(rows: Sequence[Keyed]) -> Admitted:
    """Queue what may go, in the order given, and do with the rest as its policy says."""
    done = Admitted()
    _take_turn(row.key for row in rows)
    first = list({row.key: row for row in reversed(rows)}.values())
    free = set(_queue_free(first))
    for row in rows:
        if row.id in free:
            done.queued.append(row.id)
        else:
            _meet(row, done)
    return done


def _take_turn(keys: Iterable[str]) -> None:
    """Wait, in one order for all, for other batches with these keys. Until the end of the transaction."""
    slots = sorted({zlib.crc32(key.encode()) % LOCKS for key in keys})
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s::int, slot) FROM unnest(%s::int[]) AS slot", [LOCK_SPACE, slots]
        )


def _queue_free(rows: Sequence[Keyed]) -> list[UUID]:
    """Queue rows of different keys; all at once where nobody interferes, else each by itself."""
    try:
        with transaction.atomic():
            return transitions.queue_keyed(ids=[row.id for row in rows])
    except IntegrityError:
        return [row.id for row in rows if _queue_alone(row)]


def _queue_alone(row: Keyed) -> bool:
    try:
        with transaction.atomic():
            return bool(transitions.queue_keyed(ids=[row.id]))
    except IntegrityError:
        return False


def _meet(row: Keyed, done: Admitted) -> None:
    """Another with this key is under way."""
    waits = row.tried or row.policy == Execution.Overlap.QUEUE_ONE
    if row.policy == Execution.Overlap.CANCEL_RUNNING and not row.tried:
        _take_over(row.key)
        if _queue_alone(row):
            done.queued.append(row.id)
        return  # Else a third was quicker, or has it locked: the next turn tries again.
    if waits and _park(row):
        done.parked += 1
        # It may have ended between the try and the parking.
        transitions.release_overlapped(keys=[row.key])
        return
    reason = QUEUE_FULL if waits else OVERLAP
    done.skipped += len(transitions.skip_pending(ids=[row.id], reason=reason))


def _park(row: Keyed) -> bool:
    """False where another is parked already."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "UPDATE execution_execution SET bucket_id = NULL, park_reason = %s"
                " WHERE id = %s AND state = 'PENDING' AND park_reason = ''",
                [OVERLAP, row.id],
            )
            return bool(cursor.rowcount)
    except IntegrityError:
        return False


def _take_over(key: str) -> None:
    """Cancel what no worker holds; ask the worker where one does, and free its key at once.

    Whoever has it locked is not waited for: he may wait for a row of this batch.
    """
    active = Execution.objects.filter(concurrency_key=key, state__in=["QUEUED", "RUNNING", "RETRYING"])
    ids = list(active.select_for_update(skip_locked=True).values_list("id", flat=True))
    transitions.cancel_waiting(ids=ids, reason=OVERLAP)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE execution_execution SET concurrency_key = NULL,"
            " cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())"
            " WHERE id = ANY(%s) AND state = 'RUNNING'",
            [ids],
        )
