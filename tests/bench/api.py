"""Schedules per second that one web process takes, one for each request and in batches."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import requests
from django.db import connection

from chronos_site.stack.processes import free_port
from chronos_site.stack.site import web
from chronos_site.tenancy.services import create_api_key, create_workspace
from tests.bench.delivery import clear
from tests.bench.figures import Figure, median
from tests.bench.ground import Ground

CALLERS = 4
SINGLE = 1500
BATCHES, BATCH = 20, 1000
PATIENCE_S = 30.0
SCHEDULE = {"target": {"url": "https://example.com/hook"}, "delay_s": 86_400, "payload": {"n": 1}}


def measure_api(ground: Ground, *, runs: int) -> list[Figure]:
    port = free_port()
    child = ground.start("web", *web(port=port).argv, ALLOWED_HOSTS="127.0.0.1")
    _wait_until_ready(f"http://127.0.0.1:{port}")
    workspace = create_workspace(name=f"bench-api-{os.getpid()}")
    _, key = create_api_key(workspace=workspace, name="bench")
    single, batch = [], []
    for _ in range(runs):
        single.append(_per_s(port, key, "/v1/schedules", SCHEDULE, requests_made=SINGLE, each=1))
        many = {"schedules": [SCHEDULE] * BATCH}
        batch.append(_per_s(port, key, "/v1/schedules/batch", many, requests_made=BATCHES, each=BATCH))
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE scheduling_schedule")
        clear()
    ground.stop(child)
    return [
        median("API: schedules one by one, one web process", single, "/s", key="api_per_s.single", least=300),
        median(f"API: schedules in batches of {BATCH:,}", batch, "/s", key="api_per_s.batch", least=5000),
    ]


def _per_s(port: int, key: str, path: str, body: object, *, requests_made: int, each: int) -> float:
    """By the plainest client there is: it shares the machine's processors with the process that is measured."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    content = json.dumps(body).encode()

    def call_many(count: int) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(count):
            connection.request("POST", path, content, headers)
            answer = connection.getresponse()
            told = answer.read()
            if answer.status != 201:
                raise RuntimeError(f"{path} answered {answer.status}: {told[:300]!r}")
        connection.close()

    begun = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(call_many, [requests_made // CALLERS] * CALLERS))
    return requests_made * each / (time.perf_counter() - begun)


def _wait_until_ready(base: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        try:
            if requests.get(f"{base}/healthz", timeout=2).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.1)
    raise TimeoutError("the web process did not come up")
