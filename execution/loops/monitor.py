"""The monitor: every ten seconds it finds what a crash, a lost message or a lost row lock has left, and mends it.

Called by the task `monitor_tick`, which the leading beat replica sends. What it promises: a claim whose worker is gone
is taken back; a QUEUED row whose message was lost is published again; a closed bucket that holds pending work is
reopened; what waited for the end of another and was not told is let go. Each is found by an index. After Postgres was
away, live workers still hold results to write: until the loop has ticked for 45 s without a gap, no lease is taken. Two
at once share the rows; dying half-way leaves the rest for the next tick.
"""

import logging
from dataclasses import asdict, dataclass

from django.db import connection, transaction

from chronos_site.infra.sql import statement
from chronos_site.observability import metrics
from execution import fanout, publish, transitions

log = logging.getLogger(__name__)

NAME = "monitor"
UNKNOWN_CAP = 3
"""Unknown outcomes of one execution, then it is a dead letter."""
BATCH = 2000
GAP_S = 30
"""Ticks further apart than this: the database, or this loop, was away."""
STEADY_S = 45


@dataclass(slots=True)
class Mended:
    """What one tick did."""

    lost_claims: int = 0
    unknown_outcomes: int = 0
    dead_letters: int = 0
    published_again: int = 0
    buckets_reopened: int = 0
    overlaps_released: int = 0
    """Rows that waited for the end of another, which nobody told them of."""
    waits: bool = False
    """No lease was taken: the database has not been back for long enough."""


def mend() -> Mended:
    """One tick."""
    mended = Mended()
    if steady_for_s(NAME) >= STEADY_S:
        _recover_claims(mended)
    else:
        mended.waits = True
    _publish_again(mended)
    mended.buckets_reopened = _reopen_buckets()
    mended.overlaps_released = len(transitions.release_overlapped(keys=None))
    for what, number in asdict(mended).items():
        if what != "waits":
            metrics.mended.add(what, by=number)
    if any(value for name, value in asdict(mended).items() if name != "waits"):
        log.warning("mended", extra={"action": NAME, **asdict(mended)})
    return mended


def steady_for_s(loop: str) -> float:
    """Seconds for which ticks of a loop have come without a gap, and Postgres has been up. Notes this tick."""
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "note_tick"), {"name": loop, "gap_s": GAP_S})
        return float(cursor.fetchone()[0])


def _recover_claims(mended: Mended) -> None:
    with transaction.atomic():
        lost = transitions.recover_lost_claims(most=BATCH, unknown_cap=UNKNOWN_CAP)
    mended.lost_claims = len(lost)
    mended.unknown_outcomes = sum(claim.begun for claim in lost)
    mended.dead_letters = sum(claim.state == "FAILED" for claim in lost)


def _publish_again(mended: Mended) -> None:
    """Never more than the backlog limit lets in; a publish that fails costs a longer lease and nothing else."""
    room = fanout.room_in_backlog() * publish.CHUNK
    if room <= 0:
        return
    with transaction.atomic():
        ids = transitions.extend_queued(most=min(room, BATCH))
    if ids:
        mended.published_again = len(ids) - len(publish.publish_dispatch(ids))


def _reopen_buckets() -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "reopen_buckets"))
        return int(cursor.rowcount)
