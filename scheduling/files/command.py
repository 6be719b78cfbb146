"""What the three commands share: the workspace, reading the file, the way to say what is wrong, the exit codes.

0: done, or nothing to do. 1: the file holds what cannot be read or applied; nothing was changed. 2: the command cannot
be carried out as it was asked for (unknown workspace, a file that is not there, arguments that do not go together).
"""

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chronos_site.tenancy.models import Workspace
from scheduling.files.apply import Interrupted, Outcome, apply_wanted

EXIT_CODES = (
    "Exit codes: 0 done, or nothing to do; 1 something in the file cannot be read or applied, and nothing was changed; "
    "2 unknown workspace, a file that cannot be opened, or arguments that do not go together."
)
STDIN = "-"


class FileCommand(BaseCommand):
    """Results go to stdout, everything else to stderr."""

    def add_workspace(self, parser: CommandParser) -> None:
        parser.add_argument("--workspace", required=True, metavar="NAME", help="name of the workspace")

    def say(self, text: str) -> None:
        self.stderr.write(text, style_func=lambda line: line)

    def find_workspace(self, name: str) -> Workspace:
        found = Workspace.objects.filter(name=name).first()
        if found is None:
            raise CommandError(
                f"There is no workspace {name!r}. Check the name, or create it in the admin.", returncode=2
            )
        return found

    def read_file(self, name: str, *, most: int) -> bytes:
        """Never more than `most` bytes, whatever the name stands for."""
        try:
            if name == STDIN:
                raw = sys.stdin.buffer.read(most + 1)
            else:
                with Path(name).open("rb") as file:
                    raw = file.read(most + 1)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "this is no name of a file"
            raise CommandError(f"{name} cannot be read: {why}.", returncode=2) from error
        if len(raw) > most:
            raise CommandError(f"{name} is larger than {most // 1024 // 1024} MiB; split it.", returncode=2)
        return raw

    def apply(self, **arguments: Any) -> Outcome:
        try:
            return apply_wanted(say=self.say, **arguments)
        except Interrupted as error:
            raise CommandError(str(error), returncode=1) from error

    def print_json(self, value: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False, indent=2))
