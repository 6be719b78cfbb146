"""Drives bulk jobs within a test: ticks, and runs what the ticks published, as workers would."""

import base64
import io
import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from bulk import services, work
from bulk.domain.numbering import row_id
from bulk.domain.states import JOB_ENDED
from bulk.loops.tick import tick
from bulk.models import BulkJob, BulkRecord
from bulk.publish import INGEST_QUEUE, RECORDS_QUEUE
from chronos_site.infra import redis
from chronos_site.tenancy.models import Workspace
from execution.dispatch.engine import Engine
from execution.models import JobDefinition


def make_bulk_job(workspace: Workspace, job: JobDefinition, text: str | bytes, **fields: Any) -> BulkJob:
    """A job whose file is stored and whose reader is woken, as an upload makes it."""
    content = text.encode() if isinstance(text, str) else text

    def pieces() -> Iterator[bytes]:
        stream = io.BytesIO(content)
        while piece := stream.read(services.PIECE):
            yield piece

    values: dict[str, Any] = {"delimiter": ",", "max_invalid_share": 0.1, "start": True, **fields}
    with services.received(workspace, pieces()) as (job_id, size):
        return services.create_bulk_job(
            workspace=workspace,
            job_id=job_id,
            job=job,
            file_name="rows.csv",
            size_bytes=size,
            traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-00",
            **values,
        )


def messages(queue: str) -> list[list[Any]]:
    """Take what waits on a queue: the arguments of each message."""
    taken = []
    while (message := redis.client().rpop(queue)) is not None:
        body = base64.b64decode(json.loads(str(message))["body"])
        taken.append(json.loads(body)[0])
    return taken


def turn(engine: Engine | None = None) -> bool:
    """One tick, and the work that it, or whoever came before, has published. Always true, for conditions."""
    tick()
    for (job_id,) in messages(INGEST_QUEUE):
        work.work(UUID(job_id))
    if engine is not None:
        for job_id, numbers in messages(RECORDS_QUEUE):
            engine.submit([row_id(UUID(job_id), number) for number in numbers])
    return True


def run_to_end(job: BulkJob, engine: Engine, timeout_s: float = 20) -> BulkJob:
    """Turn until the job has ended."""
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        turn(engine)
        job.refresh_from_db()
        if job.state in JOB_ENDED:
            return job
        time.sleep(0.05)
    raise AssertionError(f"{job.state} {job.total=} {job.succeeded=} {job.failed=} {states_of(job)}")


def states_of(job: BulkJob) -> list[str]:
    """The states of its rows, in their order."""
    return [row.state for row in rows_of(job)]


def rows_of(job: BulkJob) -> list[BulkRecord]:
    return list(BulkRecord.objects.filter(bulk_job_id=job.id).order_by("id"))
