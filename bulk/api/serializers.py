"""Shapes of bulk jobs on the wire. An upload is a form: its values come as text."""

from typing import Any

from rest_framework import serializers

from bulk import progress
from bulk.domain.numbering import number_of
from bulk.models import BulkJob, BulkRecord
from chronos_site.api.fields import TimestampField, UuidField
from chronos_site.api.serializers import RowSerializer, StrictSerializer
from execution.domain.credentials import shown

TAB = ("\\t", "tab")


class DelimiterField(serializers.CharField):
    """One character; a tab may be written as tab or \\t."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, max_length=3, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        text = "\t" if text in TAB else text
        if len(text) != 1 or not text.isascii() or text in '"\r\n\0':
            raise serializers.ValidationError(
                "The delimiter is one ASCII character, and no quote or line end. Write a tab as tab.", code="invalid"
            )
        return text


class NewBulkJobSerializer(StrictSerializer):
    """A form (multipart/form-data)."""

    file = serializers.FileField(help_text="CSV in UTF-8; its first line names the columns.")
    job = serializers.CharField(max_length=200, help_text="Id or name of the job definition.")
    delimiter = DelimiterField(default=",")
    max_invalid_share = serializers.FloatField(
        min_value=0, max_value=1, default=0.1, help_text="Where more of the rows are not valid, nothing is sent."
    )
    start = serializers.BooleanField(default=True, help_text="False: wait for …/start once the rows are read.")
    dry_run = serializers.BooleanField(
        default=False, help_text="True: show how the first rows would be sent; nothing is kept, nothing is sent."
    )

    def get_fields(self) -> dict[str, Any]:
        """The file is in the storage by the time it is looked at here."""
        return {**super().get_fields(), "file": _StoredField(help_text=self._declared_fields["file"].help_text)}


class _StoredField(serializers.FileField):
    def to_internal_value(self, data: Any) -> Any:
        if not hasattr(data, "sha256"):
            self.fail("invalid")
        return data


class BulkJobSerializer(RowSerializer[BulkJob]):
    job_definition = UuidField(source="job_definition_id", read_only=True)
    progress = serializers.SerializerMethodField()
    created_at = TimestampField(read_only=True)
    ingested_at = TimestampField(read_only=True, allow_null=True)
    finished_at = TimestampField(read_only=True, allow_null=True)
    columns = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = BulkJob
        fields = (
            "id",
            "state",
            "job_definition",
            "job_version",
            "file_name",
            "size_bytes",
            "delimiter",
            "max_invalid_share",
            "columns",
            "error_code",
            "error_text",
            "progress",
            "results_bytes",
            "created_at",
            "ingested_at",
            "finished_at",
        )
        read_only_fields = fields

    def get_progress(self, job: BulkJob) -> dict[str, Any]:
        return progress.shown(job)


class BulkRecordSerializer(RowSerializer[BulkRecord]):
    row = serializers.SerializerMethodField(help_text="From 1, the first after the header.")
    due_at = TimestampField(read_only=True, allow_null=True)
    started_at = TimestampField(read_only=True, allow_null=True)
    finished_at = TimestampField(read_only=True, allow_null=True)
    values = serializers.ListField(child=serializers.CharField(), read_only=True, allow_null=True)

    class Meta:
        model = BulkRecord
        fields = (
            "id",
            "row",
            "line",
            "values",
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
            "response_excerpt",
        )
        read_only_fields = fields

    def get_row(self, record: BulkRecord) -> int:
        return number_of(record.id)


class RenderedRowSerializer(serializers.Serializer[Any]):
    """A row as it would be sent; or `code` and `error`, where it would not."""

    row = serializers.IntegerField(source="number")
    line = serializers.IntegerField()
    target = serializers.SerializerMethodField()
    payload = serializers.JSONField(allow_null=True)
    code = serializers.CharField()
    error = serializers.CharField()

    def get_target(self, row: Any) -> Any:
        return None if row.target is None else shown(row.target)


class FirstLookSerializer(serializers.Serializer[Any]):
    columns = serializers.ListField(child=serializers.CharField())
    rows = RenderedRowSerializer(many=True)
