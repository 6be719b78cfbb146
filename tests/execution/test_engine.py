"""The engine against a real database and a real receiver."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.utils import timezone
from pymongo import MongoClient

from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import services, transitions
from execution.dispatch.attempt_log import CAPACITY, AttemptLog, redact
from execution.dispatch.engine import Engine, EngineStopping
from execution.dispatch.runtime import build_engine
from execution.models import Execution, JobDefinition, Worker
from tests.clients import ProgrammableReceiver
from tests.making import make_executions, make_job, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def queue(rows: list[Execution]) -> list[UUID]:
    return transitions.queue_pending(ids=[row.id for row in rows])


def wait_for_state(rows: list[Execution], state: str, timeout_s: float = 10) -> None:
    ids = [row.id for row in rows]
    wait_until(lambda: set(states_of(ids).values()) == {state}, timeout_s=timeout_s, told=lambda: str(states_of(ids)))


def test_a_delivery_carries_its_headers_and_its_payload_and_ends_succeeded(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    job = make_job(workspace, receiver.url("/in"))
    [row] = make_executions(workspace, receiver.url("/in"), job=job, payload={"customer": 17})
    engine.submit(queue([row]))
    wait_for_state([row], "SUCCEEDED")
    [request] = receiver.requests
    assert json.loads(request.body) == {"customer": 17}
    assert request.headers["x-execution-id"] == str(row.id)
    assert request.headers["x-job-id"] == str(job.id)
    assert request.headers["x-attempt-number"] == "1"
    assert datetime.fromisoformat(request.headers["x-scheduled-for"]) == row.scheduled_for.replace(
        microsecond=row.scheduled_for.microsecond // 1000 * 1000
    )
    assert request.headers["traceparent"][:36] == row.traceparent[:36]
    assert request.headers["traceparent"] != row.traceparent
    row.refresh_from_db()
    assert (row.attempt, row.claim_seq, row.last_status) == (1, 1, 200)
    assert row.started_at is not None
    assert row.finished_at is not None
    assert row.lease_until is None


def test_no_delivery_is_early_and_each_comes_at_its_second(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    due = database_now() + timedelta(seconds=0.7)
    rows = make_executions(workspace, receiver.url(), 50, due_at=due)
    engine.submit(queue(rows))
    wait_for_state(rows, "SUCCEEDED")
    lateness = [(request.arrived - due).total_seconds() for request in receiver.requests]
    assert len(lateness) == 50
    assert min(lateness) >= 0
    assert max(lateness) < 1


def test_a_message_that_comes_twice_sends_once(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = make_executions(workspace, receiver.url(), 20)
    ids = queue(rows)
    twice = [threading.Thread(target=engine.submit, args=(ids,)) for _ in range(4)]
    for thread in twice:
        thread.start()
    for thread in twice:
        thread.join()
    wait_for_state(rows, "SUCCEEDED")
    engine.submit(ids)
    assert sorted(str(r.execution_id) for r in receiver.requests) == sorted(str(i) for i in ids)


def test_two_engines_with_the_same_message_send_once(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    other = build_engine(name="other")
    other.start()
    try:
        rows = make_executions(workspace, receiver.url(), 100)
        ids = queue(rows)
        both = [threading.Thread(target=e.submit, args=(ids,)) for e in (engine, other)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        wait_for_state(rows, "SUCCEEDED")
        assert len(receiver.requests) == 100
    finally:
        other.stop(1)


def test_receivers_that_hang_do_not_hold_back_the_others(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(hang=True), path="/hang")
    hanging = make_executions(workspace, receiver.url("/hang"), 20, timeout_s=3.0)
    others = make_executions(workspace, receiver.url("/ok"), 100)
    begun = time.monotonic()
    engine.submit(queue(hanging))
    engine.submit(queue(others))
    wait_for_state(others, "SUCCEEDED")
    assert time.monotonic() - begun < 2.5
    wait_for_state(hanging, "FAILED")
    assert set(Execution.objects.filter(id__in=[r.id for r in hanging]).values_list("last_error", flat=True)) == {
        "timeout"
    }


def test_a_receiver_that_drips_is_cut_off_at_the_total_deadline(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(body=b"x" * 200, drip_s=0.1))
    [row] = make_executions(workspace, receiver.url(), timeout_s=1.0)
    engine.submit(queue([row]))
    wait_for_state([row], "FAILED")
    row.refresh_from_db()
    assert row.last_error == "timeout"
    assert row.last_duration_ms is not None
    assert 900 < row.last_duration_ms < 2000


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(status=500), "http_500"),
        (Answer(status=404), "http_404"),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}), "http_302"),
        (Answer(reset=True), "network"),
    ],
)
def test_an_answer_that_is_no_success_ends_failed_with_its_code(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, answer: Answer, code: str
) -> None:
    receiver.answer(answer)
    [row] = make_executions(workspace, receiver.url())
    engine.submit(queue([row]))
    wait_for_state([row], "FAILED")
    row.refresh_from_db()
    assert (row.last_error, row.state_reason) == (code, code)
    assert len(receiver.requests) == 1


def test_a_target_that_the_guard_refuses_is_never_called(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = make_executions(workspace, "http://169.254.169.254/latest/meta-data/") + make_executions(
        workspace, "http://10.0.0.1/"
    )
    engine.submit(queue(rows))
    wait_for_state(rows, "FAILED")
    assert {row.state_reason for row in Execution.objects.all()} == {"target_refused"}


def test_a_huge_answer_is_read_up_to_the_cap_only(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(body=b"y" * 5_000_000))
    [row] = make_executions(workspace, receiver.url())
    engine.submit(queue([row]))
    wait_for_state([row], "SUCCEEDED")


def test_what_is_cancelled_before_the_send_is_never_sent(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = make_executions(workspace, receiver.url(), 3, due_at=database_now() + timedelta(seconds=1.5))
    engine.submit(queue(rows))
    wait_for_state(rows, "RUNNING")
    answer = services.cancel_executions(workspace=workspace, ids=[row.id for row in rows])
    assert len(answer.requested) == 3
    wait_for_state(rows, "CANCELLED")
    assert receiver.requests == []
    assert set(Execution.objects.values_list("attempt", flat=True)) == {0}


def test_a_job_paused_between_claim_and_send_parks_and_goes_on_after_the_resume(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    job = make_job(workspace, receiver.url())
    rows = make_executions(workspace, receiver.url(), 2, job=job, due_at=database_now() + timedelta(seconds=1))
    engine.submit(queue(rows))
    wait_for_state(rows, "RUNNING")
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    wait_for_state(rows, "PENDING")
    parked = list(Execution.objects.values_list("park_reason", "bucket_id"))
    assert parked == [("job_paused", None)] * 2
    assert receiver.requests == []
    services.resume_job_definition(workspace=workspace, job_id=job.id)
    assert not JobDefinition.objects.get(id=job.id).has_parked
    rows = list(Execution.objects.all())
    assert all(row.bucket_id is not None and row.park_reason == "" for row in rows)
    engine.submit(queue(rows))
    wait_for_state(rows, "SUCCEEDED")
    assert {row.claim_seq for row in Execution.objects.all()} == {2}


def test_a_result_that_postgres_refuses_does_not_take_the_others_with_it(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_executions(workspace, receiver.url(), 9)
    poisoned = rows[4].id
    record = engine._results.add

    def add(result):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        if result.claim.id == poisoned:
            result.error_text = "a NUL \x00 in a text"
        record(result)

    monkeypatch.setattr(engine._results, "add", add)
    engine.submit(queue(rows))
    wait_for_state([row for row in rows if row.id != poisoned], "SUCCEEDED")
    wait_for_state([rows[4]], "FAILED")
    assert Execution.objects.get(id=poisoned).state_reason == "internal"


def test_mongodb_away_does_not_hold_back_deliveries(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    client: MongoClient[dict[str, object]] = MongoClient("mongodb://127.0.0.1:1", serverSelectionTimeoutMS=200)
    engine._log = AttemptLog(client["none"]["logs"])
    engine._log.start()
    rows = make_executions(workspace, receiver.url(), 50)
    engine.submit(queue(rows))
    wait_for_state(rows, "SUCCEEDED")
    engine._log.stop(2)
    client.close()


def test_the_buffer_of_attempt_logs_keeps_the_newest_and_counts_what_it_dropped(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    client: MongoClient[dict[str, object]] = MongoClient("mongodb://127.0.0.1:1", connect=False)
    log = AttemptLog(client["none"]["logs"])
    [row] = make_executions(workspace, receiver.url())
    captured = []
    add = engine._log.add

    def keep(results, *, worker):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        captured.extend(results)
        add(results, worker=worker)

    engine._log.add = keep  # type: ignore[method-assign]
    engine.submit(queue([row]))
    wait_for_state([row], "SUCCEEDED")
    wait_until(lambda: captured)
    log.add(captured * (CAPACITY + 5), worker="w")
    assert log.dropped == 5
    assert len(log._waiting) == CAPACITY
    client.close()


def test_secrets_in_headers_are_redacted_in_the_log() -> None:
    told = redact({"Authorization": "Bearer x", "X-Api-Key": "y", "Cookie": "z", "X-Team": "billing"})
    assert told == {
        "Authorization": "[redacted]",
        "X-Api-Key": "[redacted]",
        "Cookie": "[redacted]",
        "X-Team": "billing",
    }


def test_an_engine_that_stops_gives_back_what_it_has_not_sent_and_finishes_what_it_has(
    workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    stopping = build_engine(name="stopping")
    stopping.start()
    receiver.answer(Answer(delay_s=0.8), path="/slow")
    slow = make_executions(workspace, receiver.url("/slow"), 3)
    later = make_executions(workspace, receiver.url("/later"), 3, due_at=database_now() + timedelta(seconds=20))
    stopping.submit(queue(slow))
    stopping.submit(queue(later))
    wait_until(lambda: len(receiver.requests) == 3)
    stopping.begin_stop()
    with pytest.raises(EngineStopping):
        stopping.submit([new_id()])
    stopping.stop(5)
    assert set(states_of([row.id for row in slow]).values()) == {"SUCCEEDED"}
    assert set(states_of([row.id for row in later]).values()) == {"QUEUED"}
    assert len(receiver.requests) == 3


def test_slots_are_freed_one_by_one_so_more_than_fit_at_once_are_delivered(
    workspace: Workspace, receiver: ProgrammableReceiver, settings: object
) -> None:
    settings.CHRONOS_MAX_IN_FLIGHT = 7  # type: ignore[attr-defined]
    small = build_engine(name="small")
    small.start()
    try:
        rows = make_executions(workspace, receiver.url(), 60)
        small.submit(queue(rows))
        wait_for_state(rows, "SUCCEEDED")
        wait_until(lambda: small._slots.free == 7)
    finally:
        small.stop(1)


def test_a_worker_tells_of_itself_in_its_row(engine: Engine) -> None:
    wait_until(lambda: Worker.objects.filter(name="test-engine").exists())
    row = Worker.objects.get(name="test-engine")
    assert timezone.now() - row.heartbeat_at < timedelta(seconds=10)
    assert not row.stopping


def test_a_worker_that_could_not_write_its_heartbeat_sends_nothing_new_and_gives_it_back(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    wait_until(lambda: Worker.objects.filter(name="test-engine").exists())
    [row] = make_executions(workspace, receiver.url(), due_at=database_now() + timedelta(seconds=1))
    engine.submit(queue([row]))
    engine._heartbeat._written = time.monotonic() - 60
    wait_until(lambda: states_of([row.id]) == {row.id: "QUEUED"})
    assert engine._slots.free == engine._slots.total
    assert receiver.requests == []


def test_the_fence_keeps_an_attempt_from_being_sent_that_redis_knows_the_outcome_of(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    [row] = make_executions(workspace, receiver.url())
    ids = queue([row])
    engine.submit(ids)
    wait_for_state([row], "SUCCEEDED")
    wait_until(lambda: engine._slots.free == engine._slots.total)
    # As after a restore of the database from before the send.
    Execution.objects.filter(id=row.id).update(state="QUEUED", attempt=0, claim_seq=0, started_at=None)
    engine.submit(ids)
    wait_for_state([row], "SUCCEEDED")
    assert len(receiver.requests) == 1
    row.refresh_from_db()
    assert row.finished_at is not None
    assert row.finished_at < datetime.now(UTC)
