"""How close together a cron expression fires: what a minimum interval is checked against. Pure.

Read from the expression alone, so that the answer does not depend on when it is asked. Days count as if all of them
fired, and clock changes not at all.
"""

from functools import lru_cache
from itertools import pairwise

from scheduling.domain.pattern import Cron

DAY_S = 86_400


@lru_cache(maxsize=4096)
def shortest_gap_s(cron: Cron) -> int:
    """Seconds between the two closest fires; a day where there is one a day."""
    seconds, minutes, hours = (_members(bits) for bits in (cron.seconds, cron.minutes, cron.hours))
    # The closest pair is found among the minutes of one day, from each minute's first second to its last.
    gaps = [later - earlier for earlier, later in pairwise(seconds)]
    starts = [hour * 3600 + minute * 60 for hour in hours for minute in minutes]
    for start, following in zip(starts, [*starts[1:], starts[0] + DAY_S], strict=True):
        gaps.append(following + seconds[0] - (start + seconds[-1]))
    return min(gaps)


def _members(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]
