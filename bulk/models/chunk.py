from django.db import models

from bulk.domain.states import ChunkState


class BulkChunk(models.Model):
    """A hundred rows that lie side by side: what is published as one message, with counts that are always exact.

    Its id is that of its first row (`bulk.domain.numbering`).
    """

    id = models.UUIDField(primary_key=True)
    bulk_job_id = models.UUIDField()
    first_row = models.BigIntegerField()
    rows = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=8, choices=[(s.value, s.value) for s in ChunkState])
    again = models.BooleanField(default=False, help_text="Its failed rows are made PENDING when it is queued.")
    lease_until = models.DateTimeField(null=True)
    invalid = models.PositiveSmallIntegerField(default=0)
    succeeded = models.PositiveSmallIntegerField(default=0)
    failed = models.PositiveSmallIntegerField(default=0)
    cancelled = models.PositiveSmallIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(
                    rows__gte=models.F("invalid") + models.F("succeeded") + models.F("failed") + models.F("cancelled")
                ),
                name="bulk_chunk_counts",
            ),
        ]
        indexes = [
            # Readers: bulk.fanout, and the cancelling of what waits.
            models.Index(
                fields=["bulk_job_id", "id"], condition=models.Q(state=ChunkState.WAITING), name="bulk_chunk_waiting"
            ),
            # Readers: bulk.loops.monitor (rows that did not get on), bulk.loops.aggregate (whether all have ended).
            models.Index(
                fields=["bulk_job_id", "lease_until"],
                condition=models.Q(state=ChunkState.QUEUED),
                name="bulk_chunk_queued",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)
