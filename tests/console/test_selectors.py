"""What operators read of the whole site: right, bound to the workspaces that are asked for, and by indexes."""

from datetime import timedelta
from typing import Any

import pytest
import redis
from django.db import connection
from django.utils import timezone

from chronos_site.console.selectors import ahead, busiest, minutes, state
from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.models import DeadLetter, Execution, Worker
from tests.clients import ApiClient
from tests.console.plans import indexes_in, plans_of
from tests.making import age, copy_execution, make_executions, make_job

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"


def ended(workspace: Workspace, end: str, count: int, *, ago_s: float, late_s: float = 0.05, **fields: Any) -> None:
    """So many executions that ended some time ago."""
    made = make_executions(workspace, URL, count, **fields)
    at = database_now() - timedelta(seconds=ago_s)
    Execution.objects.filter(id__in=[row.id for row in made]).update(
        state=end,
        bucket_id=None,
        attempt=1,
        due_at=at - timedelta(seconds=late_s),
        started_at=at,
        finished_at=at,
        last_duration_ms=12.0,
        last_error="" if end == "SUCCEEDED" else "timeout",
    )


def test_minutes_tell_what_was_delivered_failed_and_late(workspace: Workspace, other_workspace: Workspace) -> None:
    ended(workspace, "SUCCEEDED", 99, ago_s=300, late_s=0.05)
    ended(workspace, "FAILED", 1, ago_s=300, late_s=20)
    ended(other_workspace, "SUCCEEDED", 5, ago_s=300)
    ended(workspace, "CANCELLED", 2, ago_s=300)
    for _kept in (False, True):
        found = minutes.minutes_until_now(workspace_ids=[workspace.id], budget_s=30)
        assert len(found) == 60
        assert all(minute.counted for minute in found)
        [busy] = [minute for minute in found if minute.delivered]
        assert (busy.delivered, busy.failed, busy.ended_otherwise) == (99, 1, 2)
        assert busy.late_p50_ms == pytest.approx(50, rel=0.25)
        assert busy.late_p99_ms == pytest.approx(50, rel=0.25)
        assert sum(minute.delivered for minute in minutes.minutes_until_now(budget_s=30)) == 104
        assert not any(minute.delivered for minute in minutes.minutes_until_now(workspace_ids=[], budget_s=30))


def test_a_minute_that_is_over_is_counted_once(workspace: Workspace, redis_server: redis.Redis) -> None:
    ended(workspace, "SUCCEEDED", 3, ago_s=600)
    minutes.minutes_until_now(budget_s=30)
    Execution.objects.all().delete()
    assert sum(minute.delivered for minute in minutes.minutes_until_now(budget_s=30)) == 3
    redis_server.flushdb()
    assert sum(minute.delivered for minute in minutes.minutes_until_now(budget_s=30)) == 0


def test_without_the_time_for_it_minutes_say_that_they_are_not_counted(workspace: Workspace) -> None:
    ended(workspace, "SUCCEEDED", 3, ago_s=600)
    found = minutes.minutes_until_now(budget_s=0)
    assert not any(minute.counted for minute in found)


def test_what_is_due_counts_executions_and_what_schedules_will_make(
    api: ApiClient, workspace: Workspace, other_workspace: Workspace
) -> None:
    make_executions(workspace, URL, 3, due_at=database_now() + timedelta(minutes=10))
    make_executions(other_workspace, URL, 2, due_at=database_now() + timedelta(minutes=10))
    for rhythm in ({"cron": "*/5 * * * *", "timezone": "UTC"}, {"every": "10m"}):
        answer = api.post("/v1/schedules", {"target": {"url": "https://example.com/"}, **rhythm})
        assert answer.status_code == 201, answer.json()
    found = ahead.due_ahead(workspace_ids=[workspace.id])
    assert len(found.minutes) == 60
    assert found.complete
    # 12 by cron and 6 by interval in an hour, of which those of the next two minutes exist already.
    pending = sum(minute.pending for minute in found.minutes)
    expected = sum(minute.expected for minute in found.minutes)
    assert 3 <= pending <= 3 + 3
    assert 3 + 16 <= pending + expected <= 3 + 20
    assert sum(minute.pending for minute in ahead.due_ahead().minutes) == pending + 2
    nothing = ahead.due_ahead(workspace_ids=[])
    assert sum(minute.pending + minute.expected for minute in nothing.minutes) == 0


def test_a_minute_with_more_than_is_counted_says_so(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MOST_PENDING", 2)
    make_executions(workspace, URL, 3, due_at=database_now() + timedelta(minutes=5))
    [full] = [minute for minute in ahead.due_ahead().minutes if minute.pending]
    assert (full.pending, full.more) == (2, True)


def test_the_busiest_are_told_by_job_and_by_workspace(workspace: Workspace, other_workspace: Workspace) -> None:
    quiet, loud = make_job(workspace, URL, name="quiet"), make_job(workspace, URL, name="loud")
    ended(workspace, "SUCCEEDED", 1, ago_s=20, job=quiet, late_s=9)
    ended(workspace, "FAILED", 4, ago_s=20, job=loud)
    ended(other_workspace, "SUCCEEDED", 3, ago_s=20)
    by_job = busiest.busiest(window_s=600, order="failed")
    assert [(row.job, row.delivered, row.failed, row.last_error) for row in by_job.rows] == [
        ("loud", 0, 4, "timeout"),
        (None, 3, 0, None),
        ("quiet", 1, 0, None),
    ]
    assert not by_job.cut
    assert busiest.busiest(window_s=600, order="late").rows[0].job == "quiet"
    by_workspace = busiest.busiest(window_s=600, by_job=False, workspace_ids=[workspace.id])
    assert [(row.workspace, row.job, row.delivered, row.failed) for row in by_workspace.rows] == [("acme", None, 1, 4)]
    assert busiest.busiest(window_s=600, workspace_ids=[]).rows == []


def test_the_worst_jobs_are_those_with_the_most_dead_letters(workspace: Workspace, other_workspace: Workspace) -> None:
    job = make_job(workspace, URL, name="bad")
    for mine, count in ((workspace, 3), (other_workspace, 1)):
        for execution in make_executions(mine, URL, count, job=job if mine == workspace else None):
            DeadLetter.objects.create(
                id=execution.id,
                workspace=mine,
                job_definition_id=execution.job_definition_id,
                reason="attempts_exhausted",
                last_error="timeout",
                attempts=5,
            )
    DeadLetter.objects.filter(workspace=workspace).update(created_at=database_now())
    first, second = busiest.worst_jobs()
    assert (first.job, first.failed, first.open, first.error, first.reason) == (
        "bad",
        3,
        3,
        "timeout",
        "attempts_exhausted",
    )
    assert (second.workspace, second.job, second.failed) == ("globex", None, 1)
    assert [row.workspace for row in busiest.worst_jobs(workspace_ids=[other_workspace.id])] == ["globex"]


# --- plans ---------------------------------------------------------------------------------------


@pytest.fixture
def large(workspace: Workspace) -> None:
    """A table that looks like one of much history and much work ahead."""
    [template] = make_executions(workspace, URL, due_at=timezone.now() + timedelta(minutes=30))
    times = "now() - n * interval '40 seconds'"
    copy_execution(template, 20_000, state="'SUCCEEDED'", bucket_id="NULL", finished_at=times, attempt="1")
    copy_execution(template, 10_000, bucket_id="(extract(epoch FROM now())::bigint / 60 + n) * 1024")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE execution_execution")


@pytest.mark.usefixtures("large")
def test_what_operators_read_of_executions_is_read_by_an_index() -> None:
    table = "execution_execution"
    for call, index in (
        (lambda: minutes.minutes_until_now(minutes=2, budget_s=30), "execution_finished"),
        (lambda: busiest.busiest(), "execution_finished"),
        (lambda: ahead.due_ahead(), "execution_pending"),
    ):
        for plan in plans_of(call, table):
            assert indexes_in(plan, table) == {index}, plan


@pytest.mark.usefixtures("large")
def test_a_snapshot_reads_executions_by_indexes_alone() -> None:
    for plan in plans_of(state.read_snapshot, "execution_execution"):
        assert "the whole table" not in indexes_in(plan, "execution_execution"), plan


def test_a_snapshot_says_what_waits_and_what_ended(workspace: Workspace, other_workspace: Workspace) -> None:
    age(make_executions(workspace, URL, 2), by=timedelta(minutes=3))
    make_executions(workspace, URL, 4, due_at=database_now() + timedelta(minutes=3))
    [retrying] = make_executions(other_workspace, URL)
    Execution.objects.filter(id=retrying.id).update(
        state="RETRYING", bucket_id=None, due_at=database_now() - timedelta(minutes=9)
    )
    ended(workspace, "FAILED", 2, ago_s=5)
    ended(workspace, "SUCCEEDED", 1, ago_s=5)
    snapshot = state.read_snapshot()
    assert snapshot.away == {}
    assert snapshot.work is not None
    assert snapshot.at is not None
    assert snapshot.work.oldest_due_at is not None
    assert timedelta(minutes=9) <= snapshot.at - snapshot.work.oldest_due_at < timedelta(minutes=12)
    assert (snapshot.work.overdue, snapshot.work.retrying) == (3, 1)
    assert (snapshot.work.delivered_last_minute, snapshot.work.failed_last_minute) == (1, 2)
    mine = state.read_snapshot(workspace_ids=[other_workspace.id]).work
    assert mine is not None
    assert (mine.overdue, mine.failed_last_minute) == (1, 0)
    nothing = state.read_snapshot(workspace_ids=[]).work
    assert nothing is not None
    assert (nothing.overdue, nothing.retrying, nothing.failed_last_minute) == (0, 0, 0)


def test_a_snapshot_tells_leaders_queues_and_workers(workspace: Workspace, redis_server: redis.Redis) -> None:
    redis_server.set("chronos:leader:retry", "token", px=20_000)
    redis_server.set("chronos:leader:retry:epoch", 7)
    redis_server.lpush("bulk-records", "a", "b")
    now = database_now()
    for name, age_s, in_flight, stopping in (("a", 2, 3, False), ("b", 99, 0, False), ("c", 1, 1, True)):
        Worker.objects.create(
            id=new_id(),
            name=name,
            started_at=now,
            heartbeat_at=now - timedelta(seconds=age_s),
            in_flight=in_flight,
            stopping=stopping,
        )
    snapshot = state.read_snapshot()
    assert [(leader.loop, leader.held, leader.epoch) for leader in snapshot.leaders or []] == [
        ("scheduler", False, 0),
        ("retry", True, 7),
        ("monitor", False, 0),
    ]
    assert {queue.queue: queue.messages for queue in snapshot.queues or []}["bulk-records"] == 2
    assert [(worker.name, worker.state) for worker in snapshot.workers or []] == [
        ("a", "busy"),
        ("b", "stale"),
        ("c", "draining"),
    ]
