"""The walk over real instants: which of them a cron expression means in a time zone, forwards and backwards.

The rule, which is that of Debian's cron made exact. Within a span of one offset the wall time runs on, and every match
is a fire. Where the clock is put forward, a fixed job (neither minute nor hour starts with `*`) with a match among the
wall times that do not exist fires once, at the first instant after the gap; a regular match at that instant is the same
fire. Where the clock is put back, a fixed job fires in the first pass only. Every other job is a rhythm: what does not
exist is left out, both passes fire.

The work is bounded: the walk steps from match to match or from change to change, leaps over years without a match, and
gives up where a century holds no fire (`*/15 2 25-31 3 */7` in Berlin matches only times that never exist).
"""

from collections.abc import Iterator
from typing import NamedTuple

from scheduling.domain.pattern import DAY, Cron
from scheduling.domain.zones import FIRST, LAST, Span, span_at

CENTURY = 100 * 366 * DAY
MARGIN = 3 * DAY
"""More than two offsets can differ: a leap to this much before a wall time cannot pass its instant."""


class Fire(NamedTuple):
    """One instant at which a schedule fires."""

    instant: int
    span: Span
    moved: bool
    """At the end of a gap, in place of one or more wall times that do not exist."""


def forwards(cron: Cron, zone: str, after: int) -> Iterator[Fire]:
    """All fires strictly after the instant `after`, in order."""
    at = max(after + 1, FIRST)
    end = at + CENTURY
    while at <= min(end, LAST):
        span = span_at(zone, at)
        wall = at + span.offset
        if at == span.start and _swallowed(cron, span):
            yield Fire(at, span, moved=True)
            end, wall = at + CENTURY, wall + 1
        wall = max(wall, _first_wall(cron, span))
        match = cron.at_or_after(wall)
        while match is not None and match - span.offset < span.end:
            yield Fire(match - span.offset, span, moved=False)
            end, wall = match + CENTURY, match + 1
            match = cron.at_or_after(wall)
        if match is None:
            return
        at = span.end
        if wall <= at + span.offset - DAY:  # no later instant has a wall time before `wall`
            at = max(at, match - MARGIN)


def backwards(cron: Cron, zone: str, at_or_before: int) -> Iterator[Fire]:
    """All fires at or before the instant `at_or_before`, the latest first."""
    at = min(at_or_before, LAST)
    end = at - CENTURY
    while at >= max(end, FIRST):
        span = span_at(zone, at)
        moved = _swallowed(cron, span)
        first = _first_wall(cron, span) + (1 if moved else 0)
        wall = at + span.offset
        match = cron.at_or_before(wall)
        while match is not None and match >= first:
            yield Fire(match - span.offset, span, moved=False)
            end, wall = match - CENTURY, match - 1
            match = cron.at_or_before(wall)
        if moved:
            yield Fire(span.start, span, moved=True)
            end = span.start - CENTURY
        if match is None:
            return
        at = span.start - 1
        if wall >= span.start + span.offset + DAY:  # no earlier instant has a wall time after `wall`
            at = min(at, match + MARGIN)


def count(cron: Cron, zone: str, after: int, until: int) -> int:
    """How many fires `forwards` and `backwards` find after `after` and not after `until`, without listing them."""
    at, total = max(after + 1, FIRST), 0
    until = min(until, LAST)
    while at <= until:
        span = span_at(zone, at)
        end = min(span.end, until + 1)
        wall = max(at + span.offset, _first_wall(cron, span))
        if at == span.start and _swallowed(cron, span):
            total, wall = total + 1, wall + 1
        total += cron.count_between(wall, end + span.offset)
        at = end
    return total


def swallowed(cron: Cron, span: Span) -> int | None:
    """The first matching wall time in the gap before `span`, if there is one."""
    if span.offset <= span.before:
        return None
    match = cron.at_or_after(span.start + span.before)
    return match if match is not None and match < span.start + span.offset else None


def _swallowed(cron: Cron, span: Span) -> bool:
    return cron.fixed and swallowed(cron, span) is not None


def _first_wall(cron: Cron, span: Span) -> int:
    """The first wall time of `span` that may fire: for fixed jobs the one behind what the change repeats."""
    return span.start + (max(span.offset, span.before) if cron.fixed else span.offset)
