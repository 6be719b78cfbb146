from django.db import models
from django.utils import timezone

from chronos_site.tenancy.models import Workspace


class DeadLetter(models.Model):
    """An execution that failed for good and waits for a person. Written in the transaction of the failure.

    Its key is the execution's: one execution dies once. The execution itself stays as it was.
    """

    class Reason(models.TextChoices):
        TERMINAL_ANSWER = "terminal_answer"
        ATTEMPTS_EXHAUSTED = "attempts_exhausted"
        TOO_OLD = "too_old"
        TARGET_REFUSED = "target_refused"
        UNKNOWN_OUTCOME = "unknown_outcome"
        INTERNAL = "internal"

    execution_id = models.UUIDField(primary_key=True)
    workspace = models.ForeignKey(
        Workspace, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    job_definition_id = models.UUIDField(null=True)
    reason = models.CharField(max_length=20, choices=Reason.choices)
    last_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=64, default="")
    attempts = models.PositiveIntegerField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [
            # Reader: GET /v1/dead-letters, newest first.
            models.Index(fields=["workspace", "-execution_id"], name="dead_letter_page"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} ({self.reason})"
