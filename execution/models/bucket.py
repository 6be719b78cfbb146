from django.db import models


class Bucket(models.Model):
    """All executions due in one minute and shard: the unit that the scheduler fires. Carries no counters."""

    class State(models.TextChoices):
        OPEN = "OPEN"
        CLOSED = "CLOSED"

    id = models.BigIntegerField(primary_key=True, help_text="Minute of due_at x 1024 + shard.")
    state = models.CharField(max_length=8, choices=State.choices, default=State.OPEN)
    triggered_at = models.DateTimeField(null=True, blank=True)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            # Readers: scheduling.loops.fire (which open buckets hold due work) and the closing of old ones.
            models.Index(fields=["id"], condition=models.Q(state="OPEN"), name="bucket_open"),
        ]

    def __str__(self) -> str:
        return str(self.id)
