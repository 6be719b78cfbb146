"""Bodies are JSON, strictly."""

import pytest

from chronos_site.api.parsers import nested_deeper_than, parse_json
from chronos_site.api.problems import Problem
from tests.clients import ApiClient


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'\xff\xfe{"a": 1}',
        b'"\xed\xa0\x80"',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 101 + b"]" * 101,
        b"[" * 200_000 + b"]" * 200_000,
        b'{"a":' * 50_000,
    ],
)
def test_what_is_no_json_is_refused_in_one_sentence(raw: bytes) -> None:
    with pytest.raises(Problem) as refused:
        parse_json(raw)
    assert (refused.value.status_code, refused.value.code) == (400, "malformed_json")
    assert len(str(refused.value.detail)) < 200


def test_json_goes_through_as_it_is() -> None:
    assert parse_json('{"a": [1, 2.5, "ü\\u0000", null, true]}'.encode()) == {"a": [1, 2.5, "ü\0", None, True]}
    assert parse_json(b"[" * 100 + b"]" * 100)


def test_depth_counts_containers() -> None:
    assert not nested_deeper_than(1, [1, 2])
    assert nested_deeper_than(1, [[]])
    assert not nested_deeper_than(2, {"a": [1], "b": {}})
    assert not nested_deeper_than(1, "text")


def test_malformed_json_over_the_api_is_400_and_stores_nothing(api: ApiClient) -> None:
    answer = api.post("/v1/api-keys", b'{"name": "x",')
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json")
    assert len(api.get("/v1/api-keys").json()["items"]) == 1


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_another_media_type_is_415(api: ApiClient, kind: str) -> None:
    answer = api.post("/v1/api-keys", b"name=x", content_type=kind)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_a_charset_beside_the_media_type_is_taken(api: ApiClient) -> None:
    kind = "Application/JSON; charset=utf-8"
    assert api.post("/v1/api-keys", {"name": "x", "scopes": ["jobs:read"]}, content_type=kind).status_code == 201


def test_a_body_over_the_limit_is_413(api: ApiClient, settings: object) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000  # type: ignore[attr-defined]
    answer = api.post("/v1/api-keys", {"name": "x" * 2000, "scopes": ["jobs:read"]})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"7", b"null", b"true", b""])
def test_a_body_that_is_no_object_is_refused(api: ApiClient, body: bytes) -> None:
    answer = api.post("/v1/api-keys", body)
    assert answer.status_code in {400, 422}
