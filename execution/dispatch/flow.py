"""Flow control: what may not be sent yet, though it is due, and when it may.

Asked by the gate right before it begins the attempts of a wave. What is postponed goes RUNNING → RETRYING with a reason
that begins with `flow_` and is charged nothing. Limits are kept in Redis; while Redis is away the sends go on, and a
counter says how many went unlimited.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import redis.asyncio
from redis.exceptions import RedisError

from execution.dispatch.rate import RateLimiter
from execution.domain.limits import InvalidLimits, Limits, RateLimit
from execution.domain.outcome import Claim, Postponed

log = logging.getLogger(__name__)

PATIENCE_S = 0.5
PAUSE_S = 5.0
"""After a failure Redis is left alone for so long, so that its absence does not delay sends."""


class Flow:
    """For one event loop. `unlimited` counts the sends that were limited and went on while Redis was away."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._rates = RateLimiter(client)
        self._away_until = 0.0
        self.unlimited = 0

    async def look(self, claims: Sequence[Claim]) -> dict[UUID, Postponed]:
        """What is to wait, and until when. Never raises for want of Redis."""
        limited = [(claim, rate) for claim in claims if (rate := _rate_of(claim)) is not None]
        if not limited:
            return {}
        if time.monotonic() < self._away_until:
            self.unlimited += len(limited)
            return {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                over = await self._rates.ask(limited)
        except (RedisError, OSError, TimeoutError) as error:
            self._away_until = time.monotonic() + PAUSE_S
            self.unlimited += len(limited)
            log.warning("flow_away", extra={"action": "flow", "error": repr(error), "unlimited": self.unlimited})
            return {}
        return {claim.id: postponed(claim, wait_s, reason) for claim, wait_s, reason in over}


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
