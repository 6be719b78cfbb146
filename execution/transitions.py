"""The only writer of `Execution.state`: one function per edge of `execution.domain.states`, each a guarded UPDATE.

Every function returns the rows that it really changed, so a caller never believes more than what happened: two callers
of one edge share the rows between them. A caller that dies after one of these has lost nothing, for the row says where
it stands. Functions of the loops and services use Django's connection; those of the engine are coroutines on a psycopg
connection of the engine's own pool.

Statements that come with ids compare `state || ''`, which no index can serve: where the statistics date from a moment
at which no row was in that state, the planner would read all that are in it now, for each batch.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row

from chronos_site.infra.sql import statement
from execution.domain.outcome import Claim, Postponed, Result
from execution.notifications.facts import results_statement

SWITCHED_OFF = "dispatch_switch"
"""The park reason of what waits for a dispatch switch."""
# How long a QUEUED row may wait for its message before the monitor publishes it again, seconds.
QUEUED_LEASE_S = 30


@dataclass(slots=True)
class HeldClaim:
    """A row that is still RUNNING under the claim, and what stands against its send."""

    id: UUID
    cancelled: bool
    paused: bool


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


# --- PENDING -------------------------------------------------------------------------------------


def queue_pending(*, ids: Sequence[UUID]) -> list[UUID]:
    """PENDING → QUEUED. The caller commits before it publishes, and gives back what it could not publish."""
    return _changed(
        "UPDATE execution_execution SET state = 'QUEUED',"
        " lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'PENDING' RETURNING id",
        {"ids": list(ids), "lease": QUEUED_LEASE_S},
    )


def queue_keyed(*, ids: Sequence[UUID]) -> list[UUID]:
    """PENDING → QUEUED for rows with a concurrency key, one per key, where no other with it is under way.

    Raises IntegrityError where another came between the look and the write.
    """
    return _changed(
        "UPDATE execution_execution e SET state = 'QUEUED',"
        " lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'PENDING' AND NOT EXISTS ("
        "  SELECT 1 FROM execution_execution a WHERE a.concurrency_key = e.concurrency_key"
        "  AND a.state IN ('QUEUED', 'RUNNING', 'RETRYING'))"
        " RETURNING id",
        {"ids": list(ids), "lease": QUEUED_LEASE_S},
    )


def skip_pending(*, ids: Sequence[UUID], reason: str) -> list[UUID]:
    """PENDING → SKIPPED: overlap, misfire or a person passed over it."""
    return _changed(
        "UPDATE execution_execution SET state = 'SKIPPED', state_reason = %(reason)s, bucket_id = NULL,"
        " park_reason = '', finished_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'PENDING' RETURNING id",
        {"ids": list(ids), "reason": reason},
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
    return _changed(
        "UPDATE execution_execution SET state = 'EXPIRED', state_reason = 'start_deadline', bucket_id = NULL,"
        " finished_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'PENDING' AND on_deadline = 'expire'"
        " AND start_deadline <= clock_timestamp() RETURNING id",
        {"ids": list(ids)},
    )


def cancel_waiting(*, ids: Sequence[UUID], reason: str) -> list[UUID]:
    """PENDING | QUEUED | RETRYING → CANCELLED: nobody holds a claim, so it is final at once."""
    return _changed(
        "UPDATE execution_execution SET state = 'CANCELLED', state_reason = %(reason)s, bucket_id = NULL,"
        " lease_until = NULL, finished_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state IN ('PENDING', 'QUEUED', 'RETRYING') RETURNING id",
        {"ids": list(ids), "reason": reason},
    )


# --- QUEUED --------------------------------------------------------------------------------------


def unqueue(*, ids: Sequence[UUID]) -> list[UUID]:
    """QUEUED → PENDING: the publish failed, so the row is again what it was."""
    return _changed(
        "UPDATE execution_execution SET state = 'PENDING', lease_until = NULL"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED' RETURNING id",
        {"ids": list(ids)},
    )


async def claim_queued(db: AsyncConnection[Any], *, ids: Sequence[UUID], worker_id: UUID) -> list[dict[str, Any]]:
    """QUEUED → RUNNING under a new `claim_seq`; the rows carry all that the send needs."""
    async with db.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("execution", "claim"), {"ids": list(ids), "worker_id": worker_id})
        return await cursor.fetchall()


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
    return _changed(
        "UPDATE execution_execution SET state = 'QUEUED',"
        " lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'RETRYING' RETURNING id",
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
    return _changed(
        "UPDATE execution_execution SET state = 'RETRYING', lease_until = NULL"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED' RETURNING id",
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
        return [LostClaim(*row) for row in cursor.fetchall()]


# --- RUNNING, guarded by the claim ---------------------------------------------------------------


def _keys(claims: Sequence[Claim]) -> dict[str, Any]:
    return {"ids": [claim.id for claim in claims], "claim_seqs": [claim.claim_seq for claim in claims]}


_HELD = (
    "WITH wanted AS (SELECT * FROM unnest(%(ids)s::uuid[], %(claim_seqs)s::int[]) AS w(id, claim_seq)), held AS ("
    " SELECT e.id FROM wanted JOIN execution_execution e"
    "  ON e.id = wanted.id AND e.claim_seq = wanted.claim_seq AND e.state || '' = 'RUNNING'"
    " ORDER BY e.id FOR UPDATE OF e)"
    " UPDATE execution_execution e SET "
)


async def begin_attempts(
    db: AsyncConnection[Any], *, claims: Sequence[Claim], but: Collection[UUID] = ()
) -> list[HeldClaim]:
    """No edge: the gate's look at RUNNING rows, which begins their attempt unless they are cancelled or paused.

    Those of `but` are looked at like the others, and begin nothing.
    """
    async with db.cursor(row_factory=class_row(HeldClaim)) as cursor:
        await cursor.execute(
            statement("execution", "gate"),
            {
                **_keys(claims),
                "attempts": [claim.attempt for claim in claims],
                "may_begin": [claim.id not in but for claim in claims],
            },
        )
        return await cursor.fetchall()


async def release_running(db: AsyncConnection[Any], *, claims: Sequence[Claim]) -> list[UUID]:
    """RUNNING → QUEUED: the worker knows that it has not sent. The caller publishes the ids again.

    No attempt is charged, also where the gate had begun one and its answer was lost.
    """
    cursor = await db.execute(
        _HELD + "state = 'QUEUED', worker_id = NULL,"
        " attempt = CASE WHEN e.begun_seq = e.claim_seq THEN e.attempt - 1 ELSE e.attempt END,"
        " started_at = CASE WHEN e.begun_seq = e.claim_seq AND e.attempt = 1 THEN NULL ELSE e.started_at END,"
        " begun_seq = CASE WHEN e.begun_seq = e.claim_seq THEN 0 ELSE e.begun_seq END,"
        " lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        " FROM held WHERE e.id = held.id RETURNING e.id",
        {**_keys(claims), "lease": QUEUED_LEASE_S},
    )
    return [row[0] for row in await cursor.fetchall()]


async def unqueue_unpublished(db: AsyncConnection[Any], *, ids: Sequence[UUID]) -> list[UUID]:
    """QUEUED → PENDING | RETRYING for rows whose message could not be published, so that a loop finds them in a second.

    A row with a bucket was PENDING before it was queued; its bucket is opened again first, as whoever adds rows does. A
    row without one came from the retry loop.
    """
    async with db.transaction():
        await db.execute(
            "INSERT INTO execution_bucket AS b (id, state, opened_at)"
            " SELECT bucket_id, 'OPEN', clock_timestamp() FROM execution_execution"
            " WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED' AND bucket_id IS NOT NULL"
            " GROUP BY bucket_id ORDER BY bucket_id"
            " ON CONFLICT (id) DO UPDATE SET state = 'OPEN', closed_at = NULL, triggered_at = NULL"
            " WHERE b.state = 'CLOSED'",
            {"ids": list(ids)},
        )
        cursor = await db.execute(
            "WITH held AS (SELECT id FROM execution_execution WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED'"
            "  ORDER BY id FOR UPDATE)"
            " UPDATE execution_execution e SET lease_until = NULL,"
            " state = CASE WHEN e.bucket_id IS NULL THEN 'RETRYING' ELSE 'PENDING' END"
            " FROM held WHERE e.id = held.id RETURNING e.id",
            {"ids": list(ids)},
        )
        return [row[0] for row in await cursor.fetchall()]


async def park_running(db: AsyncConnection[Any], *, claims: Sequence[Claim]) -> list[UUID]:
    """RUNNING → QUEUED → PENDING, parked: the job was paused between claim and send.

    The job's row is locked first, as `execution.services.release_parked` does: a resume that came between leaves the
    execution QUEUED, and the caller publishes it again. Returns the ids that were left QUEUED.
    """
    async with db.transaction():
        await db.execute(
            "UPDATE execution_jobdefinition SET has_parked = true WHERE paused_at IS NOT NULL AND id IN"
            " (SELECT id FROM execution_jobdefinition WHERE id = ANY(%(jobs)s) ORDER BY id FOR NO KEY UPDATE)",
            {"jobs": sorted({claim.job_definition_id for claim in claims if claim.job_definition_id})},
        )
        released = await release_running(db, claims=claims)
        cursor = await db.execute(
            "UPDATE execution_execution e SET state = 'PENDING', bucket_id = NULL, park_reason = 'job_paused',"
            " lease_until = NULL FROM execution_jobdefinition j"
            " WHERE e.id = ANY(%(ids)s) AND e.state = 'QUEUED' AND j.id = e.job_definition_id"
            " AND j.paused_at IS NOT NULL RETURNING e.id",
            {"ids": released},
        )
        parked = {row[0] for row in await cursor.fetchall()}
    return [found for found in released if found not in parked]


async def hold_running(db: AsyncConnection[Any], *, claims: Sequence[Claim], switches: Mapping[UUID, int]) -> None:
    """RUNNING → QUEUED → PENDING | RETRYING: a switch went off between fan-out and send. No attempt is charged.

    `switches` names the switch that a row waits for; a row that is not in it waits for one that stops everything, and
    goes back to where the loops will find it.
    """
    async with db.transaction():
        released = await release_running(db, claims=claims)
        named = [found for found in released if found in switches]
        await db.execute(
            "UPDATE execution_execution e SET held_by = w.switch, lease_until = NULL, bucket_id = NULL,"
            " state = CASE WHEN e.bucket_id IS NULL THEN 'RETRYING' ELSE 'PENDING' END,"
            " park_reason = CASE WHEN e.bucket_id IS NULL THEN '' ELSE %(reason)s END"
            " FROM unnest(%(ids)s::uuid[], %(switches)s::bigint[]) AS w(id, switch)"
            " WHERE e.id = w.id AND e.state = 'QUEUED'",
            {"ids": named, "switches": [switches[found] for found in named], "reason": SWITCHED_OFF},
        )
        rest = [found for found in released if found not in switches]
        if rest:
            await unqueue_unpublished(db, ids=rest)


async def postpone_running(
    db: AsyncConnection[Any], *, claims: Sequence[Claim], postponed: Mapping[UUID, Postponed]
) -> list[UUID]:
    """RUNNING → RETRYING by flow control: due when it is allowed. Neither an attempt is charged nor the wait."""
    cursor = await db.execute(
        _HELD + "state = 'RETRYING', state_reason = w.reason, due_at = w.due_at,"
        " flow_wait_s = CASE WHEN e.started_at IS NULL THEN 0"
        "  ELSE e.flow_wait_s + extract(epoch FROM w.due_at - greatest(e.due_at, clock_timestamp())) END,"
        " bucket_id = NULL, lease_until = NULL, worker_id = NULL, requeues = 0"
        " FROM held JOIN unnest(%(ids)s::uuid[], %(due_ats)s::timestamptz[], %(reasons)s::text[])"
        "  AS w(id, due_at, reason) ON w.id = held.id"
        " WHERE e.id = held.id RETURNING e.id",
        {
            **_keys(claims),
            "due_ats": [postponed[claim.id].due_at for claim in claims],
            "reasons": [postponed[claim.id].reason for claim in claims],
        },
    )
    return [row[0] for row in await cursor.fetchall()]


async def tell_overlapped(db: AsyncConnection[Any], *, keys: Sequence[str]) -> None:
    """The engine's `release_overlapped`, for keys whose execution has ended."""
    if keys:
        await db.execute(statement("execution", "release_overlapped"), {"keys": list(keys)})


async def cancel_running(db: AsyncConnection[Any], *, claims: Sequence[Claim]) -> list[UUID]:
    """RUNNING → CANCELLED: asked for before the send began."""
    cursor = await db.execute(
        _HELD + "state = 'CANCELLED', state_reason = 'cancelled', lease_until = NULL,"
        " finished_at = clock_timestamp() FROM held WHERE e.id = held.id RETURNING e.id",
        _keys(claims),
    )
    return [row[0] for row in await cursor.fetchall()]


async def finish_running(db: AsyncConnection[Any], *, results: Sequence[Result], facts: bool = True) -> list[UUID]:
    """RUNNING → SUCCEEDED | RETRYING | FAILED (+ dead letter and facts for rules), a batch of results in one go."""
    finished: list[datetime] = [result.finished_at for result in results]
    cursor = await db.execute(
        results_statement(facts=facts),
        {
            "ids": [result.claim.id for result in results],
            "claim_seqs": [result.claim.claim_seq for result in results],
            "states": [result.state.value for result in results],
            "reasons": [result.reason for result in results],
            "statuses": [result.status for result in results],
            "errors": [result.error or "" for result in results],
            "error_texts": [result.error_text for result in results],
            "durations": [result.duration_ms for result in results],
            "finished": finished,
            "retry_ins": [result.retry_in_s for result in results],
            "dead_reasons": [result.dead_reason for result in results],
        },
    )
    return [row[0] for row in await cursor.fetchall()]
