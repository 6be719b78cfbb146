"""How many chunks wait in Redis: never more than the limit, and as room comes the next, without waiting for a tick."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bulk import services, work
from bulk.fanout import BUDGET_S, LEAST_BACKLOG
from bulk.loops.tick import tick
from bulk.models import BulkChunk, BulkJob
from bulk.publish import RECORDS_QUEUE, records_backlog
from chronos_site.tenancy.models import Workspace
from tests.bulk.pump import make_bulk_job, messages
from tests.making import make_job
from tests.processes import wait_until
from tests.threads import in_thread

pytestmark = pytest.mark.django_db(transaction=True)

CHUNKS = LEAST_BACKLOG + 15


@pytest.fixture
def bulk(workspace: Workspace) -> BulkJob:
    """Read, with more chunks than have room; nothing of it is delivered here."""
    made = make_bulk_job(workspace, make_job(workspace, "http://127.0.0.1:1/"), "id\n" + "1\n" * 100 * CHUNKS)
    work.work(made.id)
    messages(RECORDS_QUEUE)
    return made


@contextmanager
def workers() -> Iterator[list[int]]:
    """Takes messages as workers do, until the block ends; the list says which rows they begin with."""
    taken: list[int] = []
    over = threading.Event()

    def take() -> None:
        while not over.wait(0.02):
            taken.extend(numbers[0] for _, numbers in messages(RECORDS_QUEUE))

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        over.set()
        thread.join()


def test_what_has_no_room_goes_out_within_the_same_tick_as_workers_make_some(bulk: BulkJob) -> None:
    with workers() as taken:
        tick()
        wait_until(lambda: len(taken) >= CHUNKS)
    assert taken == [1 + 100 * n for n in range(CHUNKS)]
    assert not BulkChunk.objects.filter(bulk_job_id=bulk.id, state="WAITING").exists()


def test_no_more_waits_than_the_limit_where_nobody_takes_any(bulk: BulkJob) -> None:
    begun = time.monotonic()
    tick()
    assert records_backlog() == LEAST_BACKLOG
    assert BulkChunk.objects.filter(bulk_job_id=bulk.id, state="WAITING").count() == CHUNKS - LEAST_BACKLOG
    assert time.monotonic() - begun < BUDGET_S + 1


def test_a_pause_ends_it_at_once(workspace: Workspace, bulk: BulkJob) -> None:
    ticking = in_thread(tick)
    wait_until(lambda: records_backlog() == LEAST_BACKLOG)
    services.pause_bulk_job(workspace=workspace, job_id=bulk.id)
    time.sleep(0.2)
    messages(RECORDS_QUEUE)
    ticking.join()
    assert records_backlog() == 0
