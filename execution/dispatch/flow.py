"""Flow control: what may not be sent yet, though it is due, and when it may.

Asked by the gate right before it begins the attempts of a wave: whether this worker has a place for the send, then the
breaker of the destination, then the rate of the job definition, so that no probe and no turn is spent on what would not
be sent. (How many of a job are under way with all workers together is asked where the attempts begin: `concurrency`.)
What is postponed goes RUNNING → RETRYING with a reason that begins with `flow_` and is charged nothing. Limits and
breakers are kept in Redis; while Redis is away the sends go on, and a counter says how many went unlimited.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import redis.asyncio
from redis.exceptions import RedisError

from execution.dispatch.breaker import Breakers
from execution.dispatch.places import Places
from execution.dispatch.rate import RateLimiter
from execution.domain.limits import InvalidLimits, Limits, RateLimit
from execution.domain.outcome import Claim, Postponed, Result

log = logging.getLogger(__name__)

PATIENCE_S = 0.5
PAUSE_S = 5.0
"""After a failure Redis is left alone for so long, so that its absence does not delay sends."""

A = TypeVar("A")
T = TypeVar("T")


class Flow:
    """For one event loop. `unlimited` counts the sends that were limited and went on while Redis was away."""

    def __init__(self, client: redis.asyncio.Redis, *, places: Places) -> None:
        self._places = places
        self._breakers = Breakers(client)
        self._rates = RateLimiter(client)
        self._away_until = 0.0
        self.unlimited = 0

    async def look(self, claims: Sequence[Claim]) -> dict[UUID, Postponed]:
        """What is to wait, and until when. Never raises for want of Redis."""
        waiting: dict[UUID, Postponed] = {}
        for claim, wait_s, reason in self._places.ask(claims):
            waiting[claim.id] = postponed(claim, wait_s, reason)
        placed = [claim for claim in claims if claim.id not in waiting]
        for claim, wait_s, reason in await self._try(self._breakers.ask, placed) or []:
            waiting[claim.id] = postponed(claim, wait_s, reason)
        limited = [(c, rate) for c in claims if c.id not in waiting and (rate := _rate_of(c)) is not None]
        if limited:
            over = await self._try(self._rates.ask, limited)
            if over is None:
                self.unlimited += len(limited)
                log.warning("flow_unlimited", extra={"action": "flow", "unlimited": self.unlimited})
            for claim, wait_s, reason in over or []:
                waiting[claim.id] = postponed(claim, wait_s, reason)
            # A probe whose rate puts it off would keep the destination half-open, with nobody on the way there.
            await self.release([claim for claim, _, _ in over or []])
        return waiting

    async def release(self, claims: Sequence[Claim]) -> None:
        """These were let through, and then not sent after all."""
        await self._try(self._breakers.release, claims)

    async def record(self, results: Sequence[Result]) -> None:
        """What was sent, and what came of it."""
        await self._try(self._breakers.record, results)

    async def _try(self, ask: Callable[[Sequence[A]], Awaitable[T]], things: Sequence[A]) -> T | None:
        """The answer; None while Redis is away."""
        if time.monotonic() < self._away_until:
            return None
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await ask(things)
        except (RedisError, OSError, TimeoutError) as error:
            self._away_until = time.monotonic() + PAUSE_S
            log.warning("flow_away", extra={"action": "flow", "error": repr(error)})
            return None


def postponed(claim: Claim, wait_s: float, reason: str) -> Postponed:
    """Wait so long from now, or from the claim's due time where that is still ahead."""
    return Postponed(max(claim.due_at, claim.clock.now()) + timedelta(seconds=wait_s), reason)


def _rate_of(claim: Claim) -> RateLimit | None:
    """Limits are checked when they are stored; what cannot be read limits nothing."""
    if not claim.limits or claim.job_definition_id is None:
        return None
    try:
        return Limits.from_dict(claim.limits).rate
    except (InvalidLimits, TypeError):
        return None
