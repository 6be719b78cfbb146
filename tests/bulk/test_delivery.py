"""From a file to the last row, against a real database, a real Redis, a real storage and a real receiver."""

import csv
import io
import json

import pytest
from django.db import connection

from bulk import services
from bulk.domain.numbering import row_id
from chronos_site.infra import storage
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution.dispatch.engine import Engine
from tests.bulk.pump import make_bulk_job, rows_of, run_to_end, states_of, turn
from tests.clients import ProgrammableReceiver
from tests.making import make_job
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_row_is_delivered_with_its_values_and_its_number(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    job = make_job(workspace, receiver.url("/c/{{id}}"), payload={"name": "{{name}}", "n": 1})
    bulk = make_bulk_job(workspace, job, 'id,name\na/1,"Ann ""A"""\nb 2,Bob\\\n')
    done = run_to_end(bulk, engine)
    assert (done.state, done.total, done.succeeded, done.failed, done.invalid) == ("COMPLETED", 2, 2, 0, 0)
    got = {r.headers["x-bulk-row"]: r for r in receiver.requests}
    assert [got[n].path for n in ("1", "2")] == ["/c/a%2F1", "/c/b%202"]
    assert json.loads(got["1"].body) == {"name": 'Ann "A"', "n": 1}
    assert json.loads(got["2"].body) == {"name": "Bob\\", "n": 1}
    assert got["1"].headers["x-bulk-job-id"] == str(bulk.id)
    assert got["1"].headers["x-execution-id"] == str(row_id(bulk.id, 1))
    assert got["1"].headers["x-job-id"] == str(job.id)


def test_the_results_name_every_row_and_what_became_of_it(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(body=b"=1+1"))
    receiver.answer(Answer(status=404, body=b"=1+1"), path="/bad")
    job = make_job(workspace, receiver.url("/{{id}}"))
    bulk = make_bulk_job(workspace, job, "id\ngood\nbad\na,b\n", max_invalid_share=0.5)
    done = run_to_end(bulk, engine)
    assert (done.state, done.succeeded, done.failed, done.invalid) == ("PARTIAL_FAILURE", 1, 1, 1)
    with storage.open_reader(done.results_name) as stream, io.TextIOWrapper(stream, "utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    assert [(r["row"], r["status"], r["attempts"], r["code"], r["response"]) for r in rows] == [
        ("1", "SUCCEEDED", "1", "http_200", "'=1+1"),
        ("2", "FAILED", "1", "http_404", "'=1+1"),
        ("3", "INVALID", "0", "too_many_fields", ""),
    ]


def test_failed_rows_are_sent_again_and_no_others(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(status=400), path="/7")
    job = make_job(workspace, receiver.url("/{{id}}"))
    bulk = run_to_end(make_bulk_job(workspace, job, "id\n" + "".join(f"{n}\n" for n in range(1, 251))), engine)
    assert (bulk.state, bulk.succeeded, bulk.failed) == ("PARTIAL_FAILURE", 249, 1)
    receiver.answer(Answer(), path="/7")
    services.retry_failed_rows(workspace=workspace, job_id=bulk.id)
    bulk = run_to_end(bulk, engine)
    assert (bulk.state, bulk.succeeded, bulk.failed) == ("COMPLETED", 250, 0)
    again = [r.headers["x-attempt-number"] for r in receiver.requests if r.path == "/7"]
    assert again == ["1", "2"]
    assert len(receiver.requests) == 251


def test_a_row_is_tried_again_by_the_policy_and_keeps_its_id(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    receiver.answer(Answer(status=503), Answer(status=503), Answer())
    job = make_job(workspace, receiver.url(), retry={"max_attempts": 5, "initial_backoff_s": 0.1, "jitter": "none"})
    bulk = run_to_end(make_bulk_job(workspace, job, "id\n1\n"), engine)
    assert (bulk.state, bulk.succeeded) == ("COMPLETED", 1)
    assert [r.headers["x-attempt-number"] for r in receiver.requests] == ["1", "2", "3"]
    assert {r.headers["x-execution-id"] for r in receiver.requests} == {str(row_id(bulk.id, 1))}


def test_what_is_held_is_read_and_sent_only_after_a_start(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    bulk = make_bulk_job(workspace, make_job(workspace, receiver.url()), "id\n1\n2\n", start=False)
    for _ in range(3):
        turn(engine)
    bulk.refresh_from_db()
    assert (bulk.state, bulk.total, receiver.requests) == ("PAUSED", 2, [])
    services.start_bulk_job(workspace=workspace, job_id=bulk.id)
    assert run_to_end(bulk, engine).state == "COMPLETED"


def test_a_pause_begins_no_further_row_and_a_start_goes_on(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    bulk = make_bulk_job(workspace, make_job(workspace, receiver.url()), "id\n" + "1\n" * 5000)
    wait_until(lambda: turn(engine) and len(receiver.requests) > 200)
    services.pause_bulk_job(workspace=workspace, job_id=bulk.id)
    wait_until(lambda: turn(engine) and "RUNNING" not in states_of(bulk))
    count = len(receiver.requests)
    for _ in range(5):
        turn(engine)
    assert count == len(receiver.requests) < 5000
    services.start_bulk_job(workspace=workspace, job_id=bulk.id)
    done = run_to_end(bulk, engine)
    assert (done.state, done.succeeded) == ("COMPLETED", 5000)
    assert len(receiver.requests) == len({r.headers["x-execution-id"] for r in receiver.requests}) == 5000


def test_a_cancelled_job_sends_no_more_and_its_counts_add_up(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    bulk = make_bulk_job(workspace, make_job(workspace, receiver.url()), "id\n" + "1\n" * 5000)
    wait_until(lambda: turn(engine) and len(receiver.requests) > 100)
    services.cancel_bulk_job(workspace=workspace, job_id=bulk.id)
    done = run_to_end(bulk, engine)
    assert done.state == "CANCELLED"
    assert done.succeeded + done.cancelled == done.total == 5000
    assert done.succeeded == len(receiver.requests) == states_of(bulk).count("SUCCEEDED")
    assert done.results_bytes


def test_a_worker_that_is_killed_leaves_rows_that_are_found(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimed by a worker that is no more: its lease, and with it the chunk's, has run out."""
    monkeypatch.setattr("bulk.loops.tick.STEADY_S", -1.0)
    bulk = make_bulk_job(workspace, make_job(workspace, receiver.url()), "id\n" + "1\n" * 300)
    turn()
    turn()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE bulk_bulkrecord SET state = 'RUNNING', claim_seq = 1, begun_seq = (right(id::text, 1) = '1')::int,"
            " attempt = (right(id::text, 1) = '1')::int, lease_until = now() - interval '1 second'"
        )
        cursor.execute("UPDATE bulk_bulkchunk SET lease_until = now() - interval '1 second'")
    done = run_to_end(bulk, engine)
    assert (done.state, done.succeeded) == ("COMPLETED", 300)
    assert {row.unknown_outcomes for row in rows_of(done)} == {0, 1}
