"""Ingest: the rows of a file into the table, piece by piece, each piece with the cursor in one transaction.

Called by the task `bulk.tasks.work` for a job that is UPLOADED, or INGESTING without a living reader. Killed at any
moment it goes on where the last committed piece ended: no row is lost or doubled. Two at once: the second finds the
claim taken; one that was thought dead finds its claim gone at its next piece, which is rolled back. A file that cannot
be taken leaves no rows behind; nothing has been sent by then. Memory stays flat: one piece is in it at a time.
"""

import logging
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from bulk import transitions
from bulk.domain.numbering import CHUNK, first_id, range_of
from bulk.domain.rows import CsvError, Place, RowError, RowReader
from bulk.domain.states import RecordState
from bulk.domain.template import TemplateError, compile_template
from bulk.models import BulkChunk, BulkJob, BulkRecord
from bulk.notices import note_end
from chronos_site.infra import storage

log = logging.getLogger(__name__)

PIECE_ROWS = 10_000
"""Rows of one transaction; a multiple of CHUNK."""
PIECE_BYTES = 8 * 1024 * 1024
"""Where rows are large, a piece holds fewer of them."""
REMOVED_AT_ONCE = 20_000

COPY = (
    "COPY bulk_bulkrecord (id, bulk_job_id, line, values, state, last_error, last_error_text, finished_at) FROM STDIN"
)
TEXTS = {
    "unterminated_quote": "A quote opens here and is never closed.",
    "nul_byte": "The row holds a NUL byte.",
    "field_too_large": "A field is larger than 1 MiB.",
    "too_few_fields": "The row has fewer fields than the header.",
    "too_many_fields": "The row has more fields than the header.",
}
_SPECIAL = str.maketrans({"\\": r"\\\\", '"': r"\\" + '"', "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""A value within quotes in an array within a line of COPY: a backslash is doubled once for each."""


_IS_SPECIAL = re.compile(r'[\\"\t\n\r]')


class Superseded(Exception):  # noqa: N818 - a state of affairs
    """Another reads the file now, or the job is cancelled."""


def ingest(job: BulkJob, *, seq: int) -> str | None:
    """Read the file of a job that is claimed with `seq`. The state it came to; None: not ours any more.

    Raises StorageError and database errors: the claim runs out, and another goes on.
    """
    try:
        with storage.open_reader(job.object_name, offset=job.cursor_offset) as stream:
            reader = _open(job, stream, seq)
            _copy_all(job, reader, seq)
        _judge_share(job)
        return transitions.finish_ingest(job_id=job.id, seq=seq)
    except Superseded:
        return None
    except storage.ObjectMissing:
        return _refuse(job, seq, "file_missing", "The file is no longer in the object storage. Upload it again.")
    except (CsvError, TemplateError) as error:
        return _refuse(job, seq, error.code, str(error))


def remove_rows(job_id: UUID) -> None:
    """Remove the rows of a job, some at a time."""
    first, last = range_of(job_id)
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM bulk_bulkrecord WHERE id IN"
                " (SELECT id FROM bulk_bulkrecord WHERE id BETWEEN %s AND %s ORDER BY id LIMIT %s)",
                [first, last, REMOVED_AT_ONCE],
            )
            if cursor.rowcount < REMOVED_AT_ONCE:
                break
    BulkChunk.objects.filter(id__range=(first, last)).delete()


def _open(job: BulkJob, stream: Any, seq: int) -> RowReader:
    """A reader behind what is in the table. The first look at the header is checked against the template."""
    if job.columns:
        place = Place(tuple(job.columns), job.total, job.cursor_line, job.cursor_offset)
        return RowReader(stream, delimiter=job.delimiter, after=place)
    reader = RowReader(stream, delimiter=job.delimiter)
    compile_template(target=job.target, payload=job.payload).check_columns(reader.columns)
    kept = transitions.note_columns(
        job_id=job.id, seq=seq, columns=reader.columns, offset=reader.offset, line=reader.line
    )
    if not kept:
        raise Superseded
    job.columns = list(reader.columns)
    return reader


def _copy_all(job: BulkJob, reader: RowReader, seq: int) -> None:
    ended = False
    while not ended:
        first = job.total + 1
        with transaction.atomic():
            lines = _Lines(job, reader)
            with connection.cursor() as cursor, cursor.copy(COPY) as copy:
                for text in lines:
                    copy.write(text)
            ended = lines.ended
            rows = lines.number - first + 1
            if not rows:
                break
            BulkChunk.objects.bulk_create(lines.chunks)
            kept = transitions.advance_cursor(
                job_id=job.id, seq=seq, offset=lines.offset, line=lines.line, rows=rows, invalid=lines.invalid
            )
            if not kept:
                raise Superseded
        job.total += rows
        job.invalid += lines.invalid


class _Lines:
    """One piece of a file as lines of COPY; its chunks, and where it ended."""

    def __init__(self, job: BulkJob, reader: RowReader) -> None:
        self._job = job
        self._reader = reader
        self.chunks: list[BulkChunk] = []
        self.number = job.total
        self.invalid = 0
        self.offset, self.line = reader.offset, reader.line
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        reader, job_id = self._reader, self._job.id
        base, begun = first_id(job_id), reader.offset
        job = str(job_id)
        bad = 0
        count = 0
        for count, row in enumerate(reader, start=1):
            key = f"{base | row.number:032x}\t{job}\t{row.line}"
            if isinstance(row, RowError):
                bad += 1
                yield f"{key}\t\\N\tINVALID\t{row.code}\t{TEXTS[row.code]}\tnow\n"
            else:
                # No value holds a NUL, so it can stand between them until the special characters are seen to.
                values = "\0".join(row.values.values())
                if _IS_SPECIAL.search(values):
                    values = values.translate(_SPECIAL)
                values = values.replace("\0", '","')
                yield f'{key}\t{{"{values}"}}\tPENDING\t\t\t\\N\n'
            if count % CHUNK == 0:
                self._add_chunk(row.number, CHUNK, bad)
                bad = 0
                if count >= PIECE_ROWS or row.end - begun >= PIECE_BYTES:
                    break
        else:
            self.ended = True
            if count % CHUNK:
                self._add_chunk(reader.number, count % CHUNK, bad)
        self.number = reader.number
        self.offset, self.line = reader.offset, reader.line

    def _add_chunk(self, last: int, rows: int, invalid: int) -> None:
        first = last - rows + 1
        self.invalid += invalid
        self.chunks.append(
            BulkChunk(
                id=UUID(int=first_id(self._job.id) | first),
                bulk_job_id=self._job.id,
                first_row=first,
                rows=rows,
                invalid=invalid,
                state="DONE" if invalid == rows else "WAITING",
            )
        )


def _judge_share(job: BulkJob) -> None:
    """Raises CsvError where more of the rows are bad than the job allows."""
    if job.invalid > job.max_invalid_share * job.total:
        first = BulkRecord.objects.filter(id__range=range_of(job.id), state=RecordState.INVALID).order_by("id").first()
        where = f" The first is on line {first.line}: {first.last_error}." if first else ""
        raise CsvError(
            "too_many_invalid",
            f"{job.invalid:,} of {job.total:,} rows are not valid, more than the share of {job.max_invalid_share:g}"
            f" that the job allows. Nothing was sent.{where}",
        )


def _refuse(job: BulkJob, seq: int, code: str, text: str) -> str | None:
    log.info("file_refused", extra={"action": "ingest", "bulk_job_id": str(job.id), "code": code})
    with transaction.atomic():
        if not transitions.refuse_file(job_id=job.id, seq=seq, code=code, text=text):
            return None
        note_end(job, state="FAILED", error=code)
    remove_rows(job.id)
    return "FAILED"
