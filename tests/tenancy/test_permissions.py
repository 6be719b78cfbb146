"""A key does what its scopes name, and a view that names none is closed."""

from typing import ClassVar

import pytest
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from chronos_site.tenancy import services
from chronos_site.tenancy.models import Workspace
from tests.clients import ApiClient


class Forgotten(APIView):
    def get(self, request: Request) -> Response:
        return Response("open")


class HalfForgotten(Forgotten):
    required_scopes: ClassVar = {"POST": "jobs:write"}


@pytest.mark.parametrize("view", [Forgotten, HalfForgotten])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_view_or_method_without_a_scope_is_closed(api_key: str, view: type[APIView], method: str) -> None:
    request = APIRequestFactory().generic(method, "/", headers={"Authorization": f"Bearer {api_key}"})
    assert view.as_view()(request).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/workspace", "workspace:read"),
        ("GET", "/v1/api-keys", "keys:admin"),
        ("POST", "/v1/api-keys", "keys:admin"),
        ("GET", "/v1/job-definitions", "jobs:read"),
        ("POST", "/v1/job-definitions", "jobs:write"),
        ("GET", "/v1/schedules", "schedules:read"),
        ("POST", "/v1/schedules", "schedules:write"),
        ("GET", "/v1/executions", "executions:read"),
    ],
)
def test_a_missing_scope_is_403_and_named(workspace: Workspace, method: str, path: str, scope: str) -> None:
    others = [other for other in services.ALL_SCOPES if other != scope]
    _, lacking = services.create_api_key(workspace=workspace, name="lacking", scopes=others)
    answer = ApiClient(lacking).call(method, path, {}, {})
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
    assert scope in answer.json()["detail"]
    _, having = services.create_api_key(workspace=workspace, name="having", scopes=[scope])
    assert ApiClient(having).call(method, path, {}, {}).status_code in {200, 422}
