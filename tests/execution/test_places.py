"""In-flight limits of one worker, by host and by job: a slow receiver leaves places to others, and nothing is lost."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chronos_site.infra.clock import database_now
from chronos_site.stack.receiver import Answer, Received
from chronos_site.tenancy.models import Workspace
from execution import transitions
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.loops.retry import queue_due_retries
from execution.models import Execution
from tests.broker import take_queued_ids
from tests.clients import ProgrammableReceiver
from tests.making import make_executions, make_job, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

PLACES = 60


@pytest.fixture
def small_engine(transactional_db: None, settings: Any) -> Iterator[Engine]:
    settings.CHRONOS_MAX_IN_FLIGHT = PLACES
    engine = build_engine(name="small")
    engine.start()
    yield engine
    engine.begin_stop()
    engine.stop(1)


@pytest.fixture
def other_receiver() -> Iterator[ProgrammableReceiver]:
    with ProgrammableReceiver() as running:
        yield running


def submit(engine: Engine, rows: Sequence[Execution]) -> None:
    engine.submit(transitions.queue_pending(ids=[row.id for row in rows]))


def stuck_sends(receiver: ProgrammableReceiver) -> list[Received]:
    return [request for request in receiver.requests if request.path == "/stuck"]


def test_a_host_that_does_not_answer_leaves_a_third_of_the_places_to_others(
    small_engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, other_receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(delay_s=30))
    stuck = make_executions(workspace, receiver.url("/stuck"), 3 * PLACES, due_at=database_now())
    for start in range(0, len(stuck), PLACES):
        submit(small_engine, stuck[start : start + PLACES])
    wait_until(lambda: Execution.objects.filter(state="RETRYING").count() > 2 * PLACES, timeout_s=5)
    wait_until(lambda: len(stuck_sends(receiver)) >= PLACES * 2 / 3, timeout_s=5)
    others = make_executions(workspace, other_receiver.url("/quick"), 12, due_at=database_now())
    for start in range(0, len(others), 4):
        submit(small_engine, others[start : start + 4])
    ids = [row.id for row in others]
    wait_until(lambda: set(states_of(ids).values()) == {"SUCCEEDED"}, timeout_s=5, told=lambda: str(states_of(ids)))
    assert len(stuck_sends(receiver)) == PLACES * 2 / 3
    receiver.release()


def test_what_finds_no_place_waits_as_a_retry_at_no_charge_and_is_sent_once(
    small_engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(delay_s=0.5))
    rows = make_executions(workspace, receiver.url("/slow"), 3 * PLACES, due_at=database_now())
    ids = [row.id for row in rows]
    for start in range(0, len(rows), PLACES):
        submit(small_engine, rows[start : start + PLACES])
    wait_until(lambda: Execution.objects.filter(state="RETRYING").exists(), timeout_s=5)
    waiting = Execution.objects.filter(state="RETRYING").first()
    assert waiting is not None
    assert (waiting.state_reason, waiting.attempt, waiting.started_at) == ("flow_in_flight", 0, None)

    def turn() -> bool:
        queue_due_retries()
        small_engine.submit(take_queued_ids())
        return set(states_of(ids).values()) == {"SUCCEEDED"}

    wait_until(turn, timeout_s=40, step_s=0.2, told=lambda: str(states_of(ids)))
    assert sorted(request.headers["x-attempt-number"] for request in receiver.requests) == ["1"] * len(rows)


def test_a_slow_job_leaves_places_to_other_jobs_of_the_same_host(
    small_engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(delay_s=30), path="/stuck")
    slow, quick = make_job(workspace, receiver.url("/stuck")), make_job(workspace, receiver.url("/quick"))
    stuck = make_executions(workspace, receiver.url("/stuck"), 2 * PLACES, due_at=database_now(), job=slow)
    for start in range(0, len(stuck), PLACES):
        submit(small_engine, stuck[start : start + PLACES])
    wait_until(lambda: Execution.objects.filter(state="RETRYING").count() > PLACES, timeout_s=5)
    wait_until(lambda: len(stuck_sends(receiver)) >= PLACES / 2, timeout_s=5)
    rows = make_executions(workspace, receiver.url("/quick"), 2, due_at=database_now(), job=quick)
    submit(small_engine, rows)
    ids = [row.id for row in rows]
    wait_until(lambda: set(states_of(ids).values()) == {"SUCCEEDED"}, timeout_s=5, told=lambda: str(states_of(ids)))
    assert len(stuck_sends(receiver)) == PLACES / 2
    receiver.release()
