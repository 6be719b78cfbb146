"""The purge: what has ended long ago goes, and nothing else."""

from datetime import timedelta

import pytest
from django.utils import timezone

from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution.domain.states import TERMINAL, State
from execution.loops.purge import purge_ended
from execution.models import Bucket, DeadLetter, Execution, Worker
from scheduling import recurring
from scheduling.loops.purge import purge_spent_schedules
from scheduling.models import Schedule
from scheduling.recurring import Recurring
from tests.clients import ApiClient
from tests.making import make_executions

pytestmark = pytest.mark.django_db

URL = "https://hooks.example.com/in"
LONG_AGO = timedelta(days=31)


def now_s() -> float:
    return database_now().timestamp()


def test_only_ended_executions_past_their_retention_are_deleted(workspace: Workspace) -> None:
    old, young = {}, {}
    for state in State:
        old[state], young[state] = make_executions(workspace, URL, 2)
        ended = timezone.now() if state in TERMINAL else None
        Execution.objects.filter(id=young[state].id).update(state=state, finished_at=ended)
        Execution.objects.filter(id=old[state].id).update(
            state=state, finished_at=ended and ended - LONG_AGO, due_at=timezone.now() - LONG_AGO
        )
    assert purge_ended(now_s=now_s()).executions == len(TERMINAL)
    kept = set(Execution.objects.values_list("id", flat=True))
    assert kept == {row.id for row in young.values()} | {row.id for state, row in old.items() if state not in TERMINAL}


def test_the_word_that_an_occurrence_is_to_be_skipped_stays_until_its_time_is_long_over(workspace: Workspace) -> None:
    target = {"url": URL, "method": "POST", "headers": {}}
    yearly = recurring.create_recurring(workspace=workspace, new=Recurring(every_s=366 * 86_400, target=target))
    skipped = recurring.skip_next(workspace=workspace, schedule_id=yearly.id)
    Execution.objects.filter(id=skipped.id).update(finished_at=timezone.now() - LONG_AGO)
    purge_ended(now_s=now_s())
    assert Execution.objects.filter(id=skipped.id).exists()
    Execution.objects.filter(id=skipped.id).update(due_at=timezone.now() - timedelta(seconds=1))
    purge_ended(now_s=now_s())
    assert Execution.objects.filter(id=skipped.id).exists(), "the schedule may not have come to it yet"
    Execution.objects.filter(id=skipped.id).update(due_at=timezone.now() - LONG_AGO)
    assert purge_ended(now_s=now_s()).executions == 1


def test_an_open_dead_letter_keeps_its_execution_and_a_resolved_one_goes_with_it(workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 2)
    Execution.objects.update(state="FAILED", finished_at=timezone.now() - LONG_AGO)
    for row, status in zip(rows, ("open", "discarded"), strict=True):
        DeadLetter.objects.create(id=row.id, workspace=workspace, reason="terminal_answer", attempts=1, status=status)
    purge_ended(now_s=now_s())
    assert list(Execution.objects.values_list("id", flat=True)) == [rows[0].id]
    assert list(DeadLetter.objects.values_list("id", flat=True)) == [rows[0].id]


def test_closed_buckets_and_workers_of_yesterday_go(workspace: Workspace) -> None:
    minute = int(now_s() // 60)
    for age, state in ((2000, "CLOSED"), (2000, "OPEN"), (10, "CLOSED")):
        Bucket.objects.create(id=(minute - age) * 1024 + (state == "OPEN"), state=state, opened_at=timezone.now())
    then = timezone.now() - timedelta(days=2)
    Worker.objects.create(id=new_id(), name="gone", started_at=then, heartbeat_at=then)
    Worker.objects.create(id=new_id(), name="here", started_at=then, heartbeat_at=timezone.now())
    purged = purge_ended(now_s=now_s())
    assert (purged.buckets, purged.workers) == (1, 1)
    assert set(Worker.objects.values_list("name", flat=True)) == {"here"}


def test_a_schedule_whose_execution_was_purged_goes_and_one_that_waits_stays(api: ApiClient) -> None:
    spent, waiting = (api.post("/v1/schedules", {"target": {"url": URL}, "delay_s": 5}).json() for _ in range(2))
    Schedule.objects.update(run_at=timezone.now() - timedelta(days=40))
    Execution.objects.filter(id=spent["execution_id"]).delete()
    assert purge_spent_schedules() == 1
    assert [str(i) for i in Schedule.objects.values_list("id", flat=True)] == [waiting["id"]]
