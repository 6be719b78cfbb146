"""The ground of the benchmarks: PostgreSQL and Valkey of their own, durable as in production, with Django on top."""

import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
import psutil
from django.core.management import call_command

from chronos_site.stack.accounts import make_temporary_home, remove_home
from chronos_site.stack.homes import HomeLock, folder_storage, stop_leftovers
from chronos_site.stack.processes import Child, Spec, free_port, stop_children, tail
from chronos_site.stack.servers import Postgres, Server, Valkey, start_server
from chronos_site.stack.site import ROOT, WORKER_READY, site_environment, worker

PREFIX = "chronos-bench-"
START_S = 60.0
GRACE_S = 10


class Ground:
    """Starts the processes of the measurements. Whatever still runs at the end is stopped with the ground."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.children: list[Child] = []
        self._count = 0

    def launch(self, spec: Spec) -> Child:
        child = Child(spec, self.home / "run")
        self.children.append(child)
        return child

    def start(self, name: str, *argv: str, ready: str = "", **environment: str) -> Child:
        """Run a command in the checkout, once its output holds `ready`. Raises RuntimeError where it never does."""
        self._count += 1
        unique = f"{name}-{self._count}"
        spec = Spec(
            name=unique,
            argv=argv,
            environment=site_environment(os.environ, **environment),
            folder=ROOT,
            log=self.home / f"{unique}.log",
            rank=1,
            grace_s=GRACE_S,
        )
        child = self.launch(spec)
        ends = time.monotonic() + START_S
        while ready and ready not in spec.log.read_text(encoding="utf-8", errors="replace"):
            if not child.running or time.monotonic() > ends:
                raise RuntimeError(f"{name} did not start:\n{tail(spec.log)}")
            time.sleep(0.05)
        return child

    def python(self, name: str, *arguments: str, ready: str = "", **environment: str) -> Child:
        return self.start(name, sys.executable, *arguments, ready=ready, **environment)

    def worker(self, name: str, *, queues: str, concurrency: int, **environment: str) -> Child:
        """A worker of Chronos, once it consumes."""
        command = worker(name=f"{name}-{self._count}", queues=queues, concurrency=concurrency)
        return self.start(name, *command.argv, ready=WORKER_READY, LOG_LEVEL="INFO", **environment)

    def site(self, **environment: str) -> tuple[Child, Child]:
        """The processes that deliver: a worker that fans out and keeps house, and one that dispatches."""
        fanout = self.worker("fanout", queues="bucket-triggers,scheduler,maintenance", concurrency=2)
        return fanout, self.dispatch_worker(**environment)

    def dispatch_worker(self, **environment: str) -> Child:
        return self.worker("dispatch", queues="job-dispatch", concurrency=8, **environment)

    def stop(self, *children: Child) -> None:
        stop_children(children)
        for child in children:
            self.children.remove(child)

    def server(self, name: str) -> psutil.Process:
        """The process of `postgres` or `valkey`."""
        return next(psutil.Process(c.pid) for c in self.children if c.spec.name == name)


@contextmanager
def bench_ground() -> Iterator[Ground]:
    """Within it, Django is set up on an empty, migrated database."""
    home = make_temporary_home(PREFIX)
    lock = HomeLock(home)
    stop_leftovers(home, PREFIX)
    (home / "run").mkdir()
    password = secrets.token_hex(16)
    environment = dict(os.environ)
    servers: list[Server] = [
        Postgres(home=home, port=free_port(), password=password, environment=environment, durable=True),
        Valkey(home=home, port=free_port(), password=password, environment=environment),
    ]
    ground = Ground(home)
    try:
        for server in servers:
            start_server(server, ground.launch, threading.Event())
            os.environ[server.variable] = server.url
        os.environ["STORAGE_URL"] = folder_storage(home)
        os.environ["DJANGO_SECRET_KEY"] = secrets.token_urlsafe(48)
        os.environ["DJANGO_SETTINGS_MODULE"] = "chronos_site.settings.test"
        os.environ["LOG_LEVEL"] = "ERROR"
        django.setup()
        call_command("migrate", verbosity=0)
        yield ground
    finally:
        stop_children(reversed(ground.children))
        lock.release()
        remove_home(home)
