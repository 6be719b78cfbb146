"""Fields take what they say and coerce nothing."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError
from rest_framework.serializers import Field

from chronos_site.api.fields import (
    FlagField,
    HeadersField,
    IntegerField,
    JsonField,
    NumberField,
    TagsField,
    TextField,
    TimestampField,
    UuidField,
    parse_timestamp,
)


def code_of(field: Field[Any, Any, Any, Any], value: Any) -> str:
    """The first error's code; fails where the value is taken."""
    with pytest.raises(ValidationError) as refused:
        field.run_validation(value)
    codes: Any = refused.value.get_codes()
    while not isinstance(codes, str):
        codes = next(iter(codes.values())) if isinstance(codes, dict) else codes[0]
    return codes


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (TextField(), 5),
        (TextField(), True),
        (TextField(), ["a"]),
        (IntegerField(), "5"),
        (IntegerField(), 5.0),
        (IntegerField(), True),
        (NumberField(), "5"),
        (NumberField(), False),
        (NumberField(), float("inf")),
        (NumberField(), 10**400),
        (FlagField(), 1),
        (FlagField(), "true"),
        (TimestampField(), 1_700_000_000),
        (UuidField(), 5),
        (UuidField(), "{0190b5a2-7c1e-7f00-8000-000000000000}"),
    ],
)
def test_nothing_is_coerced(field: Field[Any, Any, Any, Any], value: Any) -> None:
    assert code_of(field, value) == "invalid"


def test_texts_are_kept_as_they_are_and_unfit_ones_refused() -> None:
    assert TextField().run_validation(" a ") == " a "
    assert code_of(TextField(), "a\0b") == "null_characters_not_allowed"
    assert code_of(TextField(), "\ud800") == "surrogate_characters_not_allowed"
    assert code_of(TextField(), "  ") == "blank"
    assert code_of(TextField(max_length=3), "abcd") == "max_length"


@pytest.mark.parametrize(
    "text",
    [
        "2030-01-31T09:00:00",
        "2030-01-31",
        "2030-01-31 09:00:00Z",
        "20300131T090000Z",
        "2030-02-30T09:00:00Z",
        "2030-01-31T24:00:01Z",
        "2030-01-31T09:00:60Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "1999-12-31T23:59:59Z",
        "2030-01-31T09:00:00+24:00",
        "٢٠٣٠-01-31T09:00:00Z",
        "2030-01-31T09:00:00Z\n",
        "",
    ],
)
def test_a_time_without_offset_or_outside_the_calendar_is_refused(text: str) -> None:
    assert code_of(TimestampField(), text) == "invalid_timestamp"


@given(
    st.datetimes(datetime(2001, 1, 1), datetime(2198, 12, 31)),  # noqa: DTZ001 - the offset is drawn beside it
    st.integers(-23 * 60, 23 * 60),
)
def test_a_time_is_answered_as_the_same_instant_in_utc(local: datetime, offset_minutes: int) -> None:
    given_time = local.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    parsed = parse_timestamp(given_time.isoformat())
    assert parsed == given_time
    shown = TimestampField().to_representation(parsed)
    assert shown.endswith("Z")
    assert parse_timestamp(shown) == given_time


def test_fractions_beyond_microseconds_are_cut() -> None:
    assert parse_timestamp("2030-01-01T00:00:00.123456789z") == datetime(2030, 1, 1, 0, 0, 0, 123456, UTC)


def test_tags_are_few_different_and_plain() -> None:
    field = TagsField()
    assert field.run_validation(["a", "team:billing/eu=1"]) == ["a", "team:billing/eu=1"]
    assert code_of(field, [f"t{i}" for i in range(10_000)]) == "max_length"
    assert code_of(field, ["a", "a"]) == "duplicate"
    assert code_of(field, ["a\n"]) == "invalid_tag"
    assert code_of(field, [""]) == "invalid_tag"
    assert code_of(field, ["x" * 65]) == "invalid_tag"
    assert code_of(field, [1]) == "invalid_tag"
    assert code_of(field, "a") == "not_a_list"


OURS = "Host content-length Transfer-Encoding connection TE Upgrade Proxy-Authorization Expect webhook-id X-Job-Id"
OURS += " X-EXECUTION-ID X-Attempt-Number X-Scheduled-For traceparent"


@pytest.mark.parametrize("name", OURS.split())
def test_headers_that_the_sender_sets_are_refused(name: str) -> None:
    assert code_of(HeadersField(), {name: "x"}) == "forbidden_header"


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\0b", "ü", " a", "a ", 5, None, "x" * 4097])
def test_a_header_value_cannot_break_out_of_its_line(value: Any) -> None:
    assert code_of(HeadersField(), {"X-A": value}) == "invalid_header_value"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ü", "x" * 129])
def test_a_header_name_is_a_token(name: str) -> None:
    assert code_of(HeadersField(), {name: "x"}) == "invalid_header_name"


def test_headers_are_few_and_different_by_any_case() -> None:
    assert HeadersField().run_validation({"X-A": "a b\tc", "X-B": ""}) == {"X-A": "a b\tc", "X-B": ""}
    assert code_of(HeadersField(), {"X-A": "1", "x-a": "2"}) == "duplicate"
    assert code_of(HeadersField(), {f"X-{i}": "1" for i in range(51)}) == "max_length"
    assert code_of(HeadersField(), [["X-A", "1"]]) == "not_an_object"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_json_is_bounded_in_size_and_depth_and_free_of_what_postgres_cannot_hold() -> None:
    field = JsonField(max_bytes=100)
    assert field.run_validation({"a": ["ü", 1.5, None]}) == {"a": ["ü", 1.5, None]}
    assert field.run_validation("x" * 98) == "x" * 98
    assert code_of(field, "x" * 99) == "payload_too_large"
    assert code_of(field, "ü" * 50) == "payload_too_large"
    assert code_of(JsonField(max_bytes=1000), nested(65)) == "too_deep"
    assert JsonField(max_bytes=1000).run_validation(nested(64)) == nested(64)
    assert code_of(JsonField(max_bytes=10**6), nested(50_000)) in {"invalid", "too_deep"}
    assert code_of(field, {"a": ["b\0"]}) == "null_characters_not_allowed"
    assert code_of(field, {"\0": 1}) == "null_characters_not_allowed"
    assert code_of(field, ["\udfff"]) == "invalid_text"
    assert code_of(field, float("nan")) == "invalid"
