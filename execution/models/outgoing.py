from django.db import models

from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.domain.states import State

from .notification import NotificationChannel


class Notification(models.Model):
    """One outgoing notification: a delivery like an execution, self-sufficient, with its state.

    `execution.notifications.transitions` alone changes `state`. Rule and channel are plain columns: the log outlives
    them.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(
        Workspace, null=True, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    rule_id = models.UUIDField(null=True)
    rule_name = models.CharField(max_length=200, default="")
    channel_id = models.UUIDField()
    channel_name = models.CharField(max_length=200)
    channel_kind = models.CharField(max_length=9, choices=NotificationChannel.Kind.choices)
    group_id = models.UUIDField(null=True, help_text="Shared by what tells the same facts to several channels.")
    event = models.CharField(max_length=15)
    title = models.CharField(max_length=300)
    content = models.JSONField()
    target = models.JSONField()
    payload = models.JSONField(null=True)
    sequence_key = models.CharField(max_length=100, default="", help_text="Of one key, one after the other.")

    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in State], default=State.PENDING)
    state_reason = models.CharField(max_length=100, default="", db_default="")
    due_at = models.DateTimeField()
    claim_seq = models.PositiveIntegerField(default=0, db_default=0)
    begun_seq = models.PositiveIntegerField(default=0, db_default=0)
    unknown_outcomes = models.PositiveSmallIntegerField(default=0, db_default=0)
    worker_id = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    flow_wait_s = models.FloatField(default=0, db_default=0)
    attempt = models.PositiveIntegerField(default=0, db_default=0, help_text="Begun sends.")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    last_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=64, default="", db_default="")
    last_error_text = models.CharField(max_length=500, default="", db_default="")
    last_duration_ms = models.FloatField(null=True)
    traceparent = models.CharField(max_length=55, default="")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=[s.value for s in State]), name="notification_state"),
        ]
        indexes = [
            # Reader: execution.loops.notifications (what is due, and what was lost).
            models.Index(
                fields=["due_at"],
                condition=models.Q(state__in=[State.PENDING, State.QUEUED, State.RUNNING, State.RETRYING]),
                name="notification_open",
            ),
            models.Index(
                fields=["sequence_key", "id"],
                condition=models.Q(state__in=[State.PENDING, State.QUEUED, State.RUNNING, State.RETRYING])
                & ~models.Q(sequence_key=""),
                name="notification_sequence",
            ),
            # Reader: GET /v1/notifications, newest first.
            models.Index(fields=["workspace", "-id"], name="notification_page"),
            # Reader: the purge.
            models.Index(
                fields=["finished_at"], condition=models.Q(finished_at__isnull=False), name="notification_finished"
            ),
        ]

    def __str__(self) -> str:
        return self.title
