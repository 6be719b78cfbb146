"""What may be done with bulk jobs. Each function is bound to a workspace and raises `Refused` with one clear sentence.

A file comes in as a stream (`receive`), is looked at (`look_at`) and becomes a job (`create_bulk_job`). Until the job's
row is committed nothing knows of the file; whoever fails in between removes it again.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO
from uuid import UUID

from django.conf import settings
from django.db import transaction

from bulk import publish, transitions
from bulk.domain.rows import CsvError, RowError, RowReader
from bulk.domain.states import JOB_ENDED, JobState
from bulk.domain.template import RowRefused, TemplateError, compile_template
from bulk.ingest import TEXTS, remove_rows
from bulk.models import BulkJob
from bulk.telling import tell
from chronos_site.infra import storage
from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import Workspace
from execution import services as execution_services
from execution.models import JobDefinition
from execution.services import Refused

log = logging.getLogger(__name__)

PIECE = 256 * 1024
SHOWN_ROWS = 5
"""Rows that a dry run renders."""


class FileRefused(Refused):
    """The file, or what the template asks of it, is not right. `code` says how; `pointer` names a place in the job."""

    def __init__(self, code: str, text: str, *, pointer: str = "/file") -> None:
        super().__init__(text)
        self.code = code
        self.pointer = pointer


class TooLarge(FileRefused):
    """More bytes than a file may have."""

    def __init__(self) -> None:
        most = settings.CHRONOS_BULK_MAX_BYTES
        super().__init__("file_too_large", f"A file may have {most:,} bytes at most. Split it into several uploads.")


class WrongState(Refused):
    """The job as it stands does not allow it."""

    code = "wrong_state"

    def __init__(self, text: str, *, state: str) -> None:
        super().__init__(text)
        self.state = state


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """A row as it would be sent, or why it would not be."""

    number: int
    line: int
    target: dict[str, Any] | None = None
    payload: Any = None
    code: str = ""
    error: str = ""


@dataclass(slots=True)
class FirstLook:
    """What the beginning of a file says."""

    columns: list[str]
    rows: list[RenderedRow] = field(default_factory=list)


@contextmanager
def received(workspace: Workspace, pieces: Iterator[bytes]) -> Iterator[tuple[UUID, int]]:
    """Store a file under the id of a job to be: (id, bytes). It is removed again where the block raises.

    Raises TooLarge, StorageError.
    """
    job_id = new_id()
    name = object_name(workspace.id, job_id)
    size = 0
    with storage.open_writer(name) as out:
        for piece in pieces:
            size += len(piece)
            if size > settings.CHRONOS_BULK_MAX_BYTES:
                raise TooLarge
            out.write(piece)
    try:
        yield job_id, size
    except BaseException:
        discard(name)
        raise


def object_name(workspace_id: UUID, job_id: UUID) -> str:
    """Where the file of a job lies."""
    return BulkJob(id=job_id, workspace_id=workspace_id).object_name


def discard(name: str) -> None:
    """Remove a file that became no job. Best effort: nothing knows of it."""
    try:
        storage.delete(name)
    except storage.StorageError as error:
        log.warning("upload_left", extra={"action": "upload", "object": name, "error": str(error)[:300]})


def look_at(stream: BinaryIO, *, job: JobDefinition, delimiter: str, rows: int = 0) -> FirstLook:
    """Read the header and the first rows, and render these. Raises FileRefused: nothing is stored, nothing sent."""
    try:
        template = compile_template(target=job.target, payload=job.payload)
        reader = RowReader(stream, delimiter=delimiter)
        template.check_columns(reader.columns)
        look = FirstLook(list(reader.columns))
        # One more than nothing: that the file goes on as text is worth a look.
        for row in islice(reader, max(rows, 1)):
            look.rows.append(_rendered(template, row))
    except TemplateError as error:
        raise FileRefused(error.code, str(error), pointer=error.pointer) from error
    except (CsvError, ValueError) as error:
        raise FileRefused(getattr(error, "code", "invalid_delimiter"), str(error)) from error
    look.rows = look.rows[:rows]
    return look


def _rendered(template: Any, row: Any) -> RenderedRow:
    if isinstance(row, RowError):
        return RenderedRow(row.number, row.line, code=row.code, error=TEXTS[row.code])
    try:
        target, payload = template.render(row.values)
    except RowRefused as error:
        return RenderedRow(row.number, row.line, code=error.code, error=str(error))
    return RenderedRow(row.number, row.line, target, payload)


@transaction.atomic
def create_bulk_job(
    *,
    workspace: Workspace,
    job_id: UUID,
    job: JobDefinition,
    file_name: str,
    size_bytes: int,
    delimiter: str,
    max_invalid_share: float,
    start: bool,
    traceparent: str,
) -> BulkJob:
    """The job of a file that is stored already. A reader is woken on commit. Raises JobGone."""
    execution_services.hold_jobs(jobs=[job])
    made = BulkJob.objects.create(
        id=job_id,
        workspace=workspace,
        job_definition=job,
        job_version=job.version,
        kind=job.kind,
        target=job.target,
        payload=job.payload,
        timeout_s=job.timeout_s,
        retry=job.retry,
        limits=job.limits,
        traceparent=traceparent,
        file_name=file_name,
        size_bytes=size_bytes,
        delimiter=delimiter,
        max_invalid_share=max_invalid_share,
        held=not start,
        created_at=database_now(),
    )
    tell(made.id, JobState.UPLOADED)
    transaction.on_commit(lambda: publish.publish_work([made.id]), robust=True)
    return made


def start_bulk_job(*, workspace: Workspace, job_id: UUID) -> BulkJob:
    """Send what waits. Safe to repeat. Raises WrongState."""
    return _change(workspace, job_id, "started", _start)


def pause_bulk_job(*, workspace: Workspace, job_id: UUID) -> BulkJob:
    """Begin no further row; sends under way end. Before its rows are read it waits for a start. Raises WrongState."""
    return _change(workspace, job_id, "paused", _pause)


def cancel_bulk_job(*, workspace: Workspace, job_id: UUID) -> BulkJob:
    """Rows that are not under way will not be sent. Safe to repeat. Raises WrongState."""
    return _change(workspace, job_id, "cancelled", _cancel)


def retry_failed_rows(*, workspace: Workspace, job_id: UUID) -> BulkJob:
    """Send again what failed, and nothing else. Raises WrongState."""
    return _change(workspace, job_id, "retried", _retry_failed)


@transaction.atomic
def _change(workspace: Workspace, job_id: UUID, verb: str, change: Any) -> BulkJob:
    job = BulkJob.objects.select_for_update(of=("self",)).get(workspace=workspace, id=job_id)
    why = change(job)
    if why:
        raise WrongState(f"The bulk job is {job.state}: it cannot be {verb}. {why}", state=job.state)
    job.refresh_from_db()
    return job


def _start(job: BulkJob) -> str:
    if job.state in JOB_ENDED:
        return "It has ended; retry-failed sends what failed once more, a new upload sends all."
    if job.cancel_requested_at is not None:
        return "Somebody has cancelled it."
    if job.held:
        BulkJob.objects.filter(id=job.id).update(held=False)
        transitions.start_paused(job_id=job.id)
    return ""


def _pause(job: BulkJob) -> str:
    if job.state in JOB_ENDED:
        return "It has ended."
    if not transitions.pause_running(job_id=job.id):
        BulkJob.objects.filter(id=job.id).update(held=True)
    return ""


def _cancel(job: BulkJob) -> str:
    if job.state == JobState.CANCELLED:
        return ""
    if job.state in JOB_ENDED:
        return "It has ended."
    if transitions.cancel_unread(job_id=job.id):
        transaction.on_commit(lambda: remove_rows(job.id), robust=True)
    elif job.cancel_requested_at is None:
        BulkJob.objects.filter(id=job.id).update(cancel_requested_at=database_now())
    return ""


def _retry_failed(job: BulkJob) -> str:
    if job.state == JobState.RUNNING:
        return ""  # Said twice, or it runs anyway.
    if job.state not in (JobState.PARTIAL_FAILURE, JobState.FAILED):
        return "Only a job that ended with failed rows has any to send again."
    if job.error_code or not transitions.reopen_job(job_id=job.id):
        return "None of its rows failed at the delivery: there is nothing to send again."
    return ""
