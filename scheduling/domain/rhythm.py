"""The nominal times of a recurring schedule, whether cron or interval, between its start and its end. Pure.

Called by the loop that materialises, by the judge of misfires, by previews and backfills. Times come in UTC. The next
is always computed from the nominal time before it, never from now, so nothing drifts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

from scheduling.domain import cron, intervals

_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Either `expression` with its `timezone`, or `every_s` with its `anchor`."""

    expression: str = ""
    timezone: str = "UTC"
    every_s: int = 0
    anchor: datetime | None = None
    starts_at: datetime | None = None
    """No occurrence lies before it."""
    ends_at: datetime | None = None
    """No occurrence lies after it."""

    def after(self, moment: datetime) -> datetime | None:
        """The first occurrence strictly after `moment`; None where there is none any more."""
        return next(self._forwards(moment), None)

    def has(self, moment: datetime) -> bool:
        """Whether an occurrence lies at that very moment."""
        return self.after(moment - _INSTANT) == moment

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The first `limit` occurrences after `after` and not after `until`, in order."""
        return list(islice(takewhile(lambda at: at <= until, self._forwards(after)), limit))

    def coming(self, first: datetime, until: datetime, limit: int) -> tuple[list[datetime], datetime | None]:
        """The first `limit` occurrences from `first` to `until`, both included, and the one that follows them."""
        times: list[datetime] = []
        for at in self._forwards(first - _INSTANT):
            if at > until or len(times) >= limit:
                return times, at
            times.append(at)
        return times, None

    def back(self, at_or_before: datetime) -> Iterator[datetime]:
        """Occurrences at or before that moment, the latest first, found as they are asked for."""
        latest = at_or_before if self.ends_at is None else min(at_or_before, self.ends_at)
        found = (
            cron.fires_back(self.expression, self.timezone, latest)
            if self.expression
            else intervals.fires_back(self.every_s, self._anchored(), latest)
        )
        for at in found:
            if self.starts_at is not None and at < self.starts_at:
                return
            yield at.astimezone(UTC)

    def count(self, after: datetime, until: datetime) -> int:
        """How many occurrences there are after `after` and not after `until`; the cost does not grow with them."""
        first, last = self._clipped(after), until if self.ends_at is None else min(until, self.ends_at)
        if last <= first:
            return 0
        if self.expression:
            return cron.count_between(self.expression, self.timezone, first, last)
        return intervals.count_between(self.every_s, self._anchored(), first, last)

    def _forwards(self, after: datetime) -> Iterator[datetime]:
        first = self._clipped(after)
        found = (
            cron.fires_after(self.expression, self.timezone, first)
            if self.expression
            else intervals.fires_after(self.every_s, self._anchored(), first)
        )
        return (
            at.astimezone(UTC)
            for at in (found if self.ends_at is None else takewhile(lambda at: at <= self._end(), found))
        )

    def _clipped(self, after: datetime) -> datetime:
        return after if self.starts_at is None else max(after, self.starts_at - _INSTANT)

    def _anchored(self) -> datetime:
        assert self.anchor is not None  # noqa: S101 - an interval has one
        return self.anchor

    def _end(self) -> datetime:
        assert self.ends_at is not None  # noqa: S101 - asked for where there is one
        return self.ends_at
