from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.models import JobDefinition


class Schedule(models.Model):
    """When: one time, bound to a job definition or to an inline target.

    What became of it is told by its executions; `state` says only whether it may still fire: the settle loop makes it
    COMPLETED within seconds of its execution's end.
    """

    class Kind(models.TextChoices):
        ONCE = "once"

    class State(models.TextChoices):
        ACTIVE = "ACTIVE"
        COMPLETED = "COMPLETED"
        CANCELLED = "CANCELLED"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.ONCE)
    job_definition = models.ForeignKey(JobDefinition, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    target = models.JSONField(null=True, blank=True, help_text="Inline target where there is no job definition.")
    payload = models.JSONField(null=True, blank=True)
    delivery = models.JSONField(default=dict, blank=True, help_text="Overrides: headers, timeout_s, retry.")
    run_at = models.DateTimeField()
    expires_after_s = models.FloatField(null=True, blank=True)
    tags = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.ACTIVE)
    execution_id = models.UUIDField(editable=False)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["workspace", "-id"], name="schedule_page"),
            GinIndex(fields=["tags"], name="schedule_tags"),
            # Reader: scheduling.loops.settle.
            models.Index(fields=["run_at"], condition=models.Q(state="ACTIVE"), name="schedule_active"),
            # Reader: scheduling.loops.purge.
            models.Index(fields=["run_at"], name="schedule_run_at"),
        ]

    def __str__(self) -> str:
        return str(self.id)
