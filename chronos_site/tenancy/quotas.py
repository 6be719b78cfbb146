"""What a workspace may hold, and how much of it is used, as `GET /v1/workspace` shows.

The rooms above keep the quotas; each registers how its own is counted, for this room knows none of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from chronos_site.tenancy.models import Workspace


@dataclass(frozen=True, slots=True)
class Usage:
    """One quota."""

    quota: str
    """As a refusal names it (429 `quota_exceeded`)."""
    limit: int
    used: int
    """Counted up to the limit; may be some seconds old."""


_counts: dict[str, tuple[Callable[[Workspace], int], Callable[[Workspace], int]]] = {}


def register_quota(name: str, *, limit: Callable[[Workspace], int], used: Callable[[Workspace], int]) -> None:
    """Make a quota known to `usage_of`. A second one of the same name replaces the first."""
    _counts[name] = (limit, used)


def usage_of(workspace: Workspace) -> list[Usage]:
    """Every quota with what is used of it, by name."""
    return [Usage(name, limit(workspace), used(workspace)) for name, (limit, used) in sorted(_counts.items())]
