"""Run again what failed. With an id: that execution, now. Without one: all open dead letters that the filter finds, or
with --executions all executions that have ended and match, as an operation of the server at 100 a second. Look first
with --dry-run, then pass the count with --expect. Ctrl-C leaves the operation running; --abort ends it."""

import argparse
import time
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from chronos_site.api.models import Operation
from chronos_site.api.operations import services
from chronos_site.api.operations.serializers import HIGHEST_RATE_PER_S, OperationSerializer
from chronos_site.console.commands.runs import execution_of, jobs_of
from chronos_site.console.commands.terminal import (
    DONE,
    WRONG,
    AskedWrongly,
    Terminal,
    add_workspace,
    identifier,
    is_interactive,
    moment,
    positive,
    workspace_of,
)
from chronos_site.tenancy.models import Workspace
from execution import dead_letters
from execution.api.serializers import ExecutionSerializer
from execution.domain.states import TERMINAL
from execution.models import DeadLetter
from execution.operations import REPLAY_DEAD_LETTERS, REPLAY_EXECUTIONS
from execution.quotas import QuotaExceeded
from execution.services import Refused

NAME = "replay"
SUMMARY = "run again what failed: one, or all that a filter finds"

POLL_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", type=identifier, metavar="ID", help="of one execution or dead letter")
    parser.add_argument("--again", action="store_true", help="with an ID whose dead letter was replayed or discarded")
    add_workspace(parser, needed=True)
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="name or id; may be repeated")
    parser.add_argument("--since", type=moment, metavar="2h", help="died (--executions: were scheduled) since then")
    parser.add_argument("--until", type=moment, metavar="15m", help="and before then")
    parser.add_argument("--reason", action="append", default=[], choices=DeadLetter.Reason.values, metavar="REASON")
    parser.add_argument("--executions", action="store_true", help="not open dead letters, but executions that ended")
    states = sorted(state.value for state in TERMINAL)
    parser.add_argument(
        "--state", action="append", default=[], choices=states, metavar="STATE", help="--executions only"
    )
    parser.add_argument("--schedule", action="append", default=[], type=identifier, metavar="ID")
    parser.add_argument("--tag", action="append", default=[], help="--executions only, as --schedule")
    parser.add_argument("--dry-run", action="store_true", help="only count what the filter finds")
    parser.add_argument("--expect", type=int, metavar="N", help="start only where the filter finds exactly so many")
    parser.add_argument("--rate", type=positive, metavar="N", help="a second (default: 100)")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    follow = parser.add_argument("--follow", action=argparse.BooleanOptionalAction, default=True)
    follow.help = "wait for its end (the default)"
    parser.add_argument(
        "--abort", type=identifier, metavar="OPERATION", help="end an operation; what is done stays done"
    )


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    if options["abort"]:
        return _abort(terminal, options)
    if options["id"]:
        return _one(terminal, options)
    workspace = workspace_of(options["workspace"])
    kind, filter_ = _filter(workspace, options)
    count = services.start_operation(workspace_id=workspace.id, kind=kind, filter=filter_, dry_run=True).count
    if options["dry_run"]:
        if terminal.as_json:
            terminal.json({"kind": kind, "filter": filter_, "count": count})
        else:
            terminal.say(f"The filter finds {count:,}. Nothing was changed. To go on: the same with --expect {count}")
        return DONE
    if not _agreed(terminal, options, workspace, filter_, count):
        return WRONG
    try:
        operation = services.start_operation(
            workspace_id=workspace.id,
            kind=kind,
            filter=filter_,
            expect_count=count if options["expect"] is None else options["expect"],
            rate_per_s=min(options["rate"], HIGHEST_RATE_PER_S) if options["rate"] else None,
        ).operation
    except (services.CountMismatch, services.TooManyOpen) as error:
        raise AskedWrongly(str(error)) from error
    assert operation is not None  # noqa: S101 - only a dry run makes none
    return _follow(terminal, operation, follow=options["follow"])


def _filter(workspace: Workspace, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The kind of operation, and the filter as the API freezes it."""
    among = options["executions"]
    names = ("scheduled_for_from", "scheduled_for_to") if among else ("created_from", "created_to")
    wrong = ("reason",) if among else ("state", "schedule", "tag")
    for name in wrong:
        if options[name]:
            raise AskedWrongly(f"--{name} goes {'without' if among else 'with'} --executions only.")
    found: dict[str, Any] = {"job_definition": [str(job_id) for job_id in jobs_of(workspace, options["job"])]}
    found |= {name: [str(value) for value in options[name]] for name in ("reason", "state", "schedule", "tag")}
    for name, given in zip(names, ("since", "until"), strict=True):
        if options[given] is not None:
            found[name] = options[given].astimezone(UTC).isoformat().replace("+00:00", "Z")
    return REPLAY_EXECUTIONS if among else REPLAY_DEAD_LETTERS, {k: v for k, v in found.items() if v}


def _agreed(
    terminal: Terminal, options: Mapping[str, Any], workspace: Workspace, filter_: Mapping[str, Any], count: int
) -> bool:
    """Whether to go on; asks a person where nothing was said before. Raises AskedWrongly where nobody can be asked."""
    if options["expect"] is not None or options["yes"]:
        return True
    if not is_interactive() or terminal.as_json:
        raise AskedWrongly(f"The filter finds {count:,}. Give that number with --expect, or --yes to take any.")
    what = "all open dead letters" if not filter_ else "what the filter finds"
    terminal.note(f"Replay {what} in the workspace {workspace.name}: {count:,}. Go on? [y/N] ")
    return input().strip().lower() in {"y", "yes"}


def _follow(terminal: Terminal, operation: Operation, *, follow: bool) -> int:
    if not terminal.as_json:
        terminal.note(f"operation {operation.id}, {operation.total:,} to replay")
    if follow:
        try:
            _wait(terminal, operation)
        except KeyboardInterrupt:
            terminal.note(f"It goes on without you. To end it: chronos replay --abort {operation.id}")
            raise
    if terminal.as_json:
        terminal.json(OperationSerializer(operation).data)
    elif follow:
        why = f" {operation.error}" if operation.error else ""
        counts = f"{operation.done:,} replayed, {operation.skipped:,} skipped, {operation.failed:,} failed"
        terminal.say(f"{operation.state}: {counts}.{why}")
    return DONE if operation.state in (*Operation.OPEN, Operation.State.SUCCEEDED) else WRONG


def _wait(terminal: Terminal, operation: Operation) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal.error, disable=terminal.as_json) as bar:
        task = bar.add_task("replays", total=operation.total)
        while True:
            seen = operation.done + operation.skipped + operation.failed
            bar.update(task, completed=seen, description=operation.waiting_for[:60] or "replays")
            if operation.state not in Operation.OPEN:
                return
            time.sleep(POLL_S)
            operation.refresh_from_db()


def _one(terminal: Terminal, options: Mapping[str, Any]) -> int:
    execution = execution_of(options["id"], options["workspace"])
    workspace = execution.workspace
    letter = DeadLetter.objects.filter(id=execution.id).exists() and not options["again"]
    if options["dry_run"]:
        ended = execution.state in TERMINAL
        terminal.say(f"It is {execution.state}" + (" and can be replayed." if ended else ": wait until it has ended."))
        return DONE if ended else WRONG
    try:
        if letter:
            made, new = dead_letters.replay_dead_letter(workspace=workspace, dead_letter_id=execution.id)
        else:
            made, new = dead_letters.replay_execution(workspace=workspace, execution_id=execution.id), True
    except (Refused, QuotaExceeded) as error:
        raise AskedWrongly(
            f"{error} (--again replays whatever became of its dead letter.)" if letter else str(error)
        ) from error
    if terminal.as_json:
        terminal.json({"new": new, "execution": ExecutionSerializer(made).data})
    else:
        terminal.say(f"{'Replayed' if new else 'It was replayed before'}: chronos runs {made.id}")
    return DONE


def _abort(terminal: Terminal, options: Mapping[str, Any]) -> int:
    operation = Operation.objects.filter(id=options["abort"]).first()
    if operation is None:
        raise AskedWrongly(f"There is no operation {options['abort']}.")
    try:
        ended = services.abort_operation(workspace_id=operation.workspace_id, operation_id=operation.id)
    except services.OperationEnded as error:
        raise AskedWrongly(str(error)) from error
    if terminal.as_json:
        terminal.json(OperationSerializer(ended).data)
    else:
        terminal.say(f"Aborted: {ended.done:,} of {ended.total:,} were replayed and stay so.")
    return DONE
