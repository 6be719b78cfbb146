"""Dead letters and replays over the API."""

import pytest

from chronos_site.tenancy.models import Workspace
from execution.models import DeadLetter, Execution
from tests.clients import ApiClient
from tests.making import make_executions, make_job

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/in"


def die(row: Execution, reason: str = "terminal_answer") -> DeadLetter:
    Execution.objects.filter(id=row.id).update(state="FAILED", attempt=2, last_status=404)
    return DeadLetter.objects.create(
        id=row.id,
        workspace_id=row.workspace_id,
        job_definition_id=row.job_definition_id,
        reason=reason,
        last_status=404,
        attempts=2,
    )


def test_dead_letters_are_listed_with_their_reason_and_filtered(api: ApiClient, workspace: Workspace) -> None:
    job = make_job(workspace, URL)
    first, second = make_executions(workspace, URL, 2, job=job)
    [third] = make_executions(workspace, URL)
    for row, reason in ((first, "terminal_answer"), (second, "attempts_exhausted"), (third, "terminal_answer")):
        die(row, reason)
    for query, expected in {
        "": {first, second, third},
        "reason=terminal_answer": {first, third},
        f"job_definition={job.id}": {first, second},
        f"job_definition={job.id}&reason=attempts_exhausted": {second},
        "status=discarded": set(),
    }.items():
        items = api.get(f"/v1/dead-letters?{query}").json()["items"]
        assert {item["id"] for item in items} == {str(row.id) for row in expected}, query


def test_a_replay_is_a_new_execution_that_names_the_old_which_stays_as_it_was(
    api: ApiClient, workspace: Workspace
) -> None:
    made = api.post("/v1/schedules", {"target": {"url": URL}, "delay_s": 0, "payload": {"a": 1}}).json()
    old = Execution.objects.get(id=made["execution_id"])
    die(old)
    before = Execution.objects.values().get(id=old.id)
    path = f"/v1/dead-letters/{old.id}"
    first = api.post(f"{path}/replay")
    again = api.post(f"{path}/replay")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    new = Execution.objects.get(id=first.json()["id"])
    assert (new.replay_of, new.run_no, new.trigger, new.payload) == (old.id, 1, "replay", {"a": 1})
    assert (new.schedule_id, new.scheduled_for, new.state) == (old.schedule_id, old.scheduled_for, "PENDING")
    assert Execution.objects.values().get(id=old.id) == before
    letter = api.get(path).json()
    assert (letter["status"], letter["replayed_as"]) == ("replayed", str(new.id))
    refused = api.post(f"{path}/discard")
    assert (refused.status_code, refused.json()["code"]) == (409, "dead_letter_resolved")


def test_a_discard_is_safe_to_repeat_and_keeps_from_a_replay(api: ApiClient, workspace: Workspace) -> None:
    [row] = make_executions(workspace, URL)
    die(row)
    for _ in range(2):
        assert api.post(f"/v1/dead-letters/{row.id}/discard").json()["status"] == "discarded"
    refused = api.post(f"/v1/dead-letters/{row.id}/replay")
    assert (refused.status_code, refused.json()["state"]) == (409, "discarded")
    assert Execution.objects.count() == 1


def test_any_ended_execution_can_be_replayed_and_one_on_its_way_cannot(api: ApiClient, workspace: Workspace) -> None:
    [row] = make_executions(workspace, URL)
    refused = api.post(f"/v1/executions/{row.id}/replay")
    assert (refused.status_code, refused.json()["code"]) == (409, "execution_not_ended")
    Execution.objects.update(state="SUCCEEDED")
    first = api.post(f"/v1/executions/{row.id}/replay", idempotency_key="r")
    again = api.post(f"/v1/executions/{row.id}/replay", idempotency_key="r")
    assert first.status_code == 201
    assert first.json() == again.json()
    assert first.json()["replay_of"] == str(row.id)
    assert Execution.objects.count() == 2


def test_another_workspaces_dead_letter_is_404(api: ApiClient, other_workspace: Workspace) -> None:
    [row] = make_executions(other_workspace, URL)
    die(row)
    assert api.get(f"/v1/dead-letters/{row.id}").status_code == 404
    assert api.post(f"/v1/dead-letters/{row.id}/replay").status_code == 404
    assert api.post(f"/v1/dead-letters/{row.id}/discard").status_code == 404
    assert api.post(f"/v1/executions/{row.id}/replay").status_code == 404
    assert api.get("/v1/dead-letters").json()["items"] == []
