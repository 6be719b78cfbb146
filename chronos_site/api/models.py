from django.db import models
from django.db.models.functions import Now


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
