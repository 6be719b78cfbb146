"""Schedules, operations and bulk jobs are told of where they begin, pause and end."""

from datetime import timedelta

import pytest
import redis

from bulk.services import cancel_bulk_job, start_bulk_job
from chronos_site.api.operations.runner import run_operations
from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution.dispatch.engine import Engine
from execution.models import Execution
from scheduling.loops import settle
from scheduling.models import Schedule
from tests.bulk.pump import make_bulk_job, run_to_end, turn
from tests.clients import ApiClient, ProgrammableReceiver
from tests.events.reading import told
from tests.making import make_executions, make_job

pytestmark = pytest.mark.django_db(transaction=True)

NOWHERE = {"url": "https://example.com/"}


def test_a_schedule_from_its_creation_to_its_end(
    api: ApiClient, workspace: Workspace, redis_server: redis.Redis
) -> None:
    made = api.post("/v1/schedules", {"target": NOWHERE, "every": "1h"}).json()
    for verb in ("pause", "pause", "resume", "cancel"):
        api.post(f"/v1/schedules/{made['id']}/{verb}", {})
    once = api.post("/v1/schedules", {"target": NOWHERE, "delay_s": 0}).json()
    Execution.objects.filter(id=once["execution_id"]).update(state="SUCCEEDED", finished_at=database_now())
    Schedule.objects.filter(id=once["id"]).update(run_at=database_now() - timedelta(minutes=1))
    settle.settle_schedules()
    kinds = [e["type"] for e in told(redis_server, schedule=made["id"]) if e["type"].startswith("schedule.")]
    assert kinds == ["schedule.created", "schedule.paused", "schedule.resumed", "schedule.cancelled"]
    found = told(redis_server, schedule=once["id"])
    assert {e["workspace"] for e in found} == {str(workspace.id)}
    assert [e["type"] for e in found] == ["execution.created", "schedule.created", "schedule.completed"]


def test_an_operation_that_succeeds_and_one_that_is_aborted(
    api: ApiClient, workspace: Workspace, redis_server: redis.Redis
) -> None:
    make_executions(workspace, "https://example.com/", 3, due_at=database_now() + timedelta(hours=1))
    made = [api.post("/v1/executions/cancel", {"filter": {"state": ["PENDING"]}}) for _ in range(2)]
    first, second = (answer.json()["id"] for answer in made)
    api.post(f"/v1/operations/{second}/abort", {})
    run_operations()
    kinds = [e["type"] for e in told(redis_server, operation=first)]
    assert kinds == ["operation.created", "operation.started", "operation.succeeded"]
    assert [e["type"] for e in told(redis_server, operation=second)] == ["operation.created", "operation.aborted"]


def test_a_bulk_job_from_its_upload_to_its_end(
    record_engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, redis_server: redis.Redis
) -> None:
    job = make_job(workspace, receiver.url(), payload={"n": "{{n}}"})
    done = make_bulk_job(workspace, job, "n\n1\n2\n", start=False)
    turn()
    start_bulk_job(workspace=workspace, job_id=done.id)
    run_to_end(done, record_engine)
    gone = make_bulk_job(workspace, job, "n\n1\n")
    cancel_bulk_job(workspace=workspace, job_id=gone.id)
    kinds = [e["type"].removeprefix("bulk_job.") for e in told(redis_server, bulk_job=str(done.id))]
    assert kinds == ["created", "ingest_started", "paused", "started", "completed"]
    last = told(redis_server, bulk_job=str(gone.id))[-1]
    assert (last["type"], last["state"], last["workspace"]) == ("bulk_job.cancelled", "CANCELLED", str(workspace.id))
