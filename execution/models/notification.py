from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace

LONGEST_WINDOW_S = 86_400
LONGEST_WAIT_S = 600


class NotificationChannel(models.Model):
    """Where notifications go. Settings hold no secret, only references; a channel without a workspace is the site's."""

    class Kind(models.TextChoices):
        SLACK = "slack", "Slack"
        PAGERDUTY = "pagerduty", "PagerDuty"
        WEBHOOK = "webhook", "Webhook"
        EMAIL = "email", "E-mail"
        APPRISE = "apprise", "Apprise"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(
        Workspace, null=True, blank=True, on_delete=models.PROTECT, related_name="notification_channels"
    )
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=9, choices=Kind.choices)
    settings = models.JSONField(
        default=dict, help_text="By kind, as docs/notifications.md shows; secrets by reference."
    )
    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "name"], name="notification_channel_name"),
        ]
        indexes = [models.Index(fields=["workspace", "-id"], name="notification_channel_page")]

    def __str__(self) -> str:
        return self.name


class NotificationRule(models.Model):
    """What is told, to which channels, and when. A rule without a workspace is the site's."""

    class Event(models.TextChoices):
        FAILURE = "failure", "An execution failed for good"
        FAILURES_IN_ROW = "failures_in_row", "So many of a job failed in a row"
        RECOVERY = "recovery", "A success after a failure that was told"
        SLA_VIOLATION = "sla_violation", "An SLA was violated"
        BULK_FINISHED = "bulk_finished", "A bulk job has ended"
        LEADER_MISSING = "leader_missing", "The site's loops have no leader"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(
        Workspace, null=True, blank=True, on_delete=models.PROTECT, related_name="notification_rules"
    )
    name = models.CharField(max_length=200)
    channels = models.ManyToManyField(NotificationChannel, related_name="rules")
    events = ArrayField(models.CharField(max_length=15, choices=Event.choices))
    failures_in_row = models.PositiveIntegerField(null=True, blank=True, help_text="The number of that event.")
    job_definitions = ArrayField(models.UUIDField(), default=list, blank=True, help_text="Empty for all.")
    tags = ArrayField(
        models.CharField(max_length=64), default=list, blank=True, help_text="Any of them; empty for all."
    )
    quiet_hours = models.JSONField(null=True, blank=True, help_text="from, until, timezone, days.")
    group_wait_s = models.FloatField(
        default=5,
        validators=[MinValueValidator(0), MaxValueValidator(LONGEST_WAIT_S)],
        help_text="The first message goes once nothing more has come for so long.",
    )
    group_window_s = models.FloatField(
        default=300,
        validators=[MinValueValidator(0), MaxValueValidator(LONGEST_WINDOW_S)],
        help_text="What comes within so long after a message is gathered into the next.",
    )
    enabled = models.BooleanField(default=True)
    hold_until = models.DateTimeField(null=True, editable=False, help_text="Until then what comes is gathered.")
    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workspace", "name"], name="notification_rule_name")]
        indexes = [
            models.Index(fields=["workspace", "-id"], name="notification_rule_page"),
            # Reader: the transaction of a failure (execution/sql/write_results.sql).
            models.Index(fields=["workspace"], condition=models.Q(enabled=True), name="notification_rule_enabled"),
        ]

    def __str__(self) -> str:
        return self.name


class NotificationFact(models.Model):
    """Something that a rule wants told: one row for each rule, written in the transaction in which it happened.

    Plain columns in place of foreign keys: the transaction of a failure looks up nothing.
    """

    class Kind(models.TextChoices):
        FAILURE = "failure"
        FAILURES_IN_ROW = "failures_in_row"
        SUCCESS = "success", "success of a job that was failing"
        RECOVERY = "recovery"
        SLA_VIOLATION = "sla_violation"
        BULK_FINISHED = "bulk_finished"
        LEADER_MISSING = "leader_missing"

    class Stage(models.TextChoices):
        NEW = "new", "not yet weighed by its rule"
        WAITING = "waiting", "to be told"
        TOLD = "told", "in a notification"
        SILENT = "silent", "not to be told"

    rule_id = models.UUIDField()
    workspace_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=15, choices=Kind.choices)
    stage = models.CharField(max_length=7, choices=Stage.choices)
    job_key = models.UUIDField(help_text="The job definition; else the schedule, the bulk job, or the site's loops.")
    job_definition_id = models.UUIDField(null=True)
    subject_id = models.UUIDField(null=True, help_text="The execution or bulk job.")
    reason = models.CharField(max_length=64, default="", db_default="")
    error = models.CharField(max_length=64, default="", db_default="")
    status = models.PositiveSmallIntegerField(null=True)
    at = models.DateTimeField(help_text="When it happened.")
    created_at = models.DateTimeField()
    group_id = models.UUIDField(null=True, help_text="The notifications that tell it.")

    class Meta:
        indexes = [
            # Reader: execution.notifications.weighing.
            models.Index(fields=["id"], condition=models.Q(stage="new"), name="notification_fact_new"),
            # Reader: execution.notifications.grouping.
            models.Index(
                fields=["rule_id", "id"], condition=models.Q(stage="waiting"), name="notification_fact_waiting"
            ),
            models.Index(
                fields=["group_id", "id"], condition=models.Q(group_id__isnull=False), name="notification_fact_group"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject_id}"


class NotificationState(models.Model):
    """A job that is failing, as one rule sees it. The row goes with the recovery, so that few are ever looked at."""

    rule_id = models.UUIDField()
    job_key = models.UUIDField()
    workspace_id = models.UUIDField(null=True)
    in_row = models.PositiveIntegerField(default=0)
    row_told = models.BooleanField(default=False, help_text="That many in a row failed has been told.")
    told = models.BooleanField(default=False, help_text="A failure has been told, so a recovery is.")
    last_failed_at = models.DateTimeField()
    marked_at = models.DateTimeField(help_text="Since when successes of the job are noted.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job_key", "rule_id"], name="notification_state_once")]

    def __str__(self) -> str:
        return f"{self.job_key} ({self.in_row})"
