"""Reading a file into the table: nothing lost, nothing doubled, nothing left of what cannot be taken."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from bulk import ingest, services, transitions, work
from bulk.domain.states import RecordState
from bulk.models import BulkChunk, BulkJob, BulkRecord
from chronos_site.infra import storage
from chronos_site.tenancy.models import Workspace
from tests.bulk.pump import make_bulk_job, messages, rows_of, turn
from tests.clients import ProgrammableReceiver
from tests.making import make_job
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

URL = "https://example.com/{{id}}"


class Killed(BaseException):
    """Stands for the end of the process."""


def read(bulk: BulkJob) -> BulkJob:
    work.work(bulk.id)
    bulk.refresh_from_db()
    return bulk


def test_a_reader_that_dies_after_any_piece_is_followed_without_loss_or_double(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "PIECE_ROWS", 100)
    lines = [f'{n},"a\nb{n}"\r\n' if n % 3 else f"{n},plain,odd\r\n" for n in range(1, 1051)]
    bulk = make_bulk_job(workspace, make_job(workspace, URL), "id,text\r\n" + "".join(lines), max_invalid_share=1.0)
    real = transitions.advance_cursor
    calls = iter(range(1000))

    def dies(**given: object) -> bool:
        """Before every second commit, with its rows written; and so after every other commit, too."""
        if next(calls) % 2 == 0:
            raise Killed
        return real(**given)  # type: ignore[arg-type]

    monkeypatch.setattr(transitions, "advance_cursor", dies)
    for _ in range(200):
        try:
            work.work(bulk.id)
        except Killed:
            BulkJob.objects.update(work_lease_until=None)
        bulk.refresh_from_db()
        if bulk.state != "INGESTING":
            break
    assert (bulk.state, bulk.total, bulk.invalid) == ("RUNNING", 1050, 350)
    rows = rows_of(bulk)
    assert [row.values and row.values[0] for row in rows] == [str(n) if n % 3 else None for n in range(1, 1051)]
    assert [row.values[1] for row in rows if row.values] == [f"a\nb{n}" for n in range(1, 1051) if n % 3]
    chunks = BulkChunk.objects.order_by("id")
    assert [chunk.rows for chunk in chunks] == [100] * 10 + [50]
    assert sum(chunk.invalid for chunk in chunks) == 350


def test_a_reader_that_was_thought_dead_writes_nothing_more(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "PIECE_ROWS", 100)
    bulk = make_bulk_job(workspace, make_job(workspace, URL), "id\n" + "1\n" * 500)
    real = transitions.advance_cursor
    others: list[str | None] = []
    threads: list[threading.Thread] = []

    def other() -> None:
        others.append(work.work(bulk.id))
        connection.close()

    def slow(**given: object) -> bool:
        if not threads:
            threads.append(threading.Thread(target=other))
            _let_the_claim_run_out(bulk)
            threads[0].start()
            wait_until(lambda: _work_seq(bulk) == 2)
        return real(**given)  # type: ignore[arg-type]

    monkeypatch.setattr(transitions, "advance_cursor", slow)
    assert work.work(bulk.id) is None
    threads[0].join()
    assert others == ["RUNNING"]
    bulk.refresh_from_db()
    assert (bulk.total, BulkRecord.objects.count()) == (500, 500)


def _let_the_claim_run_out(bulk: BulkJob) -> None:
    _in_thread(lambda: BulkJob.objects.filter(id=bulk.id).update(work_lease_until=None))


def _work_seq(bulk: BulkJob) -> int:
    found: list[int] = []
    _in_thread(lambda: found.append(BulkJob.objects.get(id=bulk.id).work_seq))
    return found[0]


def _in_thread(call: Callable[[], object]) -> None:
    """On a connection of its own."""

    def run() -> None:
        call()
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b"PK\x03\x04\x14\x00\x00\x00\x08\x00" + bytes(200), "encoding"),
        ("id\n".encode("utf-16"), "encoding"),
        (b"id\n" + b"1\n" * 300_000 + b"caf\xe9\n", "encoding"),
        (b"id,id\n1,2\n", "duplicate_header"),
        (b"number\n1\n", "unknown_column"),
        (b"id\n" + b"1,2\n" * 11 + b"1\n" * 89, "too_many_invalid"),
    ],
)
def test_a_file_that_cannot_be_taken_fails_with_a_code_and_leaves_no_rows(
    workspace: Workspace, content: bytes, code: str
) -> None:
    bulk = read(make_bulk_job(workspace, make_job(workspace, URL), content))
    assert (bulk.state, bulk.error_code) == ("FAILED", code)
    assert bulk.error_text.endswith(".")
    assert not BulkRecord.objects.exists()
    assert not BulkChunk.objects.exists()


def test_bad_rows_become_invalid_records_with_a_code_and_a_line(workspace: Workspace) -> None:
    bulk = read(make_bulk_job(workspace, make_job(workspace, URL), 'id\n"a\nb"\n1,2\n3\n', max_invalid_share=0.5))
    assert (bulk.state, bulk.total, bulk.invalid) == ("RUNNING", 3, 1)
    bad = [row for row in rows_of(bulk) if row.state == RecordState.INVALID]
    assert [(row.last_error, row.line) for row in bad] == [("too_many_fields", 4)]
    assert bad[0].finished_at is not None


def test_a_header_without_rows_completes_with_none(workspace: Workspace) -> None:
    bulk = read(make_bulk_job(workspace, make_job(workspace, URL), "id\n"))
    assert (bulk.state, bulk.total) == ("RUNNING", 0)
    turn()
    turn()
    bulk.refresh_from_db()
    assert bulk.state == "COMPLETED"


def test_a_lost_message_is_sent_again(workspace: Workspace) -> None:
    bulk = make_bulk_job(workspace, make_job(workspace, URL), "id\n1\n")
    assert messages("bulk-ingest") == [[str(bulk.id)]]
    BulkJob.objects.update(created_at="2020-01-01T00:00:00Z")
    turn()
    bulk.refresh_from_db()
    assert bulk.state == "RUNNING"


def test_a_job_cancelled_while_it_is_read_leaves_no_rows(
    workspace: Workspace, receiver: ProgrammableReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "PIECE_ROWS", 100)
    bulk = make_bulk_job(workspace, make_job(workspace, receiver.url()), "id\n" + "1\n" * 500)
    real = transitions.advance_cursor

    def cancelled(**given: object) -> bool:
        kept = real(**given)  # type: ignore[arg-type]
        BulkJob.objects.update(cancel_requested_at="2020-01-01T00:00:00Z")
        return kept

    monkeypatch.setattr(transitions, "advance_cursor", cancelled)
    assert work.work(bulk.id) is None
    services.cancel_bulk_job(workspace=workspace, job_id=bulk.id)
    bulk.refresh_from_db()
    assert bulk.state == "CANCELLED"
    assert not BulkRecord.objects.exists()


def test_a_file_that_has_gone_from_the_storage_is_named(workspace: Workspace) -> None:
    bulk = make_bulk_job(workspace, make_job(workspace, URL), "id\n1\n")
    storage.delete(bulk.object_name)
    assert read(bulk).error_code == "file_missing"
