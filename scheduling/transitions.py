"""The only writer of `Schedule.state`: guarded UPDATEs that return what they really changed.

On commit each move is told as an event.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django.db import connection

from chronos_site.infra.event_body import body
from chronos_site.infra.sql import statement
from chronos_site.observability import events
from scheduling.models import Schedule

Row = tuple[UUID, UUID, UUID | None, datetime]
"""id, workspace_id, job_definition_id, updated_at of a schedule that was moved."""


def _moved(kind: str, state: Schedule.State, sql: str, params: dict[str, Any], *, reason: str = "") -> list[UUID]:
    returning = f"{sql} RETURNING id, workspace_id, job_definition_id, updated_at"
    return _tell(kind, state, _rows(returning, params), reason=reason)


def _rows(sql: str, params: dict[str, Any]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cast("list[Row]", cursor.fetchall())


def _tell(kind: str, state: Schedule.State, rows: Sequence[Row], *, reason: str = "") -> list[UUID]:
    events.write_on_commit(
        [
            body(
                f"schedule.{kind}",
                at=at,
                workspace_id=workspace_id,
                state=state,
                job_definition_id=job_id,
                schedule_id=id_,
                reason=reason,
            )
            for id_, workspace_id, job_id, at in rows
        ]
    )
    return [row[0] for row in rows]


def tell_created(schedules: Sequence[Schedule]) -> None:
    """No edge: these have been stored, ACTIVE."""
    rows = [(s.id, s.workspace_id, s.job_definition_id, s.created_at) for s in schedules]
    _tell("created", Schedule.State.ACTIVE, rows)


def cancel_active(*, ids: Sequence[UUID]) -> list[UUID]:
    """ACTIVE | PAUSED → CANCELLED: it fires no more."""
    return _moved(
        "cancelled",
        Schedule.State.CANCELLED,
        "UPDATE scheduling_schedule SET state = 'CANCELLED', next_run_at = NULL, version = version + 1,"
        " updated_at = clock_timestamp() WHERE id = ANY(%(ids)s) AND state IN ('ACTIVE', 'PAUSED')",
        {"ids": list(ids)},
    )


def pause_active(*, ids: Sequence[UUID], reason: str) -> list[UUID]:
    """ACTIVE → PAUSED, for schedules that recur. The caller withdraws their occurrences."""
    return _moved(
        "paused",
        Schedule.State.PAUSED,
        "UPDATE scheduling_schedule SET state = 'PAUSED', pause_reason = %(reason)s, version = version + 1,"
        " updated_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state = 'ACTIVE' AND kind <> 'once'",
        {"ids": list(ids), "reason": reason},
        reason=reason,
    )


def resume_paused(*, ids: Sequence[UUID]) -> list[UUID]:
    """PAUSED → ACTIVE. What was missed meanwhile is judged by the loop that materialises."""
    return _moved(
        "resumed",
        Schedule.State.ACTIVE,
        "UPDATE scheduling_schedule SET state = 'ACTIVE', pause_reason = '', resumed_at = clock_timestamp(),"
        " version = version + 1, updated_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state = 'PAUSED'",
        {"ids": list(ids)},
    )


def complete_ended(*, most: int) -> list[UUID]:
    """ACTIVE → COMPLETED for once-schedules whose execution has ended, looking at up to 2 x `most` of them."""
    return _tell("completed", Schedule.State.COMPLETED, _rows(statement("scheduling", "settle_once"), {"most": most}))


def complete_spent(*, most: int) -> list[UUID]:
    """ACTIVE → COMPLETED for schedules that recur, have made all their occurrences, and wait for none."""
    return _tell("completed", Schedule.State.COMPLETED, _rows(statement("scheduling", "settle_spent"), {"most": most}))
