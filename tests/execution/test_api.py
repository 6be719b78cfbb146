"""Job definitions and executions over the API."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from chronos_site.infra import mongo
from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import quotas
from execution.models import Execution, JobDefinition
from tests.clients import ApiClient, ApiResponse
from tests.making import make_executions, make_job

URL = "https://hooks.example.com/in"
JOB: dict[str, Any] = {"name": "send-invoice", "target": {"url": URL}}

pytestmark = pytest.mark.django_db


def pointers(response: ApiResponse) -> dict[str, str]:
    return {error["pointer"]: error["code"] for error in response.json()["errors"]}


def test_a_job_definition_is_made_with_safe_defaults(api: ApiClient) -> None:
    response = api.post("/v1/job-definitions", JOB)
    assert response.status_code == 201
    body = response.json()
    assert body["target"] == {"url": URL, "method": "POST", "headers": {}}
    assert (body["version"], body["state"], body["timeout_s"], body["kind"]) == (1, "active", 30.0, "http")
    assert response["Location"] == f"/v1/job-definitions/{body['id']}"
    assert response["ETag"] == '"1"'
    assert api.get(response["Location"]).json() == body


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"nmae": "x"}, "/nmae", "unknown_field"),
        ({"version": 3}, "/version", "read_only"),
        ({"name": 5}, "/name", "invalid"),
        ({"name": ""}, "/name", "blank"),
        ({"timeout_s": "30"}, "/timeout_s", "invalid"),
        ({"timeout_s": 1e9}, "/timeout_s", "max_value"),
        ({"timeout_s": 0}, "/timeout_s", "min_value"),
        ({"kind": "ftp"}, "/kind", "invalid_choice"),
        ({"target": {"url": "ftp://example.com/"}}, "/target/url", "target_refused"),
        ({"target": {"url": "http://10.0.0.1/"}}, "/target/url", "target_refused"),
        ({"target": {"url": "http://user:pw@example.com/"}}, "/target/url", "target_refused"),
        ({"target": {"url": URL, "method": "TRACE"}}, "/target/method", "invalid_choice"),
        ({"target": {"url": URL, "headers": {"A": "b\r\nc"}}}, "/target/headers/A", "invalid_header_value"),
        ({"target": {"url": URL, "headers": {"Host": "x"}}}, "/target/headers/Host", "forbidden_header"),
        ({"target": {"url": URL, "headers": {"webhook-id": "x"}}}, "/target/headers/webhook-id", "forbidden_header"),
        ({"target": {"url": URL, "verb": "x"}}, "/target/verb", "unknown_field"),
        ({"tags": [f"t{n}" for n in range(10_000)]}, "/tags", "max_length"),
        ({"tags": "a"}, "/tags", "not_a_list"),
        ({"retry": {"max_attempts": 1.5}}, "/retry/max_attempts", "invalid"),
        ({"retry": {"jitter": "some"}}, "/retry/jitter", "invalid_choice"),
        ({"retry": {"tries": 3}}, "/retry/tries", "unknown_field"),
    ],
)
def test_a_wrong_field_is_named_and_stores_nothing(
    api: ApiClient, change: dict[str, Any], pointer: str, code: str
) -> None:
    response = api.post("/v1/job-definitions", JOB | change)
    assert response.status_code == 422, response.content
    assert response["Content-Type"] == "application/problem+json"
    assert pointers(response) == {pointer: code}
    assert not JobDefinition.objects.exists()


def test_a_payload_of_a_megabyte_is_too_large(api: ApiClient) -> None:
    response = api.post("/v1/job-definitions", JOB | {"payload": "x" * 1_000_000})
    assert (response.status_code, pointers(response)) == (413, {"/payload": "payload_too_large"})
    assert not JobDefinition.objects.exists()


def test_a_name_is_taken_once_per_workspace(api: ApiClient, other_api: ApiClient) -> None:
    assert api.post("/v1/job-definitions", JOB).status_code == 201
    again = api.post("/v1/job-definitions", JOB)
    assert (again.status_code, again.json()["code"]) == (409, "name_taken")
    assert other_api.post("/v1/job-definitions", JOB).status_code == 201


def test_an_edit_merges_raises_the_version_and_leaves_snapshots_alone(api: ApiClient, workspace: Workspace) -> None:
    job = api.post("/v1/job-definitions", JOB | {"tags": ["a", "b"], "payload": {"keep": 1, "drop": 2}}).json()
    run = api.post(f"/v1/job-definitions/{job['id']}/run", {}).json()
    path = f"/v1/job-definitions/{job['id']}"
    changed = api.patch(path, {"tags": ["c"], "payload": {"drop": None}, "target": {"headers": {"A": "b"}}})
    assert changed.status_code == 200
    body = changed.json()
    assert (body["version"], body["tags"], body["payload"]) == (2, ["c"], {"keep": 1})
    assert body["target"] == {"url": URL, "method": "POST", "headers": {"A": "b"}}
    assert api.get(f"/v1/executions/{run['id']}").json()["payload"] == {"keep": 1, "drop": 2}
    assert api.patch(path, {"tags": ["c"]}).json()["version"] == 2


def test_an_edit_may_name_itself_a_merge_patch(api: ApiClient) -> None:
    path = f"/v1/job-definitions/{api.post('/v1/job-definitions', JOB).json()['id']}"
    changed = api.patch(path, {"timeout_s": 7}, content_type="application/merge-patch+json")
    assert (changed.status_code, changed.json()["timeout_s"]) == (200, 7)


def test_an_edit_of_another_version_is_412(api: ApiClient) -> None:
    job = api.post("/v1/job-definitions", JOB).json()
    path = f"/v1/job-definitions/{job['id']}"
    assert api.patch(path, {"timeout_s": 5}, if_match='"1"').status_code == 200
    late = api.patch(path, {"timeout_s": 6}, if_match='"1"')
    assert late.status_code == 412
    assert api.get(path).json()["timeout_s"] == 5


def test_run_now_makes_one_execution_with_the_given_payload(api: ApiClient) -> None:
    job = api.post("/v1/job-definitions", JOB | {"payload": {"a": 1}}).json()
    first = api.post(f"/v1/job-definitions/{job['id']}/run", {"payload": {"b": 2}}, idempotency_key="k")
    again = api.post(f"/v1/job-definitions/{job['id']}/run", {"payload": {"b": 2}}, idempotency_key="k")
    assert first.status_code == again.status_code == 201
    assert again["Idempotent-Replayed"] == "true"
    assert first.json() == again.json()
    assert (first.json()["payload"], first.json()["trigger"], first.json()["state"]) == ({"b": 2}, "run", "PENDING")
    assert Execution.objects.count() == 1


def test_pause_and_resume_are_safe_to_repeat(api: ApiClient) -> None:
    path = f"/v1/job-definitions/{api.post('/v1/job-definitions', JOB).json()['id']}"
    for _ in range(2):
        assert api.post(f"{path}/pause").json()["state"] == "paused"
    for _ in range(2):
        assert api.post(f"{path}/resume").json()["state"] == "active"


def test_deleting_cancels_what_waits_frees_the_name_and_keeps_history(api: ApiClient) -> None:
    job = api.post("/v1/job-definitions", JOB).json()
    schedule = api.post("/v1/schedules", {"job_definition": job["id"], "delay_s": 600}).json()
    path = f"/v1/job-definitions/{job['id']}"
    refused = api.delete(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "job_has_schedules")
    assert api.get(f"/v1/executions/{schedule['execution_id']}").json()["state"] == "PENDING"
    assert api.delete(f"{path}?cascade=true").status_code == 204
    assert api.get(path).status_code == 404
    assert api.get(f"/v1/executions/{schedule['execution_id']}").json()["state"] == "CANCELLED"
    assert api.get(f"/v1/schedules/{schedule['id']}").json()["state"] == "CANCELLED"
    assert api.post("/v1/job-definitions", JOB).status_code == 201


def test_executions_are_listed_newest_first_by_pages_and_filters(api: ApiClient, workspace: Workspace) -> None:
    job = make_job(workspace, URL)
    mine = make_executions(workspace, URL, 3, job=job, tags=["red"])
    other = make_executions(workspace, URL, 2, tags=["blue"], due_at=database_now() + timedelta(hours=1))
    first = api.get("/v1/executions?limit=2").json()
    assert [item["id"] for item in first["items"]] == sorted((str(r.id) for r in mine + other), reverse=True)[:2]
    rest = api.get(f"/v1/executions?cursor={first['next_cursor']}").json()
    assert len(rest["items"]) == 3
    assert rest["next_cursor"] is None
    soon = (database_now() + timedelta(minutes=30)).isoformat().replace("+00:00", "Z")
    for query, expected in {
        "tag=red": 3,
        "tag=red&tag=blue": 5,
        f"job_definition={job.id}": 3,
        f"job_definition={job.id}&tag=blue": 0,
        "state=PENDING": 5,
        "state=FAILED&state=EXPIRED": 0,
        f"scheduled_for_from={soon}": 2,
        f"scheduled_for_to={soon}": 3,
        f"schedule={uuid4()}": 0,
    }.items():
        assert len(api.get(f"/v1/executions?{query}").json()["items"]) == expected, query


@pytest.mark.parametrize("query", ["stat=FAILED", "state=failed", "limit=0", "job_definition=x", "cursor=x"])
def test_a_wrong_query_parameter_is_400(api: ApiClient, query: str) -> None:
    response = api.get(f"/v1/executions?{query}")
    assert (response.status_code, response["Content-Type"]) == (400, "application/problem+json")


def test_another_workspaces_ids_are_404_everywhere(
    api: ApiClient, other_api: ApiClient, other_workspace: Workspace
) -> None:
    job = make_job(other_workspace, URL)
    [row] = make_executions(other_workspace, URL, job=job)
    for method, path, body in [
        ("GET", f"/v1/job-definitions/{job.id}", None),
        ("PATCH", f"/v1/job-definitions/{job.id}", {"timeout_s": 1}),
        ("DELETE", f"/v1/job-definitions/{job.id}", None),
        ("POST", f"/v1/job-definitions/{job.id}/run", {}),
        ("POST", f"/v1/job-definitions/{job.id}/pause", None),
        ("POST", f"/v1/job-definitions/{job.id}/resume", None),
        ("GET", f"/v1/executions/{row.id}", None),
        ("GET", f"/v1/executions/{row.id}/attempts", None),
        ("GET", f"/v1/executions/{row.id}/logs", None),
        ("POST", f"/v1/executions/{row.id}/cancel", None),
    ]:
        response = api.call(method, path, body, {})
        assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json"), (method, path)
    assert api.get("/v1/executions").json()["items"] == []
    assert api.get("/v1/job-definitions").json()["items"] == []
    assert other_api.get(f"/v1/executions/{row.id}").status_code == 200


def test_a_pending_execution_is_cancelled_at_once_and_a_running_one_is_asked(
    api: ApiClient, workspace: Workspace
) -> None:
    waiting, running, done = make_executions(workspace, URL, 3)
    Execution.objects.filter(id=running.id).update(state="RUNNING", claim_seq=1)
    Execution.objects.filter(id=done.id).update(state="SUCCEEDED")
    for _ in range(2):
        answer = api.post(f"/v1/executions/{waiting.id}/cancel")
        assert (answer.status_code, answer.json()) == (200, {"status": "cancelled"})
    answer = api.post(f"/v1/executions/{running.id}/cancel")
    assert (answer.status_code, answer.json()) == (202, {"status": "cancel_requested"})
    answer = api.post(f"/v1/executions/{done.id}/cancel")
    assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (409, "execution_ended", "SUCCEEDED")


def test_attempts_and_logs_are_read_from_mongodb(api: ApiClient, workspace: Workspace) -> None:
    [row] = make_executions(workspace, URL)
    logs = mongo.execution_logs()
    assert logs is not None
    when = database_now()
    logs.insert_one(
        {
            "_id": f"{row.id}:1",
            "execution_id": str(row.id),
            "workspace_id": str(workspace.id),
            "attempt": 1,
            "at": when,
            "finished_at": when,
            "duration_ms": 1.5,
            "lateness_ms": 0.5,
            "worker": "w",
            "state": "SUCCEEDED",
            "reason": "",
            "request": {"method": "POST", "url": URL, "headers": {}, "address": "1.2.3.4"},
            "response": {"status": 200, "headers": {}, "body": "ok"},
            "error": None,
        }
    )
    [attempt] = api.get(f"/v1/executions/{row.id}/attempts").json()["items"]
    assert (attempt["attempt"], attempt["status"], attempt["duration_ms"]) == (1, 200, 1.5)
    assert "request" not in attempt
    [log] = api.get(f"/v1/executions/{row.id}/logs").json()["items"]
    assert log["response"]["body"] == "ok"


def test_the_quota_of_pending_executions_is_kept(api: ApiClient, workspace: Workspace) -> None:
    quotas._counts.clear()
    Workspace.objects.update(quota_pending_executions=3)
    job = api.post("/v1/job-definitions", JOB).json()
    for _ in range(3):
        assert api.post(f"/v1/job-definitions/{job['id']}/run", {}).status_code == 201
    refused = api.post(f"/v1/job-definitions/{job['id']}/run", {})
    assert (refused.status_code, refused.json()["code"], refused["Retry-After"]) == (429, "quota_exceeded", "10")
    Execution.objects.filter(id=Execution.objects.first().id).update(state="SUCCEEDED")  # type: ignore[union-attr]
    assert api.post(f"/v1/job-definitions/{job['id']}/run", {}).status_code == 201
