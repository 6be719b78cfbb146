"""Schedules over the API."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from chronos_site.tenancy.models import Workspace
from execution.domain.buckets import bucket_of
from execution.models import Bucket, Execution, JobDefinition
from scheduling.models import Schedule
from tests.clients import ApiClient, ApiResponse
from tests.making import make_job

URL = "https://hooks.example.com/in"
INLINE: dict[str, Any] = {"target": {"url": URL}, "delay_s": 600}

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(workspace: Workspace) -> JobDefinition:
    return make_job(workspace, URL, name="send-invoice", payload={"from": "job"}, tags=["billing"])


def at(**later: float) -> str:
    return (timezone.now() + timedelta(**later)).isoformat().replace("+00:00", "Z")


def pointers(response: ApiResponse) -> dict[str, str]:
    return {error["pointer"]: error["code"] for error in response.json()["errors"]}


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_schedule_takes_its_job_definition_by_id_or_name(api: ApiClient, job: JobDefinition, by: str) -> None:
    named = str(job.id) if by == "id" else job.name
    response = api.post(
        "/v1/schedules",
        {
            "job_definition": named,
            "run_at": "2030-01-31T10:00:00+01:00",
            "payload": {"from": "schedule"},
            "delivery": {"headers": {"X-A": "1"}, "timeout_s": 5},
            "expires_after_s": 60,
            "tags": ["once"],
        },
    )
    assert response.status_code == 201, response.content
    body = response.json()
    assert (body["run_at"], body["state"], body["job_definition"]) == ("2030-01-31T09:00:00Z", "ACTIVE", str(job.id))
    row = Execution.objects.get(id=body["execution_id"])
    assert row.bucket_id == body["bucket_id"] == bucket_of(row.id, row.due_at, 4)
    assert Bucket.objects.filter(id=row.bucket_id, state="OPEN").exists()
    assert row.scheduled_for == row.due_at == datetime(2030, 1, 31, 9, tzinfo=UTC)
    assert row.start_deadline == row.due_at + timedelta(seconds=60)
    assert (row.payload, row.timeout_s, row.tags) == ({"from": "schedule"}, 5, ["billing", "once"])
    assert row.target["headers"] == {"X-A": "1"}
    assert str(row.schedule_id) == body["id"]
    assert api.get(response["Location"]).json()["id"] == body["id"]


def test_an_inline_target_needs_no_job_definition(api: ApiClient) -> None:
    body = api.post("/v1/schedules", INLINE).json()
    row = Execution.objects.get(id=body["execution_id"])
    assert row.job_definition_id is None
    assert timedelta(seconds=590) < row.due_at - timezone.now() < timedelta(seconds=610)


def test_a_run_at_in_the_past_within_the_grace_fires_now_and_an_older_one_is_refused(api: ApiClient) -> None:
    body = api.post("/v1/schedules", {"target": {"url": URL}, "run_at": at(seconds=-60)})
    assert body.status_code == 201
    row = Execution.objects.get(id=body.json()["execution_id"])
    assert abs(row.due_at - timezone.now()) < timedelta(seconds=10)
    assert row.scheduled_for < row.due_at
    old = api.post("/v1/schedules", {"target": {"url": URL}, "run_at": at(hours=-2)})
    assert (old.status_code, pointers(old)) == (422, {"/run_at": "run_at_too_old"})


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"target": {"url": URL}, "run_at": "2030-01-31T09:00:00"}, "/run_at", "invalid_timestamp"),
        ({"target": {"url": URL}, "run_at": "9999-01-31T09:00:00Z"}, "/run_at", "invalid_timestamp"),
        ({"target": {"url": URL}, "run_at": 17}, "/run_at", "invalid"),
        ({"target": {"url": URL}, "delay_s": -1}, "/delay_s", "min_value"),
        ({"target": {"url": URL}, "delay_s": 1e300}, "/delay_s", "max_value"),
        ({"target": {"url": URL}, "delay_s": 1, "crom": "x"}, "/crom", "unknown_field"),
        ({"target": {"url": URL}}, "/run_at", "one_of"),
        ({"target": {"url": URL}, "delay_s": 1, "run_at": "2030-01-31T09:00:00Z"}, "/run_at", "one_of"),
        ({"delay_s": 1}, "/job_definition", "one_of"),
        ({"job_definition": "nobody", "delay_s": 1}, "/job_definition", "not_found"),
        ({"target": {"url": "http://127.0.0.1.nip.io\\x"}, "delay_s": 1}, "/target/url", "target_refused"),
        (
            {"target": {"url": URL}, "delay_s": 1, "delivery": {"headers": {"TE": "x"}}},
            "/delivery/headers/TE",
            "forbidden_header",
        ),
    ],
)
def test_a_wrong_schedule_is_422_with_its_pointer_and_stores_nothing(
    api: ApiClient, body: dict[str, Any], pointer: str, code: str
) -> None:
    response = api.post("/v1/schedules", body)
    assert response.status_code == 422, response.content
    assert pointers(response) == {pointer: code}
    assert not Schedule.objects.exists()
    assert not Execution.objects.exists()


def test_another_workspaces_job_definition_is_not_found(api: ApiClient, other_workspace: Workspace) -> None:
    foreign = make_job(other_workspace, URL, name="theirs")
    for named in (str(foreign.id), "theirs"):
        response = api.post("/v1/schedules", {"job_definition": named, "delay_s": 1})
        assert pointers(response) == {"/job_definition": "not_found"}


def test_a_batch_is_all_or_nothing_and_its_errors_point_at_the_index(api: ApiClient, job: JobDefinition) -> None:
    good = {"job_definition": job.name, "delay_s": 600}
    bad = api.post("/v1/schedules/batch", {"schedules": [good, good | {"delay_s": "x"}, {"delay_s": 1}]})
    assert (bad.status_code, pointers(bad)) == (
        422,
        {"/schedules/1/delay_s": "invalid", "/schedules/2/job_definition": "one_of"},
    )
    unknown = api.post("/v1/schedules/batch", {"schedules": [good, good | {"job_definition": "nobody"}]})
    assert pointers(unknown) == {"/schedules/1/job_definition": "not_found"}
    old = api.post("/v1/schedules/batch", {"schedules": [good, {"target": {"url": URL}, "run_at": at(days=-1)}]})
    assert pointers(old) == {"/schedules/1/run_at": "run_at_too_old"}
    assert not Schedule.objects.exists()
    made = api.post("/v1/schedules/batch", {"schedules": [good] * 1000}, idempotency_key="b")
    assert made.status_code == 201
    assert len(made.json()["items"]) == Schedule.objects.count() == Execution.objects.count() == 1000
    again = api.post("/v1/schedules/batch", {"schedules": [good] * 1000}, idempotency_key="b")
    assert again["Idempotent-Replayed"] == "true"
    assert Schedule.objects.count() == 1000


@pytest.mark.parametrize("body", [[], {}, {"schedules": {}}, {"schedules": []}, {"schedules": [INLINE] * 1001}])
def test_a_batch_of_the_wrong_shape_or_size_is_refused(api: ApiClient, body: Any) -> None:
    assert api.post("/v1/schedules/batch", body).status_code == 422
    assert not Schedule.objects.exists()


def test_run_at_can_be_changed_while_pending_and_its_bucket_changes_with_it(api: ApiClient) -> None:
    made = api.post("/v1/schedules", INLINE | {"expires_after_s": 60}).json()
    path = f"/v1/schedules/{made['id']}"
    moved = api.patch(path, {"run_at": "2031-05-01T00:00:00Z"})
    assert moved.status_code == 200, moved.content
    body = moved.json()
    assert (body["run_at"], body["version"], body["execution_id"]) == (
        "2031-05-01T00:00:00Z",
        2,
        made["execution_id"],
    )
    row = Execution.objects.get(id=made["execution_id"])
    assert row.due_at == row.scheduled_for == datetime(2031, 5, 1, tzinfo=UTC)
    assert row.bucket_id == body["bucket_id"] != made["bucket_id"]
    assert row.start_deadline == row.due_at + timedelta(seconds=60)
    assert api.patch(path, {"run_at": "2031-05-01T00:00:00Z"}, if_match='"1"').status_code == 412


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "SUCCEEDED"])
def test_an_edit_inside_the_look_ahead_is_refused_whole(api: ApiClient, state: str) -> None:
    made = api.post("/v1/schedules", INLINE).json()
    before = Execution.objects.get(id=made["execution_id"])
    Execution.objects.filter(id=before.id).update(state=state)
    response = api.patch(f"/v1/schedules/{made['id']}", {"run_at": "2031-05-01T00:00:00Z"})
    assert (response.status_code, response.json()["code"], response.json()["state"]) == (409, "not_pending", state)
    after = Execution.objects.get(id=before.id)
    assert (after.due_at, after.bucket_id, after.scheduled_for) == (
        before.due_at,
        before.bucket_id,
        before.scheduled_for,
    )
    assert api.get(f"/v1/schedules/{made['id']}").json()["run_at"] == made["run_at"]


def test_cancel_is_safe_to_repeat_and_ends_the_execution(api: ApiClient) -> None:
    made = api.post("/v1/schedules", INLINE).json()
    for _ in range(2):
        answer = api.post(f"/v1/schedules/{made['id']}/cancel")
        assert (answer.status_code, answer.json()) == (200, {"status": "cancelled"})
    assert Execution.objects.get(id=made["execution_id"]).state == "CANCELLED"
    assert api.get(f"/v1/schedules/{made['id']}").json()["state"] == "CANCELLED"
    moved = api.patch(f"/v1/schedules/{made['id']}", {"run_at": "2031-05-01T00:00:00Z"})
    assert (moved.status_code, moved.json()["code"]) == (409, "schedule_ended")


def test_a_foreign_schedule_is_404(api: ApiClient, other_api: ApiClient) -> None:
    made = api.post("/v1/schedules", INLINE).json()
    path = f"/v1/schedules/{made['id']}"
    assert other_api.get(path).status_code == 404
    assert other_api.patch(path, {"run_at": "2031-05-01T00:00:00Z"}).status_code == 404
    assert other_api.post(f"{path}/cancel").status_code == 404
    assert other_api.get("/v1/schedules").json()["items"] == []
    assert [item["id"] for item in api.get("/v1/schedules?state=ACTIVE").json()["items"]] == [made["id"]]


def test_the_same_idempotency_key_makes_one_schedule_and_another_body_is_422(api: ApiClient) -> None:
    first = api.post("/v1/schedules", INLINE, idempotency_key="same")
    again = api.post("/v1/schedules", INLINE, idempotency_key="same")
    assert first.json() == again.json()
    other = api.post("/v1/schedules", INLINE | {"delay_s": 5}, idempotency_key="same")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert Schedule.objects.count() == 1


def test_the_callers_trace_goes_into_the_execution(api: ApiClient) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    made = api.post("/v1/schedules", INLINE, traceparent=parent).json()
    assert Execution.objects.get(id=made["execution_id"]).traceparent == parent
