"""The monitor: what a crash or a lost message leaves is found and mended."""

from datetime import timedelta

import pytest
import redis
from django.db import connection
from django.utils import timezone

from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.fanout import LEAST_BACKLOG
from execution.loops import monitor
from execution.models import Bucket, DeadLetter, Execution, Loop, Worker
from tests.broker import queued_ids
from tests.making import make_executions, states_of

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Postgres and the loop had been there for long."""
    monkeypatch.setattr(monitor, "STEADY_S", 0)


def running(workspace: Workspace, **fields: object) -> Execution:
    """A row under a claim whose lease has run out, its send not begun."""
    [row] = make_executions(workspace, URL)
    given = {"claim_seq": 1, "lease_until": timezone.now() - timedelta(seconds=1), **fields}
    Execution.objects.filter(id=row.id).update(state="RUNNING", **given)
    row.refresh_from_db()
    return row


def test_a_lost_claim_that_had_not_begun_to_send_goes_back_at_no_charge(workspace: Workspace, steady: None) -> None:
    row = running(workspace)
    mended = monitor.mend()
    row.refresh_from_db()
    assert (row.state, row.state_reason, row.attempt, row.unknown_outcomes) == ("RETRYING", "claim_lost", 0, 0)
    assert (mended.lost_claims, mended.unknown_outcomes) == (1, 0)


def test_a_lost_claim_whose_send_may_have_begun_is_an_unknown_outcome_and_tried_again_past_the_policy(
    workspace: Workspace, steady: None
) -> None:
    row = running(workspace, begun_seq=1, attempt=1)
    assert monitor.mend().unknown_outcomes == 1
    row.refresh_from_db()
    assert (row.state, row.last_error, row.unknown_outcomes) == ("RETRYING", "unknown_outcome", 1)


def test_the_third_unknown_outcome_is_a_dead_letter(workspace: Workspace, steady: None) -> None:
    row = running(workspace, begun_seq=1, attempt=3, unknown_outcomes=2)
    assert monitor.mend().dead_letters == 1
    row.refresh_from_db()
    assert (row.state, row.finished_at is not None) == ("FAILED", True)
    assert DeadLetter.objects.get(id=row.id).reason == "unknown_outcome"


def test_a_lost_claim_that_was_asked_to_cancel_is_cancelled_if_nothing_was_sent(
    workspace: Workspace, steady: None
) -> None:
    row = running(workspace, cancel_requested_at=timezone.now())
    monitor.mend()
    assert states_of([row.id]) == {row.id: "CANCELLED"}


def test_a_claim_of_a_worker_that_has_been_silent_for_thirty_seconds_is_lost_before_its_lease(
    workspace: Workspace, steady: None
) -> None:
    now = timezone.now()
    silent, live = (
        Worker.objects.create(id=new_id(), name="w", started_at=now, heartbeat_at=now - timedelta(seconds=age))
        for age in (31, 5)
    )
    later = now + timedelta(minutes=5)
    lost = running(workspace, worker_id=silent.id, lease_until=later)
    kept = running(workspace, worker_id=live.id, lease_until=later)
    monitor.mend()
    assert states_of([lost.id, kept.id]) == {lost.id: "RETRYING", kept.id: "RUNNING"}


def test_no_lease_is_taken_until_ticks_have_come_for_45_seconds_without_a_gap(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = running(workspace)
    assert monitor.mend().waits
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())")
        up_s = float(cursor.fetchone()[0])
    monkeypatch.setattr(monitor, "STEADY_S", min(45, up_s - 1))
    assert monitor.mend().waits
    Loop.objects.update(steady_since=timezone.now() - timedelta(minutes=1))
    Loop.objects.update(ticked_at=timezone.now() - timedelta(seconds=31))
    assert monitor.mend().waits, "a gap between ticks begins the wait anew"
    assert states_of([row.id]) == {row.id: "RUNNING"}
    Loop.objects.update(steady_since=timezone.now() - timedelta(minutes=1))
    assert not monitor.mend().waits
    assert states_of([row.id]) == {row.id: "RETRYING"}


def test_a_queued_row_whose_message_was_lost_is_published_again_and_its_lease_doubles(
    workspace: Workspace, redis_server: redis.Redis
) -> None:
    lost, fresh = make_executions(workspace, URL, 2)
    now = timezone.now()
    Execution.objects.filter(id=lost.id).update(state="QUEUED", lease_until=now - timedelta(seconds=1))
    Execution.objects.filter(id=fresh.id).update(state="QUEUED", lease_until=now + timedelta(seconds=20))
    assert monitor.mend().published_again == 1
    assert queued_ids(redis_server) == [lost.id]
    lost.refresh_from_db()
    assert lost.lease_until is not None
    assert timedelta(seconds=50) < lost.lease_until - now < timedelta(seconds=70)
    assert monitor.mend().published_again == 0


def test_it_publishes_no_more_than_the_backlog_has_room_for(workspace: Workspace) -> None:
    make_executions(workspace, URL, 2600)
    Execution.objects.update(state="QUEUED", lease_until=timezone.now() - timedelta(seconds=1))
    assert monitor.mend().published_again == LEAST_BACKLOG * 100
    assert monitor.mend().published_again == 0


def test_a_closed_bucket_that_holds_a_pending_row_is_opened_again(workspace: Workspace) -> None:
    [row] = make_executions(workspace, URL)
    [future] = make_executions(workspace, URL, due_at=timezone.now() + timedelta(hours=1))
    Bucket.objects.update(state="CLOSED")
    assert monitor.mend().buckets_reopened >= 1
    assert Bucket.objects.get(id=row.bucket_id or 0).state == "OPEN"
    assert future.bucket_id != row.bucket_id


def test_a_second_tick_finds_nothing_left_to_mend(workspace: Workspace, steady: None) -> None:
    running(workspace, begun_seq=1, attempt=1)
    monitor.mend()
    again = monitor.mend()
    assert (again.lost_claims, again.published_again, again.buckets_reopened) == (0, 0, 0)
