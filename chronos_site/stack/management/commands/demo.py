"""`manage.py demo`: the whole way of a job, shown on a stack that is thrown away afterwards."""

import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console as RichConsole

from chronos_site.settings import env
from chronos_site.stack.accounts import make_temporary_home, remove_home
from chronos_site.stack.console import Console
from chronos_site.stack.demo import Demo, DemoError, Totals, table_of
from chronos_site.stack.homes import stop_leftovers
from chronos_site.stack.processes import StartError
from chronos_site.stack.receiver import Receiver
from chronos_site.stack.signals import stop_on_signals
from chronos_site.stack.stack import Stack

PREFIX = "chronos-demo-"
NEVER_USED = {"DATABASE_URL", "REDIS_URL", "MONGO_URL", "KAFKA_BOOTSTRAP", "STORAGE_URL"}
"""The demo brings its own servers: it must not write into somebody's database or bucket."""
NARROWEST = 160


class Command(BaseCommand):
    help = (
        "Starts Chronos in a temporary folder, schedules jobs through its API, receives them, prints what came, and "
        "removes everything. Exits 0 where nothing was lost, doubled, early, or (p99) a second late."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's name and shape

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--verbose", action="store_true", help="show every log line of every process")

    def handle(self, *, verbose: bool, **_options: Any) -> None:
        console = Console(sys.stdout, verbose=verbose)
        stopping = threading.Event()
        home = make_temporary_home(PREFIX)
        left = stop_leftovers(home, PREFIX)
        if left:
            console.say("demo", f"stopped what an earlier, killed demo left: {', '.join(left)}")
        environment = {name: value for name, value in env.everything().items() if name not in NEVER_USED}
        environment["CHRONOS_EGRESS_ALLOW"] = "127.0.0.1/32"
        stack = Stack(home=home, environment=environment, console=console, port=None, stopping=stopping)
        stop_on_signals(stopping, at_once=stack.supervisor.kill)
        try:
            totals = self._show(stack, console, stopping)
        except (StartError, DemoError, requests.RequestException) as error:
            raise CommandError("the demo was stopped" if stopping.is_set() else str(error)) from error
        finally:
            stack.stop()
            remove_home(home)
        console.say("demo", f"stopped and removed {home}")
        for fault in totals.faults:
            console.say("demo", f"failed: {fault}")
        console.write(f"demo: {totals.lost} lost, {totals.doubled} doubled")
        if totals.faults:
            sys.exit(1)

    def _show(self, stack: Stack, console: Console, stopping: threading.Event) -> Totals:
        started = stack.start()
        console.say("demo", f"Chronos is up at {started.url}")
        assert stack.api_key is not None  # noqa: S101 - a new folder makes a new workspace
        with Receiver() as receiver, _watched(stack):
            console.say("demo", f"the receiver listens at {receiver.url()}")
            demo = Demo(
                url=started.url,
                api_key=stack.api_key,
                receiver=receiver,
                say=lambda text: console.say("demo", text),
                stopping=stopping,
            )
            rows = demo.run()
        if stopping.is_set():
            raise CommandError("the demo was stopped")
        totals = Totals.of(rows)
        width = max(RichConsole().width, NARROWEST)
        RichConsole(file=sys.stdout, width=width).print(table_of(rows), _sentence(totals), sep="\n")
        return totals


@contextmanager
def _watched(stack: Stack) -> Iterator[None]:
    """Supervise in a thread, as long as the block runs."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            stack.supervisor.look()

    thread = threading.Thread(target=look, name="supervisor")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _sentence(totals: Totals) -> str:
    return (
        f"accepted {totals.accepted}, delivered {totals.delivered}, doubled {totals.doubled}, lost {totals.lost}, "
        f"lateness p50 {totals.p50_s * 1000:.0f} ms, p99 {totals.p99_s * 1000:.0f} ms"
    )
