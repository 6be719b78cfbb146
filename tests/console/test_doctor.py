"""`manage.py chronos doctor`: each fault is a finding with a remedy, and a server that is away is one as well."""

from pathlib import Path
from typing import Any

import pytest
import redis
from django_celery_beat.models import PeriodicTask

from chronos_site.beat import seed_periodic_tasks
from chronos_site.console.checks import loops, servers
from chronos_site.console.checks.settings import check_settings
from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from tests.console.chronos_command import chronos, chronos_text
from tests.processes import SiteProcesses

pytestmark = pytest.mark.django_db(transaction=True)


def levels(found: list[Any]) -> dict[str, str]:
    return {finding.check: finding.level for finding in found}


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("DEBUG", True, "DJANGO_DEBUG"),
        ("SECRET_KEY", "django-insecure-0123456789abcdefghijklmnopqrstuvwxyz", "DJANGO_SECRET_KEY"),
        ("SECRET_KEY", "short", "DJANGO_SECRET_KEY"),
        ("ALLOWED_HOSTS", ["*"], "ALLOWED_HOSTS"),
        ("CHRONOS_EGRESS_ALLOW", ["0.0.0.0/0"], "CHRONOS_EGRESS_ALLOW"),
        ("CHRONOS_EGRESS_ALLOW", ["::/0"], "CHRONOS_EGRESS_ALLOW"),
    ],
)
def test_an_unsafe_setting_fails(name: str, value: Any, check: str, settings: Any) -> None:
    setattr(settings, name, value)
    found = {finding.check: finding for finding in check_settings()}
    assert found[check].level == "fail"
    assert found[check].remedy
    assert "settings" not in found


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [("MONGO_URL", None, "MONGO_URL"), ("CHRONOS_EGRESS_ALLOW", ["127.0.0.0/8"], "CHRONOS_EGRESS_ALLOW")],
)
def test_a_setting_that_leaves_something_out_or_open_warns(name: str, value: Any, check: str, settings: Any) -> None:
    setattr(settings, name, value)
    assert levels(list(check_settings()))[check] == "warn"


def test_servers_answer_with_their_versions_and_their_clocks_agree() -> None:
    found = levels(list(servers.look_at_servers()))
    for name in ("postgres", "postgres clock", "redis", "redis clock", "mongo", "storage", "kafka"):
        assert found[name] in {"ok", "warn"}, found


def test_a_redis_that_evicts_fails_and_one_without_appendonly_warns(redis_server: redis.Redis) -> None:
    before = str(redis_server.config_get("maxmemory-policy")["maxmemory-policy"])
    appendonly = str(redis_server.config_get("appendonly")["appendonly"])
    redis_server.config_set("maxmemory-policy", "allkeys-lru")
    redis_server.config_set("appendonly", "no")
    try:
        found = levels(list(servers.look_at_servers()))
    finally:
        redis_server.config_set("maxmemory-policy", str(before))
        redis_server.config_set("appendonly", str(appendonly))
    assert (found["redis memory"], found["redis durability"]) == ("fail", "warn")


def test_a_session_that_sits_in_a_transaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "IDLE_WARN_S", -1)
    sits = servers.own_connection()
    try:
        sits.execute("BEGIN")
        sits.execute("SELECT 1")
        texts = [finding.text for finding in servers.look_at_servers() if finding.check == "postgres sessions"]
    finally:
        sits.close()
    assert any("sit in a transaction" in text for text in texts), texts


def test_a_loop_that_is_off_warns_and_one_that_was_not_sent_fails() -> None:
    seed_periodic_tasks()
    task = PeriodicTask.objects.get(name="chronos: retry tick")
    task.last_run_at = database_now().replace(year=2020)
    task.save()
    PeriodicTask.objects.filter(name="chronos: settle").update(enabled=False)
    found = {(finding.level, finding.text.split(":")[1].strip()) for finding in loops.check_loops()}
    assert found == {("fail", "retry tick"), ("warn", "settle")}


def test_a_message_that_nobody_acknowledges_is_found(redis_server: redis.Redis) -> None:
    redis_server.zadd("unacked_index", {"tag": 1_000_000_000})
    assert levels(list(loops.check_queues()))["unacked messages"] == "warn"


def test_queues_without_consumers_fail_and_those_with_some_are_well(celery_processes: SiteProcesses) -> None:
    celery_processes.worker(name="some", queues="scheduler,maintenance", concurrency=1)
    found = levels(list(loops.check_queues()))
    assert "queue scheduler" not in found
    assert (found["queue job-dispatch"], found["queue bulk-ingest"]) == ("fail", "fail")


def test_doctor_ends_with_1_and_tells_what_to_do(workspace: Workspace) -> None:
    told = chronos("doctor", code=1)
    assert told["level"] == "fail"
    assert sum(told["counts"].values()) == len(told["findings"])
    by_check = {finding["check"]: finding for finding in told["findings"]}
    assert by_check["migrations"]["level"] == "ok"
    assert by_check["leader of scheduler"]["level"] == "fail"
    assert by_check["queue job-dispatch"]["level"] == "fail"
    assert "Start beat" in by_check["leader of scheduler"]["remedy"]


def test_servers_that_are_away_are_findings(
    workspace: Workspace, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dead = redis.Redis(host="127.0.0.1", port=1, socket_connect_timeout=1)
    monkeypatch.setattr("chronos_site.infra.redis.client", lambda: dead)
    settings.KAFKA_BOOTSTRAP = "127.0.0.1:1"
    monkeypatch.setattr(servers, "KAFKA_WAIT_S", 0.5)
    text = chronos_text("doctor", "--quiet", code=1)
    dead.close()
    assert "redis: It cannot be reached" in text
    assert "kafka: It cannot be reached" in text
    assert "Traceback" not in text
