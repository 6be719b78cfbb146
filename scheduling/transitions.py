"""The only writer of `Schedule.state`: guarded UPDATEs that return what they really changed."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from chronos_site.infra.sql import statement


def _changed(sql: str, params: dict[str, Any]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return [row[0] for row in cursor.fetchall()]


def cancel_active(*, ids: Sequence[UUID]) -> list[UUID]:
    """ACTIVE | PAUSED → CANCELLED: it fires no more."""
    return _changed(
        "UPDATE scheduling_schedule SET state = 'CANCELLED', next_run_at = NULL, version = version + 1,"
        " updated_at = clock_timestamp() WHERE id = ANY(%(ids)s) AND state IN ('ACTIVE', 'PAUSED') RETURNING id",
        {"ids": list(ids)},
    )


def pause_active(*, ids: Sequence[UUID], reason: str) -> list[UUID]:
    """ACTIVE → PAUSED, for schedules that recur. The caller withdraws their occurrences."""
    return _changed(
        "UPDATE scheduling_schedule SET state = 'PAUSED', pause_reason = %(reason)s, version = version + 1,"
        " updated_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state = 'ACTIVE' AND kind <> 'once' RETURNING id",
        {"ids": list(ids), "reason": reason},
    )


def resume_paused(*, ids: Sequence[UUID]) -> list[UUID]:
    """PAUSED → ACTIVE. What was missed meanwhile is judged by the loop that materialises."""
    return _changed(
        "UPDATE scheduling_schedule SET state = 'ACTIVE', pause_reason = '', resumed_at = clock_timestamp(),"
        " version = version + 1, updated_at = clock_timestamp()"
        " WHERE id = ANY(%(ids)s) AND state = 'PAUSED' RETURNING id",
        {"ids": list(ids)},
    )


def complete_ended(*, most: int) -> list[UUID]:
    """ACTIVE → COMPLETED for once-schedules whose execution has ended, looking at up to 2 x `most` of them."""
    return _changed(statement("scheduling", "settle_once"), {"most": most})


def complete_spent(*, most: int) -> list[UUID]:
    """ACTIVE → COMPLETED for schedules that recur, have made all their occurrences, and wait for none."""
    return _changed(statement("scheduling", "settle_spent"), {"most": most})
