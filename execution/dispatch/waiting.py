"""Claims that wait for their second, and come out of it in waves, the earliest first."""

import asyncio
import heapq
import itertools
from collections.abc import Iterable

from execution.dispatch.places import Places
from execution.domain.outcome import Claim

GATE_LEAD_S = 0.05
"""The gate is passed so long before the due time; the send itself waits for it."""
CROWDED_S = 0.02
"""Who finds no place with a quick receiver looks again after so long."""
WAVE = 500


class Waiting:
    """For one event loop."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Claim]] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._push(claim, claim.due_at.timestamp())
        self._wake.set()

    def wake(self) -> None:
        """Whoever sleeps looks again."""
        self._wake.set()

    def pop_all(self) -> list[Claim]:
        """Everything, due or not."""
        claims = [claim for _due_s, _order, claim in sorted(self._heap)]
        self._heap.clear()
        return claims

    def pop_wave(self) -> list[Claim]:
        """What is due soon and has a place, or will not have one soon; perhaps nothing."""
        wave: list[Claim] = []
        while self._heap and len(wave) < WAVE and self._early_s() <= 0:
            wave.append(heapq.heappop(self._heap)[2])
        crowded = self._places.crowded(wave)
        if not crowded:
            return wave
        for claim in crowded:
            self._push(claim, claim.clock.now_s() + GATE_LEAD_S + CROWDED_S)
        left_out = {claim.id for claim in crowded}
        return [claim for claim in wave if claim.id not in left_out]

    async def sleep(self) -> None:
        """Until the earliest is due soon, or somebody wakes."""
        self._wake.clear()
        try:
            async with asyncio.timeout(max(0.0, self._early_s()) if self._heap else None):
                await self._wake.wait()
        except TimeoutError:
            return

    def _push(self, claim: Claim, due_s: float) -> None:
        heapq.heappush(self._heap, (due_s, next(self._order), claim))

    def _early_s(self) -> float:
        """Seconds until the earliest is to pass the gate."""
        due_s, _order, claim = self._heap[0]
        return due_s - claim.clock.now_s() - GATE_LEAD_S
