"""The only writer of `Execution.state`: one function per edge of `execution.domain.states`, each a guarded UPDATE.

Every function returns the rows that it really changed, so a caller never believes more than what happened: two callers
of one edge share the rows between them. A caller that dies after one of these has lost nothing, for the row says where
it stands. Functions of the loops and services use Django's connection and stand in `execution.transitions_waiting`;
those of the engine, here, are coroutines on a psycopg connection of the engine's own pool.

Every move is told as an event once it is committed. The coroutines commit by themselves and tell at once: call them
outside a transaction, but for `finish_running`, whose caller tells.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row

from chronos_site.infra.sql import statement
from chronos_site.observability import events
from execution.domain.events import ROW, EventType, row_event
from execution.domain.outcome import Claim, Postponed, Result
from execution.notifications.facts import results_statement
from execution.transitions_waiting import QUEUED_LEASE_S, SWITCHED_OFF
from execution.transitions_waiting import LostClaim as LostClaim
from execution.transitions_waiting import cancel_waiting as cancel_waiting
from execution.transitions_waiting import expire_pending as expire_pending
from execution.transitions_waiting import extend_queued as extend_queued
from execution.transitions_waiting import hold_pending as hold_pending
from execution.transitions_waiting import hold_retrying as hold_retrying
from execution.transitions_waiting import lock_due_retries as lock_due_retries
from execution.transitions_waiting import queue_keyed as queue_keyed
from execution.transitions_waiting import queue_locked_retries as queue_locked_retries
from execution.transitions_waiting import queue_pending as queue_pending
from execution.transitions_waiting import queue_retrying as queue_retrying
from execution.transitions_waiting import recover_lost_claims as recover_lost_claims
from execution.transitions_waiting import release_overlapped as release_overlapped
from execution.transitions_waiting import skip_pending as skip_pending
from execution.transitions_waiting import unqueue as unqueue
from execution.transitions_waiting import unqueue_retrying as unqueue_retrying

Row = tuple[UUID, str]
"""The id of a row that was moved, and the row as its event tells it."""


@dataclass(slots=True)
class HeldClaim:
    """A row that is still RUNNING under the claim, and what stands against its send."""

    id: UUID
    cancelled: bool
    paused: bool


def _tell(kind: EventType, rows: Sequence[Row], *, reason: str = "") -> list[UUID]:
    events.write([row_event(kind, row, reason=reason) for _id, row in rows])
    return [row[0] for row in rows]


async def claim_queued(db: AsyncConnection[Any], *, ids: Sequence[UUID], worker_id: UUID) -> list[dict[str, Any]]:
    """QUEUED → RUNNING under a new `claim_seq`; the rows carry all that the send needs."""
    async with db.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("execution", "claim"), {"ids": list(ids), "worker_id": worker_id})
        return await cursor.fetchall()


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
    return _tell(EventType.RELEASED, await _release(db, claims))


async def _release(db: AsyncConnection[Any], claims: Sequence[Claim]) -> list[Row]:
    cursor = await db.execute(
        _HELD + "state = 'QUEUED', worker_id = NULL,"
        " attempt = CASE WHEN e.begun_seq = e.claim_seq THEN e.attempt - 1 ELSE e.attempt END,"
        " started_at = CASE WHEN e.begun_seq = e.claim_seq AND e.attempt = 1 THEN NULL ELSE e.started_at END,"
        " begun_seq = CASE WHEN e.begun_seq = e.claim_seq THEN 0 ELSE e.begun_seq END,"
        " lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        f" FROM held WHERE e.id = held.id RETURNING e.id, {ROW}",
        {**_keys(claims), "lease": QUEUED_LEASE_S},
    )
    return await cursor.fetchall()


async def unqueue_unpublished(db: AsyncConnection[Any], *, ids: Sequence[UUID]) -> list[UUID]:
    """QUEUED → PENDING | RETRYING for rows whose message could not be published, so that a loop finds them in a second.

    A row with a bucket was PENDING before it was queued; its bucket is opened again first, as whoever adds rows does. A
    row without one came from the retry loop.
    """
    return _tell(EventType.UNQUEUED, await _unqueue(db, ids))


async def _unqueue(db: AsyncConnection[Any], ids: Sequence[UUID]) -> list[Row]:
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
            "WITH held AS (SELECT id FROM execution_execution WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED'"  # noqa: S608
            "  ORDER BY id FOR UPDATE)"
            " UPDATE execution_execution e SET lease_until = NULL,"
            " state = CASE WHEN e.bucket_id IS NULL THEN 'RETRYING' ELSE 'PENDING' END"
            f" FROM held WHERE e.id = held.id RETURNING e.id, {ROW}",
            {"ids": list(ids)},
        )
        return await cursor.fetchall()


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
        released = await _release(db, claims)
        cursor = await db.execute(
            "UPDATE execution_execution e SET state = 'PENDING', bucket_id = NULL, park_reason = 'job_paused',"  # noqa: S608
            " lease_until = NULL FROM execution_jobdefinition j"
            " WHERE e.id = ANY(%(ids)s) AND e.state = 'QUEUED' AND j.id = e.job_definition_id"
            f" AND j.paused_at IS NOT NULL RETURNING e.id, {ROW}",
            {"ids": [row[0] for row in released]},
        )
        rows = await cursor.fetchall()
    parked = set(_tell(EventType.PARKED, rows, reason="job_paused"))
    return _tell(EventType.RELEASED, [row for row in released if row[0] not in parked])


async def hold_running(db: AsyncConnection[Any], *, claims: Sequence[Claim], switches: Mapping[UUID, int]) -> None:
    """RUNNING → QUEUED → PENDING | RETRYING: a switch went off between fan-out and send. No attempt is charged.

    `switches` names the switch that a row waits for; a row that is not in it waits for one that stops everything, and
    goes back to where the loops will find it.
    """
    async with db.transaction():
        released = [row[0] for row in await _release(db, claims)]
        named = [found for found in released if found in switches]
        cursor = await db.execute(
            "UPDATE execution_execution e SET held_by = w.switch, lease_until = NULL, bucket_id = NULL,"  # noqa: S608
            " state = CASE WHEN e.bucket_id IS NULL THEN 'RETRYING' ELSE 'PENDING' END,"
            " park_reason = CASE WHEN e.bucket_id IS NULL THEN '' ELSE %(reason)s END"
            " FROM unnest(%(ids)s::uuid[], %(switches)s::bigint[]) AS w(id, switch)"
            f" WHERE e.id = w.id AND e.state = 'QUEUED' RETURNING e.id, {ROW}",
            {"ids": named, "switches": [switches[found] for found in named], "reason": SWITCHED_OFF},
        )
        parked = await cursor.fetchall()
        rest = [found for found in released if found not in switches]
        if rest:
            parked += await _unqueue(db, rest)
    _tell(EventType.PARKED, parked, reason=SWITCHED_OFF)


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
        f" WHERE e.id = held.id RETURNING e.id, {ROW}",
        {
            **_keys(claims),
            "due_ats": [postponed[claim.id].due_at for claim in claims],
            "reasons": [postponed[claim.id].reason for claim in claims],
        },
    )
    rows = await cursor.fetchall()
    events.write([row_event(EventType.POSTPONED, row, reason=postponed[id_].reason) for id_, row in rows])
    return [row[0] for row in rows]


async def tell_overlapped(db: AsyncConnection[Any], *, keys: Sequence[str]) -> None:
    """The engine's `release_overlapped`, for keys whose execution has ended."""
    if keys:
        await db.execute(statement("execution", "release_overlapped"), {"keys": list(keys)})


async def cancel_running(db: AsyncConnection[Any], *, claims: Sequence[Claim]) -> list[UUID]:
    """RUNNING → CANCELLED: asked for before the send began."""
    cursor = await db.execute(
        _HELD + "state = 'CANCELLED', state_reason = 'cancelled', lease_until = NULL,"
        f" finished_at = clock_timestamp() FROM held WHERE e.id = held.id RETURNING e.id, {ROW}",
        _keys(claims),
    )
    return _tell(EventType.CANCELLED, await cursor.fetchall(), reason="cancelled")


async def finish_running(
    db: AsyncConnection[Any], *, results: Sequence[Result], facts: bool = True
) -> dict[UUID, datetime | None]:
    """RUNNING → SUCCEEDED | RETRYING | FAILED (+ dead letter and facts for rules), a batch of results in one go.

    The ids of the rows that were changed, with the time of the next attempt where there is one. The caller tells of
    them once it has committed.
    """
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
    return dict(await cursor.fetchall())
