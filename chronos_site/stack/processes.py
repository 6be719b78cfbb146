"""Child processes: each in a session of its own, each with a pid file, stopped politely and then hard.

A pid file says who the process is (pid, time of its start, command line), so that the next run after a kill -9 can
verify that the pid still means that process before it stops it. A pid that now belongs to something else is left alone.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from .accounts import Account

_SAME_START_S = 5.0
"""How far two readings of one process's start may lie apart (the machine's clock may have been set between)."""


class StartError(RuntimeError):
    """A process did not come up; the text says which, and shows the end of its log."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run, and how to ask it to stop."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    log: Path
    rank: int
    """Lower ranks stop later: servers are 0, what uses them 1."""
    stop_signal: int = signal.SIGTERM
    grace_s: float = 10.0
    account: Account | None = None


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error's text."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


class Child:
    """One running process. Its output goes to its log, or to `output` for the caller to read."""

    def __init__(self, spec: Spec, run_folder: Path, output: IO[bytes] | int | None = None) -> None:
        """Start it. Raises StartError where the program cannot be run."""
        self.spec = spec
        self._pid_file = run_folder / f"{spec.name}.json"
        user = spec.account
        as_user: dict[str, Any] = {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}
        try:
            with contextlib.ExitStack() as stack:
                target = output if output is not None else stack.enter_context(spec.log.open("ab"))
                self.popen = subprocess.Popen(  # noqa: S603 - command lines are made in this package
                    spec.argv,
                    cwd=spec.folder,
                    env=dict(spec.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    **as_user,
                )
        except OSError as error:
            raise StartError(f"{spec.name} cannot be started: {error}") from error
        self.started = time.monotonic()
        self._record()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def _record(self) -> None:
        try:
            process = psutil.Process(self.pid)
            record = {
                "pid": self.pid,
                "started": process.create_time(),
                # As given: the system's own view can be empty for a moment after the start.
                "command": list(self.spec.argv),
                "stop_signal": int(self.spec.stop_signal),
                "rank": self.spec.rank,
            }
        except psutil.Error:
            return  # It is gone already; the caller sees that by `running`.
        fresh = self._pid_file.with_suffix(".new")
        fresh.write_text(json.dumps(record), encoding="utf-8")
        fresh.replace(self._pid_file)

    def ask_to_stop(self) -> None:
        """The polite signal, to the main process only."""
        if self.running:
            self.popen.send_signal(self.spec.stop_signal)

    def kill(self) -> None:
        """Stop it and all that it started, now."""
        _kill_tree(self.pid)
        self.popen.wait()
        self.forget()

    def finish(self, deadline: float) -> bool:
        """Wait until the monotonic `deadline` for the end, then kill. True where it ended by itself."""
        try:
            self.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        _kill_group(self.pid)
        self.forget()
        return True

    def forget(self) -> None:
        self._pid_file.unlink(missing_ok=True)


def stop_children(children: Iterable[Child]) -> list[str]:
    """Stop several at once, each within its own grace. Answers the names of those that had to be killed."""
    asked = list(children)
    begun = time.monotonic()
    for child in asked:
        child.ask_to_stop()
    return [child.spec.name for child in asked if not child.finish(begun + child.spec.grace_s)]


def stop_recorded(run_folder: Path, grace_s: float = 10.0) -> list[str]:
    """Stop what pid files of an earlier, killed run name, where they still name it. Answers the names stopped."""
    found: list[tuple[int, str, psutil.Process, int]] = []
    for path in sorted(run_folder.glob("*.json")):
        verified = _verified(path)
        if verified is not None:
            process, record = verified
            found.append((record["rank"], path.stem, process, record["stop_signal"]))
    for rank in sorted({entry[0] for entry in found}, reverse=True):
        _stop_processes([(process, number) for r, _, process, number in found if r == rank], grace_s)
    for path in run_folder.glob("*.json"):
        path.unlink(missing_ok=True)
    return [name for _, name, _, _ in found]


def _verified(path: Path) -> tuple[psutil.Process, dict[str, Any]] | None:
    """The process of a pid file, or None where it is gone or the pid belongs to something else now."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        process = psutil.Process(record["pid"])
        same = (
            abs(process.create_time() - record["started"]) < _SAME_START_S
            # Without the program's own name, which a launcher may replace.
            and process.cmdline()[1:] == record["command"][1:]
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None
    return (process, record) if same else None


def _stop_processes(processes: list[tuple[psutil.Process, int]], grace_s: float) -> None:
    for process, number in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
    _, alive = psutil.wait_procs([process for process, _ in processes], timeout=grace_s)
    for process in alive:
        _kill_tree(process.pid)
    psutil.wait_procs(alive, timeout=5)


def _kill_tree(pid: int) -> None:
    """SIGKILL for a process, its group and its descendants (PostgreSQL's backends lead groups of their own)."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        family = []
    _kill_group(pid)
    for member in family:
        with contextlib.suppress(psutil.Error):
            member.kill()
    psutil.wait_procs(family, timeout=5)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
