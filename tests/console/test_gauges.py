"""The gauges say what is there, in bounded time, and leave out what belongs to a server that is away."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis as redis_library
from django.utils import timezone

from chronos_site.console import gauges
from chronos_site.infra import redis
from chronos_site.tenancy.models import Workspace
from execution.domain.buckets import bucket_of
from execution.models import Execution
from tests.making import make_executions

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"


@pytest.fixture
def own_redis(settings: Any) -> Iterator[None]:
    redis.client.cache_clear()
    yield
    redis.client().close()
    redis.client.cache_clear()


def test_queues_leaders_and_unacked_are_read(redis_server: redis_library.Redis) -> None:
    redis_server.rpush("job-dispatch", "a", "b")
    redis_server.hset("unacked", "tag", "message")
    redis_server.set("chronos:leader:retry", "token", px=30_000)
    redis_server.set("chronos:leader:retry:epoch", 7)
    found = gauges.read(max_age_s=0).redis
    assert found is not None
    assert (found.queues["job-dispatch"], found.queues["scheduler"], found.unacked) == (2, 0, 1)
    assert (found.leaders["retry"].held, found.leaders["retry"].epoch) == (True, 7)
    assert (found.leaders["monitor"].held, found.leaders["monitor"].epoch) == (False, 0)


def _set_due(execution: Execution, *, minutes_ago: int) -> None:
    due_at = timezone.now() - timedelta(minutes=minutes_ago)
    bucket_id = bucket_of(execution.id, due_at, 1)
    Execution.objects.filter(id=execution.id).update(due_at=due_at, bucket_id=bucket_id)


def test_overdue_work_is_told_by_state_and_age(workspace: Workspace) -> None:
    pending, retrying, _ahead = make_executions(workspace, URL, 3, due_at=timezone.now() + timedelta(minutes=3))
    _set_due(pending, minutes_ago=3)
    _set_due(retrying, minutes_ago=2)
    Execution.objects.filter(id=retrying.id).update(state="RETRYING")
    found = gauges.read(max_age_s=0).postgres
    assert found is not None
    assert (found.overdue["PENDING"].count, found.overdue["RETRYING"].count) == (1, 1)
    assert found.overdue["PENDING"].oldest_s >= 179
    assert 119 <= found.overdue["RETRYING"].oldest_s < found.overdue["PENDING"].oldest_s


def test_redis_away_leaves_what_postgres_knows(own_redis: None, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    found = gauges.read(max_age_s=0)
    assert found.redis is None
    assert found.postgres is not None


def test_a_look_is_kept_for_those_who_come_soon_after() -> None:
    first = gauges.read(max_age_s=0)
    assert gauges.read(max_age_s=60) is first
    assert gauges.read(max_age_s=0) is not first
