"""The dispatch switch: what is off is not sent, costs nothing while it waits, and is not lost when it is on again."""

import io
import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chronos_site.infra import redis as site_redis
from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from execution import publish, switches, transitions
from execution.dispatch.egress import destination_of, origin_of
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.fanout import fan_out
from execution.loops.retry import queue_due_retries
from execution.models import Bucket, DispatchSwitch, Execution
from scheduling.loops.fire import fire_due_buckets
from tests.broker import queued_ids
from tests.clients import ProgrammableReceiver
from tests.making import age, make_executions, make_job, states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9999/"


def queue(rows: Sequence[Execution]) -> list[UUID]:
    return transitions.queue_pending(ids=[row.id for row in rows])


def wait_for_state(rows: Sequence[Execution], state: str, timeout_s: float = 10) -> None:
    ids = [row.id for row in rows]
    wait_until(lambda: set(states_of(ids).values()) == {state}, timeout_s=timeout_s, told=lambda: str(states_of(ids)))


def fan_out_all() -> None:
    """What the workers of bucket-triggers do with the messages of one tick, which are off the queue then."""
    site_redis.client().delete(publish.TRIGGER_QUEUE)
    for bucket_id in Bucket.objects.filter(state="OPEN").order_by("id").values_list("id", flat=True):
        fan_out(bucket_id=bucket_id)


def place(scope: str, workspace: Workspace) -> str:
    return {"workspace": workspace.name, "destination": "127.0.0.1:9999", "queue": "job-dispatch"}.get(scope, "")


def run_command(*arguments: str) -> Any:
    out = io.StringIO()
    call_command("chronos", "switch", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.parametrize("scope", ["global", "workspace", "destination", "queue"])
def test_what_is_off_stays_pending_and_goes_in_the_order_of_its_time_once_it_is_on(
    scope: str, workspace: Workspace, redis_server: redis.Redis
) -> None:
    rows = make_executions(workspace, URL, 3) + make_executions(workspace, URL, 3)
    age(rows[3:], by=timedelta(minutes=7))
    age(rows[:3], by=timedelta(minutes=3))
    value = place(scope, workspace)
    switches.close_switch(scope=scope, value=value)
    fire_due_buckets()
    fan_out_all()
    assert set(states_of([row.id for row in rows]).values()) == {"PENDING"}
    assert queued_ids(redis_server) == []
    assert switches.open_switch(scope=scope, value=value)
    assert fire_due_buckets().triggered > 0
    fan_out_all()
    assert set(states_of([row.id for row in rows]).values()) == {"QUEUED"}
    sent = queued_ids(redis_server)
    assert set(sent[:3]) == {row.id for row in rows[3:]}
    assert set(sent[3:]) == {row.id for row in rows[:3]}
    assert set(Execution.objects.values_list("held_by", "park_reason")) == {(None, "")}


@pytest.mark.parametrize("scope", ["global", "workspace", "destination", "queue"])
def test_the_fire_loop_does_not_trigger_what_is_off_second_after_second(scope: str, workspace: Workspace) -> None:
    make_executions(workspace, URL, 3)
    switches.close_switch(scope=scope, value=place(scope, workspace))
    fire_due_buckets()
    fan_out_all()
    Bucket.objects.update(triggered_at=None)
    assert fire_due_buckets().triggered == 0
    with CaptureQueriesContext(
        connection,
    ) as queries:
        fire_due_buckets()
    assert len(queries) < 12


@pytest.mark.parametrize("scope", ["workspace", "destination"])
def test_others_do_not_starve_behind_a_backlog_that_is_off(
    scope: str, workspace: Workspace, other_workspace: Workspace, redis_server: redis.Redis
) -> None:
    held = make_executions(workspace, URL, 20)
    age(held, by=timedelta(minutes=7))
    free = make_executions(other_workspace, "http://127.0.0.1:9998/", 2)
    Execution.objects.filter(id__in=[row.id for row in free]).update(
        bucket_id=Execution.objects.get(id=held[0].id).bucket_id
    )
    switches.close_switch(scope=scope, value=place(scope, workspace))
    fan_out_all()
    assert set(states_of([row.id for row in free]).values()) == {"QUEUED"}
    assert set(queued_ids(redis_server)) == {row.id for row in free}


def test_retries_of_what_is_off_leave_the_way_to_others_and_go_once_it_is_on(
    workspace: Workspace, other_workspace: Workspace, redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = make_executions(workspace, URL, 8)
    free = make_executions(other_workspace, URL, 2)
    Execution.objects.update(state="RETRYING", attempt=1, bucket_id=None)
    Execution.objects.filter(workspace=workspace).update(due_at=database_now() - timedelta(minutes=5))
    monkeypatch.setattr("execution.fanout.BATCH", 4)
    switches.close_switch(scope="workspace", value=workspace.name)
    for _ in range(3):
        queue_due_retries()
    assert set(queued_ids(redis_server)) == {row.id for row in free}
    assert set(states_of([row.id for row in held]).values()) == {"RETRYING"}
    switches.open_switch(scope="workspace", value=workspace.name)
    fire_due_buckets()
    for _ in range(2):
        queue_due_retries()
    assert set(states_of([row.id for row in held]).values()) == {"QUEUED"}


def test_everything_off_holds_retries_too(workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 2)
    Execution.objects.update(state="RETRYING", bucket_id=None)
    switches.close_switch(scope="global")
    assert queue_due_retries() == 0
    switches.open_switch(scope="global")
    assert queue_due_retries() == len(rows)


@pytest.mark.parametrize("scope", ["global", "workspace", "destination", "queue"])
def test_what_is_claimed_when_the_switch_goes_off_goes_back_at_no_charge(
    scope: str, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    value = f"127.0.0.1:{receiver.port}" if scope == "destination" else place(scope, workspace)
    first, second = build_engine(name="one"), build_engine(name="two")
    engines = [first, second]
    for running in engines:
        running.start()
    try:
        rows = make_executions(workspace, receiver.url(), 6, due_at=database_now() + timedelta(seconds=2))
        ids = queue(rows)
        first.submit(ids[:3])
        second.submit(ids[3:])
        wait_for_state(rows, "RUNNING")
        switches.close_switch(scope=scope, value=value)
        wait_for_state(rows, "PENDING")
        assert receiver.requests == []
        assert set(Execution.objects.values_list("attempt", "worker_id")) == {(0, None)}
        switches.open_switch(scope=scope, value=value)
        # The engines know it a second later at most; until then they hand back what comes.
        wait_until(lambda: _go_round(rows, first, second), timeout_s=15, step_s=0.3)
        assert {request.headers["x-attempt-number"] for request in receiver.requests} == {"1"}
        assert len(receiver.requests) == len(rows)
    finally:
        for running in engines:
            running.begin_stop()
            running.stop(1)


def _go_round(rows: Sequence[Execution], *engines: Engine) -> bool:
    """One tick of the loops, and the engines take what is queued. Whether all is delivered."""
    site_redis.client().delete("job-dispatch")  # Its messages were taken in the round before.
    fire_due_buckets()
    fan_out_all()
    queued = list(Execution.objects.filter(state="QUEUED").values_list("id", flat=True))
    for index, engine in enumerate(engines):
        engine.submit(queued[index :: len(engines)])
    return set(states_of([row.id for row in rows]).values()) == {"SUCCEEDED"}


def test_a_message_that_comes_while_everything_is_off_leaves_no_claim(engine: Engine, workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 3)
    retried = make_executions(workspace, URL, 1)
    ids = queue(rows + retried)
    Execution.objects.filter(id=retried[0].id).update(bucket_id=None, attempt=1)
    switches.close_switch(scope="global")
    engine.submit(ids)
    assert set(states_of([row.id for row in rows]).values()) == {"PENDING"}
    assert set(states_of([retried[0].id]).values()) == {"RETRYING"}
    assert set(Execution.objects.values_list("claim_seq", "lease_until")) == {(0, None)}


def test_a_retry_that_is_held_at_the_claim_stays_a_retry_and_keeps_its_attempts(
    engine: Engine, workspace: Workspace
) -> None:
    [row] = make_executions(workspace, URL)
    ids = queue([row])
    Execution.objects.update(bucket_id=None, attempt=2)
    switch, _ = switches.close_switch(scope="workspace", value=str(workspace.id))
    engine.submit(ids)
    row.refresh_from_db()
    assert (row.state, row.attempt, row.held_by) == ("RETRYING", 2, switch.id)


def test_what_was_asked_to_cancel_is_cancelled_at_the_gate_and_does_not_wait(
    engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    rows = make_executions(workspace, receiver.url(), 2, due_at=database_now() + timedelta(seconds=1.5))
    engine.submit(queue(rows))
    wait_for_state(rows, "RUNNING")
    Execution.objects.filter(id=rows[0].id).update(cancel_requested_at=database_now())
    switches.close_switch(scope="workspace", value=workspace.name)
    wait_for_state(rows[:1], "CANCELLED")
    wait_for_state(rows[1:], "PENDING")
    assert receiver.requests == []


def test_a_row_held_by_somebody_who_had_not_yet_seen_the_switch_go_on_is_let_go(workspace: Workspace) -> None:
    [row] = make_executions(workspace, URL)
    switch, _ = switches.close_switch(scope="workspace", value=workspace.name)
    switches.open_switch(scope="workspace", value=workspace.name)
    transitions.hold_pending(switches={row.id: switch.id})
    assert fire_due_buckets().released == 1
    row.refresh_from_db()
    assert (row.held_by, row.park_reason) == (None, "")
    assert row.bucket_id is not None


def test_a_row_under_two_switches_waits_for_both(workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 2)
    switches.close_switch(scope="workspace", value=workspace.name)
    switches.close_switch(scope="destination", value="127.0.0.1:9999")
    fan_out_all()
    switches.open_switch(scope="workspace", value=workspace.name)
    fire_due_buckets()
    fan_out_all()
    assert set(states_of([row.id for row in rows]).values()) == {"PENDING"}
    switches.open_switch(scope="destination", value="127.0.0.1:9999")
    fire_due_buckets()
    fan_out_all()
    assert set(states_of([row.id for row in rows]).values()) == {"QUEUED"}


def test_a_held_delivery_past_its_deadline_expires_once_the_switch_is_on(workspace: Workspace) -> None:
    rows = make_executions(workspace, URL, 2, start_deadline=database_now() + timedelta(seconds=0.5))
    switches.close_switch(scope="workspace", value=workspace.name)
    fan_out_all()
    deadline = rows[0].start_deadline
    assert deadline is not None
    wait_until(lambda: database_now() > deadline)
    switches.open_switch(scope="workspace", value=workspace.name)
    fire_due_buckets()
    fan_out_all()
    assert set(states_of([row.id for row in rows]).values()) == {"EXPIRED"}


def test_a_held_execution_of_a_paused_job_waits_for_the_resume_too(workspace: Workspace) -> None:
    job = make_job(workspace, URL)
    [row] = make_executions(workspace, URL, job=job)
    switches.close_switch(scope="workspace", value=workspace.name)
    fan_out_all()
    job.paused_at = database_now()
    job.save(update_fields=["paused_at"])
    switches.open_switch(scope="workspace", value=workspace.name)
    fire_due_buckets()
    fan_out_all()
    row.refresh_from_db()
    assert (row.state, row.park_reason) == ("PENDING", "job_paused")


def test_off_and_on_again_change_nothing_the_second_time(workspace: Workspace) -> None:
    first, changed = switches.close_switch(scope="workspace", value=workspace.name, reason="first")
    again, changed_again = switches.close_switch(scope="workspace", value=str(workspace.id), reason="second")
    assert (changed, changed_again, again.id, again.reason) == (True, False, first.id, "first")
    assert switches.open_switch(scope="workspace", value=workspace.name)
    assert not switches.open_switch(scope="workspace", value=workspace.name)
    assert not DispatchSwitch.objects.exists()


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("example.com:443", "example.com:443"),
        ("Example.COM.:8443", "example.com:8443"),
        ("https://example.com/path", "example.com:443"),
        ("http://example.com", "example.com:80"),
        ("[::1]:8080", "[::1]:8080"),
    ],
)
def test_a_destination_is_stored_as_the_guard_reads_it(given: str, stored: str, db: None) -> None:
    switch, _ = switches.close_switch(scope="destination", value=given)
    assert switch.value == stored


def test_the_origin_of_a_target_is_the_same_however_its_url_is_written() -> None:
    urls = ("https://EXAMPLE.com/a", "https://example.com:443/b?c", "https://example.com./#d")
    assert {origin_of(url) for url in urls} == {"https://example.com:443"}
    assert destination_of("https://example.com") == "example.com:443"
    assert origin_of("no url") == destination_of(None) == ""


@pytest.mark.parametrize(
    ("scope", "value", "told"),
    [
        ("global", "x", "takes no value"),
        ("workspace", "nobody", "no workspace 'nobody'"),
        ("workspace", "", "no workspace"),
        ("destination", "example.com", "host:port"),
        ("destination", "", "host:port"),
        ("queue", "bucket-trigger", "job-dispatch"),
    ],
)
def test_a_place_that_is_not_there_is_told_in_one_sentence(scope: str, value: str, told: str, db: None) -> None:
    with pytest.raises(CommandError, match=told) as raised:
        run_command("off", "--scope", scope, "--value", value)
    assert raised.value.returncode == 2
    assert not DispatchSwitch.objects.exists()


def test_the_command_turns_and_lists_with_what_waits(workspace: Workspace) -> None:
    make_executions(workspace, URL, 2)
    told = run_command("off", "--scope", "workspace", "--value", workspace.name, "--reason", "outage", "--by", "ann")
    assert told == {"scope": "workspace", "value": str(workspace.id), "is": "off", "changed": True}
    fan_out_all()
    [row] = run_command("list")["off"]
    assert (row["name"], row["by"], row["reason"], row["waiting"]) == (workspace.name, "ann", "outage", 2)
    text = io.StringIO()
    call_command("chronos", "switch", "list", stdout=text)
    assert re.search(r"workspace +acme +.* +ann +2 +outage", text.getvalue())
    assert run_command("on", "--scope", "workspace", "--value", workspace.name)["changed"]
    assert run_command("list") == {"off": []}


def test_the_admin_shows_what_is_off_and_turns_nothing(workspace: Workspace) -> None:
    switch, _ = switches.close_switch(scope="workspace", value=workspace.name, reason="outage")
    User.objects.create_superuser("root", password="a long enough one")
    client = Client()
    assert client.login(username="root", password="a long enough one")
    page = client.get("/admin/execution/dispatchswitch/")
    assert "outage" in page.content.decode()
    assert client.post(f"/admin/execution/dispatchswitch/{switch.id}/delete/", {"post": "yes"}).status_code == 403
    assert client.get("/admin/execution/dispatchswitch/add/").status_code == 403
