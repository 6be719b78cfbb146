"""What one worker at a time does for a bulk job: read its file, or write its results."""

import logging
from uuid import UUID

from django.db import DatabaseError

from bulk import ingest, results, transitions
from bulk.domain.states import JobState
from bulk.models import BulkJob
from chronos_site.infra.storage import StorageError

log = logging.getLogger(__name__)


def work(job_id: UUID) -> str | None:
    """Claim the job and do what it needs. The state it came to; None where there was nothing to do, or it failed.

    What fails for want of the storage or the database is tried again when the claim runs out.
    """
    seq = transitions.claim_work(job_id=job_id)
    if seq is None:
        return None
    job = BulkJob.objects.get(id=job_id)
    try:
        state = (ingest.ingest if job.state == JobState.INGESTING else results.finish)(job, seq=seq)
    except (StorageError, DatabaseError) as error:
        log.warning("bulk_work_waits", extra={"action": "bulk", "bulk_job_id": str(job_id), "error": str(error)[:300]})
        return None
    if state is not None:
        log.info("bulk_job", extra={"action": "bulk", "bulk_job_id": str(job_id), "state": state})
    return state
