"""Faults that a review found, each held by a test of its kind."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import pytest
import redis
from django.db import connection, transaction
from django.utils import timezone
from psycopg import AsyncConnection

from chronos_site.infra.clock import DatabaseClock, database_now
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import buckets, fanout, services, transitions
from execution.dispatch import heartbeat, resolver
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine, conninfo
from execution.dispatch.source import claim_of
from execution.models import Bucket, DeadLetter, Execution
from scheduling import services as scheduling
from scheduling.models import Schedule
from tests.clients import ApiClient, ProgrammableReceiver
from tests.making import age, make_executions, make_job, states_of
from tests.processes import wait_until
from tests.threads import in_thread, lock_waiters

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"


def queue(rows: list[Execution]) -> list[UUID]:
    return transitions.queue_pending(ids=[row.id for row in rows])


def sql(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text)


@pytest.fixture
def fresh_pool() -> Iterator[None]:
    """The stale connections that a test leaves in Django's pool go with it."""
    yield
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL only.


def cut_other_backends() -> None:
    sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


def test_backends_that_are_cut_while_idle_lose_no_message(
    fresh_pool: None, engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = make_executions(workspace, receiver.url(), 60)
    ids = queue(rows)
    for start in range(0, 60, 10):
        cut_other_backends()
        engine.submit(ids[start : start + 10])
    wait_until(lambda: set(states_of(ids).values()) == {"SUCCEEDED"}, timeout_s=20)
    assert len(receiver.requests) == 60


def test_a_server_that_is_read_only_for_a_while_costs_no_result(
    fresh_pool: None, engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(delay_s=0.5))
    rows = make_executions(workspace, receiver.url(), 5)
    engine.submit(queue(rows))
    wait_until(lambda: len(receiver.requests) == 5)
    name = connection.settings_dict["NAME"]
    sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        cut_other_backends()
        wait_until(lambda: engine._results._waiting == [] and not engine._sends, timeout_s=5)
        assert set(states_of([row.id for row in rows]).values()) == {"RUNNING"}
    finally:
        sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        cut_other_backends()
    wait_until(lambda: set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"}, timeout_s=15)


def test_rows_that_could_not_be_published_never_end_in_a_closed_bucket(
    workspace: Workspace, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_executions(workspace, URL, 3)
    age(rows, by=timedelta(minutes=20))
    bucket_id = Execution.objects.values_list("bucket_id", flat=True)[0]
    assert bucket_id is not None
    Execution.objects.update(bucket_id=bucket_id)

    def close_and_fail(ids: list[UUID]) -> list[UUID]:
        """The publish hangs; meanwhile maintenance finds the bucket empty."""
        assert buckets.close_old_buckets(now_s=database_now().timestamp()) >= 1
        return ids

    monkeypatch.setattr(fanout.publish, "publish_dispatch", close_and_fail)
    fanout.fan_out(bucket_id=bucket_id)
    assert set(states_of([row.id for row in rows]).values()) == {"PENDING"}
    assert Bucket.objects.get(id=bucket_id).state == "OPEN"


def test_deleting_a_paused_job_leaves_nothing_that_waits_for_ever(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    job = make_job(workspace, receiver.url())
    soon = database_now() + timedelta(seconds=1.5)
    running, queued, pending, parked = make_executions(workspace, receiver.url(), 4, job=job, due_at=soon)
    engine.submit(queue([running]))
    queue([queued])
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    Execution.objects.filter(id=parked.id).update(bucket_id=None, park_reason="job_paused")
    services.delete_job_definition(workspace=workspace, job_id=job.id)
    assert set(states_of([queued.id, pending.id, parked.id]).values()) == {"CANCELLED"}
    wait_until(lambda: states_of([running.id]) == {running.id: "SUCCEEDED"})


def test_a_job_that_is_being_deleted_takes_no_new_execution(workspace: Workspace) -> None:
    job = make_job(workspace, URL)
    outcome: list[object] = []

    def run() -> None:
        try:
            services.run_job_definition(
                workspace=workspace, job=job, payload=None, traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-00"
            )
        except services.JobGone as error:
            outcome.append(error)

    with transaction.atomic():
        services.delete_job_definition(workspace=workspace, job_id=job.id)
        thread = in_thread(run)
        wait_until(lambda: lock_waiters() == 1)
    thread.join()
    assert len(outcome) == 1
    assert not Execution.objects.exists()


def test_a_resume_does_not_overwrite_a_time_that_is_being_changed(workspace: Workspace) -> None:
    job = make_job(workspace, URL)
    [(schedule, _)] = scheduling.create_schedules(
        workspace=workspace,
        new=[scheduling.NewSchedule(delay_s=1, job=job)],
        traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-00",
    )
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    Execution.objects.update(bucket_id=None, park_reason="job_paused")
    job.has_parked = True
    job.paused_at = timezone.now()
    job.save()
    later = database_now() + timedelta(hours=1)
    with transaction.atomic():
        scheduling.move_schedule(workspace=workspace, schedule_id=schedule.id, run_at=later, expected_version=None)
        thread = in_thread(lambda: services.resume_job_definition(workspace=workspace, job_id=job.id))
        wait_until(lambda: lock_waiters() == 1)
    thread.join()
    row = Execution.objects.get(schedule_id=schedule.id)
    assert row.due_at == row.scheduled_for == later
    assert row.bucket_id is not None


def test_a_header_that_is_no_text_does_not_cost_the_success(engine: Engine, workspace: Workspace) -> None:
    with _raw_server(b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9\r\nContent-Length: 2\r\n\r\nok") as port:
        [row] = make_executions(workspace, f"http://127.0.0.1:{port}/")
        engine.submit(queue([row]))
        wait_until(lambda: states_of([row.id]) == {row.id: "SUCCEEDED"})


@contextmanager
def _raw_server(answer: bytes) -> Iterator[int]:
    """Answers one connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(65536)
                link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


def test_a_name_without_an_address_is_tried_again_and_is_no_refusal(engine: Engine, workspace: Workspace) -> None:
    [row] = make_executions(workspace, "http://no-such-name.invalid/", retry={"max_attempts": 2})
    engine.submit(queue([row]))
    wait_until(lambda: states_of([row.id]) == {row.id: "RETRYING"})
    row.refresh_from_db()
    assert row.last_error == "dns"
    assert not DeadLetter.objects.exists()


def test_a_name_server_that_hangs_holds_up_its_own_deliveries_only(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    look_up = resolver._addresses

    def slow(host: str) -> list[str]:
        if host == "slow.invalid":
            hangs.wait(10)
        return look_up(host)

    monkeypatch.setattr(resolver, "_addresses", slow)
    stuck = make_executions(workspace, "http://slow.invalid/", 3)
    others = make_executions(workspace, receiver.url(), 20)
    begun = time.monotonic()
    engine.submit(queue(stuck + others))
    wait_until(lambda: set(states_of([row.id for row in others]).values()) == {"SUCCEEDED"})
    assert time.monotonic() - begun < 3
    assert set(states_of([row.id for row in stuck]).values()) == {"RUNNING"}
    hangs.set()


def test_a_hanging_receiver_leaves_the_other_slots_to_others(
    workspace: Workspace, receiver: ProgrammableReceiver, settings: object
) -> None:
    settings.CHRONOS_MAX_IN_FLIGHT = 10  # type: ignore[attr-defined]
    receiver.answer(Answer(hang=True), path="/hang")
    small = build_engine(name="small")
    small.start()
    try:
        hanging = make_executions(workspace, receiver.url("/hang"), 1, timeout_s=8.0)
        others = make_executions(workspace, receiver.url("/ok"), 30)
        small.submit(queue(hanging))
        wait_until(lambda: len(receiver.requests) == 1)
        begun = time.monotonic()
        small.submit(queue(others))
        wait_until(lambda: set(states_of([row.id for row in others]).values()) == {"SUCCEEDED"})
        assert time.monotonic() - begun < 4
    finally:
        receiver.release()
        small.stop(1)


def test_a_key_of_the_fence_that_nobody_can_read_holds_back_nothing(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, receiver.url(), 5)
    redis_server.set(f"chronos:idem:{rows[0].id}:1", "not ours")
    engine.submit(queue(rows))
    wait_until(lambda: set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"})


def test_deleting_a_job_and_cancelling_its_schedules_at_once_do_not_deadlock(
    api: ApiClient, workspace: Workspace
) -> None:
    failures: list[BaseException] = []
    for _ in range(5):
        job = make_job(workspace, URL)
        made = scheduling.create_schedules(
            workspace=workspace,
            new=[scheduling.NewSchedule(delay_s=600, job=job) for _ in range(30)],
            traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-00",
        )
        start = threading.Barrier(2)

        def delete(job_id=job.id, start=start) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
            start.wait()
            try:
                scheduling.delete_job_definition(workspace=workspace, job_id=job_id, cascade=True)
            except BaseException as error:
                failures.append(error)

        def cancel(ids=tuple(s.id for s, _ in made), start=start) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
            start.wait()
            try:
                for schedule_id in ids:
                    scheduling.cancel_schedule(workspace=workspace, schedule_id=schedule_id)
            except BaseException as error:
                failures.append(error)

        threads = [in_thread(delete), in_thread(cancel)]
        for thread in threads:
            thread.join()
    assert failures == []
    assert not Schedule.objects.filter(state="ACTIVE").exists()


def test_what_could_not_pass_the_gate_goes_back_as_soon_as_the_database_answers(
    fresh_pool: None,
    engine: Engine,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that fell silent while it waited at the gate knows that it has not sent."""
    rows = make_executions(workspace, receiver.url(), 20, due_at=database_now() + timedelta(seconds=1))
    engine.submit(queue(rows))
    monkeypatch.setattr(heartbeat, "SILENT_S", -1.0)
    wait_until(lambda: set(states_of([row.id for row in rows]).values()) == {"QUEUED"}, timeout_s=10)
    assert receiver.requests == []
    monkeypatch.undo()
    assert set(Execution.objects.values_list("attempt", "begun_seq", "started_at")) == {(0, 0, None)}
    engine.submit([row.id for row in rows])
    wait_until(lambda: set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"})
    assert {request.headers["x-attempt-number"] for request in receiver.requests} == {"1"}


def test_giving_back_a_claim_whose_begun_attempt_was_never_sent_charges_nothing(workspace: Workspace) -> None:
    [row] = make_executions(workspace, URL)
    Execution.objects.filter(id=row.id).update(
        state="RUNNING", claim_seq=4, begun_seq=4, attempt=1, started_at=timezone.now(), lease_until=timezone.now()
    )
    claim = claim_of(
        {**Execution.objects.filter(id=row.id).values().get(), "attempt": 0}, DatabaseClock(timezone.now())
    )

    async def give_back() -> list[UUID]:
        async with await AsyncConnection.connect(conninfo(), autocommit=True) as db:
            return await transitions.release_running(db, claims=[claim])

    assert asyncio.run(give_back()) == [row.id]
    row.refresh_from_db()
    assert (row.state, row.attempt, row.begun_seq, row.started_at) == ("QUEUED", 0, 0, None)
