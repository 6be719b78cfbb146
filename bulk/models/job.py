from django.contrib.postgres.fields import ArrayField
from django.db import models

from bulk.domain.states import JobState
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.models import JobDefinition, JobKind


class BulkJob(models.Model):
    """A CSV file and what is sent for each of its rows. `bulk.transitions` alone changes `state`.

    The delivery is a snapshot of the job definition; its URL, headers and payload may hold `{{column}}`.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="+", db_index=False)
    job_definition = models.ForeignKey(JobDefinition, on_delete=models.PROTECT, related_name="+")
    job_version = models.PositiveIntegerField()

    kind = models.CharField(max_length=16, choices=JobKind.choices)
    target = models.JSONField()
    payload = models.JSONField(null=True)
    timeout_s = models.FloatField()
    retry = models.JSONField()
    limits = models.JSONField(default=dict)
    traceparent = models.CharField(max_length=55, default="")

    file_name = models.CharField(max_length=255, help_text="As the caller named it.")
    size_bytes = models.BigIntegerField()
    delimiter = models.CharField(max_length=1, default=",")
    max_invalid_share = models.FloatField(
        default=0.1, help_text="The job fails before anything is sent where more of its rows than this are not valid."
    )

    state = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in JobState], default=JobState.UPLOADED.value
    )
    held = models.BooleanField(default=False, help_text="Wait for a start once the rows are read.")
    error_code = models.CharField(max_length=64, default="", help_text="Why the file could not be taken.")
    error_text = models.CharField(max_length=500, default="")
    cancel_requested_at = models.DateTimeField(null=True)

    # Ingest: what has been read. The claim: who reads, or writes the results, and until when.
    columns = ArrayField(models.TextField(), default=list)
    cursor_offset = models.BigIntegerField(default=0, help_text="Bytes of the file that are in the table.")
    cursor_line = models.BigIntegerField(default=1)
    work_seq = models.PositiveIntegerField(default=0)
    work_lease_until = models.DateTimeField(null=True)

    # Counts, exact at the end. On the way they lag behind by a second.
    total = models.BigIntegerField(default=0)
    invalid = models.BigIntegerField(default=0)
    succeeded = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    cancelled = models.BigIntegerField(default=0)
    rate_per_s = models.FloatField(default=0, help_text="Rows that ended per second, of late.")
    counted_at = models.DateTimeField(null=True)

    results_bytes = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()
    ingested_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=[s.value for s in JobState]), name="bulk_job_state"),
        ]
        indexes = [
            models.Index(fields=["workspace", "-id"], name="bulk_job_page"),
            # Reader: bulk.loops.tick.
            models.Index(
                fields=["id"],
                condition=models.Q(
                    state__in=[JobState.UPLOADED, JobState.INGESTING, JobState.RUNNING, JobState.PAUSED]
                ),
                name="bulk_job_open",
            ),
            # Reader: bulk.loops.purge.
            models.Index(
                fields=["finished_at"], condition=models.Q(finished_at__isnull=False), name="bulk_job_finished"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.file_name} ({self.id})"

    @property
    def object_name(self) -> str:
        """The file in the object storage."""
        return f"bulk/{self.workspace_id}/{self.id}/rows.csv"

    @property
    def results_name(self) -> str:
        """The results in the object storage."""
        return f"bulk/{self.workspace_id}/{self.id}/results.csv"
