"""The kinds of operation. A room above registers its own in `AppConfig.ready()`; this room knows none of them.

A kind is two functions on a `Scope`. `count` reads. `step` does the next rows in the caller's transaction, which moves
the cursor and the counters as well: work that has effects outside of Postgres has no place in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

DEFAULT_BATCH = 500


class TryLater(Exception):  # noqa: N818 - named as its users say it
    """A step cannot be done yet, for a reason that passes by itself. The text tells the caller what it waits for."""

    def __init__(self, text: str, *, after_s: float) -> None:
        super().__init__(text)
        self.after_s = after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What an operation may touch: what the filter found in one workspace at one time."""

    workspace_id: UUID
    filter: Mapping[str, Any]
    """As it was frozen: JSON, lists where values are alternatives, absolute times as RFC 3339."""
    arguments: Mapping[str, Any]
    accepted_at: datetime
    """By the database's clock. What came to match later is not touched."""
    up_to: UUID | None = None
    """The newest row that was found; None while counting."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a filter finds now."""

    total: int
    up_to: UUID | None
    """The highest id among them, None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step did. Every row that it passed is in exactly one of the counters."""

    done: int = 0
    skipped: int = 0
    failed: int = 0
    result: Mapping[str, int] = field(default_factory=dict)
    """Further counters, of rows that are in none of the three above."""
    after: UUID | None
    """The last row passed: where the next step begins."""
    finished: bool
    """Nothing is left behind `after`."""

    @property
    def passed(self) -> int:
        return self.done + self.skipped + self.failed + sum(self.result.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One sort of operation, as the API names it: `dead_letters.replay`."""

    name: str
    count: Callable[[Scope], Found]
    step: Callable[[Scope, UUID | None, int], Step]
    """(scope, after, limit): the next `limit` rows behind `after` in the order of their ids. Raises TryLater."""
    batch: int = DEFAULT_BATCH
    """Most rows of one step, which is one transaction: it should take well under a second."""
    default_rate_per_s: int | None = None
    """Rows per second where the caller names none; None for no limit."""


_kinds: dict[str, Kind] = {}


def register_kind(kind: Kind) -> None:
    """Make a kind known to the API and the runner. A second one of the same name replaces the first."""
    _kinds[kind.name] = kind


def unregister_kind(name: str) -> None:
    _kinds.pop(name, None)


def kind_named(name: str) -> Kind:
    """Raises KeyError."""
    return _kinds[name]


def kind_names() -> list[str]:
    return sorted(_kinds)
