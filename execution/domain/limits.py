"""The limits of a job definition: how fast, and how many at once. Pure.

Flow control reads them of each claim; what cannot be kept is refused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

MOST_CONCURRENT = 10_000
MOST_BURST = 10_000
FASTEST_PER_S = 100_000.0
SLOWEST_PER_S = 1 / 86_400
UNITS = {"per_s": 1.0, "per_minute": 60.0}


class InvalidLimits(ValueError):  # noqa: N818 - named for what it says of the limits
    """Limits that cannot be kept. `field` names the part, empty where it is the whole."""

    code = "invalid_limits"

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many sends in a time, evenly spaced but for a burst."""

    interval_us: float
    """Microseconds from one send to the next."""
    burst: int = 1
    """Sends that may go at once after a pause."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Raises InvalidLimits."""
        units = {name: value for name, value in values.items() if name != "burst"}
        if len(units) != 1 or not units.keys() <= UNITS.keys():
            raise InvalidLimits("rate_limit", "Give a rate as per_s or as per_minute, one of the two.")
        [(unit, given)] = units.items()
        per_s = _number(given) / UNITS[unit]
        if not SLOWEST_PER_S <= per_s <= FASTEST_PER_S:
            raise InvalidLimits("rate_limit", f"A rate is at least one a day and at most {FASTEST_PER_S:g} per second.")
        burst = values.get("burst", 1)
        if type(burst) is not int or not 1 <= burst <= MOST_BURST:
            raise InvalidLimits("rate_limit", f"burst must be a whole number, 1 to {MOST_BURST}.")
        return cls(1e6 / per_s, burst)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidLimits("rate_limit", "A rate is a number.")
    return float(value)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job definition asks for; None where it sets no limit."""

    rate: RateLimit | None = None
    max_concurrency: int | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Raises InvalidLimits."""
        unknown = set(values) - {"rate_limit", "max_concurrency"}
        if unknown:
            raise InvalidLimits(min(unknown), "Limits have no such part.")
        rate, most = values.get("rate_limit"), values.get("max_concurrency")
        if most is not None and (type(most) is not int or not 1 <= most <= MOST_CONCURRENT):
            raise InvalidLimits("max_concurrency", f"max_concurrency must be a whole number, 1 to {MOST_CONCURRENT}.")
        return cls(None if rate is None else RateLimit.from_dict(rate), most)
