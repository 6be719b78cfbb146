"""How everything stands: what is wrong first, then leaders, queues, workers, what waits, what is switched off, which
destinations are left alone, bulk jobs under way. Exit code 1 where something is wrong; warnings alone are 0."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from chronos_site.console.checks import work as checks
from chronos_site.console.checks.finding import Finding, worst
from chronos_site.console.commands.switch import off_table
from chronos_site.console.commands.terminal import (
    DONE,
    LEVEL_STYLE,
    WRONG,
    Terminal,
    add_workspace,
    cell,
    clock,
    count,
    scope_of,
    seconds,
    since,
    table,
)
from chronos_site.console.selectors import state
from chronos_site.console.selectors.state import MOST, Snapshot

NAME = "status"
SUMMARY = "how everything stands, on one page"

WORKER_STYLE = {"stale": "bold red", "draining": "yellow", "busy": "green"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_workspace(parser)


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    name = options["workspace"]
    snapshot = state.read_snapshot(workspace_ids=scope_of(name) if name else None)
    found = [finding for finding in checks.judge(snapshot) if finding.level != "ok"]
    if terminal.as_json:
        terminal.json({"level": worst(found), "findings": found, "snapshot": snapshot})
    else:
        _show(terminal, snapshot, found)
    return WRONG if worst(found) == "fail" else DONE


def _show(terminal: Terminal, snapshot: Snapshot, found: list[Finding]) -> None:
    show_findings(terminal, found)
    if not found:
        terminal.say("Nothing is wrong.", style="green")
    now = snapshot.at or datetime.now(UTC)
    for part in (_work, _leaders, _queues, _workers, _breakers, _bulk_jobs):
        shown = part(snapshot, now)
        if shown is not None:
            terminal.out.print(shown)
    if snapshot.switches:
        terminal.out.print(off_table(snapshot.switches))


def show_findings(terminal: Terminal, found: list[Finding]) -> None:
    """Each with its remedy; also what `chronos doctor` prints."""
    for finding in found:
        line = cell(f"{finding.level:<5}", LEVEL_STYLE[finding.level])
        line.append_text(cell(f"{finding.check}: {finding.text}"))
        terminal.out.print(line, soft_wrap=True)
        if finding.remedy and finding.level != "ok":
            terminal.out.print(cell(f"      → {finding.remedy}", "dim"), soft_wrap=True)


def _work(snapshot: Snapshot, now: datetime) -> Any:
    work = snapshot.work
    if work is None:
        return None
    late = "nothing is overdue" if work.oldest_due_at is None else f"{since(work.oldest_due_at, now)} late"
    return table(
        "Work",
        [
            ">delivered, last minute",
            ">failed",
            ">overdue",
            "oldest",
            ">queued",
            ">running",
            ">retrying",
            ">dead letters",
        ],
        [
            (
                count(work.delivered_last_minute, MOST),
                count(work.failed_last_minute, MOST),
                count(work.overdue, MOST),
                late,
                count(work.queued, MOST),
                count(work.running, MOST),
                count(work.retrying, MOST),
                count(work.dead_letters, MOST),
            )
        ],
    )


def _leaders(snapshot: Snapshot, _now: datetime) -> Any:
    if snapshot.leaders is None:
        return None
    return table(
        "Leaders",
        ["loop", "lock", ">runs out in", ">elections"],
        [
            (
                leader.loop,
                cell("held", "green") if leader.held else cell("FREE", "bold red"),
                seconds(leader.ends_in_s),
                count(leader.epoch),
            )
            for leader in snapshot.leaders
        ],
    )


def _queues(snapshot: Snapshot, _now: datetime) -> Any:
    if snapshot.queues is None:
        return None
    rows = [(row.queue, count(row.messages)) for row in snapshot.queues]
    return table("Queues", ["queue", ">messages"], [*rows, ("(taken, not done)", count(snapshot.unacked))])


def _workers(snapshot: Snapshot, now: datetime) -> Any:
    if not snapshot.workers:
        return None
    return table(
        "Workers that deliver",
        ["worker", "queue", "state", ">in flight", ">per second", ">heartbeat", ">up"],
        [
            (
                row.name,
                row.queue,
                cell(row.state, WORKER_STYLE.get(row.state, "")),
                count(row.in_flight),
                f"{row.rate_per_s:,.1f}",
                f"{seconds(row.heartbeat_age_s)} ago",
                since(row.started_at, now),
            )
            for row in snapshot.workers
        ],
    )


def _breakers(snapshot: Snapshot, _now: datetime) -> Any:
    if not snapshot.breakers:
        return None
    return table(
        "Destinations in trouble",
        ["destination", "breaker", ">failures", "half-open at", "probe"],
        [
            (
                row.origin,
                cell(row.state, "bold red" if row.state == "open" else "yellow"),
                count(row.failures),
                clock(row.half_open_at) if row.state == "open" else "",
                "under way" if row.probing else "",
            )
            for row in snapshot.breakers
        ],
    )


def _bulk_jobs(snapshot: Snapshot, _now: datetime) -> Any:
    if not snapshot.bulk_jobs:
        return None
    return table(
        "Bulk jobs",
        ["id", "workspace", "file", "state", ">ended", ">of", ">failed", ">per second"],
        [
            (
                row.id,
                row.workspace,
                row.file,
                row.state,
                count(row.ended),
                count(row.total),
                count(row.failed),
                f"{row.rate_per_s:,.0f}",
            )
            for row in snapshot.bulk_jobs
        ],
    )
