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
        SECRET_REFUSED = "secret_refused"  # noqa: S105 - a reason
        UNKNOWN_OUTCOME = "unknown_outcome"
        INTERNAL = "internal"

    class Status(models.TextChoices):
        OPEN = "open"
        REPLAYED = "replayed"
        DISCARDED = "discarded"

    id = models.UUIDField(primary_key=True, help_text="The execution's id.")
    workspace = models.ForeignKey(
        Workspace, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    job_definition_id = models.UUIDField(null=True)
    reason = models.CharField(max_length=20, choices=Reason.choices)
    last_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=64, default="")
    attempts = models.PositiveIntegerField()
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN, db_default=Status.OPEN)
    resolved_at = models.DateTimeField(null=True)
    replayed_as = models.UUIDField(null=True, help_text="The execution that its replay made.")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [
            # Reader: GET /v1/dead-letters, newest first.
            models.Index(fields=["workspace", "-id"], name="dead_letter_page"),
            models.Index(fields=["workspace", "-id"], condition=models.Q(status="open"), name="dead_letter_open"),
            # Reader: chronos_site.console.selectors.busiest (which jobs failed of late).
            models.Index(fields=["created_at"], name="dead_letter_age"),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.reason})"
