"""The end of a bulk job, told to the notification rules that ask for it, in the transaction of the end."""

from bulk.models import BulkJob
from execution.models import NotificationFact
from execution.notifications.facts import record_fact


def note_end(job: BulkJob, *, state: str, error: str = "") -> None:
    """`state` is what the job came to, `error` why its file could not be taken."""
    record_fact(
        kind=NotificationFact.Kind.BULK_FINISHED,
        workspace_id=job.workspace_id,
        job_key=job.id,
        job_definition_id=job.job_definition_id,
        subject_id=job.id,
        tags=job.job_definition.tags,
        reason=state,
        error=error,
    )
