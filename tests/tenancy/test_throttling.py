"""Requests per second, per key and per workspace, by Redis; without Redis everything goes."""

import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from chronos_site.tenancy import services, throttling
from chronos_site.tenancy.models import Workspace
from tests.clients import ApiClient

PATH = "/v1/workspace"


@pytest.fixture(autouse=True)
def own_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A gate and a client that this test's settings decide."""
    throttling._client.cache_clear()
    monkeypatch.setattr(throttling, "_gate", throttling._Gate())
    yield
    throttling._client().close()
    throttling._client.cache_clear()


@pytest.fixture
def hanging_redis() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


def statuses(api: ApiClient, times: int) -> list[int]:
    return [api.get(PATH).status_code for _ in range(times)]


def test_a_key_may_burst_two_seconds_and_is_then_told_when_to_come_back(api: ApiClient, settings: Any) -> None:
    settings.CHRONOS_RATE_LIMIT_PER_KEY = 1
    assert statuses(api, 2) == [200, 200]
    answer = api.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
    assert answer.headers["Retry-After"] == "1"
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_the_limit_is_free_again_after_the_wait(workspace: Workspace, settings: Any) -> None:
    settings.CHRONOS_RATE_LIMIT_PER_KEY = 20
    key, _ = services.create_api_key(workspace=workspace, name="k")
    gate = throttling._Gate()
    begun = time.monotonic()
    taken = 0
    while time.monotonic() - begun < 1.0:
        taken += gate.wait_s(key) == 0
    spent = time.monotonic() - begun
    assert 40 <= taken <= 40 + 20 * spent + 1


def test_each_key_has_its_own_limit(workspace: Workspace, api: ApiClient, settings: Any) -> None:
    settings.CHRONOS_RATE_LIMIT_PER_KEY = 1
    _, second = services.create_api_key(workspace=workspace, name="second")
    assert statuses(api, 3) == [200, 200, 429]
    assert ApiClient(second).get(PATH).status_code == 200


def test_the_keys_of_a_workspace_share_its_limit_and_other_workspaces_do_not(
    workspace: Workspace, api: ApiClient, other_api: ApiClient
) -> None:
    workspace.rate_limit_per_s = 1
    workspace.save()
    _, second = services.create_api_key(workspace=workspace, name="second")
    assert statuses(api, 2) == [200, 200]
    assert ApiClient(second).get(PATH).status_code == 429
    assert other_api.get(PATH).status_code == 200


def test_a_request_that_one_limit_refuses_uses_up_neither(
    workspace: Workspace, api: ApiClient, settings: Any, redis_server: redis.Redis
) -> None:
    settings.CHRONOS_RATE_LIMIT_PER_KEY = 1
    workspace.rate_limit_per_s = 2
    workspace.save()
    statuses(api, 2)
    before = {key: redis_server.get(key) for key in redis_server.scan_iter("chronos:rl:*")}
    assert statuses(api, 5) == [429] * 5
    assert {key: redis_server.get(key) for key in redis_server.scan_iter("chronos:rl:*")} == before
    assert len(before) == 2


def test_what_the_limits_keep_in_redis_goes_by_itself(
    workspace: Workspace, api: ApiClient, redis_server: redis.Redis, settings: Any
) -> None:
    settings.CHRONOS_RATE_LIMIT_PER_KEY = 1
    workspace.rate_limit_per_s = 1
    workspace.save()
    statuses(api, 2)
    lives = [redis_server.pttl(key) for key in redis_server.scan_iter("chronos:rl:*")]
    assert len(lives) == 2
    assert all(0 < life <= 2100 for life in lives)


def test_with_redis_away_every_request_goes_and_the_log_says_so_once(
    api: ApiClient, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    settings.CHRONOS_RATE_LIMIT_PER_KEY = 1
    with caplog.at_level(logging.WARNING, "chronos_site.tenancy.throttling"):
        assert statuses(api, 5) == [200] * 5
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == ["rate_limit_off"]


def test_a_redis_that_hangs_costs_little(api: ApiClient, settings: Any, hanging_redis: str) -> None:
    settings.REDIS_URL = hanging_redis
    begun = time.monotonic()
    assert statuses(api, 5) == [200] * 5
    assert time.monotonic() - begun < 2.0
