"""Recurring schedules over the API."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.db import transaction

from chronos_site.infra.clock import database_now
from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.models import Workspace
from execution import fanout
from execution.models import Bucket, Execution, JobDefinition
from scheduling import recurring
from scheduling.loops.materialise import materialise_due
from scheduling.models import Schedule
from tests.clients import ApiClient, ApiResponse
from tests.making import make_job
from tests.processes import wait_until
from tests.threads import in_thread, lock_waiters

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/in"
TARGET: dict[str, Any] = {"url": URL}
CRON: dict[str, Any] = {"target": TARGET, "cron": "*/5 * * * *"}
EVERY: dict[str, Any] = {"target": TARGET, "every": "10s"}
NOBODY = "01890b5a-7c1e-7f00-8000-000000000000"


@pytest.fixture
def job(workspace: Workspace) -> JobDefinition:
    return make_job(workspace, URL, name="send-report", payload={"from": "job"})


def make(api: ApiClient, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    response = api.post("/v1/schedules", body | more)
    assert response.status_code == 201, response.content
    made: dict[str, Any] = response.json()
    return made


def act(api: ApiClient, made: dict[str, Any], verb: str, body: Any = None, **headers: str) -> ApiResponse:
    return api.post(f"/v1/schedules/{made['id']}/{verb}", body, **headers)


def pointers(response: ApiResponse) -> dict[str, str]:
    return {error["pointer"]: error["code"] for error in response.json()["errors"]}


def rows_of(made: dict[str, Any]) -> list[Execution]:
    return list(Execution.objects.filter(schedule_id=made["id"]).order_by("scheduled_for", "run_no"))


def times_of(made: dict[str, Any]) -> list[datetime]:
    return [row.scheduled_for for row in rows_of(made)]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def later(**by: float) -> str:
    return (database_now() + timedelta(**by)).isoformat().replace("+00:00", "Z")


def fan_out() -> None:
    for bucket_id in Bucket.objects.values_list("id", flat=True):
        fanout.fan_out(bucket_id=bucket_id)


# --- making ------------------------------------------------------------------------------------------------------


def test_a_cron_schedule_is_made_and_tells_all_about_itself(api: ApiClient, job: JobDefinition) -> None:
    response = api.post(
        "/v1/schedules",
        {
            "job_definition": job.name,
            "cron": "0 9 * * MON-FRI",
            "timezone": "Europe/Berlin",
            "ends_at": "2150-01-01T00:00:00+01:00",
            "max_runs": 500,
            "jitter_s": 30,
            "misfire": {"policy": "fire_all", "limit": 5},
            "overlap": "skip",
            "pause_after_failures": 3,
            "external_key": "daily report/ö",
            "payload": {"from": "schedule"},
            "delivery": {"timeout_s": 5},
            "tags": ["daily"],
        },
    )
    assert response.status_code == 201, response.content
    body = response.json()
    now = database_now()
    coming = moment(body.pop("next_run_at"))
    assert now < coming <= now + timedelta(days=4)
    assert (coming.minute, coming.second) == (0, 0)
    assert {name: body.pop(name) for name in ("id", "created_at", "updated_at", "run_count", "description")}
    assert body == {
        "kind": "cron",
        "state": "ACTIVE",
        "pause_reason": "",
        "external_key": "daily report/ö",
        "job_definition": str(job.id),
        "target": None,
        "payload": {"from": "schedule"},
        "delivery": {"timeout_s": 5.0},
        "run_at": None,
        "expires_after_s": None,
        "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin",
        "every": None,
        "every_s": None,
        "anchor": None,
        "starts_at": None,
        "ends_at": "2149-12-31T23:00:00Z",
        "max_runs": 500,
        "jitter_s": 30.0,
        "misfire": {"policy": "fire_all", "grace_s": 60.0, "catch_up_window_s": 86_400.0, "limit": 5},
        "overlap": "skip",
        "pause_after_failures": 3,
        "missed_count": 0,
        "last_misfire": None,
        "tags": ["daily"],
        "execution_id": None,
        "bucket_id": None,
        "version": 1,
    }
    again = api.get(response["Location"])
    assert (again["ETag"], again.json()["description"]) == ('"1"', "from Monday to Friday at 09:00 (Europe/Berlin)")


@pytest.mark.parametrize(
    ("every", "text", "seconds"), [("1h30m", "1h30m", 5400), (90, "1m30s", 90), ("1d", "1d", 86_400)]
)
def test_an_interval_is_text_or_seconds_and_counts_from_its_anchor(
    api: ApiClient, every: Any, text: str, seconds: int
) -> None:
    made = make(api, {"target": TARGET, "every": every, "anchor": "2024-01-01T00:00:00Z"})
    assert (made["kind"], made["every"], made["every_s"], made["cron"]) == ("interval", text, seconds, None)
    since = moment(made["next_run_at"]) - datetime(2024, 1, 1, tzinfo=UTC)
    assert since % timedelta(seconds=seconds) == timedelta()
    assert moment(made["next_run_at"]) > database_now()


def test_the_next_run_is_the_next_after_now_and_not_the_next_that_is_not_made(api: ApiClient) -> None:
    made = make(api, EVERY)
    coming = moment(made["next_run_at"]) - database_now()
    assert timedelta() < coming <= timedelta(seconds=10)
    assert Schedule.objects.get().next_run_at == times_of(made)[-1] + timedelta(seconds=10)
    listed = api.get("/v1/schedules?kind=interval").json()["items"]
    assert [item["id"] for item in listed] == [made["id"]]
    assert moment(listed[0]["next_run_at"]) - moment(made["next_run_at"]) in {timedelta(), timedelta(seconds=10)}
    assert api.get("/v1/schedules?kind=cron").json()["items"] == []


def test_the_last_runs_of_a_schedule_are_ahead_until_they_have_come(api: ApiClient) -> None:
    made = make(api, EVERY, max_runs=2)
    assert Schedule.objects.get().next_run_at is None
    seen = api.get(f"/v1/schedules/{made['id']}/occurrences").json()
    assert moment(made["next_run_at"]) == times_of(made)[0]
    assert [moment(line["at"]) for line in seen["upcoming"]] == times_of(made)
    Execution.objects.update(state="SUCCEEDED", bucket_id=None)
    assert api.get(f"/v1/schedules/{made['id']}").json()["next_run_at"] is None


def test_a_schedule_that_fires_once_says_null_where_it_has_no_rhythm(api: ApiClient) -> None:
    made = make(api, {"target": TARGET, "run_at": "2030-01-31T09:00:00Z"})
    assert (made["next_run_at"], made["description"]) == ("2030-01-31T09:00:00Z", "once, at 2030-01-31 09:00:00 UTC")
    rhythm = ("cron", "timezone", "every", "every_s", "anchor", "misfire", "overlap", "jitter_s", "run_count")
    assert {made[name] for name in rhythm} == {None}


FITS: dict[str, Any] = {"target": TARGET}


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"cron": "x"}, "/cron", "invalid"),
        ({"cron": "* * * *"}, "/cron", "invalid"),
        ({"cron": "61 * * * *"}, "/cron", "invalid"),
        ({"cron": "*" * 10_000}, "/cron", "invalid"),
        ({"cron": "1," * 5_000 + "1 * * * *"}, "/cron", "invalid"),
        ({"cron": "@reboot"}, "/cron", "invalid"),
        ({"cron": ""}, "/cron", "blank"),
        ({"cron": 5}, "/cron", "invalid"),
        ({"cron": "0 0 30 2 *"}, "/cron", "never_fires"),
        ({"cron": "0 0 31 4,6,9,11 *"}, "/cron", "never_fires"),
        ({"cron": "@daily", "timezone": "Mars/Olympus"}, "/timezone", "invalid"),
        ({"cron": "@daily", "timezone": "../../etc/passwd"}, "/timezone", "invalid"),
        ({"cron": "@daily", "timezone": "Z" * 10_000}, "/timezone", "invalid"),
        ({"cron": "@daily", "timezone": "europe/berlin"}, "/timezone", "invalid"),
        ({"every": "15 minutes"}, "/every", "invalid"),
        ({"every": "0s"}, "/every", "invalid"),
        ({"every": 0}, "/every", "invalid"),
        ({"every": -5}, "/every", "invalid"),
        ({"every": 1.5}, "/every", "invalid"),
        ({"every": True}, "/every", "invalid"),
        ({"every": ["15m"]}, "/every", "invalid"),
        ({"every": 10**40}, "/every", "invalid"),
        ({"every": "9" * 10_000}, "/every", "invalid"),
        ({"cron": "@daily", "every": "15m"}, "/cron", "one_of"),
        ({"cron": "@daily", "run_at": "2030-01-31T09:00:00Z"}, "/run_at", "one_of"),
        ({"every": "15m", "delay_s": 5}, "/delay_s", "one_of"),
        ({}, "/run_at", "one_of"),
        ({"run_at": "2030-01-31T09:00:00Z", "timezone": "UTC"}, "/timezone", "wrong_kind"),
        ({"delay_s": 5, "max_runs": 2}, "/max_runs", "wrong_kind"),
        ({"delay_s": 5, "misfire": {}}, "/misfire", "wrong_kind"),
        ({"cron": "@daily", "anchor": "2030-01-31T09:00:00Z"}, "/anchor", "wrong_kind"),
        ({"cron": "@daily", "expires_after_s": 60}, "/expires_after_s", "wrong_kind"),
        (
            {"every": "15m", "starts_at": "2040-01-02T00:00:00Z", "ends_at": "2040-01-01T00:00:00Z"},
            "/ends_at",
            "invalid",
        ),
        ({"cron": "@daily", "ends_at": "2020-01-01T00:00:00Z"}, "/ends_at", "never_fires"),
        (
            {"every": "1w", "anchor": "2150-01-01T00:00:00Z", "ends_at": "2149-01-01T00:00:00Z"},
            "/ends_at",
            "never_fires",
        ),
        ({"cron": "@daily", "starts_at": "soon"}, "/starts_at", "invalid_timestamp"),
        ({"cron": "@daily", "max_runs": 0}, "/max_runs", "min_value"),
        ({"cron": "@daily", "jitter_s": 3601}, "/jitter_s", "max_value"),
        ({"cron": "@daily", "misfire": {"policy": "drop"}}, "/misfire/policy", "invalid_choice"),
        ({"cron": "@daily", "misfire": {"limit": 501}}, "/misfire/limit", "max_value"),
        ({"cron": "@daily", "misfire": {"grace": 5}}, "/misfire/grace", "unknown_field"),
        ({"cron": "@daily", "overlap": "never"}, "/overlap", "invalid_choice"),
        ({"cron": "@daily", "pause_after_failures": 0}, "/pause_after_failures", "min_value"),
        ({"cron": "@daily", "external_key": ""}, "/external_key", "blank"),
        ({"cron": "@daily", "external_key": "k" * 201}, "/external_key", "max_length"),
        ({"cron": "@daily", "job_definition": "nobody", "target": None}, "/target", "null"),
    ],
)
def test_what_cannot_be_followed_is_422_with_its_place_and_stores_nothing(
    api: ApiClient, body: dict[str, Any], pointer: str, code: str
) -> None:
    response = api.post("/v1/schedules", FITS | body)
    assert response.status_code == 422, response.content
    assert pointers(response) == {pointer: code}
    assert len(response.json()["detail"]) < 500
    assert not Schedule.objects.exists()
    batch = api.post("/v1/schedules/batch", {"schedules": [EVERY, FITS | body]})
    assert (batch.status_code, pointers(batch)) == (422, {f"/schedules/1{pointer}": code})
    assert not Schedule.objects.exists()
    assert not Execution.objects.exists()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"every": "4m59s"}, "/every"),
        ({"cron": "* * * * *"}, "/cron"),
        ({"cron": "0,1 4 1 1 *"}, "/cron"),
        ({"cron": "0 0,5,59 * * * *"}, "/cron"),
        ({"cron": "0,59 0 0 * * *"}, "/cron"),
    ],
)
def test_a_rhythm_below_the_least_interval_of_the_site_is_refused(
    api: ApiClient, settings: Any, body: dict[str, Any], pointer: str
) -> None:
    assert api.post("/v1/schedules", FITS | body).status_code == 201
    settings.CHRONOS_MIN_INTERVAL_S = 300
    response = api.post("/v1/schedules", FITS | body)
    assert (response.status_code, pointers(response)) == (422, {pointer: "invalid"})
    assert "5m" in response.json()["detail"]
    for good in ({"every": "5m"}, {"cron": "*/5 * * * *"}, {"cron": "0 0 * * *"}, {"cron": "30 0,5,10 4 * * *"}):
        assert api.post("/v1/schedules", FITS | good).status_code == 201, good


def test_the_longest_expression_that_the_grammar_takes_can_be_stored(api: ApiClient) -> None:
    minutes = ",".join(map(str, range(60)))
    expression = f"{minutes} {minutes} {','.join(map(str, range(24)))} {','.join(map(str, range(1, 32)))} * *"
    assert len(expression) < 1000
    assert make(api, {"target": TARGET, "cron": expression.ljust(1000)})["cron"] == expression.ljust(1000)


def test_a_batch_holds_all_kinds_and_is_all_or_nothing(api: ApiClient) -> None:
    once = {"target": TARGET, "delay_s": 600}
    taken = make(api, EVERY, external_key="taken")
    bad = [
        ([once, CRON, EVERY | {"ends_at": "2020-01-01T00:00:00Z"}], 422, {"/schedules/2/ends_at": "never_fires"}),
        ([CRON, once | {"external_key": "taken"}], 409, {"/schedules/1/external_key": "external_key_taken"}),
        ([once, CRON, CRON | {"external_key": "taken"}], 409, {"/schedules/2/external_key": "external_key_taken"}),
        (
            [once | {"external_key": "a"}, CRON | {"external_key": "a"}],
            409,
            {"/schedules/1/external_key": "external_key_taken"},
        ),
        ([CRON | {"external_key": "a"}] * 2, 409, {"/schedules/1/external_key": "external_key_taken"}),
        ([CRON, {"target": TARGET, "run_at": "2020-01-01T00:00:00Z"}], 422, {"/schedules/1/run_at": "run_at_too_old"}),
    ]
    for schedules, status, where in bad:
        response = api.post("/v1/schedules/batch", {"schedules": schedules})
        assert (response.status_code, pointers(response)) == (status, where)
    assert [str(key) for key in Schedule.objects.values_list("id", flat=True)] == [taken["id"]]
    made = api.post("/v1/schedules/batch", {"schedules": [EVERY, once, CRON]}).json()["items"]
    assert [item["kind"] for item in made] == ["interval", "once", "cron"]
    assert [item["bucket_id"] is None for item in made] == [True, False, True]
    assert [item["next_run_at"] is None for item in made] == [False] * 3
    assert len(rows_of(made[0])) == 12
    many = api.post("/v1/schedules/batch", {"schedules": [CRON] * 1000})
    assert (many.status_code, len(many.json()["items"])) == (201, 1000)


def test_the_quota_counts_what_recurs_and_has_not_ended(api: ApiClient, workspace: Workspace) -> None:
    workspace.quota_schedules = 2
    workspace.save()
    first = make(api, CRON)
    second = make(api, CRON)
    act(api, second, "pause")
    make(api, {"target": TARGET, "delay_s": 600})
    response = api.post("/v1/schedules", CRON)
    assert (response.status_code, response.json()["code"]) == (429, "quota_exceeded")
    assert (response.json()["quota"], response.json()["limit"]) == ("recurring schedules", 2)
    assert response["Retry-After"]
    assert api.post("/v1/schedules/batch", {"schedules": [CRON]}).status_code == 429
    assert api.put("/v1/schedules/by-key/k", CRON).status_code == 429
    act(api, first, "cancel")
    make(api, CRON)
    assert api.get("/v1/workspace").json()["quota_schedules"] == 2


def test_the_same_idempotency_key_makes_one_schedule(api: ApiClient) -> None:
    first = api.post("/v1/schedules", EVERY, idempotency_key="same")
    again = api.post("/v1/schedules", EVERY, idempotency_key="same")
    assert first.json() == again.json()
    assert Schedule.objects.count() == 1


def test_tenants_never_meet(api: ApiClient, other_api: ApiClient, other_workspace: Workspace) -> None:
    made = make(api, EVERY, external_key="k")
    path = f"/v1/schedules/{made['id']}"
    for verb in ("pause", "resume", "run", "skip-next", "cancel"):
        assert other_api.post(f"{path}/{verb}").status_code == 404
    backfill = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    assert other_api.post(f"{path}/backfill", backfill).status_code == 404
    assert other_api.get(path).status_code == other_api.get(f"{path}/occurrences").status_code == 404
    assert other_api.patch(path, {"every": "1h"}).status_code == 404
    assert other_api.get("/v1/schedules/by-key/k").status_code == 404
    theirs = other_api.put("/v1/schedules/by-key/k", EVERY)
    assert (theirs.status_code, theirs.json()["id"] == made["id"]) == (201, False)
    foreign = make_job(other_workspace, URL, name="theirs")
    response = api.patch(path, {"job_definition": str(foreign.id)})
    assert pointers(response) == {"/job_definition": "not_found"}
    assert api.get(path).json()["version"] == 1


def test_a_reader_previews_and_reads_and_changes_nothing(api: ApiClient, workspace: Workspace) -> None:
    made = make(api, EVERY)
    _, key = tenancy.create_api_key(workspace=workspace, name="reader", scopes=["schedules:read"])
    reader = ApiClient(key)
    assert reader.post("/v1/schedules/preview", {"cron": "@daily"}).status_code == 200
    assert reader.get(f"/v1/schedules/{made['id']}/occurrences").status_code == 200
    for verb in ("pause", "resume", "run", "skip-next", "cancel", "backfill"):
        assert act(reader, made, verb).status_code == 403
    assert reader.put("/v1/schedules/by-key/k", EVERY).status_code == 403


# --- changing ----------------------------------------------------------------------------------------------------


def test_an_edit_right_before_an_occurrence_neither_loses_nor_doubles_it(api: ApiClient) -> None:
    made = make(api, {"target": TARGET, "every": "1s", "payload": {"v": 1}})
    fan_out()
    before = {row.scheduled_for: row for row in rows_of(made)}
    queued = [at for at, row in before.items() if row.state == "QUEUED"]
    assert queued, "some are inside the look-ahead"
    response = api.patch(f"/v1/schedules/{made['id']}", {"payload": {"v": 2}})
    assert response.status_code == 200, response.content
    assert (response.json()["version"], response["ETag"]) == (2, '"2"')
    after = rows_of(made)
    times = [row.scheduled_for for row in after]
    assert times[: len(before)] == list(before)
    assert {b - a for a, b in pairwise(times)} == {timedelta(seconds=1)}
    assert all(
        row.payload == {"v": 1} and row.id == before[row.scheduled_for].id
        for row in after
        if row.scheduled_for in queued
    )
    coming = [row for row in after if row.scheduled_for > database_now() + timedelta(seconds=5)]
    assert len(coming) > 100
    assert all(row.payload == {"v": 2} for row in coming)
    row = Schedule.objects.get()
    assert (row.run_count, row.next_run_at) == (len(after), times[-1] + timedelta(seconds=1))


def test_a_patch_merges_and_null_gives_the_default_back(api: ApiClient, job: JobDefinition) -> None:
    made = make(
        api,
        EVERY,
        max_runs=1000,
        misfire={"policy": "skip", "grace_s": 5},
        jitter_s=3,
        tags=["a"],
        payload={"a": 1, "b": {"c": 1}},
        external_key="k",
    )
    path = f"/v1/schedules/{made['id']}"
    changed = api.patch(
        path,
        {
            "max_runs": None,
            "misfire": {"grace_s": 7},
            "tags": ["b", "c"],
            "payload": {"b": {"c": None, "d": True}},
            "job_definition": job.name,
        },
        content_type="application/merge-patch+json",
    )
    assert changed.status_code == 200, changed.content
    body = changed.json()
    assert (body["max_runs"], body["tags"], body["payload"]) == (None, ["b", "c"], {"a": 1, "b": {"d": True}})
    assert (body["misfire"]["policy"], body["misfire"]["grace_s"], body["jitter_s"]) == ("skip", 7.0, 3.0)
    assert (body["job_definition"], body["target"], body["anchor"]) == (str(job.id), None, made["anchor"])
    assert api.patch(path, {}).json()["version"] == body["version"] == 2
    number = api.patch(path, {"payload": {"b": {"d": 1}}}).json()
    assert (number["payload"]["b"]["d"], number["version"]) == (1, 3)
    assert api.patch(path, {"misfire": None}).json()["misfire"]["policy"] == "fire_once"


def test_cron_takes_the_place_of_an_interval_and_the_other_way_round(api: ApiClient) -> None:
    made = make(api, EVERY, timezone="Asia/Tokyo")
    path = f"/v1/schedules/{made['id']}"
    by_cron = api.patch(path, {"cron": "0 9 * * *"}).json()
    assert (by_cron["kind"], by_cron["cron"], by_cron["every"], by_cron["anchor"]) == ("cron", "0 9 * * *", None, None)
    assert by_cron["timezone"] == "Asia/Tokyo"
    assert moment(by_cron["next_run_at"]).hour == 0
    coming = times_of(made)
    assert all(at < database_now() + timedelta(seconds=3) or at.minute == at.second == 0 for at in coming)
    back = api.patch(path, {"every": 3600, "anchor": "2024-01-01T00:00:30Z"}).json()
    assert (back["kind"], back["cron"], back["every"]) == ("interval", None, "1h")
    assert moment(back["next_run_at"]).second == 30


@pytest.mark.parametrize(
    ("patch", "pointer", "code"),
    [
        ({"cron": "61 * * * *"}, "/cron", "invalid"),
        ({"cron": "0 0 30 2 *"}, "/cron", "never_fires"),
        ({"every": None}, "/run_at", "one_of"),
        ({"cron": "@daily", "every": "1h"}, "/cron", "one_of"),
        ({"run_at": "2030-01-31T09:00:00Z"}, "/run_at", "one_of"),
        ({"timezone": "Mars/Olympus"}, "/timezone", "invalid"),
        ({"ends_at": "2020-01-01T00:00:00Z"}, "/ends_at", "never_fires"),
        ({"state": "PAUSED"}, "/state", "unknown_field"),
        ({"expires_after_s": 5}, "/expires_after_s", "wrong_kind"),
        ({"target": None}, "/job_definition", "one_of"),
        ({"external_key": "other"}, "/external_key", "external_key_taken"),
        ([], "", "invalid"),
    ],
)
def test_a_patch_that_cannot_be_followed_changes_nothing(api: ApiClient, patch: Any, pointer: str, code: str) -> None:
    make(api, EVERY, external_key="other")
    made = make(api, EVERY, external_key="k")
    before = times_of(made)
    response = api.patch(f"/v1/schedules/{made['id']}", patch)
    assert response.status_code == (409 if code == "external_key_taken" else 422), response.content
    assert pointers(response) == {pointer: code}
    assert api.get(f"/v1/schedules/{made['id']}").json()["version"] == 1
    assert times_of(made) == before


def test_if_match_refuses_an_edit_of_another_version(api: ApiClient) -> None:
    made = make(api, EVERY)
    path = f"/v1/schedules/{made['id']}"
    assert api.patch(path, {"jitter_s": 1}, if_match='"1"').status_code == 200
    old = api.patch(path, {"jitter_s": 2}, if_match='"1"')
    assert (old.status_code, old.json()["code"]) == (412, "version_mismatch")
    assert api.get(path).json()["jitter_s"] == 1.0


@pytest.mark.django_db(transaction=True)
def test_an_edit_that_came_between_is_refused_and_not_overwritten(api: ApiClient) -> None:
    made = make(api, EVERY)
    path = f"/v1/schedules/{made['id']}"
    answers: list[ApiResponse] = []
    with transaction.atomic():
        Schedule.objects.select_for_update().get(id=made["id"])
        thread = in_thread(lambda: answers.append(ApiClient(api.key).patch(path, {"jitter_s": 5})))
        wait_until(lambda: lock_waiters() > 0)
        Schedule.objects.update(max_runs=7, version=2)
    thread.join()
    assert (answers[0].status_code, answers[0].json()["code"]) == (412, "version_mismatch")
    seen = api.get(path).json()
    assert (seen["max_runs"], seen["jitter_s"]) == (7, 0.0)


def test_a_schedule_that_fires_once_takes_another_run_at_and_nothing_else(api: ApiClient) -> None:
    made = make(api, {"target": TARGET, "delay_s": 600})
    response = api.patch(f"/v1/schedules/{made['id']}", {"cron": "@daily"})
    assert response.status_code == 422
    assert pointers(response)["/cron"] == "unknown_field"


def test_a_new_version_of_the_job_is_what_the_coming_occurrences_deliver(api: ApiClient, job: JobDefinition) -> None:
    made = make(api, {"job_definition": job.name, "every": "10s"})
    before = times_of(made)
    response = api.patch(f"/v1/job-definitions/{job.id}", {"payload": {"from": "second version"}})
    assert (response.status_code, response.json()["version"]) == (200, 2)
    materialise_due()
    after = rows_of(made)
    assert [row.scheduled_for for row in after][: len(before)] == before
    coming = [row for row in after if row.scheduled_for > database_now() + timedelta(seconds=5)]
    assert all((row.job_version, row.payload) == (2, {"from": "second version"}) for row in coming)
    assert len(coming) >= 11


def test_a_job_with_recurring_schedules_is_deleted_with_cascade_alone(api: ApiClient, job: JobDefinition) -> None:
    made = make(api, {"job_definition": job.name, "cron": "@daily"})
    refused = api.delete(f"/v1/job-definitions/{job.id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "job_has_schedules")
    assert api.get(f"/v1/schedules/{made['id']}").json()["state"] == "ACTIVE"
    assert api.delete(f"/v1/job-definitions/{job.id}?cascade=true").status_code == 204
    assert api.get(f"/v1/schedules/{made['id']}").json()["state"] == "CANCELLED"


# --- by key ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["nightly", "team a/report #1 ä?", "k" * 200])
def test_a_put_makes_it_and_the_same_put_again_changes_nothing(api: ApiClient, key: str) -> None:
    path = f"/v1/schedules/by-key/{quote(key, safe='')}"
    assert api.get(path).status_code == 404
    made = api.put(path, EVERY)
    assert made.status_code == 201, made.content
    assert (made["Location"], made["ETag"]) == (f"/v1/schedules/{made.json()['id']}", '"1"')
    before = rows_of(made.json())
    again = api.put(path, EVERY | {"external_key": key})
    assert (again.status_code, again["ETag"]) == (200, '"1"')
    assert {**again.json(), "next_run_at": None} == {**made.json(), "next_run_at": None}
    assert [row.id for row in rows_of(made.json())] == [row.id for row in before]
    assert (api.get(path).json()["id"], api.get(path).json()["external_key"]) == (made.json()["id"], key)


def test_a_put_replaces_the_whole(api: ApiClient) -> None:
    path = "/v1/schedules/by-key/k"
    made = api.put(path, EVERY | {"max_runs": 5, "tags": ["a"], "overlap": "skip", "payload": 1}).json()
    replaced = api.put(path, CRON | {"timezone": "Asia/Tokyo"})
    assert replaced.status_code == 200, replaced.content
    body = replaced.json()
    assert (body["id"], body["kind"], body["version"]) == (made["id"], "cron", 2)
    assert (body["max_runs"], body["tags"], body["overlap"], body["payload"]) == (None, [], "allow", None)
    assert api.put(path, CRON | {"timezone": "Asia/Tokyo"}, if_match='"1"').status_code == 412
    assert api.put("/v1/schedules/by-key/new", CRON, if_match='"1"').status_code == 412
    assert Schedule.objects.count() == 1


@pytest.mark.parametrize(
    ("key", "body", "pointer", "code"),
    [
        ("k" * 201, CRON, "/external_key", "max_length"),
        ("%20", CRON, "/external_key", "blank"),
        ("a%00b", CRON, "/external_key", "null_characters_not_allowed"),
        ("k", CRON | {"external_key": "other"}, "/external_key", "mismatch"),
        ("k", {"target": TARGET, "delay_s": 5}, "/delay_s", "not_repeatable"),
        ("k", CRON | {"cron": "x"}, "/cron", "invalid"),
        ("k", CRON | {"ends_at": "2020-01-01T00:00:00Z"}, "/ends_at", "never_fires"),
        ("k", [], "", "invalid"),
    ],
)
def test_a_put_that_cannot_be_followed_is_refused(api: ApiClient, key: str, body: Any, pointer: str, code: str) -> None:
    response = api.put(f"/v1/schedules/by-key/{key}", body)
    assert (response.status_code, pointers(response)) == (422, {pointer: code})
    assert not Schedule.objects.exists()
    assert api.get(f"/v1/schedules/by-key/{key}").status_code == 404


def test_a_once_schedule_by_key_is_moved_while_it_is_pending(api: ApiClient) -> None:
    path = "/v1/schedules/by-key/remind%2F17"
    body = {"target": TARGET, "run_at": "2030-01-31T09:00:00Z", "payload": {"n": 1}}
    made = api.put(path, body)
    assert made.status_code == 201
    assert (api.put(path, body).status_code, api.put(path, body)["ETag"]) == (200, '"1"')
    moved = api.put(path, body | {"run_at": "2030-02-01T09:00:00Z"})
    assert (moved.status_code, moved.json()["id"], moved["ETag"]) == (200, made.json()["id"], '"2"')
    other = api.put(path, body | {"payload": {"n": True}})
    assert (other.status_code, other.json()["code"]) == (409, "content_fixed")
    kind = api.put(path, CRON)
    assert (kind.status_code, kind.json()["code"], kind.json()["state"]) == (409, "other_kind", "ACTIVE")
    Execution.objects.update(state="QUEUED")
    late = api.put(path, body)
    assert (late.status_code, late.json()["code"], late.json()["state"]) == (409, "not_pending", "QUEUED")
    assert Execution.objects.count() == 1


def test_what_has_ended_makes_room_under_its_key(api: ApiClient) -> None:
    path = "/v1/schedules/by-key/k"
    first = api.put(path, CRON).json()
    act(api, first, "cancel")
    second = api.put(path, CRON)
    assert (second.status_code, second.json()["id"] == first["id"]) == (201, False)
    assert api.get(f"/v1/schedules/{first['id']}").json()["external_key"] is None
    Schedule.objects.filter(id=second.json()["id"]).update(state="COMPLETED", next_run_at=None)
    assert api.put(path, CRON).json()["id"] == second.json()["id"]
    third = api.put(path, EVERY)
    assert (third.status_code, third.json()["kind"]) == (201, "interval")
    assert api.post("/v1/schedules", CRON | {"external_key": "k"}).json()["code"] == "external_key_taken"
    act(api, third.json(), "cancel")
    assert make(api, CRON, external_key="k")["external_key"] == "k"


@pytest.mark.django_db(transaction=True)
def test_two_puts_at_once_make_one_schedule(api: ApiClient) -> None:
    for number in range(5):
        barrier = threading.Barrier(4)
        answers: list[ApiResponse] = []
        threads = [in_thread(_put_at(barrier, api, f"k{number}", answers)) for _ in range(4)]
        for thread in threads:
            thread.join()
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
        assert len({answer.json()["id"] for answer in answers}) == 1
        times = times_of(answers[0].json())
        assert len(times) == len(set(times))
    assert Schedule.objects.count() == 5


def _put_at(barrier: threading.Barrier, api: ApiClient, key: str, answers: list[ApiResponse]) -> Callable[[], None]:
    def run() -> None:
        client = ApiClient(api.key)
        barrier.wait(20)
        answers.append(client.put(f"/v1/schedules/by-key/{key}", CRON))

    return run


# --- actions -----------------------------------------------------------------------------------------------------


def test_pause_takes_back_what_waits_and_resume_goes_on(api: ApiClient) -> None:
    made = make(api, EVERY, misfire={"grace_s": 600})
    before = times_of(made)
    for _ in range(2):
        paused = act(api, made, "pause")
        assert paused.status_code == 200, paused.content
        body = paused.json()
        assert (body["state"], body["next_run_at"], body["version"]) == ("PAUSED", None, 2)
        assert body["pause_reason"] == recurring.BY_HAND
    assert times_of(made) == []
    assert api.get(f"/v1/schedules/{made['id']}/occurrences").json()["upcoming"] == []
    for _ in range(2):
        resumed = act(api, made, "resume")
        assert (resumed.status_code, resumed.json()["state"], resumed["ETag"]) == (200, "ACTIVE", '"3"')
    assert times_of(made)[: len(before)] == before


def test_skip_next_passes_over_one_occurrence_and_twice_is_once(api: ApiClient) -> None:
    made = make(api, CRON | {"cron": "0 0 1 1 *"})
    first = act(api, made, "skip-next")
    assert first.status_code == 200, first.content
    again = act(api, made, "skip-next")
    assert again.json() == first.json()
    body = first.json()
    assert (body["state"], body["state_reason"]) == ("SKIPPED", "skipped_by_hand")
    skipped = moment(made["next_run_at"])
    assert moment(body["scheduled_for"]) == skipped
    seen = api.get(f"/v1/schedules/{made['id']}").json()
    assert moment(seen["next_run_at"]) == skipped.replace(year=skipped.year + 1)
    ahead = api.get(f"/v1/schedules/{made['id']}/occurrences").json()["upcoming"]
    assert [line["skipped"] for line in ahead] == [True] + [False] * 9
    assert [moment(line["at"]).year for line in ahead] == list(range(skipped.year, skipped.year + 10))


def test_run_is_one_execution_beside_the_rhythm(api: ApiClient) -> None:
    made = make(api, CRON | {"cron": "0 0 1 1 *", "payload": {"n": 1}})
    act(api, made, "pause")
    first = act(api, made, "run", {"payload": {"n": 2}}, idempotency_key="a")
    assert first.status_code == 201, first.content
    assert first["Location"] == f"/v1/executions/{first.json()['id']}"
    again = act(api, made, "run", {"payload": {"n": 2}}, idempotency_key="a")
    assert (again.json(), again["Idempotent-Replayed"]) == (first.json(), "true")
    assert (first.json()["trigger"], first.json()["payload"], first.json()["schedule"]) == ("run", {"n": 2}, made["id"])
    assert act(api, made, "run").json()["payload"] == {"n": 1}
    assert Execution.objects.count() == 2
    assert pointers(act(api, made, "run", {"payloat": 1})) == {"/payloat": "unknown_field"}


def test_cancel_ends_it_and_says_where_a_worker_holds_an_execution(api: ApiClient) -> None:
    made = make(api, EVERY)
    held = rows_of(made)[0]
    Execution.objects.filter(id=held.id).update(state="RUNNING")
    asked = act(api, made, "cancel")
    assert (asked.status_code, asked.json()) == (202, {"status": "cancel_requested"})
    assert [row.id for row in rows_of(made)] == [held.id]
    Execution.objects.filter(id=held.id).update(state="CANCELLED")
    for _ in range(2):
        done = act(api, made, "cancel")
        assert (done.status_code, done.json()) == (200, {"status": "cancelled"})
    assert api.get(f"/v1/schedules/{made['id']}").json()["state"] == "CANCELLED"


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "skip-next", "backfill", "patch"])
def test_what_has_ended_refuses_every_action(api: ApiClient, verb: str) -> None:
    made = make(api, EVERY)
    act(api, made, "cancel")
    body = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"} if verb == "backfill" else {}
    if verb == "patch":
        response = api.patch(f"/v1/schedules/{made['id']}", {"jitter_s": 5})
    else:
        response = act(api, made, verb, body)
    assert response.status_code == 409, response.content
    assert (response.json()["code"], response.json()["state"]) == ("schedule_ended", "CANCELLED")


def test_a_completed_schedule_cannot_be_cancelled(api: ApiClient) -> None:
    made = make(api, CRON)
    Schedule.objects.update(state="COMPLETED", next_run_at=None)
    response = act(api, made, "cancel")
    assert (response.status_code, response.json()["code"], response.json()["state"]) == (
        409,
        "schedule_ended",
        "COMPLETED",
    )


@pytest.mark.parametrize("verb", ["pause", "resume", "skip-next", "backfill"])
def test_what_fires_once_has_no_rhythm_to_act_on(api: ApiClient, verb: str) -> None:
    made = make(api, {"target": TARGET, "delay_s": 600})
    body = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"} if verb == "backfill" else None
    response = act(api, made, verb, body)
    assert (response.status_code, response.json()["code"], response.json()["state"]) == (409, "not_recurring", "ACTIVE")


def test_nothing_is_skipped_where_nothing_lies_ahead(api: ApiClient) -> None:
    made = make(api, EVERY, max_runs=1)
    Execution.objects.update(state="SUCCEEDED", scheduled_for=database_now() - timedelta(seconds=1))
    response = act(api, made, "skip-next")
    assert (response.status_code, response.json()["code"]) == (409, "no_next_occurrence")


# --- what was and what comes -------------------------------------------------------------------------------------


def test_occurrences_are_pages_of_what_was_made_and_ten_that_come(api: ApiClient) -> None:
    made = make(api, EVERY)
    path = f"/v1/schedules/{made['id']}/occurrences"
    by_hand = act(api, made, "run").json()
    whole = api.get(path).json()
    assert whole["next_cursor"] is None
    assert [item["execution_id"] for item in whole["items"]] == [str(row.id) for row in reversed(rows_of(made))]
    assert whole["items"][-1] == {
        "execution_id": by_hand["id"],
        "scheduled_for": by_hand["scheduled_for"],
        "run_no": 0,
        "trigger": "run",
        "state": "PENDING",
        "state_reason": "",
        "due_at": by_hand["due_at"],
        "started_at": None,
        "finished_at": None,
    }
    paged: list[str] = []
    page = api.get(f"{path}?limit=5").json()
    while True:
        paged += [item["execution_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        page = api.get(f"{path}?limit=5&cursor={page['next_cursor']}").json()
    assert paged == [item["execution_id"] for item in whole["items"]]
    assert [moment(line["at"]) for line in whole["upcoming"]] == [row.scheduled_for for row in rows_of(made)[1:11]]
    assert {line["utc_offset"] for line in whole["upcoming"]} == {"+00:00"}


def test_occurrences_refuse_bad_limits_and_cursors(api: ApiClient) -> None:
    made = make(api, EVERY)
    path = f"/v1/schedules/{made['id']}/occurrences"
    for query in ("limit=0", "limit=201", "cursor=x", "state=PENDING"):
        assert api.get(f"{path}?{query}").status_code == 400
    cursor = api.get(f"{path}?limit=1").json()["next_cursor"]
    act(api, made, "pause")
    assert api.get(f"{path}?cursor={cursor}").json()["code"] == "invalid_cursor"


def test_upcoming_ends_where_the_schedule_ends_and_speaks_local_time(api: ApiClient) -> None:
    ends = (database_now() + timedelta(days=3)).isoformat()
    made = make(api, CRON | {"cron": "0 9 * * *", "timezone": "Asia/Tokyo", "ends_at": ends})
    ahead = api.get(f"/v1/schedules/{made['id']}/occurrences").json()["upcoming"]
    assert len(ahead) == 3
    assert {line["local"][10:] for line in ahead} == {"T09:00:00+09:00"}
    begun = make(api, CRON | {"cron": "@yearly", "starts_at": "2150-06-01T00:00:00Z"})
    ahead = api.get(f"/v1/schedules/{begun['id']}/occurrences").json()["upcoming"]
    assert (ahead[0]["at"], begun["next_run_at"]) == ("2151-01-01T00:00:00Z",) * 2


def test_a_schedule_whose_zone_has_left_the_data_is_still_shown(api: ApiClient) -> None:
    made = make(api, CRON)
    Schedule.objects.update(timezone="Mars/Olympus")
    seen = api.get(f"/v1/schedules/{made['id']}")
    assert (seen.status_code, seen.json()["next_run_at"]) == (200, None)
    assert "Mars/Olympus" in seen.json()["description"]
    assert api.get(f"/v1/schedules/{made['id']}/occurrences").json()["upcoming"] == []


def preview(api: ApiClient, **body: Any) -> list[tuple[str, bool, str | None]]:
    response = api.post("/v1/schedules/preview", body)
    assert response.status_code == 200, response.content
    return [(line["local"], line["moved"], line["repeated"]) for line in response.json()["fires"]]


def test_a_preview_tells_what_the_change_of_clocks_does(api: ApiClient) -> None:
    berlin = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "count": 3}
    assert preview(api, **berlin, after="2030-03-30T00:00:00Z") == [
        ("2030-03-30T02:30:00+01:00", False, None),
        ("2030-03-31T03:00:00+02:00", True, None),
        ("2030-04-01T02:30:00+02:00", False, None),
    ]
    assert preview(api, **berlin, after="2030-10-26T12:00:00Z") == [
        ("2030-10-27T02:30:00+02:00", False, "first"),
        ("2030-10-28T02:30:00+01:00", False, None),
        ("2030-10-29T02:30:00+01:00", False, None),
    ]
    half_hours = {"every": "30m", "timezone": "Europe/Berlin", "count": 4, "after": "2030-10-27T00:00:00Z"}
    assert [line[0::2] for line in preview(api, **half_hours)] == [
        ("2030-10-27T02:30:00+02:00", "first"),
        ("2030-10-27T02:00:00+01:00", "second"),
        ("2030-10-27T02:30:00+01:00", "second"),
        ("2030-10-27T03:00:00+01:00", None),
    ]
    line = api.post("/v1/schedules/preview", berlin | {"after": "2030-03-30T12:00:00Z", "count": 1}).json()
    assert line["description"] == "every day at 02:30 (Europe/Berlin)"
    assert (line["fires"][0]["at"], line["fires"][0]["utc_offset"]) == ("2030-03-31T01:00:00Z", "+02:00")
    assert "02:30 does not exist" in line["fires"][0]["note"]


def test_a_preview_begins_now_and_stores_nothing(api: ApiClient) -> None:
    fires = preview(api, every=90)
    assert len(fires) == 10
    assert datetime.fromisoformat(fires[0][0]) - database_now() <= timedelta(seconds=90)
    assert len(preview(api, cron="0 0 29 2 MON", count=100)) == 100
    assert not Schedule.objects.exists()
    assert not Execution.objects.exists()


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({}, "/cron", "one_of"),
        ({"cron": "@daily", "every": 60}, "/cron", "one_of"),
        ({"cron": "*" * 10_000}, "/cron", "invalid"),
        ({"cron": "0 0 30 2 *"}, "/cron", "never_fires"),
        ({"cron": "@daily", "anchor": "2030-01-01T00:00:00Z"}, "/anchor", "wrong_kind"),
        ({"cron": "@daily", "timezone": "Mars/Olympus"}, "/timezone", "invalid"),
        ({"every": "1 hour"}, "/every", "invalid"),
        ({"every": 60, "count": 101}, "/count", "max_value"),
        ({"every": 60, "count": 0}, "/count", "min_value"),
        ({"every": 60, "after": "tomorrow"}, "/after", "invalid_timestamp"),
        ({"every": 60, "target": TARGET}, "/target", "unknown_field"),
    ],
)
def test_a_preview_refuses_what_a_schedule_would(api: ApiClient, body: dict[str, Any], pointer: str, code: str) -> None:
    response = api.post("/v1/schedules/preview", body)
    assert (response.status_code, pointers(response)) == (422, {pointer: code})


def test_unknown_schedules_are_404(api: ApiClient) -> None:
    nobody = UUID(NOBODY)
    for verb in ("pause", "resume", "run", "skip-next", "cancel"):
        assert api.post(f"/v1/schedules/{nobody}/{verb}").status_code == 404
    assert api.get(f"/v1/schedules/{nobody}/occurrences").status_code == 404
    assert api.patch(f"/v1/schedules/{nobody}", {"cron": "@daily"}).status_code == 404
