from django.contrib.postgres.fields import ArrayField
from django.db import models

from bulk.domain.states import RecordState


class BulkRecord(models.Model):
    """One row of a bulk job's file, and what became of it. `bulk.transitions` alone changes `state`.

    The primary key is the only index on what changes often, so that most updates stay within their page (HOT).
    """

    id = models.UUIDField(primary_key=True)
    bulk_job_id = models.UUIDField()
    line = models.BigIntegerField(help_text="The line of the file that the row begins on.")
    values = ArrayField(models.TextField(), null=True, help_text="In the order of the job's columns.")

    state = models.CharField(max_length=9, choices=[(s.value, s.value) for s in RecordState])
    state_reason = models.CharField(max_length=64, default="", db_default="")
    due_at = models.DateTimeField(
        null=True, help_text="RETRYING: when it wants to be sent. QUEUED: until when its message may take."
    )

    claim_seq = models.PositiveIntegerField(default=0, db_default=0)
    begun_seq = models.PositiveIntegerField(default=0, db_default=0)
    unknown_outcomes = models.PositiveSmallIntegerField(default=0, db_default=0)
    worker_id = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)

    flow_wait_s = models.FloatField(default=0, db_default=0)
    attempt = models.PositiveIntegerField(default=0, db_default=0, help_text="Begun sends.")
    attempts_before = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Of them, those before a person had it tried again."
    )
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    last_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=64, default="", db_default="")
    last_error_text = models.CharField(max_length=500, default="", db_default="")
    last_duration_ms = models.FloatField(null=True)
    response_excerpt = models.CharField(max_length=1000, default="", db_default="")

    class Meta:
        indexes = [
            # Reader: bulk.loops.retry. Nearly all rows are never in it.
            models.Index(
                fields=["bulk_job_id", "due_at"], condition=models.Q(due_at__isnull=False), name="bulk_record_due"
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)
