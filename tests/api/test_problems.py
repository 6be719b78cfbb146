"""Refusals have one shape, whoever raised them."""

import json

import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.exceptions import ErrorDetail

from chronos_site.api.problems import FieldProblem, Problem, exception_handler, validation_problem
from tests.clients import ApiClient


def test_every_member_of_a_problem_is_there(api: ApiClient) -> None:
    answer = api.get("/v1/api-keys?colour=red", x_request_id="mine-1")
    body = answer.json()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert {name: body[name] for name in ("type", "title", "status", "code", "request_id", "errors", "parameter")} == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "code": "unknown_parameter",
        "request_id": "mine-1",
        "errors": [],
        "parameter": "colour",
    }


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (exceptions.ParseError(), 400, "parse_error"),
        (exceptions.PermissionDenied("no", "missing_scope"), 403, "missing_scope"),
        (PermissionDenied(), 403, "permission_denied"),
        (Http404(), 404, "not_found"),
        (exceptions.NotFound(), 404, "not_found"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
        (exceptions.UnsupportedMediaType("text/csv"), 415, "unsupported_media_type"),
        (RequestDataTooBig(), 413, "body_too_large"),
        (OperationalError("server closed the connection"), 503, "database_unavailable"),
        (ZeroDivisionError("secret detail"), 500, "internal_error"),
    ],
)
def test_what_others_raise_becomes_a_problem(error: Exception, status: int, code: str) -> None:
    answer = exception_handler(error, {})
    assert (answer.status_code, answer.data["status"], answer.data["code"]) == (status, status, code)
    assert "secret" not in json.dumps(answer.data)


def test_throttling_says_when_to_come_back_in_whole_seconds() -> None:
    answer = exception_handler(exceptions.Throttled(wait=0.2), {})
    assert (answer.status_code, answer["Retry-After"], answer.data["code"]) == (429, "1", "rate_limited")


def test_nested_errors_point_at_their_place() -> None:
    problem = validation_problem(
        {
            "target": {"headers": {"a/b~c": [ErrorDetail("bad", "invalid_header_name")]}},
            "tags": {3: [ErrorDetail("twice", "duplicate")]},
            "items": [{}, {"name": [ErrorDetail("missing", "required")]}],
            "non_field_errors": [ErrorDetail("both", "one_of")],
        },
        prefix="/schedules/7",
    )
    assert problem.status_code == 422
    assert [(error.pointer, error.code) for error in problem.errors] == [
        ("/schedules/7/target/headers/a~1b~0c", "invalid_header_name"),
        ("/schedules/7/tags/3", "duplicate"),
        ("/schedules/7/items/1/name", "required"),
        ("/schedules/7", "one_of"),
    ]


def test_a_size_among_the_errors_makes_it_413_and_comes_first() -> None:
    problem = validation_problem(
        {"name": [ErrorDetail("x", "required")], "payload": [ErrorDetail("big", "payload_too_large")]}
    )
    assert (problem.status_code, problem.code, problem.errors[0].pointer) == (413, "payload_too_large", "/payload")


def test_an_answer_does_not_grow_with_the_number_of_faults() -> None:
    body = Problem(422, "invalid", "x", errors=[FieldProblem(f"/{i}", "invalid", "x") for i in range(5000)]).body()
    assert len(body["errors"]) == 100
    assert body["errors_total"] == 5000


def test_half_a_surrogate_pair_in_a_field_name_is_answered_not_a_server_error(api: ApiClient) -> None:
    answer = api.post("/v1/api-keys", b'{"name": "x", "scopes": ["jobs:read"], "\\ud800": 1}')
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == "unknown_field"


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/executions/17", "/v1/api-keys/"])
def test_an_unmatched_path_under_v1_is_a_problem_too(path: str, method: str) -> None:
    answer = getattr(ApiClient(None), method)(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_host_that_is_not_ours_is_a_problem_under_v1(api: ApiClient) -> None:
    answer = api.get("/v1/workspace", host="evil.example")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_a_method_that_a_resource_lacks_is_405_and_says_which_it_has(api: ApiClient) -> None:
    answer = api.put("/v1/workspace", {})
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"]


def test_accept_cannot_keep_a_refusal_from_being_read(api: ApiClient) -> None:
    assert api.get("/v1/workspace", accept="text/html").status_code == 200
    assert api.get("/v1/workspace?x=1", accept="application/problem+json").status_code == 400
