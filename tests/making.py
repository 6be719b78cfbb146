"""Rows as tests need them, made through the services."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from chronos_site.infra import trace
from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution import services
from execution.models import Execution, JobDefinition
from execution.services import NewExecution


def make_job(workspace: Workspace, url: str, **fields: Any) -> JobDefinition:
    fields.setdefault("name", f"job-{new_id()}")
    target = {"url": url, "method": "POST", "headers": {}}
    return services.create_job_definition(workspace=workspace, target=target, **fields)


def make_executions(
    workspace: Workspace,
    url: str,
    count: int = 1,
    *,
    due_at: datetime | None = None,
    job: JobDefinition | None = None,
    **fields: Any,
) -> list[Execution]:
    """Executions due now, or at `due_at`."""
    when = due_at or database_now()
    given = {
        "kind": "http",
        "target": {"url": url, "method": "POST", "headers": {}},
        "payload": {"n": 1},
        "timeout_s": 5.0,
        "retry": {"max_attempts": 1},
        "job_definition_id": job.id if job else None,
        "traceparent": trace.parse_or_new(None),
        **fields,
    }
    new = [
        NewExecution(
            scheduled_for=when,
            trigger=Execution.Trigger.RUN,
            **given,
        )
        for _ in range(count)
    ]
    return services.create_executions(workspace=workspace, new=new)


def copy_execution(template: Execution, count: int, **values: str) -> None:
    """So many copies of a row in one statement. `values`: SQL by column, of the template's columns and of n from 1."""
    new = {"id": "gen_random_uuid()", **values}
    columns = [str(field.column) for field in Execution._meta.concrete_fields]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO execution_execution ({', '.join(columns)})"
            f" SELECT {', '.join(new.get(name, name) for name in columns)}"
            " FROM execution_execution, generate_series(1, %s) n WHERE id = %s",
            [count, template.id],
        )


def age(executions: Sequence[Execution], *, by: timedelta) -> None:
    """Make it as if the executions had been made for a time that lies `by` in the past, and nobody had fired them."""
    for row in executions:
        assert row.bucket_id is not None
        due_at = row.due_at - by
        minutes = int(row.due_at.timestamp() // 60) - int(due_at.timestamp() // 60)
        bucket_id = row.bucket_id - minutes * 1024
        services.buckets.open_buckets([bucket_id])
        Execution.objects.filter(id=row.id).update(due_at=due_at, scheduled_for=due_at, bucket_id=bucket_id)


def states_of(ids: Sequence[UUID]) -> dict[UUID, str]:
    return dict(Execution.objects.filter(id__in=ids).values_list("id", "state"))
