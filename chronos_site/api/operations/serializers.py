"""Shapes of operations on the wire, and of the bodies that start them."""

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from chronos_site.api.fields import FlagField, IntegerField, TimestampField
from chronos_site.api.models import Operation
from chronos_site.api.serializers import RowSerializer, StrictSerializer

HIGHEST_RATE_PER_S = 1000


class ActionSerializer(StrictSerializer):
    """What starts an operation. A subclass adds `filter`, a StrictSerializer with the names of the list's own filters.

    An empty filter means everything, which nobody should ask for by leaving something out: it is taken in a dry run, or
    with the number that it is expected to find.
    """

    expect_count = IntegerField(
        min_value=0, max_value=1 << 40, required=False, help_text="409 where the filter finds another number."
    )
    dry_run = FlagField(default=False, help_text="Only count; nothing is stored or changed.")
    rate_per_s = IntegerField(
        min_value=1,
        max_value=HIGHEST_RATE_PER_S,
        required=False,
        help_text="At most so many rows a second. Replays take 100 where it is missing, other actions have no limit.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs["filter"] and not attrs["dry_run"] and "expect_count" not in attrs:
            detail = (
                "An empty filter means everything. Narrow it, or give expect_count with it; dry_run tells the count."
            )
            raise serializers.ValidationError({"filter": [ErrorDetail(detail, "empty_filter")]})
        return attrs

    def frozen_filter(self) -> dict[str, Any]:
        """The filter as JSON, as it is stored and shown."""
        frozen: dict[str, Any] = self.fields["filter"].to_representation(self.validated_data["filter"])
        return frozen


class OperationSerializer(RowSerializer[Operation]):
    filter = serializers.JSONField(read_only=True, help_text="As it was frozen.")
    arguments = serializers.JSONField(read_only=True)
    total = serializers.IntegerField(read_only=True, help_text="What the filter found when it was accepted.")
    done = serializers.IntegerField(read_only=True)
    skipped = serializers.IntegerField(
        read_only=True, help_text="Were seen to by somebody else, or matched no longer, when their turn came."
    )
    failed = serializers.IntegerField(read_only=True)
    result = serializers.DictField(
        child=serializers.IntegerField(),
        read_only=True,
        help_text="Further counters of the kind, of rows that are in none of the others: a cancel counts as"
        " `requested` what a worker holds and may still deliver.",
    )
    waiting_for = serializers.CharField(
        read_only=True, help_text="Why it stands still right now; empty where it goes on."
    )
    error = serializers.CharField(read_only=True, help_text="Why it FAILED.")
    created_at = TimestampField(read_only=True)
    started_at = TimestampField(read_only=True, allow_null=True)
    finished_at = TimestampField(read_only=True, allow_null=True)

    class Meta:
        model = Operation
        fields = (
            "id",
            "kind",
            "state",
            "filter",
            "arguments",
            "total",
            "done",
            "skipped",
            "failed",
            "result",
            "rate_per_s",
            "waiting_for",
            "error",
            "created_at",
            "started_at",
            "finished_at",
        )
        read_only_fields = fields


class DryRunSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    count = serializers.IntegerField(help_text="What the filter finds now.")
