"""Celery's tasks of this room: they fetch and call, and hold no logic."""

from uuid import UUID

import psycopg
from celery import shared_task
from celery.exceptions import Reject

from bulk import work as bulk_work
from bulk.domain.numbering import row_id
from bulk.loops import purge
from bulk.loops import tick as loop
from bulk.publish import RECORDS_QUEUE
from execution.dispatch import runtime
from execution.dispatch.engine import EngineStopping


@shared_task(name="bulk.tasks.tick")
def tick() -> None:
    loop.tick()


@shared_task(name="bulk.tasks.purge")
def purge_bulk_jobs() -> None:
    purge.purge_ended()


@shared_task(name="bulk.tasks.sweep")
def sweep_uploads() -> None:
    purge.sweep_uploads()


@shared_task(name="bulk.tasks.work")
def work(job_id: str) -> None:
    """Read a job's file, or write its results."""
    bulk_work.work(UUID(job_id))


@shared_task(name="bulk.tasks.dispatch_records")
def dispatch_records(job_id: str, numbers: list[int]) -> None:
    """Returns as soon as the rows are claimed: the ack means claimed, the lease covers the rest."""
    job = UUID(job_id)
    try:
        runtime.engine(RECORDS_QUEUE).submit([row_id(job, number) for number in numbers])
    except (EngineStopping, psycopg.Error) as error:
        # An error would be acknowledged like success, and the message with its rows would be gone.
        raise Reject(str(error), requeue=True) from error
