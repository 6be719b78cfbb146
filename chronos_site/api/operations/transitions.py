"""The only writer of `Operation.state`: one function per edge, each a guarded UPDATE that says whether it took.

QUEUED → RUNNING → SUCCEEDED
   └────────┴→ ABORTED | FAILED

The runner calls these with the row locked, in the transaction of the step; an abort waits for that lock, so that
nothing is done after its answer.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from chronos_site.infra.event_body import body
from chronos_site.observability import events

CATCH_UP_S = 1.0
"""How much of its rate an operation may make up for where a tick came late."""


def begin_operation(*, operation_id: UUID) -> bool:
    """QUEUED → RUNNING. From here on its rate counts."""
    return _moved(
        "started",
        "UPDATE api_operation SET state = 'RUNNING', started_at = clock_timestamp(), next_step_at = clock_timestamp()"
        " WHERE id = %(id)s AND state = 'QUEUED'",
        {"id": operation_id},
    )


def advance_operation(
    *,
    operation_id: UUID,
    after: UUID | None,
    done: int,
    skipped: int,
    failed: int,
    result: Mapping[str, int],
    pace_s: float | None,
) -> bool:
    """No edge: the cursor and the counters of a RUNNING operation, as totals. The next step comes `pace_s` later.

    What a transaction under way added to the filter's rows while they were counted makes `total` grow.
    """
    return _changed(
        "UPDATE api_operation SET after_id = %(after)s, done = %(done)s, skipped = %(skipped)s, failed = %(failed)s,"
        " result = %(result)s::jsonb, total = greatest(total, %(passed)s), setbacks = 0, waiting_for = '',"
        " next_step_at = CASE WHEN %(pace)s::float8 IS NULL THEN clock_timestamp()"
        " ELSE greatest(next_step_at, clock_timestamp() - %(catch_up)s * interval '1 second')"
        " + %(pace)s * interval '1 second' END"
        " WHERE id = %(id)s AND state = 'RUNNING' RETURNING id",
        {
            "id": operation_id,
            "after": after,
            "done": done,
            "skipped": skipped,
            "failed": failed,
            "result": json.dumps(dict(result)),
            "passed": done + skipped + failed + sum(result.values()),
            "pace": pace_s,
            "catch_up": CATCH_UP_S,
        },
    )


def succeed_operation(*, operation_id: UUID, gone: int) -> bool:
    """RUNNING → SUCCEEDED. `gone` rows no longer matched when their turn came: they count as skipped."""
    return _moved(
        "succeeded",
        "UPDATE api_operation SET state = 'SUCCEEDED', skipped = skipped + %(gone)s, finished_at = clock_timestamp()"
        " WHERE id = %(id)s AND state = 'RUNNING'",
        {"id": operation_id, "gone": gone},
    )


def abort_operation(*, workspace_id: UUID, operation_id: UUID) -> bool:
    """QUEUED | RUNNING → ABORTED. Waits for a step under way, whose work is kept and counted."""
    return _moved(
        "aborted",
        "UPDATE api_operation SET state = 'ABORTED', waiting_for = '', finished_at = clock_timestamp()"
        " WHERE id = %(id)s AND workspace_id = %(workspace_id)s AND state IN ('QUEUED', 'RUNNING')",
        {"id": operation_id, "workspace_id": workspace_id},
    )


def fail_operation(*, operation_id: UUID, error: str) -> bool:
    """QUEUED | RUNNING → FAILED, after its step was rolled back."""
    return _moved(
        "failed",
        "UPDATE api_operation SET state = 'FAILED', error = %(error)s, waiting_for = '',"
        " finished_at = clock_timestamp() WHERE id = %(id)s AND state IN ('QUEUED', 'RUNNING')",
        {"id": operation_id, "error": error[:500]},
    )


def put_off_operation(*, operation_id: UUID, after_s: float, waiting_for: str) -> bool:
    """No edge: an open operation waits, and says for what."""
    return _changed(
        "UPDATE api_operation SET next_step_at = clock_timestamp() + %(after_s)s * interval '1 second',"
        " waiting_for = %(waiting_for)s WHERE id = %(id)s AND state IN ('QUEUED', 'RUNNING') RETURNING id",
        {"id": operation_id, "after_s": after_s, "waiting_for": waiting_for[:500]},
    )


def set_back_operation(*, operation_id: UUID, after_s: float, waiting_for: str) -> int:
    """No edge: the same after the database broke a step off. Returns how often in a row; 0 where it is not open."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE api_operation SET next_step_at = clock_timestamp() + %(after_s)s * interval '1 second',"
            " waiting_for = %(waiting_for)s, setbacks = setbacks + 1"
            " WHERE id = %(id)s AND state IN ('QUEUED', 'RUNNING') RETURNING setbacks",
            {"id": operation_id, "after_s": after_s, "waiting_for": waiting_for[:500]},
        )
        row = cursor.fetchone()
    return 0 if row is None else int(row[0])


def _changed(sql: str, params: dict[str, Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone() is not None


def _moved(kind: str, sql: str, params: dict[str, Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} RETURNING id, workspace_id, state, clock_timestamp()", params)
        rows = cursor.fetchall()
    for operation_id, workspace_id, state, at in rows:
        tell(kind, operation_id=operation_id, workspace_id=workspace_id, state=state, at=at)
    return bool(rows)


def tell(kind: str, *, operation_id: UUID, workspace_id: UUID, state: str, at: datetime) -> None:
    """No edge: on commit, an event says what became of an operation."""
    told = body(f"operation.{kind}", at=at, workspace_id=workspace_id, state=state, operation=operation_id)
    events.write_on_commit([told])
