"""Liveness tests consumption: of real workers and a real beat, by the command that a probe runs."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from kombu.exceptions import OperationalError

from chronos_site.celery import app
from chronos_site.observability import consumption, liveness
from chronos_site.observability.liveness import HeartbeatFile, Liveness
from chronos_site.settings import env
from chronos_site.stack.receiver import Answer
from chronos_site.tenancy.models import Workspace
from execution import publish, transitions
from execution.dispatch import engine as engines
from execution.dispatch import runtime
from tests.clients import ProgrammableReceiver
from tests.making import make_executions
from tests.processes import SiteProcesses, wait_until
from tests.proxy import Proxy

SCRIPT = Path(liveness.__file__)
MAX_AGE_S = 5
"""Two looks of a worker, and a bit."""


def probe(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command as a probe runs it: by its path, with nothing of the site's environment."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, env={}, check=False)


def alive(file: Path) -> bool:
    return probe(file, "--max-age", str(MAX_AGE_S)).returncode == 0


def proof(file: Path) -> object:
    return liveness.judge(file, max_age_s=MAX_AGE_S)["proof"]


def stays(condition: Callable[[], object], seconds: float) -> bool:
    """Whether `condition()` holds all the time."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if not condition():
            return False
        time.sleep(0.5)
    return True


@pytest.fixture
def redis_link() -> Iterator[Proxy]:
    parts = urlsplit(settings.REDIS_URL)
    with Proxy(str(parts.hostname), parts.port or 6379) as proxy:
        yield proxy


@pytest.mark.django_db(transaction=True)
def test_a_worker_is_alive_while_it_polls_or_works_or_has_no_broker_and_dead_once_it_has_lost_its_consumer(
    celery_processes: SiteProcesses,
    workspace: Workspace,
    receiver: ProgrammableReceiver,
    redis_link: Proxy,
    tmp_path: Path,
) -> None:
    file = tmp_path / "alive"
    file.write_text("of an earlier process")
    worker = celery_processes.worker(
        name="dispatch",
        queues="job-dispatch",
        concurrency=1,
        REDIS_URL=redis_link.through(settings.REDIS_URL),
        CHRONOS_LIVENESS_FILE=str(file),
        CHRONOS_MAX_IN_FLIGHT="1",
    )
    wait_until(lambda: alive(file), told=lambda: celery_processes.log(worker)[-2000:])
    assert proof(file) == "polled the broker"

    receiver.answer(Answer(delay_s=60))
    rows = make_executions(workspace, receiver.url(), 2)
    assert publish.publish_dispatch(transitions.queue_pending(ids=[row.id for row in rows])) == []
    wait_until(lambda: proof(file) == "all threads at work", told=lambda: celery_processes.log(worker)[-2000:])
    assert stays(lambda: alive(file), MAX_AGE_S + 1)
    receiver.release()
    wait_until(lambda: proof(file) == "polled the broker")

    app.control.cancel_consumer("job-dispatch")
    wait_until(lambda: not alive(file), timeout_s=20)
    assert worker.running
    assert "restart the process" in probe(file, "--max-age", str(MAX_AGE_S)).stdout
    app.control.add_consumer("job-dispatch")
    wait_until(lambda: alive(file))

    redis_link.refuse()
    redis_link.reset()
    wait_until(lambda: proof(file) == "broker away")
    assert stays(lambda: alive(file), MAX_AGE_S + 1)
    redis_link.heal()
    wait_until(lambda: proof(file) == "polled the broker", timeout_s=10)


def test_a_worker_looks_for_a_broker_that_is_away_every_five_seconds_at_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kombu.utils.functional.sleep", lambda _seconds: None)
    pauses: list[float] = []

    def note(_error: Exception, pause: float) -> None:
        pauses.append(pause)

    with Proxy("127.0.0.1", 9) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
    with app.connection_for_read(url) as link, pytest.raises(OperationalError):
        link.ensure_connection(note, max_retries=8)
    assert pauses[:6] == [1, 2, 3, 4, 5, 5]


@pytest.mark.django_db(transaction=True)
def test_beat_is_alive_while_it_ticks(celery_processes: SiteProcesses, tmp_path: Path) -> None:
    file = tmp_path / "alive"
    beat = celery_processes.beat(name="beat", CHRONOS_LIVENESS_FILE=str(file))
    wait_until(lambda: alive(file), timeout_s=20, told=lambda: celery_processes.log(beat)[-2000:])
    assert proof(file) == "beat ticked"
    os.kill(beat.pid, signal.SIGSTOP)
    stopped = file.read_text()
    time.sleep(1.5)  # A tick and a half.
    assert file.read_text() == stopped
    os.kill(beat.pid, signal.SIGCONT)
    wait_until(lambda: file.read_text() != stopped)


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_engine_is_stuck_is_dead_although_it_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "STUCK_S", 1.5)
    file = tmp_path / "alive"
    watched = Liveness(file=HeartbeatFile(file), broker_answers=lambda: True)

    def look() -> bool:
        file.unlink(missing_ok=True)
        watched.note_poll()
        watched.look()
        return file.exists()

    engine = runtime.engine()
    try:
        assert look()
        engine._loop.call_soon_threadsafe(time.sleep, 3)
        wait_until(lambda: not look(), timeout_s=4)
        wait_until(look, timeout_s=4)
    finally:
        runtime._begin_stop()
        runtime._stop()
    time.sleep(1.6)  # An engine that ended politely does not turn any more.
    assert look()


def test_a_worker_that_gets_no_answers_while_the_broker_answers_a_ping_touches_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "alive"
    watched = Liveness(file=HeartbeatFile(file), broker_answers=consumption.broker_answers)
    watched.look()
    assert not file.exists()
    watched.note_poll()
    watched.look()
    assert proof(file) == "polled the broker"
    file.unlink()
    watched.look()
    assert not file.exists()
    watched.note_stopping()
    watched.look()
    assert proof(file) == "stopping"


def test_the_probe_answers_one_sentence_and_an_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    missing = probe(file)
    assert (missing.returncode, missing.stderr) == (1, "")
    assert missing.stdout == (
        f"{file} does not exist: the process has not begun to work, or CHRONOS_LIVENESS_FILE names another file.\n"
    )
    HeartbeatFile(file).touch("polled the broker")
    found = probe(file)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.endswith(" s ago: polled the broker.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["alive"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no heartbeat file"),
        ("[1]", "is no heartbeat file"),
        ('{"at": "soon"}', "is no heartbeat file"),
        ('{"at": NaN}', "not begun to work"),
        ('{"at": 1e18}', "is from before the machine's last start"),
        ('{"at": 0.5}', "more than 60 s: restart the process."),
    ],
)
def test_what_is_no_fresh_sign_of_life_is_dead(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "alive"
    file.write_text(text)
    answer = probe(file)
    assert answer.returncode == 1
    assert said in answer.stdout
    assert answer.stdout.count("\n") == 1


def test_the_probe_answers_json_where_it_is_asked_to(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    HeartbeatFile(file).touch("beat ticked")
    found = json.loads(probe("--json", file).stdout)
    assert (found["alive"], found["proof"], found["pid"]) == (True, "beat ticked", os.getpid())
    assert 0 <= found["age_s"] < 10
    assert json.loads(probe("--json", tmp_path / "none").stdout)["alive"] is False


@pytest.mark.parametrize("age", ["0", "-1", "soon", "inf", "nan"])
def test_a_limit_that_is_no_limit_is_refused_with_exit_code_2(tmp_path: Path, age: str) -> None:
    refused = probe(tmp_path / "alive", "--max-age", age)
    assert refused.returncode == 2
    assert "is not a number of seconds above 0" in refused.stderr


def test_a_probe_costs_well_below_three_tenths_of_a_second_and_imports_nothing_of_the_site(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    HeartbeatFile(file).touch("beat ticked")
    costs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        probe(file)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(costs) < 0.2
    command = [sys.executable, "-X", "importtime", str(SCRIPT), str(file)]
    imported = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stderr
    assert "logging" in imported
    assert not any(name in imported for name in ("celery", "django", "kombu", "chronos_site"))


def test_a_folder_that_cannot_be_written_to_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = HeartbeatFile(tmp_path / "none" / "alive")
    file.clear()
    file.touch("polled the broker")
    file.touch("polled the broker")
    assert [record.message for record in caplog.records] == ["liveness_file_failed"]


def test_a_file_that_is_not_named_absolutely_stops_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONOS_LIVENESS_FILE", "alive")
    with pytest.raises(ImproperlyConfigured, match="not an absolute path"):
        env.absolute_path("CHRONOS_LIVENESS_FILE")
    monkeypatch.setenv("CHRONOS_LIVENESS_FILE", "")
    assert env.absolute_path("CHRONOS_LIVENESS_FILE") is None
