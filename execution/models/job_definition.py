from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace


class JobKind(models.TextChoices):
    HTTP = "http", "HTTP call"
    KAFKA = "kafka", "Kafka message"


class JobDefinition(models.Model):
    """What to deliver and how. Executions carry a snapshot of it; an edit raises `version` and touches no snapshot."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="job_definitions")
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=16, choices=JobKind.choices, default=JobKind.HTTP)
    target = models.JSONField(help_text="For HTTP: url, method, headers. For Kafka: topic, key, partition, headers.")
    payload = models.JSONField(null=True, blank=True, help_text="Sent as JSON unless the schedule brings its own.")
    timeout_s = models.FloatField(default=30)
    retry = models.JSONField(default=dict)
    limits = models.JSONField(default=dict, blank=True, db_default={}, help_text="rate_limit, max_concurrency.")
    tags = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    version = models.PositiveIntegerField(default=1)
    paused_at = models.DateTimeField(null=True, blank=True)
    has_parked = models.BooleanField(default=False, editable=False, help_text="Executions wait for the resume.")
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "name"],
                condition=models.Q(deleted_at__isnull=True),
                name="job_definition_name",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "-id"], name="job_definition_page"),
            GinIndex(fields=["tags"], name="job_definition_tags"),
            # Reader: scheduling.loops.fire, which lets go what a resumed job had parked.
            models.Index(
                fields=["id"],
                condition=models.Q(has_parked=True, paused_at__isnull=True),
                name="job_definition_resumed",
            ),
        ]

    def __str__(self) -> str:
        return self.name
