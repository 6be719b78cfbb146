"""`manage.py up`: the whole of Chronos on this machine, with its own servers, until Ctrl-C."""

import sys
import threading
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chronos_site.settings import env
from chronos_site.stack.console import Console
from chronos_site.stack.homes import AlreadyRunning
from chronos_site.stack.processes import StartError
from chronos_site.stack.signals import stop_on_signals
from chronos_site.stack.site import ROOT
from chronos_site.stack.stack import ADMIN, WORKSPACE, Stack, Started


class Command(BaseCommand):
    help = (
        "Starts PostgreSQL, Valkey, and servers that speak MongoDB's and Kafka's protocols (each unless it is given: "
        "DATABASE_URL, REDIS_URL, MONGO_URL, KAFKA_BOOTSTRAP), migrates, and runs the web, beat and worker processes "
        "until Ctrl-C. "
        "PORT fixes the web's port."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's name and shape

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--home", type=Path, help="folder of data, logs and secrets (default: CHRONOS_HOME, else .chronos)"
        )
        parser.add_argument("--verbose", action="store_true", help="show every log line of every process")

    def handle(self, *, home: Path | None, verbose: bool, **_options: Any) -> None:
        where = home or Path(env.optional("CHRONOS_HOME") or ROOT / ".chronos")
        console = Console(sys.stdout, verbose=verbose)
        stopping = threading.Event()
        port = env.integer("PORT", 0, low=0, high=65_535) or None
        try:
            stack = Stack(home=where, environment=env.everything(), console=console, port=port, stopping=stopping)
        except OSError as error:
            raise CommandError(f"{where} cannot be the stack's folder: {error}") from error
        stop_on_signals(stopping, at_once=stack.supervisor.kill)
        try:
            started = stack.start()
            console.write(_welcome(started, stack))
            stack.watch()
        except AlreadyRunning as error:
            raise CommandError(
                f"Chronos is running already in {stack.home} ({error}). Stop that one, or give --home another folder."
            ) from error
        except (StartError, OSError) as error:
            if stack.api_key is not None:
                console.write(_key_line(stack.api_key))
            if not stopping.is_set():
                raise CommandError(str(error)) from error
        finally:
            _stop(stack, console)


def _stop(stack: Stack, console: Console) -> None:
    if not stack.held:
        return
    if stack.supervisor.watched:
        console.say("stack", "stopping: first the site's processes, then the servers (again to end at once)")
    killed = stack.stop()
    if killed:
        console.say("stack", f"had to be killed: {', '.join(killed)}")
    console.say("stack", "stopped")


def _welcome(started: Started, stack: Stack) -> str:
    lines = [
        "",
        "Chronos is up.",
        f"  API        {started.url}/v1/docs",
        f"  admin      {started.url}/admin/   user {ADMIN}, password in {stack.home / 'secrets.json'}",
        f"  logs       {stack.home / 'logs'}",
    ]
    if stack.api_key is not None:
        lines.append(_key_line(stack.api_key))
    return "\n".join([*lines, "Ctrl-C stops everything.", ""])


def _key_line(api_key: str) -> str:
    return f"  API key    {api_key}   workspace {WORKSPACE}; shown this once, keep it"
