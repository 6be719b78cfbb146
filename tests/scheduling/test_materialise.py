"""Materialising and misfires against real rows: made once, two minutes ahead; after an outage as the policy says."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import fanout, services
from execution.models import Bucket, Execution
from scheduling import recurring
from scheduling.loops import ahead
from scheduling.loops.materialise import materialise_due
from scheduling.loops.misfire import judge_missed
from scheduling.models import Schedule
from scheduling.recurring import Recurring
from tests.making import make_job
from tests.threads import in_thread

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"
TARGET = {"url": URL, "method": "POST", "headers": {}}


def make(workspace: Workspace, cron: str = "* * * * *", **fields: Any) -> Schedule:
    if "every_s" in fields:
        cron = ""
    return recurring.create_recurring(workspace=workspace, new=Recurring(cron=cron, target=TARGET, **fields))


def times_of(schedule: Schedule, **filters: Any) -> list[datetime]:
    rows = Execution.objects.filter(schedule_id=schedule.id, **filters).order_by("scheduled_for")
    return list(rows.values_list("scheduled_for", flat=True))


def fan_out() -> None:
    for bucket_id in Bucket.objects.values_list("id", flat=True):
        fanout.fan_out(bucket_id=bucket_id)


def rewind(schedule: Schedule, *, by: timedelta, made: int = 0) -> datetime:
    """As if all had been down since `by` ago: the schedule stands where it stood, with `made` occurrences made."""
    since = (database_now() - by).replace(second=0, microsecond=0)
    Execution.objects.filter(schedule_id=schedule.id).delete()
    Schedule.objects.filter(id=schedule.id).update(next_run_at=since, run_count=0)
    if made:
        schedule.refresh_from_db()
        _make_as_if_then(schedule, since, made)
    return since


def _make_as_if_then(schedule: Schedule, since: datetime, made: int) -> None:
    template = recurring.run_schedule(
        workspace=schedule.workspace, schedule_id=schedule.id, payload=None, traceparent=""
    )
    for number in range(made):
        at = since + timedelta(minutes=number)
        bucket_id = int(at.timestamp() // 60) * 1024
        services.buckets.open_buckets([bucket_id])
        Execution.objects.create(
            **{
                **{f.attname: getattr(template, f.attname) for f in Execution._meta.fields},
                "id": UUID(int=template.id.int + number + 1),
                "scheduled_for": at,
                "due_at": at,
                "start_deadline": at + timedelta(seconds=60),
                "on_deadline": "misfire",
                "trigger": "schedule",
                "bucket_id": bucket_id,
            }
        )
    Execution.objects.filter(id=template.id).delete()
    Schedule.objects.filter(id=schedule.id).update(next_run_at=since + timedelta(minutes=made), run_count=made)


def tick() -> None:
    fan_out()
    judge_missed()
    materialise_due()


def test_a_new_schedule_has_its_next_two_minutes_made_with_it(workspace: Workspace) -> None:
    schedule = make(workspace, "*/30 * * * * *")
    times = times_of(schedule)
    assert len(times) == 4
    assert all(b - a == timedelta(seconds=30) for a, b in pairwise(times))
    assert schedule.next_run_at == times[-1] + timedelta(seconds=30)
    assert schedule.run_count == 4
    row = Execution.objects.filter(schedule_id=schedule.id).earliest("scheduled_for")
    assert (row.trigger, row.run_no, row.state, row.target) == ("schedule", 0, "PENDING", TARGET)
    assert row.start_deadline == row.scheduled_for + timedelta(seconds=60)


def test_the_next_time_comes_from_the_nominal_one_and_never_from_now(workspace: Workspace) -> None:
    schedule = make(workspace, every_s=7)
    first = schedule.anchor
    assert first is not None
    for _ in range(3):
        Schedule.objects.update(next_run_at=times_of(schedule)[-1] + timedelta(seconds=7))
        materialise_due()
    assert {(at - first).total_seconds() % 7 for at in times_of(schedule)} == {0.0}


def test_a_second_tick_makes_nothing_twice(workspace: Workspace) -> None:
    schedule = make(workspace, "* * * * * *")
    before = times_of(schedule)
    Schedule.objects.update(next_run_at=before[0], run_count=0)
    assert materialise_due().made <= 2  # A second or two have passed.
    assert times_of(schedule)[: len(before)] == before


def test_two_leaders_at_once_make_every_occurrence_once(workspace: Workspace) -> None:
    schedules = [make(workspace, "*/5 * * * * *") for _ in range(40)]
    Execution.objects.all().delete()
    start = database_now().replace(microsecond=0)
    Schedule.objects.update(next_run_at=start - timedelta(seconds=start.second % 5))
    barrier = threading.Barrier(2)
    threads = [in_thread(_materialise_at(barrier)) for _ in range(2)]
    for thread in threads:
        thread.join()
    materialise_due()
    for schedule in schedules:
        times = times_of(schedule)
        assert len(times) == len(set(times)) >= 24
        assert all(b - a == timedelta(seconds=5) for a, b in pairwise(times))


def _materialise_at(barrier: threading.Barrier) -> Callable[[], None]:
    def run() -> None:
        barrier.wait(10)
        materialise_due(batch=3)

    return run


def test_a_long_look_ahead_leaves_the_other_threads_to_the_fire_loop(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, leave = threading.Event(), threading.Event()

    def long_look() -> int:
        inside.set()
        leave.wait(10)
        return 0

    monkeypatch.setattr(ahead, "judge_missed", long_look)
    thread = in_thread(lambda: ahead.look_ahead())
    assert inside.wait(10)
    assert ahead.look_ahead() is False
    leave.set()
    thread.join()
    assert ahead.look_ahead() is True


def test_jitter_moves_the_due_time_by_an_offset_that_a_failover_does_not_change(workspace: Workspace) -> None:
    schedule = make(workspace, "*/20 * * * * *", jitter_s=15.0)

    def due() -> dict[datetime, datetime]:
        return dict(Execution.objects.filter(schedule_id=schedule.id).values_list("scheduled_for", "due_at"))

    before = due()
    Execution.objects.all().delete()
    Schedule.objects.update(next_run_at=min(before), run_count=0)
    materialise_due()
    assert {at: due()[at] for at in before} == before
    offsets = {(due_at - at).total_seconds() for at, due_at in before.items()}
    assert len(offsets) > 1
    assert all(0 <= offset < 15 for offset in offsets)


def test_an_end_and_a_number_of_runs_stop_it(workspace: Workspace) -> None:
    soon = database_now() + timedelta(seconds=31)
    ends = make(workspace, every_s=10, ends_at=soon)
    limited = make(workspace, every_s=10, max_runs=2)
    assert [len(times_of(ends)), len(times_of(limited))] == [3, 2]
    assert (ends.next_run_at, limited.next_run_at) == (None, None)


def test_a_schedule_that_cannot_be_followed_is_paused_with_the_reason_and_holds_up_nobody(
    workspace: Workspace,
) -> None:
    bad, good = make(workspace), make(workspace)
    Execution.objects.all().delete()
    Schedule.objects.filter(id=bad.id).update(timezone="Mars/Olympus", next_run_at=database_now())
    Schedule.objects.filter(id=good.id).update(next_run_at=database_now().replace(second=0, microsecond=0))
    assert materialise_due().paused == 1
    bad.refresh_from_db()
    assert (bad.state, "Mars/Olympus" in bad.pause_reason) == ("PAUSED", True)
    assert times_of(good)


# --- down for three hours and back -----------------------------------------------------------------------------


@pytest.mark.parametrize("made", [0, 2])
def test_fire_once_fires_the_latest_missed_only(workspace: Workspace, made: int) -> None:
    schedule = make(workspace, misfire="fire_once")
    rewind(schedule, by=timedelta(hours=3), made=made)
    tick()
    schedule.refresh_from_db()
    now = database_now()
    fired = times_of(schedule, start_deadline=None, state__in=["PENDING", "QUEUED"])
    assert len(fired) == 1
    assert timedelta(seconds=60) < now - fired[0] < timedelta(seconds=130)
    report = schedule.last_misfire
    assert report is not None
    assert (report["policy"], report["fired"]) == ("fire_once", 1)
    assert 177 <= schedule.missed_count <= 180
    skipped = Execution.objects.filter(schedule_id=schedule.id, state="SKIPPED")
    assert set(skipped.values_list("state_reason", flat=True)) == {"misfire_superseded"}
    assert skipped.count() >= 100
    assert times_of(schedule, state="PENDING", start_deadline__isnull=False), "it goes on"


@pytest.mark.parametrize("made", [0, 2])
def test_skip_fires_none_of_them_and_says_so(workspace: Workspace, made: int) -> None:
    schedule = make(workspace, misfire="skip")
    rewind(schedule, by=timedelta(hours=3), made=made)
    tick()
    schedule.refresh_from_db()
    assert times_of(schedule, start_deadline=None, state__in=["PENDING", "QUEUED"]) == []
    reasons = Execution.objects.filter(schedule_id=schedule.id, state="SKIPPED").values_list("state_reason", flat=True)
    assert set(reasons) == {"misfire_policy"}
    assert schedule.missed_count >= 178


@pytest.mark.parametrize("made", [0, 2])
def test_fire_all_fires_the_latest_n_inside_the_window(workspace: Workspace, made: int) -> None:
    schedule = make(workspace, misfire="fire_all", misfire_limit=50, catch_up_window_s=7200)
    rewind(schedule, by=timedelta(hours=3), made=made)
    tick()
    assert len(times_of(schedule, start_deadline=None, state__in=["PENDING", "QUEUED"])) == 50
    wide = make(workspace, misfire="fire_all", misfire_limit=1000, catch_up_window_s=7200)
    rewind(wide, by=timedelta(hours=3), made=made)
    tick()
    assert 117 <= len(times_of(wide, start_deadline=None, state__in=["PENDING", "QUEUED"])) <= 120


def test_what_was_missed_fires_in_order_and_is_never_judged_again(workspace: Workspace) -> None:
    schedule = make(workspace, misfire="fire_all", misfire_limit=5)
    rewind(schedule, by=timedelta(hours=3))
    tick()
    before = schedule_state(schedule)
    for _ in range(3):
        tick()
    assert schedule_state(schedule) == before


def schedule_state(schedule: Schedule) -> tuple[int, int]:
    schedule.refresh_from_db()
    return schedule.missed_count, len(times_of(schedule, start_deadline=None))


def test_a_job_that_was_paused_for_hours_follows_the_policy_on_resume(workspace: Workspace) -> None:
    job = make_job(workspace, URL)
    schedule = recurring.create_recurring(
        workspace=workspace, new=Recurring(cron="* * * * *", job_definition=job, misfire="fire_once")
    )
    rewind(schedule, by=timedelta(hours=1), made=5)
    services.pause_job_definition(workspace=workspace, job_id=job.id)
    tick()
    services.resume_job_definition(workspace=workspace, job_id=job.id)
    tick()
    tick()
    assert len(times_of(schedule, start_deadline=None, state__in=["PENDING", "QUEUED"])) >= 1
    assert not Execution.objects.filter(park_reason="misfire").exists()


def test_months_of_every_second_cost_what_one_fire_costs(workspace: Workspace) -> None:
    schedule = make(workspace, "* * * * * *", misfire="fire_once")
    rewind(schedule, by=timedelta(days=200))
    begun = datetime.now(UTC)
    materialise_due()
    assert datetime.now(UTC) - begun < timedelta(seconds=3)
    schedule.refresh_from_db()
    assert schedule.missed_count > 200 * 86_400 - 200


def test_an_occurrence_within_the_grace_just_fires_late(workspace: Workspace) -> None:
    schedule = make(workspace, misfire="skip", misfire_grace_s=300)
    rewind(schedule, by=timedelta(minutes=3))
    tick()
    fan_out()
    late = times_of(schedule, state="QUEUED")
    assert len(late) >= 3
