"""Pytest plugin, loaded before Django's settings are read: starts the servers that the tests run against.

Real servers can be used instead: set CHRONOS_TEST_DATABASE_URL, CHRONOS_TEST_REDIS_URL (its keys are flushed between
tests), CHRONOS_TEST_MONGO_URL, CHRONOS_TEST_KAFKA_BOOTSTRAP, CHRONOS_TEST_STORAGE_URL (else a folder). Servers that
were started here are stopped at the end, also after an error, SIGTERM or SIGHUP; what a killed run left behind is
stopped by the next.
"""

import atexit
import os
import secrets
import signal
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest

from chronos_site.stack.accounts import make_temporary_home, remove_home
from chronos_site.stack.homes import HomeLock, folder_storage, stop_leftovers
from chronos_site.stack.processes import Child, Spec, free_port, stop_children
from chronos_site.stack.servers import Kafka, Mongo, Postgres, Server, Valkey, start_server

PREFIX = "chronos-test-"
VARIABLES = ("DATABASE_URL", "REDIS_URL", "MONGO_URL", "KAFKA_BOOTSTRAP", "STORAGE_URL")


class TestGround:
    """The servers of one test run, in a folder that is thrown away."""

    __test__ = False

    def __init__(self) -> None:
        self.home: Path | None = None
        self.servers: dict[str, Server] = {}
        self.children: dict[str, Child] = {}
        self._lock: HomeLock | None = None

    def start(self) -> None:
        wanted = [name for name in VARIABLES if not self._take_given(name)]
        if wanted:
            self._start_servers(wanted)
        os.environ.setdefault("DB_POOL_MAX", "20")
        os.environ["DJANGO_SECRET_KEY"] = secrets.token_urlsafe(48)
        os.environ["DJANGO_SETTINGS_MODULE"] = "chronos_site.settings.test"

    def _take_given(self, name: str) -> bool:
        given = os.environ.get(f"CHRONOS_TEST_{name}")
        if given:
            os.environ[name] = given
        return bool(given)

    def _start_servers(self, wanted: list[str]) -> None:
        self.home = make_temporary_home(PREFIX)
        self._lock = HomeLock(self.home)
        stop_leftovers(self.home, PREFIX)
        (self.home / "run").mkdir()
        if "STORAGE_URL" in wanted:
            os.environ["STORAGE_URL"] = folder_storage(self.home)
        password = secrets.token_hex(16)
        environment = dict(os.environ)
        servers: list[Server] = [
            Postgres(home=self.home, port=free_port(), password=password, environment=environment, durable=False),
            Valkey(home=self.home, port=free_port(), password=password, environment=environment),
            Mongo(home=self.home, port=free_port(), environment=environment),
            Kafka(home=self.home, port=free_port(), environment=environment),
        ]
        for server in servers:
            if server.variable in wanted:
                self.children[server.name] = start_server(server, self.launch, threading.Event())
                self.servers[server.name] = server
                os.environ[server.variable] = server.url

    def launch(self, spec: Spec) -> Child:
        assert self.home is not None
        return Child(spec, self.home / "run")

    def stop(self) -> None:
        """Safe to repeat."""
        children, self.children = list(self.children.values()), {}
        stop_children(reversed(children))
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self.home is not None:
            remove_home(self.home)


ground = TestGround()


def _leave(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(args: list[str]) -> Generator[None]:
    """A wrapper, so that it runs before pytest-django's hook reads the settings."""
    if not {"-h", "--help", "-V", "--version"}.intersection(args):
        atexit.register(ground.stop)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        ground.start()
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    ground.stop()
