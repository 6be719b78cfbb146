"""Reads. Every one is bound to a workspace."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Q, QuerySet

from chronos_site.tenancy.models import Workspace
from execution.models import Execution
from scheduling.models import Schedule


def schedules(
    *,
    workspace: Workspace,
    states: Sequence[str] = (),
    kinds: Sequence[str] = (),
    job_ids: Sequence[UUID] = (),
    tags: Sequence[str] = (),
) -> QuerySet[Schedule]:
    """Repeated values are alternatives, different filters must all hold."""
    found = Schedule.objects.filter(workspace=workspace)
    if states:
        found = found.filter(state__in=states)
    if kinds:
        found = found.filter(kind__in=kinds)
    if job_ids:
        found = found.filter(job_definition_id__in=job_ids)
    if tags:
        found = found.filter(tags__overlap=list(tags))
    return found


def schedule(*, workspace: Workspace, schedule_id: UUID) -> Schedule:
    """Raises Schedule.DoesNotExist, also for another workspace's."""
    return Schedule.objects.get(workspace=workspace, id=schedule_id)


def schedule_by_key(*, workspace: Workspace, external_key: str) -> Schedule:
    """Raises Schedule.DoesNotExist."""
    return Schedule.objects.get(workspace=workspace, external_key=external_key)


def occurrences(
    *, workspace: Workspace, schedule_id: UUID, after: UUID | None, limit: int
) -> tuple[list[Execution], bool]:
    """A schedule's executions, the latest nominal time first, behind the one with the id `after`; whether more follow.

    Raises Execution.DoesNotExist where `after` is not there (any more).
    """
    found = Execution.objects.filter(workspace=workspace, schedule_id=schedule_id)
    if after is not None:
        last = found.only("scheduled_for", "run_no").get(id=after)
        found = found.filter(
            Q(scheduled_for__lt=last.scheduled_for) | Q(scheduled_for=last.scheduled_for, run_no__lt=last.run_no)
        )
    rows = list(found.order_by("-scheduled_for", "-run_no")[: limit + 1])
    return rows[:limit], len(rows) > limit


def ids_by_key(workspace: Workspace, text: str, most: int) -> list[UUID]:
    """Schedules whose external key begins with the text."""
    found = Schedule.objects.filter(workspace=workspace, external_key__startswith=text)
    return list(found.order_by("external_key").values_list("id", flat=True)[:most])
