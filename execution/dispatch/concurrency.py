"""max_concurrency: so many executions of a job definition have a send under way at once, across all workers.

Counted in Postgres, from the rows themselves: RUNNING with a begun attempt. There is no place to give back, and so none
that can be lost: a worker that is killed keeps its places until the monitor takes its claims. Asked for in the
transaction that begins the attempts, under a lock for each job; jobs without the limit pay nothing.
"""

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from execution.dispatch.flow import postponed
from execution.domain.outcome import Claim, Postponed

REASON = "flow_concurrency"
LOCK_SPACE = 0x666C_6F77
"""Namespace of the advisory locks, one for each job."""
SHORTEST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
EACH_S = 0.25
"""So far apart do those that find no place ask again, for each place."""

CountUnderWay = Callable[[AsyncConnection[Any], Sequence[UUID], Sequence[UUID]], Awaitable[dict[UUID, int]]]
"""(connection, job definitions, claims that ask) → sends under way by job definition, but for those that ask."""

_spread = random.Random()  # noqa: S311 - spreads waits, guards nothing


def is_limited(claim: Claim) -> bool:
    return claim.job_definition_id is not None and isinstance(claim.limits.get("max_concurrency"), int)


async def find_crowded(
    db: AsyncConnection[Any], *, claims: Sequence[Claim], beside: CountUnderWay | None = None
) -> dict[UUID, Postponed]:
    """Which of these limited claims find no place, and when they ask again. Call in the transaction that begins them.

    `beside` counts what another source has under way of the same job definitions. First due, first served. A claim of
    the wave that has begun already (the reply was lost) counts as one that asks.
    """
    by_job: dict[UUID, list[Claim]] = defaultdict(list)
    for claim in sorted(claims, key=lambda claim: (claim.due_at, claim.id)):
        if claim.job_definition_id is not None:
            by_job[claim.job_definition_id].append(claim)
    jobs = sorted(by_job)
    await db.execute(
        "SELECT pg_advisory_xact_lock(%s::int, hashtext(job::text)) FROM unnest(%s::uuid[]) AS job",
        [LOCK_SPACE, jobs],
    )
    # A statement of its own: its snapshot must be from after the lock.
    cursor = await db.execute(
        "SELECT job_definition_id, count(*) FROM execution_execution WHERE job_definition_id = ANY(%s)"
        " AND state = 'RUNNING' AND limits ? 'max_concurrency' AND begun_seq = claim_seq AND NOT id = ANY(%s)"
        " GROUP BY job_definition_id",
        [jobs, [claim.id for claim in claims]],
    )
    under_way: dict[UUID, int] = dict(await cursor.fetchall())
    if beside is not None:
        for job, count in (await beside(db, jobs, [claim.id for claim in claims])).items():
            under_way[job] = under_way.get(job, 0) + count
    crowded: dict[UUID, Postponed] = {}
    for job, asking in by_job.items():
        taken, over = under_way.get(job, 0), 0
        for claim in asking:
            most = int(claim.limits["max_concurrency"])
            if taken < most:
                taken += 1
                continue
            crowded[claim.id] = postponed(claim, _wait_s(over, most), REASON)
            over += 1
    return crowded


def _wait_s(over: int, most: int) -> float:
    return _spread.uniform(1.0, 1.2) * min(LONGEST_WAIT_S, SHORTEST_WAIT_S + over * EACH_S / most)
