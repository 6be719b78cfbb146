"""The purge of bulk jobs: those that ended longer ago than executions are kept, with their rows and files.

Called by the task `bulk.tasks.purge` every ten minutes. Files go first: a job whose files could not be removed is tried
again. Dying half-way leaves the rest to the next.
"""

import logging
from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now

from bulk.ingest import remove_rows
from bulk.models import BulkJob
from chronos_site.infra import storage

log = logging.getLogger(__name__)

JOBS_AT_ONCE = 20


def purge_ended() -> int:
    """Returns how many jobs were removed."""
    old = Now() - timedelta(days=settings.CHRONOS_RETENTION_DAYS)
    removed = 0
    for job in BulkJob.objects.filter(finished_at__lt=old).order_by("finished_at")[:JOBS_AT_ONCE]:
        try:
            storage.delete(job.object_name)
            storage.delete(job.results_name)
        except storage.StorageError as error:
            log.warning("purge_waits", extra={"action": "purge", "error": str(error)[:300]})
            break
        remove_rows(job.id)
        job.delete()
        removed += 1
    if removed:
        log.info("purged", extra={"action": "purge", "bulk_jobs": removed})
    return removed
