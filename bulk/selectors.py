"""Reads. Every one is bound to a workspace."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet

from bulk.domain.numbering import range_of
from bulk.models import BulkJob, BulkRecord
from chronos_site.tenancy.models import Workspace


def bulk_jobs(*, workspace: Workspace, states: Sequence[str] = (), job_ids: Sequence[UUID] = ()) -> QuerySet[BulkJob]:
    found = BulkJob.objects.filter(workspace=workspace)
    if states:
        found = found.filter(state__in=states)
    if job_ids:
        found = found.filter(job_definition_id__in=job_ids)
    return found


def bulk_job(*, workspace: Workspace, job_id: UUID) -> BulkJob:
    """Raises BulkJob.DoesNotExist, also for another workspace's."""
    return bulk_jobs(workspace=workspace).get(id=job_id)


def records(*, job: BulkJob, states: Sequence[str] = ()) -> QuerySet[BulkRecord]:
    """The rows of a job that the caller has found in its workspace."""
    found = BulkRecord.objects.filter(id__range=range_of(job.id))
    return found.filter(state__in=states) if states else found
