"""The gate: the last look before a wave of sends.

In this order: is the worker's own heartbeat fresh; does each row still stand under this claim, uncancelled and not
paused (which begins its attempt); does the egress guard allow the target; is the attempt's fence free.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psycopg
from psycopg_pool import PoolTimeout

from execution.dispatch.egress import Network, Verdict, judge
from execution.dispatch.fence import Fence
from execution.dispatch.source import Source
from execution.domain.outcome import Claim, Result
from execution.domain.states import State

log = logging.getLogger(__name__)

RETRY_S = 0.2
RESOLVE_S = 5.0
REMEMBER_S = 1.0
"""An answer of the resolver serves the sends of one second: each is judged, and connects to what was judged."""


@dataclass(slots=True)
class Passed:
    """What the gate says of a wave; claims in neither list are left to their lease, or no longer this worker's."""

    send: list[tuple[Claim, Verdict]] = field(default_factory=list)
    decided: list[Result] = field(default_factory=list)
    """Results without a send: refused targets, and attempts that the fence knows."""


class Gate:
    def __init__(self, *, source: Source, fence: Fence, allow: Sequence[Network], silent: Callable[[], bool]) -> None:
        self._source = source
        self._fence = fence
        self._allow = tuple(allow)
        self._silent = silent
        self._resolved: dict[str, tuple[float, list[str]]] = {}

    async def look(self, claims: Sequence[Claim]) -> Passed:
        passed = Passed()
        begun = await self._begin(claims)
        if not begun:
            return passed
        fenced = await self._fence.take(begun)
        passed.decided.extend(fenced.known)
        verdicts = await asyncio.gather(*(self._judge(claim) for claim in fenced.free))
        for claim, verdict in zip(fenced.free, verdicts, strict=True):
            if verdict.allowed:
                passed.send.append((claim, verdict))
            else:
                passed.decided.append(refused(claim, verdict))
        if fenced.held:
            log.warning("fence_held", extra={"action": "gate", "left_to_lease": len(fenced.held)})
        return passed

    async def _begin(self, claims: Sequence[Claim]) -> list[Claim]:
        """Begin the attempts; while the database is away, try again until this worker must fall silent."""
        while not self._silent():
            try:
                standing = await self._source.gate(claims)
            except (psycopg.OperationalError, PoolTimeout) as error:
                log.warning("gate_waits", extra={"action": "gate", "waiting": len(claims), "error": str(error)[:200]})
                await asyncio.sleep(RETRY_S)
                continue
            return [claim for claim in claims if claim.id in standing]
        log.error("gate_silent", extra={"action": "gate", "left_to_lease": len(claims)})
        return []

    async def _judge(self, claim: Claim) -> Verdict:
        """Resolve first, on a thread and at most for `RESOLVE_S`; then judge what was found."""
        url = str(claim.target["url"])
        hosts: list[str] = []

        def note(host: str) -> list[str]:
            hosts.append(host)
            return []

        verdict = judge(url, note, allow=self._allow)
        if not hosts:
            return verdict
        addresses = await self._resolve(hosts[0])
        return judge(url, lambda _host: addresses, allow=self._allow)

    async def _resolve(self, host: str) -> list[str]:
        known = self._resolved.get(host)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, TimeoutError):
            return []
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if len(self._resolved) > 10_000:
            self._resolved.clear()
        self._resolved[host] = (time.monotonic() + REMEMBER_S, addresses)
        return addresses


def refused(claim: Claim, verdict: Verdict) -> Result:
    """The result of a target that the egress guard does not allow."""
    return Result(
        claim=claim,
        state=State.FAILED,
        reason="target_refused",
        status=None,
        error="target_refused",
        dead_reason="target_refused",
        error_text=verdict.reason,
        duration_ms=0.0,
        finished_at=datetime.now(UTC),
    )
