"""/metrics of real processes: what is counted is shown, labels stay bounded, a server that is away breaks nothing."""

from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from chronos_site.console import gauges
from chronos_site.infra import redis
from chronos_site.observability import metrics
from chronos_site.stack.processes import free_port
from chronos_site.tenancy.models import Workspace
from execution import fanout
from tests.clients import ApiClient, ProgrammableReceiver
from tests.making import make_executions
from tests.processes import SiteProcesses, wait_until


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.django_db(transaction=True)
def test_the_web_shows_its_own_numbers_and_the_sites(api: ApiClient) -> None:
    api.get("/v1/executions/0190c7c0-0000-7000-8000-000000000000")
    answer = ApiClient(None).get("/metrics")
    assert answer.status_code == 200
    found = samples(answer.text)
    assert found["chronos_server_up", (("server", "postgres"),)] == 1
    assert found["chronos_server_up", (("server", "redis"),)] == 1
    assert ("chronos_queue_length", (("queue", "job-dispatch"),)) in found
    assert ("chronos_leader_epoch", (("lock", "scheduler"),)) in found
    routes = {dict(labels)["route"] for name, labels in found if name == "chronos_http_requests_total"}
    assert any(route.startswith("/v1/executions/<") for route in routes), routes
    assert not any("0190c7c0" in route for route in routes)


@pytest.mark.django_db(transaction=True)
def test_nothing_of_a_tenant_is_in_it(workspace: Workspace, api: ApiClient) -> None:
    api.get("/v1/executions")
    text = ApiClient(None).get("/metrics").text
    assert str(workspace.id) not in text
    assert workspace.name not in text


@pytest.mark.django_db(transaction=True)
def test_a_server_that_is_away_is_told_and_its_gauges_are_absent(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    # Nobody listens there: the look at the site is a real one.
    monkeypatch.setattr(gauges, "_kept", None)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    redis.client().close()
    redis.client.cache_clear()
    try:
        answer = ApiClient(None).get("/metrics")
    finally:
        redis.client().close()
        redis.client.cache_clear()
        monkeypatch.setattr(gauges, "_kept", None)
    found = samples(answer.text)
    assert answer.status_code == 200
    assert found["chronos_server_up", (("server", "redis"),)] == 0
    assert found["chronos_server_up", (("server", "postgres"),)] == 1
    names = {name for name, _ in found}
    assert "chronos_overdue_executions" in names
    assert "chronos_queue_length" not in names


def test_a_family_has_no_more_series_than_it_may() -> None:
    counter = metrics.Counter("chronos_test_bounded", "For this test.", ("name",))
    try:
        for n in range(metrics.MOST_SERIES + 50):
            counter.add(str(n))
        (family,) = counter.collect()
        values = {sample.labels["name"]: sample.value for sample in family.samples}
        assert len(values) == metrics.MOST_SERIES + 1
        assert values[metrics.OTHER] == 50
    finally:
        metrics.REGISTRY.unregister(counter)


@pytest.mark.django_db(transaction=True)
def test_a_worker_counts_what_it_delivers(
    workspace: Workspace, celery_processes: SiteProcesses, receiver: ProgrammableReceiver
) -> None:
    port = free_port()
    celery_processes.worker(name="dispatch", queues="bucket-triggers,job-dispatch", CHRONOS_METRICS_PORT=str(port))
    bucket_ids = {each.bucket_id for each in make_executions(workspace, receiver.url("/hook"), 5)}
    for bucket_id in bucket_ids:
        assert bucket_id is not None
        fanout.serve(bucket_id=bucket_id)
    labels = (("kind", "http"), ("outcome", "delivered"), ("queue", "job-dispatch"))

    def shown() -> dict[Any, float]:
        return samples(requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text)

    wait_until(lambda: shown().get(("chronos_attempts_total", labels)) == 5, timeout_s=30)
    found = shown()
    assert found["chronos_lateness_seconds_count", (("queue", "job-dispatch"),)] == 5
    assert found["chronos_attempt_duration_seconds_count", (("kind", "http"), ("queue", "job-dispatch"))] == 5
    assert ("process_cpu_seconds_total", ()) in found
