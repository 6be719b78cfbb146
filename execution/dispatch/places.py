"""Places of one worker process: how many sends to one host, or of one job, may be under way beside all the others.

A host may hold twice as many as are left free, a job as many as are left free. So one slow receiver alone gets two
thirds of them, two get two fifths each, and however many there are, others always find a place. There is no number to
set. Kept in memory: a place dies with its process.

Asked before the attempts of a wave begin. Who finds no place with a quick receiver waits here for a moment. With a slow
one it asks again later, at no charge, and the later the longer the queue before it: rows that come and go each second
would cost the database more than the sends.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from execution.dispatch.destination import origin_of_target
from execution.domain.outcome import Claim

REASON = "flow_in_flight"
HOST_SHARE, JOB_SHARE = 2, 1
"""How many times what is left free one host, and one job, may hold."""
SHORTEST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
QUICK_S = 0.25
"""Receivers whose sends last no longer are quick: their places are free again before anybody would miss them."""
NEWEST_WEIGHT = 0.1
FORGET_ABOVE = 4096

Key = str | UUID


@dataclass(slots=True)
class _Place:
    """One host, or one job."""

    under_way: int = 0
    lasts_s: float = 0.0
    """How long a send lasts, the newest weighted most."""
    moved: float = 0.0
    """When a send last ended, or began where none was under way; seconds of the monotonic clock, as below."""
    next_free: float = 0.0
    """When a place is thought to be free for the next one that finds none."""

    @property
    def slow(self) -> bool:
        return self.lasts_s > QUICK_S or (self.under_way > 0 and time.monotonic() - self.moved > QUICK_S)

    def wait_s(self, most: int) -> float:
        """So long does the next one wait that finds no place among so many."""
        now = time.monotonic()
        lasts_s = max(self.lasts_s, QUICK_S)
        self.next_free = min(max(now, self.next_free) + lasts_s / max(1, most), now + LONGEST_WAIT_S)
        return max(SHORTEST_WAIT_S, self.next_free - now)


class Places:
    """For one event loop."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._by_key: defaultdict[Key, _Place] = defaultdict(_Place)

    def crowded(self, claims: Sequence[Claim]) -> list[Claim]:
        """Which of these find no place now and will find one in a moment."""
        return [claim for claim, full in self._without_place(claims) if not any(self._by_key[key].slow for key in full)]

    def ask(self, claims: Sequence[Claim]) -> list[tuple[Claim, float, str]]:
        """Which of these find no place beside those under way: the seconds to wait, and the reason."""
        free = self._total - self._taken
        return [
            (claim, max(self._by_key[key].wait_s(free) for key in full), REASON)
            for claim, full in self._without_place(claims)
        ]

    def take(self, claim: Claim) -> None:
        self._taken += 1
        for key in _keys(claim):
            place = self._by_key[key]
            if not place.under_way:
                place.moved = time.monotonic()
            place.under_way += 1

    def leave(self, claim: Claim, *, lasted_s: float) -> None:
        """The send has ended, one way or the other."""
        self._taken -= 1
        for key in _keys(claim):
            place = self._by_key[key]
            place.under_way -= 1
            place.moved = time.monotonic()
            place.lasts_s += NEWEST_WEIGHT * (lasted_s - place.lasts_s)
        if len(self._by_key) > FORGET_ABOVE:
            for key in [key for key, place in self._by_key.items() if not place.under_way]:
                del self._by_key[key]

    def _without_place(self, claims: Sequence[Claim]) -> Iterator[tuple[Claim, list[Key]]]:
        """Those for which the host or the job has none left if all before them go, and which of the two."""
        if 2 * (self._taken + len(claims)) < self._total:
            return  # Less than half would be taken: nobody could hold as many as are left.
        asking: defaultdict[Key, int] = defaultdict(int)
        free = self._total - self._taken
        for claim in claims:
            keys = _keys(claim)
            full = [
                key
                for key, share in zip(keys, (HOST_SHARE, JOB_SHARE), strict=False)
                if self._by_key[key].under_way + asking[key] >= max(1, share * free)
            ]
            if full:
                yield claim, full
                continue
            free -= 1
            for key in keys:
                asking[key] += 1


def _keys(claim: Claim) -> tuple[Key, ...]:
    """The host, and the job where there is one."""
    origin = origin_of_target(claim.target)
    return (origin,) if claim.job_definition_id is None else (origin, claim.job_definition_id)
