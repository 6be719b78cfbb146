"""The whole way with real processes: beat replicas and workers on the test database, a real receiver."""

import os
import signal
import time
from datetime import datetime, timedelta

import pytest
import redis
from django.utils import timezone

from chronos_site.infra.leader import PREFIX
from chronos_site.stack.processes import Child
from execution.models import Execution
from tests.clients import ApiClient, ProgrammableReceiver
from tests.processes import SiteProcesses, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

LOCK = f"{PREFIX}scheduler"
TTL_S = 3.0


def leader_of(processes: SiteProcesses, *replicas: Child) -> int:
    """The index of the replica that was elected for the scheduler's lock, by its log."""
    found = [
        any("leader_elected" in line and '"lock": "scheduler"' in line for line in processes.log(child).splitlines())
        for child in replicas
    ]
    assert sum(found) == 1, found
    return found.index(True)


def ticks(server: redis.Redis) -> int:
    """The fire loop's ticks that wait on the queue: nobody consumes it in these tests."""
    return sum('"scheduling.tasks.tick"' in str(message) for message in server.lrange("scheduler", 0, -1))


def test_a_job_goes_from_the_api_to_the_receiver_through_every_process(
    celery_processes: SiteProcesses, api: ApiClient, receiver: ProgrammableReceiver
) -> None:
    for replica in ("beat-1", "beat-2"):
        celery_processes.beat(name=replica)
    celery_processes.worker(name="scheduler", queues="scheduler,maintenance", concurrency=2)
    celery_processes.worker(name="fan-out", queues="bucket-triggers")
    dispatch = celery_processes.worker(name="dispatch", queues="job-dispatch")
    now = api.post("/v1/schedules", {"target": {"url": receiver.url("/now")}, "delay_s": 0})
    assert now.status_code == 201, now.content
    later = timezone.now() + timedelta(seconds=4)
    run_at = later.isoformat().replace("+00:00", "Z")
    batch = [{"target": {"url": receiver.url(f"/{n}")}, "run_at": run_at} for n in range(100)]
    made = api.post("/v1/schedules/batch", {"schedules": batch})
    assert made.status_code == 201, made.content
    wait_until(
        lambda: Execution.objects.filter(state="SUCCEEDED").count() == 101,
        timeout_s=20,
        told=lambda: celery_processes.log(dispatch)[-3000:],
    )
    assert len(receiver.requests) == 101
    late = [(r.arrived - later).total_seconds() for r in receiver.requests if r.path != "/now"]
    assert min(late) >= 0
    assert max(late) < 1
    execution = now.json()["execution_id"]
    wait_until(lambda: api.get(f"/v1/executions/{execution}/logs").json()["items"])
    [log] = api.get(f"/v1/executions/{execution}/logs").json()["items"]
    assert (log["request"]["method"], log["response"]["body"]) == ("POST", "ok")
    assert datetime.fromisoformat(log["at"]) <= timezone.now()


def test_a_killed_leader_is_replaced_within_the_ttl_and_two_seconds_and_a_polite_one_within_two(
    celery_processes: SiteProcesses, redis_server: redis.Redis
) -> None:
    replicas = [celery_processes.beat(name=f"beat-{n}", CHRONOS_LEADER_TTL=str(TTL_S)) for n in range(2)]
    wait_until(lambda: ticks(redis_server) > 1, timeout_s=20)
    leading = leader_of(celery_processes, *replicas)
    held = redis_server.get(LOCK)

    killed = time.monotonic()
    os.kill(replicas[leading].pid, signal.SIGKILL)
    wait_until(lambda: redis_server.get(LOCK) not in {held, None}, timeout_s=15)
    before = ticks(redis_server)
    wait_until(lambda: ticks(redis_server) > before, timeout_s=15)
    assert time.monotonic() - killed < TTL_S + 2

    third = celery_processes.beat(name="beat-2", CHRONOS_LEADER_TTL=str(TTL_S))
    celery_processes.wait_for_log(third, "beat_started")
    held = redis_server.get(LOCK)
    stopped = time.monotonic()
    os.kill(replicas[1 - leading].pid, signal.SIGTERM)
    wait_until(lambda: redis_server.get(LOCK) not in {held, None}, timeout_s=15)
    before = ticks(redis_server)
    wait_until(lambda: ticks(redis_server) > before, timeout_s=15)
    assert time.monotonic() - stopped < 2 + 1  # One more second for the tick that shows it.


def test_a_leader_that_sleeps_through_its_ttl_steps_down_and_two_never_send_at_once(
    celery_processes: SiteProcesses, redis_server: redis.Redis
) -> None:
    replicas = [celery_processes.beat(name=f"beat-{n}", CHRONOS_LEADER_TTL=str(TTL_S)) for n in range(2)]
    wait_until(lambda: ticks(redis_server) > 1, timeout_s=20)
    leading = leader_of(celery_processes, *replicas)
    held = redis_server.get(LOCK)
    os.kill(replicas[leading].pid, signal.SIGSTOP)
    wait_until(lambda: redis_server.get(LOCK) not in {held, None}, timeout_s=15)
    new = redis_server.get(LOCK)
    os.kill(replicas[leading].pid, signal.SIGCONT)
    celery_processes.wait_for_log(replicas[leading], "leader_stepped_down")
    assert redis_server.get(LOCK) == new


def test_a_lock_that_somebody_deleted_is_taken_again(
    celery_processes: SiteProcesses, redis_server: redis.Redis
) -> None:
    celery_processes.beat(name="beat-0", CHRONOS_LEADER_TTL=str(TTL_S))
    wait_until(lambda: ticks(redis_server) > 1, timeout_s=20)
    redis_server.delete(LOCK)
    wait_until(lambda: redis_server.exists(LOCK), timeout_s=10)
    before = ticks(redis_server)
    wait_until(lambda: ticks(redis_server) > before + 1, timeout_s=10)
