"""Executions: the newest that a filter finds, or all about one by its id, with its attempts and what to do next."""

import argparse
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pymongo.errors import PyMongoError

from chronos_site.console.commands.terminal import (
    DONE,
    AskedWrongly,
    Terminal,
    add_workspace,
    cell,
    clock,
    identifier,
    milliseconds,
    moment,
    positive,
    table,
    workspace_of,
)
from chronos_site.console.selectors.bounded import bounded_cursor
from chronos_site.tenancy.models import Workspace
from execution import selectors
from execution.api.serializers import AttemptLogSerializer, DeadLetterSerializer, ExecutionSerializer
from execution.domain.credentials import shown
from execution.domain.states import TERMINAL, State
from execution.domain.targets import described
from execution.models import DeadLetter, Execution, JobDefinition
from execution.search import BadText, search_executions

NAME = "runs"
SUMMARY = "executions by filter, or one with its attempts"

LIMIT_S = 15
STATE_STYLE = {"SUCCEEDED": "green", "FAILED": "bold red", "RETRYING": "yellow", "RUNNING": "cyan", "QUEUED": "cyan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", type=identifier, metavar="ID", help="of one execution: show all about it")
    add_workspace(parser, needed=True)
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="name or id; may be repeated")
    parser.add_argument("--schedule", action="append", default=[], type=identifier, metavar="ID")
    parser.add_argument("--state", action="append", default=[], choices=[s.value for s in State], metavar="STATE")
    parser.add_argument("--error", action="append", default=[], metavar="CODE", help="of the last attempt: timeout, …")
    parser.add_argument("--tag", action="append", default=[])
    parser.add_argument("--search", metavar="TEXT", help="as `q` of the API: job, key, or words of what failed")
    parser.add_argument(
        "--since", type=moment, metavar="2h", help="scheduled for then or later: 15m, 2h, 3d, or a time"
    )
    parser.add_argument("--until", type=moment, metavar="15m", help="scheduled for before then")
    parser.add_argument("--limit", type=positive, default=30, metavar="N", help="newest first (default: 30)")


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    if options["id"] is not None:
        return _one(terminal, options["id"], options["workspace"])
    with bounded_cursor(LIMIT_S):
        return _many(terminal, options)


def _many(terminal: Terminal, options: Mapping[str, Any]) -> int:
    workspace = workspace_of(options["workspace"])
    found = selectors.executions(
        workspace=workspace,
        states=options["state"],
        job_ids=jobs_of(workspace, options["job"]),
        schedule_ids=options["schedule"],
        tags=options["tag"],
        scheduled_from=options["since"],
        scheduled_to=options["until"],
    )
    if options["error"]:
        found = found.filter(last_error__in=options["error"])
    if options["search"]:
        try:
            found = search_executions(
                workspace=workspace, among=found, text=options["search"], after=None, limit=options["limit"]
            )
        except BadText as error:
            raise AskedWrongly(f"--search: {error}") from error
    rows = list(found.order_by("-id")[: options["limit"]])
    if terminal.as_json:
        terminal.json({"items": ExecutionSerializer(rows, many=True).data})
        return DONE
    if not rows:
        terminal.say("There is no such execution.")
        return DONE
    names = dict(JobDefinition.objects.filter(id__in={row.job_definition_id for row in rows}).values_list("id", "name"))
    terminal.out.print(
        table(
            "",
            ["scheduled for", "job", "state", ">attempt", ">status", "error", ">takes", "id"],
            [
                (
                    clock(row.scheduled_for),
                    names.get(row.job_definition_id) or described(shown(row.target)),  # type: ignore[arg-type]
                    cell(row.state, STATE_STYLE.get(row.state, "")),
                    row.attempt,
                    row.last_status,
                    row.last_error or row.park_reason,
                    milliseconds(row.last_duration_ms),
                    row.id,
                )
                for row in rows
            ],
        )
    )
    if len(rows) == options["limit"]:
        terminal.note(f"The newest {len(rows)}; there may be more (--limit).")
    return DONE


def jobs_of(workspace: Workspace, names: list[str]) -> list[UUID]:
    """The ids of jobs that are given by name or id. Raises AskedWrongly."""
    found = []
    for name in names:
        job = selectors.find_job_definition(workspace=workspace, id_or_name=name)
        if job is None:
            raise AskedWrongly(f"There is no job definition {name!r} in the workspace {workspace.name}.")
        found.append(job.id)
    return found


# --- one -----------------------------------------------------------------------------------------


def execution_of(execution_id: UUID, workspace: str | None) -> Execution:
    """Raises AskedWrongly."""
    found = Execution.objects.select_related("workspace", "job_definition").filter(id=execution_id)
    if workspace:
        found = found.filter(workspace=workspace_of(workspace))
    execution = found.first()
    if execution is None:
        where = f" in the workspace {workspace}" if workspace else ""
        raise AskedWrongly(f"There is no execution {execution_id}{where}. Ended ones go after their retention.")
    return execution


def _one(terminal: Terminal, execution_id: UUID, workspace: str | None) -> int:
    execution = execution_of(execution_id, workspace)
    letter = DeadLetter.objects.filter(id=execution.id).first()
    logs, missing = _attempts(execution)
    steps = next_steps(execution, letter)
    if terminal.as_json:
        terminal.json(
            {
                "workspace": execution.workspace.name,
                "execution": ExecutionSerializer(execution).data,
                "dead_letter": None if letter is None else DeadLetterSerializer(letter).data,
                "attempts": AttemptLogSerializer(logs, many=True).data,
                "attempts_missing": missing,
                "next_steps": steps,
            }
        )
        return DONE
    job = execution.job_definition.name if execution.job_definition else "(inline)"
    head = cell(f"{execution.id}  ", "bold")
    head.append_text(cell(execution.state, STATE_STYLE.get(execution.state, "")))
    terminal.out.print(head)
    for name, value in (
        ("workspace", execution.workspace.name),
        ("job", job),
        ("target", described(shown(execution.target))),
        ("schedule", execution.schedule_id),
        ("scheduled for", clock(execution.scheduled_for)),
        ("due at", clock(execution.due_at)),
        ("first send", clock(execution.started_at) if execution.started_at else None),
        ("ended", clock(execution.finished_at) if execution.finished_at else None),
        ("attempts", execution.attempt),
        ("why", execution.state_reason),
        ("waits for", execution.park_reason),
        ("last answer", execution.last_status),
        ("last error", " ".join(filter(None, (execution.last_error, execution.last_error_text)))),
        ("dead letter", f"{letter.status}, {letter.reason}" if letter else None),
        ("repeats", execution.replay_of),
        ("tags", ", ".join(execution.tags)),
    ):
        if value not in (None, ""):
            terminal.say(f"  {name:<14} {value}")
    if logs:
        terminal.out.print(_attempts_table(logs))
    if missing:
        terminal.note(missing, style="yellow")
    for step in steps:
        terminal.say(f"→ {step}")
    return DONE


def _attempts(execution: Execution) -> tuple[list[dict[str, Any]], str]:
    """The logs, and why there are none."""
    try:
        logs = selectors.attempt_logs(workspace=execution.workspace, execution_id=execution.id)
    except PyMongoError as error:
        return [], f"The attempts are in MongoDB, which cannot be reached: {str(error)[:200]}"
    if not logs and execution.attempt:
        return [], "No attempt is logged: MONGO_URL is not set, or the logs are older than CHRONOS_LOG_TTL_DAYS."
    return logs, ""


def _attempts_table(logs: list[dict[str, Any]]) -> Any:
    return table(
        "Attempts",
        [">#", "at", ">late", ">takes", ">status", "error", "said", "worker"],
        [
            (
                log["attempt"],
                clock(log["at"]),
                milliseconds(max(0.0, log["lateness_ms"])),
                milliseconds(log["duration_ms"]),
                (log["response"] or {}).get("status"),
                (log["error"] or {}).get("code") or log["reason"],
                ((log["error"] or {}).get("text") or (log["response"] or {}).get("body") or "")[:120].replace(
                    "\n", " "
                ),
                log["worker"],
            )
            for log in logs
        ],
    )


def next_steps(execution: Execution, letter: DeadLetter | None) -> list[str]:
    """What an operator may do about it, as commands where there is one."""
    if letter is not None and letter.status == DeadLetter.Status.REPLAYED:
        return [f"It was replayed: chronos runs {letter.replayed_as}"]
    if execution.state in TERMINAL:
        return [f"Run it once more: chronos replay {execution.id}"] if execution.state != State.SUCCEEDED else []
    match execution.park_reason or execution.state:
        case "dispatch_switch":
            return ["It waits for a dispatch switch: chronos switch list"]
        case "job_paused":
            return ["Its job definition is paused: resume it over the API or in the admin."]
        case "overlap":
            return ["It waits for the end of another of its schedule, which does not allow overlap."]
        case State.RETRYING if execution.state_reason.startswith("flow"):
            return [f"Flow control holds it back ({execution.state_reason}) until its due time; chronos status"]
        case State.RETRYING:
            return [f"It is tried again at {clock(execution.due_at)} UTC."]
    return ["It is on its way. Where it seems stuck: chronos doctor"]
