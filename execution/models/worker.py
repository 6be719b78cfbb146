from django.db import models


class Worker(models.Model):
    """A dispatch worker process, as its own heartbeat describes it (every 5 s)."""

    id = models.UUIDField(primary_key=True)
    name = models.CharField(max_length=200)
    queue = models.CharField(
        max_length=64, default="job-dispatch", db_default="job-dispatch", help_text="The queue that it delivers from."
    )
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    in_flight = models.PositiveIntegerField(default=0)
    rate_per_s = models.FloatField(default=0, help_text="Deliveries per second over the last seconds.")
    stopping = models.BooleanField(default=False)

    class Meta:
        indexes = [
            # Reader: fan-out's backlog limit (what the live workers together deliver).
            models.Index(fields=["heartbeat_at"], name="worker_heartbeat"),
        ]

    def __str__(self) -> str:
        return self.name
