"""Overlap: one execution under way for each concurrency key, by constraint, and nothing passed over in silence."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction

from chronos_site.infra.clock import database_now
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import fanout, services, transitions
from execution.dispatch.engine import Engine
from execution.loops import monitor
from execution.models import Bucket, Execution
from tests.broker import take_queued_ids
from tests.clients import ProgrammableReceiver
from tests.making import make_executions, states_of
from tests.processes import wait_until
from tests.threads import closing, in_thread

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"


def make(workspace: Workspace, policy: str, count: int = 1, url: str = URL, key: str = "nightly") -> list[Execution]:
    return in_one_bucket(make_executions(workspace, url, count, concurrency_key=key, overlap=policy))


def in_one_bucket(rows: list[Execution]) -> list[Execution]:
    """So that one fan-out sees them, in the order of their making."""
    for number, row in enumerate(rows):
        row.due_at += timedelta(microseconds=number)
        row.bucket_id = rows[0].bucket_id
        row.save(update_fields=["due_at", "bucket_id"])
    return rows


def fan_out() -> None:
    for bucket_id in Bucket.objects.values_list("id", flat=True):
        fanout.fan_out(bucket_id=bucket_id)


def reasons(ids: list[UUID]) -> list[tuple[str, str]]:
    rows = {row.id: row for row in Execution.objects.filter(id__in=ids)}
    return [(rows[i].state, rows[i].state_reason) for i in ids]


def ids_of(rows: list[Execution]) -> list[UUID]:
    return [row.id for row in rows]


def test_skip_ends_what_comes_while_another_is_under_way_with_a_reason(workspace: Workspace) -> None:
    rows = make(workspace, "skip", 3)
    fan_out()
    assert reasons(ids_of(rows)) == [("QUEUED", ""), ("SKIPPED", "overlap"), ("SKIPPED", "overlap")]
    [late] = make(workspace, "skip")
    fan_out()
    assert reasons([late.id]) == [("SKIPPED", "overlap")]


def test_rows_of_other_keys_and_without_a_key_go_their_way(workspace: Workspace) -> None:
    rows = make(workspace, "skip", key="a") + make(workspace, "skip", key="b") + make_executions(workspace, URL, 5)
    fan_out()
    assert set(states_of(ids_of(rows)).values()) == {"QUEUED"}


def test_queue_one_parks_one_and_the_end_of_the_first_lets_it_go(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(delay_s=1.0), Answer())
    first, second, third = make(workspace, "queue_one", 3, receiver.url())
    fan_out()
    assert reasons([first.id, second.id, third.id]) == [
        ("QUEUED", ""),
        ("PENDING", ""),
        ("SKIPPED", "overlap_queue_full"),
    ]
    second.refresh_from_db()
    assert (second.park_reason, second.bucket_id) == ("overlap", None)
    engine.submit([first.id])
    wait_until(lambda: states_of([first.id]) == {first.id: "SUCCEEDED"})
    second.refresh_from_db()
    assert (second.park_reason, second.bucket_id is not None) == ("", True)
    fan_out()
    assert states_of([second.id]) == {second.id: "QUEUED"}


def test_a_cancel_of_the_first_lets_the_parked_one_go(workspace: Workspace) -> None:
    first, second = make(workspace, "queue_one", 2)
    fan_out()
    services.cancel_executions(workspace=workspace, ids=[first.id])
    fan_out()
    assert states_of([first.id, second.id]) == {first.id: "CANCELLED", second.id: "QUEUED"}


def test_the_monitor_lets_go_whom_nobody_told(workspace: Workspace) -> None:
    first, second = make(workspace, "queue_one", 2)
    fan_out()
    transitions.cancel_waiting(ids=[first.id], reason="cancelled")
    assert monitor.mend().overlaps_released == 1
    fan_out()
    assert states_of([second.id]) == {second.id: "QUEUED"}


def test_a_parked_one_is_not_let_go_by_the_resume_of_its_job(workspace: Workspace) -> None:
    job = services.create_job_definition(
        workspace=workspace, name="j", target={"url": URL, "method": "POST", "headers": {}}
    )
    rows = make_executions(workspace, URL, 2, job=job, concurrency_key="k", overlap="queue_one")
    _, second = in_one_bucket(rows)
    fan_out()
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    job.has_parked = True
    job.save(update_fields=["has_parked"])
    services.resume_job_definition(workspace=workspace, job_id=job.id)
    second.refresh_from_db()
    assert (second.park_reason, second.bucket_id) == ("overlap", None)


def test_cancel_running_cancels_what_waits_and_asks_what_runs(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(delay_s=1.5), Answer())
    [running] = make(workspace, "cancel_running", 1, receiver.url())
    fan_out()
    engine.submit([running.id])
    receiver.wait_for(1)
    waiting, newest = make(workspace, "cancel_running", 2, receiver.url())
    fan_out()
    assert reasons([waiting.id, newest.id]) == [("CANCELLED", "overlap"), ("QUEUED", "")]
    running.refresh_from_db()
    assert running.cancel_requested_at is not None
    assert running.state == "RUNNING"  # Its send has begun: the honest end is what the receiver answers.
    engine.submit([newest.id])
    wait_until(lambda: states_of([newest.id]) == {newest.id: "SUCCEEDED"})


@pytest.mark.parametrize("policy", ["skip", "queue_one", "cancel_running"])
def test_two_buckets_fanned_out_at_once_never_have_two_under_way(workspace: Workspace, policy: str) -> None:
    for turn in range(5):
        key = f"{policy}-{turn}"
        for shift in (0, 1):
            rows = make(workspace, policy, 3, key=key)
            assert rows[0].bucket_id is not None
            Execution.objects.filter(id__in=ids_of(rows)).update(
                bucket_id=rows[0].bucket_id + 7 * shift, due_at=database_now() - timedelta(seconds=1)
            )
        buckets = list(Execution.objects.filter(concurrency_key=key).values_list("bucket_id", flat=True).distinct())
        start = threading.Barrier(len(buckets))
        threads = [in_thread(_fan_out_at(start, bucket_id)) for bucket_id in buckets if bucket_id is not None]
        for thread in threads:
            thread.join()
        states = list(Execution.objects.filter(concurrency_key=key).values_list("state", flat=True))
        assert states.count("QUEUED") == 1, states


@pytest.mark.parametrize("policy", ["skip", "queue_one", "cancel_running"])
def test_batches_that_meet_the_same_keys_in_another_order_do_not_lock_each_other_out(
    workspace: Workspace, policy: str
) -> None:
    for turn in range(4):
        keys = [f"{policy}-{turn}-{number}" for number in range(150)]
        batches = [in_one_bucket([make(workspace, policy, key=key)[0] for key in each]) for each in (keys, keys[::-1])]
        places = [batch[0].bucket_id for batch in batches]
        if places[0] == places[1]:
            assert places[0] is not None
            places[1] = places[0] + 1
            Execution.objects.filter(id__in=ids_of(batches[1])).update(bucket_id=places[1])
        start = threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            done = [pool.submit(closing(_fan_out_at(start, place))) for place in places if place is not None]
            assert [each.exception() for each in done] == [None, None]
        rows = Execution.objects.filter(concurrency_key__in=keys, state="QUEUED")
        assert set(rows.values_list("concurrency_key", flat=True)) == {*keys}
        assert rows.count() == len(keys)
        take_queued_ids()


@pytest.mark.parametrize("policy", ["skip", "queue_one", "cancel_running"])
def test_a_retry_that_a_pause_of_its_job_held_waits_for_a_later_one_with_its_key(
    workspace: Workspace, policy: str
) -> None:
    [tried] = make(workspace, policy)
    Execution.objects.filter(id=tried.id).update(attempt=1, bucket_id=None, park_reason="job_paused")
    [later] = make(workspace, policy)
    fan_out()
    Execution.objects.filter(id=tried.id).update(bucket_id=tried.bucket_id, park_reason="")
    fan_out()
    assert states_of([tried.id, later.id]) == {tried.id: "PENDING", later.id: "QUEUED"}
    services.cancel_executions(workspace=workspace, ids=[later.id])
    fan_out()
    assert states_of([tried.id]) == {tried.id: "QUEUED"}


def test_a_fan_out_waits_for_nobody_who_holds_what_it_would_take_over(workspace: Workspace) -> None:
    """Whoever locks several rows in the order of ids may hold the one under way and wait for one of the fan-out's."""
    [first] = make(workspace, "cancel_running")
    fan_out()
    [second] = make(workspace, "cancel_running")
    with transaction.atomic():
        Execution.objects.select_for_update().get(id=first.id)
        thread = in_thread(fan_out)
        thread.join(5)
        assert not thread.is_alive()
        Execution.objects.select_for_update().get(id=second.id)
    assert states_of([first.id, second.id]) == {first.id: "QUEUED", second.id: "PENDING"}
    fan_out()
    assert states_of([first.id, second.id]) == {first.id: "CANCELLED", second.id: "QUEUED"}


def _fan_out_at(start: threading.Barrier, bucket_id: int) -> Callable[[], None]:
    def run() -> None:
        start.wait(10)
        fanout.fan_out(bucket_id=bucket_id)

    return run


def test_the_constraint_holds_whatever_the_code_does(workspace: Workspace) -> None:
    first, second = make(workspace, "skip", 2)
    transitions.queue_pending(ids=[first.id])
    with pytest.raises(Exception, match="execution_overlap"), transaction.atomic():
        transitions.queue_pending(ids=[second.id])
    assert connection.is_usable()
