"""`manage.py chronos`: what an operator asks and does. Its parts are in `chronos_site.console.commands`."""

from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError
from redis.exceptions import RedisError

from chronos_site.console.commands import doctor, keys, replay, runs, status, switch, tail, top
from chronos_site.console.commands.terminal import (
    ASKED_WRONGLY,
    AWAY,
    EXIT_CODES,
    INTERRUPTED,
    AskedWrongly,
    Terminal,
)

PARTS = (status, doctor, top, tail, runs, replay, keys, switch)


class Command(BaseCommand):
    help = (
        "Look at Chronos and act on it. Start with `chronos status`; with `chronos doctor` where something seems wrong."
        f" Every part takes --json for scripts. {EXIT_CODES}"
    )
    # It is called when something is wrong: what is, the doctor says.
    requires_system_checks: list[str] = []  # noqa: RUF012 - as Django declares it

    def add_arguments(self, parser: CommandParser) -> None:
        parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
        for part in PARTS:
            sub = parts.add_parser(part.NAME, help=part.SUMMARY, description=part.__doc__, epilog=EXIT_CODES)
            sub.add_argument("--json", action="store_true", dest="as_json", help="for scripts")
            part.add_arguments(sub)

    def handle(self, *, part: str, as_json: bool, **options: Any) -> None:
        [module] = [one for one in PARTS if part == one.NAME]
        terminal = Terminal(out=self.stdout, error=self.stderr, as_json=as_json)  # type: ignore[arg-type]
        try:
            code = module.run(terminal, options)
        except AskedWrongly as error:
            raise CommandError(str(error), returncode=ASKED_WRONGLY) from error
        except (OperationalError, InterfaceError, psycopg.Error, RedisError) as error:
            raise CommandError(_away(error), returncode=AWAY) from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:
            # `chronos tail | head`: whoever read has gone.
            raise SystemExit(0) from None
        if code:
            raise SystemExit(code)


def _away(error: Exception) -> str:
    server = "Redis" if isinstance(error, RedisError) else "PostgreSQL"
    said = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    if "statement timeout" in said:
        return f"PostgreSQL took too long to answer. `chronos doctor` tells why it may be busy. ({said})"
    return f"{server} cannot be reached: {said} `chronos doctor` looks at all servers."
