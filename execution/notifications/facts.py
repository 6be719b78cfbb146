"""Facts that are not the end of an execution: whoever sees one writes it here, in the transaction in which it happens.

The ends of executions are written by the statements that write those ends (`execution/sql/write_results.sql`).
"""

from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.db import connection
from psycopg import AsyncConnection

from chronos_site.infra.sql import statement

SITE_KEY = UUID(int=0)
"""The job key of what concerns the whole site."""

_INSERT = (
    "INSERT INTO execution_notificationfact"
    " (rule_id, workspace_id, kind, stage, job_key, job_definition_id, subject_id, reason, error, at, created_at)"
    " SELECT r.id, r.workspace_id, %(kind)s, 'new', %(job_key)s, %(job_id)s, %(subject)s, %(reason)s, %(error)s,"
    " coalesce(%(at)s, clock_timestamp()), clock_timestamp() FROM execution_notificationrule r"
    " WHERE r.workspace_id IS NOT DISTINCT FROM %(workspace)s AND r.enabled AND %(kind)s = ANY(r.events)"
    " AND (cardinality(r.job_definitions) = 0 OR %(job_id)s = ANY(r.job_definitions))"
    " AND (cardinality(r.tags) = 0 OR r.tags && %(tags)s::varchar[])"
)


def record_fact(
    *,
    kind: str,
    workspace_id: UUID | None,
    job_key: UUID,
    job_definition_id: UUID | None = None,
    subject_id: UUID | None = None,
    tags: list[str] | None = None,
    reason: str = "",
    error: str = "",
    at: datetime | None = None,
) -> int:
    """One row for each rule that asks for it. Returns how many. `workspace_id` None is the site."""
    with connection.cursor() as cursor:
        cursor.execute(
            _INSERT,
            {
                "kind": kind,
                "workspace": workspace_id,
                "job_key": job_key,
                "job_id": job_definition_id,
                "subject": subject_id,
                "tags": tags or [],
                "reason": reason[:64],
                "error": error[:64],
                "at": at,
            },
        )
        return int(cursor.rowcount)


async def are_wanted(db: AsyncConnection[Any]) -> bool:
    """Whether any rule of the site asks for anything."""
    cursor = await db.execute("SELECT EXISTS (SELECT 1 FROM execution_notificationrule WHERE enabled)")
    row = await cursor.fetchone()
    return bool(row and row[0])


@cache
def results_statement(*, facts: bool) -> str:
    """The statement of a batch of results. The part for facts costs a third of a millisecond also where it finds none:
    it is left out where no rule would read them."""
    whole = statement("execution", "write_results")
    before, _, rest = whole.partition("-- Only where there are notification rules:\n")
    return whole if facts else before + rest.partition("-- In any case:\n")[2]
