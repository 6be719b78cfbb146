from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.domain.states import State

from .job_definition import JobDefinition, JobKind


class Execution(models.Model):
    """One delivery to be made: a self-sufficient snapshot of target, payload and retry policy, with its state.

    `execution.making` makes rows, `execution.transitions` alone changes `state`. Foreign keys of
    this table have no constraint in the database: its parents are never deleted, and the check would cost every insert.
    """

    class Trigger(models.TextChoices):
        SCHEDULE = "schedule"
        RUN = "run"
        REPLAY = "replay"
        BACKFILL = "backfill"

    class Overlap(models.TextChoices):
        """What an execution does while another with its `concurrency_key` is under way."""

        ALLOW = "allow"
        SKIP = "skip"
        QUEUE_ONE = "queue_one"
        CANCEL_RUNNING = "cancel_running"

    class OnDeadline(models.TextChoices):
        """What becomes of it once its `start_deadline` has passed."""

        EXPIRE = "expire"
        MISFIRE = "misfire", "left to the misfire policy of its schedule"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(
        Workspace, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    job_definition = models.ForeignKey(
        JobDefinition, null=True, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    job_version = models.PositiveIntegerField(null=True)
    schedule_id = models.UUIDField(null=True)
    scheduled_for = models.DateTimeField(help_text="The nominal time.")
    run_no = models.PositiveIntegerField(default=0)
    replay_of = models.UUIDField(null=True, help_text="The execution that this one repeats.")
    trigger = models.CharField(max_length=10, choices=Trigger.choices)

    # The snapshot: dispatch needs no second look-up.
    kind = models.CharField(max_length=16, choices=JobKind.choices)
    target = models.JSONField()
    payload = models.JSONField(null=True)
    timeout_s = models.FloatField()
    retry = models.JSONField()
    limits = models.JSONField(default=dict, db_default={})
    tags = ArrayField(models.CharField(max_length=64), default=list)
    traceparent = models.CharField(max_length=55, default="")

    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in State], default=State.PENDING)
    state_reason = models.CharField(max_length=100, default="")
    due_at = models.DateTimeField(help_text="When a PENDING row wants to be picked up.")
    start_deadline = models.DateTimeField(null=True)
    on_deadline = models.CharField(
        max_length=8, choices=OnDeadline.choices, default=OnDeadline.EXPIRE, db_default=OnDeadline.EXPIRE
    )
    concurrency_key = models.CharField(max_length=64, null=True, help_text="One under way for each key.")  # noqa: DJ001
    overlap = models.CharField(max_length=14, choices=Overlap.choices, default=Overlap.ALLOW, db_default=Overlap.ALLOW)
    bucket_id = models.BigIntegerField(null=True)
    park_reason = models.CharField(max_length=32, default="")
    held_by = models.BigIntegerField(null=True, help_text="The dispatch switch that it waits for.")
    cancel_requested_at = models.DateTimeField(null=True)

    # The claim: who holds the row, and until when.
    claim_seq = models.PositiveIntegerField(default=0)
    begun_seq = models.PositiveIntegerField(default=0, help_text="The claim under which the last send began.")
    requeues = models.PositiveSmallIntegerField(default=0, help_text="Times that its message was published again.")
    unknown_outcomes = models.PositiveSmallIntegerField(default=0, help_text="Sends whose outcome was lost.")
    worker_id = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)

    flow_wait_s = models.FloatField(
        default=0, db_default=0, help_text="Seconds that flow control made it wait since its first send."
    )
    attempt = models.PositiveIntegerField(default=0, help_text="Begun sends.")
    started_at = models.DateTimeField(null=True, help_text="When the first send began.")
    finished_at = models.DateTimeField(null=True)
    last_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=64, default="")
    last_error_text = models.CharField(max_length=500, default="")
    last_duration_ms = models.FloatField(null=True)

    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            # An occurrence exists once, however many schedulers look at it.
            models.UniqueConstraint(
                fields=["schedule_id", "scheduled_for", "run_no"],
                condition=models.Q(schedule_id__isnull=False),
                name="execution_occurrence",
            ),
            # Two occurrences that are taken at the same moment pass any check that is not a constraint.
            models.UniqueConstraint(
                fields=["concurrency_key"],
                condition=models.Q(
                    state__in=[State.QUEUED, State.RUNNING, State.RETRYING], concurrency_key__isnull=False
                ),
                name="execution_overlap",
            ),
            # Of those that wait for the end of another, one.
            models.UniqueConstraint(
                fields=["concurrency_key"],
                condition=models.Q(state=State.PENDING, park_reason="overlap"),
                name="execution_overlap_parked",
            ),
            models.CheckConstraint(condition=models.Q(state__in=[s.value for s in State]), name="execution_state"),
        ]
        indexes = [
            # Readers: execution.fanout (rows of a bucket, workspaces in turn) and scheduling.loops.fire.
            models.Index(
                fields=["bucket_id", "workspace", "due_at"],
                condition=models.Q(state=State.PENDING),
                name="execution_pending",
            ),
            # Reader: execution.services.release_parked (what a resumed job lets go).
            models.Index(
                fields=["job_definition", "id"],
                condition=models.Q(state=State.PENDING, bucket_id__isnull=True),
                name="execution_parked",
            ),
            # Reader: scheduling.loops.misfire.
            models.Index(
                fields=["schedule_id"],
                condition=models.Q(state=State.PENDING, park_reason="misfire"),
                name="execution_misfired",
            ),
            # Reader: scheduling.backfill (how many of a schedule's are under way).
            models.Index(
                fields=["schedule_id"],
                condition=models.Q(
                    trigger="backfill", state__in=[State.PENDING, State.QUEUED, State.RUNNING, State.RETRYING]
                ),
                name="execution_backfilling",
            ),
            # Reader: execution.dispatch.concurrency (how many of a limited job are under way).
            models.Index(
                fields=["job_definition"],
                condition=models.Q(state=State.RUNNING, limits__has_key="max_concurrency"),
                name="execution_crowd",
            ),
            # Reader: execution.loops.retry (workspaces in turn).
            models.Index(
                fields=["workspace", "due_at"],
                condition=models.Q(state=State.RETRYING, held_by__isnull=True),
                name="execution_retrying",
            ),
            # Reader: execution.switches (what waits for a dispatch switch).
            models.Index(
                fields=["held_by", "due_at"],
                condition=models.Q(held_by__isnull=False, state__in=[State.PENDING, State.RETRYING]),
                name="execution_held",
            ),
            # Reader: execution.loops.monitor (claims and queued rows whose lease ran out).
            models.Index(
                fields=["lease_until"],
                condition=models.Q(state__in=[State.QUEUED, State.RUNNING]),
                name="execution_lease",
            ),
            # Reader: execution.loops.purge.
            models.Index(
                fields=["finished_at"], condition=models.Q(finished_at__isnull=False), name="execution_finished"
            ),
            # Readers: GET /v1/executions, newest first, and its filters by what is not yet, or not well, done.
            models.Index(fields=["workspace", "-id"], name="execution_page"),
            models.Index(
                fields=["workspace", "state", "-id"],
                condition=~models.Q(state=State.SUCCEEDED),
                name="execution_page_state",
            ),
            models.Index(fields=["job_definition", "-id"], name="execution_page_job"),
            models.Index(fields=["workspace", "scheduled_for"], name="execution_page_time"),
            GinIndex(fields=["tags"], name="execution_tags"),
        ]

    def __str__(self) -> str:
        return str(self.id)
