from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.models import Execution, JobDefinition
from scheduling.domain.misfire import Policy


class Schedule(models.Model):
    """When: once, by cron or at an interval; bound to a job definition or to an inline target.

    What became of it is told by its executions; `state` says only whether it may still fire: the settle loop makes it
    COMPLETED within seconds of its last execution's end.
    """

    class Kind(models.TextChoices):
        ONCE = "once"
        CRON = "cron"
        INTERVAL = "interval"

    class State(models.TextChoices):
        ACTIVE = "ACTIVE"
        PAUSED = "PAUSED"
        COMPLETED = "COMPLETED"
        CANCELLED = "CANCELLED"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="+", db_index=False)
    external_key = models.CharField(  # noqa: DJ001 - most have none, and none is not a key
        max_length=200, null=True, blank=True, help_text="The caller's own name for it, one in each workspace."
    )
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.ONCE)
    job_definition = models.ForeignKey(JobDefinition, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    target = models.JSONField(null=True, blank=True, help_text="Inline target where there is no job definition.")
    payload = models.JSONField(null=True, blank=True)
    delivery = models.JSONField(default=dict, blank=True, help_text="Overrides: headers, timeout_s, retry.")
    expires_after_s = models.FloatField(null=True, blank=True)
    tags = ArrayField(models.CharField(max_length=64), default=list, blank=True)

    # Once.
    run_at = models.DateTimeField(null=True, blank=True)
    execution_id = models.UUIDField(null=True, editable=False)

    # By cron, or at an interval from an anchor.
    cron = models.CharField(max_length=1000, default="", blank=True)
    timezone = models.CharField(max_length=64, default="UTC", blank=True)
    every_s = models.PositiveIntegerField(null=True, blank=True)
    anchor = models.DateTimeField(null=True, blank=True)
    starts_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    max_runs = models.PositiveIntegerField(null=True, blank=True)
    jitter_s = models.FloatField(default=0)
    misfire = models.CharField(max_length=10, choices=[(p.value, p.value) for p in Policy], default=Policy.FIRE_ONCE)
    misfire_grace_s = models.FloatField(default=60, help_text="Later than this and an occurrence counts as missed.")
    catch_up_window_s = models.FloatField(default=86_400, help_text="Older missed occurrences never fire.")
    misfire_limit = models.PositiveIntegerField(default=100, help_text="Most that fire_all fires at once.")
    overlap = models.CharField(max_length=14, choices=Execution.Overlap.choices, default=Execution.Overlap.ALLOW)
    pause_after_failures = models.PositiveIntegerField(null=True, blank=True)

    next_run_at = models.DateTimeField(
        null=True, editable=False, help_text="The nominal time of the first occurrence that is not materialised yet."
    )
    run_count = models.PositiveIntegerField(default=0, editable=False, help_text="Occurrences that were made to run.")
    missed_count = models.PositiveBigIntegerField(default=0, editable=False, help_text="Missed, and never fired.")
    last_misfire = models.JSONField(null=True, editable=False, help_text="What the last judgement came to.")

    state = models.CharField(max_length=10, choices=State.choices, default=State.ACTIVE)
    pause_reason = models.CharField(max_length=200, default="", blank=True)
    resumed_at = models.DateTimeField(null=True, editable=False)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "external_key"],
                condition=models.Q(external_key__isnull=False),
                name="schedule_external_key",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "-id"], name="schedule_page"),
            GinIndex(fields=["tags"], name="schedule_tags"),
            # Reader: scheduling.selectors.ids_by_key (the begin of a key; the constraint's index sorts by language).
            models.Index(
                fields=["workspace", "external_key"],
                opclasses=["uuid_ops", "varchar_pattern_ops"],
                condition=models.Q(external_key__isnull=False),
                name="schedule_key_begin",
            ),
            # Reader: scheduling.loops.settle.
            models.Index(fields=["run_at"], condition=models.Q(state="ACTIVE"), name="schedule_active"),
            # Reader: scheduling.loops.purge.
            models.Index(fields=["run_at"], name="schedule_run_at"),
            # Reader: scheduling.loops.materialise.
            models.Index(
                fields=["next_run_at"],
                condition=models.Q(state="ACTIVE", next_run_at__isnull=False),
                name="schedule_next_run",
            ),
            # Reader: scheduling.quotas.
            models.Index(
                fields=["workspace"],
                condition=models.Q(state__in=["ACTIVE", "PAUSED"]) & ~models.Q(kind="once"),
                name="schedule_recurring",
            ),
            # Reader: scheduling.loops.settle (those that have made all their occurrences).
            models.Index(
                fields=["id"],
                condition=models.Q(state="ACTIVE", next_run_at__isnull=True) & ~models.Q(kind="once"),
                name="schedule_spent",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)
