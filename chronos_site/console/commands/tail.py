"""What ends, as it ends: one line for each execution. Goes on until Ctrl-C; --no-follow ends after the last lines."""

import argparse
import time
from collections import deque
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from chronos_site.console.commands.runs import STATE_STYLE, jobs_of
from chronos_site.console.commands.terminal import (
    DONE,
    Terminal,
    add_workspace,
    cell,
    clock,
    duration,
    milliseconds,
    positive,
    workspace_of,
)
from chronos_site.console.selectors.ended import Ended, ended_since
from execution.domain.states import TERMINAL

NAME = "tail"
SUMMARY = "what ends, line by line, live"

OVERLAP_S = 10
"""A result is written a little after the end that it tells: rows may appear behind those that were shown."""
MOST = 20_000
REMEMBERED = 3 * MOST


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="name or id; needs one workspace")
    states = sorted(state.value for state in TERMINAL)
    parser.add_argument("--state", action="append", default=[], choices=states, metavar="STATE", help=", ".join(states))
    parser.add_argument("--since", type=duration, default=60, metavar="1m", help="begin so far back (default: 1m)")
    parser.add_argument("--lines", type=positive, default=20, metavar="N", help="of them, the last (default: 20)")
    parser.add_argument("--every", type=duration, default=1, metavar="1s", help="looked so often (default: 1s)")
    follow = parser.add_argument("--follow", action=argparse.BooleanOptionalAction, default=True)
    follow.help = "go on until Ctrl-C (the default)"


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    workspace = workspace_of(options["workspace"]) if options["workspace"] or options["job"] else None
    job_ids = jobs_of(workspace, options["job"]) if workspace else []
    where: dict[str, Any] = {
        "workspace_ids": None if workspace is None else [workspace.id],
        "job_ids": job_ids,
        "states": options["state"],
    }
    seen: deque[UUID] = deque(maxlen=REMEMBERED)
    since_s, most = options["since"], options["lines"]
    while True:
        found = ended_since(since_s=since_s, newest=True, most=most, **where)
        if most == MOST == len(found):
            terminal.note(f"More than {MOST:,} ended meanwhile; the oldest are left out. Narrow it: --job, --state.")
        known = set(seen)
        for row in found:
            if row.id not in known:
                seen.append(row.id)
                _show(terminal, row)
        if not options["follow"]:
            return DONE
        time.sleep(options["every"])
        since_s, most = options["every"] + OVERLAP_S, MOST


def _show(terminal: Terminal, row: Ended) -> None:
    if terminal.as_json:
        terminal.line_json(row)
        return
    line = cell(f"{clock(row.finished_at)} ")
    line.append_text(cell(f"{row.state:<9}", STATE_STYLE.get(row.state, "dim")))
    job = row.job or "(inline)"
    line.append_text(cell(f" {row.workspace}/{job} attempt {row.attempt}, {milliseconds(row.last_duration_ms)}"))
    told = " ".join(filter(None, (str(row.last_status or ""), row.last_error, row.state_reason)))
    line.append_text(cell(f"  {told}  {row.id}", "dim"))
    terminal.out.print(line, soft_wrap=True)
