"""The seam between the engine and the tables: what the engine asks of whatever it delivers.

The engine knows nothing of tables; a source knows nothing of sockets. Executions are the first source.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, errors
from psycopg_pool import AsyncConnectionPool

from chronos_site.infra.clock import DatabaseClock
from chronos_site.observability import events
from execution import publish, switches, transitions
from execution.dispatch import concurrency
from execution.domain.events import claimed, finished
from execution.domain.outcome import Claim, Clock, Postponed, Result
from execution.domain.states import State
from execution.notifications.facts import are_wanted
from execution.switches import Closed
from execution.transitions import HeldClaim

log = logging.getLogger(__name__)

SWITCH_AGE_S = 1.0
"""For so long a reading of the dispatch switch is good."""


class Source(Protocol):
    """A table of deliveries. Every method raises psycopg.OperationalError where the database cannot be reached."""

    async def claim(self, ids: Sequence[UUID]) -> list[Claim]:
        """Take those of `ids` that wait for a worker."""

    async def gate(self, claims: Sequence[Claim], *, postponed: Mapping[UUID, Postponed]) -> set[UUID]:
        """The last look before the send. Returns the ids that may be sent; their attempt has begun.

        What flow control has postponed is put off instead, at no charge.
        """

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """Let go of claims whose send has not begun, so that another worker takes them."""

    async def write_results(self, results: Sequence[Result]) -> set[UUID]:
        """Store results. Returns the ids that were still this worker's."""


class ExecutionSource:
    """Executions, over the engine's own connection pool."""

    def __init__(self, pool: AsyncConnectionPool[Any], worker_id: UUID) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._closed = Closed()
        self._closed_until = 0.0
        self._facts = True
        self._facts_until = 0.0

    async def claim(self, ids: Sequence[UUID]) -> list[Claim]:
        async with self._pool.connection() as db:
            closed = await self._read_closed(db)
            if closed.everything:
                await transitions.unqueue_unpublished(db, ids=ids)
                return []
            rows = await transitions.claim_queued(db, ids=ids, worker_id=self._worker_id)
            if not rows:
                return []
            # Of several readings the latest: an anchor may lag behind the true time, never run ahead of it.
            clock = DatabaseClock(max(row["read_at"] for row in rows))
            claims = [claim_of(row, clock) for row in rows]
            read_at = rows[0]["read_at"]
            events.write([claimed(claim, read_at) for claim in claims])
            off = _off(claims, closed)
            if off:
                await transitions.hold_running(db, claims=[c for c in claims if c.id in off], switches=off)
        return [claim for claim in claims if claim.id not in off]

    async def gate(self, claims: Sequence[Claim], *, postponed: Mapping[UUID, Postponed]) -> set[UUID]:
        async with self._pool.connection() as db:
            closed = await self._read_closed(db)
            by_id = {claim.id: claim for claim in claims}
            off = _off(claims, closed)
            stopped = by_id.keys() if closed.everything else off.keys()
            held, postponed = await _begin(db, claims, stopped, postponed)
            cancelled = [by_id[row.id] for row in held if row.cancelled]
            paused = [by_id[row.id] for row in held if row.paused and not row.cancelled]
            if cancelled:
                await transitions.cancel_running(db, claims=cancelled)
                await transitions.tell_overlapped(db, keys=[c.concurrency_key for c in cancelled if c.concurrency_key])
            requeued = await transitions.park_running(db, claims=paused) if paused else []
            free = {row.id for row in held if not row.cancelled and not row.paused}
            if free & stopped:
                await transitions.hold_running(db, claims=[by_id[i] for i in free & stopped], switches=off)
            waiting = (free - stopped) & postponed.keys()
            if waiting:
                await transitions.postpone_running(db, claims=[by_id[i] for i in waiting], postponed=postponed)
        await self._publish(requeued)
        return free - stopped - waiting

    async def give_back(self, claims: Sequence[Claim]) -> None:
        async with self._pool.connection() as db:
            released = await transitions.release_running(db, claims=claims)
        await self._publish(released)

    async def _read_closed(self, db: AsyncConnection[Any]) -> Closed:
        """What is switched off, as of a second ago at most."""
        if time.monotonic() >= self._closed_until:
            self._closed = await switches.read_closed_async(db)
            self._closed_until = time.monotonic() + SWITCH_AGE_S
        return self._closed

    async def _read_facts(self, db: AsyncConnection[Any]) -> bool:
        """Whether there are notification rules, as of a second ago at most."""
        if time.monotonic() >= self._facts_until:
            self._facts = await are_wanted(db)
            self._facts_until = time.monotonic() + SWITCH_AGE_S
        return self._facts

    async def _publish(self, ids: list[UUID]) -> None:
        """Publish rows that are QUEUED again; those whose message fails go back to where a loop finds them at once.

        Dying in between leaves them QUEUED under a short lease, which the monitor finds.
        """
        unsent = await asyncio.to_thread(publish.publish_dispatch, ids) if ids else []
        if unsent:
            async with self._pool.connection() as db:
                await transitions.unqueue_unpublished(db, ids=unsent)

    async def write_results(self, results: Sequence[Result]) -> set[UUID]:
        try:
            return await self._finish(results)
        except (psycopg.DataError, errors.IntegrityError, errors.ProgramLimitExceeded, UnicodeError) as error:
            # One row that Postgres refuses must not send the others again: halve until it is alone, then fail it.
            if len(results) > 1:
                middle = len(results) // 2
                return await self.write_results(results[:middle]) | await self.write_results(results[middle:])
            log.error(
                "result_refused",
                extra={"action": "write_results", "execution_id": str(results[0].claim.id), "error": str(error)},
            )
            return await self._finish([internal_failure(results[0])])

    async def _finish(self, results: Sequence[Result]) -> set[UUID]:
        """Store results, let go what waited for the end of one of them, and tell of what is committed."""
        async with self._pool.connection() as db, db.transaction():
            facts = await self._read_facts(db)
            stored = await transitions.finish_running(db, results=results, facts=facts)
            ended = (r.claim.concurrency_key for r in results if r.state is not State.RETRYING)
            await transitions.tell_overlapped(db, keys=sorted({key for key in ended if key}))
        events.write([finished(r, stored[r.claim.id]) for r in results if r.claim.id in stored])
        return set(stored)


async def _begin(
    db: AsyncConnection[Any], claims: Sequence[Claim], stopped: Set[UUID], postponed: Mapping[UUID, Postponed]
) -> tuple[list[HeldClaim], Mapping[UUID, Postponed]]:
    """Begin the attempts but for these; and but for those that find no place beside others of their job."""
    but = stopped | postponed.keys()
    limited = [claim for claim in claims if claim.limits and claim.id not in but and concurrency.is_limited(claim)]
    if not limited:
        return await transitions.begin_attempts(db, claims=claims, but=but), postponed
    async with db.transaction():
        crowded = await concurrency.find_crowded(db, claims=limited)
        held = await transitions.begin_attempts(db, claims=claims, but=but | crowded.keys())
    return held, {**postponed, **crowded}


def _off(claims: Sequence[Claim], closed: Closed) -> dict[UUID, int]:
    """The switch by claim, for those that one of a workspace or destination stops."""
    return closed.holders((c.id, c.workspace_id, c.target) for c in claims) if closed.in_part else {}


def internal_failure(result: Result) -> Result:
    """The result that stands in for one that cannot be stored."""
    return Result(
        claim=result.claim,
        state=State.FAILED,
        reason="internal",
        status=None,
        error="internal",
        error_text="The result of this attempt could not be stored.",
        dead_reason="internal",
        duration_ms=0.0,
        finished_at=result.finished_at,
    )


def claim_of(row: dict[str, Any], clock: Clock) -> Claim:
    """The claim that a row of the claiming statement stands for."""
    return Claim(
        id=row["id"],
        claim_seq=row["claim_seq"],
        attempt=row["attempt"] + 1,
        started_at=row["started_at"],
        workspace_id=row["workspace_id"],
        job_definition_id=row["job_definition_id"],
        schedule_id=row["schedule_id"],
        scheduled_for=row["scheduled_for"],
        due_at=row["due_at"],
        lease_until=row["lease_until"],
        kind=row["kind"],
        target=row["target"],
        payload=row["payload"],
        timeout_s=row["timeout_s"],
        retry=row["retry"],
        traceparent=row["traceparent"],
        clock=clock,
        concurrency_key=row["concurrency_key"],
        secret_namespaces=tuple(row.get("secret_namespaces", ())),
        limits=row["limits"],
        state_reason=row["state_reason"],
        flow_wait_s=row["flow_wait_s"],
    )
