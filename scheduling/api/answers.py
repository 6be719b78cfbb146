"""Shapes of schedules, occurrences and previews as they are answered."""

from datetime import datetime
from typing import Any

from django.utils.timezone import now
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from chronos_site.api.etag import set_etag
from chronos_site.api.fields import TimestampField, UuidField
from chronos_site.api.serializers import RowSerializer, shared
from execution.api.targets import ShownField
from execution.models import Execution
from scheduling import outlook
from scheduling.domain import intervals
from scheduling.models import Schedule
from scheduling.outlook import Ahead

OF_RECURRING = (
    "timezone",
    "jitter_s",
    "misfire",
    "overlap",
    "run_count",
    "missed_count",
)
"""Columns that have a value in every row and mean nothing for a schedule that fires once."""


class MisfirePolicySerializer(serializers.Serializer[Schedule]):
    policy = serializers.CharField(source="misfire")
    grace_s = serializers.FloatField(source="misfire_grace_s")
    catch_up_window_s = serializers.FloatField()
    limit = serializers.IntegerField(source="misfire_limit")


class ScheduleListSerializer(serializers.ListSerializer[Schedule]):
    """A page asks once for what lies ahead of all its schedules."""

    def to_representation(self, data: Any) -> Any:
        schedules: list[Schedule] = list(data)
        child: Any = self.child
        child.next_runs = outlook.next_runs(schedules, now=now())
        return [child.to_representation(schedule) for schedule in schedules]


class ScheduleSerializer(RowSerializer[Schedule]):
    """Members that mean nothing for its kind are null."""

    next_runs: dict[Any, Any] | None = None

    description = serializers.SerializerMethodField(help_text="In words.")
    job_definition = UuidField(source="job_definition_id", read_only=True, allow_null=True)
    target = ShownField(read_only=True, allow_null=True)
    delivery = ShownField(read_only=True)
    run_at = TimestampField(read_only=True, allow_null=True)
    cron = serializers.SerializerMethodField()
    timezone = serializers.CharField(read_only=True, allow_null=True)
    every = serializers.SerializerMethodField(help_text="The interval, like 1h30m.")
    anchor = TimestampField(read_only=True, allow_null=True)
    starts_at = TimestampField(read_only=True, allow_null=True)
    ends_at = TimestampField(read_only=True, allow_null=True)
    jitter_s = serializers.FloatField(read_only=True, allow_null=True)
    misfire = MisfirePolicySerializer(source="*", read_only=True, allow_null=True)
    overlap = serializers.ChoiceField(choices=Execution.Overlap.choices, read_only=True, allow_null=True)
    next_run_at = serializers.SerializerMethodField(help_text="When it fires next; null where it does not.")
    run_count = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Occurrences that were made to run, those of the next minutes too."
    )
    missed_count = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Occurrences that were missed and never fired."
    )
    created_at = TimestampField(read_only=True)
    updated_at = TimestampField(read_only=True)
    tags = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Schedule
        list_serializer_class = ScheduleListSerializer
        fields = (
            "id",
            "kind",
            "state",
            "pause_reason",
            "description",
            "external_key",
            "job_definition",
            "target",
            "payload",
            "delivery",
            "run_at",
            "expires_after_s",
            "cron",
            "timezone",
            "every",
            "every_s",
            "anchor",
            "starts_at",
            "ends_at",
            "max_runs",
            "jitter_s",
            "misfire",
            "overlap",
            "pause_after_failures",
            "next_run_at",
            "run_count",
            "missed_count",
            "last_misfire",
            "tags",
            "execution_id",
            "version",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields

    def to_representation(self, schedule: Schedule) -> dict[str, Any]:
        body = super().to_representation(schedule)
        if schedule.kind == Schedule.Kind.ONCE:
            body.update(dict.fromkeys(OF_RECURRING))
        return body

    def get_description(self, schedule: Schedule) -> str:
        return outlook.describe(schedule)

    def get_cron(self, schedule: Schedule) -> str | None:
        return schedule.cron or None

    def get_every(self, schedule: Schedule) -> str | None:
        return None if schedule.every_s is None else intervals.write(schedule.every_s)

    @extend_schema_field({"type": ["string", "null"], "format": "date-time"})
    def get_next_run_at(self, schedule: Schedule) -> str | None:
        runs = self.next_runs
        if runs is None:
            runs = outlook.next_runs([schedule], now=now())
        at = runs[schedule.id]
        return None if at is None else TimestampField().to_representation(at)


class CreatedScheduleSerializer(ScheduleSerializer):
    bucket_id = serializers.IntegerField(
        allow_null=True, help_text="The minute bucket that holds its execution; null for one that recurs."
    )

    class Meta:
        model = Schedule
        fields = (*ScheduleSerializer.Meta.fields, "bucket_id")
        read_only_fields = fields


class LocalField(serializers.DateTimeField):
    """RFC 3339 with the offset of the place."""

    def to_representation(self, value: datetime) -> str:
        return value.isoformat()


class FireSerializer(serializers.Serializer[Any]):
    """One coming fire by the clock of its zone; from scheduling.domain.preview.Line."""

    at = TimestampField()
    local = LocalField(help_text="The same moment by the clock of the zone.")
    utc_offset = serializers.CharField()
    moved = serializers.BooleanField(help_text="Its wall time does not exist on this day: it fires after the gap.")
    repeated = serializers.ChoiceField(
        choices=("first", "second"), allow_null=True, help_text="The local time comes twice; which of them this is."
    )
    note = serializers.CharField(allow_blank=True, help_text="A sentence about either.")


class PreviewAnswerSerializer(serializers.Serializer[Any]):
    description = serializers.CharField()
    fires = FireSerializer(many=True)


class AheadSerializer(FireSerializer):
    skipped = serializers.BooleanField(help_text="It will not fire: somebody passed over it, or cancelled it.")

    def to_representation(self, ahead: Ahead) -> dict[str, Any]:
        return {**FireSerializer(ahead.line).data, "skipped": ahead.skipped}


class OccurrenceSerializer(RowSerializer[Execution]):
    execution_id = UuidField(source="id", read_only=True)
    scheduled_for = TimestampField(read_only=True)
    run_no = serializers.IntegerField(read_only=True, help_text="0, or how often it was run again.")
    due_at = TimestampField(read_only=True)
    started_at = TimestampField(read_only=True, allow_null=True)
    finished_at = TimestampField(read_only=True, allow_null=True)

    class Meta:
        model = Execution
        fields = (
            "execution_id",
            "scheduled_for",
            "run_no",
            "trigger",
            "state",
            "state_reason",
            "due_at",
            "started_at",
            "finished_at",
        )
        read_only_fields = fields


class OccurrencesSerializer(serializers.Serializer[Any]):
    items = OccurrenceSerializer(many=True, help_text="What is made, newest first: past ones and the next minutes'.")
    next_cursor = serializers.CharField(allow_null=True, help_text="Null on the last page.")
    upcoming = AheadSerializer(many=True, help_text="The next ten, computed; none unless the schedule is ACTIVE.")


class BackfillCountSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    count = serializers.IntegerField(help_text="Occurrences in the range, those that exist already among them.")
    first = TimestampField(allow_null=True)
    last = TimestampField(allow_null=True)


def schedule_body(schedule: Schedule) -> dict[str, Any]:
    body: dict[str, Any] = shared(ScheduleSerializer).to_representation(schedule)
    return body


def created_body(schedule: Schedule, bucket_id: int | None) -> dict[str, Any]:
    return {**schedule_body(schedule), "bucket_id": bucket_id}


def schedule_answer(schedule: Schedule, body: dict[str, Any] | None = None, *, status: int = 200) -> Response:
    """The schedule with its ETag; 201 with its Location."""
    response = Response(schedule_body(schedule) if body is None else body, status=status)
    if status == 201:
        response["Location"] = f"/v1/schedules/{schedule.id}"
    set_etag(response, schedule.version)
    return response
