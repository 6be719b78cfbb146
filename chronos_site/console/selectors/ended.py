"""What ended of late, one row for each execution."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from chronos_site.console.selectors.bounded import bounded_cursor, rows_of
from chronos_site.infra.sql import statement


@dataclass(frozen=True, slots=True)
class Ended:
    id: UUID
    workspace: str
    job: str | None
    schedule_id: UUID | None
    state: str
    state_reason: str
    attempt: int
    last_status: int | None
    last_error: str
    last_duration_ms: float | None
    scheduled_for: datetime
    finished_at: datetime


def ended_since(
    *,
    since_s: float,
    workspace_ids: Sequence[UUID] | None = None,
    job_ids: Sequence[UUID] = (),
    states: Sequence[str] = (),
    newest: bool = False,
    most: int = 1000,
) -> list[Ended]:
    """What ended within so many seconds, oldest first: the first `most`, or with `newest` the last.

    Raises django.db's errors.
    """
    parameters = {
        "since_s": since_s,
        "workspace_ids": None if workspace_ids is None else list(workspace_ids),
        "job_ids": list(job_ids) or None,
        "states": list(states) or None,
        "most": most,
    }
    sql = statement("chronos_site.console", "select_ended").replace("/*order*/", "DESC" if newest else "ASC")
    with bounded_cursor() as cursor:
        cursor.execute(sql, parameters)
        found = [Ended(**row) for row in rows_of(cursor)]
    return found[::-1] if newest else found
