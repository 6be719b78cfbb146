"""Who is busiest right now: jobs or workspaces by deliveries, failures or lateness, over the last minute, with the jobs
that failed most in the last hour below. Refreshes by itself until Ctrl-C."""

import argparse
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.live import Live

from chronos_site.console.commands.terminal import (
    DONE,
    Terminal,
    add_workspace,
    cell,
    clock,
    count,
    duration,
    milliseconds,
    positive,
    scope_of,
    seconds,
    table,
)
from chronos_site.console.selectors import busiest
from chronos_site.console.selectors.busiest import Busiest, WorstJob

NAME = "top"
SUMMARY = "the busiest jobs and workspaces, live"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)
    parser.add_argument("--by", choices=("job", "workspace"), default="job", help="what a row is (default: job)")
    parser.add_argument("--sort", choices=busiest.ORDERS, default="delivered", help="most first (default: delivered)")
    parser.add_argument("--window", type=duration, default=60, metavar="1m", help="how far back (default: 1m)")
    parser.add_argument("--limit", type=positive, default=20, metavar="N", help="rows (default: 20)")
    parser.add_argument("--every", type=duration, default=2, metavar="2s", help="refreshed so often (default: 2s)")
    parser.add_argument("--once", action="store_true", help="print it once and end; with --json always so")


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    scope = scope_of(options["workspace"])

    def read() -> tuple[Busiest, list[WorstJob]]:
        found = busiest.busiest(
            by_job=options["by"] == "job",
            window_s=options["window"],
            order=options["sort"],
            workspace_ids=scope,
            most=options["limit"],
        )
        return found, busiest.worst_jobs(workspace_ids=scope)

    if terminal.as_json:
        found, bad = read()
        terminal.json({"window_s": options["window"], "cut": found.cut, "rows": found.rows, "worst_jobs": bad})
    elif options["once"] or not terminal.out.is_terminal:
        terminal.out.print(_page(options, *read()))
    else:
        with Live(_page(options, *read()), console=terminal.out, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(options["every"])
                live.update(_page(options, *read()), refresh=True)
    return DONE


def _page(options: Mapping[str, Any], found: Busiest, bad: list[WorstJob]) -> Group:
    by_job = options["by"] == "job"
    window = seconds(options["window"])
    title = f"Busiest in {window}, by {options['sort']}"
    if found.cut:
        title += f" (of the newest {busiest.MOST_ROWS:,} since {clock(found.since)})"
    columns = [
        "workspace",
        *(["job"] if by_job else []),
        ">delivered",
        ">failed",
        ">late p50",
        ">p99",
        ">takes",
        "error",
    ]
    rows = [
        (
            row.workspace,
            *([row.job or "(inline)"] if by_job else []),
            count(row.delivered),
            cell(count(row.failed), "bold red" if row.failed else "dim"),
            milliseconds(row.late_p50_ms),
            milliseconds(row.late_p99_ms),
            milliseconds(row.duration_p50_ms),
            row.last_error or "",
        )
        for row in found.rows
    ]
    parts: list[Any] = [table(title, columns, rows) if rows else cell(f"Nothing ended in {window}.")]
    if bad:
        parts.append(
            table(
                "Failed for good in the last hour",
                ["workspace", "job", ">failed", ">open", "error", "reason", "last"],
                [
                    (
                        w.workspace,
                        w.job or "(inline)",
                        count(w.failed),
                        count(w.open),
                        w.error,
                        w.reason,
                        clock(w.last_at),
                    )
                    for w in bad
                ],
            )
        )
    return Group(*parts)
