from django.db import models
from django.db.models.functions import Now

from chronos_site.infra.ids import new_id


class IdempotencyRecord(models.Model):
    """The answer to a POST that created something, kept for whoever sends the same key again (api.idempotency).

    `workspace_id` is a plain column: this room knows nothing of workspaces. `body` is the answer's text, byte for byte.
    """

    workspace_id = models.UUIDField()
    method = models.CharField(max_length=8)
    path = models.CharField(max_length=500)
    key = models.CharField(max_length=255)
    body_hash = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    body = models.TextField()
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace_id", "method", "path", "key"], name="idempotency_record_once"),
        ]
        # Reader: purge_idempotency_records.
        indexes = [models.Index(fields=["created_at"], name="idempotency_record_age")]

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.key}"


class Operation(models.Model):
    """A long action on what a filter found, and how far it has come. `api.operations.transitions` writes `state`.

    `workspace_id` is a plain column. The filter is frozen at `created_at` (the database's clock) and `up_to_id`: rows
    that came later are not touched. `after_id` is the last row that was seen to; it moves in the transaction that did
    the work. total = done + skipped + failed + the counters in `result` once it SUCCEEDED.
    """

    class State(models.TextChoices):
        QUEUED = "QUEUED"
        RUNNING = "RUNNING"
        SUCCEEDED = "SUCCEEDED"
        ABORTED = "ABORTED"
        FAILED = "FAILED"

    OPEN = (State.QUEUED, State.RUNNING)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace_id = models.UUIDField()
    kind = models.CharField(max_length=64)
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    filter = models.JSONField()
    arguments = models.JSONField(default=dict)
    up_to_id = models.UUIDField(null=True, help_text="The newest row that it may touch; null: nothing was found.")
    after_id = models.UUIDField(null=True)
    total = models.PositiveBigIntegerField(help_text="What the filter found when the operation was accepted.")
    done = models.PositiveBigIntegerField(default=0)
    skipped = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    result = models.JSONField(default=dict, help_text="Counters of the kind, of rows that are in none of the others.")
    rate_per_s = models.PositiveIntegerField(null=True)
    setbacks = models.PositiveSmallIntegerField(default=0, help_text="Tries in a row that the database broke off.")
    waiting_for = models.CharField(max_length=500, default="")
    error = models.CharField(max_length=500, default="")
    next_step_at = models.DateTimeField()
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["QUEUED", "RUNNING", "SUCCEEDED", "ABORTED", "FAILED"]),
                name="operation_state",
            ),
        ]
        indexes = [
            # Readers: api.operations.runner (which open operations are due), and the count of a workspace's open ones.
            models.Index(
                fields=["workspace_id", "next_step_at"],
                condition=models.Q(state__in=["QUEUED", "RUNNING"]),
                name="operation_open",
            ),
            # Reader: GET /v1/operations, newest first.
            models.Index(fields=["workspace_id", "-id"], name="operation_page"),
            # Reader: api.operations.services.purge_operations.
            models.Index(
                fields=["finished_at"], condition=models.Q(finished_at__isnull=False), name="operation_finished"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"
