"""Which jobs and workspaces deliver, fail and run late right now, and which jobs failed most of late."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from chronos_site.console.selectors.bounded import bounded_cursor, rows_of
from chronos_site.infra.sql import statement

MOST_ROWS = 50_000
"""Ended executions, the newest, that are looked at."""
MOST_LETTERS = 50_000


@dataclass(frozen=True, slots=True)
class Busy:
    """What ended of one job or workspace. The job is None for inline targets, and by workspace."""

    workspace_id: UUID
    workspace: str
    job_definition_id: UUID | None
    job: str | None
    delivered: int
    failed: int
    late_p50_ms: float | None
    """Of first attempts, from `due_at` to the begin of the send."""
    late_p99_ms: float | None
    duration_p50_ms: float | None
    last_error: str | None
    """The most frequent code among the failures."""


@dataclass(frozen=True, slots=True)
class Busiest:
    rows: list[Busy]
    since: datetime | None
    """The oldest end that was looked at: later than what was asked for where more ended than are looked at."""
    cut: bool
    """Only the newest 50,000 were looked at."""


ORDERS = ("delivered", "failed", "late")


def busiest(
    *,
    by_job: bool = True,
    window_s: float = 60,
    order: str = "delivered",
    workspace_ids: Sequence[UUID] | None = None,
    most: int = 20,
) -> Busiest:
    """What ended in the last `window_s`, the busiest first: by deliveries, failures or lateness.

    Raises django.db's errors."""
    parameters = {
        "window_s": window_s,
        "by_job": by_job,
        "order": ORDERS.index(order),
        "workspace_ids": None if workspace_ids is None else list(workspace_ids),
        "rows": MOST_ROWS,
        "most": most,
    }
    with bounded_cursor() as cursor:
        cursor.execute(statement("chronos_site.console", "select_busiest"), parameters)
        found = rows_of(cursor)
    looked_at = found[0]["looked_at"] if found else 0
    since = found[0]["since"] if found else None
    for row in found:
        del row["looked_at"], row["since"]
    return Busiest([Busy(**row) for row in found], since, looked_at >= MOST_ROWS)


@dataclass(frozen=True, slots=True)
class WorstJob:
    """A job whose executions failed for good."""

    workspace_id: UUID
    workspace: str
    job_definition_id: UUID | None
    job: str | None
    """None: inline targets of the workspace."""
    failed: int
    open: int
    """Dead letters of those that nobody has seen to."""
    error: str
    """The most frequent code."""
    reason: str
    """The most frequent reason of the dead letters."""
    last_at: datetime


def worst_jobs(
    *, workspace_ids: Sequence[UUID] | None = None, window_s: float = 3600, most: int = 10
) -> list[WorstJob]:
    """Most failures first, among the newest 50,000 of the window. Raises django.db's errors."""
    parameters = {
        "window_s": window_s,
        "workspace_ids": None if workspace_ids is None else list(workspace_ids),
        "rows": MOST_LETTERS,
        "most": most,
    }
    with bounded_cursor() as cursor:
        cursor.execute(statement("chronos_site.console", "select_worst_jobs"), parameters)
        return [WorstJob(**row) for row in rows_of(cursor)]
