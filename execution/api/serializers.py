"""Shapes of job definitions and executions on the wire."""

from typing import Any

from django.conf import settings
from rest_framework import serializers

from chronos_site.api.fields import (
    IntegerField,
    JsonField,
    NumberField,
    TagsField,
    TextField,
    TimestampField,
    UuidField,
)
from chronos_site.api.serializers import RowSerializer, StrictSerializer
from execution.api.fields import ChoiceField
from execution.api.targets import ShownField, TargetSerializer
from execution.domain.backoff import InvalidPolicy, RetryPolicy
from execution.domain.limits import FASTEST_PER_S, MOST_BURST, MOST_CONCURRENT, SLOWEST_PER_S
from execution.domain.targets import kind_of
from execution.models import DeadLetter, Execution, JobDefinition, JobKind

LONGEST_TIMEOUT_S = 300


class PayloadField(JsonField):
    """Any JSON up to the limit of the deployment."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_bytes=settings.CHRONOS_MAX_PAYLOAD_BYTES, **kwargs)


class RetrySerializer(StrictSerializer):
    """Missing parts take their defaults; the whole is checked by the policy itself."""

    max_attempts = IntegerField(min_value=1, max_value=100, required=False)
    initial_backoff_s = NumberField(min_value=0.001, max_value=86_400, required=False)
    multiplier = NumberField(min_value=1, max_value=100, required=False)
    max_backoff_s = NumberField(min_value=0.001, max_value=604_800, required=False)
    jitter = ChoiceField(choices=("none", "full"), required=False)
    max_elapsed_s = NumberField(min_value=0.001, max_value=2_592_000, required=False, allow_null=True)
    retryable_statuses = serializers.ListField(
        child=IntegerField(min_value=300, max_value=599), required=False, max_length=50
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        try:
            RetryPolicy.from_dict(attrs)
        except InvalidPolicy as error:
            raise serializers.ValidationError({error.field or "retry": [str(error)]}, code=error.code) from error
        return attrs


class RateLimitSerializer(StrictSerializer):
    """`per_s` or `per_minute`; evenly spaced, but for a burst after a pause."""

    per_s = NumberField(min_value=SLOWEST_PER_S, max_value=FASTEST_PER_S, required=False)
    per_minute = NumberField(min_value=60 * SLOWEST_PER_S, max_value=60 * FASTEST_PER_S, required=False)
    burst = IntegerField(min_value=1, max_value=MOST_BURST, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("per_s" in attrs) == ("per_minute" in attrs):
            raise serializers.ValidationError(
                "Give a rate as per_s or as per_minute, one of the two.", code="invalid_limits"
            )
        return attrs


class LimitsSerializer(StrictSerializer):
    """A part that is missing limits nothing."""

    rate_limit = RateLimitSerializer(required=False)
    max_concurrency = IntegerField(min_value=1, max_value=MOST_CONCURRENT, required=False)


class JobDefinitionSerializer(StrictSerializer):
    id = UuidField(read_only=True)
    name = TextField(max_length=200)
    kind = ChoiceField(choices=JobKind.choices, required=False, help_text="As the target says, where it is missing.")
    target = TargetSerializer()
    payload = PayloadField(allow_null=True, default=None)
    timeout_s = NumberField(min_value=0.1, max_value=LONGEST_TIMEOUT_S, default=30.0)
    retry = RetrySerializer(default=dict)
    limits = LimitsSerializer(default=dict)
    tags = TagsField(default=list)
    version = serializers.IntegerField(read_only=True)
    state = serializers.SerializerMethodField(help_text="active or paused.")
    created_at = TimestampField(read_only=True)
    updated_at = TimestampField(read_only=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        kind = kind_of(attrs["target"])
        if attrs.setdefault("kind", kind) != kind:
            word = "has a topic, which makes it a Kafka message" if kind == JobKind.KAFKA else "has no topic"
            detail = f"The target {word}: give the kind {kind}, or leave it out."
            raise serializers.ValidationError({"kind": [detail]}, code="wrong_type")
        return attrs

    def get_state(self, job: JobDefinition) -> str:
        return "active" if job.paused_at is None else "paused"


class RunSerializer(StrictSerializer):
    payload = PayloadField(required=False, allow_null=True, help_text="In place of the job definition's own.")


class ExecutionSerializer(RowSerializer[Execution]):
    job_definition = UuidField(source="job_definition_id", read_only=True, allow_null=True)
    schedule = UuidField(source="schedule_id", read_only=True, allow_null=True)
    scheduled_for = TimestampField(read_only=True)
    due_at = TimestampField(read_only=True)
    start_deadline = TimestampField(read_only=True, allow_null=True)
    started_at = TimestampField(read_only=True, allow_null=True)
    finished_at = TimestampField(read_only=True, allow_null=True)
    created_at = TimestampField(read_only=True)
    cancel_requested_at = TimestampField(read_only=True, allow_null=True)
    target = ShownField(read_only=True)
    tags = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Execution
        fields = (
            "id",
            "job_definition",
            "job_version",
            "schedule",
            "trigger",
            "replay_of",
            "state",
            "state_reason",
            "scheduled_for",
            "due_at",
            "start_deadline",
            "park_reason",
            "attempt",
            "started_at",
            "finished_at",
            "cancel_requested_at",
            "last_status",
            "last_error",
            "last_error_text",
            "last_duration_ms",
            "kind",
            "target",
            "payload",
            "timeout_s",
            "retry",
            "limits",
            "tags",
            "created_at",
        )
        read_only_fields = fields


class DeadLetterSerializer(RowSerializer[DeadLetter]):
    job_definition = UuidField(source="job_definition_id", read_only=True, allow_null=True)
    created_at = TimestampField(read_only=True)
    resolved_at = TimestampField(read_only=True, allow_null=True)

    class Meta:
        model = DeadLetter
        fields = (
            "id",
            "job_definition",
            "reason",
            "last_status",
            "last_error",
            "attempts",
            "status",
            "resolved_at",
            "replayed_as",
            "created_at",
        )
        read_only_fields = fields


class AttemptSerializer(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    at = TimestampField()
    finished_at = TimestampField()
    duration_ms = serializers.FloatField()
    lateness_ms = serializers.FloatField()
    worker = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField(allow_blank=True)
    status = serializers.SerializerMethodField(
        help_text="The receiver's status code, null without an answer and for Kafka."
    )

    def get_status(self, log: dict[str, Any]) -> int | None:
        status = (log["response"] or {}).get("status")
        return None if status is None else int(status)


class AttemptLogSerializer(AttemptSerializer):
    request = serializers.JSONField(
        help_text="Method, URL without its query (or topic, key, partition), headers with secrets redacted, address."
    )
    response = serializers.JSONField(
        allow_null=True, help_text="Status, headers, at most 4 KiB of the body; for Kafka partition and offset."
    )
    error = serializers.JSONField(allow_null=True, help_text="Code and text where there was no answer, or a bad one.")
