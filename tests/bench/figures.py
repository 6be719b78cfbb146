"""A figure of a benchmark: what was measured, how much, and what was wanted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def held(self) -> bool:
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def wanted(self) -> str:
        if self.least is not None:
            return f"at least {self.least:g}"
        return "" if self.most is None else f"at most {self.most:g}"
