"""The admin leads along the way of a job: definition, schedule, execution, dead letter; and shows no secret."""

import pytest
from django.test import Client
from django.utils import timezone

from chronos_site.infra import mongo
from chronos_site.tenancy.models import Workspace
from execution.models import DeadLetter, Execution
from scheduling.models import Schedule
from tests.making import make_executions, make_job

EXECUTIONS = "/admin/execution/execution/"
UNKNOWN = "01890000-0000-7000-8000-000000000000"


def read(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def test_each_page_leads_to_the_next(admin_client: Client, workspace: Workspace) -> None:
    job = make_job(workspace, "https://example.com/", name="nightly")
    now = timezone.now()
    schedule = Schedule.objects.create(
        workspace=workspace, job_definition=job, kind="interval", every_s=3600, created_at=now, updated_at=now
    )
    [row, other] = make_executions(workspace, "https://example.com/", 2, job=job)
    Execution.objects.filter(id=row.id).update(schedule_id=schedule.id)
    DeadLetter.objects.create(id=row.id, workspace=workspace, job_definition_id=job.id, reason="too_old", attempts=1)

    page = read(admin_client, f"/admin/execution/jobdefinition/{job.id}/change/")
    assert f"/admin/scheduling/schedule/?job_definition__id__exact={job.id}" in page
    assert str(schedule.id) in read(admin_client, f"/admin/scheduling/schedule/?job_definition__id__exact={job.id}")
    assert f"{EXECUTIONS}?schedule_id={schedule.id}" in read(
        admin_client, f"/admin/scheduling/schedule/{schedule.id}/change/"
    )
    found = read(admin_client, f"{EXECUTIONS}?schedule_id={schedule.id}")
    assert str(row.id) in found
    assert str(other.id) not in found
    page = read(admin_client, f"{EXECUTIONS}{row.id}/change/")
    pages = {"scheduling/schedule": schedule.id, "execution/jobdefinition": job.id, "execution/deadletter": row.id}
    for path, key in pages.items():
        assert f"/admin/{path}/{key}/change/" in page
    assert f"{EXECUTIONS}{row.id}/change/" in read(admin_client, f"/admin/execution/deadletter/{row.id}/change/")
    assert str(row.id) in read(admin_client, f"/admin/execution/deadletter/?job_definition_id={job.id}")


@pytest.mark.parametrize(("term", "finds"), [("nightly", True), ("night", True), ("daily", False), (UNKNOWN, False)])
def test_executions_are_found_by_key_or_by_the_name_of_their_job(
    admin_client: Client, workspace: Workspace, term: str, finds: bool
) -> None:
    job = make_job(workspace, "https://example.com/", name="nightly")
    [row] = make_executions(workspace, "https://example.com/", job=job)
    assert (f"{row.id}/change/" in read(admin_client, f"{EXECUTIONS}?q={term}")) is finds
    assert f"{row.id}/change/" in read(admin_client, f"{EXECUTIONS}?q={row.id}")


def test_the_page_of_an_execution_shows_its_attempts_and_no_secret(admin_client: Client, workspace: Workspace) -> None:
    target = {"url": "https://example.com/", "method": "POST", "headers": {"X-Api-Key": "from-before", "X-Team": "red"}}
    [row] = make_executions(workspace, "https://example.com/", target=target)
    logs = mongo.execution_logs()
    assert logs is not None
    entry = {"attempt": 1, "status": 503, "response": {"body": "<b>not now</b>"}, "begun_at": timezone.now()}
    logs.insert_one({**entry, "execution_id": str(row.id), "workspace_id": str(workspace.id)})
    page = read(admin_client, f"{EXECUTIONS}{row.id}/change/")
    assert "&lt;b&gt;not now&lt;/b&gt;" in page
    assert "<b>not now" not in page
    assert "from-before" not in page
    assert "red" in page
