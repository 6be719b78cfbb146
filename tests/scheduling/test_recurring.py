"""Schedules that recur, through their services: edits, pauses, ends, failures in a row."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution import fanout, services, transitions
from execution.models import Bucket, Execution
from scheduling import recurring
from scheduling import services as scheduling
from scheduling.loops.materialise import materialise_due
from scheduling.loops.settle import settle_schedules
from scheduling.models import Schedule
from scheduling.recurring import Recurring
from tests.making import make_job
from tests.processes import wait_until
from tests.threads import closing, in_thread, lock_waiters

pytestmark = pytest.mark.django_db(transaction=True)

TARGET = {"url": "http://127.0.0.1:9/", "method": "POST", "headers": {}}


def make(workspace: Workspace, cron: str = "*/10 * * * * *", **fields: Any) -> Schedule:
    given = {"target": TARGET, **fields}
    return recurring.create_recurring(workspace=workspace, new=Recurring(cron=cron, **given))


def occurrences_of(schedule: Schedule) -> list[tuple[datetime, str, Any]]:
    rows = Execution.objects.filter(schedule_id=schedule.id).order_by("scheduled_for", "run_no")
    return list(rows.values_list("scheduled_for", "state", "payload"))


def update(schedule: Schedule, **changes: Any) -> Schedule:
    return recurring.update_recurring(
        workspace=schedule.workspace, schedule_id=schedule.id, expected_version=None, changes=changes
    )


def fan_out() -> None:
    for bucket_id in Bucket.objects.values_list("id", flat=True):
        fanout.fan_out(bucket_id=bucket_id)


def test_an_edit_right_before_an_occurrence_loses_nothing_and_doubles_nothing(workspace: Workspace) -> None:
    schedule = make(workspace, "* * * * * *", payload={"v": 1})
    before = [at for at, _, _ in occurrences_of(schedule)]
    fan_out()  # The look-ahead takes the next two seconds.
    queued = {at for at, state, _ in occurrences_of(schedule) if state == "QUEUED"}
    assert 1 <= len(queued) <= 3
    update(schedule, payload={"v": 2})
    after = occurrences_of(schedule)
    assert [at for at, _, _ in after][: len(before)] == before
    assert all(payload == {"v": 1} for at, _, payload in after if at in queued)
    assert all(payload == {"v": 2} for at, _, payload in after if at not in queued and at > database_now())


def test_another_rhythm_begins_where_the_old_one_was_taken_back(workspace: Workspace) -> None:
    schedule = make(workspace, "*/10 * * * * *")
    updated = update(schedule, cron="*/15 * * * * *")
    now = database_now()
    times = [at for at, state, _ in occurrences_of(schedule) if state == "PENDING" and at > now]
    assert {at.second % 15 for at in times} == {0}
    assert times[0] - now < timedelta(seconds=15)
    assert (updated.version, updated.run_count) == (2, len(times))


def test_an_edit_while_the_loop_is_at_work_makes_every_occurrence_once(workspace: Workspace) -> None:
    schedule = make(workspace, "* * * * * *")
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            materialise_due()

    thread = in_thread(loop)
    try:
        for number in range(20):
            update(schedule, payload={"n": number})
    finally:
        stop.set()
        thread.join()
    materialise_due()
    times = [at for at, _, _ in occurrences_of(schedule)]
    expected = [times[0] + timedelta(seconds=n) for n in range(len(times))]
    assert times == expected


def test_a_pause_takes_back_what_is_not_queued_and_a_resume_judges_what_was_missed(workspace: Workspace) -> None:
    schedule = make(workspace, "* * * * *", misfire="fire_once")
    first = occurrences_of(schedule)[0][0]
    paused = recurring.pause_schedule(workspace=workspace, schedule_id=schedule.id)
    assert (paused.state, paused.next_run_at, paused.run_count) == ("PAUSED", first, 0)
    assert occurrences_of(schedule) == []
    assert materialise_due().schedules == 0
    assert recurring.pause_schedule(workspace=workspace, schedule_id=schedule.id).version == paused.version
    Schedule.objects.filter(id=schedule.id).update(next_run_at=first - timedelta(hours=2))
    resumed = recurring.resume_schedule(workspace=workspace, schedule_id=schedule.id)
    assert resumed.state == "ACTIVE"
    assert resumed.last_misfire is not None
    assert resumed.last_misfire["fired"] == 1
    assert resumed.last_misfire["missed"] == resumed.missed_count + 1 >= 118


def test_a_pause_and_a_resume_bring_back_the_one_that_waited_for_another_to_end(workspace: Workspace) -> None:
    """Later occurrences were passed over meanwhile and have their rows: the judge must not choose one of them."""
    schedule = make(workspace, "* * * * *", overlap="queue_one", misfire="fire_once", misfire_grace_s=1)
    first, second = list(Execution.objects.filter(schedule_id=schedule.id).order_by("scheduled_for"))[:2]
    hours = timedelta(hours=2)
    Execution.objects.filter(id=first.id).update(
        scheduled_for=first.scheduled_for - hours, state="PENDING", park_reason="overlap", bucket_id=None
    )
    Execution.objects.filter(id=second.id).update(
        scheduled_for=second.scheduled_for - hours, state="SKIPPED", finished_at=timezone.now(), bucket_id=None
    )
    recurring.pause_schedule(workspace=workspace, schedule_id=schedule.id)
    later = Execution.objects.get(id=second.id)
    for _ in range(130):  # Everything after it has its row, up to now.
        later.id, later.scheduled_for = new_id(), later.scheduled_for + timedelta(minutes=1)
        later.save(force_insert=True)
    resumed = recurring.resume_schedule(workspace=workspace, schedule_id=schedule.id)
    assert resumed.last_misfire is not None
    assert (resumed.last_misfire["missed"], resumed.last_misfire["fired"]) == (1, 1)
    assert Execution.objects.get(schedule_id=schedule.id, scheduled_for=first.scheduled_for - hours).state == "PENDING"


def test_a_new_version_of_the_job_is_what_the_coming_occurrences_deliver(workspace: Workspace) -> None:
    job = make_job(workspace, "http://127.0.0.1:9/old")
    schedule = recurring.create_recurring(workspace=workspace, new=Recurring(cron="*/10 * * * * *", job_definition=job))
    before = occurrences_of(schedule)
    recurring.update_job_definition(
        workspace=workspace, job_id=job.id, expected_version=None, target={**TARGET, "url": "http://127.0.0.1:9/new"}
    )
    materialise_due()
    rows = Execution.objects.filter(schedule_id=schedule.id, scheduled_for__gt=timezone.now())
    assert {(row.target["url"], row.job_version) for row in rows} == {("http://127.0.0.1:9/new", 2)}
    assert [at for at, _, _ in occurrences_of(schedule)][: len(before)] == [at for at, _, _ in before]


def test_deleting_a_job_needs_a_word_for_its_schedules(workspace: Workspace) -> None:
    job = make_job(workspace, "http://127.0.0.1:9/")
    schedule = recurring.create_recurring(workspace=workspace, new=Recurring(cron="* * * * *", job_definition=job))
    with pytest.raises(services.JobHasSchedules):
        scheduling.delete_job_definition(workspace=workspace, job_id=job.id, cascade=False)
    scheduling.delete_job_definition(workspace=workspace, job_id=job.id, cascade=True)
    schedule.refresh_from_db()
    assert (schedule.state, schedule.next_run_at) == ("CANCELLED", None)
    assert {state for _, state, _ in occurrences_of(schedule)} == {"CANCELLED"}


def test_skip_next_passes_over_one_occurrence_and_twice_is_once(workspace: Workspace) -> None:
    schedule = make(workspace, "0 0 * * *")  # Its next occurrence is hours away: no row is there yet.
    skipped = recurring.skip_next(workspace=workspace, schedule_id=schedule.id)
    again = recurring.skip_next(workspace=workspace, schedule_id=schedule.id)
    assert (skipped.id, skipped.state, skipped.state_reason) == (again.id, "SKIPPED", "skipped_by_hand")
    Schedule.objects.filter(id=schedule.id).update(misfire_grace_s=10**6, next_run_at=skipped.scheduled_for)
    materialise_due()
    assert occurrences_of(schedule) == [(skipped.scheduled_for, "SKIPPED", None)]


def test_a_run_by_hand_is_beside_the_rhythm(workspace: Workspace) -> None:
    schedule = make(workspace, "0 0 1 1 *", payload={"a": 1})
    made = recurring.run_schedule(
        workspace=workspace,
        schedule_id=schedule.id,
        payload=None,
        traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-00",
    )
    assert (made.trigger, made.schedule_id, made.payload, made.start_deadline) == ("run", schedule.id, {"a": 1}, None)
    assert Schedule.objects.get().next_run_at == schedule.next_run_at


def test_a_schedule_is_paused_after_so_many_failures_in_a_row_and_not_before(workspace: Workspace) -> None:
    schedule = make(workspace, "*/10 * * * * *", pause_after_failures=3)
    rows = list(Execution.objects.filter(schedule_id=schedule.id).order_by("scheduled_for"))
    end(rows[0], "FAILED")
    end(rows[1], "SUCCEEDED")
    end(rows[2], "FAILED")
    end(rows[3], "FAILED")
    assert settle_schedules().paused == 0
    Execution.objects.filter(id=rows[5].id).update(trigger="run")
    end(rows[5], "FAILED")
    assert settle_schedules().paused == 0, "a run by hand does not count"
    end(rows[4], "FAILED")
    assert settle_schedules().paused == 1
    schedule.refresh_from_db()
    assert (schedule.state, schedule.pause_reason) == ("PAUSED", "3 executions in a row failed for good")
    assert not Execution.objects.filter(schedule_id=schedule.id, state="PENDING").exists()
    recurring.resume_schedule(workspace=workspace, schedule_id=schedule.id)
    assert settle_schedules().paused == 0, "what lies before the resume does not count"


def end(row: Execution, state: str) -> None:
    Execution.objects.filter(id=row.id).update(state=state, finished_at=timezone.now(), bucket_id=None)


def test_a_schedule_with_nothing_left_is_completed_once_its_last_execution_has_ended(workspace: Workspace) -> None:
    schedule = make(workspace, "* * * * * *", max_runs=1)
    assert settle_schedules().completed == 0
    end(Execution.objects.get(schedule_id=schedule.id), "SUCCEEDED")
    assert settle_schedules().completed == 1
    schedule.refresh_from_db()
    assert schedule.state == "COMPLETED"
    with pytest.raises(scheduling.Ended):
        update(schedule, payload={})


def test_a_cancel_ends_the_rhythm_and_what_waits(workspace: Workspace) -> None:
    schedule = make(workspace, "* * * * * *")
    fan_out()
    cancelled, answer = recurring.cancel_recurring(workspace=workspace, schedule_id=schedule.id)
    assert (cancelled.state, cancelled.next_run_at) == ("CANCELLED", None)
    assert len(answer.done) >= 1  # What was QUEUED; the rest was taken back.
    assert {state for _, state, _ in occurrences_of(schedule)} == {"CANCELLED"}


def test_an_edit_and_a_cancel_of_the_same_occurrences_do_not_lock_each_other_out(workspace: Workspace) -> None:
    schedule = make(workspace, "*/30 * * * * *")
    rows = list(Execution.objects.filter(schedule_id=schedule.id).order_by("scheduled_for"))[-3:]
    Execution.objects.filter(schedule_id=schedule.id).delete()
    for row, id_ in zip(rows, sorted((row.id for row in rows), reverse=True), strict=True):  # Made in another order.
        row.id = id_
        row.save(force_insert=True)
    ids = [row.id for row in rows]
    with ThreadPoolExecutor(2) as pool:
        with transaction.atomic():
            Execution.objects.select_for_update().get(id=ids[1])
            edit = pool.submit(closing(lambda: recurring.pause_schedule(workspace=workspace, schedule_id=schedule.id)))
            wait_until(lambda: lock_waiters() == 1)
            cancel = pool.submit(closing(lambda: services.cancel_executions(workspace=workspace, ids=ids)))
            wait_until(lambda: lock_waiters() == 2)
        assert (edit.exception(), cancel.exception()) == (None, None)


def test_an_edit_of_a_job_and_a_cancel_of_its_occurrences_do_not_lock_each_other_out(workspace: Workspace) -> None:
    job = make_job(workspace, "http://127.0.0.1:9/")
    for _ in range(2):
        make(workspace, "*/30 * * * * *", job_definition=job, target=None)
    ids = sorted(Execution.objects.values_list("id", flat=True), reverse=True)
    rows = list(Execution.objects.order_by("schedule_id", "-scheduled_for"))
    Execution.objects.all().delete()
    for row, id_ in zip(rows, ids, strict=True):  # The first schedule's are the last in the order of ids.
        row.id = id_
        row.save(force_insert=True)
    with ThreadPoolExecutor(2) as pool:
        with transaction.atomic():
            Execution.objects.select_for_update().get(id=ids[0])
            edit = pool.submit(
                closing(
                    lambda: recurring.update_job_definition(
                        workspace=workspace, job_id=job.id, expected_version=None, payload={"v": 2}
                    )
                )
            )
            wait_until(lambda: lock_waiters() == 1)
            some = [ids[-1], ids[1]]
            cancel = pool.submit(closing(lambda: services.cancel_executions(workspace=workspace, ids=some)))
            wait_until(lambda: lock_waiters() == 2)
        assert (edit.exception(), cancel.exception()) == (None, None)


@pytest.mark.parametrize("before", [False, True])
def test_who_waits_for_an_edit_that_names_another_job_goes_on_with_that_job(workspace: Workspace, before: bool) -> None:
    first, second = make_job(workspace, "http://127.0.0.1:9/first"), make_job(workspace, "http://127.0.0.1:9/second")
    source = {"job_definition": first, "target": None} if before else {}
    schedule = make(workspace, "0 0 1 1 *", **source)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            update(schedule, job_definition=second, target=None)
            skip = pool.submit(closing(lambda: recurring.skip_next(workspace=workspace, schedule_id=schedule.id)))
            wait_until(lambda: lock_waiters() == 1)
        assert skip.exception() is None
    skipped = Execution.objects.get(schedule_id=schedule.id)
    assert (skipped.state, skipped.job_definition_id, skipped.target) == ("SKIPPED", second.id, second.target)


def test_overlap_holds_between_occurrences_of_one_schedule(workspace: Workspace) -> None:
    schedule = make(workspace, "* * * * * *", overlap="skip")
    rows = list(Execution.objects.filter(schedule_id=schedule.id).order_by("scheduled_for")[:3])
    for row in rows:
        Execution.objects.filter(id=row.id).update(due_at=timezone.now(), bucket_id=rows[0].bucket_id)
    assert rows[0].bucket_id is not None
    fanout.fan_out(bucket_id=rows[0].bucket_id)
    states = sorted(Execution.objects.filter(id__in=[row.id for row in rows]).values_list("state", flat=True))
    assert states == ["QUEUED", "SKIPPED", "SKIPPED"]
    transitions.cancel_waiting(ids=[row.id for row in rows], reason="test")


@pytest.mark.parametrize(
    ("fields", "where", "code"),
    [
        ({"cron": "0 0 31 2 *"}, "cron", "never_fires"),
        ({"cron": "61 * * * *"}, "cron", "invalid"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "timezone", "invalid"),
        ({"cron": "0 0 1 1 *", "ends_at": timezone.now() + timedelta(seconds=1)}, "ends_at", "never_fires"),
        ({"every_s": 0}, "every", "invalid"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_place(
    workspace: Workspace, fields: dict[str, Any], where: str, code: str
) -> None:
    with pytest.raises(recurring.BadRhythm) as refused:
        recurring.create_recurring(workspace=workspace, new=Recurring(target=TARGET, **fields))
    assert (refused.value.field, refused.value.code) == (where, code)
    assert not Schedule.objects.exists()
