"""Outgoing notifications as the engine's source: the same engine, guard, retries and fences as executions have.

Dying after the claim leaves the row RUNNING under a lease, which the loop of notifications finds.
"""

import logging
import time
from collections.abc import Mapping, Sequence, Set
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from psycopg import AsyncConnection, errors
from psycopg_pool import AsyncConnectionPool

from chronos_site.infra.clock import DatabaseClock
from execution import switches
from execution.dispatch.source import SWITCH_AGE_S, internal_failure
from execution.domain.outcome import Claim, Clock, Postponed, Result
from execution.domain.targets import HTTP
from execution.models import NotificationChannel
from execution.notifications import transitions
from execution.publish import NOTIFICATIONS_QUEUE
from execution.switches import Closed

log = logging.getLogger(__name__)

RETRY = {"max_attempts": 8, "initial_backoff_s": 5, "multiplier": 3, "max_backoff_s": 900}
"""Up to eight attempts, the last about an hour after the first."""
SWITCHED_OFF_S = 5.0
"""What a dispatch switch stops asks again after so long."""


class NotificationSource:
    """Outgoing notifications, over the engine's own connection pool."""

    def __init__(self, pool: AsyncConnectionPool[Any], worker_id: UUID) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._closed = Closed()
        self._closed_until = 0.0

    async def claim(self, ids: Sequence[UUID]) -> list[Claim]:
        async with self._pool.connection() as db:
            closed = await self._read_closed(db)
            if NOTIFICATIONS_QUEUE in closed.queues:
                return []  # They stay as they are; the loop publishes them again.
            rows = await transitions.claim_queued(db, ids=ids, worker_id=self._worker_id)
        if not rows:
            return []
        clock = DatabaseClock(max(row["read_at"] for row in rows))
        return [_claim_of(row, clock) for row in rows]

    async def gate(self, claims: Sequence[Claim], *, postponed: Mapping[UUID, Postponed]) -> set[UUID]:
        async with self._pool.connection() as db:
            closed = await self._read_closed(db)
            by_id = {claim.id: claim for claim in claims}
            stopped: Set[UUID] = by_id.keys() if NOTIFICATIONS_QUEUE in closed.queues else _off(claims, closed)
            held = await transitions.begin_attempts(db, claims=claims, but=stopped | postponed.keys())
            off_until = claims[0].clock.now() + timedelta(seconds=SWITCHED_OFF_S)
            waits = {**dict.fromkeys(stopped, Postponed(off_until, "dispatch_switch")), **postponed}
            waiting = held & waits.keys()
            if waiting:
                await transitions.put_off(db, claims=[by_id[i] for i in waiting], postponed=waits)
        return held - waiting

    async def give_back(self, claims: Sequence[Claim]) -> None:
        async with self._pool.connection() as db:
            await transitions.release(db, claims=claims, now=claims[0].clock.now())

    async def write_results(self, results: Sequence[Result]) -> set[UUID]:
        try:
            async with self._pool.connection() as db, db.transaction():
                return await transitions.finish(db, results=results)
        except (psycopg.DataError, errors.IntegrityError, errors.ProgramLimitExceeded, UnicodeError) as error:
            # One row that Postgres refuses must not send the others again: halve until it is alone, then fail it.
            if len(results) > 1:
                middle = len(results) // 2
                return await self.write_results(results[:middle]) | await self.write_results(results[middle:])
            log.error(
                "result_refused",
                extra={"action": "write_results", "notification_id": str(results[0].claim.id), "error": str(error)},
            )
            async with self._pool.connection() as db, db.transaction():
                return await transitions.finish(db, results=[internal_failure(results[0])])

    async def _read_closed(self, db: AsyncConnection[Any]) -> Closed:
        """What is switched off, as of a second ago at most."""
        if time.monotonic() >= self._closed_until:
            self._closed = await switches.read_closed_async(db)
            self._closed_until = time.monotonic() + SWITCH_AGE_S
        return self._closed


def _claim_of(row: dict[str, Any], clock: Clock) -> Claim:
    kind = row["channel_kind"]
    site = row["workspace_id"] is None
    return Claim(
        id=row["id"],
        claim_seq=row["claim_seq"],
        attempt=row["attempt"] + 1,
        started_at=row["started_at"],
        workspace_id=row["workspace_id"],
        job_definition_id=None,
        schedule_id=None,
        scheduled_for=row["created_at"],
        due_at=row["read_at"],
        lease_until=row["lease_until"],
        kind=HTTP if kind == NotificationChannel.Kind.WEBHOOK else kind,
        target=row["target"],
        payload=row["payload"],
        timeout_s=transitions.TIMEOUT_S,
        retry=RETRY,
        traceparent=row["traceparent"],
        clock=clock,
        secret_namespaces=tuple(settings.CHRONOS_SITE_SECRET_NAMESPACES if site else row["secret_namespaces"] or ()),
        state_reason=row["state_reason"],
        flow_wait_s=row["flow_wait_s"],
    )


def _off(claims: Sequence[Claim], closed: Closed) -> set[UUID]:
    """Those that a switch of a workspace or destination stops."""
    return set(closed.holders((c.id, c.workspace_id, c.target) for c in claims)) if closed.in_part else set()
