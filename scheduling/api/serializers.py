"""Shapes of schedules as callers send them."""

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from chronos_site.api.fields import (
    FlagField,
    IntegerField,
    NumberField,
    TagsField,
    TextField,
    TimestampField,
)
from chronos_site.api.serializers import StrictSerializer
from execution.api.fields import ChoiceField
from execution.api.serializers import LONGEST_TIMEOUT_S, PayloadField, RetrySerializer
from execution.api.targets import DeliveryHeadersField, TargetSerializer
from execution.models import Execution
from scheduling.api.fields import CronField, EveryField, ZoneField
from scheduling.domain.misfire import Policy
from scheduling.occurrences import MOST_AT_ONCE

LONGEST_DELAY_S = 10 * 366 * 86_400
LONGEST_JITTER_S = 3600
LONGEST_GRACE_S = 7 * 86_400
LONGEST_KEY = 200
MOST_RUNS = 2_000_000_000
MOST_FIRES = 100
MOST_RUNNING = 1000

ONCE = ("run_at", "delay_s")
RECURRING = ("cron", "every")
ONLY_ONCE = {"expires_after_s"}
ONLY_RECURRING = {
    "timezone",
    "anchor",
    "starts_at",
    "ends_at",
    "max_runs",
    "jitter_s",
    "misfire",
    "overlap",
    "pause_after_failures",
}


class DeliverySerializer(StrictSerializer):
    headers = DeliveryHeadersField(required=False)
    timeout_s = NumberField(min_value=0.1, max_value=LONGEST_TIMEOUT_S, required=False)
    retry = RetrySerializer(required=False)


class MisfireSerializer(StrictSerializer):
    """What becomes of occurrences that were missed, while all was down or the schedule was paused."""

    policy = ChoiceField(choices=[policy.value for policy in Policy], default=Policy.FIRE_ONCE.value)
    grace_s = NumberField(
        min_value=0, max_value=LONGEST_GRACE_S, default=60.0, help_text="Later than this and it counts as missed."
    )
    catch_up_window_s = NumberField(
        min_value=0, max_value=LONGEST_DELAY_S, default=86_400.0, help_text="Older missed ones never fire."
    )
    limit = IntegerField(
        min_value=1, max_value=MOST_AT_ONCE, default=100, help_text="Most that fire_all fires, the latest first."
    )


class NewScheduleSerializer(StrictSerializer):
    """Exactly one of run_at, delay_s (once), cron and every (recurring) says which kind it is."""

    job_definition = TextField(max_length=200, required=False, help_text="Id or name.")
    target = TargetSerializer(required=False)
    run_at = TimestampField(required=False)
    delay_s = NumberField(min_value=0, max_value=LONGEST_DELAY_S, required=False)
    cron = CronField(required=False, help_text="Five fields, six with seconds first, or a macro like @daily.")
    timezone = ZoneField(required=False, help_text="An IANA name; UTC where it is missing. An interval is shown in it.")
    every = EveryField(required=False, help_text="Like 90s, 15m, 1h30m, 2d, 1w, or whole seconds.")
    anchor = TimestampField(
        required=False, allow_null=True, help_text="Where an interval counts from: starts_at, or now, if missing."
    )
    starts_at = TimestampField(required=False, allow_null=True, help_text="No occurrence lies before it.")
    ends_at = TimestampField(required=False, allow_null=True, help_text="No occurrence lies after it.")
    max_runs = IntegerField(min_value=1, max_value=MOST_RUNS, required=False, allow_null=True)
    jitter_s = NumberField(
        min_value=0, max_value=LONGEST_JITTER_S, required=False, help_text="Deliveries are spread over so many seconds."
    )
    misfire = MisfireSerializer(required=False)
    overlap = ChoiceField(
        choices=Execution.Overlap.choices, required=False, help_text="While its last execution is under way."
    )
    pause_after_failures = IntegerField(
        min_value=1, max_value=1000, required=False, allow_null=True, help_text="Failed for good, in a row."
    )
    payload = PayloadField(required=False, allow_null=True)
    delivery = DeliverySerializer(required=False)
    expires_after_s = NumberField(min_value=1, max_value=LONGEST_DELAY_S, required=False)
    tags = TagsField(required=False)
    external_key = TextField(
        max_length=LONGEST_KEY, required=False, allow_null=True, help_text="Your own name for it, for …/by-key/."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in attrs.items() if value is not None or name == "payload"}
        _one_of(given, "job_definition", "target")
        _refuse_misfits(given, _kind(given))
        return given


def _one_of(attrs: dict[str, Any], first: str, second: str) -> None:
    if (first in attrs) == (second in attrs):
        word = "not both" if first in attrs else "one of them is needed"
        raise serializers.ValidationError({first: [f"Give {first} or {second}: {word}."]}, code="one_of")


def _kind(attrs: dict[str, Any]) -> str:
    """The one member that says when."""
    kinds = [name for name in (*ONCE, *RECURRING) if name in attrs]
    if len(kinds) == 1:
        return kinds[0]
    why = f"not {' and '.join(kinds)}" if kinds else "one of them is needed"
    raise serializers.ValidationError(
        {(kinds or ["run_at"])[0]: [f"Give one of run_at, delay_s, cron and every: {why}."]}, code="one_of"
    )


def _refuse_misfits(attrs: dict[str, Any], kind: str) -> None:
    if kind in ONCE:
        why = "This is for schedules that recur. Leave it out, or give cron or every in place of "
        wrong = dict.fromkeys(ONLY_RECURRING & attrs.keys(), f"{why}{kind}.")
    else:
        why = "This is for schedules that fire once. How late a recurring one may fire is misfire.grace_s."
        wrong = dict.fromkeys(ONLY_ONCE & attrs.keys(), why)
    if kind == "cron" and "anchor" in attrs:
        wrong["anchor"] = "This is for intervals. A cron expression counts from no anchor; leave it out."
    if wrong:
        raise serializers.ValidationError({name: [ErrorDetail(text, "wrong_kind")] for name, text in wrong.items()})


class MoveSerializer(StrictSerializer):
    run_at = TimestampField()


class PreviewSerializer(StrictSerializer):
    """Either cron or every."""

    cron = CronField(required=False)
    every = EveryField(required=False)
    anchor = TimestampField(required=False, help_text="Where an interval counts from: `after` where it is missing.")
    timezone = ZoneField(default="UTC")
    count = IntegerField(min_value=1, max_value=MOST_FIRES, default=10)
    after = TimestampField(required=False, help_text="Now where it is missing.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        _one_of(attrs, "cron", "every")
        _refuse_misfits(attrs, "cron" if "cron" in attrs else "every")
        return attrs


class BackfillSerializer(StrictSerializer):
    """A range of nominal times in the past."""

    to = TimestampField(help_text="Exclusive, not after now.")
    dry_run = FlagField(default=False, help_text="Only count; nothing is stored.")
    force = FlagField(default=False, help_text="Run occurrences that exist already once more.")
    max_running = IntegerField(
        min_value=1,
        max_value=MOST_RUNNING,
        required=False,
        help_text="Most of its executions under way at once: 10, or 1 where the schedule does not allow overlap.",
    )

    def get_fields(self) -> dict[str, Any]:
        """`from` cannot be written as a name of Python."""
        return {"from": TimestampField(help_text="Inclusive."), **super().get_fields()}
