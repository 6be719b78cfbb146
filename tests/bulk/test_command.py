"""`manage.py bulk_import`: as an operator types it."""

import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from bulk.models import BulkJob
from chronos_site.tenancy.models import Workspace
from tests.making import make_job

pytestmark = pytest.mark.django_db(transaction=True)

URL = "https://example.com/{{id}}"


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("bulk_import", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("id,name\n1,Ann\n2,Bob\n")
    return path


def test_a_file_is_accepted_and_its_job_is_named(workspace: Workspace, rows: Path) -> None:
    make_job(workspace, URL, name="welcome")
    told = json.loads(run(str(rows), "--job", "welcome", "--json", "--hold"))
    job = BulkJob.objects.get()
    assert (told["id"], told["state"], told["held"]) == (str(job.id), "UPLOADED", True)
    assert run(str(rows), "--job", str(job.job_definition_id)).startswith("bulk job ")


def test_a_dry_run_shows_what_would_be_sent_and_keeps_nothing(workspace: Workspace, rows: Path) -> None:
    make_job(workspace, URL, name="welcome", payload={"to": "{{name}}"})
    told = run(str(rows), "--job", "welcome", "--dry-run")
    assert "row 1: POST https://example.com/1" in told
    assert '{"to": "Ann"}' in told
    assert not BulkJob.objects.exists()
    parsed = json.loads(run(str(rows), "--job", "welcome", "--dry-run", "--json"))
    assert parsed["rows"][1]["payload"] == {"to": "Bob"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{rows}", "--job", "none"), "There is no job definition 'none'"),
        (("/no/such/file", "--job", "welcome"), "cannot be read: No such file"),
        (("{rows}", "--job", "welcome", "--workspace", "nobody"), "There is no workspace 'nobody'"),
        (("{rows}", "--job", "welcome", "--delimiter", "ab"), "the delimiter is one ASCII character"),
        (("{rows}", "--job", "welcome", "--max-invalid-share", "2"), "give a number from 0 to 1"),
        (("{rows}", "--job", "welcome", "--delimiter", ";"), "id"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    workspace: Workspace, rows: Path, arguments: tuple[str, ...], said: str
) -> None:
    make_job(workspace, URL, name="welcome")
    with pytest.raises(CommandError, match=said):
        run(*[argument.format(rows=rows) for argument in arguments])
    assert not BulkJob.objects.exists()


def test_a_workspace_must_be_named_where_there_are_several(
    workspace: Workspace, other_workspace: Workspace, rows: Path
) -> None:
    make_job(workspace, URL, name="welcome")
    with pytest.raises(CommandError, match="--workspace"):
        run(str(rows), "--job", "welcome")
    assert run(str(rows), "--job", "welcome", "--workspace", workspace.name).startswith("bulk job ")
