"""Actions by filter: what they find, what they leave alone, and what they answer."""

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from chronos_site.api.models import IdempotencyRecord, Operation
from chronos_site.api.operations.runner import run_operations
from chronos_site.infra.clock import database_now
from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.models import Workspace
from execution import dead_letters, operations, quotas
from execution.models import DeadLetter, Execution
from tests.clients import ApiClient, ApiResponse
from tests.making import make_executions, make_job, states_of
from tests.processes import SiteProcesses, wait_until
from tests.threads import in_thread, lock_waiters

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/in"
VERBS = ["dead-letters/replay", "dead-letters/discard", "executions/cancel", "executions/replay"]


def die(*rows: Execution, reason: str = "terminal_answer") -> list[DeadLetter]:
    """As when the last attempt failed."""
    now = database_now()
    Execution.objects.filter(id__in=[row.id for row in rows]).update(
        state="FAILED", attempt=2, last_status=404, finished_at=now, bucket_id=None
    )
    return DeadLetter.objects.bulk_create(
        DeadLetter(
            id=row.id,
            workspace_id=row.workspace_id,
            job_definition_id=row.job_definition_id,
            reason=reason,
            last_status=404,
            attempts=2,
            created_at=now,
        )
        for row in rows
    )


def end(*rows: Execution, state: str = "SUCCEEDED") -> None:
    Execution.objects.filter(id__in=[row.id for row in rows]).update(state=state, finished_at=database_now())


def act(api: ApiClient, verb: str, found: dict[str, Any], **given: Any) -> ApiResponse:
    headers = {"idempotency_key": given.pop("key")} if "key" in given else {}
    return api.post(f"/v1/{verb}", {"filter": found, **given}, **headers)


def finish(api: ApiClient, answer: ApiResponse) -> dict[str, Any]:
    """Run to the end; the operation as its Location tells it."""
    assert answer.status_code == 202, answer.content
    operation_id = answer.json()["id"]
    for _ in range(50):
        run_operations()
        if not Operation.objects.filter(id=operation_id, state__in=Operation.OPEN, waiting_for="").exists():
            break
        Operation.objects.update(next_step_at=database_now())
    body: dict[str, Any] = api.get(answer.headers["Location"]).json()
    return body


def counts(body: dict[str, Any]) -> tuple[str, int, int, int, int]:
    return body["state"], body["total"], body["done"], body["skipped"], body["failed"]


def replays_of(*rows: Execution) -> list[UUID]:
    found = Execution.objects.filter(replay_of__in=[row.id for row in rows]).values_list("replay_of", flat=True)
    return sorted(original for original in found if original is not None)


# --- dead letters --------------------------------------------------------------------------------


def test_replay_by_filter_makes_one_new_execution_for_each_letter_and_leaves_the_old(
    api: ApiClient, workspace: Workspace
) -> None:
    rows = make_executions(workspace, URL, 7, payload={"a": 1})
    die(*rows)
    before = list(Execution.objects.order_by("id").values())
    answer = act(api, "dead-letters/replay", {"reason": "terminal_answer"})
    assert (answer.json()["state"], answer.json()["total"], answer.json()["rate_per_s"]) == ("QUEUED", 7, 100)
    body = finish(api, answer)
    assert counts(body) == ("SUCCEEDED", 7, 7, 0, 0)
    assert (body["kind"], body["filter"]) == ("dead_letters.replay", {"reason": ["terminal_answer"]})
    assert list(Execution.objects.filter(replay_of=None).order_by("id").values()) == before
    assert replays_of(*rows) == sorted(row.id for row in rows)
    for letter in DeadLetter.objects.all():
        [made] = Execution.objects.filter(id__in=[letter.replayed_as])
        assert (letter.status, made.replay_of, made.state, made.trigger) == ("replayed", letter.id, "PENDING", "replay")
        assert (made.payload, made.bucket_id is not None) == ({"a": 1}, True)


def test_discard_by_filter_closes_the_letters_and_leaves_the_executions(api: ApiClient, workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 5)
    die(*rows)
    before = list(Execution.objects.order_by("id").values())
    body = finish(api, act(api, "dead-letters/discard", {}, expect_count=5))
    assert counts(body) == ("SUCCEEDED", 5, 5, 0, 0)
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"discarded"}
    assert DeadLetter.objects.filter(resolved_at=None).count() == 0
    assert list(Execution.objects.order_by("id").values()) == before


def test_a_filter_of_dead_letters_finds_what_the_list_finds(api: ApiClient, workspace: Workspace) -> None:
    job, other_job = make_job(workspace, URL), make_job(workspace, URL)
    first, second = make_executions(workspace, URL, 2, job=job)
    [third] = make_executions(workspace, URL, job=other_job)
    [fourth] = make_executions(workspace, URL)
    die(first, third)
    die(second, fourth, reason="attempts_exhausted")
    old = database_now() - timedelta(days=2)
    DeadLetter.objects.filter(id=first.id).update(created_at=old)
    at, day_ago = old.isoformat(), (old + timedelta(days=1)).isoformat()
    for found, expected in (
        ({"reason": "terminal_answer"}, 2),
        ({"reason": ["terminal_answer", "attempts_exhausted"]}, 4),
        ({"job_definition": str(job.id)}, 2),
        ({"job_definition": [str(job.id), str(other_job.id)], "reason": ["terminal_answer"]}, 2),
        ({"created_from": at}, 4),
        ({"created_to": at}, 0),
        ({"created_from": at, "created_to": day_ago}, 1),
        ({"created_from": day_ago}, 3),
    ):
        counted = act(api, "dead-letters/discard", found, dry_run=True)
        assert (counted.status_code, counted.json()["count"]) == (200, expected), found
        query = "&".join(
            f"{name}={value}".replace("+", "%2B")
            for name, values in found.items()
            for value in (values if isinstance(values, list) else [values])
        )
        assert len(api.get(f"/v1/dead-letters?{query}").json()["items"]) == expected, query


def test_letters_that_somebody_resolved_meanwhile_are_skipped(api: ApiClient, workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 6)
    die(*rows)
    answer = act(api, "dead-letters/replay", {}, expect_count=6)
    assert api.post(f"/v1/dead-letters/{rows[0].id}/discard").status_code == 200
    assert api.post(f"/v1/dead-letters/{rows[1].id}/replay").status_code == 201
    assert counts(finish(api, answer)) == ("SUCCEEDED", 6, 4, 2, 0)
    assert replays_of(*rows) == sorted(row.id for row in rows[1:])


def test_a_letter_that_was_written_after_the_acceptance_is_left_although_its_execution_is_old(
    api: ApiClient, workspace: Workspace
) -> None:
    late, *rows = sorted(make_executions(workspace, URL, 4), key=lambda row: row.id)
    die(*rows)
    answer = act(api, "dead-letters/replay", {}, expect_count=3)
    die(late)
    assert counts(finish(api, answer)) == ("SUCCEEDED", 3, 3, 0, 0)
    assert DeadLetter.objects.get(id=late.id).status == "open"
    assert replays_of(late) == []


def test_replays_of_one_occurrence_get_a_run_number_each(api: ApiClient, workspace: Workspace) -> None:
    made = api.post("/v1/schedules", {"target": {"url": URL}, "delay_s": 0}).json()
    first = Execution.objects.get(id=made["execution_id"])
    end(first, state="FAILED")
    second = dead_letters.replay_execution(workspace=workspace, execution_id=first.id)
    die(first, second)
    [alone] = make_executions(workspace, URL)
    die(alone)
    body = finish(api, act(api, "dead-letters/replay", {}, expect_count=3))
    assert counts(body) == ("SUCCEEDED", 3, 3, 0, 0)
    runs = Execution.objects.filter(schedule_id=made["id"]).order_by("run_no").values_list("run_no", "replay_of")
    assert [no for no, _of in runs] == [0, 1, 2, 3]
    assert {of for _no, of in runs[2:]} == {first.id, second.id}


@pytest.mark.django_db(transaction=True)
def test_two_replays_of_one_occurrence_at_once_both_get_their_run_number(api: ApiClient, workspace: Workspace) -> None:
    made = api.post("/v1/schedules", {"target": {"url": URL}, "delay_s": 0}).json()
    first = Execution.objects.get(id=made["execution_id"])
    end(first, state="FAILED")
    second = dead_letters.replay_execution(workspace=workspace, execution_id=first.id)
    end(second, state="FAILED")
    threads = [
        in_thread(partial(dead_letters.replay_execution, workspace=workspace, execution_id=row.id))
        for row in (first, second, first, second)
    ]
    for thread in threads:
        thread.join()
    assert sorted(Execution.objects.values_list("run_no", flat=True)) == [0, 1, 2, 3, 4, 5]


def test_a_batch_is_replayed_with_a_fixed_number_of_queries(
    workspace: Workspace, django_assert_max_num_queries: Any
) -> None:
    rows = make_executions(workspace, URL, 100)
    die(*rows)
    with django_assert_max_num_queries(20):
        assert len(dead_letters.replay_dead_letters(workspace=workspace, ids=[row.id for row in rows])) == 100


# --- executions ----------------------------------------------------------------------------------


def test_cancel_by_filter_says_what_is_cancelled_and_what_was_only_asked_for(
    api: ApiClient, workspace: Workspace
) -> None:
    rows = make_executions(workspace, URL, 8, tags=["billing"])
    untagged = make_executions(workspace, URL, 2)
    for row, state in zip(rows, ["RUNNING", "RUNNING", "QUEUED", "RETRYING", "SUCCEEDED", "FAILED"], strict=False):
        Execution.objects.filter(id=row.id).update(state=state)
    body = finish(api, act(api, "executions/cancel", {"tag": ["billing"]}))
    assert counts(body) == ("SUCCEEDED", 6, 4, 0, 0)
    assert body["result"] == {"requested": 2}
    states = [states_of([row.id])[row.id] for row in rows]
    assert states == ["RUNNING"] * 2 + ["CANCELLED"] * 2 + ["SUCCEEDED", "FAILED"] + ["CANCELLED"] * 2
    asked = Execution.objects.filter(cancel_requested_at__isnull=False).values_list("id", flat=True)
    assert set(asked) == {row.id for row in rows[:2]}
    assert set(states_of([row.id for row in untagged]).values()) == {"PENDING"}


def test_what_leaves_the_states_of_the_filter_or_ends_meanwhile_is_skipped(
    api: ApiClient, workspace: Workspace
) -> None:
    rows = make_executions(workspace, URL, 5)
    answer = act(api, "executions/cancel", {"state": "PENDING"})
    Execution.objects.filter(id=rows[0].id).update(state="RUNNING")
    end(rows[3])
    body = finish(api, answer)
    assert counts(body) == ("SUCCEEDED", 5, 3, 2, 0)
    assert body["result"] == {"requested": 0}
    assert Execution.objects.get(id=rows[0].id).cancel_requested_at is None


@pytest.mark.django_db(transaction=True)
def test_what_leaves_the_states_of_the_filter_at_the_very_moment_is_skipped(
    api: ApiClient, workspace: Workspace
) -> None:
    rows = make_executions(workspace, URL, 3)
    answer = act(api, "executions/cancel", {"state": "PENDING"})
    with transaction.atomic():
        Execution.objects.filter(id=rows[0].id).update(state="RUNNING")
        runs = in_thread(run_operations)
        wait_until(lambda: lock_waiters() == 1)
    runs.join()
    assert counts(finish(api, answer)) == ("SUCCEEDED", 3, 2, 1, 0)
    assert Execution.objects.get(id=rows[0].id).cancel_requested_at is None


def test_executions_that_come_after_the_acceptance_are_not_cancelled(api: ApiClient, workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 3)
    answer = act(api, "executions/cancel", {}, expect_count=3)
    late = make_executions(workspace, URL, 3)
    # An id may be older than the row: it is made before, and on a machine with a clock of its own.
    Execution.objects.filter(id=late[0].id).update(id=UUID(int=rows[0].id.int - 1))
    assert counts(finish(api, answer)) == ("SUCCEEDED", 3, 3, 0, 0)
    assert Execution.objects.filter(state="PENDING").count() == 3


def test_replay_by_filter_runs_ended_executions_again_and_closes_their_letters(
    api: ApiClient, workspace: Workspace
) -> None:
    failed, succeeded = make_executions(workspace, URL, 3, tags=["x"]), make_executions(workspace, URL, 2, tags=["x"])
    pending = make_executions(workspace, URL, 1, tags=["x"])
    die(*failed)
    end(*succeeded)
    body = finish(api, act(api, "executions/replay", {"tag": "x", "state": ["FAILED"]}))
    assert counts(body) == ("SUCCEEDED", 3, 3, 0, 0)
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"replayed"}
    Execution.objects.exclude(replay_of=None).delete()
    body = finish(api, act(api, "executions/replay", {"tag": "x"}))
    assert counts(body) == ("SUCCEEDED", 5, 5, 0, 0)
    assert replays_of(*failed, *succeeded, *pending) == sorted(row.id for row in (*failed, *succeeded))


def test_executions_that_end_or_are_resolved_after_the_acceptance_are_not_replayed(
    api: ApiClient, workspace: Workspace
) -> None:
    late, *rows = sorted(make_executions(workspace, URL, 5), key=lambda row: row.id)
    die(*rows)
    answer = act(api, "executions/replay", {"state": "FAILED"})
    die(late)
    dead_letters.discard_dead_letter(workspace=workspace, dead_letter_id=rows[2].id)
    assert counts(finish(api, answer)) == ("SUCCEEDED", 4, 3, 1, 0)
    assert replays_of(late, *rows) == sorted(row.id for row in rows if row.id != rows[2].id)


def test_a_filter_of_executions_finds_what_the_list_finds(api: ApiClient, workspace: Workspace) -> None:
    job, now = make_job(workspace, URL), database_now()
    made = api.post("/v1/schedules", {"target": {"url": URL}, "delay_s": 3600}).json()
    make_executions(workspace, URL, 2, job=job, tags=["a", "b"], due_at=now)
    make_executions(workspace, URL, 3, tags=["b"], due_at=now + timedelta(hours=2))
    queued = make_executions(workspace, URL, 1, tags=["c"], due_at=now)
    Execution.objects.filter(id=queued[0].id).update(state="QUEUED")
    soon = (now + timedelta(hours=2)).isoformat()
    for found, expected in (
        ({"state": "QUEUED"}, 1),
        ({"state": ["QUEUED", "PENDING"]}, 7),
        ({"job_definition": str(job.id)}, 2),
        ({"schedule": made["id"]}, 1),
        ({"tag": ["a", "c"]}, 3),
        ({"tag": "b", "scheduled_for_to": soon}, 2),
        ({"scheduled_for_from": soon}, 3),
        ({"tag": "b", "job_definition": [str(job.id)]}, 2),
    ):
        counted = act(api, "executions/cancel", found, dry_run=True)
        assert (counted.status_code, counted.json()) == (200, {"kind": "executions.cancel", "count": expected}), found


# --- quota, rate, workspaces ---------------------------------------------------------------------


def test_a_replay_waits_while_the_quota_is_full_and_goes_on_when_there_is_room(
    api: ApiClient, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "FRESH_S", -1)
    rows = make_executions(workspace, URL, 10)
    die(*rows)
    Workspace.objects.update(quota_pending_executions=4)
    answer = act(api, "dead-letters/replay", {}, expect_count=10)
    wait_until(lambda: run_operations().put_off == 1)
    body = api.get(answer.headers["Location"]).json()
    assert counts(body) == ("RUNNING", 10, 4, 0, 0)
    assert body["waiting_for"].startswith("The workspace may hold 4 pending executions")
    assert DeadLetter.objects.filter(status="open").count() == 6
    Operation.objects.update(next_step_at=database_now())
    assert run_operations().put_off == 1
    assert counts(api.get(answer.headers["Location"]).json())[2] == 4
    Workspace.objects.update(quota_pending_executions=100)
    Operation.objects.update(next_step_at=database_now())
    assert counts(finish(api, answer)) == ("SUCCEEDED", 10, 10, 0, 0)
    assert replays_of(*rows) == sorted(row.id for row in rows)


def test_a_rate_that_was_asked_for_is_held(api: ApiClient, workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 9)
    die(*rows)
    answer = act(api, "dead-letters/replay", {}, expect_count=9, rate_per_s=4)
    run_operations()
    body = api.get(answer.headers["Location"]).json()
    assert (body["state"], body["done"], body["rate_per_s"]) == ("RUNNING", 4, 4)


@pytest.mark.parametrize("verb", VERBS)
def test_workspaces_never_meet(
    api: ApiClient, other_api: ApiClient, workspace: Workspace, other_workspace: Workspace, verb: str
) -> None:
    make_executions(workspace, URL)
    foreign = make_executions(other_workspace, URL, 2, tags=["x"])
    if verb != "executions/cancel":
        die(*foreign)
    theirs = list(Execution.objects.filter(workspace=other_workspace).order_by("id").values())
    letters = list(DeadLetter.objects.order_by("id").values())
    expected = 1 if verb == "executions/cancel" else 0
    answer = act(api, verb, {}, expect_count=expected)
    assert counts(finish(api, answer)) == ("SUCCEEDED", expected, expected, 0, 0)
    assert list(Execution.objects.filter(workspace=other_workspace).order_by("id").values()) == theirs
    assert list(DeadLetter.objects.order_by("id").values()) == letters
    assert other_api.get(answer.headers["Location"]).status_code == 404
    assert counts(finish(other_api, act(other_api, verb, {}, expect_count=2))) == ("SUCCEEDED", 2, 2, 0, 0)


# --- the request ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_counts_and_changes_nothing(api: ApiClient, workspace: Workspace, verb: str) -> None:
    rows = make_executions(workspace, URL, 3)
    if verb != "executions/cancel":
        die(*rows)
    before = list(Execution.objects.order_by("id").values()), list(DeadLetter.objects.order_by("id").values())
    answer = act(api, verb, {}, dry_run=True)
    assert (answer.status_code, answer.json()["count"]) == (200, 3)
    assert "Location" not in answer.headers
    assert Operation.objects.count() == 0
    run_operations()
    after = list(Execution.objects.order_by("id").values()), list(DeadLetter.objects.order_by("id").values())
    assert after == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_another_number_than_expected_is_409_and_starts_nothing(
    api: ApiClient, workspace: Workspace, dry_run: bool
) -> None:
    die(*make_executions(workspace, URL, 3))
    refused = act(api, "dead-letters/discard", {"reason": "terminal_answer"}, expect_count=2, dry_run=dry_run)
    assert (refused.status_code, refused.json()["code"], refused.json()["count"]) == (409, "count_mismatch", 3)
    assert Operation.objects.count() == 0


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({}, "/filter", "required"),
        ({"filter": None}, "/filter", "null"),
        ({"filter": []}, "/filter", "invalid"),
        ({"filter": {}}, "/filter", "empty_filter"),
        ({"filter": {}, "dry_run": False}, "/filter", "empty_filter"),
        ({"filter": {"status": "open"}}, "/filter/status", "unknown_field"),
        ({"filter": {"job_definition": []}}, "/filter/job_definition", "empty"),
        ({"filter": {"job_definition": None}}, "/filter/job_definition", "null"),
        ({"filter": {"job_definition": "x"}}, "/filter/job_definition", "invalid"),
        ({"filter": {"job_definition": ["x"]}}, "/filter/job_definition/0", "invalid"),
        ({"filter": {}, "expect_count": -1}, "/expect_count", "min_value"),
        ({"filter": {}, "expect_count": "3"}, "/expect_count", "invalid"),
        ({"filter": {}, "dry_run": 1}, "/dry_run", "invalid"),
        ({"filter": {}, "dry_run": True, "rate_per_s": 0}, "/rate_per_s", "min_value"),
        ({"filter": {}, "dry_run": True, "rate_per_s": 1001}, "/rate_per_s", "max_value"),
        ({"filter": {}, "dry_run": True, "force": True}, "/force", "unknown_field"),
    ],
)
def test_a_bad_body_is_422_with_its_pointer(
    api: ApiClient, workspace: Workspace, verb: str, body: dict[str, Any], pointer: str, code: str
) -> None:
    refused = api.post(f"/v1/{verb}", body)
    assert refused.status_code == 422
    assert {(error["pointer"], error["code"]) for error in refused.json()["errors"]} == {(pointer, code)}
    assert Operation.objects.count() == 0


@pytest.mark.parametrize(
    ("verb", "found", "pointer", "code"),
    [
        ("dead-letters/replay", {"reason": ["terminal_answer", "bored"]}, "/filter/reason/1", "invalid_choice"),
        ("dead-letters/replay", {"reason": "bored"}, "/filter/reason", "invalid_choice"),
        ("dead-letters/replay", {"created_from": "today"}, "/filter/created_from", "invalid_timestamp"),
        ("dead-letters/discard", {"tag": "x"}, "/filter/tag", "unknown_field"),
        ("executions/cancel", {"state": ["PENDING", "FAILED"]}, "/filter/state/1", "invalid_choice"),
        ("executions/replay", {"state": "PENDING"}, "/filter/state", "invalid_choice"),
        ("executions/cancel", {"tag": [7]}, "/filter/tag/0", "invalid"),
        ("executions/cancel", {"schedule": "x"}, "/filter/schedule", "invalid"),
        ("executions/cancel", {"scheduled_for_to": "2030-01-01T00:00:00"}, "/filter/scheduled_for_to", None),
    ],
)
def test_a_bad_filter_is_422_with_its_pointer(
    api: ApiClient, workspace: Workspace, verb: str, found: dict[str, Any], pointer: str, code: str | None
) -> None:
    refused = act(api, verb, found)
    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert (error["pointer"], error["code"]) == (pointer, code or "invalid_timestamp")


@pytest.mark.parametrize("verb", VERBS)
def test_an_idempotency_key_answers_the_same_operation(api: ApiClient, workspace: Workspace, verb: str) -> None:
    rows = make_executions(workspace, URL, 2)
    if verb != "executions/cancel":
        die(*rows)
    first = act(api, verb, {}, expect_count=2, key="k")
    again = act(api, verb, {}, expect_count=2, key="k")
    assert (first.status_code, again.status_code) == (202, 202)
    assert (again.json(), again.headers["Location"]) == (first.json(), first.headers["Location"])
    assert again.headers["Idempotent-Replayed"] == "true"
    assert Operation.objects.count() == IdempotencyRecord.objects.count() == 1
    assert act(api, verb, {}, expect_count=3, key="k").status_code == 422


@pytest.mark.parametrize("verb", VERBS)
def test_actions_by_filter_need_the_scope_to_write(workspace: Workspace, verb: str) -> None:
    _, reading = tenancy.create_api_key(workspace=workspace, name="r", scopes=["executions:read"])
    assert act(ApiClient(reading), verb, {}, dry_run=True).status_code == 403


def test_times_of_a_filter_are_frozen_as_they_were_given(api: ApiClient, workspace: Workspace) -> None:
    found = {"created_from": "2030-01-31T10:00:00.123456+01:00", "job_definition": str(make_job(workspace, URL).id)}
    body = act(api, "dead-letters/replay", found).json()
    assert body["filter"] == {
        "created_from": "2030-01-31T09:00:00.123456Z",
        "job_definition": [found["job_definition"]],
    }
    assert counts(finish(api, act(api, "dead-letters/replay", found)))[0] == "SUCCEEDED"


def test_an_abort_between_steps_leaves_the_rest_as_it_was(api: ApiClient, workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 9)
    die(*rows)
    answer = act(api, "dead-letters/replay", {}, expect_count=9, rate_per_s=4)
    run_operations()
    body = api.post(f"{answer.headers['Location']}/abort").json()
    assert counts(body) == ("ABORTED", 9, 4, 0, 0)
    Operation.objects.update(next_step_at=database_now())
    run_operations()
    assert DeadLetter.objects.filter(status="open").count() == 5
    assert len(replays_of(*rows)) == 4


def test_more_than_one_batch_takes_several_steps(api: ApiClient, workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, operations.REPLAY_BATCH + 50)
    die(*rows)
    body = finish(api, act(api, "dead-letters/replay", {}, expect_count=len(rows), rate_per_s=1000))
    assert counts(body) == ("SUCCEEDED", len(rows), len(rows), 0, 0)
    assert replays_of(*rows) == sorted(row.id for row in rows)


@pytest.mark.django_db(transaction=True)
def test_two_runners_and_a_person_replay_each_letter_once(api: ApiClient, workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 300)
    die(*rows)
    answers = [act(api, "dead-letters/replay", {}, expect_count=300, rate_per_s=1000) for _ in range(2)]
    person = [
        in_thread(partial(dead_letters.replay_dead_letter, workspace=workspace, dead_letter_id=row.id))
        for row in rows[-3:]
    ]
    runners = [in_thread(run_operations) for _ in range(2)]
    for thread in (*person, *runners):
        thread.join()
    bodies = [finish(api, answer) for answer in answers]
    assert {body["state"] for body in bodies} == {"SUCCEEDED"}
    assert all(body["done"] + body["skipped"] == 300 for body in bodies)
    assert replays_of(*rows) == sorted(row.id for row in rows)


@pytest.mark.django_db(transaction=True)
def test_beat_and_a_maintenance_worker_do_an_operation_to_its_end(
    api: ApiClient, workspace: Workspace, celery_processes: SiteProcesses
) -> None:
    rows = make_executions(workspace, URL, 30)
    die(*rows)
    answer = act(api, "dead-letters/replay", {}, expect_count=30, rate_per_s=20)
    worker = celery_processes.worker(name="maintenance", queues="maintenance", concurrency=1)
    celery_processes.beat(name="beat")
    operation = Operation.objects.get(id=answer.json()["id"])

    def ended() -> bool:
        operation.refresh_from_db()
        return operation.state not in Operation.OPEN

    wait_until(ended, timeout_s=40, told=lambda: f"{operation.state}, {operation.done} done")
    assert (operation.state, operation.done) == ("SUCCEEDED", 30), celery_processes.log(worker)[-3000:]
    assert replays_of(*rows) == sorted(row.id for row in rows)
