"""Look for what is wrong: settings, servers, clocks, migrations, leaders, loops, queues, workers, what is late. Each
finding has a sentence and a remedy. Takes a few seconds. Exit code 1 where something failed; with --strict on warnings
too."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import psycopg
from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chronos_site.console.checks import work
from chronos_site.console.checks.finding import Finding, worst
from chronos_site.console.checks.loops import check_loops, check_migrations, check_queues
from chronos_site.console.checks.servers import look_at_servers
from chronos_site.console.checks.settings import check_settings
from chronos_site.console.commands.status import show_findings
from chronos_site.console.commands.terminal import DONE, WRONG, Terminal
from chronos_site.console.selectors.state import read_snapshot

NAME = "doctor"
SUMMARY = "what is wrong, where, and what to do"

AWAY = (DatabaseError, InterfaceError, psycopg.Error, RedisError, OSError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strict", action="store_true", help="exit code 1 on warnings as well")
    parser.add_argument("--quiet", action="store_true", help="leave out what is well")


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    found = examine(terminal)
    level = worst(found)
    counts = {name: sum(finding.level == name for finding in found) for name in ("fail", "warn", "ok")}
    if terminal.as_json:
        terminal.json({"level": level, "counts": counts, "findings": found})
    else:
        shown = [finding for finding in found if not options["quiet"] or finding.level != "ok"]
        # What is wrong comes last: there it is seen.
        show_findings(terminal, sorted(shown, key=lambda finding: ("ok", "warn", "fail").index(finding.level)))
        terminal.say(f"{counts['fail']} failed, {counts['warn']} warnings, {counts['ok']} are well.", style="bold")
    return WRONG if level == "fail" or (level == "warn" and options["strict"]) else DONE


def examine(terminal: Terminal) -> list[Finding]:
    """All findings. A server that is away is one of them; what needs it is left out then."""
    found = list(check_settings())
    with terminal.error.status("asks the servers"):
        found += look_at_servers()
        away = {finding.check for finding in found if finding.text.startswith("It cannot be reached")}
        if "postgres" not in away:
            found += _asked("migrations", check_migrations)
            found += _asked("loops", check_loops)
        if "redis" not in away:
            found += _asked("queues", check_queues)
        if not away & {"postgres", "redis"}:
            found += work.judge(read_snapshot())
    return found


def _asked(name: str, check: Callable[[], Iterator[Finding]]) -> Iterable[Finding]:
    try:
        return list(check())
    except AWAY as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        return [Finding(name, "fail", f"They could not be looked at: {said}", "Mend that first, then look again.")]
