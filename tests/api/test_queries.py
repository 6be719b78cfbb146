"""Query parameters are declared; pages follow each other without gap or repeat."""

import base64
import json
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from chronos_site.api.problems import Problem
from chronos_site.api.queries import QueryParameters
from chronos_site.tenancy import services
from chronos_site.tenancy.models import Workspace
from tests.clients import ApiClient


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


ID = "0190b5a2-7c1e-7f00-8000-000000000000"


def parsed(query: str) -> QueryParameters:
    return QueryParameters(
        Request(APIRequestFactory().get(f"/v1/things?{query}")),
        many={"colour": Colour, "id": UUID, "tag": str},
        times=("due_from",),
        flags=("deep",),
        page=True,
    )


def test_repeated_values_are_alternatives_of_their_type() -> None:
    query = parsed(f"colour=red&colour=blue&id={ID}&due_from=2030-01-01T00:00:00%2B01:00&deep=true&limit=200")
    assert query.many("colour") == [Colour.RED, Colour.BLUE]
    assert query.many("id") == [UUID(ID)]
    assert query.many("tag") == []
    assert str(query.time("due_from")) == "2029-12-31 23:00:00+00:00"
    assert query.flag("deep")
    assert query.limit == 200


@pytest.mark.parametrize(
    ("query", "parameter", "code"),
    [
        ("color=red", "color", "unknown_parameter"),
        ("format=json", "format", "unknown_parameter"),
        ("colour=green", "colour", "invalid_parameter"),
        ("id=7", "id", "invalid_parameter"),
        ("tag=", "tag", "invalid_parameter"),
        ("tag=a%00b", "tag", "invalid_parameter"),
        ("tag=" + "x" * 501, "tag", "invalid_parameter"),
        ("&".join(["tag=a"] * 101), "tag", "invalid_parameter"),
        ("due_from=2030-01-01T00:00:00+01:00", "due_from", "invalid_parameter"),
        ("due_from=2030-01-01", "due_from", "invalid_parameter"),
        ("deep=1", "deep", "invalid_parameter"),
        ("deep=true&deep=true", "deep", "repeated_parameter"),
        ("limit=0", "limit", "invalid_parameter"),
        ("limit=201", "limit", "invalid_parameter"),
        ("limit=%D9%A3", "limit", "invalid_parameter"),
        ("limit=5&limit=5", "limit", "repeated_parameter"),
        ("cursor=x", "cursor", "invalid_cursor"),
        ("cursor=%00", "cursor", "invalid_cursor"),
        ("cursor=" + base64.urlsafe_b64encode(b"[" * 100_000).decode(), "cursor", "invalid_cursor"),
        ("cursor=" + base64.urlsafe_b64encode(b'{"path": "/v1/things"}').decode(), "cursor", "invalid_cursor"),
    ],
)
def test_a_bad_parameter_is_named(query: str, parameter: str, code: str) -> None:
    with pytest.raises(Problem) as refused:
        parsed(query)
    assert (refused.value.status_code, refused.value.code) == (400, code)
    assert refused.value.extra == {"parameter": parameter}


def test_a_cursor_carries_its_filters() -> None:
    cursor = parsed("colour=red&tag=b&tag=a").cursor_after(UUID(ID))
    alone = parsed(f"cursor={cursor}")
    assert (alone.many("colour"), sorted(alone.many("tag")), alone.after) == ([Colour.RED], ["a", "b"], UUID(ID))
    assert parsed(f"cursor={cursor}&tag=a&tag=b&colour=red").after == UUID(ID)
    with pytest.raises(Problem) as refused:
        parsed(f"cursor={cursor}&colour=blue")
    assert refused.value.code == "cursor_mismatch"


@pytest.mark.parametrize(
    "filters", [{"bogus": ["x"]}, {"colour": ["green"]}, {"tag": "a"}, [], {"tag": [None]}, {"deep": []}]
)
def test_a_forged_cursor_gets_no_further_than_a_query(filters: Any) -> None:
    text = json.dumps({"path": "/v1/things", "after": ID, "filters": filters})
    cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    with pytest.raises(Problem) as refused:
        parsed(f"cursor={cursor}")
    assert refused.value.status_code == 400


def test_pages_show_every_row_once_newest_first_while_rows_are_added(api: ApiClient, workspace: Workspace) -> None:
    for number in range(11):
        services.create_api_key(workspace=workspace, name=f"key {number}")
    seen: list[dict[str, Any]] = []
    path = "/v1/api-keys?limit=5"
    while path:
        body = api.get(path).json()
        seen += body["items"]
        services.create_api_key(workspace=workspace, name="later")
        path = body["next_cursor"] and f"/v1/api-keys?limit=5&cursor={body['next_cursor']}"
    ids = [item["id"] for item in seen]
    assert ids == sorted(set(ids), reverse=True)
    # Whether a row that is added meanwhile is seen is open; those that were there are.
    assert sorted(item["name"] for item in seen if item["name"] != "later") == sorted(
        [*(f"key {number}" for number in range(11)), "tests"]
    )


def test_a_cursor_of_another_list_is_refused(api: ApiClient, workspace: Workspace) -> None:
    services.create_api_key(workspace=workspace, name="second")
    cursor = api.get("/v1/api-keys?limit=1").json()["next_cursor"]
    answer = api.get(f"/v1/executions?cursor={cursor}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor")
