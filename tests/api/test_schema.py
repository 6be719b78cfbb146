"""The API describes itself, completely and without a foreign server."""

import json
import re
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from openapi_spec_validator import validate

from tests.clients import ApiClient


@pytest.fixture
def document() -> dict[str, Any]:
    answer = ApiClient(None).get("/v1/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = json.loads(answer.content)
    return found


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"].startswith("3.1.")


def test_every_operation_names_its_key_and_its_problems(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            wanted = {"400", "401", "403", "429"} | ({"404"} if "{" in path else set())
            wanted |= set() if method == "get" else {"409", "413", "422"}
            assert wanted <= set(operation["responses"]), (path, method)
            assert set(operation["responses"]["401"]["content"]) == {"application/problem+json"}
            assert operation["security"] == [{"apiKey": []}]


def test_creating_operations_have_an_example_and_take_an_idempotency_key(document: dict[str, Any]) -> None:
    for path in ("/v1/job-definitions", "/v1/schedules", "/v1/api-keys"):
        operation = document["paths"][path]["post"]
        assert operation["requestBody"]["content"]["application/json"]["examples"]
        assert "Idempotency-Key" in {parameter["name"] for parameter in operation["parameters"]}


def test_lists_are_pages(document: dict[str, Any]) -> None:
    operation = document["paths"]["/v1/executions"]["get"]
    assert {"limit", "cursor"} <= {parameter["name"] for parameter in operation["parameters"]}
    name = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
    assert set(document["components"]["schemas"][name]["required"]) == {"items", "next_cursor"}


@pytest.mark.django_db
def test_the_page_loads_only_local_files() -> None:
    page = ApiClient(None).get("/v1/docs").content.decode()
    assert "://" not in page
    files = [path for path in re.findall(r'(?:src|href)="([^"]+)"', page) if path.startswith("/static/")]
    assert len(files) >= 3
    assert all(finders.find(path.removeprefix("/static/")) for path in files)
    script = ApiClient(None).get("/v1/docs?script=").content.decode()
    assert "/v1/openapi.json" in script
