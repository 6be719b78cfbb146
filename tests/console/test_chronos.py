"""`manage.py chronos`: status, top, tail, runs, replay, keys."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.core.management import CommandError

from chronos_site.api.models import Operation
from chronos_site.api.operations.runner import run_operations
from chronos_site.console.commands import tail
from chronos_site.console.management.commands.chronos import PARTS
from chronos_site.infra.clock import database_now
from chronos_site.infra.ids import new_id
from chronos_site.tenancy.models import ApiKey, Workspace
from execution.dispatch.runtime import build_engine
from execution.models import DeadLetter, Execution, Worker
from execution.transitions import queue_pending
from tests.clients import ApiClient
from tests.console.chronos_command import chronos, chronos_text
from tests.making import make_executions, make_job, states_of
from tests.processes import wait_until
from tests.threads import in_thread

pytestmark = pytest.mark.django_db(transaction=True)

URL = "http://127.0.0.1:9/"


def fail(*rows: Execution, error: str = "timeout") -> None:
    """As when the last attempt failed, just now."""
    now = database_now()
    Execution.objects.filter(id__in=[row.id for row in rows]).update(
        state="FAILED",
        bucket_id=None,
        attempt=1,
        started_at=now,
        finished_at=now,
        last_error=error,
        last_error_text="no answer within 5 s",
    )
    for row in rows:
        DeadLetter.objects.create(
            id=row.id,
            workspace_id=row.workspace_id,
            job_definition_id=row.job_definition_id,
            reason="attempts_exhausted",
            last_error=error,
            attempts=1,
            created_at=now,
        )


def everything_works(redis_server: redis.Redis) -> None:
    """As if beats led and a worker delivered."""
    for loop in ("scheduler", "retry", "monitor"):
        redis_server.set(f"chronos:leader:{loop}", "token", px=60_000)
    now = database_now()
    Worker.objects.create(id=new_id(), name="dispatch@here", started_at=now, heartbeat_at=now, rate_per_s=12)


# --- status --------------------------------------------------------------------------------------


def test_status_is_well_where_leaders_and_workers_are_there(workspace: Workspace, redis_server: redis.Redis) -> None:
    everything_works(redis_server)
    told = chronos("status")
    assert (told["level"], told["findings"]) == ("ok", [])
    assert told["snapshot"]["work"]["overdue"] == 0
    text = chronos_text("status", "--workspace", "acme")
    assert "Nothing is wrong." in text
    assert "dispatch@here" in text


def test_status_names_what_is_wrong_with_a_remedy_and_ends_with_1(workspace: Workspace) -> None:
    text = chronos_text("status", code=1)
    assert "leader of retry: Nobody holds the lock" in text
    assert "No worker of job-dispatch is alive" in text
    assert "→ Start beat" in text


def test_status_tells_how_late_the_oldest_is(workspace: Workspace, redis_server: redis.Redis) -> None:
    everything_works(redis_server)
    [row] = make_executions(workspace, URL)
    Execution.objects.filter(id=row.id).update(
        state="RETRYING", bucket_id=None, due_at=database_now() - timedelta(minutes=20)
    )
    [finding] = chronos("status", code=1)["findings"]
    assert (finding["check"], finding["level"]) == ("lateness", "fail")
    assert "1 executions are overdue" in finding["text"]


def test_a_server_that_is_away_is_a_finding(
    workspace: Workspace, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = redis.Redis(host="127.0.0.1", port=1, socket_connect_timeout=1)
    monkeypatch.setattr("chronos_site.infra.redis.client", lambda: dead)
    told = chronos("status", code=1)
    assert "redis" in told["snapshot"]["away"]
    assert told["snapshot"]["queues"] is None
    assert told["snapshot"]["work"]["overdue"] == 0
    dead.close()


# --- top and tail --------------------------------------------------------------------------------


def test_top_shows_the_busiest_once(workspace: Workspace, other_workspace: Workspace) -> None:
    fail(*make_executions(workspace, URL, 2, job=make_job(workspace, URL, name="send-invoice")))
    fail(*make_executions(other_workspace, URL))
    told = chronos("top", "--sort", "failed", "--window", "10m")
    assert [(row["workspace"], row["job"], row["failed"]) for row in told["rows"]] == [
        ("acme", "send-invoice", 2),
        ("globex", None, 1),
    ]
    assert [row["open"] for row in told["worst_jobs"]] == [2, 1]
    text = chronos_text("top", "--once", "--by", "workspace", "--workspace", "globex")
    assert re.search(r"globex +0 +1 ", text)
    assert "acme" not in text


def test_tail_shows_what_happens_by_filter(workspace: Workspace, other_workspace: Workspace) -> None:
    job = make_job(workspace, URL, name="bad\x1b[31m")
    rows = make_executions(workspace, URL, 2, job=job)
    [other] = make_executions(other_workspace, URL)

    def told(*arguments: str) -> list[str]:
        return chronos_text("tail", "--no-follow", "--since", "10m", *arguments).splitlines()

    wait_until(lambda: len(told("--all")) >= 3)
    assert told() == []
    created = told("--type", "execution.created")
    assert len(created) == 3
    assert not any("\x1b[31m" in line for line in created)
    assert [str(other.id) in line for line in told("--all", "--workspace", "globex")] == [True]
    mine = told("--all", "--lines", "1", "--job", str(job.id), "--workspace", "acme")
    assert [str(row.id) in mine[0] for row in rows].count(True) == 1
    assert told("--state", "FAILED") == []
    event = json.loads(told("--type", "execution.", "--lines", "1", "--json")[0])
    assert event["type"] == "execution.created"


def test_tail_goes_on_with_what_comes(workspace: Workspace, redis_server: redis.Redis) -> None:
    begin = redis_server.xadd("job-events", {"event": "{}"})
    coming = tail._follow(str(begin))
    rows = make_executions(workspace, URL, 2)
    seen = {next(coming)["execution"] for _ in rows}
    assert seen == {str(row.id) for row in rows}


# --- runs ----------------------------------------------------------------------------------------


def test_runs_finds_by_filter(workspace: Workspace, other_workspace: Workspace) -> None:
    job = make_job(workspace, URL, name="send-invoice")
    rows = make_executions(workspace, URL, 3, job=job)
    make_executions(workspace, URL, 2)
    make_executions(other_workspace, URL, 2)
    fail(rows[0])

    def ids(*arguments: str) -> list[str]:
        return [row["id"] for row in chronos("runs", "--workspace", "acme", *arguments)["items"]]

    assert len(ids()) == 5
    assert ids("--job", "send-invoice", "--limit", "2") == [str(rows[2].id), str(rows[1].id)]
    assert ids("--error", "timeout") == [str(rows[0].id)]
    assert ids("--search", "no answer") == [str(rows[0].id)]
    assert ids("--state", "FAILED", "--since", "1h") == [str(rows[0].id)]
    assert ids("--since", "1h", "--until", "30m") == []
    assert "send-invoice" in chronos_text("runs", "--workspace", "acme")
    for wrong in (("--job", "nothing"), ("--workspace", "nobody")):
        with pytest.raises(CommandError, match="There is no") as raised:
            chronos("runs", "--workspace", "acme", *wrong)
        assert raised.value.returncode == 2
    with pytest.raises(CommandError, match="Name one with --workspace: acme, globex"):
        chronos("runs")


def test_one_run_is_shown_with_its_attempts_and_what_to_do(workspace: Workspace) -> None:
    [row] = make_executions(workspace, "http://127.0.0.1:1/closed")
    queue_pending(ids=[row.id])
    engine = build_engine(name="test-engine")
    engine.start()
    try:
        engine.submit([row.id])
        wait_until(lambda: states_of([row.id])[row.id] == "FAILED")
        wait_until(lambda: chronos("runs", str(row.id))["attempts"])
    finally:
        engine.begin_stop()
        engine.stop(1)
    told = chronos("runs", str(row.id))
    assert told["execution"]["id"] == str(row.id)
    assert told["dead_letter"]["status"] == "open"
    assert told["attempts"][0]["error"]["code"] == told["execution"]["last_error"] != ""
    text = chronos_text("runs", str(row.id))
    assert f"chronos replay {row.id}" in text
    with pytest.raises(CommandError, match="There is no execution"):
        chronos("runs", str(new_id()))


# --- replay --------------------------------------------------------------------------------------


def test_one_dead_letter_is_replayed_once_unless_it_is_asked_for_again(workspace: Workspace) -> None:
    [row] = make_executions(workspace, URL)
    with pytest.raises(CommandError, match="PENDING"):
        chronos("replay", str(row.id))
    fail(row)
    first = chronos("replay", str(row.id))
    second = chronos("replay", str(row.id))
    assert (first["new"], second["new"]) == (True, False)
    assert first["execution"]["id"] == second["execution"]["id"]
    assert chronos("replay", str(row.id), "--again")["execution"]["id"] != first["execution"]["id"]
    assert Execution.objects.filter(replay_of=row.id).count() == 2


def test_dead_letters_are_replayed_by_filter_as_an_operation(workspace: Workspace) -> None:
    job = make_job(workspace, URL, name="send-invoice")
    fail(*make_executions(workspace, URL, 3, job=job))
    fail(*make_executions(workspace, URL, 2))
    given = ("replay", "--workspace", "acme", "--job", "send-invoice", "--since", "1h")
    assert chronos(*given, "--dry-run")["count"] == 3
    with pytest.raises(CommandError, match="finds 3, not 4"):
        chronos(*given, "--expect", "4")
    with pytest.raises(CommandError, match="--expect"):
        chronos(*given)
    assert not Operation.objects.exists()
    made = chronos(*given, "--expect", "3", "--no-follow")
    assert (made["state"], made["total"]) == ("QUEUED", 3)

    aborted = chronos(*given, "--expect", "3", "--no-follow")
    assert chronos("replay", "--abort", aborted["id"])["state"] == "ABORTED"
    Operation.objects.all().delete()
    with pytest.raises(CommandError, match="There is no operation"):
        chronos("replay", "--abort", aborted["id"])
    runner = in_thread(run_until_done)
    done = chronos(*given, "--yes", "--rate", "1000")
    runner.join()
    assert (done["state"], done["done"]) == ("SUCCEEDED", 3)
    assert Execution.objects.filter(replay_of__isnull=False).count() == 3


def run_until_done() -> None:
    """What the worker of `maintenance` does, until the operation that somebody starts has ended."""

    def done() -> bool:
        run_operations()
        return Operation.objects.filter(state="SUCCEEDED").exists()

    wait_until(done, timeout_s=30)


def test_filters_of_dead_letters_and_of_executions_do_not_mix(workspace: Workspace) -> None:
    with pytest.raises(CommandError, match="--state goes with --executions only"):
        chronos("replay", "--state", "FAILED", "--dry-run")
    with pytest.raises(CommandError, match="--reason goes without --executions only"):
        chronos("replay", "--executions", "--reason", "too_old", "--dry-run")
    fail(*make_executions(workspace, URL, 2))
    assert chronos("replay", "--executions", "--state", "FAILED", "--dry-run")["count"] == 2


# --- keys ----------------------------------------------------------------------------------------


def test_keys_are_made_rotated_and_revoked_and_shown_once(workspace: Workspace) -> None:
    made = chronos("keys", "create", "shop", "--scope", "workspace:read", "--expires-in", "90d")
    assert made["scopes"] == ["workspace:read"]
    assert ApiClient(made["key"]).get("/v1/workspace").status_code == 200
    rotated = chronos("keys", "rotate", made["prefix"])
    assert rotated["id"] == made["id"]
    for key in (made["key"], rotated["key"]):
        assert ApiClient(key).get("/v1/workspace").status_code == 200
    text = chronos_text("keys", "list")
    assert "rotates" in text
    assert rotated["key"] not in text
    ended = chronos("keys", "rotate", made["id"], "--overlap", "0")
    assert ApiClient(rotated["key"]).get("/v1/workspace").status_code == 401
    assert chronos("keys", "revoke", made["id"])["revoked_at"] is not None
    assert ApiClient(ended["key"]).get("/v1/workspace").status_code == 401
    assert ApiKey.objects.count() == 1
    with pytest.raises(CommandError, match="There is no such key in acme"):
        chronos("keys", "rotate", "chr_nothing")


# --- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [part.NAME for part in PARTS])
def test_each_part_explains_itself(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    chronos_text(part, "--help")
    told = capsys.readouterr().out
    assert "--json" in told
    assert "Exit codes: 0 done" in told
