"""`manage.py apply_schedules`: a workspace's schedules as a YAML file declares them."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from scheduling.files import declaration, report
from scheduling.files.apply import Outcome
from scheduling.files.command import EXIT_CODES, FileCommand
from scheduling.files.compare import Kind
from scheduling.files.declaration import Declaration


class Command(FileCommand):
    help = (
        "Makes, changes and leaves schedules so that the workspace holds what FILE declares; all of it or nothing. "
        f"A second run changes nothing. {EXIT_CODES}"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="YAML or JSON; - for stdin")
        self.add_workspace(parser)
        parser.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
        parser.add_argument(
            "--prune",
            action="store_true",
            help="cancel the recurring schedules whose key begins with the file's prefix and is not in the file",
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")

    def handle(self, *, file: str, workspace: str, dry_run: bool, prune: bool, as_json: bool, **_options: Any) -> None:
        found = self.find_workspace(workspace)
        declared = declaration.read_declaration(self.read_file(file, most=declaration.MOST_BYTES))
        if prune and declared.prefix is None and not declared.faults:
            raise CommandError(
                "--prune needs a prefix: in the file, to know which schedules are its own.", returncode=2
            )
        # What can be read is compared even where the rest cannot: everything that is wrong is told at once.
        outcome = self.apply(
            workspace=found,
            wanted=declared.wanted,
            prune=declared.prefix if prune else None,
            dry_run=dry_run or bool(declared.faults),
        )
        outcome.faults = sorted([*declared.faults, *outcome.faults], key=lambda fault: fault.line)
        if as_json:
            self.print_json(_object(workspace, dry_run, outcome))
        self._tell(file, declared, outcome, dry_run=dry_run, quiet=as_json)

    def _tell(self, file: str, declared: Declaration, outcome: Outcome, *, dry_run: bool, quiet: bool) -> None:
        for fault in outcome.faults:
            self.say(report.sentence(file, fault))
        if outcome.faults:
            raise CommandError(f"{file} has {len(outcome.faults)} faults; nothing was changed.", returncode=1)
        if quiet:
            return
        for step in outcome.steps:
            if step.kind != Kind.LEAVE:
                self.stdout.write("\n".join(report.lines_of(step)))
        counted = ", ".join(f"{number} {kind}" for kind, number in report.counts(outcome.steps).items() if number)
        self.stdout.write(f"{'dry run: ' if dry_run else ''}{counted or 'nothing is declared'}")


def _object(workspace: str, dry_run: bool, outcome: Outcome) -> dict[str, Any]:
    return {
        "workspace": workspace,
        "dry_run": dry_run,
        "applied": outcome.applied,
        "counts": report.counts(outcome.steps) if not outcome.faults else {},
        "schedules": [report.step_object(step) for step in outcome.steps] if not outcome.faults else [],
        "errors": [report.fault_object(fault) for fault in outcome.faults],
    }
