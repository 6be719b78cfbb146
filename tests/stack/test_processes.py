"""Pid files, accounts and logs: what the stack may stop, and what it must leave alone."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from chronos_site.stack.accounts import Account, make_temporary_home, remove_home
from chronos_site.stack.console import error_text
from chronos_site.stack.homes import AlreadyRunning, HomeLock, kept_secrets, stop_leftovers
from chronos_site.stack.processes import Child, Spec, StartError, stop_children, stop_recorded
from tests.processes import wait_until

SLEEPER = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def spec(folder: Path, code: str, *, name: str = "sleeper", grace_s: float = 5.0) -> Spec:
    return Spec(
        name=name,
        argv=(sys.executable, "-c", code),
        environment=os.environ,
        folder=folder,
        log=folder / f"{name}.log",
        rank=1,
        grace_s=grace_s,
    )


@pytest.fixture
def sleeper(run_folder: Path) -> Iterator[Child]:
    child = Child(spec(run_folder.parent, SLEEPER), run_folder)
    yield child
    child.kill()


def test_a_recorded_process_is_stopped_and_its_pid_file_removed(sleeper: Child, run_folder: Path) -> None:
    assert stop_recorded(run_folder) == ["sleeper"]
    assert not sleeper.running
    assert list(run_folder.iterdir()) == []


@pytest.mark.parametrize(
    "change", [{"started": 1.0}, {"command": ["something", "else"]}, {"pid": os.getppid()}, {"pid": 2**22 + 1}]
)
def test_a_pid_that_means_another_process_now_is_left_alone(
    sleeper: Child, run_folder: Path, change: dict[str, object]
) -> None:
    path = run_folder / "sleeper.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change), encoding="utf-8")
    assert stop_recorded(run_folder) == []
    assert sleeper.running


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": -1, "started": 0, "command": []}'])
def test_a_pid_file_that_cannot_be_read_is_removed_and_stops_nothing(run_folder: Path, text: str) -> None:
    (run_folder / "odd.json").write_text(text, encoding="utf-8")
    assert stop_recorded(run_folder) == []
    assert list(run_folder.iterdir()) == []


def test_a_process_deaf_to_the_polite_signal_is_killed_after_its_grace(run_folder: Path) -> None:
    child = Child(spec(run_folder.parent, STUBBORN, grace_s=0.3), run_folder)
    wait_until(lambda: "deaf" in child.spec.log.read_text())
    assert stop_children([child]) == ["sleeper"]
    assert child.popen.returncode == -signal.SIGKILL


def test_a_stop_takes_grandchildren_along(run_folder: Path) -> None:
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]); time.sleep(600)"
    child = Child(spec(run_folder.parent, code), run_folder)
    wait_until(lambda: psutil.Process(child.pid).children())
    (grandchild,) = psutil.Process(child.pid).children()
    stop_children([child])
    gone, _ = psutil.wait_procs([grandchild], timeout=5)
    assert gone == [grandchild]


def test_a_program_that_is_not_there_is_told_in_a_sentence(run_folder: Path) -> None:
    missing = Spec("ghost", ("/nowhere/ghost",), {}, run_folder, run_folder / "ghost.log", rank=1)
    with pytest.raises(StartError, match="ghost cannot be started"):
        Child(missing, run_folder)


def test_a_folder_is_held_once_and_free_again_after_the_holder(tmp_path: Path) -> None:
    held = HomeLock(tmp_path)
    with pytest.raises(AlreadyRunning, match=str(os.getpid())):
        HomeLock(tmp_path)
    held.release()
    HomeLock(tmp_path).release()


def test_leftovers_of_a_killed_run_are_removed_and_those_of_a_living_one_are_not() -> None:
    prefix = f"chronos-leftover-{os.getpid()}-"
    dead, living, mine = (make_temporary_home(prefix) for _ in range(3))
    try:
        HomeLock(dead).release()
        lock = HomeLock(living)
        assert stop_leftovers(mine, prefix) == []
        assert not dead.exists()
        assert living.exists()
        lock.release()
    finally:
        for home in (dead, living, mine):
            remove_home(home)


def test_secrets_stay_the_same_from_start_to_start(tmp_path: Path) -> None:
    assert kept_secrets(tmp_path, ("a", "b")) == kept_secrets(tmp_path, ("a", "b"))


def test_an_account_enters_only_where_every_folder_above_lets_it(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    stranger = Account("stranger", 59_999, 59_999)
    tmp_path.joinpath("closed").chmod(0o700)
    assert not stranger.may_enter(inner)
    assert Account("us", os.geteuid(), os.getegid()).may_enter(inner)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('{"level": "ERROR", "msg": "no"}', "error: no"),
        ('{"level": "CRITICAL", "msg": "worse"}', "critical: worse"),
        ('{"level": "INFO", "msg": "yes"}', None),
        ('{"level": "ERROR"', None),
        ("[1]", None),
        ("plain words", None),
    ],
)
def test_the_console_shows_errors_and_keeps_calm_otherwise(line: str, shown: str | None) -> None:
    assert error_text(line) == shown
