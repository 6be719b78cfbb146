"""The results of runs for people: a table on the terminal, and one over all seeds in docs/reliability.md."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.chaos.runner import Outcome
from tests.chaos.scenarios import scenario

BEGIN, END = "<!-- results: written by python -m tests.chaos --report -->", "<!-- end of results -->"
COLUMNS = ("scheduled", "received", "lost", "doubled", "worst delay", "recovery")

Run = dict[str, Any]
"""A run as the JSON file holds it: seed, scenario, notes, and the verdict's figures."""


def table_of(outcomes: Sequence[Outcome], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("scenario", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        verdict = outcome.verdict
        table.add_row(
            outcome.scenario.name,
            f"{verdict.scheduled}",
            f"{verdict.received}",
            f"{verdict.lost}",
            f"{verdict.doubled}",
            f"{verdict.worst_delay_s:.1f} s",
            f"{verdict.recovery_s:.1f} s",
            "kept" if not verdict.faults else f"[red]{len(verdict.faults)} faults[/red]",
        )
    return table


def write_report(path: Path, results: Sequence[dict[str, Any]]) -> None:
    """Put the figures of one or more JSON files between the two marks of the page. Raises ValueError without them."""
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} has no place for results: it needs the lines {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{_markdown(results)}\n{END}{after}", encoding="utf-8")


def _markdown(results: Sequence[dict[str, Any]]) -> str:
    runs: list[Run] = [run for result in results for run in result["runs"]]
    by_name: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_name[run["scenario"]].append(run)
    lines = [
        *(f"- {result['at'][:10]}: `{result['command']}`" for result in results),
        "",
        f"{len(runs)} runs, {sum(run['scheduled'] for run in runs):,} deliveries owed, "
        f"{sum(run['lost'] for run in runs)} lost.",
        "",
        "| scenario | what happens | runs | owed | lost | doubled (in flight) | worst delay | recovery | promise |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
        *(_line(name, found) for name, found in by_name.items()),
        "",
    ]
    notes = [f"- {name}: {note}" for name, found in by_name.items() for note in _bounds(found)]
    mutants = [f"- planted fault {name}: {what}" for result in results for name, what in result["mutants"].items()]
    return "\n".join([*lines, *notes, *mutants, ""])


def _line(name: str, found: list[Run]) -> str:
    broken = sum(bool(run["faults"]) for run in found)
    return (
        f"| {name} | {scenario(name).text} | {len(found)} | {sum(r['scheduled'] for r in found)} "
        f"| {sum(r['lost'] for r in found)} | {sum(r['doubled'] for r in found)} ({sum(r['in_flight'] for r in found)})"
        f" | {max(r['worst_delay_s'] for r in found):.1f} s | {max(r['recovery_s'] for r in found):.1f} s "
        f"| {'kept' if not broken else f'{broken} of {len(found)} broken'} |"
    )


def _bounds(found: list[Run]) -> list[str]:
    """The scenarios' own figures with their bounds, over all seeds."""
    notes = [note.removeprefix("FAULT ") for run in found for note in run["notes"] if "at most" in note]
    return ["; ".join(notes)] if notes else []
