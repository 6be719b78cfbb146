"""The circuit breaker of a destination: one for all workers, one probe at a time, at no charge to what waits."""

import io
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from django.core.management import call_command

from chronos_site.infra.clock import database_now
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import services, transitions
from execution.dispatch import breaker, fence
from execution.dispatch.breaker import BreakerState, read_breakers
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.models import Execution
from tests.clients import ProgrammableReceiver
from tests.making import make_executions, make_job, states_of
from tests.processes import wait_until
from tests.proxy import Proxy

pytestmark = pytest.mark.django_db(transaction=True)

FAILURES = 3


@pytest.fixture(autouse=True)
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.CHRONOS_BREAKER_FAILURES = FAILURES
    settings.CHRONOS_BREAKER_PAUSE_S = 1.0
    settings.CHRONOS_BREAKER_LONGEST_PAUSE_S = 60.0
    monkeypatch.setattr(breaker, "LOOK_S", 0.0)


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


def submit(rows: Sequence[Execution], engine: Engine) -> None:
    ids = [row.id for row in rows]
    Execution.objects.filter(id__in=ids, state="RETRYING").update(state="QUEUED", due_at=database_now())
    transitions.queue_pending(ids=ids)
    engine.submit(ids)


def settle(rows: Sequence[Execution]) -> None:
    ids = [row.id for row in rows]
    wait_until(lambda: not set(states_of(ids).values()) & {"QUEUED", "RUNNING"}, told=lambda: str(states_of(ids)))


def state_of(receiver: ProgrammableReceiver) -> BreakerState | None:
    found = {row.origin: row for row in read_breakers()}
    return found.get(receiver.url("").rstrip("/"))


def fail(workspace: Workspace, receiver: ProgrammableReceiver, engine: Engine, count: int = FAILURES) -> None:
    """So many failures in a row; they are dead letters at once."""
    receiver.answer(Answer(status=503))
    rows = make_executions(workspace, receiver.url(), count)
    submit(rows, engine)
    settle(rows)


def open_it(workspace: Workspace, receiver: ProgrammableReceiver, engine: Engine) -> None:
    fail(workspace, receiver, engine)
    wait_until(lambda: is_in(receiver, "open"))
    receiver.requests.clear()


def is_in(receiver: ProgrammableReceiver, state: str) -> bool:
    found = state_of(receiver)
    return found is not None and found.state == state


def test_failures_in_a_row_open_it_and_what_is_due_waits_at_no_charge_in_every_worker(
    engines: list[Engine], workspace: Workspace, receiver: ProgrammableReceiver, settings: Any
) -> None:
    settings.CHRONOS_BREAKER_PAUSE_S = 30.0
    open_it(workspace, receiver, engines[0])
    for engine in engines:
        rows = make_executions(workspace, receiver.url(), 4)
        submit(rows, engine)
        settle(rows)
        waiting = Execution.objects.filter(id__in=[row.id for row in rows])
        assert {(r.state, r.state_reason, r.attempt) for r in waiting} == {("RETRYING", breaker.REASON, 0)}
        assert all(r.due_at - database_now() > timedelta(seconds=20) for r in waiting)
    assert receiver.requests == []


def test_another_destination_is_not_touched_and_a_path_of_the_same_is(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    open_it(workspace, receiver, engine)
    same = make_executions(workspace, receiver.url("/other"), 1)
    with ProgrammableReceiver() as well:
        other = make_executions(workspace, well.url(), 2)
        submit(same + other, engine)
        settle(same + other)
    assert set(states_of([row.id for row in other]).values()) == {"SUCCEEDED"}
    assert set(states_of([row.id for row in same]).values()) == {"RETRYING"}


@pytest.mark.parametrize("alive", [200, 404, 410, 301])
def test_any_answer_that_is_not_worth_another_attempt_begins_the_count_anew(
    alive: int, engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    fail(workspace, receiver, engine, FAILURES - 1)
    wait_until(lambda: is_in(receiver, "closed"))
    receiver.answer(Answer(status=alive))
    rows = make_executions(workspace, receiver.url(), 1)
    submit(rows, engine)
    settle(rows)
    wait_until(lambda: state_of(receiver) is None)
    fail(workspace, receiver, engine, FAILURES - 1)
    wait_until(lambda: is_in(receiver, "closed"))


def test_timeouts_and_refused_connections_count(engine: Engine, workspace: Workspace) -> None:
    with ProgrammableReceiver() as gone:
        url = gone.url()
    rows = make_executions(workspace, url, FAILURES)
    submit(rows, engine)
    settle(rows)
    wait_until(lambda: [row.state for row in read_breakers()] == ["open"])


def test_half_open_admits_one_probe_across_two_workers_and_its_success_closes(
    engines: list[Engine], workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    open_it(workspace, receiver, engines[0])
    wait_until(lambda: is_in(receiver, "half_open"))
    receiver.answer(Answer(delay_s=1.0))
    sets = [make_executions(workspace, receiver.url(), 5) for _ in engines]
    for rows, engine in zip(sets, engines, strict=True):
        submit(rows, engine)
    rows = sets[0] + sets[1]
    wait_until(lambda: Execution.objects.filter(state="RETRYING").count() == 9)
    found = state_of(receiver)
    assert found is not None
    assert found.probing
    settle(rows)
    assert len(receiver.requests) == 1
    wait_until(lambda: state_of(receiver) is None)
    submit(rows, engines[1])
    settle(rows)
    assert set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"}
    assert {request.headers["x-attempt-number"] for request in receiver.requests} == {"1"}


def test_a_probe_that_fails_opens_it_for_longer(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    open_it(workspace, receiver, engine)
    wait_until(lambda: is_in(receiver, "half_open"))
    fail(workspace, receiver, engine, 1)
    wait_until(lambda: is_in(receiver, "open"))
    found = state_of(receiver)
    assert found is not None
    assert (found.pause_s, found.probing) == (2.0, False)


def test_a_probe_that_is_not_sent_after_all_makes_room_for_another(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    open_it(workspace, receiver, engine)
    wait_until(lambda: is_in(receiver, "half_open"))
    rows = make_executions(workspace, receiver.url(), 1, due_at=database_now() + timedelta(seconds=1))
    submit(rows, engine)
    wait_until(lambda: set(states_of([rows[0].id]).values()) == {"RUNNING"})
    services.cancel_executions(workspace=workspace, ids=[rows[0].id])
    settle(rows)
    found = state_of(receiver)
    assert found is not None
    wait_until(lambda: not any(row.probing for row in read_breakers()))
    receiver.answer(Answer())
    again = make_executions(workspace, receiver.url(), 1)
    submit(again, engine)
    settle(again)
    assert set(states_of([again[0].id]).values()) == {"SUCCEEDED"}


def test_a_probe_that_its_rate_puts_off_makes_room_for_another(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    job = make_job(workspace, receiver.url(), limits={"rate_limit": {"per_minute": 1}})
    receiver.answer(Answer(status=503))
    # The turn of this minute.
    submit(make_executions(workspace, receiver.url(), 1, job=job, limits=job.limits), engine)
    receiver.wait_for(1)
    open_it(workspace, receiver, engine)
    wait_until(lambda: is_in(receiver, "half_open"))
    limited = make_executions(workspace, receiver.url(), 1, job=job, limits=job.limits)
    submit(limited, engine)
    settle(limited)
    assert Execution.objects.get(id=limited[0].id).state_reason == "flow_rate_limit"
    receiver.answer(Answer())
    free = make_executions(workspace, receiver.url(), 1)
    submit(free, engine)
    settle(free)
    assert states_of([free[0].id]) == {free[0].id: "SUCCEEDED"}


def test_a_probe_whose_attempt_another_holds_makes_room_for_another(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    open_it(workspace, receiver, engine)
    wait_until(lambda: is_in(receiver, "half_open"))
    fenced, free = make_executions(workspace, receiver.url(), 2)
    redis_server.set(f"{fence.PREFIX}{fenced.id}:1", json.dumps({"claim": "another:1"}))
    submit([fenced], engine)
    wait_until(lambda: Execution.objects.get(id=fenced.id).attempt == 1)
    wait_until(lambda: not any(row.probing for row in read_breakers()), timeout_s=3)
    receiver.answer(Answer())
    submit([free], engine)
    wait_until(lambda: states_of([free.id]) == {free.id: "SUCCEEDED"})


def test_redis_away_every_breaker_is_closed(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, settings: Any
) -> None:
    settings.CHRONOS_BREAKER_PAUSE_S = 30.0
    open_it(workspace, receiver, engine)
    receiver.answer(Answer())
    parts = urlsplit(settings.REDIS_URL)
    with Proxy(str(parts.hostname), parts.port or 6379) as link:
        settings.REDIS_URL = link.through(settings.REDIS_URL)
        cut_off = build_engine(name="cut-off")
        cut_off.start()
        try:
            link.refuse()
            link.reset()
            rows = make_executions(workspace, receiver.url(), 3)
            submit(rows, cut_off)
            settle(rows)
            assert set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"}
        finally:
            cut_off.begin_stop()
            cut_off.stop(1)


def status() -> Any:
    """What `chronos status` tells a script; it ends with 1, for the test runs no beat."""
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("chronos", "status", "--json", stdout=out)
    return json.loads(out.getvalue())


def test_the_command_tells_which_destinations_are_in_trouble(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    assert status()["snapshot"]["breakers"] == []
    open_it(workspace, receiver, engine)
    found = status()
    [row] = found["snapshot"]["breakers"]
    assert (row["origin"], row["state"], row["failures"]) == (receiver.url("").rstrip("/"), "open", FAILURES)
    assert [finding["level"] for finding in found["findings"] if finding["check"] == "breakers"] == ["warn"]
    redis_server.delete(f"{breaker.PREFIX}{row['origin']}")
    assert read_breakers() == []
    assert not redis_server.exists(breaker.TROUBLED), "what nobody calls any more is forgotten"
