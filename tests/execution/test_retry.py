"""Retries and dead letters against real Postgres, Redis and a real receiver."""

import time
from datetime import timedelta
from uuid import UUID

import pytest
import redis
from django.utils import timezone

from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import fanout, services, transitions
from execution.dispatch.engine import Engine
from execution.fanout import LEAST_BACKLOG
from execution.loops.retry import queue_due_retries
from execution.models import Bucket, DeadLetter, Execution
from tests.broker import take_queued_ids
from tests.clients import ProgrammableReceiver
from tests.making import make_executions, make_job, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = {"max_attempts": 3, "initial_backoff_s": 0.2, "multiplier": 1, "jitter": "none"}


def start(engine: Engine, rows: list[Execution]) -> None:
    engine.submit(transitions.queue_pending(ids=[row.id for row in rows]))


def retry_until(engine: Engine, row_id: UUID, state: str) -> None:
    """Tick the loop and hand its messages to the engine until the execution is in `state`."""
    deadline = time.monotonic() + 10
    while states_of([row_id]) != {row_id: state}:
        assert time.monotonic() < deadline, states_of([row_id])
        queue_due_retries()
        if ids := take_queued_ids():
            engine.submit(ids)


def test_a_retryable_answer_is_tried_again_with_the_next_attempt_number_until_it_succeeds(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    receiver.answer(Answer(status=503), Answer(status=500), Answer(status=200))
    [row] = make_executions(workspace, receiver.url(), retry=QUICK)
    start(engine, [row])
    retry_until(engine, row.id, "SUCCEEDED")
    assert [request.headers["x-attempt-number"] for request in receiver.requests] == ["1", "2", "3"]
    waits = [
        (after.arrived - before.arrived).total_seconds()
        for before, after in zip(receiver.requests, receiver.requests[1:], strict=False)
    ]
    assert all(wait >= 0.2 for wait in waits), waits
    row.refresh_from_db()
    assert (row.attempt, row.last_error, row.last_error_text) == (3, "", "")
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("on_deadline", ["expire", "misfire"])
def test_a_retry_that_a_pause_of_its_job_held_past_the_deadline_of_its_start_goes_on(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, on_deadline: str
) -> None:
    receiver.answer(Answer(status=503), Answer(status=200))
    job = make_job(workspace, receiver.url())
    [row] = make_executions(workspace, receiver.url(), job=job, retry=QUICK, schedule_id=new_id())
    Execution.objects.filter(id=row.id).update(trigger="schedule", on_deadline=on_deadline)
    start(engine, [row])
    wait_until(lambda: states_of([row.id]) == {row.id: "RETRYING"})
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    retry_until(engine, row.id, "PENDING")
    Execution.objects.filter(id=row.id).update(start_deadline=database_now() - timedelta(seconds=1))
    services.resume_job_definition(workspace=workspace, job_id=job.id)
    for bucket_id in Bucket.objects.values_list("id", flat=True):
        fanout.fan_out(bucket_id=bucket_id)
    assert states_of([row.id]) == {row.id: "QUEUED"}
    engine.submit(take_queued_ids())
    wait_until(lambda: states_of([row.id]) == {row.id: "SUCCEEDED"})
    assert [request.headers["x-attempt-number"] for request in receiver.requests] == ["1", "2"]


def test_a_retry_that_a_pause_of_its_job_holds_is_not_withdrawn_to_be_made_again(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(status=503))
    job, schedule_id = make_job(workspace, receiver.url()), new_id()
    [row] = make_executions(workspace, receiver.url(), job=job, retry=QUICK, schedule_id=schedule_id)
    Execution.objects.filter(id=row.id).update(trigger="schedule")
    start(engine, [row])
    wait_until(lambda: states_of([row.id]) == {row.id: "RETRYING"})
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    retry_until(engine, row.id, "PENDING")
    assert services.withdraw_occurrences(schedule_id=schedule_id, after=None) == []
    assert states_of([row.id]) == {row.id: "PENDING"}


def test_exhausted_attempts_end_in_a_dead_letter(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    receiver.answer(Answer(status=500))
    [row] = make_executions(workspace, receiver.url(), retry=QUICK)
    start(engine, [row])
    retry_until(engine, row.id, "FAILED")
    assert len(receiver.requests) == 3
    dead = DeadLetter.objects.get(id=row.id)
    assert (dead.reason, dead.last_status, dead.attempts, dead.workspace_id) == (
        "attempts_exhausted",
        500,
        3,
        workspace.id,
    )


@pytest.mark.parametrize(
    ("answer", "retry", "reason"),
    [
        (Answer(status=404), QUICK, "terminal_answer"),
        (Answer(status=410), QUICK, "terminal_answer"),
        (Answer(status=503, headers={"X-Chronos-No-Retry": "true"}), QUICK, "terminal_answer"),
        (Answer(status=503), QUICK | {"max_elapsed_s": 0.1}, "too_old"),
        (Answer(status=503, headers={"Retry-After": "60"}), QUICK | {"max_elapsed_s": 30}, "too_old"),
    ],
)
def test_what_may_not_be_tried_again_is_a_dead_letter_at_once(
    engine: Engine,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    answer: Answer,
    retry: dict[str, object],
    reason: str,
) -> None:
    receiver.answer(answer)
    [row] = make_executions(workspace, receiver.url(), retry=retry)
    start(engine, [row])
    wait_until(lambda: states_of([row.id]) == {row.id: "FAILED"})
    assert DeadLetter.objects.get(id=row.id).reason == reason
    assert len(receiver.requests) == 1


def test_retry_after_is_kept(engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver) -> None:
    receiver.answer(Answer(status=429, headers={"Retry-After": "60"}))
    [row] = make_executions(workspace, receiver.url(), retry=QUICK)
    start(engine, [row])
    wait_until(lambda: states_of([row.id]) == {row.id: "RETRYING"})
    row.refresh_from_db()
    assert timedelta(seconds=55) < row.due_at - database_now() < timedelta(seconds=61)
    assert queue_due_retries() == 0


def test_a_status_that_the_policy_lists_is_tried_again(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(status=409))
    [row] = make_executions(workspace, receiver.url(), retry=QUICK | {"retryable_statuses": [409]})
    start(engine, [row])
    wait_until(lambda: states_of([row.id]) == {row.id: "RETRYING"})


def test_redis_away_at_the_publish_gives_retries_back(workspace: Workspace, redis_server: redis.Redis) -> None:
    rows = make_executions(workspace, "http://127.0.0.1:9/", 5)
    Execution.objects.update(state="RETRYING", attempt=1, due_at=timezone.now())
    redis_server.config_set("min-replicas-to-write", 1)
    try:
        assert queue_due_retries() == 0
    finally:
        redis_server.config_set("min-replicas-to-write", 0)
    assert set(states_of([row.id for row in rows]).values()) == {"RETRYING"}
    assert queue_due_retries() == 5


def test_a_tick_publishes_no_more_than_the_backlog_has_room_for(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    make_executions(workspace, "http://127.0.0.1:9/", 2500)
    Execution.objects.update(state="RETRYING", attempt=1, due_at=timezone.now())
    assert queue_due_retries() == LEAST_BACKLOG * 100
    assert queue_due_retries() == 0
    assert Execution.objects.filter(state="RETRYING").count() == 2500 - LEAST_BACKLOG * 100


def test_workspaces_take_turns_with_their_retries(
    workspace: Workspace, other_workspace: Workspace, redis_server: redis.Redis
) -> None:
    make_executions(workspace, "http://127.0.0.1:9/", 3000)
    few = make_executions(other_workspace, "http://127.0.0.1:9/", 20)
    Execution.objects.update(state="RETRYING", attempt=1, due_at=timezone.now() - timedelta(minutes=1))
    Execution.objects.filter(workspace=other_workspace).update(due_at=timezone.now())
    assert LEAST_BACKLOG * 90 < queue_due_retries() <= LEAST_BACKLOG * 100
    assert set(states_of([row.id for row in few]).values()) == {"QUEUED"}


def test_a_late_success_of_the_current_claim_is_taken_and_an_older_one_is_not(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(delay_s=1.0))
    current, older = make_executions(workspace, receiver.url(), 2, retry=QUICK)
    start(engine, [current, older])
    wait_until(lambda: len(receiver.requests) == 2)
    Execution.objects.update(state="RETRYING", due_at=timezone.now() + timedelta(minutes=1))
    Execution.objects.filter(id=older.id).update(claim_seq=2)
    wait_until(lambda: states_of([current.id]) == {current.id: "SUCCEEDED"})
    wait_until(lambda: engine._slots.free == engine._slots.total)
    assert states_of([older.id]) == {older.id: "RETRYING"}
