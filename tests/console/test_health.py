"""Probes tell a process that works from one that does not, in bounded time."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from chronos_site.beat import HOUSE_TASKS, seed_periodic_tasks
from chronos_site.infra import mongo, redis
from tests.clients import ApiClient

DEAD = 1
"""A port that nobody listens on."""


@pytest.fixture
def other_servers() -> Iterator[None]:
    """Clients of Redis and MongoDB that this test's settings decide."""
    _forget_clients()
    yield
    _forget_clients()


def _forget_clients() -> None:
    redis.client().close()
    redis.client.cache_clear()
    database = mongo.database()
    if database is not None:
        database.client.close()
    mongo.database.cache_clear()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_healthz_asks_no_server() -> None:
    answer = ApiClient(None).get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_readyz_is_200_with_everything_there(other_servers: None) -> None:
    answer = ApiClient(None).get("/readyz")
    assert (answer.status_code, answer.json()["status"], answer.json()["degraded"]) == (200, "ready", [])


@pytest.mark.django_db
def test_redis_and_mongo_away_are_reported_and_the_process_stays_ready(other_servers: None, settings: Any) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{DEAD}/0"
    settings.MONGO_URL = f"mongodb://127.0.0.1:{DEAD}/"
    answer = ApiClient(None).get("/readyz")
    assert (answer.status_code, answer.json()["degraded"]) == (200, ["redis", "mongo"])


@pytest.mark.django_db
def test_a_part_that_hangs_is_away_after_two_seconds(other_servers: None, settings: Any, silent_port: int) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{silent_port}/0"
    begun = time.monotonic()
    answer = ApiClient(None).get("/readyz")
    assert time.monotonic() - begun < 3
    assert (answer.status_code, answer.json()["degraded"]) == (200, ["redis"])


@pytest.mark.django_db
def test_without_mongo_nothing_is_degraded(other_servers: None, settings: Any) -> None:
    settings.MONGO_URL = None
    assert ApiClient(None).get("/readyz").json()["parts"]["mongo"] == "not_configured"


@pytest.mark.django_db
@pytest.mark.parametrize("hangs", [False, True])
def test_postgres_away_is_503(other_servers: None, monkeypatch: Any, silent_port: int, hangs: bool) -> None:
    monkeypatch.setitem(connection.settings_dict, "PORT", silent_port if hangs else DEAD)
    begun = time.monotonic()
    answer = ApiClient(None).get("/readyz")
    assert time.monotonic() - begun < 3
    assert (answer.status_code, answer.json()["status"], answer.json()["parts"]["postgres"]) == (
        503,
        "not_ready",
        "away",
    )


@pytest.mark.django_db(transaction=True)
def test_a_loop_that_is_off_slow_or_missing_is_told_and_the_process_stays_ready(other_servers: None) -> None:
    seed_periodic_tasks()
    answer = ApiClient(None).get("/readyz")
    assert (answer.status_code, answer.json()["warnings"]) == (200, [])
    off, slow, missing = (name for name, *_ in HOUSE_TASKS[:3])
    PeriodicTask.objects.filter(name=off).update(enabled=False)
    PeriodicTask.objects.filter(name=slow).update(interval=IntervalSchedule.objects.create(every=5, period="minutes"))
    PeriodicTask.objects.filter(name=missing).delete()
    answer = ApiClient(None).get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["warnings"] == [
        f"{off}: it is switched off.",
        f"{slow}: every 5 minutes in place of every 1 seconds.",
        f"{missing}: it has no row; a beat makes it when it starts.",
    ]
