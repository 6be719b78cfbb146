"""From a failure to what is told of it: facts in the transaction of the failure, weighed and grouped once."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import transitions as executions
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.dispatch.source import SWITCH_AGE_S
from execution.loops import notifications as loop
from execution.models import Execution, Notification, NotificationFact, NotificationState
from execution.notifications import grouping, services, weighing
from tests.clients import ProgrammableReceiver
from tests.making import make_executions, make_job
from tests.notifications.pump import (
    SIGNING,
    allow_secrets,
    end,
    end_many,
    finish,
    make_channel,
    make_rule,
    messages,
    reference,
    sent,
    turn,
)
from tests.processes import wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def channel(workspace: Workspace, settings: Any, receiver: ProgrammableReceiver) -> Any:
    allow_secrets(settings, workspace, signing=SIGNING)
    return make_channel(workspace, url=receiver.url("/hook"), signing={"secret": reference("signing")})


def told() -> list[tuple[str, int]]:
    """Of each notification its event and how many facts it tells, oldest first."""
    return [(n.event, n.content["count"]) for n in Notification.objects.order_by("id")]


def stages() -> list[str]:
    return list(NotificationFact.objects.order_by("id").values_list("stage", flat=True))


# --- facts -----------------------------------------------------------------------------------------------------------


def test_without_rules_nothing_is_written(workspace: Workspace) -> None:
    end(workspace, None, "FAILED", "SUCCEEDED")
    turn()
    assert not NotificationFact.objects.exists()


def test_each_rule_gets_the_failures_that_its_filters_let_in(workspace: Workspace, channel: Any) -> None:
    job, other = make_job(workspace, "http://127.0.0.1:9/"), make_job(workspace, "http://127.0.0.1:9/")
    rules = [
        make_rule(workspace, channel),
        make_rule(workspace, channel, job_definitions=[job.id]),
        make_rule(workspace, channel, tags=["a", "b"]),
        make_rule(workspace, channel, job_definitions=[other.id], tags=["b"]),
        make_rule(workspace, channel, enabled=False),
        make_rule(workspace, channel, events=["bulk_finished"]),
    ]
    end(workspace, job, "FAILED", tags=["a"])
    end(workspace, other, "FAILED", tags=["c"])
    end(workspace, None, "FAILED", "SUCCEEDED", tags=["b"])
    facts = NotificationFact.objects.values_list("rule_id", flat=True)
    assert [list(facts).count(rule.id) for rule in rules] == [3, 1, 2, 0, 0, 0]


def test_a_failure_that_is_rolled_back_leaves_no_fact(workspace: Workspace, channel: Any) -> None:
    make_rule(workspace, channel)
    [row] = make_executions(workspace, "http://127.0.0.1:9/")
    Execution.objects.filter(id=row.id).update(state="RUNNING", claim_seq=1)
    with pytest.raises(AssertionError):
        # Two results for one row: the helper finds that one of them was not stored, and its transaction ends.

        finish([row, row], "FAILED", error="x", at=datetime.now(UTC))
    assert Execution.objects.get().state == "RUNNING"
    assert not NotificationFact.objects.exists()


def test_what_the_monitor_gives_up_is_a_failure_too(workspace: Workspace, channel: Any) -> None:
    make_rule(workspace, channel)
    [row] = make_executions(workspace, "http://127.0.0.1:9/")
    Execution.objects.filter(id=row.id).update(
        state="RUNNING", claim_seq=1, begun_seq=1, lease_until=datetime.now(UTC) - timedelta(seconds=9)
    )
    executions.recover_lost_claims(most=10, unknown_cap=1)
    turn()
    assert told() == [("failure", 1)]
    assert Notification.objects.get().content["errors"][0]["error"] == "unknown_outcome"


# --- weighing --------------------------------------------------------------------------------------------------------


def test_so_many_in_a_row_are_told_once_and_a_success_begins_anew(workspace: Workspace, channel: Any) -> None:
    job = make_job(workspace, "http://127.0.0.1:9/")
    make_rule(workspace, channel, events=["failures_in_row"], failures_in_row=3)
    end(workspace, job, "FAILED", "FAILED")
    turn()
    assert told() == []
    end(workspace, job, "SUCCEEDED")
    turn()
    end(workspace, job, "FAILED", "FAILED")
    turn()
    assert told() == []
    end(workspace, job, "FAILED", "FAILED", "FAILED")
    turn()
    assert told() == [("failures_in_row", 1)]
    assert Notification.objects.get().content["jobs"][0]["in_row"] == 3


def test_a_recovery_is_told_after_a_failure_that_was_and_for_its_job_alone(workspace: Workspace, channel: Any) -> None:
    job, other = make_job(workspace, "http://127.0.0.1:9/"), make_job(workspace, "http://127.0.0.1:9/")
    make_rule(workspace, channel, events=["failure", "recovery"])
    end(workspace, job, "SUCCEEDED")
    end(workspace, job, "FAILED")
    turn()
    end(workspace, other, "SUCCEEDED")
    turn()
    assert told() == [("failure", 1)]
    end(workspace, job, "SUCCEEDED", "SUCCEEDED")
    turn()
    turn()
    assert told() == [("failure", 1), ("recovery", 1)]
    assert not NotificationState.objects.exists()


def test_a_success_is_found_whose_transaction_could_not_see_that_the_job_was_failing(
    workspace: Workspace, channel: Any
) -> None:
    job = make_job(workspace, "http://127.0.0.1:9/")
    make_rule(workspace, channel, events=["failure", "recovery"])
    end(workspace, job, "FAILED", "SUCCEEDED")  # Before any tick: nothing says yet that the job is failing.
    assert NotificationFact.objects.count() == 1
    for _ in range(3):
        turn()
    assert sum(n.content["counts"].get("recovery", 0) for n in Notification.objects.all()) == 1


def test_a_success_from_before_the_failure_is_no_recovery(workspace: Workspace, channel: Any) -> None:
    job = make_job(workspace, "http://127.0.0.1:9/")
    make_rule(workspace, channel, events=["failure", "recovery"])
    now = datetime.now(UTC)
    end(workspace, job, "FAILED", at=now)
    turn()
    end(workspace, job, "SUCCEEDED", at=now - timedelta(seconds=5))
    turn()
    assert told() == [("failure", 1)]


def test_a_schedule_with_a_target_of_its_own_is_a_job_of_its_own(workspace: Workspace, channel: Any) -> None:
    make_rule(workspace, channel, events=["failures_in_row"], failures_in_row=2)
    end(workspace, None, "FAILED", "FAILED")
    turn()
    assert told() == []


def test_a_rule_that_is_switched_off_forgets_what_it_had_not_told(workspace: Workspace, channel: Any) -> None:
    rule = make_rule(workspace, channel, group_wait_s=60, events=["failure", "recovery"])
    end(workspace, None, "FAILED")
    turn()
    services.update_rule(workspace=workspace, rule_id=rule.id, channels=[channel.id], enabled=False)
    services.update_rule(workspace=workspace, rule_id=rule.id, channels=[channel.id], enabled=True, group_wait_s=0)
    turn()
    assert (told(), stages()) == ([], ["silent"])
    assert not NotificationState.objects.exists()


# --- grouping --------------------------------------------------------------------------------------------------------


def test_ten_thousand_failures_are_one_message_for_each_rule_and_all_in_the_table(
    workspace: Workspace, channel: Any, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    job = make_job(workspace, "http://127.0.0.1:9/", name="storm")
    rules = [
        make_rule(workspace, channel, group_wait_s=2, group_window_s=300),
        make_rule(workspace, channel, group_wait_s=2, group_window_s=300, events=["failure", "recovery"]),
    ]
    ended = threading.Event()

    def tick() -> None:
        while not ended.is_set():
            loop.tick()
            time.sleep(0.05)
        connection.close()

    ticking = threading.Thread(target=tick)
    ticking.start()
    end_many(workspace, job, 10_000)
    ended.set()
    ticking.join()
    age_facts(seconds=3)
    sent(sender)
    assert told() == [("failure", 10_000)] * 2
    assert {NotificationFact.objects.filter(rule_id=rule.id, stage="told").count() for rule in rules} == {10_000}
    bodies = [json.loads(request.body)["data"] for request in receiver.requests]
    assert [body["jobs"][0]["count"] for body in bodies] == [10_000] * 2
    assert {len(body["examples"]) for body in bodies} == {grouping.MOST_EXAMPLES}


def age_facts(*, seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE execution_notificationfact SET created_at = created_at - %s * interval '1 second'", [seconds]
        )


def test_the_first_goes_once_it_is_calm_or_the_storm_is_long_and_the_next_after_the_window(
    workspace: Workspace, channel: Any
) -> None:
    rule = make_rule(workspace, channel, group_wait_s=30, group_window_s=300)
    end(workspace, None, "FAILED")
    turn()
    assert told() == []
    age_facts(seconds=grouping.LONGEST_WAIT_S)
    end(workspace, None, "FAILED")  # It goes on, and is told nevertheless.
    turn()
    assert told() == [("failure", 2)]
    end(workspace, None, "FAILED", "FAILED", "FAILED")
    age_facts(seconds=40)
    turn()
    assert told() == [("failure", 2)]
    rule.refresh_from_db()
    assert rule.hold_until is not None
    type(rule).objects.filter(id=rule.id).update(hold_until=datetime.now(UTC) - timedelta(seconds=1))
    turn()
    assert told() == [("failure", 2), ("failure", 3)]


def span(begins: int, ends: int) -> dict[str, str]:
    """Quiet hours from so many hours from now to so many."""
    now = datetime.now(UTC)
    clock = [f"{now + timedelta(hours=hours):%H:%M}" for hours in (begins, ends)]
    return {"from": clock[0], "until": clock[1], "timezone": "UTC"}


def test_quiet_hours_hold_everything_and_then_send_one_summary(workspace: Workspace, channel: Any) -> None:
    now = datetime.now(UTC)
    quiet = {
        "from": f"{now - timedelta(hours=2):%H:%M}",
        "until": f"{now + timedelta(hours=2):%H:%M}",
        "timezone": "UTC",
    }
    job = make_job(workspace, "http://127.0.0.1:9/")
    rule = make_rule(workspace, channel, quiet_hours=quiet, events=["failure", "recovery"])
    end(workspace, job, "FAILED", "FAILED")
    turn()
    end(workspace, job, "SUCCEEDED")
    turn()
    end(workspace, job, "FAILED")
    turn()
    assert told() == []
    type(rule).objects.filter(id=rule.id).update(quiet_hours=span(3, 4))
    turn()
    assert told() == [("failure", 4)]
    assert Notification.objects.get().content["counts"] == {"failure": 3, "recovery": 1}


@pytest.mark.django_db(transaction=True)
def test_loops_that_look_at_once_tell_everything_once(workspace: Workspace, channel: Any) -> None:
    make_rule(workspace, channel, events=["failure", "recovery"])
    make_rule(workspace, channel)
    end_many(workspace, make_job(workspace, "http://127.0.0.1:9/"), 300)
    start = threading.Barrier(4)

    def look() -> None:
        start.wait()
        for _ in range(5):
            loop.tick()
        connection.close()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told() == [("failure", 300)] * 2
    ids = [i for message in messages() for i in message]
    assert len(ids) == len(set(ids)) == 2


def test_one_rule_that_cannot_be_told_holds_up_no_other(
    workspace: Workspace, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = make_rule(workspace, channel)
    make_rule(workspace, channel)
    whole = grouping.content_of

    def content_of(rule: Any, group_id: Any) -> Any:
        if rule.id == broken.id:
            raise KeyError("settings")
        return whole(rule, group_id)

    monkeypatch.setattr(grouping, "content_of", content_of)
    end(workspace, None, "FAILED")
    turn()
    assert told() == [("failure", 1)]
    assert sorted(stages()) == ["told", "waiting"]


def test_facts_of_a_tenant_are_never_told_to_another(
    workspace: Workspace, other_workspace: Workspace, channel: Any, settings: Any, receiver: ProgrammableReceiver
) -> None:
    allow_secrets(settings, other_workspace)
    theirs = make_channel(other_workspace, url=receiver.url("/theirs"), signing={"secret": reference("signing")})
    make_rule(workspace, channel, events=["failure", "recovery"])
    make_rule(other_workspace, theirs, events=["failure", "recovery"])
    end(workspace, make_job(workspace, "http://127.0.0.1:9/"), "FAILED")
    turn()
    [only] = Notification.objects.all()
    assert (only.workspace_id, only.channel_id) == (workspace.id, channel.id)
    assert set(NotificationFact.objects.values_list("workspace_id", flat=True)) == {workspace.id}


def test_what_was_told_long_ago_is_purged_and_what_waits_is_not(workspace: Workspace, channel: Any) -> None:
    make_rule(workspace, channel)
    make_rule(workspace, channel, group_wait_s=600)
    end(workspace, None, "FAILED")
    turn()
    Notification.objects.update(state="SUCCEEDED", finished_at=datetime.now(UTC) - timedelta(days=99))
    age_facts(seconds=99 * 86_400)
    assert loop.purge() == 2
    assert (stages(), Notification.objects.count()) == (["waiting"], 0)


def test_weighing_more_than_fits_one_look_goes_on_in_the_next(
    workspace: Workspace, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weighing, "AT_ONCE", 2)
    job = make_job(workspace, "http://127.0.0.1:9/")
    make_rule(workspace, channel, events=["failures_in_row"], failures_in_row=5)
    end(workspace, job, *["FAILED"] * 5)
    for _ in range(4):
        turn()
    assert told() == [("failures_in_row", 1)]


def test_the_engine_writes_facts_with_its_results_and_leaves_them_out_where_no_rule_asks(
    workspace: Workspace, channel: Any, sender: Engine, receiver: ProgrammableReceiver, engine: Engine
) -> None:
    receiver.answer(Answer(status=404), path="/job")
    first, second = make_executions(workspace, receiver.url("/job"), 2)
    send(engine, first)
    assert not NotificationFact.objects.exists()
    make_rule(workspace, channel)
    time.sleep(SWITCH_AGE_S)  # So long the engine believes that there are no rules.
    send(engine, second)
    [told] = sent(sender)
    assert told.content["examples"][0]["id"] == str(second.id)
    assert told.content["errors"] == [{"error": "http_404", "status": 404, "reason": "terminal_answer", "count": 1}]


def send(engine: Engine, execution: Execution) -> None:
    executions.queue_pending(ids=[execution.id])
    engine.submit([execution.id])
    wait_until(lambda: Execution.objects.get(id=execution.id).state == "FAILED")


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    """One that delivers executions."""
    running = build_engine(name="test-engine")
    running.start()
    yield running
    running.begin_stop()
    running.stop(1)
