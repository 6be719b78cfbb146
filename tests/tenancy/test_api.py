"""Keys and workspace over the API."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from chronos_site.tenancy import services
from chronos_site.tenancy.models import ApiKey, Workspace
from tests.clients import ApiClient

PATH = "/v1/api-keys"


def test_the_workspace_shows_its_quotas_and_limits(api: ApiClient, workspace: Workspace, settings: Any) -> None:
    settings.CHRONOS_RATE_LIMIT_PER_WORKSPACE = 4321
    body = api.get("/v1/workspace").json()
    assert body["id"] == str(workspace.id)
    assert (body["name"], body["quota_pending_executions"], body["rate_limit_per_s"]) == ("acme", 1_000_000, 4321)
    assert body["created_at"].endswith("Z")


def test_every_quota_is_shown_with_what_is_used_and_kept(api: ApiClient, workspace: Workspace) -> None:
    job = {"target": {"url": "https://example.com/"}}
    assert api.post("/v1/job-definitions", {**job, "name": "a"}).status_code == 201
    assert api.post("/v1/schedules", {**job, "delay_s": 3600}).status_code == 201
    assert api.post("/v1/schedules", {**job, "every": "10d", "anchor": "2100-01-01T00:00:00Z"}).status_code == 201
    usage = {row["quota"]: (row["used"], row["limit"]) for row in api.get("/v1/workspace").json()["usage"]}
    assert usage == {
        "job definitions": (1, 10_000),
        "open operations": (0, 100),
        "pending executions": (1, 1_000_000),
        "recurring schedules": (1, 100_000),
    }
    Workspace.objects.update(quota_job_definitions=1, quota_pending_executions=1, quota_schedules=1)
    for path, body in (
        ("/v1/job-definitions", {**job, "name": "b"}),
        ("/v1/schedules", {**job, "delay_s": 3600}),
        ("/v1/schedules", {**job, "every": "10d"}),
    ):
        answer = api.post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
        assert answer.json()["quota"] in usage


def test_a_created_key_is_shown_once_and_works(api: ApiClient) -> None:
    answer = api.post(PATH, {"name": "shop", "scopes": ["workspace:read"], "expires_at": "2100-01-01T00:00:00+01:00"})
    body = answer.json()
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    assert answer.headers["Location"] == f"{PATH}/{body['id']}"
    assert body["expires_at"] == "2099-12-31T23:00:00Z"
    seen = api.get(answer.headers["Location"])
    assert (seen.status_code, seen.json()) == (200, {name: value for name, value in body.items() if name != "key"})
    assert body["key"] not in api.get(PATH).content.decode()
    assert ApiClient(body["key"]).get("/v1/workspace").status_code == 200


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"name": 5}, "/name", "invalid"),
        ({"name": "a\0"}, "/name", "null_characters_not_allowed"),
        ({"name": "x" * 101}, "/name", "max_length"),
        ({"scopes": []}, "/scopes", "min_length"),
        ({"scopes": ["jobs:read", "jobs:read"]}, "/scopes", "duplicate"),
        ({"scopes": ["jobs:erase"]}, "/scopes/0", "invalid_choice"),
        ({"scopes": "jobs:read"}, "/scopes", "not_a_list"),
        ({"expires_at": "2030-01-01T00:00:00"}, "/expires_at", "invalid_timestamp"),
        ({"expires_at": "9999-01-01T00:00:00Z"}, "/expires_at", "invalid_timestamp"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at", "in_the_past"),
        ({"id": "x"}, "/id", "read_only"),
        ({"workspace": "x"}, "/workspace", "unknown_field"),
    ],
)
def test_a_bad_key_is_refused_by_pointer_and_not_stored(
    api: ApiClient, change: dict[str, Any], pointer: str, code: str
) -> None:
    answer = api.post(PATH, {"name": "shop", "scopes": ["jobs:read"], **change})
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [(pointer, code)]
    assert ApiKey.objects.count() == 1


@pytest.fixture
def key_admin(workspace: Workspace) -> ApiClient:
    """A key that may manage keys and nothing else."""
    _, plaintext = services.create_api_key(workspace=workspace, name="admin", scopes=["keys:admin"])
    return ApiClient(plaintext)


def test_a_key_hands_out_no_scope_that_it_lacks(key_admin: ApiClient, workspace: Workspace) -> None:
    answer = key_admin.post(PATH, {"name": "more", "scopes": ["keys:admin", "jobs:write"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
    assert "jobs:write" in answer.json()["detail"]
    assert key_admin.post(PATH, {"name": "same", "scopes": ["keys:admin"]}).status_code == 201
    strong, _ = services.create_api_key(workspace=workspace, name="strong")
    assert key_admin.post(f"{PATH}/{strong.id}/rotate").status_code == 403
    strong.refresh_from_db()
    assert strong.last_used_at is None


def test_a_rotated_key_shows_its_new_secret_once_and_the_old_one_works_on_for_a_day(
    api: ApiClient, workspace: Workspace
) -> None:
    key, old = services.create_api_key(workspace=workspace, name="k", scopes=["workspace:read"])
    answer = api.post(f"{PATH}/{key.id}/rotate")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    for secret in (old, answer.json()["key"]):
        assert ApiClient(secret).get("/v1/workspace").status_code == 200
    shown = api.get(f"{PATH}/{key.id}").json()
    assert shown["previous_prefix"] == old[:12]
    assert shown["previous_used_at"] is not None
    left = datetime.fromisoformat(shown["previous_expires_at"]) - timezone.now()
    assert timedelta(hours=23, minutes=50) < left <= timedelta(days=1)
    ApiKey.objects.filter(id=key.id).update(previous_expires_at=timezone.now())
    refused = ApiClient(old).get("/v1/workspace")
    assert (refused.status_code, refused.json()["code"]) == (401, "rotated_key")
    assert ApiClient(answer.json()["key"]).get("/v1/workspace").status_code == 200


def test_an_overlap_of_nothing_ends_the_old_secret_at_once_and_only_the_last_one_overlaps(
    api: ApiClient, workspace: Workspace
) -> None:
    key, first = services.create_api_key(workspace=workspace, name="k", scopes=["workspace:read"])
    second = api.post(f"{PATH}/{key.id}/rotate", {"overlap_s": 600}).json()["key"]
    third = api.post(f"{PATH}/{key.id}/rotate", {"overlap_s": 600}).json()["key"]
    assert [ApiClient(secret).get("/v1/workspace").status_code for secret in (first, second, third)] == [401, 200, 200]
    fourth = api.post(f"{PATH}/{key.id}/rotate", {"overlap_s": 0}).json()["key"]
    assert [ApiClient(secret).get("/v1/workspace").status_code for secret in (third, fourth)] == [401, 200]
    assert api.delete(f"{PATH}/{key.id}").status_code == 204
    assert ApiClient(fourth).get("/v1/workspace").status_code == 401
    for wrong in ({"overlap_s": -1}, {"overlap_s": 2_592_001}, {"overlap_s": "1"}, {"overlap": 1}):
        assert api.post(f"{PATH}/{key.id}/rotate", wrong).status_code == 422


def test_a_revoked_key_is_refused_with_its_old_secret_too(api: ApiClient, workspace: Workspace) -> None:
    key, old = services.create_api_key(workspace=workspace, name="k", scopes=["workspace:read"])
    new = api.post(f"{PATH}/{key.id}/rotate").json()["key"]
    assert api.delete(f"{PATH}/{key.id}").status_code == 204
    assert [ApiClient(secret).get("/v1/workspace").status_code for secret in (old, new)] == [401, 401]


def test_a_revoked_key_is_refused_at_once_and_revoking_can_be_repeated(api: ApiClient, workspace: Workspace) -> None:
    key, plaintext = services.create_api_key(workspace=workspace, name="k")
    assert [api.delete(f"{PATH}/{key.id}").status_code for _ in range(2)] == [204, 204]
    assert ApiClient(plaintext).get("/v1/workspace").status_code == 401
    assert api.get(f"{PATH}/{key.id}").json()["revoked_at"] is not None
    answer = api.post(f"{PATH}/{key.id}/rotate")
    assert (answer.status_code, answer.json()["code"]) == (409, "key_revoked")


def test_another_workspaces_keys_are_404_and_stay_as_they_are(
    api: ApiClient, other_api: ApiClient, workspace: Workspace
) -> None:
    key, plaintext = services.create_api_key(workspace=workspace, name="k")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/rotate")):
        answer = other_api.call(method, f"{PATH}/{key.id}{path}", None, {})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert str(key.id) not in other_api.get(PATH).content.decode()
    assert ApiClient(plaintext).get("/v1/workspace").status_code == 200


def test_times_are_answered_in_utc(api: ApiClient, workspace: Workspace) -> None:
    soon = (timezone.now() + timedelta(days=1)).astimezone(UTC)
    key, _ = services.create_api_key(workspace=workspace, name="k", expires_at=soon)
    shown = api.get(f"{PATH}/{key.id}").json()["expires_at"]
    assert datetime.fromisoformat(shown) == soon
    assert shown.endswith("Z")
