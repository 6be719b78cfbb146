"""The only writer of `Notification.state`: one function per edge, each a guarded UPDATE.

    PENDING → QUEUED → RUNNING → SUCCEEDED
                          ├→ RETRYING → QUEUED …
                          └→ FAILED

A notification that fails for good stays as it is, to be read: nobody is notified of it. Functions of the loop use
Django's connection; those of the engine are coroutines on a connection of the engine's own pool.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from chronos_site.infra.sql import statement
from execution.domain.outcome import Claim, Postponed, Result

MESSAGE_LEASE_S = 30
"""So long a message may take; then it is published again."""
TIMEOUT_S = 15.0
"""Of one attempt."""


def _changed(sql: str, params: dict[str, Any]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return [row[0] for row in cursor.fetchall()]


def queue_due(*, most: int) -> list[UUID]:
    """PENDING | RETRYING → QUEUED for what is due. The caller commits, publishes, and gives back what it could not."""
    return _changed(statement("execution", "queue_due_notifications"), {"most": most, "lease_s": MESSAGE_LEASE_S})


def unqueue_due(*, ids: Sequence[UUID]) -> None:
    """No edge: QUEUED rows whose message could not be published are due at once."""
    _changed(
        "UPDATE execution_notification SET due_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state || '' = 'QUEUED' RETURNING id",
        {"ids": list(ids)},
    )


def recover_lost(*, unknown_cap: int) -> list[UUID]:
    """RUNNING → RETRYING | FAILED for claims whose lease or worker has gone."""
    return _changed(statement("execution", "recover_lost_notifications"), {"cap": unknown_cap})


async def claim_queued(db: AsyncConnection[Any], *, ids: Sequence[UUID], worker_id: UUID) -> list[dict[str, Any]]:
    """QUEUED → RUNNING under a new `claim_seq`."""
    async with db.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            statement("execution", "claim_notifications"),
            {"ids": list(ids), "worker_id": worker_id, "timeout_s": TIMEOUT_S},
        )
        return await cursor.fetchall()


async def begin_attempts(db: AsyncConnection[Any], *, claims: Sequence[Claim], but: Collection[UUID]) -> set[UUID]:
    """No edge: the gate's look at RUNNING rows, which begins their attempt but for those of `but`."""
    cursor = await db.execute(
        statement("execution", "begin_notifications"),
        {
            **_keys(claims),
            "attempts": [claim.attempt for claim in claims],
            "may_begin": [claim.id not in but for claim in claims],
        },
    )
    return {row[0] for row in await cursor.fetchall()}


_HELD = (
    "WITH held AS (SELECT n.id, w.due_at, w.reason"
    " FROM unnest(%(ids)s::uuid[], %(claim_seqs)s::int[], %(due_ats)s::timestamptz[], %(reasons)s::text[])"
    "  AS w(id, claim_seq, due_at, reason)"
    " JOIN execution_notification n ON n.id = w.id AND n.claim_seq = w.claim_seq AND n.state || '' = 'RUNNING'"
    " ORDER BY n.id FOR UPDATE OF n)"
    " UPDATE execution_notification n SET "
)


async def put_off(db: AsyncConnection[Any], *, claims: Sequence[Claim], postponed: Mapping[UUID, Postponed]) -> None:
    """RUNNING → RETRYING at no charge: flow control or a switch. Due when it is allowed."""
    await db.execute(
        _HELD + "state = 'RETRYING', state_reason = held.reason, due_at = held.due_at,"
        " flow_wait_s = CASE WHEN n.started_at IS NULL THEN 0 ELSE"
        "  n.flow_wait_s + greatest(0, extract(epoch FROM held.due_at - clock_timestamp())) END,"
        " lease_until = NULL, worker_id = NULL FROM held WHERE n.id = held.id",
        {
            **_keys(claims),
            "due_ats": [postponed[claim.id].due_at for claim in claims],
            "reasons": [postponed[claim.id].reason for claim in claims],
        },
    )


async def release(db: AsyncConnection[Any], *, claims: Sequence[Claim], now: datetime) -> None:
    """RUNNING → RETRYING, due now: the worker knows that it has not sent. No attempt is charged."""
    await db.execute(
        _HELD + "state = 'RETRYING', state_reason = held.reason, due_at = held.due_at,"
        " attempt = CASE WHEN n.begun_seq = n.claim_seq THEN n.attempt - 1 ELSE n.attempt END,"
        " begun_seq = CASE WHEN n.begun_seq = n.claim_seq THEN 0 ELSE n.begun_seq END,"
        " lease_until = NULL, worker_id = NULL FROM held WHERE n.id = held.id",
        {**_keys(claims), "due_ats": [now] * len(claims), "reasons": ["given_back"] * len(claims)},
    )


async def finish(db: AsyncConnection[Any], *, results: Sequence[Result]) -> set[UUID]:
    """RUNNING → SUCCEEDED | RETRYING | FAILED, a batch of results in one statement."""
    cursor = await db.execute(
        statement("execution", "write_notification_results"),
        {
            "ids": [result.claim.id for result in results],
            "claim_seqs": [result.claim.claim_seq for result in results],
            "states": [result.state.value for result in results],
            "reasons": [result.reason[:100] for result in results],
            "statuses": [result.status for result in results],
            "errors": [(result.error or "")[:64] for result in results],
            "error_texts": [result.error_text for result in results],
            "durations": [result.duration_ms for result in results],
            "finished": [result.finished_at for result in results],
            "retry_ins": [result.retry_in_s for result in results],
        },
    )
    return {row[0] for row in await cursor.fetchall()}


def _keys(claims: Sequence[Claim]) -> dict[str, Any]:
    return {"ids": [claim.id for claim in claims], "claim_seqs": [claim.claim_seq for claim in claims]}
