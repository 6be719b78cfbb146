"""Records of bulk jobs as the engine's source: the same engine, guard, retries, limits and fences as executions have.

A claim renders its row into the job's template. A row whose values cannot stand where the template puts them is never
sent: it fails with a code of its own. Dying after the claim leaves the row RUNNING under a lease, which the tick finds.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from bulk import transitions
from bulk.domain.numbering import number_of
from bulk.domain.template import RowRefused, Template, compile_template
from bulk.publish import RECORDS_QUEUE
from chronos_site.infra.clock import DatabaseClock
from execution import switches
from execution.dispatch import concurrency
from execution.dispatch.source import SWITCH_AGE_S, internal_failure
from execution.domain.outcome import Claim, Postponed, Result
from execution.domain.states import State
from execution.switches import Closed
from execution.transitions import HeldClaim

log = logging.getLogger(__name__)

JOBS_KEPT = 64
SWITCHED_OFF_S = 5.0
"""What a dispatch switch stops asks again after so long."""
PAUSED_S = 0.0
"""What a pause stops is due at once: nobody looks for it until its job runs again."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """What the rows of a job have in common. It never changes once the header has been read."""

    id: UUID
    workspace_id: UUID
    job_definition_id: UUID
    kind: str
    template: Template
    columns: tuple[str, ...]
    timeout_s: float
    retry: dict[str, Any]
    limits: dict[str, Any]
    traceparent: str
    scheduled_for: datetime
    secret_namespaces: tuple[str, ...]


class RecordSource:
    """Records, over the engine's own connection pool."""

    def __init__(self, pool: AsyncConnectionPool[Any], worker_id: UUID) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._jobs: OrderedDict[UUID, JobSnapshot] = OrderedDict()
        self._closed = Closed()
        self._closed_until = 0.0

    async def claim(self, ids: Sequence[UUID]) -> list[Claim]:
        async with self._pool.connection() as db:
            closed = await self._read_closed(db)
            if RECORDS_QUEUE in closed.queues:
                return []  # They stay as they are; the tick publishes them again.
            rows = await transitions.claim_records(db, ids=ids, worker_id=self._worker_id)
            if not rows:
                return []
            clock = DatabaseClock(max(row["read_at"] for row in rows))
            jobs = await self._snapshots(db, {row["bulk_job_id"] for row in rows})
            claims: list[Claim] = []
            refused: list[Result] = []
            for row in rows:
                _render(jobs[row["bulk_job_id"]], row, clock, claims, refused)
            if refused:
                await transitions.finish_records(db, results=refused)
            off = _off(claims, closed)
            if off:
                await self._put_off(db, [c for c in claims if c.id in off], SWITCHED_OFF_S, "dispatch_switch")
        return [claim for claim in claims if claim.id not in off]

    async def gate(self, claims: Sequence[Claim], *, postponed: Mapping[UUID, Postponed]) -> set[UUID]:
        async with self._pool.connection() as db:
            closed = await self._read_closed(db)
            by_id = {claim.id: claim for claim in claims}
            stopped: Set[UUID] = by_id.keys() if RECORDS_QUEUE in closed.queues else _off(claims, closed)
            held, postponed = await _begin(db, claims, stopped, postponed)
            cancelled = [by_id[row.id] for row in held if row.cancelled]
            paused = [by_id[row.id] for row in held if row.paused and not row.cancelled]
            if cancelled:
                await transitions.cancel_running(db, claims=cancelled)
            if paused:
                await self._put_off(db, paused, PAUSED_S, "paused")
            free = {row.id for row in held if not row.cancelled and not row.paused}
            if free & stopped:
                await self._put_off(db, [by_id[i] for i in free & stopped], SWITCHED_OFF_S, "dispatch_switch")
            waiting = (free - stopped) & postponed.keys()
            if waiting:
                await transitions.put_off_records(db, claims=[by_id[i] for i in waiting], postponed=postponed)
        return free - stopped - waiting

    async def give_back(self, claims: Sequence[Claim]) -> None:
        async with self._pool.connection() as db:
            await transitions.release_records(db, claims=claims, now=claims[0].clock.now())

    async def write_results(self, results: Sequence[Result]) -> set[UUID]:
        try:
            async with self._pool.connection() as db, db.transaction():
                return set(await transitions.finish_records(db, results=results))
        except (psycopg.DataError, errors.IntegrityError, errors.ProgramLimitExceeded, UnicodeError) as error:
            # One row that Postgres refuses must not send the others again: halve until it is alone, then fail it.
            if len(results) > 1:
                middle = len(results) // 2
                return await self.write_results(results[:middle]) | await self.write_results(results[middle:])
            log.error(
                "result_refused",
                extra={"action": "write_results", "execution_id": str(results[0].claim.id), "error": str(error)},
            )
            async with self._pool.connection() as db, db.transaction():
                return set(await transitions.finish_records(db, results=[internal_failure(results[0])]))

    async def _put_off(self, db: AsyncConnection[Any], claims: Sequence[Claim], wait_s: float, reason: str) -> None:
        due_at = claims[0].clock.now() + timedelta(seconds=wait_s)
        await transitions.put_off_records(
            db, claims=claims, postponed={claim.id: Postponed(due_at, reason) for claim in claims}
        )

    async def _read_closed(self, db: AsyncConnection[Any]) -> Closed:
        """What is switched off, as of a second ago at most."""
        if time.monotonic() >= self._closed_until:
            self._closed = await switches.read_closed_async(db)
            self._closed_until = time.monotonic() + SWITCH_AGE_S
        return self._closed

    async def _snapshots(self, db: AsyncConnection[Any], ids: set[UUID]) -> dict[UUID, JobSnapshot]:
        missing = [job_id for job_id in ids if job_id not in self._jobs]
        if missing:
            async with db.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(
                    "SELECT j.*, w.secret_namespaces FROM bulk_bulkjob j JOIN tenancy_workspace w"
                    " ON w.id = j.workspace_id WHERE j.id = ANY(%s)",
                    [missing],
                )
                for row in await cursor.fetchall():
                    self._jobs[row["id"]] = _snapshot(row)
        found = {}
        for job_id in ids:
            self._jobs.move_to_end(job_id)
            found[job_id] = self._jobs[job_id]
        while len(self._jobs) > max(JOBS_KEPT, len(ids)):
            self._jobs.popitem(last=False)
        return found


def _snapshot(row: dict[str, Any]) -> JobSnapshot:
    return JobSnapshot(
        id=row["id"],
        workspace_id=row["workspace_id"],
        job_definition_id=row["job_definition_id"],
        kind=row["kind"],
        template=compile_template(target=row["target"], payload=row["payload"]),
        columns=tuple(row["columns"]),
        timeout_s=row["timeout_s"],
        retry=row["retry"],
        limits=row["limits"],
        traceparent=row["traceparent"],
        scheduled_for=row["created_at"],
        secret_namespaces=tuple(row["secret_namespaces"]),
    )


def _render(
    job: JobSnapshot, row: dict[str, Any], clock: DatabaseClock, claims: list[Claim], refused: list[Result]
) -> None:
    """Put the claim of a row on one list, or the result of one that cannot be rendered on the other."""
    claim = Claim(
        id=row["id"],
        claim_seq=row["claim_seq"],
        attempt=row["attempt"] + 1,
        attempts_before=row["attempts_before"],
        started_at=row["started_at"],
        workspace_id=job.workspace_id,
        job_definition_id=job.job_definition_id,
        schedule_id=None,
        scheduled_for=job.scheduled_for,
        due_at=row["read_at"],
        lease_until=row["lease_until"],
        kind=job.kind,
        target={},
        payload=None,
        timeout_s=job.timeout_s,
        retry=job.retry,
        traceparent=job.traceparent,
        clock=clock,
        secret_namespaces=job.secret_namespaces,
        limits=job.limits,
        state_reason=row["state_reason"],
        flow_wait_s=row["flow_wait_s"],
    )
    try:
        target, claim.payload = job.template.render(dict(zip(job.columns, row["values"], strict=True)))
    except RowRefused as error:
        refused.append(_refused(claim, error))
        return
    carried = {"X-Bulk-Job-Id": str(job.id), "X-Bulk-Row": str(number_of(claim.id))}
    claim.target = {**target, "headers": {**(target.get("headers") or {}), **carried}}
    claims.append(claim)


def _refused(claim: Claim, error: RowRefused) -> Result:
    return Result(
        claim=claim,
        state=State.FAILED,
        reason=error.code,
        status=None,
        error=error.code,
        error_text=str(error),
        dead_reason=error.code,
        duration_ms=0.0,
        finished_at=claim.clock.now(),
    )


async def _begin(
    db: AsyncConnection[Any], claims: Sequence[Claim], stopped: Set[UUID], postponed: Mapping[UUID, Postponed]
) -> tuple[list[HeldClaim], Mapping[UUID, Postponed]]:
    """Begin the attempts but for these; and but for those that find no place beside others of their job definition."""
    but = stopped | postponed.keys()
    limited = [claim for claim in claims if claim.limits and claim.id not in but and concurrency.is_limited(claim)]
    if not limited:
        return await transitions.begin_records(db, claims=claims, but=but), postponed
    async with db.transaction():
        crowded = await concurrency.find_crowded(db, claims=limited, beside=_count_under_way)
        held = await transitions.begin_records(db, claims=claims, but=but | crowded.keys())
    return held, {**postponed, **crowded}


async def _count_under_way(db: AsyncConnection[Any], jobs: Sequence[UUID], asking: Sequence[UUID]) -> dict[UUID, int]:
    """Rows of bulk jobs with a send under way, by job definition, but for those that ask."""
    cursor = await db.execute(
        "SELECT c.id FROM bulk_bulkjob j JOIN bulk_bulkchunk c ON c.bulk_job_id = j.id AND c.state = 'QUEUED'"
        " WHERE j.job_definition_id = ANY(%s) AND j.state IN ('RUNNING', 'PAUSED')",
        [jobs],
    )
    spans = transitions.spans([row[0] for row in await cursor.fetchall()])
    cursor = await db.execute(
        "SELECT j.job_definition_id, count(*) FROM unnest(%(chunks)s::uuid[], %(lasts)s::uuid[]) AS span(first, last)"
        " JOIN bulk_bulkrecord r ON r.id BETWEEN span.first AND span.last"
        " JOIN bulk_bulkjob j ON j.id = r.bulk_job_id"
        " WHERE r.state = 'RUNNING' AND r.begun_seq = r.claim_seq AND NOT r.id = ANY(%(asking)s)"
        " GROUP BY j.job_definition_id",
        {**spans, "asking": asking},
    )
    return dict(await cursor.fetchall())


def _off(claims: Sequence[Claim], closed: Closed) -> set[UUID]:
    """Those that a switch of a workspace or destination stops."""
    return set(closed.holders((c.id, c.workspace_id, c.target) for c in claims)) if closed.in_part else set()
