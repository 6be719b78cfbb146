"""The results of a bulk job: a CSV file in the object storage, a line for every row of the upload, in its order.

Called by the task `bulk.tasks.work` once every row has ended. The file appears only when it is complete; dying before
leaves nothing, and the next who is woken writes it anew. Memory stays flat: a cursor reads the rows some at a time.
"""

import csv
import io
import logging
import time
from typing import Any

from django.db import connection, transaction

from bulk import transitions
from bulk.domain.numbering import number_of, range_of
from bulk.domain.states import end_of
from bulk.ingest import Superseded
from bulk.models import BulkChunk, BulkJob
from bulk.notices import note_end
from chronos_site.infra import storage

log = logging.getLogger(__name__)

HEADER = ("row", "status", "attempts", "code", "error", "response")
AT_ONCE = 5000
RENEW_S = 10.0
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def finish(job: BulkJob, *, seq: int) -> str | None:
    """End a job that is claimed with `seq`. The state it came to; None: not all has ended, or it is not ours."""
    first, last = range_of(job.id)
    counts = dict.fromkeys(("succeeded", "failed", "cancelled"), 0)
    for chunk in BulkChunk.objects.filter(id__range=(first, last)).values("state", *counts).iterator():
        if chunk["state"] != "DONE":
            transitions.release_work(job_id=job.id, seq=seq)
            return None
        for name in counts:
            counts[name] += chunk[name]
    try:
        size = _write(job, seq)
    except Superseded:
        return None
    state = end_of(
        succeeded=counts["succeeded"],
        failed=counts["failed"],
        invalid=job.invalid,
        cancelled=job.cancel_requested_at is not None and counts["cancelled"] > 0,
    )
    with transaction.atomic():
        ended = transitions.end_job(job_id=job.id, seq=seq, state=state, counts=counts, results_bytes=size)
        if ended:
            note_end(job, state=state.value)
    return state.value if ended else None


def safe_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def _write(job: BulkJob, seq: int) -> int:
    """Bytes written. Raises Superseded, StorageError."""
    renewed = time.monotonic()
    with storage.open_writer(job.results_name) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        try:
            out = csv.writer(text)
            out.writerow(HEADER)
            # A cursor on the server, which lives in a transaction: the rows are read some at a time.
            with transaction.atomic(), connection.chunked_cursor() as cursor:
                cursor.execute(
                    "SELECT id, state, attempt, last_status, last_error, last_error_text, response_excerpt"
                    " FROM bulk_bulkrecord WHERE id BETWEEN %s AND %s ORDER BY id",
                    list(range_of(job.id)),
                )
                while rows := cursor.fetchmany(AT_ONCE):
                    out.writerows(map(_line, rows))
                    if time.monotonic() - renewed > RENEW_S:
                        renewed = time.monotonic()
                        if not transitions.renew_work(job_id=job.id, seq=seq):
                            raise Superseded
            text.flush()
        finally:
            text.detach()
    return storage.size(job.results_name) or 0


def _line(row: tuple[Any, ...]) -> tuple[Any, ...]:
    record_id, state, attempts, status, error, error_text, excerpt = row
    code = error or ("" if status is None else f"http_{status}")
    return number_of(record_id), state, attempts, code, safe_cell(error_text), safe_cell(excerpt)
