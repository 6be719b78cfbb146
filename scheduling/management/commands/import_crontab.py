"""`manage.py import_crontab`: the curl calls of a crontab become schedules."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from chronos_site.tenancy.models import Workspace
from scheduling.domain import cron
from scheduling.domain.errors import ScheduleError
from scheduling.files import crontab, importing, report
from scheduling.files.apply import Outcome
from scheduling.files.command import EXIT_CODES, STDIN, FileCommand
from scheduling.files.compare import Kind, Step, living_keys
from scheduling.files.crontab import Fault
from scheduling.files.importing import Imported

LONGEST_PREFIX = 80
MOST_TOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    file: str
    prefix: str
    dry_run: bool
    skip: bool
    as_json: bool


class Command(FileCommand):
    help = (
        "Imports the lines of a user's crontab that call curl, or that carry a target in a `# chronos:` comment above "
        "them. Importing the same file again changes nothing. With a line that cannot be read nothing is imported, "
        f"unless --skip-unreadable says so, and then they do not make the exit code 1. {EXIT_CODES}"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a crontab as `crontab -l` prints it; - for stdin")
        self.add_workspace(parser)
        parser.add_argument(
            "--timezone",
            metavar="ZONE",
            help="the zone that cron ran in, like Europe/Berlin; a CRON_TZ line comes before it, a TZ line after it; "
            "UTC where nothing says",
        )
        parser.add_argument(
            "--prefix",
            metavar="PREFIX",
            help="how the schedules' keys begin; crontab:FILE'S NAME if missing. Give one where several machines' "
            "files have the same name",
        )
        parser.add_argument(
            "--skip-unreadable", action="store_true", help="import the other lines where some cannot be read"
        )
        parser.add_argument("--dry-run", action="store_true", help="show what would be made, and make nothing")
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")

    def handle(self, *, file: str, workspace: str, timezone: str | None, **options: Any) -> None:
        found = self.find_workspace(workspace)
        if timezone is not None:
            try:
                cron.check_zone(timezone)
            except ScheduleError as error:
                raise CommandError(str(error), returncode=2) from error
        asked = _Asked(
            file=file,
            prefix=_prefix(options["prefix"], file),
            dry_run=options["dry_run"],
            skip=options["skip_unreadable"],
            as_json=options["as_json"],
        )
        entries = crontab.parse(self.read_file(file, most=crontab.MOST_BYTES), timezone=timezone)
        if len(entries.entries) > crontab.MOST_ENTRIES:
            raise CommandError(f"{file} has more than {crontab.MOST_ENTRIES:,} entries; split it.", returncode=2)
        imported = importing.read_entries(entries, prefix=asked.prefix, say=self.say)
        outcome = self._import(found, imported, asked)
        self._tell(found, imported, outcome, asked)

    def _import(self, workspace: Workspace, imported: Imported, asked: _Asked) -> Outcome:
        """Look first: what only the workspace can tell (a job definition that is not there) is unreadable as well."""
        looked = self.apply(workspace=workspace, wanted=imported.wanted, remake=False, dry_run=True)
        wrong = {fault.key for fault in looked.faults}
        faults = sorted([*imported.faults, *looked.faults], key=lambda fault: fault.line)
        if asked.dry_run or (faults and not asked.skip):
            steps = [step for step in looked.steps if step.key not in wrong]
            return Outcome(steps, faults)
        wanted = [item for item in imported.wanted if item.key not in wrong]
        outcome = self.apply(workspace=workspace, wanted=wanted, remake=False)
        outcome.faults = sorted([*faults, *outcome.faults], key=lambda fault: fault.line)
        return outcome

    def _tell(self, workspace: Workspace, imported: Imported, outcome: Outcome, asked: _Asked) -> None:
        in_file = {step.key for step in outcome.steps} | {fault.key for fault in outcome.faults}
        gone = sorted(living_keys(workspace, f"{asked.prefix}:") - in_file)
        hints = list(_hints(imported, gone))
        if asked.as_json:
            self.print_json(_object(workspace, imported, outcome, asked, gone))
        else:
            for line in _lines(asked.file, imported, outcome):
                self.stdout.write(line)
        for hint in hints:
            self.say(f"note: {hint}")
        unread = len({fault.line for fault in outcome.faults})
        if not asked.as_json:
            self.stdout.write(_summary(outcome, unread, asked))
        if outcome.faults and not (asked.skip and (outcome.applied or asked.dry_run)):
            what = "nothing was imported. Mend them, or leave them out with --skip-unreadable"
            raise CommandError(f"{unread} lines of {asked.file} cannot be read; {what}.", returncode=1)


def _prefix(given: str | None, file: str) -> str:
    if given is None:
        name = "stdin" if file == STDIN else re.sub(r"[^A-Za-z0-9._-]", "_", Path(file).name)[:60]
        return f"crontab:{name}"
    if not re.fullmatch(rf"[A-Za-z0-9_.:/=-]{{1,{LONGEST_PREFIX}}}", given):
        raise CommandError(f"--prefix is 1 to {LONGEST_PREFIX} of A-Z a-z 0-9 _ . : / = -", returncode=2)
    return given.removesuffix(":")


def _lines(file: str, imported: Imported, outcome: Outcome) -> list[str]:
    """One for each line of the file that fires or should, its notes below it."""
    found: list[tuple[int, int, str]] = []
    for step in outcome.steps:
        first, *rest = report.lines_of(step)
        found.append((step.line, 0, "\n".join([f"{file}:{step.line}: {_outcome(step, outcome)}: {first[2:]}", *rest])))
    found += [
        (fault.line, 1, f"{report.sentence(file, _without_key(fault))} (cannot be read)") for fault in outcome.faults
    ]
    found += [(note.line, 2, f"{file}:{note.line}:     note: {report.printable(note.text)}") for note in imported.notes]
    return [text for _, _, text in sorted(found)]


def _without_key(fault: Fault) -> Fault:
    return Fault(fault.line, fault.text)


def _outcome(step: Step, outcome: Outcome) -> str:
    if step.kind == Kind.ENDED:
        return "left"
    if outcome.applied or step.kind == Kind.LEAVE:
        return step.kind.value
    return {Kind.MAKE: "would be made", Kind.CHANGE: "would be changed"}[step.kind]


def _summary(outcome: Outcome, unread: int, asked: _Asked) -> str:
    counted = [f"{number} {kind}" for kind, number in report.counts(outcome.steps).items() if number]
    counted += [f"{unread} cannot be read"] if unread else []
    begin = "" if outcome.applied else "dry run: " if asked.dry_run else "nothing was imported: "
    return f"{begin}{', '.join(counted) or 'no line fires'}"


def _hints(imported: Imported, gone: list[str]) -> list[str]:
    hints = []
    if imported.without_zone:
        hints.append(
            f"{imported.without_zone} lines are read in UTC, for nothing names a zone; cron goes by the machine's own. "
            "Name it with --timezone."
        )
    if imported.without_limit:
        hints.append(f"{imported.without_limit} calls have no --max-time; Chronos waits 30 s for an answer.")
    if gone:
        more = f" and {len(gone) - MOST_TOLD} more" if len(gone) > MOST_TOLD else ""
        hints.append(
            f"{len(gone)} schedules of earlier imports are not in the file and go on firing; cancel them if they are "
            f"not wanted: {', '.join(gone[:MOST_TOLD])}{more}"
        )
    return hints


def _object(
    workspace: Workspace, imported: Imported, outcome: Outcome, asked: _Asked, gone: list[str]
) -> dict[str, Any]:
    lines = [report.step_object(step) for step in outcome.steps]
    lines += [{**report.fault_object(fault), "outcome": "unreadable"} for fault in outcome.faults]
    return {
        "workspace": workspace.name,
        "dry_run": asked.dry_run,
        "applied": outcome.applied,
        "counts": {**report.counts(outcome.steps), "unreadable": len({fault.line for fault in outcome.faults})},
        "lines": sorted(lines, key=lambda line: line["line"]),
        "notes": [{"line": note.line, "text": note.text} for note in imported.notes],
        "read_in_utc": imported.without_zone,
        "without_max_time": imported.without_limit,
        "no_longer_in_file": gone,
    }
