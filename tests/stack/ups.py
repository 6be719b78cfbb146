"""A running `manage.py up` as a test sees it: its words, its processes, its end."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from chronos_site.stack.processes import Child, Spec
from chronos_site.stack.site import manage
from tests.processes import wait_until

UP = "Ctrl-C stops everything."
START_S = 100.0


def bare_environment() -> dict[str, str]:
    """What a newcomer's shell has: no setting of ours."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}


class Up:
    """One `manage.py up`, in a process of its own."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        name = f"{home.name}-{os.urandom(4).hex()}"
        self._output = home.parent / f"{name}.log"
        # Recorded in the folder of the tests, so that a test run after a killed one stops it.
        self._child = Child(
            Spec(
                name=name,
                argv=manage("up", "--home", str(home)),
                environment=bare_environment() | dict(environment or {}),
                folder=home.parent,
                log=self._output,
                rank=1,
            ),
            home.parent / "run",
        )
        self.process = self._child.popen

    @property
    def said(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def wait_until_said(self, text: str, timeout_s: float = START_S) -> None:
        wait_until(
            lambda: text in self.said or self.process.poll() is not None,
            timeout_s=timeout_s,
            told=lambda: f"up did not say {text!r}:\n{self.said}",
        )
        assert text in self.said, f"up ended with {self.process.returncode}:\n{self.said}"

    def family(self) -> list[psutil.Process]:
        """Itself and everything that it started, at any depth."""
        mother = psutil.Process(self.process.pid)
        return [mother, *mother.children(recursive=True)]

    def child(self, name: str) -> psutil.Process:
        return psutil.Process(self.record(name)["pid"])

    def record(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "run" / f"{name}.json").read_text(encoding="utf-8"))
        return found

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 60.0) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def end(self) -> None:
        """For a fixture: whatever the test did, nothing stays."""
        family = self.family() if self.process.poll() is None else []
        for process in family:
            process.kill()
        self.process.wait()
        self._child.forget()
        psutil.wait_procs(family, timeout=10)


def alive(processes: list[psutil.Process]) -> list[str]:
    """Those that still run, in words."""
    return [
        f"{process.pid} {process.cmdline()}"
        for process in processes
        if process.is_running() and process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    ]
