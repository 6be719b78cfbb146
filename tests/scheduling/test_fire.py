"""The fire loop against real Postgres and Redis."""

import threading
from datetime import timedelta

import pytest
import redis
from django.db import connection, transaction

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import publish
from execution.fanout import fan_out, serve
from execution.models import Bucket, Execution
from scheduling.loops import fire
from tests.broker import messages, queued_ids
from tests.making import age, make_executions

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"


def triggered(server: redis.Redis) -> list[int]:
    return [int(str(args[0])) for args in messages(server, "bucket-triggers")]


def test_two_fire_loops_at_once_trigger_each_bucket_once(workspace: Workspace, redis_server: redis.Redis) -> None:
    rows = make_executions(workspace, URL, 200)
    redis_server.flushdb()
    start = threading.Barrier(4)

    def tick() -> None:
        start.wait()
        fire.fire_due_buckets()
        connection.close()

    threads = [threading.Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(triggered(redis_server)) == sorted({row.bucket_id or 0 for row in rows})


def test_a_second_tick_leaves_at_once_while_one_is_at_work(workspace: Workspace) -> None:
    with transaction.atomic():
        assert fire._try_lock()
        seen: list[fire.Fired] = []

        def tick() -> None:
            seen.append(fire.fire_due_buckets())
            connection.close()

        thread = threading.Thread(target=tick)
        thread.start()
        thread.join()
    assert seen[0].skipped


def test_dead_for_two_minutes_and_back_it_fires_everything_that_was_missed(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, URL, 60)
    age(rows[:20], by=timedelta(minutes=2))
    age(rows[20:40], by=timedelta(minutes=1))
    redis_server.flushdb()
    fire.fire_due_buckets()
    taken = []
    for bucket_id in triggered(redis_server):
        fan_out(bucket_id=bucket_id)
        taken += queued_ids(redis_server)
        redis_server.delete("job-dispatch")
    assert not Execution.objects.exclude(state="QUEUED").exists()
    assert sorted(taken) == sorted(row.id for row in rows)


def test_a_bucket_is_triggered_again_only_after_its_fan_out_or_five_seconds(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    [row] = make_executions(workspace, URL)
    redis_server.flushdb()
    assert fire.fire_due_buckets().triggered == 1
    assert fire.fire_due_buckets().triggered == 0
    Bucket.objects.update(triggered_at=database_now() - timedelta(seconds=6))
    assert fire.fire_due_buckets().triggered == 1
    fan_out(bucket_id=row.bucket_id or 0)
    assert Bucket.objects.get(id=row.bucket_id or 0).triggered_at is None
    assert fire.fire_due_buckets().triggered == 0


def test_it_looks_ahead_and_not_further(workspace: Workspace, redis_server: redis.Redis) -> None:
    make_executions(workspace, URL, due_at=database_now() + timedelta(seconds=30))
    assert fire.fire_due_buckets().triggered == 0
    make_executions(workspace, URL, due_at=database_now() + timedelta(seconds=1.5))
    assert fire.fire_due_buckets().triggered == 1


def test_triggers_that_cannot_be_published_are_fired_by_the_next_tick(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    make_executions(workspace, URL)
    redis_server.flushdb()
    redis_server.config_set("min-replicas-to-write", 1)
    try:
        assert fire.fire_due_buckets().triggered == 0
    finally:
        redis_server.config_set("min-replicas-to-write", 0)
    assert fire.fire_due_buckets().triggered == 1
    assert len(triggered(redis_server)) == 1


def test_few_buckets_wait_for_a_fan_out_at_a_time_and_the_oldest_of_every_workspace_are_among_them(
    workspace: Workspace, other_workspace: Workspace, redis_server: redis.Redis
) -> None:
    for n, row in enumerate(make_executions(workspace, URL, 40)):
        age([row], by=timedelta(minutes=n))
    oldest = Execution.objects.order_by("bucket_id")[0]
    [new] = make_executions(other_workspace, URL)
    redis_server.flushdb()
    Bucket.objects.update(triggered_at=None)
    assert fire.fire_due_buckets().triggered == fire.MOST_WAITING
    assert {oldest.bucket_id, new.bucket_id} < set(triggered(redis_server))
    assert fire.fire_due_buckets().triggered == 0
    redis_server.flushdb()
    assert fire.fire_due_buckets().triggered > 0


def test_a_fan_out_that_has_emptied_its_bucket_goes_on_with_others_while_none_waits(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, URL, 8)
    for n, row in enumerate(rows):
        age([row], by=timedelta(minutes=n))
    Bucket.objects.update(triggered_at=None)
    redis_server.flushdb()
    first = rows[0].bucket_id
    assert first is not None
    publish.publish_triggers([first])
    serve(bucket_id=first)
    assert Execution.objects.filter(state="PENDING").count() == 7, "another waits for the thread"
    redis_server.flushdb()
    serve(bucket_id=first)
    assert not Execution.objects.filter(state="PENDING").exists()
    assert not Bucket.objects.filter(triggered_at__isnull=False).exists()
