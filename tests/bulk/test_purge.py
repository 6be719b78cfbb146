"""What uploads left that became no job goes; what a job has stays."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bulk.loops import purge
from chronos_site.infra import storage
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from tests.bulk.pump import make_bulk_job
from tests.bulk.test_api import objects
from tests.making import make_job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def storage_clean() -> None:
    for path in objects():
        path.unlink()


def put(name: str) -> None:
    with storage.open_writer(name) as out:
        out.write(b"n\n1\n")


def age(days: float) -> None:
    then = time.time() - timedelta(days=days).total_seconds()
    for path in objects():
        os.utime(path, (then, then))


def test_files_of_uploads_whose_process_died_go_after_a_day_and_those_of_jobs_stay(workspace: Workspace) -> None:
    job = make_bulk_job(workspace, make_job(workspace, "https://example.com/{{n}}"), "n\n1\n")
    put(f"bulk/{workspace.id}/{new_id()}/rows.csv")
    put("bulk/notes.txt")
    half = storage.open_writer(f"bulk/{workspace.id}/{new_id()}/rows.csv")
    half.write(b"half")
    age(0.9)
    assert purge.sweep_uploads() == 0
    age(1.1)
    assert purge.sweep_uploads() == 2
    assert sorted(path.name for path in objects()) == ["notes.txt", "rows.csv"]
    assert Path(job.object_name).parts[2] in str(objects())
    assert purge.sweep_uploads() == 0
    half.close()


def test_many_files_are_looked_at_in_turns_and_none_is_passed_over(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "NAMES_AT_ONCE", 2)
    for number in range(7):
        put(f"bulk/{workspace.id}/{new_id()}/rows.csv" if number % 2 else f"bulk/of-others-{number}/x/y/z.txt")
    age(2)
    assert purge.sweep_uploads() == 3
    assert len(objects()) == 4
