"""Shapes of schedules on the wire."""

from typing import Any

from rest_framework import serializers

from chronos_site.api.fields import HeadersField, NumberField, TagsField, TextField, TimestampField, UuidField
from chronos_site.api.serializers import StrictSerializer
from execution.api.serializers import LONGEST_TIMEOUT_S, PayloadField, RetrySerializer, TargetSerializer
from scheduling.models import Schedule

LONGEST_DELAY_S = 10 * 366 * 86_400


class DeliverySerializer(StrictSerializer):
    headers = HeadersField(required=False)
    timeout_s = NumberField(min_value=0.1, max_value=LONGEST_TIMEOUT_S, required=False)
    retry = RetrySerializer(required=False)


class NewScheduleSerializer(StrictSerializer):
    job_definition = TextField(max_length=200, required=False, help_text="Id or name.")
    target = TargetSerializer(required=False)
    run_at = TimestampField(required=False)
    delay_s = NumberField(min_value=0, max_value=LONGEST_DELAY_S, required=False)
    payload = PayloadField(required=False, allow_null=True)
    delivery = DeliverySerializer(required=False)
    expires_after_s = NumberField(min_value=1, max_value=LONGEST_DELAY_S, required=False)
    tags = TagsField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        _one_of(attrs, "job_definition", "target")
        _one_of(attrs, "run_at", "delay_s")
        return attrs


def _one_of(attrs: dict[str, Any], first: str, second: str) -> None:
    if (first in attrs) == (second in attrs):
        word = "not both" if first in attrs else "one of them is needed"
        raise serializers.ValidationError({first: [f"Give {first} or {second}: {word}."]}, code="one_of")


class MoveSerializer(StrictSerializer):
    run_at = TimestampField()


class ScheduleSerializer(serializers.ModelSerializer[Schedule]):
    job_definition = UuidField(source="job_definition_id", read_only=True, allow_null=True)
    run_at = TimestampField(read_only=True)
    created_at = TimestampField(read_only=True)
    updated_at = TimestampField(read_only=True)
    tags = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Schedule
        fields = (
            "id",
            "kind",
            "state",
            "job_definition",
            "target",
            "payload",
            "delivery",
            "run_at",
            "expires_after_s",
            "tags",
            "execution_id",
            "version",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields


class CreatedScheduleSerializer(ScheduleSerializer):
    bucket_id = serializers.IntegerField(help_text="The minute bucket that holds its execution.")

    class Meta:
        model = Schedule
        fields = (*ScheduleSerializer.Meta.fields, "bucket_id")
        read_only_fields = fields
