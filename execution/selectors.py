"""Reads. Every one is bound to a workspace."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from chronos_site.infra import mongo
from chronos_site.tenancy.models import Workspace
from execution.models import DeadLetter, Execution, JobDefinition


def job_definitions(
    *, workspace: Workspace, names: Sequence[str] = (), tags: Sequence[str] = ()
) -> QuerySet[JobDefinition]:
    """Those in use; with `names` and `tags` any of them."""
    found = JobDefinition.objects.filter(workspace=workspace, deleted_at__isnull=True)
    if names:
        found = found.filter(name__in=names)
    if tags:
        found = found.filter(tags__overlap=list(tags))
    return found


def job_definition(*, workspace: Workspace, job_id: UUID) -> JobDefinition:
    """Raises JobDefinition.DoesNotExist, also for another workspace's."""
    return job_definitions(workspace=workspace).get(id=job_id)


def find_job_definition(*, workspace: Workspace, id_or_name: str) -> JobDefinition | None:
    """A name may look like an id: the id is looked for first."""
    found = job_definitions(workspace=workspace)
    try:
        by_id = found.filter(id=UUID(id_or_name)).first()
    except ValueError:
        by_id = None
    return by_id or found.filter(name=id_or_name).first()


def executions(
    *,
    workspace: Workspace,
    states: Sequence[str] = (),
    job_ids: Sequence[UUID] = (),
    schedule_ids: Sequence[UUID] = (),
    tags: Sequence[str] = (),
    scheduled_from: datetime | None = None,
    scheduled_to: datetime | None = None,
) -> QuerySet[Execution]:
    """Repeated values are alternatives, different filters must all hold; from is inclusive, to is exclusive."""
    found = Execution.objects.filter(workspace=workspace)
    if states:
        found = found.filter(state__in=states)
    if job_ids:
        found = found.filter(job_definition_id__in=job_ids)
    if schedule_ids:
        found = found.filter(schedule_id__in=schedule_ids)
    if tags:
        found = found.filter(tags__overlap=list(tags))
    if scheduled_from is not None:
        found = found.filter(scheduled_for__gte=scheduled_from)
    if scheduled_to is not None:
        found = found.filter(scheduled_for__lt=scheduled_to)
    return found


def execution(*, workspace: Workspace, execution_id: UUID) -> Execution:
    """Raises Execution.DoesNotExist, also for another workspace's."""
    return Execution.objects.get(workspace=workspace, id=execution_id)


def dead_letters(
    *,
    workspace: Workspace,
    statuses: Sequence[str] = (),
    reasons: Sequence[str] = (),
    job_ids: Sequence[UUID] = (),
) -> QuerySet[DeadLetter]:
    """Repeated values are alternatives, different filters must all hold."""
    found = DeadLetter.objects.filter(workspace=workspace)
    if statuses:
        found = found.filter(status__in=statuses)
    if reasons:
        found = found.filter(reason__in=reasons)
    if job_ids:
        found = found.filter(job_definition_id__in=job_ids)
    return found


def attempt_logs(*, workspace: Workspace, execution_id: UUID, most: int = 200) -> list[dict[str, Any]]:
    """The logs of an execution's attempts, oldest first. Raises pymongo's errors where MongoDB is away."""
    logs = mongo.execution_logs()
    if logs is None:
        return []
    found = logs.find({"execution_id": str(execution_id), "workspace_id": str(workspace.id)}).sort("attempt", 1)
    return list(found.limit(most))
