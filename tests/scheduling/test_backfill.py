"""Backfill over the API: each occurrence of a past range runs once, and never more at once than asked for."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chronos_site.api.models import Operation
from chronos_site.api.operations.runner import run_operations
from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import quotas
from execution.domain.buckets import bucket_of
from execution.models import Execution
from scheduling import backfill
from scheduling.loops.materialise import materialise_due
from scheduling.models import Schedule
from tests.clients import ApiClient, ApiResponse
from tests.making import make_job
from tests.threads import in_thread

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/in"
HOURLY: dict[str, Any] = {"target": {"url": URL}, "cron": "0 * * * *", "payload": {"n": 1}}
DAY = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
HOURS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(24)]


def make(api: ApiClient, **more: Any) -> dict[str, Any]:
    response = api.post("/v1/schedules", HOURLY | more)
    assert response.status_code == 201, response.content
    made: dict[str, Any] = response.json()
    return made


def fill(api: ApiClient, made: dict[str, Any], **body: Any) -> ApiResponse:
    return api.post(f"/v1/schedules/{made['id']}/backfill", DAY | body)


def step(answer: ApiResponse) -> Operation:
    """As when a second has passed."""
    Operation.objects.update(next_step_at=database_now())
    run_operations()
    return Operation.objects.get(id=answer.json()["id"])


def finish(api: ApiClient, answer: ApiResponse, *, at_once: int = 1000) -> dict[str, Any]:
    """To the end, with receivers that answer at once."""
    assert answer.status_code == 202, answer.content
    for _ in range(200):
        operation = step(answer)
        assert backfills(state__in=backfill.NOT_ENDED).count() <= at_once
        if operation.state not in Operation.OPEN:
            break
        backfills().update(state="SUCCEEDED", finished_at=database_now(), bucket_id=None)
    body: dict[str, Any] = api.get(answer["Location"]).json()
    return body


def backfills(**filters: Any) -> Any:
    return Execution.objects.filter(trigger="backfill", **filters).order_by("scheduled_for", "run_no")


def counts(body: dict[str, Any]) -> tuple[str, int, int, int]:
    return body["state"], body["total"], body["done"], body["skipped"]


def runs() -> list[tuple[datetime, int]]:
    return list(backfills().values_list("scheduled_for", "run_no"))


def pointers(response: ApiResponse) -> dict[str, str]:
    return {error["pointer"]: error["code"] for error in response.json()["errors"]}


def test_a_dry_run_counts_and_stores_nothing(api: ApiClient) -> None:
    made = make(api)
    answer = fill(api, made, dry_run=True)
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "kind": "schedules.backfill",
            "count": 24,
            "first": "2026-01-01T00:00:00Z",
            "last": "2026-01-01T23:00:00Z",
        },
    )
    empty = fill(api, made, dry_run=True, **{"from": "2026-01-01T00:01:00Z", "to": "2026-01-01T00:59:00Z"})
    assert (empty.json()["count"], empty.json()["first"], empty.json()["last"]) == (0, None, None)
    assert not Operation.objects.exists()
    assert not backfills().exists()


def test_every_occurrence_of_the_range_becomes_one_execution_due_now(api: ApiClient, workspace: Workspace) -> None:
    job = make_job(workspace, URL, name="report", tags=["billing"])
    made = api.post(
        "/v1/schedules",
        {"job_definition": job.name, "cron": "0 * * * *", "payload": {"n": 1}, "tags": ["t"], "overlap": "skip"},
    ).json()
    answer = fill(api, made, max_running=100)
    assert answer.status_code == 202, answer.content
    assert answer["Location"] == f"/v1/operations/{answer.json()['id']}"
    assert (answer.json()["kind"], answer.json()["total"]) == ("schedules.backfill", 24)
    before = database_now()
    body = finish(api, answer)
    assert counts(body) == ("SUCCEEDED", 24, 24, 0)
    assert runs() == [(at, 0) for at in HOURS]
    for row in backfills():
        assert (row.payload, row.tags, row.job_definition_id) == ({"n": 1}, ["billing", "t"], job.id)
        assert (str(row.schedule_id), row.start_deadline, row.on_deadline) == (made["id"], None, "expire")
        assert (row.overlap, row.concurrency_key) == ("allow", None)
        assert before <= row.due_at <= database_now()
    schedule = Schedule.objects.get()
    assert (schedule.missed_count, schedule.last_misfire) == (0, None)


def test_they_wait_in_buckets_for_the_fire_loop(api: ApiClient) -> None:
    made = make(api)
    step(fill(api, made))
    rows = list(backfills())
    assert len(rows) == 10
    assert all(row.state == "PENDING" and row.bucket_id == bucket_of(row.id, row.due_at, 4) for row in rows)


def test_a_second_backfill_makes_nothing(api: ApiClient) -> None:
    made = make(api)
    finish(api, fill(api, made))
    before = list(backfills().values())
    assert counts(finish(api, fill(api, made))) == ("SUCCEEDED", 24, 0, 24)
    assert list(backfills().values()) == before


def test_what_exists_is_never_run_twice_whatever_became_of_it(api: ApiClient) -> None:
    made = make(api)
    finish(api, fill(api, made, **{"to": "2026-01-01T05:00:00Z"}))
    rows = list(backfills())
    for row, state in zip(rows, ["FAILED", "SKIPPED", "CANCELLED", "EXPIRED", "SUCCEEDED"], strict=True):
        Execution.objects.filter(id=row.id).update(state=state, trigger="schedule")
    assert counts(finish(api, fill(api, made))) == ("SUCCEEDED", 24, 19, 5)
    assert runs() == [(at, 0) for at in HOURS[5:]]


def test_force_runs_every_one_again_under_the_next_number(api: ApiClient) -> None:
    made = make(api)
    finish(api, fill(api, made, **{"from": "2026-01-01T03:00:00Z"}))
    assert counts(finish(api, fill(api, made, force=True))) == ("SUCCEEDED", 24, 24, 0)
    assert counts(finish(api, fill(api, made, force=True))) == ("SUCCEEDED", 24, 24, 0)
    made_late = [(at, run_no) for at in HOURS[:3] for run_no in (0, 1)]
    assert runs() == made_late + [(at, run_no) for at in HOURS[3:] for run_no in (0, 1, 2)]


def test_occurrences_that_ran_twice_are_listed_twice_on_any_page(api: ApiClient) -> None:
    made = make(api)
    for _ in range(2):
        finish(api, fill(api, made, force=True, **{"to": "2026-01-01T02:00:00Z"}))
    path = f"/v1/schedules/{made['id']}/occurrences?limit=1"
    page = api.get(path).json()
    listed = page["items"]
    while page["next_cursor"] is not None:
        page = api.get(f"{path}&cursor={page['next_cursor']}").json()
        listed += page["items"]
    seen = [(item["scheduled_for"], item["run_no"]) for item in listed if item["trigger"] == "backfill"]
    assert seen == [(f"2026-01-01T0{hour}:00:00Z", run_no) for hour in (1, 0) for run_no in (1, 0)]


@pytest.mark.parametrize(("given", "most"), [({}, 10), ({"max_running": 3}, 3)])
def test_never_more_are_under_way_than_asked_for(api: ApiClient, given: dict[str, int], most: int) -> None:
    made = make(api)
    answer = fill(api, made, **given)
    operation = step(answer)
    assert (backfills().count(), operation.done) == (most, most)
    for state in ("QUEUED", "RUNNING", "RETRYING"):
        backfills().update(state=state)
        operation = step(answer)
        assert (backfills().count(), operation.state) == (most, "RUNNING")
        assert f"{most} of its executions are under way" in operation.waiting_for
    first = backfills().first()
    Execution.objects.filter(id=first.id).update(state="FAILED")
    assert (step(answer).done, backfills().count()) == (most + 1, most + 1)
    assert counts(finish(api, answer, at_once=most)) == ("SUCCEEDED", 24, 24, 0)
    assert runs() == [(at, 0) for at in HOURS]


def test_a_schedule_without_overlap_is_filled_one_by_one(api: ApiClient) -> None:
    made = make(api, overlap="queue_one")
    answer = fill(api, made)
    assert answer.json()["arguments"]["max_running"] == 1
    step(answer)
    assert backfills().count() == 1


def test_the_rhythm_is_frozen_and_the_payload_is_that_of_the_moment(api: ApiClient) -> None:
    made = make(api)
    answer = fill(api, made, max_running=2)
    step(answer)
    changed = api.patch(f"/v1/schedules/{made['id']}", {"cron": "30 0 * * *", "payload": {"n": 2}})
    assert changed.status_code == 200
    assert counts(finish(api, answer)) == ("SUCCEEDED", 24, 24, 0)
    assert runs() == [(at, 0) for at in HOURS]
    assert [row.payload["n"] for row in backfills()] == [1, 1] + [2] * 22


def test_a_full_quota_makes_it_wait_and_go_on(api: ApiClient, workspace: Workspace) -> None:
    made = make(api)
    Execution.objects.filter(trigger="schedule").delete()
    workspace.quota_pending_executions = 4
    workspace.save()
    quotas._counts.clear()
    answer = fill(api, made, max_running=8)
    operation = step(answer)
    assert backfills().count() == 4
    assert "pending executions" in operation.waiting_for
    body = finish(api, answer, at_once=4)
    assert counts(body) == ("SUCCEEDED", 24, 24, 0)


def test_a_cancelled_schedule_is_filled_no_further(api: ApiClient) -> None:
    made = make(api)
    answer = fill(api, made, max_running=5)
    step(answer)
    api.post(f"/v1/schedules/{made['id']}/cancel")
    assert set(backfills().values_list("state", flat=True)) == {"CANCELLED"}
    body = finish(api, answer)
    assert counts(body) == ("SUCCEEDED", 24, 5, 19)
    assert backfills().count() == 5


def test_a_cancel_that_is_refused_leaves_the_backfill_of_a_completed_schedule_alone(api: ApiClient) -> None:
    made = make(api)
    Execution.objects.all().delete()
    Schedule.objects.update(state="COMPLETED", next_run_at=None)
    step(fill(api, made, max_running=5))
    assert api.post(f"/v1/schedules/{made['id']}/cancel").status_code == 409
    assert list(backfills().values_list("state", flat=True)) == ["PENDING"] * 5


def test_an_aborted_backfill_makes_no_more(api: ApiClient) -> None:
    made = make(api)
    answer = fill(api, made, max_running=5)
    step(answer)
    assert api.post(f"{answer['Location']}/abort").json()["state"] == "ABORTED"
    backfills().update(state="SUCCEEDED")
    assert step(answer).state == "ABORTED"
    assert backfills().count() == 5


def test_a_paused_schedule_and_an_interval_can_be_filled(api: ApiClient) -> None:
    body = {"target": {"url": URL}, "every": "1d", "anchor": "2025-12-31T06:30:00.250Z", "starts_at": DAY["from"]}
    made = api.post("/v1/schedules", body).json()
    api.post(f"/v1/schedules/{made['id']}/pause")
    answer = fill(api, made, **{"from": "2025-12-01T00:00:00Z", "to": "2026-01-04T00:00:00Z"})
    assert counts(finish(api, answer)) == ("SUCCEEDED", 3, 3, 0)
    first = datetime(2026, 1, 1, 6, 30, 0, 250_000, tzinfo=UTC)
    assert runs() == [(first + timedelta(days=day), 0) for day in range(3)]


def test_a_range_up_to_now_and_the_schedule_itself_make_each_occurrence_once(api: ApiClient) -> None:
    made = make(api, cron="* * * * *", misfire={"policy": "fire_all", "limit": 500})
    api.post(f"/v1/schedules/{made['id']}/pause")
    Execution.objects.all().delete()
    since = database_now().replace(second=0, microsecond=0) - timedelta(hours=1)
    Schedule.objects.update(next_run_at=since)
    answer = fill(
        api, made, max_running=1000, **{"from": since.isoformat(), "to": (since + timedelta(minutes=30)).isoformat()}
    )
    assert counts(finish(api, answer)) == ("SUCCEEDED", 30, 30, 0)
    api.post(f"/v1/schedules/{made['id']}/resume")
    materialise_due()
    rows = list(Execution.objects.order_by("scheduled_for").values_list("scheduled_for", "run_no"))
    assert len(rows) == len(set(rows)) >= 61
    assert [at for at, _ in rows] == [since + timedelta(minutes=n) for n in range(len(rows))]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("force", [False, True])
def test_two_backfills_at_once_share_the_occurrences(api: ApiClient, force: bool) -> None:
    made = make(api)
    answers = [fill(api, made, max_running=100, force=force) for _ in range(2)]
    barrier = threading.Barrier(2)
    threads = [in_thread(_run_at(barrier)) for _ in range(2)]
    for thread in threads:
        thread.join()
    bodies = [finish(api, answer) for answer in answers]
    assert [body["state"] for body in bodies] == ["SUCCEEDED"] * 2
    assert sum(body["done"] for body in bodies) == (48 if force else 24)
    assert runs() == [(at, run_no) for at in HOURS for run_no in ((0, 1) if force else (0,))]


def _run_at(barrier: threading.Barrier) -> Callable[[], None]:
    def run() -> None:
        barrier.wait(20)
        run_operations()

    return run


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"to": "2026-01-01T00:00:00Z"}, "/to", "invalid"),
        ({"to": "2025-01-01T00:00:00Z"}, "/to", "invalid"),
        ({"to": "2150-01-01T00:00:00Z"}, "/to", "in_the_future"),
        ({"from": "yesterday"}, "/from", "invalid_timestamp"),
        ({"from": None}, "/from", "null"),
        ({"max_running": 0}, "/max_running", "min_value"),
        ({"max_running": 1001}, "/max_running", "max_value"),
        ({"force": "yes"}, "/force", "invalid"),
        ({"until": "2026-01-01T00:00:00Z"}, "/until", "unknown_field"),
    ],
)
def test_a_range_that_cannot_be_filled_is_422(api: ApiClient, body: dict[str, Any], pointer: str, code: str) -> None:
    for dry_run in (True, False):
        response = fill(api, make(api), dry_run=dry_run, **body)
        assert (response.status_code, pointers(response)) == (422, {pointer: code})
    assert not Operation.objects.exists()


def test_a_range_of_too_many_occurrences_is_422_with_their_number(api: ApiClient) -> None:
    made = make(api, cron="* * * * * *")
    response = fill(api, made, **{"to": "2026-01-02T03:46:41Z"})
    assert (response.status_code, response.json()["code"], pointers(response)) == (
        422,
        "range_too_large",
        {"/to": "range_too_large"},
    )
    assert response.json()["count"] == 100_001
    assert "100,001" in response.json()["detail"]
    assert fill(api, made, dry_run=True, **{"to": "2026-01-02T03:46:40Z"}).json()["count"] == 100_000


def test_the_same_idempotency_key_starts_one_backfill(api: ApiClient) -> None:
    made = make(api)
    path = f"/v1/schedules/{made['id']}/backfill"
    first = api.post(path, DAY, idempotency_key="a")
    again = api.post(path, DAY, idempotency_key="a")
    assert (again.json(), again["Location"]) == (first.json(), first["Location"])
    assert Operation.objects.count() == 1


def test_a_range_without_occurrences_is_done_at_once(api: ApiClient) -> None:
    answer = fill(api, make(api, starts_at="2140-01-01T00:00:00Z"))
    assert counts(finish(api, answer)) == ("SUCCEEDED", 0, 0, 0)
