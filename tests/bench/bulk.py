"""Bulk jobs: reading a large file into the table, and delivering rows beside single executions of the same run.

The file lies in the folder storage; a process of its own reads it (`tests.bench.bulk_reader`). The delivery is that of
`tests.bench.delivery`: one worker that dispatches, a tick each second, from the start to the last stored result.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator

from django.db import connection

from bulk import services, work
from bulk.domain.states import JobState
from bulk.loops.tick import tick
from bulk.models import BulkChunk, BulkJob
from bulk.publish import INGEST_QUEUE, RECORDS_QUEUE
from chronos_site.infra import redis, trace
from chronos_site.stack.processes import tail
from chronos_site.tenancy.models import Workspace
from chronos_site.tenancy.services import create_workspace
from execution.models import JobDefinition
from tests.bench import delivery
from tests.bench.arrivals import SinkProcess
from tests.bench.figures import Figure, median
from tests.bench.ground import Ground
from tests.making import make_job

FILE_ROWS = 1_000_000
LARGE_BYTES = 2_000_000_000
INGEST_PATIENCE_S = 1800.0
MOST_MIB = 64
APART_MIB = 16
"""What the memory of the large file may be above that of the other."""
PIECE_ROWS = 5000
ROW_PAD = "x" * 33


def measure_bulk(ground: Ground, sink: SinkProcess, *, runs: int, large: bool) -> list[Figure]:
    workspace = create_workspace(name="bench-bulk")
    job = make_job(workspace, sink.url, payload={"n": "{{id}}"}, timeout_s=5.0, retry={"max_attempts": 1})
    figures = _measure_ingest(ground, workspace, job, runs=runs, large=large)
    return [*figures, *_measure_delivery(ground, sink, workspace, job, runs=runs)]


# --- reading a file ------------------------------------------------------------------------------------------


def _measure_ingest(
    ground: Ground, workspace: Workspace, job: JobDefinition, *, runs: int, large: bool
) -> list[Figure]:
    small = [_read_by_a_process(ground, workspace, job, FILE_ROWS) for _ in range(runs)]
    mb = small[0].mb
    grown = max(read.mib for read in small)
    figures = [
        median(
            f"bulk: rows read, of {mb:,.0f} MB", [r.per_s for r in small], "/s", least=50_000, key="bulk.read_per_s"
        ),
        Figure("bulk: memory that the reading takes at its most", grown, "MiB", most=MOST_MIB, key="bulk.read_mib"),
        median("bulk: CPU of the reader for 1,000,000", [r.cpu_s for r in small], "s", key="bulk.read_cpu_s"),
    ]
    if large:
        big = _read_by_a_process(ground, workspace, job, int(LARGE_BYTES / mb / 1e6 * FILE_ROWS))
        most = round(grown + APART_MIB, 1)
        figures += [
            Figure(f"bulk: rows read, of {big.mb:,.0f} MB", big.per_s, "/s", key="bulk.read_2gb_per_s"),
            Figure("bulk: memory that the reading of that takes", big.mib, "MiB", most=most, key="bulk.read_2gb_mib"),
        ]
    return figures


class _Read:
    def __init__(self, told: str, size: int) -> None:
        found = json.loads(told)
        self.per_s: float = found["rows"] / found["took_s"]
        self.cpu_s: float = found["cpu_s"]
        self.mib: float = found["grown_mib"]
        self.mb = size / 1e6


def _read_by_a_process(ground: Ground, workspace: Workspace, job: JobDefinition, rows: int) -> _Read:
    """Raises RuntimeError where the process fails or takes too long."""
    _clear()
    made = _upload(workspace, job, _customers(rows))
    child = ground.python("bulk-reader", "-m", "tests.bench.bulk_reader", str(made.id))
    ends = time.monotonic() + INGEST_PATIENCE_S
    while child.running and time.monotonic() < ends:
        time.sleep(0.1)
    log = child.spec.log
    ground.stop(child)
    made.refresh_from_db()
    services.discard(made.object_name)
    if made.state != JobState.PAUSED or made.total != rows:
        raise RuntimeError(f"{made.total:,} of {rows:,} rows were read, the job is {made.state}:\n{tail(log)}")
    _clear()
    return _Read(log.read_text(encoding="utf-8").splitlines()[-1], made.size_bytes)


def _customers(rows: int) -> Iterator[bytes]:
    """A file of rows of about a hundred bytes, in pieces."""
    yield b"id,name,email,city,amount\n"
    for start in range(1, rows + 1, PIECE_ROWS):
        numbers = range(start, min(start + PIECE_ROWS, rows + 1))
        yield "".join(
            f"{n:010d},Customer {n:08d},customer{n:08d}@example.com,{ROW_PAD},{n % 10_000:04d}.50\n" for n in numbers
        ).encode()


def _upload(workspace: Workspace, job: JobDefinition, pieces: Iterator[bytes]) -> BulkJob:
    """A job that waits for its start; nobody is woken who would read it but us."""
    with services.received(workspace, pieces) as (job_id, size):
        made = services.create_bulk_job(
            workspace=workspace,
            job_id=job_id,
            job=job,
            file_name="rows.csv",
            size_bytes=size,
            delimiter=",",
            max_invalid_share=0.1,
            start=False,
            traceparent=trace.parse_or_new(None),
        )
    redis.client().delete(INGEST_QUEUE)
    return made


# --- delivering its rows -------------------------------------------------------------------------------------


def _measure_delivery(
    ground: Ground, sink: SinkProcess, workspace: Workspace, job: JobDefinition, *, runs: int
) -> list[Figure]:
    """In turns, so that both meet the machine as it is."""
    fanout, single = ground.site()
    records = ground.worker("bulk", queues=RECORDS_QUEUE, concurrency=8)

    def one_by_one(count: int) -> float:
        return delivery.deliver(ground, sink, workspace, [fanout, single], count).per_s

    def as_rows(count: int) -> float:
        return _deliver_rows(sink, workspace, job, count)

    kinds: tuple[Callable[[int], float], ...] = (one_by_one, as_rows)
    for kind in kinds:
        kind(delivery.BATCH)  # Connections, prepared statements, imports.
    singles, rows = zip(*(tuple(kind(delivery.COUNT) for kind in kinds) for _ in range(runs)), strict=True)
    ground.stop(fanout, single, records)
    share = statistics.median(rows) / statistics.median(singles)
    return [
        median("bulk: rows delivered, 1 worker", rows, "/s", key="bulk.rows_per_s"),
        median("bulk: single executions beside them", singles, "/s", key="bulk.executions_per_s"),
        Figure("bulk: rows to single executions", share, "", least=0.7, key="bulk.rows_to_executions"),
    ]


def _deliver_rows(sink: SinkProcess, workspace: Workspace, job: JobDefinition, count: int) -> float:
    """Rows a second, from the start of a job that has been read to the last stored result. Raises TimeoutError."""
    _clear()
    lines = [b"id\n", *(b"%d\n" % n for n in range(count))]
    made = _upload(workspace, job, iter([b"".join(lines)]))
    work.work(made.id)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE bulk_bulkrecord, bulk_bulkchunk")
    sink.forget()
    begun = time.monotonic()
    services.start_bulk_job(workspace=workspace, job_id=made.id)
    ends, tick_at = begun + delivery.PATIENCE_S, 0.0
    # As with single executions, PostgreSQL has the last word, and is asked once all have arrived.
    while sink.count() < count or BulkChunk.objects.filter(bulk_job_id=made.id).exclude(state="DONE").exists():
        if time.monotonic() > ends:
            raise TimeoutError(f"less than {count} rows were delivered within {delivery.PATIENCE_S:g} s")
        if time.monotonic() >= tick_at:
            tick()
            tick_at = time.monotonic() + 1
        time.sleep(delivery.POLL_S)
    took = time.monotonic() - begun
    made.refresh_from_db()
    services.discard(made.object_name)
    succeeded = sum(BulkChunk.objects.filter(bulk_job_id=made.id).values_list("succeeded", flat=True))
    if succeeded != count:
        raise RuntimeError(f"{succeeded:,} of {count:,} rows were delivered, the others failed")
    return count / took


def _clear() -> None:
    redis.client().delete(INGEST_QUEUE, RECORDS_QUEUE)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE bulk_bulkrecord, bulk_bulkchunk, bulk_bulkjob")
