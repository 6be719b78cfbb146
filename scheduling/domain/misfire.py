"""What becomes of nominal times that were missed: which fire late, which are skipped, and why.

Called under the schedule's lock, after a downtime, a pause or a lost race with `start_deadline`. The missed times come
in as they are found, the latest first (`cron.fires_back`, `intervals.fires_back`), and no more of them are taken than
can fire: a schedule of every second that was down for months costs what one fire costs. What is skipped is not listed;
`Verdict.reason` tells it for any missed time, and `count_between` counts them.

Policies: `skip` fires none; `fire_once` fires the latest; `fire_all` fires the latest `limit`. None of them fires a
time that is older than the catch-up window.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile


class Policy(StrEnum):
    """What a schedule asks for."""

    SKIP = "skip"
    FIRE_ONCE = "fire_once"
    FIRE_ALL = "fire_all"


class Reason(StrEnum):
    """Why a missed time is skipped."""

    POLICY = "policy"
    """The schedule asks to skip."""
    SUPERSEDED = "superseded"
    """A later time fires in its place."""
    TOO_OLD = "too_old"
    """It is older than the catch-up window."""
    OVER_LIMIT = "over_limit"
    """As many later times as may fire at once come before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement over all missed times of one schedule."""

    fire: tuple[datetime, ...]
    """The missed times that fire now, in UTC, the oldest first."""
    policy: Policy
    since: datetime | None
    """The begin of the catch-up window; None where there is none."""

    def reason(self, missed: datetime) -> Reason | None:
        """Why that missed time is skipped; None where it fires."""
        at = missed.astimezone(UTC)
        if at in self.fire:
            return None
        if self.policy is Policy.SKIP:
            return Reason.POLICY
        if self.since is not None and at < self.since:
            return Reason.TOO_OLD
        return Reason.SUPERSEDED if self.policy is Policy.FIRE_ONCE else Reason.OVER_LIMIT


def judge(
    missed: Iterable[datetime], *, now: datetime, policy: Policy | str, window_s: float | None, limit: int
) -> Verdict:
    """Judge `missed`, aware times not after `now`, the latest first; `limit` is for `fire_all`.

    A time exactly `window_s` old still fires; None sets no window. Raises ValueError where the times are in another
    order, where one is in the future, and where there is no such policy.
    """
    policy = Policy(policy)
    if limit < 1 or (window_s is not None and not window_s >= 0):
        raise ValueError("limit is 1 or more, window_s is 0 or more seconds.")
    since = None if window_s is None else _earlier(now.astimezone(UTC), window_s)
    most = {Policy.SKIP: 0, Policy.FIRE_ONCE: 1, Policy.FIRE_ALL: limit}[policy]
    young = takewhile(lambda at: since is None or at >= since, _descending(missed, now.astimezone(UTC)))
    return Verdict(fire=tuple(islice(young, most))[::-1], policy=policy, since=since)


def _descending(missed: Iterable[datetime], now: datetime) -> Iterator[datetime]:
    """The missed times in UTC, where wall clocks cannot confuse their order."""
    last = None
    for moment in missed:
        at = moment.astimezone(UTC)
        if at > now or (last is not None and at >= last):
            raise ValueError("Missed times are not after now and come the latest first.")
        last = at
        yield at


def _earlier(moment: datetime, seconds: float) -> datetime | None:
    try:
        return moment - timedelta(seconds=seconds)
    except OverflowError:  # a window that reaches before the calendar is none
        return None
