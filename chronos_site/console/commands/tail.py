"""What happens, as it happens: one line for each event of the stream job-events (docs/events.md). Goes on until Ctrl-C;
--no-follow ends after the last lines. Making, queueing and claiming are left out unless --all is given."""

import argparse
import json
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from chronos_site.console.commands.runs import jobs_of
from chronos_site.console.commands.terminal import (
    DONE,
    Terminal,
    add_workspace,
    cell,
    clock,
    duration,
    positive,
    workspace_of,
)
from chronos_site.infra import redis
from chronos_site.observability.events import MEMBER, STREAM
from chronos_site.tenancy.models import Workspace
from execution.models import JobDefinition

NAME = "tail"
SUMMARY = "what happens, line by line, live"

QUIET = {"execution.created", "execution.queued", "execution.claimed"}
MOST_BACK = 20_000
"""Entries that are looked through for the first lines."""
BATCH = 1000
BLOCK_MS = 1000
STYLES = {"failed": "bold red", "succeeded": "green", "completed": "green", "retry_scheduled": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="name or id; needs one workspace")
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        metavar="TYPE",
        help="execution.failed, … or its begin: schedule.",
    )
    parser.add_argument("--state", action="append", default=[], metavar="STATE", help="what it came to: FAILED, …")
    parser.add_argument("--all", action="store_true", help="also what is made, queued and claimed")
    parser.add_argument("--since", type=duration, default=60, metavar="1m", help="begin so far back (default: 1m)")
    parser.add_argument("--lines", type=positive, default=20, metavar="N", help="of them, the last (default: 20)")
    follow = parser.add_argument("--follow", action=argparse.BooleanOptionalAction, default=True)
    follow.help = "go on until Ctrl-C (the default)"


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    """Raises redis' errors where Redis goes away."""
    workspace = workspace_of(options["workspace"]) if options["workspace"] or options["job"] else None
    wanted = _Wanted(
        options,
        workspace_id=None if workspace is None else str(workspace.id),
        job_ids={str(job_id) for job_id in jobs_of(workspace, options["job"])} if workspace else set(),
    )
    names = _Names()
    last, found = _back(options["since"], options["lines"], wanted)
    for event in found:
        _show(terminal, event, names)
    if options["follow"]:
        for event in _follow(last):
            if wanted(event):
                _show(terminal, event, names)
    return DONE


class _Wanted:
    """Whether an event is among those that were asked for."""

    def __init__(self, options: Mapping[str, Any], *, workspace_id: str | None, job_ids: set[str]) -> None:
        self._types, self._states = tuple(options["type"]), set(options["state"])
        self._quiet = set() if options["all"] or self._types or self._states else QUIET
        self._workspace_id, self._job_ids = workspace_id, job_ids

    def __call__(self, event: Mapping[str, Any]) -> bool:
        return (
            event["type"] not in self._quiet
            and (not self._types or event["type"].startswith(self._types))
            and (not self._states or event.get("state") in self._states)
            and (self._workspace_id is None or event.get("workspace") == self._workspace_id)
            and (not self._job_ids or event.get("job_definition") in self._job_ids)
        )


def _back(since_s: float, lines: int, wanted: _Wanted) -> tuple[str, list[dict[str, Any]]]:
    """The entry to go on behind, and the last events before it."""
    client = redis.client()
    seconds, _ = client.time()
    entries: Any = client.xrevrange(STREAM, min=str(max(0, int((seconds - since_s) * 1000))), count=MOST_BACK)
    found: deque[dict[str, Any]] = deque(maxlen=lines)
    for _, fields in reversed(entries):
        event = json.loads(fields[MEMBER])
        if wanted(event):
            found.append(event)
    return entries[0][0] if entries else f"{seconds * 1000}-0", list(found)


def _follow(last: str) -> Iterator[dict[str, Any]]:
    """Whatever comes behind an entry, for ever."""
    while True:
        answer: Any = redis.client().xread({STREAM: last}, count=BATCH, block=BLOCK_MS)
        for entry, fields in _entries(answer):
            last = entry
            yield json.loads(fields[MEMBER])


def _entries(answer: Any) -> list[tuple[str, dict[str, str]]]:
    """Of the one stream that was read: a mapping or a list of pairs, by the version of Redis' protocol."""
    if not answer:
        return []
    found: list[tuple[str, dict[str, str]]] = (
        next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
    )
    return found


class _Names:
    """Names of workspaces and jobs by id, each asked for once."""

    def __init__(self) -> None:
        self._known: dict[tuple[type, str], str] = {}

    def __call__(self, model: type[Workspace] | type[JobDefinition], of: str | None) -> str:
        if of is None:
            return ""
        if (model, of) not in self._known:
            name = model.objects.filter(id=UUID(of)).values_list("name", flat=True).first()
            self._known[model, of] = str(name or of)
        return self._known[model, of]


def _show(terminal: Terminal, event: Mapping[str, Any], names: _Names) -> None:
    if terminal.as_json:
        terminal.line_json(event)
        return
    line = cell(f"{clock(datetime.fromisoformat(event['at']))} ")
    line.append_text(cell(f"{event['type']:<26}", STYLES.get(event["type"].partition(".")[2], "")))
    place = [names(Workspace, event.get("workspace")), names(JobDefinition, event.get("job_definition")) or "-"]
    attempt = f" attempt {event['attempt']}" if event.get("attempt") else ""
    line.append_text(cell(f" {'/'.join(place)}{attempt}"))
    about = next((event[name] for name in ("execution", "operation", "bulk_job", "schedule") if event.get(name)), "")
    told = " ".join(filter(None, (event.get("code"), event.get("reason"), about)))
    line.append_text(cell(f"  {told}", "dim"))
    terminal.out.print(line, soft_wrap=True)
