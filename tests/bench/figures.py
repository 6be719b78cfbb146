"""A figure of a benchmark: what was measured, how much, and what was wanted."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    key: str = ""
    """Where the figure stands in the file for machines, `a.b` for an object within; empty: nowhere."""
    runs: tuple[float, ...] = ()
    """The runs that `value` is the median of."""

    @property
    def held(self) -> bool:
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def wanted(self) -> str:
        if self.least is not None:
            return f"at least {self.least:,g}"
        return "" if self.most is None else f"at most {self.most:,g}"


def median(what: str, values: Sequence[float], unit: str, *, key: str, least: float | None = None) -> Figure:
    """The median of several runs as a figure."""
    return Figure(what, statistics.median(values), unit, least, None, key, tuple(values))
