"""Shapes of keys and workspaces on the wire."""

from datetime import datetime
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from chronos_site.api.fields import IntegerField, TextField, TimestampField, UuidField
from chronos_site.api.serializers import StrictSerializer
from chronos_site.tenancy.models import ApiKey, Scope
from chronos_site.tenancy.services import LONGEST_OVERLAP_S, OVERLAP_S


class ScopesField(serializers.ListField):
    """One or more different scopes."""

    child = serializers.ChoiceField(choices=Scope.choices)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_length=1, max_length=len(Scope), **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        scopes: list[str] = super().to_internal_value(data)
        if len(set(scopes)) < len(scopes):
            raise serializers.ValidationError("A scope is given twice.", code="duplicate")
        return scopes


class ApiKeySerializer(StrictSerializer):
    id = UuidField(read_only=True)
    name = TextField(max_length=100)
    prefix = serializers.CharField(read_only=True, help_text="The key's first characters, to recognise it by.")
    scopes = ScopesField()
    previous_prefix = serializers.CharField(read_only=True, help_text="Of the secret before the last rotation.")
    previous_expires_at = TimestampField(read_only=True, allow_null=True, help_text="Until when that one works on.")
    previous_used_at = TimestampField(read_only=True, allow_null=True, help_text="When that one was last used.")
    expires_at = TimestampField(required=False, allow_null=True, default=None)
    revoked_at = TimestampField(read_only=True, allow_null=True)
    last_used_at = TimestampField(read_only=True, allow_null=True, help_text="Exact to a minute.")
    created_at = TimestampField(read_only=True)

    def validate_expires_at(self, value: datetime | None) -> datetime | None:
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError("This time has passed. Give a later one.", code="in_the_past")
        return value


class RotationSerializer(StrictSerializer):
    overlap_s = IntegerField(
        min_value=0,
        max_value=LONGEST_OVERLAP_S,
        default=OVERLAP_S,
        help_text="Seconds for which the old secret works on; 0 ends it at once.",
    )


class CreatedApiKeySerializer(ApiKeySerializer):
    key = serializers.SerializerMethodField(
        help_text="The key itself, in this answer only; null where a repeated Idempotency-Key replays it."
    )

    def get_key(self, _key: ApiKey) -> str | None:
        plaintext: str = self.context["plaintext"]
        return plaintext


class UsageSerializer(serializers.Serializer[Any]):
    quota = serializers.CharField(help_text="As a refusal names it (429 quota_exceeded).")
    limit = serializers.IntegerField()
    used = serializers.IntegerField(help_text="Counted up to the limit; may be ten seconds old.")


class WorkspaceSerializer(serializers.Serializer[Any]):
    id = UuidField()
    name = serializers.CharField()
    quota_pending_executions = serializers.IntegerField()
    quota_job_definitions = serializers.IntegerField()
    quota_schedules = serializers.IntegerField(help_text="Schedules that recur and have not ended.")
    rate_limit_per_s = serializers.IntegerField(help_text="API requests per second, all keys together.")
    secret_namespaces = serializers.ListField(
        child=serializers.CharField(), help_text="Namespaces whose secrets jobs may refer to; an operator sets them."
    )
    usage = UsageSerializer(many=True, help_text="Every quota, with what is used of it.")
    created_at = TimestampField()
