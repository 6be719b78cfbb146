"""Reads. Every one is bound to a workspace."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet

from chronos_site.tenancy.models import Workspace
from scheduling.models import Schedule


def schedules(
    *,
    workspace: Workspace,
    states: Sequence[str] = (),
    job_ids: Sequence[UUID] = (),
    tags: Sequence[str] = (),
) -> QuerySet[Schedule]:
    """Repeated values are alternatives, different filters must all hold."""
    found = Schedule.objects.filter(workspace=workspace)
    if states:
        found = found.filter(state__in=states)
    if job_ids:
        found = found.filter(job_definition_id__in=job_ids)
    if tags:
        found = found.filter(tags__overlap=list(tags))
    return found


def schedule(*, workspace: Workspace, schedule_id: UUID) -> Schedule:
    """Raises Schedule.DoesNotExist, also for another workspace's."""
    return Schedule.objects.get(workspace=workspace, id=schedule_id)
