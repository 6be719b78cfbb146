"""`manage.py breakers`: the destinations that fail, and which of them are left alone."""

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from redis.exceptions import RedisError

from execution.dispatch.breaker import read_breakers


class Command(BaseCommand):
    help = (
        "Lists the destinations that have failed since their last sign of life: closed (still called), open (left "
        "alone) or half_open (one probe at a time). Exit codes: 0 done; 1 Redis cannot be reached."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="for programs")

    def handle(self, *, as_json: bool, **_options: Any) -> None:
        try:
            found = read_breakers()
        except (RedisError, OSError) as error:
            raise CommandError(f"Redis cannot be reached, and the state is there: {error}") from error
        if as_json:
            self.stdout.write(json.dumps({"breakers": [asdict(row) for row in found]}, default=str, indent=2))
            return
        for row in found:
            until = f", half-open at {row.half_open_at.isoformat()}" if row.half_open_at and row.state == "open" else ""
            probing = ", a probe is under way" if row.probing else ""
            self.stdout.write(f"{row.origin} {row.state}, {row.failures} failures{until}{probing}")
        if not found:
            self.stdout.write("No destination is in trouble.")
