"""Buckets: opened, closed and reopened without a gap, on several connections at once."""

import random
import threading
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection, transaction

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import buckets
from execution.models import Bucket, Execution
from tests.making import age, make_executions
from tests.processes import wait_until
from tests.threads import in_thread, lock_waiters

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"
OLD = timedelta(minutes=20)


def now_s() -> float:
    return database_now().timestamp()


def old_bucket() -> int:
    bucket_id = (int(now_s() - OLD.total_seconds()) // 60) * 1024
    with transaction.atomic():
        buckets.open_buckets([bucket_id])
    return bucket_id


def test_an_empty_bucket_closes_five_minutes_after_its_minute_and_not_before() -> None:
    bucket_id = old_bucket()
    young = (int(now_s() - 240) // 60) * 1024
    with transaction.atomic():
        buckets.open_buckets([young])
    assert buckets.close_old_buckets(now_s=now_s()) == 1
    assert Bucket.objects.get(id=bucket_id).state == "CLOSED"
    assert Bucket.objects.get(id=young).state == "OPEN"


def test_a_bucket_with_a_pending_row_stays_open(workspace: Workspace) -> None:
    rows = make_executions(workspace, URL)
    age(rows, by=OLD)
    assert buckets.close_old_buckets(now_s=now_s()) == 0


def test_adding_to_a_closed_bucket_opens_it_again() -> None:
    bucket_id = old_bucket()
    buckets.close_old_buckets(now_s=now_s())
    with transaction.atomic():
        buckets.open_buckets([bucket_id])
    assert Bucket.objects.get(id=bucket_id).state == "OPEN"


def test_closing_passes_over_a_bucket_that_somebody_is_adding_to(workspace: Workspace) -> None:
    bucket_id = old_bucket()
    added, closed = threading.Event(), threading.Event()

    def add() -> None:
        with transaction.atomic():
            buckets.open_buckets([bucket_id])
            added.set()
            assert closed.wait(10)
            rows = make_executions(workspace, URL)
            Execution.objects.filter(id=rows[0].id).update(bucket_id=bucket_id)

    thread = in_thread(add)
    assert added.wait(10)
    assert buckets.close_old_buckets(now_s=now_s()) == 0
    closed.set()
    thread.join()
    assert buckets.close_old_buckets(now_s=now_s()) == 0
    assert Bucket.objects.get(id=bucket_id).state == "OPEN"
    assert Execution.objects.filter(bucket_id=bucket_id, state="PENDING").count() == 1


def test_adding_waits_for_a_closing_under_way_and_then_reopens() -> None:
    bucket_id = old_bucket()
    opened = threading.Event()

    def add() -> None:
        with transaction.atomic():
            buckets.open_buckets([bucket_id])
        opened.set()

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM execution_bucket WHERE id = %s FOR UPDATE", [bucket_id])
        thread = in_thread(add)
        wait_until(lambda: lock_waiters() == 1)
        assert not opened.is_set()
        cursor.execute("UPDATE execution_bucket SET state = 'CLOSED' WHERE id = %s", [bucket_id])
    thread.join()
    assert Bucket.objects.get(id=bucket_id).state == "OPEN"


def test_posts_against_a_bucket_that_is_being_closed_leave_nothing_behind(workspace: Workspace) -> None:
    bucket_id = old_bucket()
    stop = threading.Event()

    def close() -> None:
        while not stop.is_set():
            buckets.close_old_buckets(now_s=now_s())

    def add() -> None:
        for _ in range(40):
            with transaction.atomic():
                buckets.open_buckets([bucket_id])
                rows = make_executions(workspace, URL)
                Execution.objects.filter(id=rows[0].id).update(bucket_id=bucket_id)
            Execution.objects.filter(bucket_id=bucket_id).update(state="SUCCEEDED")
        with transaction.atomic():
            buckets.open_buckets([bucket_id])
            rows = make_executions(workspace, URL)
            Execution.objects.filter(id=rows[0].id).update(bucket_id=bucket_id)

    closer = in_thread(close)
    adders = [in_thread(add) for _ in range(3)]
    for thread in adders:
        thread.join()
    stop.set()
    closer.join()
    buckets.close_old_buckets(now_s=now_s())
    if Execution.objects.filter(bucket_id=bucket_id, state="PENDING").exists():
        assert Bucket.objects.get(id=bucket_id).state == "OPEN"


def test_batches_that_share_buckets_in_opposite_order_do_not_deadlock() -> None:
    base = (int(now_s()) // 60 - 30) * 1024
    shared = [base + step * 1024 for step in range(20)]
    failures: list[BaseException] = []

    def add(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(30):
                mixed = chance.sample(shared, len(shared))
                with transaction.atomic():
                    buckets.open_buckets(mixed)
        except BaseException as error:
            failures.append(error)

    def close() -> None:
        try:
            for _ in range(30):
                buckets.close_old_buckets(now_s=now_s())
        except BaseException as error:
            failures.append(error)

    threads = [in_thread(partial(add, seed)) for seed in range(4)] + [in_thread(close)]
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_fire_loops_mark_is_not_kept_out_by_a_batch_that_is_being_added(workspace: Workspace) -> None:
    [row] = make_executions(workspace, URL)
    Bucket.objects.update(triggered_at=None)
    holding, done = threading.Event(), threading.Event()

    def add() -> None:
        with transaction.atomic():
            buckets.open_buckets([row.bucket_id or 0])
            holding.set()
            assert done.wait(10)

    thread = in_thread(add)
    assert holding.wait(10)
    assert buckets.trigger_due_buckets(now_s=now_s(), horizon_s=2, most=10) == [row.bucket_id]
    done.set()
    thread.join()
