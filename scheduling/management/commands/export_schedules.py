"""`manage.py export_schedules`: a workspace's recurring schedules as a file."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from scheduling.files import export, report
from scheduling.files.command import FileCommand


class Command(FileCommand):
    help = (
        "Writes the ACTIVE and PAUSED recurring schedules as YAML that apply_schedules reads back without a change. "
        "Values of headers that look like secrets are not written: a placeholder stands for them, which leaves the "
        "stored value as it is. Exit codes: 0 done; 2 unknown workspace, or a file that cannot be written."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_workspace(parser)
        parser.add_argument("--output", metavar="FILE", help="written anew if it is there; stdout if missing")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--prefix", metavar="P", help="only those whose key begins with P; the file declares it")
        which.add_argument(
            "--all",
            action="store_true",
            dest="without_key",
            help="also those without a key, under id:ID; apply_schedules finds them by it in the same workspace",
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="JSON, which apply_schedules reads too")

    def handle(
        self,
        *,
        workspace: str,
        output: str | None,
        prefix: str | None,
        without_key: bool,
        as_json: bool,
        **_options: Any,
    ) -> None:
        found = self.find_workspace(workspace)
        if prefix is not None and not prefix.strip():
            raise CommandError("--prefix is empty; leave it out for all schedules with a key.", returncode=2)
        exported = export.export_schedules(workspace=found, prefix=prefix, without_key=without_key)
        text = export.as_json(exported) if as_json else export.as_yaml(exported, workspace=found.name)
        self._write(text, output)
        self.say(f"{len(exported.document['schedules'])} schedules exported")
        if exported.left_out:
            self.say(f"{exported.left_out} without a key left out; --all writes them under their ids")
        for place in exported.hidden:
            self.say(f"not written, for it looks like a secret: {report.printable(place)}")

    def _write(self, text: str, output: str | None) -> None:
        if output is None:
            self.stdout.write(text, ending="")
            return
        try:
            Path(output).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "this is no name of a file"
            raise CommandError(f"{output} cannot be written: {why}.", returncode=2) from error
