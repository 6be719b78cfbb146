"""The only writer of the states of bulk jobs, chunks and records: one function per edge of `bulk.domain.states`.

Each is a guarded UPDATE that returns what it really changed. Rows are locked before their chunks, both in the order of
their ids, and nobody waits for a row while it holds a chunk that others count in. Functions of the engine are
coroutines on a connection of its own pool, the others use Django's connection.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row

from bulk.domain.numbering import CHUNK, chunk_of, range_of
from bulk.domain.states import JobState
from bulk.telling import tell
from chronos_site.infra.sql import statement
from execution.domain.outcome import Claim, Postponed, Result
from execution.transitions import HeldClaim

MESSAGE_LEASE_S = 30
"""How long a chunk, or a row that is tried again, may wait for its message before it is looked at."""
WORK_LEASE_S = 60
"""How long one piece of reading a file or writing results may take."""
EXCERPT = 1000


@dataclass(frozen=True, slots=True)
class TakenChunk:
    id: UUID
    job_id: UUID
    first_row: int
    rows: int
    again: bool
    """A person has had its failed rows tried again."""


def _rows(sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def _count(sql: str, params: Mapping[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)


def spans(chunk_ids: Sequence[UUID]) -> dict[str, list[UUID]]:
    """The ranges of ids that hold the rows of these chunks, as parameters of a statement."""
    return {"chunks": list(chunk_ids), "lasts": [UUID(int=chunk.int + CHUNK - 1) for chunk in chunk_ids]}


# --- jobs ------------------------------------------------------------------------------------------------------------


def claim_work(*, job_id: UUID) -> int | None:
    """UPLOADED → INGESTING, or take over what nobody works at: reading the file, or writing the results.

    The number that guards what follows; None where another is at it, or nothing is to be done.
    """
    rows = _rows(
        "UPDATE bulk_bulkjob SET work_seq = work_seq + 1,"
        " work_lease_until = clock_timestamp() + %(lease)s * interval '1 second',"
        " state = CASE WHEN state = 'UPLOADED' THEN 'INGESTING' ELSE state END,"
        " started_at = coalesce(started_at, clock_timestamp())"
        " WHERE id = %(id)s AND state IN ('UPLOADED', 'INGESTING', 'RUNNING', 'PAUSED')"
        " AND (work_lease_until IS NULL OR work_lease_until < clock_timestamp()) RETURNING work_seq",
        {"id": job_id, "lease": WORK_LEASE_S},
    )
    if not rows:
        return None
    tell(job_id, JobState.INGESTING, took=rows[0][0] == 1)
    return int(rows[0][0])


def renew_work(*, job_id: UUID, seq: int) -> bool:
    """No edge: another piece may be done. False: another has taken over, or the job is cancelled."""
    return bool(
        _count(
            "UPDATE bulk_bulkjob SET work_lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
            " WHERE id = %(id)s AND work_seq = %(seq)s AND state IN ('INGESTING', 'RUNNING', 'PAUSED')",
            {"id": job_id, "seq": seq, "lease": WORK_LEASE_S},
        )
    )


def release_work(*, job_id: UUID, seq: int) -> None:
    """No edge: what was begun was not finished; another may take it at once."""
    _count(
        "UPDATE bulk_bulkjob SET work_lease_until = NULL WHERE id = %(id)s AND work_seq = %(seq)s",
        {"id": job_id, "seq": seq},
    )


def note_columns(*, job_id: UUID, seq: int, columns: Sequence[str], offset: int, line: int) -> bool:
    """No edge: the header has been read, and ends there."""
    return bool(
        _count(
            "UPDATE bulk_bulkjob SET columns = %(columns)s, cursor_offset = %(offset)s, cursor_line = %(line)s"
            " WHERE id = %(id)s AND work_seq = %(seq)s AND state = 'INGESTING'",
            {"id": job_id, "seq": seq, "columns": list(columns), "offset": offset, "line": line},
        )
    )


def advance_cursor(*, job_id: UUID, seq: int, offset: int, line: int, rows: int, invalid: int) -> bool:
    """No edge: so far is the file in the table, as of the caller's transaction. False: it must be rolled back."""
    return bool(
        _count(
            "UPDATE bulk_bulkjob SET cursor_offset = %(offset)s, cursor_line = %(line)s, total = total + %(rows)s,"
            " invalid = invalid + %(invalid)s,"
            " work_lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
            " WHERE id = %(id)s AND work_seq = %(seq)s AND state = 'INGESTING' AND cancel_requested_at IS NULL",
            {
                "id": job_id,
                "seq": seq,
                "offset": offset,
                "line": line,
                "rows": rows,
                "invalid": invalid,
                "lease": WORK_LEASE_S,
            },
        )
    )


def finish_ingest(*, job_id: UUID, seq: int) -> str | None:
    """INGESTING → RUNNING | PAUSED, as it is to wait for a start or not. The new state; None: not ours any more."""
    rows = _rows(
        "UPDATE bulk_bulkjob SET state = CASE WHEN held THEN 'PAUSED' ELSE 'RUNNING' END,"
        " ingested_at = clock_timestamp(), work_lease_until = NULL"
        " WHERE id = %(id)s AND work_seq = %(seq)s AND state = 'INGESTING' AND cancel_requested_at IS NULL"
        " RETURNING state",
        {"id": job_id, "seq": seq},
    )
    return JobState(rows[0][0]).value if rows and tell(job_id, JobState(rows[0][0])) else None


def refuse_file(*, job_id: UUID, seq: int, code: str, text: str) -> bool:
    """INGESTING → FAILED: the file cannot be taken; the caller removes what was read of it in the same transaction."""
    return tell(
        job_id,
        JobState.FAILED,
        took=_count(
            "UPDATE bulk_bulkjob SET state = 'FAILED', error_code = %(code)s, error_text = %(text)s,"
            " work_lease_until = NULL, finished_at = clock_timestamp()"
            " WHERE id = %(id)s AND work_seq = %(seq)s AND state = 'INGESTING'",
            {"id": job_id, "seq": seq, "code": code, "text": text[:500]},
        ),
        reason=code,
    )


def end_job(*, job_id: UUID, seq: int, state: JobState, counts: Mapping[str, int], results_bytes: int) -> bool:
    """RUNNING | PAUSED → an end. The caller has seen all chunks DONE, and the results are stored."""
    return tell(
        job_id,
        state,
        took=_count(
            "UPDATE bulk_bulkjob SET state = %(state)s, results_bytes = %(bytes)s, work_lease_until = NULL,"
            " succeeded = %(succeeded)s, failed = %(failed)s, cancelled = %(cancelled)s,"
            " rate_per_s = 0, finished_at = clock_timestamp()"
            " WHERE id = %(id)s AND work_seq = %(seq)s AND state IN ('RUNNING', 'PAUSED')",
            {"id": job_id, "seq": seq, "state": state.value, "bytes": results_bytes, **counts},
        ),
    )


def cancel_unread(*, job_id: UUID) -> bool:
    """UPLOADED | INGESTING → CANCELLED. Whoever reads the file finds out at its next piece."""
    return tell(
        job_id,
        JobState.CANCELLED,
        took=_count(
            "UPDATE bulk_bulkjob SET state = 'CANCELLED', work_lease_until = NULL, finished_at = clock_timestamp(),"
            " cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())"
            " WHERE id = %(id)s AND state IN ('UPLOADED', 'INGESTING')",
            {"id": job_id},
        ),
    )


def pause_running(*, job_id: UUID) -> bool:
    """RUNNING → PAUSED."""
    return tell(
        job_id,
        JobState.PAUSED,
        took=_count(
            "UPDATE bulk_bulkjob SET state = 'PAUSED', held = true, rate_per_s = 0"
            " WHERE id = %(id)s AND state = 'RUNNING'",
            {"id": job_id},
        ),
    )


def start_paused(*, job_id: UUID) -> bool:
    """PAUSED → RUNNING."""
    return tell(
        job_id,
        JobState.RUNNING,
        took=_count(
            "UPDATE bulk_bulkjob SET state = 'RUNNING', held = false WHERE id = %(id)s AND state = 'PAUSED'",
            {"id": job_id},
        ),
    )


def reopen_job(*, job_id: UUID) -> bool:
    """PARTIAL_FAILURE | FAILED → RUNNING: its failed rows wait again. The results stay until they are written anew."""
    first, last = range_of(job_id)
    reset = _count(
        "UPDATE bulk_bulkchunk SET state = 'WAITING', again = true, failed = 0"
        " WHERE id BETWEEN %(first)s AND %(last)s AND failed > 0",
        {"first": first, "last": last},
    )
    if not reset:
        return False
    return tell(
        job_id,
        JobState.RUNNING,
        took=_count(
            "UPDATE bulk_bulkjob SET state = 'RUNNING', held = false, failed = 0, finished_at = NULL,"
            " cancel_requested_at = NULL WHERE id = %(id)s AND state IN ('PARTIAL_FAILURE', 'FAILED')",
            {"id": job_id},
        ),
    )


# --- chunks ----------------------------------------------------------------------------------------------------------


def take_chunks(*, shares: Mapping[UUID, int]) -> list[TakenChunk]:
    """WAITING → QUEUED, so many of each job. The caller commits, then publishes; what it could not, it gives back."""
    params = {"jobs": list(shares), "shares": list(shares.values()), "lease_s": MESSAGE_LEASE_S}
    taken = [TakenChunk(*row) for row in _rows(statement("bulk", "take_chunks"), params)]
    again = [chunk.id for chunk in taken if chunk.again]
    if again:
        _count(statement("bulk", "renew_failed"), spans(again))
    return taken


def untake_chunks(*, ids: Sequence[UUID]) -> None:
    """QUEUED → WAITING: rows of them were not published, or not taken. Rows of them that are under way go on."""
    _count(
        "UPDATE bulk_bulkchunk SET state = 'WAITING', lease_until = NULL WHERE id = ANY(%(ids)s) AND state = 'QUEUED'",
        {"ids": list(ids)},
    )


def renew_chunks(*, ids: Sequence[UUID]) -> None:
    """No edge: QUEUED chunks whose rows are under way, or wait for another attempt, are looked at again later."""
    _count(
        "UPDATE bulk_bulkchunk SET lease_until = clock_timestamp() + %(lease)s * interval '1 second'"
        " WHERE id = ANY(%(ids)s) AND state = 'QUEUED'",
        {"ids": list(ids), "lease": MESSAGE_LEASE_S},
    )


# --- records ---------------------------------------------------------------------------------------------------------


def queue_due(*, shares: Mapping[UUID, int]) -> dict[UUID, UUID]:
    """RETRYING → QUEUED for what is due, and QUEUED once more whose message did not take. Their jobs, by record."""
    params = {"jobs": list(shares), "shares": list(shares.values()), "lease_s": MESSAGE_LEASE_S}
    return dict(_rows(statement("bulk", "queue_due_records"), params))


def unqueue_due(*, ids: Sequence[UUID]) -> None:
    """No edge: QUEUED rows whose message could not be published are due at once."""
    _count(
        "UPDATE bulk_bulkrecord SET due_at = clock_timestamp() WHERE id = ANY(%(ids)s) AND state = 'QUEUED'",
        {"ids": list(ids)},
    )


def cancel_records(*, chunk_ids: Sequence[UUID]) -> None:
    """PENDING | QUEUED | RETRYING → CANCELLED in these chunks, and their counts."""
    _count(statement("bulk", "cancel_records"), {**spans(chunk_ids), "lease_s": MESSAGE_LEASE_S})


def recover_lost(*, chunk_ids: Sequence[UUID], unknown_cap: int) -> int:
    """RUNNING → RETRYING | FAILED for rows of these chunks whose claim has gone. Returns how many."""
    return len(_rows(statement("bulk", "recover_lost_records"), {**spans(chunk_ids), "cap": unknown_cap}))


async def claim_records(db: AsyncConnection[Any], *, ids: Sequence[UUID], worker_id: UUID) -> list[dict[str, Any]]:
    """PENDING | QUEUED → RUNNING under a new `claim_seq`."""
    async with db.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("bulk", "claim_records"), {"ids": list(ids), "worker_id": worker_id})
        return await cursor.fetchall()


async def begin_records(db: AsyncConnection[Any], *, claims: Sequence[Claim], but: Collection[UUID]) -> list[HeldClaim]:
    """No edge: the gate's look at RUNNING rows, which begins their attempt but for those of `but`."""
    async with db.cursor(row_factory=class_row(HeldClaim)) as cursor:
        await cursor.execute(
            statement("bulk", "begin_records"),
            {
                **_keys(claims),
                "attempts": [claim.attempt for claim in claims],
                "may_begin": [claim.id not in but for claim in claims],
            },
        )
        return await cursor.fetchall()


_HELD = (
    "WITH held AS (SELECT r.id, w.due_at, w.reason"
    " FROM unnest(%(ids)s::uuid[], %(claim_seqs)s::int[], %(due_ats)s::timestamptz[], %(reasons)s::text[])"
    "  AS w(id, claim_seq, due_at, reason)"
    " JOIN bulk_bulkrecord r ON r.id = w.id AND r.claim_seq = w.claim_seq AND r.state = 'RUNNING'"
    " ORDER BY r.id FOR UPDATE OF r)"
    " UPDATE bulk_bulkrecord r SET "
)


async def put_off_records(
    db: AsyncConnection[Any], *, claims: Sequence[Claim], postponed: Mapping[UUID, Postponed]
) -> None:
    """RUNNING → RETRYING at no charge: flow control, a switch or a pause. Due when it is allowed."""
    await db.execute(
        _HELD + "state = 'RETRYING', state_reason = held.reason, due_at = held.due_at,"
        " flow_wait_s = CASE WHEN r.started_at IS NULL THEN 0 ELSE"
        "  r.flow_wait_s + greatest(0, extract(epoch FROM held.due_at - clock_timestamp())) END,"
        " lease_until = NULL, worker_id = NULL FROM held WHERE r.id = held.id",
        {
            **_keys(claims),
            "due_ats": [postponed[claim.id].due_at for claim in claims],
            "reasons": [postponed[claim.id].reason for claim in claims],
        },
    )


async def release_records(db: AsyncConnection[Any], *, claims: Sequence[Claim], now: datetime) -> None:
    """RUNNING → RETRYING, due now: the worker knows that it has not sent. No attempt is charged.

    Also where the gate had begun one and its answer was lost.
    """
    await db.execute(
        _HELD + "state = 'RETRYING', state_reason = held.reason, due_at = held.due_at,"
        " attempt = CASE WHEN r.begun_seq = r.claim_seq THEN r.attempt - 1 ELSE r.attempt END,"
        " begun_seq = CASE WHEN r.begun_seq = r.claim_seq THEN 0 ELSE r.begun_seq END,"
        " lease_until = NULL, worker_id = NULL FROM held WHERE r.id = held.id",
        {**_keys(claims), "due_ats": [now] * len(claims), "reasons": ["given_back"] * len(claims)},
    )


async def finish_records(db: AsyncConnection[Any], *, results: Sequence[Result]) -> list[UUID]:
    """RUNNING → SUCCEEDED | RETRYING | FAILED, a batch of results and the counts of their chunks in one statement."""
    cursor = await db.execute(
        statement("bulk", "write_record_results"),
        {
            "ids": [result.claim.id for result in results],
            "chunks": [chunk_of(result.claim.id) for result in results],
            "claim_seqs": [result.claim.claim_seq for result in results],
            "states": [result.state.value for result in results],
            "reasons": [result.reason[:64] for result in results],
            "statuses": [result.status for result in results],
            "errors": [(result.error or "")[:64] for result in results],
            "error_texts": [result.error_text for result in results],
            "durations": [result.duration_ms for result in results],
            "finished": [result.finished_at for result in results],
            "retry_ins": [result.retry_in_s for result in results],
            "excerpts": [result.response_excerpt.replace("\x00", "\ufffd")[:EXCERPT] for result in results],
        },
    )
    return [row[0] for row in await cursor.fetchall()]


async def cancel_running(db: AsyncConnection[Any], *, claims: Sequence[Claim]) -> None:
    """RUNNING → CANCELLED: asked for before the send began."""
    await db.execute(
        "WITH held AS (SELECT r.id, w.chunk"
        " FROM unnest(%(ids)s::uuid[], %(claim_seqs)s::int[], %(chunks)s::uuid[]) AS w(id, claim_seq, chunk)"
        " JOIN bulk_bulkrecord r ON r.id = w.id AND r.claim_seq = w.claim_seq AND r.state = 'RUNNING'"
        " ORDER BY r.id FOR UPDATE OF r), changed AS ("
        " UPDATE bulk_bulkrecord r SET state = 'CANCELLED', state_reason = 'cancelled', lease_until = NULL,"
        " finished_at = clock_timestamp() FROM held WHERE r.id = held.id RETURNING held.chunk), counts AS ("
        " SELECT chunk, count(*) AS cancelled FROM changed GROUP BY chunk), locked AS ("
        " SELECT c.id, counts.cancelled FROM counts JOIN bulk_bulkchunk c ON c.id = counts.chunk"
        " ORDER BY c.id FOR UPDATE OF c)"
        " UPDATE bulk_bulkchunk c SET cancelled = c.cancelled + locked.cancelled,"
        " state = CASE WHEN c.invalid + c.succeeded + c.failed + c.cancelled + locked.cancelled = c.rows"
        "  THEN 'DONE' ELSE c.state END FROM locked WHERE c.id = locked.id",
        {**_keys(claims), "chunks": [chunk_of(claim.id) for claim in claims]},
    )


def _keys(claims: Sequence[Claim]) -> dict[str, Any]:
    return {"ids": [claim.id for claim in claims], "claim_seqs": [claim.claim_seq for claim in claims]}
