"""`manage.py up`: starts in an empty environment, watches its processes, and leaves none behind."""

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
import requests

from chronos_site.stack.processes import free_port
from chronos_site.stack.site import manage
from tests.processes import wait_until
from tests.stack.ups import UP, Up, alive, bare_environment

SITE = {"web", "beat-1", "beat-2", "scheduler", "fanout", "dispatch", "bulk", "notifications", "events", "flower"}
SERVERS = {"postgres", "valkey", "mongo", "kafka"}


@contextmanager
def up_in(home: Path, environment: dict[str, str] | None = None) -> Iterator[Up]:
    up = Up(home, environment)
    try:
        yield up
    finally:
        up.end()


def web_url(up: Up) -> str:
    return f"http://127.0.0.1:{json.loads((up.home / 'ports.json').read_text())['web']}"


def printed_key(up: Up) -> str:
    found = re.search(r"chr_[0-9A-Za-z]+", up.said)
    assert found is not None, up.said
    return found.group()


def test_up_runs_four_servers_and_eight_processes_each_in_a_session_of_its_own(running: Up) -> None:
    assert {path.stem for path in (running.home / "run").glob("*.json")} == SITE | SERVERS
    for name in SITE | SERVERS:
        process = running.child(name)
        assert os.getsid(process.pid) == process.pid


def test_up_answers_ready_with_every_part_at_hand(running: Up) -> None:
    ready = requests.get(f"{web_url(running)}/readyz", timeout=10)
    assert ready.status_code == 200
    assert ready.json()["degraded"] == []


def test_every_process_shows_its_metrics(running: Up) -> None:
    ports = json.loads((running.home / "ports.json").read_text())
    urls = {name: f"http://127.0.0.1:{ports[f'metrics-{name}']}/metrics" for name in SITE - {"web", "flower"}}
    for name, url in {**urls, "web": f"{web_url(running)}/metrics"}.items():
        wait_until(partial(_shows_metrics, url), timeout_s=30, told=partial("{} shows none".format, name))


def test_flower_is_behind_the_admins_login(running: Up) -> None:
    ports = json.loads((running.home / "ports.json").read_text())
    password = json.loads((running.home / "secrets.json").read_text())["admin_password"]
    url = f"http://127.0.0.1:{ports['flower']}/workers"
    wait_until(lambda: _status(url) == 401, timeout_s=60, told=lambda: f"Flower answers {_status(url)}")
    assert _status(url, ("admin", "wrong")) == 401
    assert _status(url, ("admin", password)) == 200


def _status(url: str, login: tuple[str, str] | None = None) -> int:
    try:
        return requests.get(url, auth=login, timeout=5).status_code
    except requests.ConnectionError:
        return 0


def _shows_metrics(url: str) -> bool:
    try:
        return "chronos_" in requests.get(url, timeout=5).text
    except requests.ConnectionError:
        return False  # A beat is not waited for when the stack starts.


def test_objects_are_kept_in_a_folder_of_the_stack_that_only_we_can_read(running: Up) -> None:
    folder = running.home / "objects"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("web", "dispatch"):
        assert running.child(name).environ()["STORAGE_URL"] == folder.as_uri()


def test_the_printed_key_opens_the_api_and_is_kept_nowhere(running: Up) -> None:
    key = printed_key(running)
    answer = requests.get(f"{web_url(running)}/v1/workspace", headers={"Authorization": f"Bearer {key}"}, timeout=10)
    assert answer.status_code == 200
    assert answer.json()["name"] == "default"
    holding = [path for path in running.home.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    assert holding == []


def test_servers_listen_on_loopback_only(running: Up) -> None:
    for name in SERVERS | {"web"}:
        listening = [c.laddr.ip for c in running.child(name).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert listening
        assert set(listening) == {"127.0.0.1"}


def test_the_secrets_file_is_for_its_owner_alone_and_no_secret_is_in_a_command_line(running: Up) -> None:
    path = running.home / "secrets.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    values = json.loads(path.read_text()).values()
    words = " ".join(word for process in running.family() for word in process.cmdline())
    assert not [value for value in values if value in words]


def test_a_second_up_in_the_same_folder_says_that_one_is_running_and_harms_nothing(running: Up) -> None:
    before = running.family()
    second = subprocess.run(
        manage("up", "--home", str(running.home)), env=bare_environment(), capture_output=True, text=True, check=False
    )
    assert second.returncode != 0
    assert "running already" in second.stderr
    assert str(running.process.pid) in second.stderr
    assert len(alive(before)) == len(before)


def test_a_process_that_dies_is_started_again_and_up_says_so(running: Up) -> None:
    dead = running.child("beat-1")
    dead.kill()
    running.wait_until_said("beat-1     was killed by SIGKILL", 10)
    running.wait_until_said("beat-1     started again", 15)
    assert running.child("beat-1").pid != dead.pid


def test_a_server_that_dies_is_started_again_on_its_port_and_the_site_recovers(running: Up) -> None:
    running.child("postgres").kill()
    running.wait_until_said("postgres   started again", 20)

    def ready() -> bool:
        return requests.get(f"{web_url(running)}/readyz", timeout=10).status_code == 200

    wait_until(ready, timeout_s=30)


def test_a_taken_port_is_refused_with_a_sentence(stack_folder: Path, running: Up) -> None:
    taken = web_url(running).rpartition(":")[2]
    refused = subprocess.run(
        manage("up", "--home", str(stack_folder / "refused")),
        env=bare_environment() | {"PORT": taken},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert f"port {taken} is taken" in refused.stderr


def test_a_killed_up_is_cleaned_up_by_the_next_which_keeps_data_and_shows_no_key(running: Up) -> None:
    """The last test of the shared stack: it ends it with -9 and starts another on its data."""
    key = printed_key(running)
    orphans = running.family()[1:]
    running.process.kill()
    running.process.wait()
    assert len(alive(orphans)) >= len(SITE | SERVERS)
    with up_in(running.home) as following:
        following.wait_until_said(UP)
        assert "stopped what an earlier run left" in following.said
        assert alive(orphans) == []
        assert "chr_" not in following.said
        answer = requests.get(
            f"{web_url(following)}/v1/workspace", headers={"Authorization": f"Bearer {key}"}, timeout=10
        )
        assert answer.status_code == 200
        family = following.family()
        assert following.stop(signal.SIGTERM) == 0
        assert alive(family) == []
        assert list((running.home / "run").glob("*.json")) == []


def test_sigint_stops_everything_and_a_server_whose_url_is_set_was_never_started(stack_folder: Path) -> None:
    given = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL", "MONGO_URL", "KAFKA_BOOTSTRAP")}
    port, bucket = free_port(), "s3://bucket?endpoint=http://127.0.0.1:1"
    with up_in(stack_folder / "given", given | {"PORT": str(port), "STORAGE_URL": bucket}) as up:
        up.wait_until_said(UP)
        assert up.child("web").environ()["STORAGE_URL"] == bucket
        assert not (up.home / "objects").exists()
        for name in given:
            assert f"not started: {name} is set" in up.said
        assert {path.stem for path in (up.home / "run").glob("*.json")} == SITE
        assert web_url(up).endswith(f":{port}")
        family = up.family()
        assert up.stop(signal.SIGINT) == 0
        assert alive(family) == []


def test_sighup_while_starting_stops_what_was_started(stack_folder: Path) -> None:
    with up_in(stack_folder / "early") as up:
        up.wait_until_said("migrating the database")
        family = up.family()
        assert len(family) > len(SERVERS)
        assert up.stop(signal.SIGHUP) == 0
        assert alive(family) == []


@pytest.mark.parametrize("home", ["", "a file"])
def test_a_folder_that_cannot_be_used_is_refused_without_a_traceback(stack_folder: Path, home: str) -> None:
    path = stack_folder / "occupied"
    path.write_text("", encoding="utf-8")
    try:
        refused = subprocess.run(
            manage("up", "--home", str(path / home)),
            env=bare_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.unlink()
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert "occupied" in refused.stderr


def test_a_setting_that_cannot_be_read_is_told_in_one_sentence_before_anything_starts(stack_folder: Path) -> None:
    with up_in(stack_folder / "wrong", {"STORAGE_URL": "s3://key:secret@bucket"}) as up:
        assert up.process.wait(60) != 0
        assert "STORAGE_URL: keys do not belong into the URL; set STORAGE_ACCESS_KEY" in up.said
        assert "Traceback" not in up.said
        assert "migrating" not in up.said
