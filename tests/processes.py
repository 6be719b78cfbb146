"""Real worker, beat and web processes on the test database, for tests that kill them."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from django.db import connection

from chronos_site.stack.processes import Child, Spec, stop_children, tail
from chronos_site.stack.site import ROOT, WORKER_READY, SiteProcess, beat, site_environment, web, worker

START_S = 30.0


class SiteProcesses:
    """Starts processes of the site; what is left of them is stopped with the test.

    Use with `@pytest.mark.django_db(transaction=True)`: other processes see committed rows only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run = folder / "run"
        self._run.mkdir()
        self.children: list[Child] = []

    def worker(self, *, name: str, queues: str, concurrency: int = 4, **environment: str) -> Child:
        """A Celery worker, once it consumes. Keyword arguments in capitals are environment variables."""
        child = self.start(worker(name=name, queues=queues, concurrency=concurrency, grace_s=15), **environment)
        self.wait_for_log(child, WORKER_READY)
        return child

    def beat(self, *, name: str, **environment: str) -> Child:
        """A beat replica; it may not lead yet when this returns."""
        return self.start(beat(name=name), **environment)

    def web(self, *, port: int, **environment: str) -> Child:
        return self.start(web(port=port), **environment)

    def start(self, process: SiteProcess, **environment: str) -> Child:
        spec = Spec(
            name=process.name,
            argv=process.argv,
            environment=site_environment(os.environ, DATABASE_URL=database_url(), **environment),
            folder=ROOT,
            log=self._folder / f"{process.name}.log",
            rank=1,
            grace_s=process.grace_s,
        )
        child = Child(spec, self._run)
        self.children.append(child)
        return child

    def stop(self, *children: Child) -> None:
        """A polite stop, hard after the grace; of everything where none is named."""
        stop_children(children or self.children)

    def log(self, child: Child) -> str:
        return child.spec.log.read_text(encoding="utf-8", errors="replace")

    def wait_for_log(self, child: Child, text: str, timeout_s: float = START_S) -> None:
        """Wait until its log holds `text`. Raises AssertionError with the end of the log."""
        wait_until(
            lambda: text in self.log(child) or not child.running,
            timeout_s=timeout_s,
            told=lambda: f"{child.spec.name} did not say {text!r}:\n{tail(child.spec.log, 40)}",
        )
        assert child.running, f"{child.spec.name} ended:\n{tail(child.spec.log, 40)}"


def database_url() -> str:
    """The URL of the database that this test uses."""
    found = connection.settings_dict
    user, password = quote(str(found["USER"]), safe=""), quote(str(found["PASSWORD"]), safe="")
    return f"postgresql://{user}:{password}@{found['HOST']}:{found['PORT']}/{found['NAME']}"


def wait_until(
    condition: Callable[[], object],
    *,
    timeout_s: float = 10.0,
    told: Callable[[], str] = lambda: "",
    step_s: float = 0.05,
) -> None:
    """Return once `condition()` is true. Raises AssertionError with `told()` where it stays false."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, told() or f"not true within {timeout_s:g} s"
        time.sleep(step_s)
