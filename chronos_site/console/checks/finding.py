from collections.abc import Iterable
from dataclasses import dataclass

LEVELS = ("ok", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    """What was looked at, in a word or two."""
    level: str
    """ok, warn (look at it by day), fail (work is late, lost or at risk now)."""
    text: str
    remedy: str = ""
    """What to do; empty where nothing is wrong."""


def worst(found: Iterable[Finding]) -> str:
    return LEVELS[max((LEVELS.index(finding.level) for finding in found), default=0)]
