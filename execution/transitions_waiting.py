"""What the loops and services do to `Execution.state`: the half of `execution.transitions` on Django's connection.

Each function is one edge, a guarded UPDATE that returns the rows that it really changed, and tells of them once the
caller's transaction is committed.

Statements that come with ids compare `state || ''`, which no index can serve: where the statistics date from a moment
at which no row was in that state, the planner would read all that are in it now, for each batch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from chronos_site.infra.sql import statement
from chronos_site.observability import events
from execution.domain.events import ROW, TYPE_OF_RESULT, EventType, row_event
from execution.domain.states import State

SWITCHED_OFF = "dispatch_switch"
"""The park reason of what waits for a dispatch switch."""
# How long a QUEUED row may wait for its message before the monitor publishes it again, seconds.
QUEUED_LEASE_S = 30


@dataclass(slots=True)
class LostClaim:
    """A claim that was taken from a worker, and where its row went."""

    id: UUID
    state: str
    begun: bool
    """Whether its send may have begun."""


def _changed(sql: str, params: dict[str, Any]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return [row[0] for row in cursor.fetchall()]


def _moved(kind: EventType, sql: str, params: dict[str, Any], *, reason: str = "") -> list[UUID]:
    """Move rows `e`, and tell of them on commit."""
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} RETURNING e.id, {ROW}", params)
        rows = cursor.fetchall()
    events.write_on_commit([row_event(kind, row, reason=reason) for _id, row in rows])
    return [row[0] for row in rows]


# --- PENDING -------------------------------------------------------------------------------------


def queue_pending(*, ids: Sequence[UUID]) -> list[UUID]:
    """PENDING → QUEUED. The caller commits before it publishes, and gives back what it could not publish."""
    return _moved(
        EventType.QUEUED,
        "UPDATE execution_execution e SET state = 'QUEUED',"
        " lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'PENDING'",
        {"ids": list(ids), "lease": QUEUED_LEASE_S},
    )


def queue_keyed(*, ids: Sequence[UUID]) -> list[UUID]:
    """PENDING → QUEUED for rows with a concurrency key, one per key, where no other with it is under way.

    Raises IntegrityError where another came between the look and the write.
    """
    return _moved(
        EventType.QUEUED,
        "UPDATE execution_execution e SET state = 'QUEUED',"
        " lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'PENDING' AND NOT EXISTS ("
        "  SELECT 1 FROM execution_execution a WHERE a.concurrency_key = e.concurrency_key"
        "  AND a.state IN ('QUEUED', 'RUNNING', 'RETRYING'))",
        {"ids": list(ids), "lease": QUEUED_LEASE_S},
    )


def skip_pending(*, ids: Sequence[UUID], reason: str) -> list[UUID]:
    """PENDING → SKIPPED: overlap, misfire or a person passed over it."""
    return _moved(
        EventType.SKIPPED,
        "UPDATE execution_execution e SET state = 'SKIPPED', state_reason = %(reason)s, bucket_id = NULL,"
        " park_reason = '', finished_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'PENDING'",
        {"ids": list(ids), "reason": reason},
        reason=reason,
    )


def release_overlapped(*, keys: Sequence[str] | None) -> list[UUID]:
    """No edge: parked rows whose key is free go back into a bucket. `keys` None looks at all of them."""
    return _changed(statement("execution", "release_overlapped"), {"keys": None if keys is None else list(keys)})


def hold_pending(*, switches: Mapping[UUID, int]) -> list[UUID]:
    """No edge: PENDING rows leave their bucket until the switch that they name is no more."""
    return _changed(
        "UPDATE execution_execution e SET bucket_id = NULL, park_reason = %(reason)s, held_by = w.switch"
        " FROM unnest(%(ids)s::uuid[], %(switches)s::bigint[]) AS w(id, switch)"
        " WHERE e.id = w.id AND e.state = 'PENDING' RETURNING e.id",
        {"ids": list(switches), "switches": list(switches.values()), "reason": SWITCHED_OFF},
    )


def expire_pending(*, ids: Sequence[UUID]) -> list[UUID]:
    """PENDING → EXPIRED, for rows whose `start_deadline` has passed."""
    return _moved(
        EventType.EXPIRED,
        "UPDATE execution_execution e SET state = 'EXPIRED', state_reason = 'start_deadline', bucket_id = NULL,"
        " finished_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'PENDING' AND on_deadline = 'expire'"
        " AND start_deadline <= clock_timestamp()",
        {"ids": list(ids)},
        reason="start_deadline",
    )


def cancel_waiting(*, ids: Sequence[UUID], reason: str) -> list[UUID]:
    """PENDING | QUEUED | RETRYING → CANCELLED: nobody holds a claim, so it is final at once."""
    return _moved(
        EventType.CANCELLED,
        "UPDATE execution_execution e SET state = 'CANCELLED', state_reason = %(reason)s, bucket_id = NULL,"
        " lease_until = NULL, finished_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state IN ('PENDING', 'QUEUED', 'RETRYING')",
        {"ids": list(ids), "reason": reason},
        reason=reason,
    )


# --- QUEUED --------------------------------------------------------------------------------------


def unqueue(*, ids: Sequence[UUID]) -> list[UUID]:
    """QUEUED → PENDING: the publish failed, so the row is again what it was."""
    return _moved(
        EventType.UNQUEUED,
        "UPDATE execution_execution e SET state = 'PENDING', lease_until = NULL"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED'",
        {"ids": list(ids)},
    )


# --- RETRYING and what the monitor finds -----------------------------------------------------------------------------


def queue_retrying(*, horizon_s: float, most: int) -> list[UUID]:
    """RETRYING → QUEUED for what is due, workspaces in turn. The caller commits before it publishes."""
    return queue_locked_retries(ids=[row[0] for row in _lock_due_retries(horizon_s, most)])


def lock_due_retries(*, horizon_s: float, most: int) -> list[tuple[UUID, UUID, dict[str, Any]]]:
    """No edge: lock what `queue_retrying` would take, as (id, workspace_id, target)."""
    return [(id_, workspace_id, json.loads(target)) for id_, workspace_id, target in _lock_due_retries(horizon_s, most)]


def _lock_due_retries(horizon_s: float, most: int) -> list[tuple[UUID, UUID, str]]:
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "lock_due_retries"), {"horizon_s": horizon_s, "most": most})
        return list(cursor.fetchall())


def queue_locked_retries(*, ids: Sequence[UUID]) -> list[UUID]:
    """RETRYING → QUEUED for rows that the caller has locked; as `queue_retrying` otherwise."""
    return _moved(
        EventType.QUEUED,
        "UPDATE execution_execution e SET state = 'QUEUED',"
        " lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'RETRYING'",
        {"ids": list(ids), "lease": QUEUED_LEASE_S},
    )


def hold_retrying(*, switches: Mapping[UUID, int]) -> list[UUID]:
    """No edge: RETRYING rows leave the retry loop's index until the switch that they name is no more."""
    return _changed(
        "UPDATE execution_execution e SET held_by = w.switch"
        " FROM unnest(%(ids)s::uuid[], %(switches)s::bigint[]) AS w(id, switch)"
        " WHERE e.id = w.id AND e.state = 'RETRYING' RETURNING e.id",
        {"ids": list(switches), "switches": list(switches.values())},
    )


def unqueue_retrying(*, ids: Sequence[UUID]) -> list[UUID]:
    """QUEUED → RETRYING: the publish failed, so the row is again what it was."""
    return _moved(
        EventType.UNQUEUED,
        "UPDATE execution_execution e SET state = 'RETRYING', lease_until = NULL"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED'",
        {"ids": list(ids)},
    )


def extend_queued(*, most: int) -> list[UUID]:
    """No edge: QUEUED rows whose message seems lost get a lease twice as long; the caller publishes them again."""
    return _changed(statement("execution", "extend_queued"), {"most": most, "lease": QUEUED_LEASE_S})


def recover_lost_claims(*, most: int, unknown_cap: int) -> list[LostClaim]:
    """RUNNING → RETRYING | CANCELLED | FAILED (+ dead letter) for claims whose lease or worker has gone.

    A send that may have begun is an unknown outcome, and is tried again up to `unknown_cap` times whatever the policy
    says; one that had not begun costs nothing.
    """
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "recover_lost_claims"), {"most": most, "cap": unknown_cap})
        rows = cursor.fetchall()
    events.write_on_commit([_lost(state, row, begun) for _id, state, begun, row in rows])
    return [LostClaim(id_, state, begun) for id_, state, begun, _row in rows]


def _lost(state: str, row: str, begun: bool) -> str:
    reason = "unknown_outcome" if begun else "claim_lost"
    return row_event(TYPE_OF_RESULT[State(state)], row, reason=reason, code=reason if begun else "")
