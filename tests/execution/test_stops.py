"""Real workers that are stopped, politely or not, and links to the broker that go silent: what that costs."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from urllib.parse import urlsplit
from uuid import UUID

import pytest
import redis
from django.conf import settings
from django.db.models import F

from chronos_site.infra.clock import database_now
from chronos_site.stack.processes import Child
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import publish, transitions
from execution.loops import monitor, retry
from execution.models import Bucket, Execution, Worker
from scheduling.loops import fire
from tests.clients import ProgrammableReceiver
from tests.making import make_executions, states_of
from tests.processes import SiteProcesses, wait_until
from tests.proxy import Proxy

pytestmark = pytest.mark.django_db(transaction=True)

LOST_S, TICK_S = 30, 10
"""A worker that has been silent for so long has lost its claims, and a row its message; how often the monitor looks."""
SHIFT_S = 18
"""Tests do not wait for all of it: so much is taken off the times in the tables."""


def send(rows: Sequence[Execution], *, chunk: int = publish.CHUNK) -> list[UUID]:
    """Queue rows and publish them, as fan-out does, but whatever their time."""
    ids = transitions.queue_pending(ids=[row.id for row in rows])
    assert len(ids) == len(rows)
    for start in range(0, len(ids), chunk):
        assert publish.publish_dispatch(ids[start : start + chunk]) == []
    return ids


def all_are(ids: Sequence[UUID], state: str) -> bool:
    return set(states_of(ids).values()) == {state}


def arrived(receiver: ProgrammableReceiver, ids: Sequence[UUID]) -> Counter[str]:
    """How many requests came for each of `ids`."""
    wanted = {str(i) for i in ids}
    return Counter(r.execution_id for r in receiver.requests if r.execution_id in wanted)


def attempts(receiver: ProgrammableReceiver, row_id: UUID) -> list[str]:
    return [r.headers["x-attempt-number"] for r in receiver.requests if r.execution_id == str(row_id)]


def in_hand(server: redis.Redis) -> int:
    """Messages that workers have taken and not yet acknowledged."""
    return int(server.hlen("unacked"))


def ended(child: Child) -> int | None:
    return child.popen.poll()


@pytest.fixture
def redis_link() -> Iterator[Proxy]:
    parts = urlsplit(settings.REDIS_URL)
    with Proxy(str(parts.hostname), parts.port or 6379) as proxy:
        yield proxy


def test_sigterm_finishes_what_is_in_flight_and_gives_the_rest_to_another_worker_at_no_charge(
    celery_processes: SiteProcesses, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    first = celery_processes.worker(name="first", queues="job-dispatch")
    receiver.answer(Answer(delay_s=60), path="/slow")
    slow = send(make_executions(workspace, receiver.url("/slow"), 3, timeout_s=60.0))
    later = send(make_executions(workspace, receiver.url("/later"), 5, due_at=database_now() + timedelta(seconds=9)))
    wait_until(lambda: all_are(later, "RUNNING") and len(receiver.requests) == 3)
    second = celery_processes.worker(name="second", queues="job-dispatch")
    wait_until(lambda: Worker.objects.filter(name__endswith=f":{second.pid}").exists())
    other = Worker.objects.get(name__endswith=f":{second.pid}").id

    os.kill(first.pid, signal.SIGTERM)
    wait_until(
        lambda: Execution.objects.filter(id__in=later, state="RUNNING", worker_id=other, attempt=0).count() == 5,
        timeout_s=2,
        told=lambda: celery_processes.log(first)[-2000:],
    )
    os.kill(first.pid, signal.SIGTERM)  # A second one changes nothing.
    time.sleep(1)
    assert ended(first) is None, "sends under way may end within the grace"
    receiver.release()
    wait_until(lambda: ended(first) is not None)
    assert ended(first) == 0
    assert all_are(slow, "SUCCEEDED")
    assert set(arrived(receiver, slow).values()) == {1}

    wait_until(lambda: all_are(later, "SUCCEEDED"), timeout_s=15)
    assert set(arrived(receiver, later).values()) == {1}
    assert set(Execution.objects.filter(id__in=[*slow, *later]).values_list("attempt", "unknown_outcomes")) == {(1, 0)}


def test_sigterm_while_redis_is_away_puts_the_rest_back_where_the_loops_find_it_at_once_and_ends_with_its_grace(
    celery_processes: SiteProcesses,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    redis_link: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the end of the grace cuts is an unknown outcome."""
    monkeypatch.setattr(monitor, "STEADY_S", 0)
    worker = celery_processes.worker(
        name="dispatch", queues="job-dispatch", REDIS_URL=redis_link.through(settings.REDIS_URL)
    )
    receiver.answer(Answer(delay_s=60), path="/slow")
    [cut] = send(make_executions(workspace, receiver.url("/slow"), timeout_s=60.0))
    due_at = database_now() + timedelta(seconds=5)
    fresh = make_executions(workspace, receiver.url(), 3, due_at=due_at)
    [again] = make_executions(workspace, receiver.url(), due_at=due_at)
    Execution.objects.filter(id=again.id).update(state="RETRYING", bucket_id=None, attempt=1)
    send(fresh)
    assert transitions.queue_retrying(horizon_s=60, most=10) == [again.id]
    assert publish.publish_dispatch([again.id]) == []
    ids = [row.id for row in [*fresh, again]]
    wait_until(lambda: all_are([cut, *ids], "RUNNING") and len(receiver.requests) == 1)
    Bucket.objects.update(state="CLOSED")

    redis_link.refuse()
    redis_link.reset()
    asked = time.monotonic()
    os.kill(worker.pid, signal.SIGTERM)
    wait_until(
        lambda: all_are(ids[:3], "PENDING") and all_are([again.id], "RETRYING"),
        timeout_s=5,
        told=lambda: celery_processes.log(worker)[-3000:],
    )
    wait_until(lambda: ended(worker) is not None, timeout_s=15)
    assert settings.CHRONOS_STOP_GRACE_S <= time.monotonic() - asked < settings.CHRONOS_STOP_GRACE_S + 4
    assert set(Execution.objects.filter(id__in=ids).values_list("attempt", "worker_id", "lease_until")) == {
        (0, None, None),
        (1, None, None),
    }

    wait_until(lambda: database_now() > due_at)
    assert fire.fire_due_buckets().triggered >= 1
    assert retry.queue_due_retries() == 1
    assert all_are([cut], "RUNNING")
    Worker.objects.update(heartbeat_at=F("heartbeat_at") - timedelta(seconds=LOST_S))
    assert monitor.mend().unknown_outcomes == 1
    assert all_are([cut], "RETRYING")


def test_sigquit_cuts_sends_at_once_and_charges_nothing_that_had_not_begun(
    celery_processes: SiteProcesses, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    worker = celery_processes.worker(name="dispatch", queues="job-dispatch")
    receiver.answer(Answer(delay_s=60))
    [cut] = send(make_executions(workspace, receiver.url(), timeout_s=60.0))
    later = send(make_executions(workspace, receiver.url(), 2, due_at=database_now() + timedelta(seconds=60)))
    wait_until(lambda: all_are([cut, *later], "RUNNING") and len(receiver.requests) == 1)
    os.kill(worker.pid, signal.SIGQUIT)
    wait_until(lambda: ended(worker) is not None, timeout_s=5)
    assert all_are([cut], "RUNNING")
    # Given back if there was the time for it, else found by their lease: at no charge either way.
    assert set(Execution.objects.filter(id__in=later).values_list("state", "attempt")) <= {
        ("QUEUED", 0),
        ("RUNNING", 0),
    }
    assert len(receiver.requests) == 1


def test_a_killed_worker_costs_at_most_the_lease_and_a_tick_of_the_monitor(
    celery_processes: SiteProcesses,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    redis_server: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed with one send under way, with claims whose time has not come, and with a message not yet claimed."""
    monkeypatch.setattr(monitor, "STEADY_S", 0)
    worker = celery_processes.worker(name="dispatch", queues="job-dispatch", concurrency=2, CHRONOS_MAX_IN_FLIGHT="3")
    receiver.answer(Answer(hang=True), path="/mid")
    [mid] = send(make_executions(workspace, receiver.url("/mid"), timeout_s=60.0))
    soon = database_now() + timedelta(seconds=6)
    claimed = send(make_executions(workspace, receiver.url("/claimed"), 2, due_at=soon))
    wait_until(lambda: all_are([mid, *claimed], "RUNNING") and len(receiver.requests) == 1)
    [held] = send(make_executions(workspace, receiver.url("/held")))
    wait_until(lambda: redis_server.llen("job-dispatch") == 0)
    everything = [mid, *claimed, held]

    os.kill(worker.pid, signal.SIGKILL)
    killed = time.monotonic() - SHIFT_S
    Worker.objects.update(heartbeat_at=F("heartbeat_at") - timedelta(seconds=SHIFT_S))
    Execution.objects.filter(id=held).update(lease_until=F("lease_until") - timedelta(seconds=SHIFT_S))
    receiver.answer(Answer(), path="/mid")
    celery_processes.worker(name="second", queues="job-dispatch")
    ticked = 0.0
    recovered: dict[UUID, float] = {}
    while len(recovered) < len(everything):
        assert time.monotonic() - killed < LOST_S + TICK_S, recovered
        if time.monotonic() - ticked > 1:
            ticked = time.monotonic()
            monitor.mend()
            retry.queue_due_retries()
        for row_id, state in states_of(everything).items():
            if state == "SUCCEEDED":
                recovered.setdefault(row_id, time.monotonic() - killed)
        time.sleep(0.1)

    assert [attempts(receiver, row_id) for row_id in [*claimed, held]] == [["1"], ["1"], ["1"]], "not begun: one send"
    assert attempts(receiver, mid) == ["1", "2"], "its outcome is not known, so it was sent again"
    charged = dict(Execution.objects.filter(id__in=everything).values_list("id", "unknown_outcomes"))
    assert charged == {mid: 1, **dict.fromkeys([*claimed, held], 0)}
    # Its last heartbeat was up to 5 s old when it was killed.
    assert min(recovered.values()) >= LOST_S - 6, "a worker that is only slow keeps its claims"


@pytest.fixture
def more_receivers() -> Iterator[list[ProgrammableReceiver]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ProgrammableReceiver()) for _ in range(3)]


def test_links_to_the_broker_that_go_silent_idle_or_busy_are_made_anew_within_25_seconds(
    celery_processes: SiteProcesses,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    redis_link: Proxy,
    redis_server: redis.Redis,
    more_receivers: list[ProgrammableReceiver],
) -> None:
    """An idle fan-out worker and a dispatch worker that is full; what comes after the silence goes through both."""
    through = redis_link.through(settings.REDIS_URL)
    fan_out = celery_processes.worker(name="fan-out", queues="bucket-triggers", concurrency=2, REDIS_URL=through)
    dispatch = celery_processes.worker(
        name="dispatch", queues="job-dispatch", concurrency=2, REDIS_URL=through, CHRONOS_MAX_IN_FLIGHT="4"
    )
    # The way of one job first, so that every kind of link is open and has been used.
    [first] = make_executions(workspace, receiver.url())
    wait_until(lambda: all_are([first.id], "SUCCEEDED"))
    # Four are being sent and fill the slots, so both threads hold a message whose rows wait for one. To as many hosts,
    # for one host would not get them all.
    hosts = [receiver, *more_receivers]
    for host in hosts:
        host.answer(Answer(delay_s=4), path="/busy")
    busy = [row.id for _ in range(3) for host in hosts for row in make_executions(workspace, host.url("/busy"))]
    wait_until(lambda: sum(len(host.requests) for host in hosts) >= 5 and in_hand(redis_server) >= 2, timeout_s=15)

    links = redis_link.links
    assert links >= 6
    redis_link.blackhole()
    silent = time.monotonic()
    # A poll that the silence caught still waits at the broker for its last second; what it would take is lost, and is
    # the monitor's to find.
    time.sleep(1.5)
    after = [row.id for row in make_executions(workspace, receiver.url("/after"), 10)]

    def delivered() -> bool:
        fire.fire_due_buckets()
        retry.queue_due_retries()  # Their host is one of the busy ones: some may find no place at first.
        return all_are(after, "SUCCEEDED")

    wait_until(
        delivered,
        timeout_s=25 - (time.monotonic() - silent),
        step_s=1,
        told=lambda: celery_processes.log(fan_out)[-3000:] + celery_processes.log(dispatch)[-3000:],
    )
    assert set(arrived(receiver, after).values()) == {1}
    # Results went to Postgres all the while. A message that was on the way into the silence waits for the monitor.
    assert Execution.objects.filter(id__in=busy, state="SUCCEEDED").count() >= 4
    assert [max(arrived(host, busy).values(), default=1) for host in hosts] == [1] * len(hosts)
