"""What a killed process, a lost message or a missing leader leaves of notifications."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution.dispatch.engine import Engine
from execution.loops import notifications as loop
from execution.models import Loop, Notification, NotificationRule, NotificationState
from execution.notifications import services, watch
from execution.notifications.leaders import missing_leader
from tests.clients import ProgrammableReceiver
from tests.making import make_job
from tests.notifications.pump import (
    SIGNING,
    allow_secrets,
    end,
    make_channel,
    make_rule,
    messages,
    reference,
    sent,
    turn,
)
from tests.processes import SiteProcesses, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def channel(workspace: Workspace, settings: Any, receiver: ProgrammableReceiver) -> Any:
    allow_secrets(settings, workspace, signing=SIGNING)
    return make_channel(workspace, url=receiver.url("/hook"), signing={"secret": reference("signing")})


def run_out() -> None:
    """As if a minute had passed: messages and leases of notifications are over."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE execution_notification SET due_at = due_at - interval '1 minute',"
            " lease_until = lease_until - interval '1 hour'"
        )


def test_a_loop_that_dies_before_it_publishes_leaves_what_the_next_one_sends(
    workspace: Workspace, channel: Any, sender: Engine, receiver: ProgrammableReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_rule(workspace, channel)
    end(workspace, make_job(workspace, receiver.url()), "FAILED")

    def die(_ids: object) -> list[object]:
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr("execution.publish.publish_notifications", die)
        with pytest.raises(SystemExit):
            turn()
    assert Notification.objects.get().state == "QUEUED"
    assert messages() == []
    run_out()
    [told] = sent(sender)
    assert (told.state, len(receiver.requests)) == ("SUCCEEDED", 1)


def test_a_message_that_is_lost_or_doubled_does_no_harm(
    workspace: Workspace, channel: Any, sender: Engine, receiver: ProgrammableReceiver
) -> None:
    services.send_test(workspace=workspace, channels=[channel])
    [ids] = messages()
    run_out()
    turn()
    assert [ids] == messages()
    sender.submit([Notification.objects.get().id] * 2)
    sender.submit([Notification.objects.get().id])
    sent(sender)
    assert len(receiver.requests) == 1


def test_a_worker_that_is_killed_between_claim_and_answer_leaves_a_notification_that_is_sent_again(
    workspace: Workspace,
    channel: Any,
    receiver: ProgrammableReceiver,
    celery_processes: SiteProcesses,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    receiver.answer(Answer(hang=True))
    worker = celery_processes.worker(
        name="notifications",
        queues="notifications",
        CHRONOS_SECRET_ACME_NOTIFY_SIGNING=SIGNING,
        CHRONOS_EGRESS_ALLOW="127.0.0.0/8",
    )
    services.send_test(workspace=workspace, channels=[channel])
    wait_until(lambda: turn() and receiver.requests, timeout_s=30)
    worker.kill()
    receiver.answer(Answer())
    run_out()
    monkeypatch.setattr("execution.loops.notifications.STEADY_S", -1.0)
    turn()
    # Built now: one that runs beside the worker would compete for its message.
    [told] = sent(request.getfixturevalue("sender"))
    assert (told.state, told.attempt, told.unknown_outcomes) == ("SUCCEEDED", 2, 1)
    assert [r.headers["webhook-id"] for r in receiver.requests] == [str(told.id)] * 2


# --- leaders ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def site_channel(settings: Any, receiver: ProgrammableReceiver, workspace: Workspace) -> Any:
    allow_secrets(settings, workspace, signing=SIGNING)
    settings.CHRONOS_SITE_SECRET_NAMESPACES = ["acme"]
    return make_channel(None, url=receiver.url("/site"), signing={"secret": reference("signing")})


def silence(name: str, *, seconds: float) -> None:
    at = datetime.now(UTC) - timedelta(seconds=seconds)
    Loop.objects.update_or_create(name=name, defaults={"ticked_at": at, "steady_since": at})


def test_a_leader_that_is_missing_is_told_once_and_so_is_its_return(
    site_channel: Any, sender: Engine, receiver: ProgrammableReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_rule(None, site_channel, events=["leader_missing", "recovery"])
    missing = ["monitor, scheduler"]
    monkeypatch.setattr("execution.notifications.watch.missing_leader", lambda: missing[0])
    monkeypatch.setattr("execution.loops.notifications.missing_leader", lambda: missing[0])
    watching = watch.Watch()
    assert [watching.look() for _ in range(4)] == [False, False, True, True]
    assert Notification.objects.get().event == "leader_missing"
    missing[0] = ""
    assert watching.look() is False
    turn()
    turn()
    sent(sender)
    bodies = [json.loads(request.body) for request in receiver.requests]
    assert [body["type"] for body in bodies] == ["notification.leader_missing", "notification.recovery"]
    assert bodies[0]["data"]["examples"][0]["reason"] == "monitor, scheduler"
    assert [body["data"]["title"] for body in bodies] == [
        "site: the site's loops have no leader",
        "site: the site's loops have a leader again",
    ]
    assert not NotificationState.objects.exists()


def test_a_rule_without_recovery_is_told_of_each_absence(site_channel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_rule(None, site_channel, events=["leader_missing"])
    for missing in ("scheduler", "scheduler", "", "", "scheduler"):
        loop.look(steady=False, missing=missing)
    assert [n.event for n in Notification.objects.all()] == ["leader_missing"] * 2


def test_loops_that_have_been_silent_for_long_miss_their_leader(db: None, settings: Any) -> None:
    settings.CHRONOS_LEADER_TTL_S = 0.1
    assert missing_leader() == ""
    silence("notifications", seconds=60)
    silence("monitor", seconds=0)
    assert missing_leader() == "scheduler"
    silence("monitor", seconds=60)
    assert missing_leader() == "monitor, scheduler"
    loop.tick()
    assert missing_leader() == "monitor"


def test_the_rules_of_a_workspace_hear_nothing_of_the_site(workspace: Workspace, channel: Any) -> None:
    rule = make_rule(workspace, channel)
    NotificationRule.objects.filter(id=rule.id).update(events=["leader_missing", "failure"])
    loop.look(steady=False, missing="scheduler")
    assert not Notification.objects.exists()
