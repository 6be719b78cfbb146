"""The only writer of `Schedule.state`: guarded UPDATEs that return what they really changed."""

from collections.abc import Sequence
from uuid import UUID

from django.db import connection

from chronos_site.infra.sql import statement


def cancel_active(*, ids: Sequence[UUID]) -> list[UUID]:
    """ACTIVE → CANCELLED: it fires no more."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scheduling_schedule SET state = 'CANCELLED', version = version + 1, updated_at = clock_timestamp()"
            " WHERE id = ANY(%s) AND state = 'ACTIVE' RETURNING id",
            [list(ids)],
        )
        return [row[0] for row in cursor.fetchall()]


def complete_ended(*, most: int) -> list[UUID]:
    """ACTIVE → COMPLETED for once-schedules whose execution has ended, looking at up to 2 x `most` of them."""
    with connection.cursor() as cursor:
        cursor.execute(statement("scheduling", "settle_once"), {"most": most})
        return [row[0] for row in cursor.fetchall()]
