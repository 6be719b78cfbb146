"""Keeps processes running: starts one that died again, after a growing pause, and says so; stops all in order.

It is one thread that looks at its children five times a second. What dies within a minute of its start waits 1, 2, 4 …
30 s before the next try; a minute of running forgives. The supervisor's own death leaves the children and their pid
files; the next run stops them (`processes.stop_recorded`).
"""

import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from .console import Console, LogPump
from .processes import Child, Spec, StartError, stop_children, tail

LONGEST_PAUSE_S = 30.0
FORGIVEN_S = 60.0
STEP_S = 0.2
HOPELESS = 4
"""So many deaths in a row while the stack starts, and it gives up."""


@dataclass(slots=True)
class Watched:
    """One process that is to be kept running. `child` is None while it waits for its next start."""

    spec: Spec
    ready_text: str | None
    """None: its output goes straight to its log. Else the text in its output that shows it works (may be empty)."""
    child: Child | None = None
    pump: LogPump | None = None
    failures: int = 0
    start_at: float = 0.0

    @property
    def ready(self) -> bool:
        return self.child is not None and (self.pump is None or self.pump.ready.is_set())


class Supervisor:
    """See the module. Every method is called from one thread."""

    def __init__(self, *, run_folder: Path, console: Console, stopping: threading.Event) -> None:
        self._run_folder = run_folder
        self._console = console
        self._stopping = stopping
        self.watched: list[Watched] = []

    def launch(self, spec: Spec) -> Child:
        """Start without watching; for a first start whose caller waits for it, or a step that ends."""
        return Child(spec, self._run_folder)

    def adopt(self, child: Child) -> None:
        """Watch a child that runs already and writes its own log."""
        self.watched.append(Watched(child.spec, None, child))

    def add(self, spec: Spec, *, ready_text: str = "") -> None:
        """Start and watch; its output goes to its log, and errors to the console."""
        entry = Watched(spec, ready_text)
        self.watched.append(entry)
        self._start(entry)

    def wait_until_ready(self, timeout_s: float) -> list[str]:
        """Watch until all show that they work, time is up, or one dies again and again. Answers those not ready."""
        deadline = time.monotonic() + timeout_s
        while not self._stopping.is_set() and time.monotonic() < deadline:
            if all(entry.ready for entry in self.watched) or any(e.failures >= HOPELESS for e in self.watched):
                break
            self.look()
            self._stopping.wait(STEP_S)
        return [entry.spec.name for entry in self.watched if not entry.ready]

    def watch(self) -> None:
        """Until the stack is asked to stop."""
        while not self._stopping.wait(STEP_S):
            self.look()

    def look(self) -> None:
        """Once: note the dead, start those whose pause is over."""
        for entry in self.watched:
            if entry.child is not None and not entry.child.running:
                self._note_death(entry, entry.child)
            elif entry.child is None and time.monotonic() >= entry.start_at:
                self._start(entry)

    def stop(self) -> list[str]:
        """Stop what uses the servers, then the servers. Answers the names of those that had to be killed."""
        killed: list[str] = []
        for rank in sorted({entry.spec.rank for entry in self.watched}, reverse=True):
            entries = [entry for entry in self.watched if entry.spec.rank == rank]
            killed += stop_children(_children(reversed(entries)))
            for entry in entries:
                if entry.pump is not None:
                    entry.pump.join(5)
        self.watched.clear()
        return killed

    def kill(self) -> None:
        """End all at once; safe within a signal handler, `stop` then finds them gone."""
        for child in _children(reversed(self.watched)):
            child.kill()

    def _start(self, entry: Watched) -> None:
        try:
            if entry.ready_text is None:
                entry.child = self.launch(entry.spec)
            else:
                entry.child = Child(entry.spec, self._run_folder, output=PIPE)
                entry.pump = self._pump(entry.spec, entry.child, entry.ready_text)
        except StartError as error:
            self._plan_restart(entry, str(error))
            return
        if entry.failures:
            self._console.say(entry.spec.name, f"started again (pid {entry.child.pid})")

    def _pump(self, spec: Spec, child: Child, ready_text: str) -> LogPump:
        assert child.popen.stdout is not None  # noqa: S101 - it was started with a pipe
        pump = LogPump(
            name=spec.name, source=child.popen.stdout, log=spec.log, console=self._console, ready_text=ready_text
        )
        pump.start()
        return pump

    def _note_death(self, entry: Watched, child: Child) -> None:
        lived = time.monotonic() - child.started
        child.kill()  # whatever it left in its group
        if entry.pump is not None:
            entry.pump.join(2)
        if lived > FORGIVEN_S:
            entry.failures = 0
        self._plan_restart(entry, f"{describe_end(child.popen.returncode)} after {lived:.0f} s")

    def _plan_restart(self, entry: Watched, what: str) -> None:
        entry.child = None
        entry.failures += 1
        pause = min(LONGEST_PAUSE_S, 2.0 ** (entry.failures - 1))
        entry.start_at = time.monotonic() + pause
        shown = tail(entry.spec.log, 8) if entry.failures > 1 else ""
        self._console.say(entry.spec.name, f"{what}; starting it again in {pause:g} s. Log: {entry.spec.log}\n{shown}")


def describe_end(code: int) -> str:
    """A return code in words."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _children(entries: Iterable[Watched]) -> list[Child]:
    return [entry.child for entry in entries if entry.child is not None]
