"""Reads. Every one is bound to a workspace."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Q, QuerySet

from bulk.domain.numbering import CHUNK, range_of
from bulk.domain.states import RecordState
from bulk.models import BulkChunk, BulkJob, BulkRecord
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


def faulty_records(*, job: BulkJob, most: int) -> list[BulkRecord]:
    """The first rows of a job that failed or are not valid. The chunks say where: there may be a million rows."""
    chunks = BulkChunk.objects.filter(Q(failed__gt=0) | Q(invalid__gt=0), id__range=range_of(job.id))
    found: list[BulkRecord] = []
    for first in chunks.order_by("id").values_list("id", flat=True)[:most]:
        last = UUID(int=first.int + CHUNK - 1)
        faulty = records(job=job, states=[RecordState.FAILED, RecordState.INVALID]).filter(id__range=(first, last))
        found += faulty.order_by("id")[: most - len(found)]
        if len(found) >= most:
            break
    return found
