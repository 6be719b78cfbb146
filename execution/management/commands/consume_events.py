"""`manage.py consume_events`: takes what happened from the stream `job-events` to open pages and to Kafka."""

import json
import os
import signal
import socket
import threading
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chronos_site.infra.ids import new_id
from chronos_site.observability import metrics
from execution.event_consumer import CLAIM_AFTER_S, Reader, Sink
from execution.event_sinks import KafkaSink, to_lines, to_live_pages

READY = "consumes events"

HELP = """\
Reads the Redis stream job-events in consumer groups and hands each event over, at least once:

  live    to the WebSockets /ws/v1/executions
  kafka   to the topic job-events of the cluster KAFKA_BOOTSTRAP, keyed by execution
  stdout  one JSON object a line

Each sink is a group of its own, so that none waits for another. Several processes of one group share its work; what one
of them had read when it died is claimed by another after --claim-after seconds. SIGTERM ends it once what is in hand
is delivered and acknowledged.

Examples:
  manage.py consume_events                         live, and kafka where KAFKA_BOOTSTRAP is set
  manage.py consume_events --sink kafka --group audit-copy
  manage.py consume_events --sink stdout --once | jq 'select(.type == "execution.failed")'

Exit codes: 0 stopped, or with --once all read; 1 with --once where Redis or a sink failed; 2 wrong arguments.
"""


class Command(BaseCommand):
    help = HELP

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        return super().create_parser(prog_name, subcommand, formatter_class=RawDescriptionHelpFormatter, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--sink",
            action="append",
            choices=["live", "kafka", "stdout"],
            help="where to; may be given several times (default: live, and kafka where KAFKA_BOOTSTRAP is set)",
        )
        parser.add_argument("--group", help="the consumer group, with one --sink only (default: the sink's name)")
        parser.add_argument("--consumer", help="this consumer's name in the group (default: host, process, random)")
        parser.add_argument(
            "--claim-after",
            type=float,
            default=CLAIM_AFTER_S,
            metavar="SECONDS",
            help="take over what another consumer has held unacknowledged for so long (default: %(default)g)",
        )
        parser.add_argument("--once", action="store_true", help="read what is there, then end")
        parser.add_argument("--json", action="store_true", help="at the end, what was done as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        sinks: list[str] = options["sink"] or ["live", *(["kafka"] if settings.KAFKA_BOOTSTRAP else [])]
        if options["group"] and len(sinks) > 1:
            raise CommandError("--group names one group: give one --sink with it.", returncode=2)
        if options["claim_after"] <= 0:
            raise CommandError("--claim-after must be above 0 seconds.", returncode=2)
        made = {name: self._sink(name) for name in dict.fromkeys(sinks)}
        consumer = options["consumer"] or f"{socket.gethostname()}:{os.getpid()}:{new_id().hex[-6:]}"
        readers = {
            name: Reader(
                group=options["group"] or name,
                consumer=consumer,
                sink=sink,
                claim_after_s=options["claim_after"],
                # Who opens a page wants to know what happens from now on.
                from_start=name != "live",
            )
            for name, sink in made.items()
        }
        metrics.serve()
        _stop_at_signals(list(readers.values()))
        failed = self._run(readers, once=options["once"])
        for sink in made.values():
            if isinstance(sink, KafkaSink):
                sink.close()
        self._report(readers, as_json=options["json"])
        if failed:
            raise CommandError(f"Not everything was handed over: {'; '.join(failed)}. Run it again.", returncode=1)

    def _sink(self, name: str) -> Sink:
        match name:
            case "kafka":
                if settings.KAFKA_BOOTSTRAP is None:
                    raise CommandError(
                        "KAFKA_BOOTSTRAP is not set: name the cluster, or leave kafka out.", returncode=2
                    )
                return KafkaSink(settings.KAFKA_BOOTSTRAP)
            case "stdout":
                return to_lines(self.stdout.write)
            case _:
                return to_live_pages

    def _run(self, readers: dict[str, Reader], *, once: bool) -> list[str]:
        """One thread for each; what failed."""
        failed: list[str] = []

        def run(name: str, reader: Reader) -> None:
            try:
                reader.run(once=once)
            except Exception as error:
                failed.append(f"{name}: {error}")

        threads = [threading.Thread(target=run, args=item, name=f"events {item[0]}") for item in readers.items()]
        for thread in threads:
            thread.start()
        self.stderr.write(f"{READY}: {', '.join(f'{name} as {r.group}' for name, r in readers.items())}")
        for thread in threads:
            while thread.is_alive():
                thread.join(1)
        return failed

    def _report(self, readers: dict[str, Reader], *, as_json: bool) -> None:
        told = {
            name: {
                "group": reader.group,
                "delivered": reader.read.delivered,
                "claimed": reader.read.claimed,
                "lost": reader.read.lost,
                "failures": reader.read.failures,
            }
            for name, reader in readers.items()
        }
        if as_json:
            self.stdout.write(json.dumps(told))
            return
        for name, done in told.items():
            self.stderr.write(
                f"{name}: {done['delivered']} events delivered, {done['claimed']} of them taken over from others,"
                f" {done['lost']} lost to the stream's length"
            )


def _stop_at_signals(readers: list[Reader]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        for reader in readers:
            reader.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
