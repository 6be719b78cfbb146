"""The ground of the benchmarks: PostgreSQL and Valkey of their own, durable as in production, with Django on top."""

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.core.management import call_command

from chronos_site.stack.accounts import make_temporary_home, remove_home
from chronos_site.stack.homes import HomeLock, stop_leftovers
from chronos_site.stack.processes import Child, Spec, free_port, stop_children
from chronos_site.stack.servers import Postgres, Server, Valkey, start_server

PREFIX = "chronos-bench-"


@contextmanager
def bench_ground() -> Iterator[None]:
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
    children: list[Child] = []

    def launch(spec: Spec) -> Child:
        return Child(spec, home / "run")

    try:
        for server in servers:
            children.append(start_server(server, launch, threading.Event()))
            os.environ[server.variable] = server.url
        os.environ["DJANGO_SECRET_KEY"] = secrets.token_urlsafe(48)
        os.environ["DJANGO_SETTINGS_MODULE"] = "chronos_site.settings.test"
        os.environ["LOG_LEVEL"] = "ERROR"
        django.setup()
        call_command("migrate", verbosity=0)
        yield
    finally:
        stop_children(reversed(children))
        lock.release()
        remove_home(home)
