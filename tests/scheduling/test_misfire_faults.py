"""What the judgement of missed occurrences must never do: count wrong, fire for who is paused, hold up others."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution.models import Execution
from scheduling import recurring
from scheduling.loops import ahead
from scheduling.loops.materialise import materialise_due
from scheduling.loops.misfire import judge_missed
from scheduling.models import Schedule
from scheduling.recurring import Recurring

pytestmark = pytest.mark.django_db(transaction=True)

TARGET = {"url": "http://127.0.0.1:9/", "method": "POST", "headers": {}}


def make(workspace: Workspace, **fields: Any) -> Schedule:
    cron = "" if "every_s" in fields else "* * * * *"
    return recurring.create_recurring(workspace=workspace, new=Recurring(cron=cron, target=TARGET, **fields))


def fall_behind(schedule: Schedule, *, by: timedelta) -> datetime:
    """As if the loops had been down since `by` ago, while people went on using the API."""
    since = (database_now() - by).replace(second=0, microsecond=0)
    Execution.objects.filter(schedule_id=schedule.id, trigger="schedule").delete()
    Schedule.objects.filter(id=schedule.id).update(next_run_at=since, run_count=0)
    return since


def park_missed(schedule: Schedule, at: datetime) -> Execution:
    """An occurrence that was made, passed its deadline and was parked by fan-out."""
    row = Execution.objects.filter(schedule_id=schedule.id).order_by("scheduled_for")[0]
    row.scheduled_for, row.due_at, row.start_deadline = at, at, at + timedelta(seconds=60)
    row.bucket_id, row.park_reason = None, "misfire"
    row.save()
    return row


def run_by_hand(schedule: Schedule, *, ago: timedelta) -> None:
    made = recurring.run_schedule(workspace=schedule.workspace, schedule_id=schedule.id, payload=None, traceparent="")
    Execution.objects.filter(id=made.id).update(scheduled_for=database_now() - ago)


def count_told(schedule: Schedule) -> tuple[int, int]:
    """Missed and fired by the report; the schedule's own count must agree with it."""
    schedule.refresh_from_db()
    assert schedule.last_misfire is not None
    missed, fired = schedule.last_misfire["missed"], schedule.last_misfire["fired"]
    assert schedule.missed_count == schedule.last_misfire["skipped"] == missed - fired
    return missed, fired


def test_runs_by_hand_during_an_outage_do_not_count_as_missed_and_hold_up_nobody(
    workspace: Workspace, other_workspace: Workspace
) -> None:
    schedule, other = make(workspace, every_s=3600), make(other_workspace)
    since = fall_behind(schedule, by=timedelta(minutes=90))
    Schedule.objects.filter(id=schedule.id).update(anchor=since)
    for number in range(5):
        run_by_hand(schedule, ago=timedelta(minutes=10 + number))
    fall_behind(other, by=timedelta(seconds=30))
    materialise_due()
    assert count_told(schedule) == (2, 1)
    assert Execution.objects.filter(schedule_id=other.id, scheduled_for__gt=database_now()).exists()


def test_a_resume_after_runs_by_hand_judges_what_was_missed(workspace: Workspace) -> None:
    schedule = make(workspace, every_s=3600)
    recurring.pause_schedule(workspace=workspace, schedule_id=schedule.id)
    since = fall_behind(schedule, by=timedelta(minutes=50))
    Schedule.objects.filter(id=schedule.id).update(anchor=since)
    for number in range(4):
        run_by_hand(schedule, ago=timedelta(minutes=10 + number))
    recurring.resume_schedule(workspace=workspace, schedule_id=schedule.id)
    assert count_told(schedule) == (1, 1)


def test_what_is_on_record_from_another_rhythm_is_no_occurrence_of_this_one(workspace: Workspace) -> None:
    schedule = make(workspace, every_s=3600)
    since = fall_behind(schedule, by=timedelta(minutes=50))
    Schedule.objects.filter(id=schedule.id).update(anchor=since)
    skipped = recurring.skip_next(workspace=workspace, schedule_id=schedule.id)
    Execution.objects.filter(id=skipped.id).update(scheduled_for=since + timedelta(minutes=7))
    materialise_due()
    assert count_told(schedule) == (1, 1)


def test_what_was_backfilled_meanwhile_was_not_missed(workspace: Workspace) -> None:
    schedule = make(workspace, every_s=3600)
    since = fall_behind(schedule, by=timedelta(minutes=90))
    Schedule.objects.filter(id=schedule.id).update(anchor=since)
    run_by_hand(schedule, ago=timedelta(minutes=10))
    Execution.objects.filter(schedule_id=schedule.id).update(scheduled_for=since, trigger="backfill")
    materialise_due()
    assert count_told(schedule) == (1, 1)


def test_a_parked_occurrence_of_a_schedule_that_cannot_be_followed_holds_up_nobody(
    workspace: Workspace, other_workspace: Workspace
) -> None:
    broken, sound = make(workspace), make(other_workspace)
    park_missed(broken, database_now() - timedelta(minutes=5))
    Schedule.objects.filter(id=broken.id).update(timezone="Mars/Olympus", next_run_at=database_now())
    fall_behind(sound, by=timedelta(seconds=30))
    ahead.look_ahead()
    broken.refresh_from_db()
    assert (broken.state, "cannot be followed" in broken.pause_reason) == ("PAUSED", True)
    assert Execution.objects.filter(schedule_id=sound.id, scheduled_for__gt=database_now()).exists()


@pytest.mark.parametrize("parked", [False, True])
def test_a_schedule_whose_occurrences_the_table_refuses_is_paused_and_holds_up_nobody(
    workspace: Workspace, other_workspace: Workspace, parked: bool
) -> None:
    broken, sound = make(workspace), make(other_workspace)
    if parked:
        park_missed(broken, database_now() - timedelta(minutes=5))
    else:
        fall_behind(broken, by=timedelta(seconds=30))
    Schedule.objects.filter(id=broken.id).update(target=None, next_run_at=database_now() - timedelta(seconds=30))
    fall_behind(sound, by=timedelta(seconds=30))
    ahead.look_ahead()
    broken.refresh_from_db()
    assert (broken.state, "cannot be followed" in broken.pause_reason) == ("PAUSED", True)
    assert Execution.objects.filter(schedule_id=sound.id, scheduled_for__gt=database_now()).exists()


def test_a_missed_occurrence_of_a_paused_schedule_fires_nothing_until_it_is_resumed(workspace: Workspace) -> None:
    schedule = make(workspace)
    row = Execution.objects.filter(schedule_id=schedule.id).order_by("scheduled_for")[0]
    # A worker has it, so the pause leaves it; then the dispatch switch sends it back, past its deadline.
    Execution.objects.filter(id=row.id).update(state="RUNNING", bucket_id=None)
    recurring.pause_schedule(workspace=workspace, schedule_id=schedule.id)
    at = (database_now() - timedelta(minutes=5)).replace(second=0, microsecond=0)
    Execution.objects.filter(id=row.id).update(
        state="PENDING", park_reason="misfire", scheduled_for=at, start_deadline=at + timedelta(seconds=60)
    )
    Schedule.objects.filter(id=schedule.id).update(next_run_at=at + timedelta(minutes=1))
    judge_missed()
    assert not Execution.objects.filter(schedule_id=schedule.id, bucket_id__isnull=False).exists()
    schedule.refresh_from_db()
    assert (schedule.state, schedule.next_run_at, schedule.last_misfire) == ("PAUSED", at, None)
    assert judge_missed() == 0
    resumed = recurring.resume_schedule(workspace=workspace, schedule_id=schedule.id)
    assert resumed.last_misfire is not None
    assert resumed.last_misfire["from"] == at.isoformat()
    assert resumed.last_misfire["fired"] == 1


def test_a_clock_that_was_set_back_leaves_what_lies_ahead_parked_and_holds_up_nobody(
    workspace: Workspace, other_workspace: Workspace
) -> None:
    early, sound = make(workspace), make(other_workspace)
    at = database_now().replace(second=0, microsecond=0) + timedelta(minutes=3)
    row = park_missed(early, at)
    fall_behind(sound, by=timedelta(seconds=30))
    ahead.look_ahead()
    row.refresh_from_db()
    assert (row.state, row.park_reason) == ("PENDING", "misfire")
    assert Execution.objects.filter(schedule_id=sound.id, scheduled_for__gt=database_now()).exists()
    early.refresh_from_db()
    assert early.state == "ACTIVE"
