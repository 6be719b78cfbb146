"""The gate: the last look before a wave of sends.

In this order: is the worker's own heartbeat fresh; does flow control let the send go now; does each row still stand
under this claim, uncancelled, not paused and not switched off (which begins its attempt); is the attempt's fence free.
Then, for each send by itself, its sender judges the target.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import psycopg

from execution.dispatch.egress import NO_ADDRESS, Verdict
from execution.dispatch.fence import Fence
from execution.dispatch.flow import Flow
from execution.dispatch.judgement import TARGET_REFUSED, result_of
from execution.dispatch.sender import Answer
from execution.dispatch.source import Source
from execution.domain.outcome import Claim, Postponed, Result

log = logging.getLogger(__name__)

RETRY_S = 0.2


@dataclass(slots=True)
class Passed:
    """What the gate says of a wave; claims in no list are left to their lease, or no longer this worker's."""

    begun: list[Claim] = field(default_factory=list)
    """Their attempt has begun; their sender judges each before its send."""
    known: list[Result] = field(default_factory=list)
    """The fence knows what these attempts came to."""
    unasked: list[Claim] = field(default_factory=list)
    """The database was away for too long: nothing was sent, and they are to be given back once it answers."""


class Gate:
    def __init__(self, *, source: Source, flow: Flow, fence: Fence, silent: Callable[[], bool]) -> None:
        self._source = source
        self._flow = flow
        self._fence = fence
        self._silent = silent

    async def look(self, claims: Sequence[Claim]) -> Passed:
        waiting = await self._flow.look(claims)
        begun = await self._begin(claims, waiting)
        if begun is None:
            await self._flow.release([claim for claim in claims if claim.id not in waiting])
            return Passed(unasked=list(claims))
        sent = {claim.id for claim in begun}
        await self._flow.release([claim for claim in claims if claim.id not in sent and claim.id not in waiting])
        if not begun:
            return Passed()
        fenced = await self._fence.take(begun)
        if fenced.held:
            log.warning("fence_held", extra={"action": "gate", "left_to_lease": len(fenced.held)})
            await self._flow.release(fenced.held)
        return Passed(fenced.free, fenced.known)

    async def _begin(self, claims: Sequence[Claim], postponed: Mapping[UUID, Postponed]) -> list[Claim] | None:
        """Begin the attempts; while the database is away, try again until this worker must fall silent: None then."""
        while not self._silent():
            try:
                standing = await self._source.gate(claims, postponed=postponed)
            except psycopg.Error as error:
                log.warning("gate_waits", extra={"action": "gate", "waiting": len(claims), "error": str(error)[:200]})
                await asyncio.sleep(RETRY_S)
                continue
            if self._silent():
                break  # The answer took so long that others may take this worker for dead.
            return [claim for claim in claims if claim.id in standing]
        log.error("gate_silent", extra={"action": "gate", "unsent": len(claims)})
        return None


def not_sent(claim: Claim, verdict: Verdict) -> Result:
    """The result of a target that is not called: refused for good, or tried again where its name has no address now."""
    error = "dns" if verdict.reason == NO_ADDRESS else TARGET_REFUSED
    return result_of(claim, Answer(None, error, verdict.reason), began_at=claim.clock.now(), address=None)
