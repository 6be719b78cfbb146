"""The rate limit of a job definition, kept across workers, at no charge to what waits."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import redis

from chronos_site.infra.clock import database_now
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import services, transitions
from execution.dispatch import rate
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.loops.retry import queue_due_retries
from execution.models import Execution, JobDefinition
from tests.broker import take_queued_ids
from tests.clients import ApiClient, ProgrammableReceiver
from tests.making import make_executions, make_job, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TARGET = {"url": "https://example.com/hook"}


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


def limited(workspace: Workspace, url: str, count: int, limit: dict[str, Any], **fields: Any) -> list[Execution]:
    job = make_job(workspace, url, limits={"rate_limit": limit})
    return make_executions(workspace, url, count, job=job, limits=job.limits, **fields)


def submit(rows: Sequence[Execution], engines: Sequence[Engine]) -> None:
    ids = transitions.queue_pending(ids=[row.id for row in rows])
    for index, engine in enumerate(engines):
        engine.submit(ids[index :: len(engines)])


def deliver(rows: Sequence[Execution], engines: Sequence[Engine], timeout_s: float = 20) -> None:
    """The retry loop ticks and the engines take what it queues, until all is delivered."""
    ids = [row.id for row in rows]

    def turn() -> bool:
        queue_due_retries()
        queued = take_queued_ids()
        for index, engine in enumerate(engines):
            engine.submit(queued[index :: len(engines)])
        return set(states_of(ids).values()) == {"SUCCEEDED"}

    wait_until(turn, timeout_s=timeout_s, step_s=0.2, told=lambda: str(states_of(ids)))


def wait_for_none_running(rows: Sequence[Execution]) -> None:
    ids = [row.id for row in rows]
    wait_until(lambda: not set(states_of(ids).values()) & {"QUEUED", "RUNNING"}, told=lambda: str(states_of(ids)))


def test_two_workers_together_keep_the_rate_and_charge_no_attempt_to_what_waits(
    engines: list[Engine], workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = limited(workspace, receiver.url(), 20, {"per_s": 5})
    submit(rows, engines)
    deliver(rows, engines)
    times = sorted(request.arrived for request in receiver.requests)
    assert len(times) == 20
    assert {request.headers["x-attempt-number"] for request in receiver.requests} == {"1"}
    assert times[-1] - times[0] >= timedelta(seconds=19 / 5 - 0.15)
    for first, sixth in zip(times, times[6:], strict=False):
        assert sixth - first >= timedelta(seconds=1), "six intervals of 0.2 s, less what two workers are late"
    assert set(Execution.objects.values_list("attempt", "flow_wait_s")) == {(1, 0.0)}


def test_a_burst_goes_at_once_and_the_rest_at_the_rate(
    engines: list[Engine], workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = limited(workspace, receiver.url(), 9, {"per_minute": 60, "burst": 6})
    submit(rows, engines)
    receiver.wait_for(6)
    wait_for_none_running(rows)
    assert len(receiver.requests) == 6
    waiting = list(Execution.objects.filter(state="RETRYING").order_by("due_at"))
    assert {(row.state_reason, row.attempt, row.started_at) for row in waiting} == {("flow_rate_limit", 0, None)}
    gaps = [(b.due_at - a.due_at).total_seconds() for a, b in pairwise(waiting)]
    assert gaps == pytest.approx([1.0, 1.0], abs=0.05)


def test_jobs_are_limited_each_by_itself_and_others_not_at_all(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    slow = limited(workspace, receiver.url("/slow"), 4, {"per_minute": 1})
    other = limited(workspace, receiver.url("/other"), 4, {"per_minute": 1})
    free = make_executions(workspace, receiver.url("/free"), 30)
    submit(slow + other + free, [engine])
    wait_for_none_running(slow + other + free)
    counts = [len(receiver.arrived_at(path)) for path in ("/slow", "/other", "/free")]
    assert counts == [1, 1, 30]


def test_a_whole_wave_is_asked_for_in_one_round_trip(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    due = database_now() + timedelta(seconds=1)
    rows = [
        row
        for index in range(50)
        for row in limited(workspace, receiver.url(f"/{index}"), 4, {"per_s": 1000, "burst": 100}, due_at=due)
    ]
    before = evals(redis_server)
    submit(rows, [engine])
    deliver(rows, [engine])
    # How many waves there are is the machine's to say: a busy one makes more of them.
    assert 1 <= evals(redis_server) - before <= 25, "some waves, and neither 200 sends nor 50 jobs"


def evals(server: redis.Redis) -> int:
    stats = server.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("eval", "evalsha"))


def test_a_turn_that_was_kept_costs_no_second_one_and_one_that_was_missed_is_worth_nothing(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = limited(workspace, receiver.url(), 3, {"per_minute": 60})
    submit(rows, [engine])
    receiver.wait_for(1)
    wait_for_none_running(rows)
    # As after a standstill: both are long past their turn, and would go together.
    Execution.objects.filter(state="RETRYING").update(due_at=database_now() - timedelta(seconds=30))
    queue_due_retries()
    engine.submit(list(Execution.objects.filter(state="QUEUED").values_list("id", flat=True)))
    wait_for_none_running(rows)
    assert len(receiver.requests) <= 2
    deliver(rows, [engine])
    _, second, third = sorted(request.arrived for request in receiver.requests)
    assert third - second >= timedelta(seconds=0.9)


def test_what_is_too_far_ahead_is_told_to_ask_again_and_keeps_no_turn(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    rows = limited(workspace, receiver.url(), 10, {"per_minute": 1})
    submit(rows, [engine])
    wait_for_none_running(rows)
    reasons = list(Execution.objects.filter(state="RETRYING").values_list("state_reason", flat=True))
    assert sorted(reasons) == [rate.RESERVED] * 5 + [rate.BEYOND] * 4
    far = [row.due_at for row in Execution.objects.filter(state_reason=rate.BEYOND)]
    assert all(timedelta(seconds=140) < due - database_now() <= timedelta(seconds=300) for due in far)
    [key] = redis_server.scan_iter("chronos:rl:*:*")
    assert 300_000 < int(redis_server.pttl(key)) < 365_000


def test_an_edited_limit_does_not_wait_for_the_turns_of_the_old_one(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = limited(workspace, receiver.url(), 5, {"per_minute": 1})
    submit(rows, [engine])
    wait_for_none_running(rows)
    job = JobDefinition.objects.get()
    limits = {"rate_limit": {"per_s": 100}}
    services.update_job_definition(workspace=workspace, job_id=job.id, expected_version=None, limits=limits)
    later = make_executions(workspace, receiver.url("/later"), 3, job=job, limits=limits)
    submit(later, [engine])
    deliver(later, [engine], timeout_s=5)


def test_the_wait_for_a_turn_between_attempts_does_not_count_as_elapsed(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(status=503), Answer(status=503), Answer())
    policy = {"max_attempts": 3, "initial_backoff_s": 0.1, "jitter": "none", "multiplier": 1, "max_elapsed_s": 1.0}
    rows = limited(workspace, receiver.url(), 1, {"per_minute": 40}, retry=policy)
    submit(rows, [engine])
    deliver(rows, [engine])
    [row] = Execution.objects.all()
    assert row.attempt == 3
    assert row.flow_wait_s > 2
    assert [request.headers["x-attempt-number"] for request in receiver.requests] == ["1", "2", "3"]


def test_redis_away_sends_go_on_and_are_counted(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    rows = limited(workspace, receiver.url(), 4, {"per_minute": 1})
    redis_server.config_set("min-replicas-to-write", 1)
    try:
        submit(rows, [engine])
        receiver.wait_for(4)
    finally:
        redis_server.config_set("min-replicas-to-write", 0)
    wait_until(lambda: set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"})
    assert engine._gate._flow.unlimited == 4


def test_what_is_cancelled_while_it_waits_for_its_turn_is_never_sent(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = limited(workspace, receiver.url(), 2, {"per_s": 1})
    submit(rows, [engine])
    receiver.wait_for(1)
    wait_for_none_running(rows)
    waiting = Execution.objects.get(state="RETRYING")
    assert services.cancel_executions(workspace=workspace, ids=[waiting.id]).done == [waiting.id]
    assert queue_due_retries() == 0


def test_limits_are_part_of_a_job_definition_and_of_the_snapshot(api: ApiClient) -> None:
    limits = {"rate_limit": {"per_minute": 30.0, "burst": 3}}
    job = api.post("/v1/job-definitions", {"name": "a", "target": TARGET, "limits": limits}).json()
    assert job["limits"] == limits
    path = f"/v1/job-definitions/{job['id']}"
    run = api.post(f"{path}/run", {}).json()
    assert run["limits"] == limits
    edited = api.patch(path, {"limits": {"rate_limit": {"per_minute": 60, "burst": None}}}).json()
    assert (edited["limits"], edited["version"]) == ({"rate_limit": {"per_minute": 60.0}}, 2)
    assert api.patch(path, {"limits": {"rate_limit": None}}).json()["limits"] == {}
    assert api.get(f"/v1/executions/{run['id']}").json()["limits"] == limits
    schedule = api.post("/v1/schedules", {"job_definition": job["id"], "delay_s": 60})
    assert schedule.status_code == 201


@pytest.mark.parametrize(
    ("limits", "pointer"),
    [
        ({"rate_limit": {"per_s": 0}}, "/limits/rate_limit/per_s"),
        ({"rate_limit": {"per_s": 1, "per_minute": 1}}, "/limits/rate_limit"),
        ({"rate_limit": {}}, "/limits/rate_limit"),
        ({"rate_limit": {"per_s": 1, "burst": 0}}, "/limits/rate_limit/burst"),
        ({"rate_limit": {"per_hour": 1}}, "/limits/rate_limit/per_hour"),
        ({"speed": 1}, "/limits/speed"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused_where_they_stand(
    api: ApiClient, limits: dict[str, Any], pointer: str
) -> None:
    response = api.post("/v1/job-definitions", {"name": "a", "target": TARGET, "limits": limits})
    assert response.status_code == 422
    assert any(error["pointer"].startswith(pointer) for error in response.json()["errors"]), response.json()
