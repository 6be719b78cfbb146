"""The purge of bulk jobs: those that ended longer ago than executions are kept, with their rows and files.

Called by the task `bulk.tasks.purge` every ten minutes. Files go first: a job whose files could not be removed is tried
again. Dying half-way leaves the rest to the next. `bulk.tasks.sweep` removes every six hours what uploads left whose
process died: files that became no job.
"""

import logging
from datetime import timedelta
from itertools import islice
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Now

from bulk.ingest import remove_rows
from bulk.models import BulkJob
from chronos_site.infra import storage
from chronos_site.infra.clock import database_now

log = logging.getLogger(__name__)

JOBS_AT_ONCE = 20
UPLOADS = "bulk"
"""What the names of all files of bulk jobs begin with."""
LEFT_AFTER = timedelta(days=1)
"""No upload takes so long: whoever wrote that file and made no job of it has died."""
NAMES_AT_ONCE = 500


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


def sweep_uploads() -> int:
    """Returns how many files, whole or not, were removed."""
    before = database_now() - LEFT_AFTER
    try:
        removed = storage.drop_unfinished(UPLOADS, before=before)
        names = storage.old_names(UPLOADS, before=before)
        while some := list(islice(names, NAMES_AT_ONCE)):
            removed += _remove_jobless(some)
    except storage.StorageError as error:
        log.warning("sweep_waits", extra={"action": "purge", "error": str(error)[:300]})
        return 0
    if removed:
        log.info("swept", extra={"action": "purge", "files": removed})
    return removed


def _remove_jobless(names: list[str]) -> int:
    jobs = {name: job_id for name in names if (job_id := _job_of(name)) is not None}
    known = set(BulkJob.objects.filter(id__in=set(jobs.values())).values_list("id", flat=True))
    left = [name for name, job_id in jobs.items() if job_id not in known]
    for name in left:
        storage.delete(name)
    return len(left)


def _job_of(name: str) -> UUID | None:
    """bulk/<workspace>/<job>/<file>; None where it is something else, which is not ours to remove."""
    parts = name.split("/")
    try:
        return UUID(parts[2]) if len(parts) == 4 else None
    except ValueError:
        return None
