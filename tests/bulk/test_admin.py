"""Operators' pages of bulk jobs: who sees what, what may be done, and which files are refused."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client

from bulk.models import BulkJob
from chronos_site.tenancy.models import Membership, Workspace
from execution.dispatch.engine import Engine
from tests.bulk.pump import make_bulk_job, run_to_end
from tests.bulk.test_api import objects
from tests.clients import Answer, ProgrammableReceiver
from tests.making import make_job

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/bulk/bulkjob/"
Role = Membership.Role


@pytest.fixture
def person() -> Callable[..., Client]:
    """Makes a client of somebody who is staff, with a role in a workspace."""

    def make(workspace: Workspace | None, role: Role = Role.OPERATOR) -> Client:
        user = User.objects.create_user(f"person-{User.objects.count()}", is_staff=True)
        if workspace is not None:
            Membership.objects.create(user=user, workspace=workspace, role=role)
        client = Client(enforce_csrf_checks=False)
        client.force_login(user)
        return client

    return make


@pytest.fixture
def job(workspace: Workspace, receiver: ProgrammableReceiver) -> BulkJob:
    return make_bulk_job(
        workspace, make_job(workspace, receiver.url(), payload={"n": "{{n}}"}), "n\n1\n2\n", start=False
    )


def test_members_see_the_jobs_of_their_workspace_and_strangers_find_nothing(
    person: Callable[..., Client], job: BulkJob, workspace: Workspace, other_workspace: Workspace
) -> None:
    pages = [f"{LIST}{job.id}/change/", f"{LIST}{job.id}/progress/", f"{LIST}{job.id}/do/cancel/"]
    member, stranger, nobody = person(workspace), person(other_workspace), person(None)
    assert [member.get(page).status_code for page in pages] == [200, 200, 200]
    assert "rows.csv" in member.get(LIST).content.decode()
    assert "rows.csv" not in stranger.get(LIST).content.decode()
    assert nobody.get(LIST).status_code == 403
    for client in (stranger, nobody):
        for page in [*pages, f"{LIST}{job.id}/results/"]:
            assert client.get(page).status_code in (302, 403, 404), page
            assert b"rows.csv" not in client.get(page).content
        client.post(f"{LIST}{job.id}/do/cancel/")
    job.refresh_from_db()
    assert job.cancel_requested_at is None
    assert job.state == "UPLOADED"


def test_a_viewer_reads_and_does_nothing(person: Callable[..., Client], job: BulkJob, workspace: Workspace) -> None:
    viewer = person(workspace, Role.VIEWER)
    page = viewer.get(f"{LIST}{job.id}/change/").content.decode()
    assert "bulk-progress" in page
    assert "data-verb" not in page
    assert viewer.get(f"{LIST}{job.id}/do/cancel/").status_code == 403
    assert viewer.post(f"{LIST}{job.id}/do/cancel/").status_code == 404
    assert viewer.get(f"{LIST}add/").status_code == 403


def test_actions_ask_first_then_act_and_say_what_cannot_be_done(
    person: Callable[..., Client], job: BulkJob, workspace: Workspace
) -> None:
    client = person(workspace)
    assert "cannot be taken back" in client.get(f"{LIST}{job.id}/do/cancel/").content.decode()
    job.refresh_from_db()
    assert job.state == "UPLOADED"
    client.post(f"{LIST}{job.id}/do/cancel/")
    job.refresh_from_db()
    assert job.state == "CANCELLED"
    told = client.post(f"{LIST}{job.id}/do/start/", follow=True).content.decode()
    assert "The bulk job is CANCELLED: it cannot be started." in told
    assert client.post(f"{LIST}{job.id}/do/explode/").status_code == 404


def test_the_first_rows_that_failed_are_on_the_page_and_can_be_sent_once_more(
    person: Callable[..., Client], workspace: Workspace, receiver: ProgrammableReceiver, engine: Engine
) -> None:
    receiver.answer(Answer(status=404), path="/2")
    definition = make_job(workspace, receiver.url("/{{n}}"))
    ended = run_to_end(make_bulk_job(workspace, definition, "n\n1\n2\n"), engine)
    assert ended.state == "PARTIAL_FAILURE"
    client = person(workspace)
    page = client.get(f"{LIST}{ended.id}/change/").content.decode()
    assert "http_404" in page
    assert "retry-failed" in page
    results = client.get(f"{LIST}{ended.id}/results/")
    assert b"".join(results.streaming_content).count(b"\n") == 3  # type: ignore[attr-defined]
    client.post(f"{LIST}{ended.id}/do/retry-failed/")
    ended.refresh_from_db()
    assert ended.state == "RUNNING"


def upload(client: Client, workspace: Workspace, job: str, content: bytes, **fields: str) -> HttpResponse:
    form = {"file": SimpleUploadedFile("people.csv", content), "delimiter": ",", "max_invalid_share": "0.1", **fields}
    return client.post(f"{LIST}add/?workspace={workspace.name}&job={job}", form, follow=True)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "empty"), (b"PK\x03\x04zip", ""), (b"m\n1\n", "n"), (b"n\n\xff\xfe\n", "UTF-8")],
    ids=["empty", "zip", "no-column", "encoding"],
)
def test_a_wrong_file_is_refused_on_the_form_and_nothing_is_left(
    person: Callable[..., Client], workspace: Workspace, receiver: ProgrammableReceiver, content: bytes, why: str
) -> None:
    make_job(workspace, receiver.url(), name="greet", payload={"n": "{{n}}"})
    before = objects()
    page = upload(person(workspace), workspace, "greet", content).content.decode()
    assert "bulk-error" in page
    assert why in page
    assert not BulkJob.objects.exists()
    assert objects() == before


def test_a_file_over_the_limit_is_refused_and_nothing_is_left(
    person: Callable[..., Client], workspace: Workspace, receiver: ProgrammableReceiver, settings: pytest.FixtureRequest
) -> None:
    before = objects()
    settings.CHRONOS_BULK_MAX_BYTES = 1024  # type: ignore[attr-defined]
    make_job(workspace, receiver.url(), name="greet", payload={"n": "{{n}}"})
    page = upload(person(workspace), workspace, "greet", b"n\n" + b"1\n" * 2000).content.decode()
    assert "1,024 bytes at most" in page
    assert not BulkJob.objects.exists()
    assert objects() == before


def test_a_form_without_the_token_leaves_no_file(
    person: Callable[..., Client], workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    make_job(workspace, receiver.url(), name="greet", payload={"n": "{{n}}"})
    client, before = person(workspace), objects()
    client.handler.enforce_csrf_checks = True
    assert upload(client, workspace, "greet", b"n\n1\n").status_code == 403
    assert not BulkJob.objects.exists()
    assert objects() == before


def test_another_workspaces_job_definition_is_not_found(
    person: Callable[..., Client], workspace: Workspace, other_workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    make_job(other_workspace, receiver.url(), name="theirs", payload={"n": "{{n}}"})
    client = person(workspace)
    assert "There is no job definition" in upload(client, workspace, "theirs", b"n\n1\n").content.decode()
    page = upload(client, other_workspace, "theirs", b"n\n1\n").content.decode()
    assert "Select a valid choice" in page
    assert not BulkJob.objects.exists()
