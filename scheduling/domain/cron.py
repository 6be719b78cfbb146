"""When a cron schedule fires: the door to everything else in this package that knows cron.

Called when a schedule is stored (`parse`), previewed, materialised and judged after a downtime. Pure: no clock, no
state but bounded caches. Answers are aware datetimes at the zone's plain offset, whole seconds, strictly ordered.
Errors are `InvalidSchedule` (code `invalid`) and `NeverFires` (code `never_fires`), both `ScheduleError`.

Grammar: `grammar`. Which wall times match: `pattern`. Which instants they are, and what clock changes do: `walk`.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import islice

from scheduling.domain import walk
from scheduling.domain.errors import InvalidSchedule, NeverFires, ScheduleError, shown
from scheduling.domain.grammar import LONGEST, read
from scheduling.domain.pattern import Cron
from scheduling.domain.zones import check_zone, instant_of, zone_names

__all__ = [
    "Cron",
    "InvalidSchedule",
    "NeverFires",
    "ScheduleError",
    "check_zone",
    "count_between",
    "fires_after",
    "fires_back",
    "fires_between",
    "next_fires",
    "parse",
    "previous_fire",
    "zone_names",
]


def parse(expression: str) -> Cron:
    """The compiled form of `expression`, cached. Raises InvalidSchedule, or NeverFires where no date fits."""
    if isinstance(expression, str) and len(expression) <= LONGEST:
        return _parse(expression)
    return read(expression)  # refuses it; nothing that long enters the cache


def next_fires(expression: str | Cron, timezone: str, after: datetime, count: int) -> list[datetime]:
    """The next `count` fires strictly after `after`; fewer where there are no more before the year 9999 ends.

    Raises NeverFires where there is not one.
    """
    if count < 0:
        raise ValueError("count is 0 or more.")
    cron = _compiled(expression)
    found = list(islice(fires_after(cron, timezone, after), count))
    if count and not found:
        raise NeverFires(
            "expression",
            f"The expression {shown(cron.expression)} never fires in {timezone} after {after.isoformat()}.",
        )
    return found


def previous_fire(expression: str | Cron, timezone: str, at_or_before: datetime) -> datetime | None:
    """The latest fire at or before that moment; None where there is none."""
    return next(fires_back(expression, timezone, at_or_before), None)


def fires_between(
    expression: str | Cron, timezone: str, after: datetime, until: datetime, limit: int
) -> list[datetime]:
    """The first `limit` fires after `after` and not after `until`, in order."""
    end = instant_of(until)
    found: list[datetime] = []
    for fire in walk.forwards(_compiled(expression), _zone(timezone), instant_of(after)):
        if fire.instant > end or len(found) >= limit:
            break
        found.append(fire.span.local(fire.instant))
    return found


def count_between(expression: str | Cron, timezone: str, after: datetime, until: datetime) -> int:
    """How many fires there are after `after` and not after `until`; the cost does not grow with their number."""
    return walk.count(_compiled(expression), _zone(timezone), instant_of(after), instant_of(until))


def fires_after(expression: str | Cron, timezone: str, after: datetime) -> Iterator[datetime]:
    """Fires strictly after `after`, in order, found as they are asked for."""
    fires = walk.forwards(_compiled(expression), _zone(timezone), instant_of(after))
    return (fire.span.local(fire.instant) for fire in fires)


def fires_back(expression: str | Cron, timezone: str, at_or_before: datetime) -> Iterator[datetime]:
    """Fires at or before that moment, the latest first, found as they are asked for."""
    fires = walk.backwards(_compiled(expression), _zone(timezone), instant_of(at_or_before))
    return (fire.span.local(fire.instant) for fire in fires)


def _compiled(expression: str | Cron) -> Cron:
    return expression if isinstance(expression, Cron) else parse(expression)


def _zone(timezone: str) -> str:
    check_zone(timezone)
    return timezone


@lru_cache(maxsize=4096)
def _parse(expression: str) -> Cron:
    return read(expression)
