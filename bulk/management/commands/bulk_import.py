"""Upload a CSV file as a bulk job, or show what its first rows would send."""

import json
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bulk import progress, services
from bulk.domain.states import JOB_ENDED, JobState
from bulk.models import BulkJob
from chronos_site.infra.storage import StorageError
from chronos_site.tenancy.models import Workspace
from execution.domain.credentials import shown
from execution.domain.targets import described
from execution.models import JobDefinition
from execution.selectors import find_job_definition
from execution.services import Refused

POLL_S = 0.5


class Command(BaseCommand):
    help = (
        "Deliver a job definition once for each row of a CSV file. Its URL, headers and payload may hold {{column}}."
        " Exit code 0: accepted (with --follow: COMPLETED); 1: refused, or it ended otherwise."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="CSV in UTF-8; its first line names the columns")
        parser.add_argument("--job", required=True, metavar="NAME", help="name or id of the job definition")
        parser.add_argument("--workspace", metavar="NAME", help="needed where there are several")
        parser.add_argument("--delimiter", default=",", type=_delimiter, help="one character, or tab (default: comma)")
        parser.add_argument(
            "--max-invalid-share",
            type=_share,
            default=0.1,
            metavar="0..1",
            help="nothing is sent where more of the rows are not valid (default: 0.1)",
        )
        parser.add_argument("--hold", action="store_true", help="read the rows, and wait for a start")
        parser.add_argument("--dry-run", action="store_true", help="show what the first rows would send; send nothing")
        parser.add_argument("--follow", action="store_true", help="show the progress until the job has ended")
        parser.add_argument("--json", action="store_true", help="print one JSON object for scripts")

    def handle(self, *args: Any, **options: Any) -> None:
        self._as_json = options["json"]
        self._console = Console(file=sys.stderr)
        workspace = _workspace(options["workspace"])
        job = find_job_definition(workspace=workspace, id_or_name=options["job"])
        if job is None:
            raise CommandError(f"There is no job definition {options['job']!r} in the workspace {workspace.name}.")
        try:
            if options["dry_run"]:
                self._dry_run(options, job)
            else:
                self._import(options, workspace, job)
        except OSError as error:
            raise CommandError(f"{options['file']} cannot be read: {error.strerror or error}.") from error
        except (Refused, StorageError) as error:
            raise CommandError(f"{options['file']}: {error}") from error

    def _dry_run(self, options: dict[str, Any], job: JobDefinition) -> None:
        with options["file"].open("rb") as stream:
            look = services.look_at(stream, job=job, delimiter=options["delimiter"], rows=services.SHOWN_ROWS)
        if self._as_json:
            rows = [
                {"row": r.number, "target": r.target and shown(r.target), "payload": r.payload, "error": r.error}
                for r in look.rows
            ]
            self.stdout.write(json.dumps({"columns": look.columns, "rows": rows}))
            return
        self.stdout.write(f"columns: {', '.join(look.columns)}")
        for row in look.rows:
            if row.target is None:
                self.stdout.write(f"row {row.number} (line {row.line}) would not be sent: {row.error}")
                continue
            self.stdout.write(f"row {row.number}: {described(row.target)}")
            if row.payload is not None:
                self.stdout.write(f"  {json.dumps(row.payload, ensure_ascii=False)[:500]}")
        self.stdout.write("Nothing was kept, nothing was sent.")

    def _import(self, options: dict[str, Any], workspace: Workspace, job: JobDefinition) -> None:
        path: Path = options["file"]
        with path.open("rb") as stream:
            # What can be said without storing the file is said first.
            services.look_at(stream, job=job, delimiter=options["delimiter"])
        with services.received(workspace, self._pieces(path)) as (job_id, size):
            made = services.create_bulk_job(
                workspace=workspace,
                job_id=job_id,
                job=job,
                file_name=path.name[:255],
                size_bytes=size,
                delimiter=options["delimiter"],
                max_invalid_share=options["max_invalid_share"],
                start=not options["hold"],
                traceparent="",
            )
        if not self._as_json:
            self.stdout.write(f"bulk job {made.id}")
        if options["follow"]:
            made = self._follow(made.id)
        if self._as_json:
            self.stdout.write(json.dumps(progress.shown(made)))
        elif options["follow"]:
            self.stdout.write(_summary(made))
        if made.state in JOB_ENDED and made.state != JobState.COMPLETED:
            raise SystemExit(1)

    def _pieces(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as stream, self._bar("upload", path.stat().st_size, quiet=self._as_json) as (bar, task):
            while piece := stream.read(services.PIECE):
                bar.advance(task, len(piece))
                yield piece

    def _follow(self, job_id: UUID) -> BulkJob:
        job = BulkJob.objects.get(id=job_id)
        with self._bar("waits", None, quiet=self._as_json) as (bar, task):
            while job.state not in JOB_ENDED and job.state != JobState.PAUSED:
                told = progress.shown(job)
                if told["total_known"]:
                    ended = told["total"] - told["left"]
                    bar.update(task, description="delivers", total=told["total"], completed=ended)
                else:
                    bar.update(task, description="reads", total=100, completed=round(told["read_share"] * 100))
                time.sleep(POLL_S)
                job.refresh_from_db()
        return job

    def _bar(self, what: str, total: int | None, *, quiet: bool) -> "_Bar":
        return _Bar(self._console, what, total, quiet=quiet)


class _Bar:
    """A progress bar on standard error; none for scripts."""

    def __init__(self, console: Console, what: str, total: int | None, *, quiet: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, disable=quiet)
        self._what, self._total = what, total

    def __enter__(self) -> tuple[Progress, Any]:
        self._progress.start()
        return self._progress, self._progress.add_task(self._what, total=self._total)

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()


def _summary(job: BulkJob) -> str:
    counts = (
        f"{job.succeeded:,} delivered, {job.failed:,} failed, {job.invalid:,} not valid, {job.cancelled:,} cancelled"
    )
    why = f" {job.error_text}" if job.error_text else ""
    return f"{job.state}: {job.total:,} rows, {counts}.{why}"


def _workspace(name: str | None) -> Workspace:
    found = list(Workspace.objects.filter(name=name) if name else Workspace.objects.all()[:2])
    if len(found) == 1:
        return found[0]
    if name:
        raise CommandError(f"There is no workspace {name!r}.")
    raise CommandError("Name a workspace with --workspace." if found else "There is no workspace yet.")


def _delimiter(text: str) -> str:
    text = "\t" if text in ("tab", "\\t") else text
    if len(text) != 1 or not text.isascii() or text in '"\r\n\0':
        raise ArgumentTypeError("the delimiter is one ASCII character, and no quote or line end; write a tab as tab")
    return text


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ArgumentTypeError("give a number from 0 to 1")
    return share
