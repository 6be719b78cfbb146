"""Tenants, who belongs to them, and the keys that programs use."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models

from chronos_site.infra.clock import DatabaseClock
from chronos_site.infra.ids import new_id
from chronos_site.infra.references import NAMESPACE


class Scope(models.TextChoices):
    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    SCHEDULES_READ = "schedules:read"
    SCHEDULES_WRITE = "schedules:write"
    EXECUTIONS_READ = "executions:read"
    EXECUTIONS_WRITE = "executions:write"
    NOTIFICATIONS_READ = "notifications:read"
    NOTIFICATIONS_WRITE = "notifications:write"
    KEYS_ADMIN = "keys:admin"
    WORKSPACE_READ = "workspace:read"


class Workspace(models.Model):
    """A tenant. It owns everything else; nothing crosses it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.SlugField(max_length=63, unique=True)
    quota_pending_executions = models.PositiveIntegerField(default=1_000_000)
    quota_job_definitions = models.PositiveIntegerField(default=10_000)
    quota_schedules = models.PositiveIntegerField(
        default=100_000, db_default=100_000, help_text="Schedules that recur and have not ended."
    )
    rate_limit_per_s = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="API requests per second; empty for the site's default.",
    )
    secret_namespaces = ArrayField(
        models.CharField(
            max_length=63,
            validators=[RegexValidator(rf"\A{NAMESPACE}\Z", "Lower case letters, digits and inner hyphens, up to 63.")],
        ),
        default=list,
        db_default=[],
        blank=True,
        help_text="Namespaces whose secrets its jobs may send, to any receiver; comma-separated, empty for none.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A person's part in a workspace."""

    class Role(models.TextChoices):
        VIEWER = "viewer"
        OPERATOR = "operator"
        ADMIN = "admin"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "workspace"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user} in {self.workspace} ({self.role})"


class ApiKey(models.Model):
    """A program's key. Only the SHA-256 of it is kept; `prefix` is what people recognise it by."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12, editable=False)
    key_hash = models.CharField(max_length=64, unique=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=32, choices=Scope.choices))
    previous_prefix = models.CharField(max_length=12, default="", db_default="", editable=False)
    previous_key_hash = models.CharField(  # noqa: DJ001 - most have none, and none is no hash
        max_length=64, null=True, unique=True, editable=False, help_text="The secret before the last rotation."
    )
    previous_expires_at = models.DateTimeField(null=True, editable=False, help_text="Until when it works on.")
    previous_used_at = models.DateTimeField(null=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )

    clock: DatabaseClock | None = None
    """No column: the database's clock, as it was read with the key of a request."""
    by_previous = False
    """No column: the request came with the secret before the last rotation."""

    class Meta:
        verbose_name = "API key"
        # Reader: the list of a workspace's keys.
        indexes = [models.Index(fields=["workspace", "-id"], name="api_key_page")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
