"""One workspace's burst does not starve another: the whole way with real processes, and what arrives when."""

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from django.conf import settings
from django.db import transaction

from chronos_site.infra.clock import database_now
from chronos_site.stack.site import one_machine
from chronos_site.tenancy.models import Workspace
from execution import buckets
from execution.domain.buckets import SHARD_SPACE, bucket_of
from execution.models import Execution
from tests.making import copy_execution, make_executions
from tests.processes import SiteProcesses, wait_until
from tests.quick_receiver import QuickReceiver

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

BURST = 50_000
FEW = 50
WITHIN_S = 2.0
AHEAD_S = 7.0
"""So long before its time the burst is inserted: longer than the insert and the look-ahead together."""


def insert(workspace: Workspace, url: str, count: int, *, due_at: datetime, state: str, minutes: int = 1) -> None:
    """Rows as the services make them, copied from one of theirs: fifty thousand within two seconds.

    Over so many minutes, of which that of `due_at` is the last.
    """
    shards = settings.CHRONOS_BUCKET_SHARDS
    retried = {"attempt": "1", "claim_seq": "1", "started_at": "clock_timestamp()"} if state == "RETRYING" else {}
    back = f"n / {shards} %% {minutes}"
    with transaction.atomic():
        [template] = make_executions(workspace, url, due_at=due_at, retry={"max_attempts": 3})
        first = bucket_of(template.id, due_at, 1)
        for minute in range(minutes):
            buckets.open_buckets(range(first - minute * SHARD_SPACE, first - minute * SHARD_SPACE + shards))
        copy_execution(
            template,
            count,
            bucket_id=f"{first} + n %% {shards} - {back} * {SHARD_SPACE}",
            due_at=f"due_at - {back} * interval '1 minute'",
            state=f"'{state}'",
            **retried,
        )
        Execution.objects.filter(id=template.id).delete()


def start_site(processes: SiteProcesses) -> None:
    """All that `up` runs on one machine, but for the web process."""
    for process in one_machine(port=0):
        if process.name != "web":
            child = processes.start(process)
            processes.wait_for_log(child, process.ready_text)


@pytest.mark.parametrize("burst_of", ["PENDING", "RETRYING"], ids=["first attempts", "retries"])
@pytest.mark.parametrize("in_its_midst", [False, True], ids=["due at once", "in its midst"])
def test_fifty_deliveries_go_out_within_two_seconds_beside_fifty_thousand_of_another_workspace(
    celery_processes: SiteProcesses,
    workspace: Workspace,
    other_workspace: Workspace,
    tmp_path: Path,
    burst_of: str,
    in_its_midst: bool,
) -> None:
    with QuickReceiver(tmp_path) as receiver:
        start_site(celery_processes)
        due_at = database_now() + timedelta(seconds=AHEAD_S)
        insert(workspace, receiver.url("/burst"), BURST, due_at=due_at, state=burst_of)
        if in_its_midst:
            wait_until(lambda: len(receiver.arrivals("/burst")) > BURST / 5, timeout_s=30)
            due_at = database_now()
            make_executions(other_workspace, receiver.url("/few"), FEW, due_at=due_at)
        else:
            insert(other_workspace, receiver.url("/few"), FEW, due_at=due_at, state=burst_of)
            assert database_now() < due_at - timedelta(seconds=settings.CHRONOS_DISPATCH_HORIZON_S)
        wait_until(lambda: len(receiver.arrivals("/few")) == FEW, timeout_s=30)
        late = [at - due_at.timestamp() for at in receiver.arrivals("/few")]
        assert 0 < len(receiver.arrivals("/burst")) < BURST * 0.9, "the burst was not under way"
        assert min(late) >= 0
        assert max(late) < WITHIN_S, sorted(late)


def test_fifty_deliveries_go_out_within_two_seconds_in_the_midst_of_a_burst_that_lies_overdue_in_hundreds_of_buckets(
    celery_processes: SiteProcesses, workspace: Workspace, other_workspace: Workspace, tmp_path: Path
) -> None:
    with QuickReceiver(tmp_path) as receiver:
        start_site(celery_processes)
        insert(workspace, receiver.url("/burst"), BURST, due_at=database_now(), state="PENDING", minutes=120)
        wait_until(lambda: len(receiver.arrivals("/burst")) > BURST / 5, timeout_s=60)
        due_at = database_now()
        make_executions(other_workspace, receiver.url("/few"), FEW, due_at=due_at)
        wait_until(lambda: len(receiver.arrivals("/few")) == FEW, timeout_s=30)
        late = [at - due_at.timestamp() for at in receiver.arrivals("/few")]
        assert len(receiver.arrivals("/burst")) < BURST * 0.9, "the burst was not under way"
        assert max(late) < WITHIN_S, sorted(late)


def all_have_come(receiver: QuickReceiver, count: int) -> bool:
    return len(receiver.arrivals("/few")) == count


@pytest.mark.parametrize("answers_after_s", [1, 4])
def test_fifty_deliveries_go_out_within_two_seconds_beside_receivers_that_are_slow(
    celery_processes: SiteProcesses,
    workspace: Workspace,
    other_workspace: Workspace,
    tmp_path: Path,
    answers_after_s: int,
) -> None:
    folders = [tmp_path / name for name in ("slow", "also_slow", "quick")]
    for folder in folders:
        folder.mkdir()
    with QuickReceiver(folders[0]) as slow, QuickReceiver(folders[1]) as also_slow, QuickReceiver(folders[2]) as quick:
        start_site(celery_processes)
        path = f"/slow/{answers_after_s}/burst"
        for receiver in (slow, also_slow):
            insert(workspace, receiver.url(path), BURST // 10, due_at=database_now(), state="PENDING")
        wait_until(lambda: all(len(each.arrivals(path)) > 300 for each in (slow, also_slow)), timeout_s=30)
        for _ in range(3):
            due_at = database_now()
            before = len(quick.arrivals("/few"))
            make_executions(other_workspace, quick.url("/few"), FEW, due_at=due_at)
            wait_until(partial(all_have_come, quick, before + FEW), timeout_s=30)
            late = [at - due_at.timestamp() for at in quick.arrivals("/few")[before:]]
            assert max(late) < WITHIN_S, sorted(late)
        assert all(len(each.arrivals(path)) < BURST // 10 for each in (slow, also_slow)), "the burst was not under way"
