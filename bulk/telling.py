"""Events of bulk jobs. Their rows are not told of: there may be millions, and the job's progress says the same."""

from uuid import UUID

from django.db import connection

from bulk.domain.states import JobState
from chronos_site.infra.event_body import body
from chronos_site.observability import events

_KIND = {
    JobState.UPLOADED: "created",
    JobState.INGESTING: "ingest_started",
    JobState.RUNNING: "started",
    JobState.PAUSED: "paused",
    JobState.COMPLETED: "completed",
    JobState.PARTIAL_FAILURE: "partially_failed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
}


def tell(job_id: UUID, state: JobState, *, took: object = True, reason: str = "") -> bool:
    """On commit, tell that the job has come to `state`, if it `took`; which is returned."""
    if took:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT workspace_id, job_definition_id, clock_timestamp() FROM bulk_bulkjob WHERE id = %s", [job_id]
            )
            workspace_id, job_definition_id, at = cursor.fetchone()
        told = body(
            f"bulk_job.{_KIND[state]}",
            at=at,
            workspace_id=workspace_id,
            state=state,
            job_definition_id=job_definition_id,
            reason=reason,
            bulk_job=job_id,
        )
        events.write_on_commit([told])
    return bool(took)
