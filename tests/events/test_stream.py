"""What happened is told on the stream once it is committed, and never where it is rolled back."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import transaction
from django.utils import timezone
from psycopg import AsyncConnection
from pytest_django import Settings

from chronos_site.infra import redis as site_redis
from chronos_site.infra.clock import DatabaseClock, database_now
from chronos_site.infra.ids import new_id
from chronos_site.observability import events
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import dead_letters, services, transitions
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import conninfo
from execution.dispatch.source import claim_of
from execution.domain.events import EventType
from execution.domain.outcome import Claim, Postponed
from execution.models import Execution
from tests.clients import ProgrammableReceiver
from tests.events.reading import TYPES, VALIDATOR, told, types
from tests.making import make_executions, make_job, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

NOWHERE = "http://127.0.0.1:9/"


def queue(rows: Sequence[Execution]) -> list[UUID]:
    return transitions.queue_pending(ids=[row.id for row in rows])


def run_to_end(engine: Engine, row: Execution, state: str) -> None:
    engine.submit(queue([row]))
    wait_until(lambda: states_of([row.id])[row.id] == state, told=lambda: str(states_of([row.id])))


def on_engine(row: Execution, work: Any) -> None:
    """Run `work(db, claim)` on a connection as the engine's, with a claim on the row as it is now."""
    values = Execution.objects.filter(id=row.id).values().get()
    claim = claim_of({**values, "attempt": 0}, DatabaseClock(timezone.now()))

    async def run() -> None:
        async with await AsyncConnection.connect(conninfo(), autocommit=True) as db:
            await work(db, claim)

    asyncio.run(run())


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction, or a savepoint in one, that comes to nothing."""
    with suppress(Rollback), transaction.atomic():
        yield
        raise Rollback


class Rollback(Exception):  # noqa: N818 - not an error
    pass


def claim_it(row: Execution) -> None:
    on_engine(row, lambda db, _claim: transitions.claim_queued(db, ids=[row.id], worker_id=new_id()))


def test_the_schema_names_every_type_of_an_execution() -> None:
    assert {kind.value for kind in EventType} == {name for name in TYPES if name.startswith("execution.")}


def test_a_delivery_is_told_step_by_step(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    job = make_job(workspace, receiver.url())
    [row] = make_executions(workspace, receiver.url(), job=job, schedule_id=new_id())
    run_to_end(engine, row, "SUCCEEDED")
    wait_until(lambda: types(redis_server, row.id)[-1] == "succeeded")
    assert types(redis_server, row.id) == ["created", "queued", "claimed", "succeeded"]
    found = told(redis_server, execution=str(row.id))
    row.refresh_from_db()
    for event in found:
        assert event["workspace"] == str(workspace.id)
        assert event["job_definition"] == str(job.id)
        assert event["schedule"] == str(row.schedule_id)
        assert datetime.fromisoformat(event["scheduled_for"]) == row.scheduled_for
        assert datetime.fromisoformat(event["due_at"]) == row.due_at
    assert [event["attempt"] for event in found] == [0, 0, 0, 1]
    assert [event["state"] for event in found] == ["PENDING", "QUEUED", "RUNNING", "SUCCEEDED"]
    assert (found[-1]["code"], found[-1]["reason"]) == ("http_200", None)
    assert datetime.fromisoformat(found[-1]["at"]) == row.finished_at
    assert len({event["id"] for event in found}) == 4


def test_a_retry_tells_when_the_next_attempt_is_due_and_a_failure_why(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    receiver.answer(Answer(status=503))
    retry = {"max_attempts": 2, "initial_backoff_s": 60, "jitter": "none"}
    again, last = make_executions(workspace, receiver.url(), 2, retry=retry)
    Execution.objects.filter(id=last.id).update(retry={"max_attempts": 1})
    run_to_end(engine, again, "RETRYING")
    run_to_end(engine, last, "FAILED")
    wait_until(lambda: types(redis_server, last.id)[-1] == "failed")
    scheduled = told(redis_server, execution=str(again.id))[-1]
    again.refresh_from_db()
    assert (scheduled["type"], scheduled["code"]) == ("execution.retry_scheduled", "http_503")
    assert datetime.fromisoformat(scheduled["due_at"]) == again.due_at
    failed = told(redis_server, execution=str(last.id))[-1]
    assert (failed["attempt"], failed["code"], failed["reason"]) == (1, "http_503", "attempts_exhausted")
    made = dead_letters.replay_execution(workspace=workspace, execution_id=last.id)
    assert types(redis_server, made.id) == ["created"]


MOVES: dict[str, tuple[str, Any, str, str | None]] = {
    "publish failed": ("QUEUED", lambda row: transitions.unqueue(ids=[row.id]), "unqueued", None),
    "retry due": ("RETRYING", lambda row: transitions.queue_retrying(horizon_s=1, most=9), "queued", None),
    "retry unpublished": ("QUEUED", lambda row: transitions.unqueue_retrying(ids=[row.id]), "unqueued", None),
    "keyed": ("PENDING", lambda row: transitions.queue_keyed(ids=[row.id]), "queued", None),
    "cancelled": (
        "RETRYING",
        lambda row: services.cancel_executions(workspace=row.workspace, ids=[row.id]),
        "cancelled",
        "cancelled",
    ),
    "skipped": (
        "PENDING",
        lambda row: services.skip_occurrence(execution_id=row.id, reason="overlap"),
        "skipped",
        "overlap",
    ),
    "expired": ("PENDING", lambda row: transitions.expire_pending(ids=[row.id]), "expired", "start_deadline"),
    "claim lost": (
        "RUNNING",
        lambda row: transitions.recover_lost_claims(most=9, unknown_cap=3),
        "retry_scheduled",
        "claim_lost",
    ),
    "withdrawn": (
        "PENDING",
        lambda row: services.withdraw_occurrences(schedule_id=row.schedule_id, after=None),
        "withdrawn",
        None,
    ),
    "claimed, taken back before the send": (
        "RUNNING",
        lambda row: on_engine(row, lambda db, claim: transitions.release_running(db, claims=[claim])),
        "released",
        None,
    ),
    "unpublished by a worker": (
        "QUEUED",
        lambda row: on_engine(row, lambda db, claim: transitions.unqueue_unpublished(db, ids=[claim.id])),
        "unqueued",
        None,
    ),
    "postponed": ("RUNNING", lambda row: on_engine(row, _postpone), "postponed", "flow_rate_limit"),
    "cancelled before the send": (
        "RUNNING",
        lambda row: on_engine(row, lambda db, claim: transitions.cancel_running(db, claims=[claim])),
        "cancelled",
        "cancelled",
    ),
    "switched off before the send": (
        "RUNNING",
        lambda row: on_engine(row, lambda db, claim: transitions.hold_running(db, claims=[claim], switches={})),
        "parked",
        "dispatch_switch",
    ),
}


async def _postpone(db: AsyncConnection[Any], claim: Claim) -> None:
    word = Postponed(timezone.now() + timedelta(seconds=5), "flow_rate_limit")
    await transitions.postpone_running(db, claims=[claim], postponed={claim.id: word})


@pytest.mark.parametrize("name", MOVES)
def test_every_other_move_is_told_with_its_reason(name: str, workspace: Workspace, redis_server: redis.Redis) -> None:
    state, move, kind, reason = MOVES[name]
    [row] = make_executions(workspace, NOWHERE, schedule_id=new_id())
    past = database_now() - timedelta(seconds=60)
    Execution.objects.filter(id=row.id).update(state=state, claim_seq=1, start_deadline=past, lease_until=past)
    if name == "withdrawn":
        Execution.objects.filter(id=row.id).update(trigger="schedule")
    if name == "retry due":
        Execution.objects.filter(id=row.id).update(due_at=past)
    move(row)
    assert types(redis_server, row.id) == ["created", kind]
    assert told(redis_server, execution=str(row.id))[-1]["reason"] == reason


def test_a_job_that_is_paused_between_claim_and_send_is_told(workspace: Workspace, redis_server: redis.Redis) -> None:
    job = make_job(workspace, NOWHERE)
    [row] = make_executions(workspace, NOWHERE, job=job)
    queue([row])
    claim_it(row)
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    on_engine(row, lambda db, claim: transitions.park_running(db, claims=[claim]))
    assert types(redis_server, row.id)[-1] == "parked"
    assert told(redis_server, execution=str(row.id))[-1]["state"] == "PENDING"


def test_what_is_rolled_back_is_not_told_nor_what_a_savepoint_takes_back(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, NOWHERE, 4)
    with rolled_back():
        queue(rows[:1])
        make_executions(workspace, NOWHERE)
    with transaction.atomic():
        queue(rows[1:2])
        with rolled_back():
            queue(rows[2:3])
        queue(rows[3:])
        assert all(types(redis_server, row.id) == ["created"] for row in rows), "told before the commit"
    assert [types(redis_server, row.id) for row in rows] == [
        ["created"],
        ["created", "queued"],
        ["created"],
        ["created", "queued"],
    ]
    assert len(told(redis_server, type="execution.created")) == 4


def test_a_transaction_is_told_with_one_call(workspace: Workspace, redis_server: redis.Redis) -> None:
    rows = make_executions(workspace, NOWHERE, 50)
    events.flush(5)
    before = script_calls(redis_server)
    with transaction.atomic():
        for row in rows:
            queue([row])
    assert len(told(redis_server, type="execution.queued")) == 50
    assert script_calls(redis_server) - before == 1


def script_calls(server: redis.Redis) -> int:
    stats: Any = server.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


def test_while_redis_is_away_deliveries_go_on_and_what_is_not_told_is_counted(
    engine: Engine,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    redis_server: redis.Redis,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    events.flush(5)
    events.close()
    url, dropped, written = settings.REDIS_URL, events.COUNTS.dropped, events.COUNTS.written
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    site_redis.client.cache_clear()
    try:
        [row] = make_executions(workspace, receiver.url())
        run_to_end(engine, row, "SUCCEEDED")
        wait_until(lambda: events.COUNTS.dropped > dropped)
        assert "events_dropped" in caplog.messages
    finally:
        settings.REDIS_URL = url
        site_redis.client().close()
        site_redis.client.cache_clear()
        events.close()
    [row] = make_executions(workspace, receiver.url())
    wait_until(lambda: types(redis_server, row.id) == ["created"])
    assert events.COUNTS.written > written


def test_the_buffer_is_bounded_and_keeps_the_newest(settings: Settings, redis_server: redis.Redis) -> None:
    """The writer's thread is held by a Redis that does not answer; nobody who tells is."""
    writer, before = events.Writer(), events.COUNTS.dropped
    writer._thread = object()  # type: ignore[assignment]
    writer.add([f'"n":{n}}}' for n in range(events.CAPACITY)])
    writer.add(['"n":-1}'] * 10)
    assert events.COUNTS.dropped - before == 10
    assert len(writer._waiting) == events.CAPACITY
    assert writer._waiting[-1] == '"n":-1}'
    assert writer._waiting[0] == '"n":10}'


def test_the_stream_is_capped_and_can_be_watched(
    workspace: Workspace, redis_server: redis.Redis, settings: Settings
) -> None:
    assert (events.look().length, events.look().oldest_at, events.look().groups) == (0, None, [])
    settings.CHRONOS_EVENTS_MAX = 1000
    make_executions(workspace, NOWHERE, 3000)
    events.flush(5)
    redis_server.xgroup_create(events.STREAM, "slow", id="0")
    state = events.look()
    # Redis cuts off whole nodes of a hundred entries.
    assert 1000 <= state.length < 1500
    assert state.oldest_at is not None
    assert abs((timezone.now() - state.oldest_at).total_seconds()) < 120
    [group] = state.groups
    assert (group.name, group.consumers, group.pending) == ("slow", 0, 0)
    assert group.lag is None or group.lag >= 1000


def test_the_schema_refuses_what_it_does_not_describe() -> None:
    assert list(VALIDATOR.iter_errors({"type": "execution.succeeded"}))
