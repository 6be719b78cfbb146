"""Shapes of channels, rules and notifications on the wire. Secrets come in by reference only, and none goes out."""

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError as DjangoValidationError
from django.core.validators import validate_email
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from chronos_site.api.fields import (
    FlagField,
    IntegerField,
    NumberField,
    TagsField,
    TextField,
    TimestampField,
    UuidField,
)
from chronos_site.api.serializers import RowSerializer, StrictSerializer
from execution.api.fields import ChoiceField
from execution.api.targets import (
    AuthSerializer,
    DeliveryHeadersField,
    ReferenceField,
    SigningSerializer,
    TargetSerializer,
)
from execution.domain.credentials import shown
from execution.domain.quiet_hours import DAYS, parse_clock, zone_of
from execution.domain.targets import LONGEST_URL
from execution.domain.told_events import FAULTS, fault_of
from execution.models import Notification, NotificationChannel, NotificationRule
from execution.models.notification import LONGEST_WAIT_S, LONGEST_WINDOW_S

Kind = NotificationChannel.Kind
Event = NotificationRule.Event

SEVERITIES = ("critical", "error", "warning", "info")
OF_WORKSPACES = tuple(choice for choice in Event.choices if choice[0] != Event.LEADER_MISSING)
MOST_RECIPIENTS = 50
MOST_CHANNELS = 20
MOST_JOBS = 100


class SlackSettingsSerializer(StrictSerializer):
    """An incoming webhook; its URL is the secret."""

    url = ReferenceField(help_text="The secret holds the URL of an incoming webhook.")


class PagerDutySettingsSerializer(StrictSerializer):
    """Events API v2."""

    routing_key = ReferenceField(help_text="The secret holds the integration key.")
    severity = ChoiceField(choices=SEVERITIES, default="error")


class WebhookSettingsSerializer(StrictSerializer):
    """A signed POST."""

    url = TextField(max_length=LONGEST_URL)
    headers = DeliveryHeadersField(default=dict)
    auth = AuthSerializer(required=False)
    signing = SigningSerializer()

    def validate_url(self, value: str) -> str:
        return TargetSerializer().validate_url(value)


class AddressField(TextField):
    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        try:
            validate_email(text)
        except DjangoValidationError:
            raise ValidationError("This is no e-mail address.", code="invalid") from None
        return text


class EmailSettingsSerializer(StrictSerializer):
    """Over the site's mail server."""

    to = serializers.ListField(child=AddressField(max_length=254), allow_empty=False, max_length=MOST_RECIPIENTS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not settings.EMAIL_HOST:
            raise ValidationError(
                "This site sends no e-mail: its operator has set no EMAIL_URL.", code="no_mail_server"
            )
        return attrs


class AppriseSettingsSerializer(StrictSerializer):
    url = ReferenceField(help_text="The secret holds an Apprise URL.")


SETTINGS: dict[str, type[StrictSerializer]] = {
    Kind.SLACK: SlackSettingsSerializer,
    Kind.PAGERDUTY: PagerDutySettingsSerializer,
    Kind.WEBHOOK: WebhookSettingsSerializer,
    Kind.EMAIL: EmailSettingsSerializer,
    Kind.APPRISE: AppriseSettingsSerializer,
}


def checked_settings(kind: str, given: Any) -> dict[str, Any]:
    """Raises ValidationError, its places below the settings."""
    body = SETTINGS[kind](data=given)
    body.is_valid(raise_exception=True)
    found: dict[str, Any] = body.validated_data
    return found


class ChannelSettingsField(serializers.JSONField):
    """By the kind of the channel; what goes out holds references and no secret."""

    def to_representation(self, value: Any) -> Any:
        return shown(super().to_representation(value))


class NotificationChannelSerializer(StrictSerializer):
    id = UuidField(read_only=True)
    name = TextField(max_length=200)
    kind = ChoiceField(choices=Kind.choices)
    settings = ChannelSettingsField(
        help_text="slack: url. pagerduty: routing_key, severity. webhook: url, signing, headers, auth. email: to."
        " apprise: url. Secrets as secret://namespace/name/key."
    )
    version = serializers.IntegerField(read_only=True)
    created_at = TimestampField(read_only=True)
    updated_at = TimestampField(read_only=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        try:
            attrs["settings"] = checked_settings(attrs["kind"], attrs["settings"])
        except ValidationError as error:
            raise ValidationError({"settings": error.detail}) from None
        return attrs


class ClockField(TextField):
    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        try:
            parse_clock(text)
        except ValueError as error:
            raise ValidationError(str(error), code="invalid") from None
        return text


class ZoneField(TextField):
    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        try:
            zone_of(text)
        except ValueError as error:
            raise ValidationError(str(error), code="invalid_timezone") from None
        return text


class QuietHoursSerializer(StrictSerializer):
    """A daily span in which nothing is told; what comes in it is told once it ends."""

    until = ClockField(help_text="HH:MM, exclusive; before `from` it is that of the next day.")
    timezone = ZoneField(max_length=64, help_text="Of the IANA database.")
    days = serializers.ListField(
        child=ChoiceField(choices=DAYS),
        required=False,
        allow_empty=False,
        max_length=7,
        help_text="Those it begins on.",
    )

    def get_fields(self) -> dict[str, Any]:
        """`from` is a word of Python's own."""
        return {"from": ClockField(help_text="HH:MM."), **super().get_fields()}


class NotificationRuleSerializer(StrictSerializer):
    id = UuidField(read_only=True)
    name = TextField(max_length=200)
    channels = serializers.ListField(child=UuidField(), allow_empty=False, max_length=MOST_CHANNELS)
    events = serializers.ListField(child=ChoiceField(choices=OF_WORKSPACES), allow_empty=False, max_length=6)
    failures_in_row = IntegerField(min_value=2, max_value=1000, allow_null=True, default=None)
    job_definitions = serializers.ListField(child=UuidField(), default=list, max_length=MOST_JOBS)
    tags = TagsField(default=list)
    quiet_hours = QuietHoursSerializer(allow_null=True, default=None)
    group_wait_s = NumberField(min_value=0, max_value=LONGEST_WAIT_S, default=5.0)
    group_window_s = NumberField(min_value=0, max_value=LONGEST_WINDOW_S, default=300.0)
    enabled = FlagField(default=True)
    version = serializers.IntegerField(read_only=True)
    created_at = TimestampField(read_only=True)
    updated_at = TimestampField(read_only=True)

    def validate_channels(self, value: list[Any]) -> list[Any]:
        return list(dict.fromkeys(value))

    def validate_events(self, value: list[str]) -> list[str]:
        return list(dict.fromkeys(value))

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        fault = fault_of(attrs["events"], attrs["failures_in_row"])
        if fault is not None:
            field, code = fault
            raise ValidationError({field: [ErrorDetail(FAULTS[code], code)]})
        return attrs

    def to_representation(self, instance: NotificationRule) -> dict[str, Any]:
        # Not the field's own way: it would ask for the ids anew, and quiet hours have a member called `from`.
        own = {
            "channels": sorted(str(channel.id) for channel in instance.channels.all()),
            "quiet_hours": instance.quiet_hours,
        }
        told: dict[str, Any] = {}
        for field in self._readable_fields:
            name = str(field.field_name)
            value = own[name] if name in own else getattr(instance, name)
            told[name] = value if value is None or name in own else field.to_representation(value)
        return told


class NotificationSerializer(RowSerializer[Notification]):
    rule = UuidField(source="rule_id", read_only=True, allow_null=True)
    channel = UuidField(source="channel_id", read_only=True)
    content = serializers.JSONField(read_only=True, help_text="What it tells: counts, jobs, errors, first examples.")
    created_at = TimestampField(read_only=True)
    due_at = TimestampField(read_only=True)
    started_at = TimestampField(read_only=True, allow_null=True)
    finished_at = TimestampField(read_only=True, allow_null=True)

    class Meta:
        model = Notification
        fields = (
            "id",
            "rule",
            "rule_name",
            "channel",
            "channel_name",
            "channel_kind",
            "event",
            "title",
            "content",
            "state",
            "state_reason",
            "attempt",
            "due_at",
            "started_at",
            "finished_at",
            "last_status",
            "last_error",
            "last_error_text",
            "last_duration_ms",
            "created_at",
        )
        read_only_fields = fields


class SentTestsSerializer(serializers.Serializer[Any]):
    """The tests of a rule, one for each of its channels."""

    items = NotificationSerializer(many=True)
