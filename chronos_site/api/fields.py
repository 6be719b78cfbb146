"""Serializer fields that take what they say and coerce nothing: `"5"` is no number and `1` no text."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from chronos_site.api.parsers import nested_deeper_than
from chronos_site.api.problems import PAYLOAD_TOO_LARGE
from chronos_site.infra import header_values

DEEPEST_JSON = 64
MOST_TAGS = 50
MOST_HEADERS = 50
MOST_FILTER_VALUES = 100
LONGEST_HEADER_NAME = 128
FIRST_YEAR, LAST_YEAR = 2000, 2199

_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TAG = re.compile(r"[A-Za-z0-9_.:/=-]{1,64}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = {
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_OURS |= {
    "traceparent",
    "x-attempt-number",
    "x-bulk-job-id",
    "x-bulk-row",
    "x-execution-id",
    "x-job-id",
    "x-scheduled-for",
}
_OUR_FAMILIES = ("proxy-", "webhook-")


def parse_timestamp(text: str) -> datetime:
    """RFC 3339 with an offset, in UTC. Raises ValueError with a sentence for the caller."""
    found = _TIMESTAMP.fullmatch(text)
    if not found:
        raise ValueError("Write a time as RFC 3339, like 2030-01-31T09:00:00Z.")
    if not found[2]:
        raise ValueError("The offset from UTC is missing. End the time with Z, or with an offset like +01:00.")
    try:
        value = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("There is no such time in the calendar.") from None
    if not FIRST_YEAR <= value.year <= LAST_YEAR:
        raise ValueError(f"The year must lie between {FIRST_YEAR} and {LAST_YEAR}.")
    return value


def parse_uuid(text: str) -> UUID:
    """The form with four hyphens only. Raises ValueError."""
    if not _UUID.fullmatch(text):
        raise ValueError("Write an id as a UUID, like 0190b5a2-7c1e-7f00-8000-000000000000.")
    return UUID(text)


class TextField(serializers.CharField):
    """A string as it is: nothing is trimmed. NUL and halves of surrogate pairs are refused (by CharField itself)."""

    default_error_messages: ClassVar = {"invalid": "Give a string."}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        if isinstance(data, str) and data.isspace() and not self.allow_blank:
            self.fail("blank")
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return data


class IntegerField(serializers.IntegerField):
    default_error_messages: ClassVar = {"invalid": "Give a whole number."}

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return data


class NumberField(serializers.FloatField):
    """A finite number."""

    default_error_messages: ClassVar = {"invalid": "Give a number."}

    def to_internal_value(self, data: Any) -> float:
        if type(data) not in (int, float):
            self.fail("invalid")
        try:
            value = float(data)
        except OverflowError:
            self.fail("invalid")
        if not math.isfinite(value):
            self.fail("invalid")
        return value


class FlagField(serializers.BooleanField):
    default_error_messages: ClassVar = {"invalid": "Give true or false."}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


class TimestampField(serializers.DateTimeField):
    """RFC 3339 with an offset in, UTC with Z out."""

    def to_internal_value(self, value: Any) -> datetime:
        if not isinstance(value, str):
            raise ValidationError("Give a time as a string, like 2030-01-31T09:00:00Z.", code="invalid")
        try:
            return parse_timestamp(value)
        except ValueError as error:
            raise ValidationError(str(error), code="invalid_timestamp") from None

    def to_representation(self, value: datetime) -> str:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class UuidField(serializers.UUIDField):
    def to_internal_value(self, data: Any) -> UUID:
        try:
            return parse_uuid(data if isinstance(data, str) else "")
        except ValueError as error:
            raise ValidationError(str(error), code="invalid") from None


class TagsField(serializers.ListField):
    """Up to 50 different tags."""

    child = serializers.CharField(max_length=64)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MOST_TAGS, **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        if not isinstance(data, list):
            raise ValidationError("Give a list of strings.", code="not_a_list")
        if len(data) > MOST_TAGS:
            raise ValidationError(f"At most {MOST_TAGS} tags are taken, not {len(data)}.", code="max_length")
        errors: dict[Any, Any] = {}
        for index, tag in enumerate(data):
            if not isinstance(tag, str) or not _TAG.fullmatch(tag):
                errors[index] = [ErrorDetail("A tag is 1 to 64 characters of A-Z a-z 0-9 _ . : / = -", "invalid_tag")]
            elif tag in data[:index]:
                errors[index] = [ErrorDetail("This tag is given twice.", "duplicate")]
        if errors:
            raise ValidationError(errors)
        return data


class ManyField(serializers.ListField):
    """A filter in a body: one value or a list of them, any of which matches. Comes out as a list."""

    default_error_messages: ClassVar = {"empty": "An empty list finds nothing. Leave the filter out, or name a value."}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_empty=False, max_length=MOST_FILTER_VALUES, **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        if isinstance(data, list):
            found: list[Any] = super().to_internal_value(data)
            return found
        return [self.child.run_validation(data)]


class HeadersField(serializers.DictField):
    """Headers of a delivery: names are tokens, values printable ASCII, and those that the sender sets are refused."""

    child = serializers.CharField()

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if not isinstance(data, Mapping):
            raise ValidationError("Give an object of header names and values.", code="not_an_object")
        if len(data) > MOST_HEADERS:
            raise ValidationError(f"At most {MOST_HEADERS} headers are taken, not {len(data)}.", code="max_length")
        errors: dict[str, list[ErrorDetail]] = {}
        seen: set[str] = set()
        for name, value in data.items():
            found = header_fault(name, value, seen)
            seen.add(name.lower())
            if found:
                errors[name] = [found]
        if errors:
            raise ValidationError(errors)
        return dict(data)


def header_fault(name: str, value: Any, seen: set[str]) -> ErrorDetail | None:
    """Why this header is not taken beside those in `seen` (lower case); None where nothing is wrong."""
    lower = name.lower()
    if not _HEADER_NAME.fullmatch(name) or len(name) > LONGEST_HEADER_NAME:
        return ErrorDetail("This is no name of a header.", "invalid_header_name")
    if lower in _OURS or lower.startswith(_OUR_FAMILIES):
        return ErrorDetail("This header is set by Chronos or by the connection. Leave it out.", "forbidden_header")
    if lower in seen:
        return ErrorDetail("This header is given twice; upper and lower case are the same.", "duplicate")
    if not isinstance(value, str) or not header_values.is_value(value):
        return ErrorDetail(header_values.RULE, "invalid_header_value")
    return None


class JsonField(serializers.JSONField):
    """Any JSON of at most `max_bytes` (compact UTF-8) and 64 levels."""

    def __init__(self, *, max_bytes: int, **kwargs: Any) -> None:
        self.max_bytes = max_bytes
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> Any:
        try:
            size = len(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())
        except UnicodeEncodeError:
            raise ValidationError("A string holds half of a surrogate pair.", code="invalid_text") from None
        except (ValueError, TypeError, RecursionError):
            raise ValidationError("This is no JSON.", code="invalid") from None
        if size > self.max_bytes:
            detail = f"This is {size} bytes of JSON; at most {self.max_bytes} are taken."
            raise ValidationError(detail, code=PAYLOAD_TOO_LARGE)
        if nested_deeper_than(DEEPEST_JSON, data):
            raise ValidationError(f"This is nested deeper than {DEEPEST_JSON} levels.", code="too_deep")
        if any("\0" in text for text in _strings(data)):
            raise ValidationError("A string holds a NUL character.", code="null_characters_not_allowed")
        return data


def _strings(data: Any) -> Iterator[str]:
    """Every string of a JSON value, the names in objects among them."""
    waiting = [data]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            waiting.extend(node)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
