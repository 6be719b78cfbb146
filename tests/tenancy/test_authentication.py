"""A live key in the Authorization header, or 401."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chronos_site.tenancy import keys, services
from chronos_site.tenancy.models import ApiKey, Workspace
from tests.clients import ApiClient

PATH = "/v1/workspace"


def refusal(answer: Any) -> str:
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer.headers["Content-Type"] == "application/problem+json"
    code: str = answer.json()["code"]
    return code


@pytest.mark.django_db
def test_no_key_is_401() -> None:
    assert refusal(ApiClient(None).get(PATH)) == "missing_key"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer chr_x",
        "Basic {key}",
        "{key}",
        "Bearer  {key}",
        "Bearer {key} x",
        "Bearer {key}x",
    ],
)
def test_a_malformed_key_is_refused_without_a_query(api_key: str, header: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        answer = ApiClient(None).get(PATH, authorization=header.format(key=api_key))
    assert refusal(answer) == "malformed_key"
    assert len(queries) == 0


@pytest.mark.django_db
def test_a_well_formed_key_that_nobody_has_is_401() -> None:
    assert refusal(ApiClient(keys.generate_key()).get(PATH)) == "unknown_key"


def test_a_revoked_and_an_expired_key_are_401(workspace: Workspace) -> None:
    key, plaintext = services.create_api_key(workspace=workspace, name="k")
    services.revoke_api_key(workspace=workspace, key_id=key.id)
    assert refusal(ApiClient(plaintext).get(PATH)) == "revoked_key"
    past = timezone.now() - timedelta(seconds=1)
    _, expired = services.create_api_key(workspace=workspace, name="e", expires_at=past)
    assert refusal(ApiClient(expired).get(PATH)) == "expired_key"


def test_the_old_secret_of_a_rotated_key_is_told_apart_and_then_unknown(workspace: Workspace) -> None:
    key, old = services.create_api_key(workspace=workspace, name="k")
    _, new = services.rotate_api_key(workspace=workspace, key_id=key.id, overlap_s=0)
    assert refusal(ApiClient(old).get(PATH)) == "rotated_key"
    _, new = services.rotate_api_key(workspace=workspace, key_id=key.id, overlap_s=0)
    assert refusal(ApiClient(old).get(PATH)) == "unknown_key"
    assert ApiClient(new).get(PATH).status_code == 200


def test_a_key_in_the_query_opens_nothing(api_key: str) -> None:
    assert refusal(ApiClient(None).get(f"{PATH}?key={api_key}&access_token={api_key}")) == "missing_key"


def test_a_session_opens_nothing(admin_user: Any) -> None:
    client = Client()
    client.force_login(admin_user)
    assert refusal(client.get(PATH)) == "missing_key"


def test_finding_the_key_and_its_workspace_is_one_query(api: ApiClient) -> None:
    path = "/v1/job-definitions"
    api.get(path)
    with CaptureQueriesContext(connection) as queries:
        assert api.get(path).status_code == 200
    assert len(queries) == 2, "the key with its workspace, and the list"


def test_last_use_is_written_at_most_once_a_minute(api: ApiClient) -> None:
    api.get(PATH)
    first = ApiKey.objects.get().last_used_at
    api.get(PATH)
    assert ApiKey.objects.get().last_used_at == first
    assert first is not None
    ApiKey.objects.update(last_used_at=first - timedelta(seconds=61))
    api.get(PATH)
    assert (ApiKey.objects.get().last_used_at or first) > first
