"""Fan-out against real Postgres and Redis."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import redis
from django.db import connection
from django.utils import timezone

from chronos_site.infra import redis as site_redis
from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.infra.sql import statement
from chronos_site.tenancy.models import Workspace
from chronos_site.tenancy.services import create_workspace
from execution import publish, services
from execution.fanout import LEAST_BACKLOG, fan_out
from execution.models import Bucket, Execution, JobDefinition, Worker
from tests.broker import messages, queued_ids
from tests.making import make_executions, make_job, states_of

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"


@contextmanager
def eager_workers(server: redis.Redis) -> Iterator[list[str]]:
    """Take messages off the dispatch queue as fast as workers without limits would."""
    taken: list[str] = []
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            raw = server.blpop(["job-dispatch"], timeout=0.1)
            if raw:
                taken.append(str(raw[1]))

    thread = threading.Thread(target=take)
    thread.start()
    yield taken
    done.set()
    thread.join()


def in_one_bucket(rows: list[Execution]) -> int:
    """Move every row into the first one's bucket, whose triggers have been taken."""
    bucket_id = rows[0].bucket_id
    assert bucket_id is not None
    Execution.objects.filter(id__in=[row.id for row in rows]).update(bucket_id=bucket_id)
    site_redis.client().delete(publish.TRIGGER_QUEUE)
    return bucket_id


def test_due_rows_become_queued_and_are_published_in_chunks_of_ids(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, URL, 250)
    done = fan_out(bucket_id=in_one_bucket(rows))
    assert (done.queued, done.published, done.finished) == (250, 250, True)
    assert set(states_of([row.id for row in rows]).values()) == {"QUEUED"}
    assert sorted(queued_ids(redis_server)) == sorted(row.id for row in rows)
    assert [len(args[0]) for args in messages(redis_server, "job-dispatch")] == [100, 100, 50]  # type: ignore[arg-type]


def test_rows_beyond_the_look_ahead_stay_pending(workspace: Workspace, redis_server: redis.Redis) -> None:
    soon = make_executions(workspace, URL, 3, due_at=database_now() + timedelta(seconds=1))
    later = make_executions(workspace, URL, 3, due_at=database_now() + timedelta(seconds=30))
    bucket_id = in_one_bucket(soon + later)
    fan_out(bucket_id=bucket_id)
    assert set(states_of([row.id for row in soon]).values()) == {"QUEUED"}
    assert set(states_of([row.id for row in later]).values()) == {"PENDING"}


def test_a_bucket_of_twenty_thousand_due_rows_fans_out_completely(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, URL, 20_000)
    bucket_id = in_one_bucket(rows)
    with eager_workers(redis_server) as taken:
        published = 0
        while not (done := fan_out(bucket_id=bucket_id)).finished:
            published += done.published
    assert published + done.published == 20_000
    assert len(taken) >= 200
    assert not Execution.objects.exclude(state="QUEUED").exists()


def test_two_fan_outs_at_once_share_the_rows(workspace: Workspace, redis_server: redis.Redis) -> None:
    rows = make_executions(workspace, URL, 900)
    bucket_id = in_one_bucket(rows)

    def run() -> None:
        fan_out(bucket_id=bucket_id)
        connection.close()

    both = [threading.Thread(target=run) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert Counter(queued_ids(redis_server)) == Counter(row.id for row in rows)


def test_workspaces_take_turns_within_a_batch(
    workspace: Workspace, other_workspace: Workspace, redis_server: redis.Redis
) -> None:
    many = make_executions(workspace, URL, 5000, due_at=database_now() - timedelta(seconds=5))
    few = make_executions(other_workspace, URL, 50)
    bucket_id = in_one_bucket(many + few)
    done = fan_out(bucket_id=bucket_id, budget_s=1)
    assert done.published < 5000
    assert set(states_of([row.id for row in few]).values()) == {"QUEUED"}


def test_it_holds_back_while_the_queue_is_longer_than_the_workers_deliver_in_half_a_second(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, URL, 6000)
    bucket_id = in_one_bucket(rows)
    done = fan_out(bucket_id=bucket_id, budget_s=1)
    assert done.published == LEAST_BACKLOG * 100
    assert not done.finished
    assert Bucket.objects.get(id=bucket_id).triggered_at is None, "the next tick of the fire loop goes on"
    now = timezone.now()
    Worker.objects.create(id=new_id(), name="w", started_at=now, heartbeat_at=now, rate_per_s=8000)
    done = fan_out(bucket_id=bucket_id, budget_s=1)
    assert done.published == 3000


def test_redis_away_at_the_publish_gives_the_rows_back_and_they_go_out_later(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, URL, 150, due_at=database_now() + timedelta(seconds=30))
    Execution.objects.update(due_at=timezone.now())
    bucket_id = in_one_bucket(rows)
    redis_server.config_set("min-replicas-to-write", 1)
    try:
        done = fan_out(bucket_id=bucket_id)
    finally:
        redis_server.config_set("min-replicas-to-write", 0)
    assert len(done.unpublished) == 150
    assert set(states_of([row.id for row in rows]).values()) == {"PENDING"}
    assert Bucket.objects.get(id=bucket_id).triggered_at is None
    done = fan_out(bucket_id=bucket_id)
    assert done.published == 150


def test_rows_past_their_deadline_expire_and_are_not_published(workspace: Workspace, redis_server: redis.Redis) -> None:
    late = make_executions(workspace, URL, 2)
    Execution.objects.update(start_deadline=timezone.now() - timedelta(seconds=1))
    good = make_executions(workspace, URL, 1)
    done = fan_out(bucket_id=in_one_bucket(late + good))
    assert (done.expired, done.published) == (2, 1)
    assert set(states_of([row.id for row in late]).values()) == {"EXPIRED"}
    assert queued_ids(redis_server) == [good[0].id]


def test_rows_of_a_paused_job_park_and_a_resume_puts_them_back(workspace: Workspace, redis_server: redis.Redis) -> None:
    job = make_job(workspace, URL)
    held = make_executions(workspace, URL, 5, job=job, due_at=database_now() + timedelta(seconds=1))
    free = make_executions(workspace, URL, 5, due_at=database_now() + timedelta(seconds=1))
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    done = fan_out(bucket_id=in_one_bucket(held + free))
    assert (done.parked, done.published) == (5, 5)
    assert JobDefinition.objects.get(id=job.id).has_parked
    assert {(row.bucket_id, row.state) for row in Execution.objects.filter(job_definition=job)} == {(None, "PENDING")}
    services.resume_job_definition(workspace=workspace, job_id=job.id)
    back = list(Execution.objects.filter(job_definition=job))
    assert all(row.bucket_id is not None for row in back)
    assert not JobDefinition.objects.get(id=job.id).has_parked


def test_a_resume_lets_go_of_more_than_one_request_can_and_the_rest_follows(workspace: Workspace) -> None:
    job = make_job(workspace, URL)
    make_executions(workspace, URL, 1500, job=job)
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    Execution.objects.update(bucket_id=None, park_reason="job_paused")
    JobDefinition.objects.update(has_parked=True)
    services.resume_job_definition(workspace=workspace, job_id=job.id)
    assert Execution.objects.filter(bucket_id__isnull=True).count() == 500
    assert services.release_parked(most=5000) == 500
    assert services.release_parked(most=5000) == 0
    assert not JobDefinition.objects.get(id=job.id).has_parked


def test_who_has_nothing_due_yet_takes_no_share_of_the_batch(workspace: Workspace, redis_server: redis.Redis) -> None:
    due = make_executions(workspace, URL, 400)
    bucket_id = in_one_bucket(due)
    later = database_now() + timedelta(seconds=30)
    for number in range(40):
        rows = make_executions(create_workspace(name=f"later-{number}"), URL, due_at=later)
        Execution.objects.filter(id=rows[0].id).update(bucket_id=bucket_id)
    with connection.cursor() as cursor:
        cursor.execute(statement("execution", "select_due"), {"bucket_id": bucket_id, "horizon_s": 2, "batch": 200})
        assert len(cursor.fetchall()) == 200


def test_a_turn_ends_after_a_batch_where_other_buckets_wait(workspace: Workspace, redis_server: redis.Redis) -> None:
    bucket_id = in_one_bucket(make_executions(workspace, URL, 2000))
    publish.publish_triggers([bucket_id + 1])
    done = fan_out(bucket_id=bucket_id)
    assert (done.published, done.finished) == (LEAST_BACKLOG * 100 / 2, False)
    redis_server.delete("bucket-triggers")
    assert fan_out(bucket_id=bucket_id).published == LEAST_BACKLOG * 100 / 2
