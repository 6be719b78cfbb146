"""max_concurrency of a job definition: kept across workers, never lost with one of them, at no charge to what waits."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from chronos_site.infra.clock import database_now
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import services, transitions
from execution.dispatch import concurrency
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.loops.retry import queue_due_retries
from execution.models import Execution
from tests.broker import take_queued_ids
from tests.clients import ApiClient, ProgrammableReceiver
from tests.making import make_executions, make_job, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def engines(transactional_db: None) -> Iterator[list[Engine]]:
    """Two, as two worker processes would have them."""
    running = [build_engine(name="one"), build_engine(name="two")]
    for engine in running:
        engine.start()
    yield running
    for engine in running:
        engine.begin_stop()
        engine.stop(1)


def limited(workspace: Workspace, url: str, count: int, most: int, **fields: Any) -> list[Execution]:
    job = make_job(workspace, url, limits={"max_concurrency": most})
    return make_executions(workspace, url, count, job=job, limits=job.limits, **fields)


def submit(rows: Sequence[Execution], engines: Sequence[Engine]) -> None:
    ids = transitions.queue_pending(ids=[row.id for row in rows])
    for index, engine in enumerate(engines):
        engine.submit(ids[index :: len(engines)])


def ask_again(engines: Sequence[Engine]) -> None:
    queue_due_retries()
    queued = take_queued_ids()
    for index, engine in enumerate(engines):
        engine.submit(queued[index :: len(engines)])


def test_two_workers_never_have_more_under_way_and_charge_no_attempt_to_what_waits(
    engines: list[Engine], workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(delay_s=0.5))
    due = database_now() + timedelta(seconds=1)
    rows = limited(workspace, receiver.url(), 10, 2, due_at=due)
    submit(rows, engines)

    def turn() -> bool:
        ask_again(engines)
        return set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"}

    wait_until(turn, timeout_s=40, step_s=0.2, told=lambda: str(states_of([row.id for row in rows])))
    times = sorted(request.arrived for request in receiver.requests)
    assert len(times) == 10
    assert {request.headers["x-attempt-number"] for request in receiver.requests} == {"1"}
    for first, third in zip(times, times[2:], strict=False):
        assert third - first >= timedelta(seconds=0.5)


def test_what_finds_no_place_waits_as_a_retry_and_says_why(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(hang=True))
    rows = limited(workspace, receiver.url(), 5, 3)
    free = make_executions(workspace, receiver.url(), 4)
    submit(rows + free, [engine])
    receiver.wait_for(7)
    wait_until(lambda: Execution.objects.filter(state="RETRYING").count() == 2)
    waiting = Execution.objects.filter(state="RETRYING")
    assert {(r.state_reason, r.attempt, r.worker_id) for r in waiting} == {(concurrency.REASON, 0, None)}
    assert all(row.due_at > database_now() for row in waiting)
    assert engine._slots.total - engine._slots.free == 7
    receiver.release()


def test_a_killed_worker_keeps_its_places_until_its_claims_are_taken_back_and_no_longer(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    lost, row = limited(workspace, receiver.url(), 2, 1)
    Execution.objects.filter(id=lost.id).update(
        state="RUNNING", claim_seq=1, begun_seq=1, attempt=1, bucket_id=None, lease_until=database_now()
    )
    submit([row], [engine])
    wait_until(lambda: states_of([row.id]) == {row.id: "RETRYING"})
    assert receiver.requests == []
    assert [claim.id for claim in transitions.recover_lost_claims(most=10, unknown_cap=3)] == [lost.id]
    Execution.objects.filter(id=lost.id).update(due_at=database_now() + timedelta(hours=1))

    def turn() -> bool:
        ask_again([engine])
        return states_of([row.id]) == {row.id: "SUCCEEDED"}

    wait_until(turn, step_s=0.2)


def test_a_claim_that_has_not_begun_takes_no_place(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    later, now = limited(workspace, receiver.url(), 2, 1)
    Execution.objects.filter(id=later.id).update(due_at=database_now() + timedelta(seconds=20))
    submit([later], [engine])
    wait_until(lambda: states_of([later.id]) == {later.id: "RUNNING"})
    submit([now], [engine])
    wait_until(lambda: states_of([now.id]) == {now.id: "SUCCEEDED"})


def test_jobs_have_places_of_their_own(engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver) -> None:
    receiver.answer(Answer(hang=True))
    rows = limited(workspace, receiver.url("/a"), 3, 1) + limited(workspace, receiver.url("/b"), 3, 2)
    submit(rows, [engine])
    receiver.wait_for(3)
    wait_until(lambda: Execution.objects.filter(state="RETRYING").count() == 3)
    assert (len(receiver.arrived_at("/a")), len(receiver.arrived_at("/b"))) == (1, 2)
    receiver.release()


def test_what_is_cancelled_while_it_waits_is_never_sent(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(hang=True))
    rows = limited(workspace, receiver.url(), 2, 1)
    submit(rows, [engine])
    wait_until(lambda: Execution.objects.filter(state="RETRYING").count() == 1)
    waiting = Execution.objects.get(state="RETRYING")
    assert services.cancel_executions(workspace=workspace, ids=[waiting.id]).done == [waiting.id]
    receiver.release()


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "3"])
def test_a_number_that_limits_nothing_is_refused(api: ApiClient, most: object) -> None:
    job = {"name": "a", "target": {"url": "https://example.com/"}, "limits": {"max_concurrency": most}}
    response = api.post("/v1/job-definitions", job)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/limits/max_concurrency"
    assert api.post("/v1/job-definitions", job | {"limits": {"max_concurrency": 3}}).status_code == 201
