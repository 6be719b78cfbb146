"""The results of a run for people: a table on the terminal, and the same in docs/reliability.md."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from tests.chaos.runner import Outcome

BEGIN, END = "<!-- results: written by python -m tests.chaos --report -->", "<!-- end of results -->"
COLUMNS = ("scheduled", "received", "lost", "doubled", "worst delay", "recovery")


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


def write_report(path: Path, runs: Sequence[tuple[int, Outcome]], *, command: str, mutants: str) -> None:
    """Put the figures between the two marks of the file. Raises ValueError where it has none."""
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} has no place for results: it needs the lines {BEGIN} and {END}")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{_markdown(runs, command, mutants)}\n{END}{after}", encoding="utf-8")


def _markdown(runs: Sequence[tuple[int, Outcome]], command: str, mutants: str) -> str:
    seeds = list(dict.fromkeys(seed for seed, _ in runs))
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, seeds {', '.join(map(str, seeds))}: `{command}`. {mutants}",
        "",
        "| scenario | what happens | runs | scheduled | lost | doubled (in flight) | worst delay | recovery | end |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    by_name: dict[str, list[Outcome]] = defaultdict(list)
    for _, outcome in runs:
        by_name[outcome.scenario.name].append(outcome)
    lines += [_line(found) for found in by_name.values()]
    notes = [f"- {name}: {note}" for name, found in by_name.items() for note in _bounds(found)]
    return "\n".join([*lines, "", *notes, ""])


def _line(found: list[Outcome]) -> str:
    verdicts = [outcome.verdict for outcome in found]
    broken = sum(bool(verdict.faults) for verdict in verdicts)
    return (
        f"| {found[0].scenario.name} | {found[0].scenario.text} | {len(found)} | {sum(v.scheduled for v in verdicts)} "
        f"| {sum(v.lost for v in verdicts)} | {sum(v.doubled for v in verdicts)} ({sum(v.in_flight for v in verdicts)})"
        f" | {max(v.worst_delay_s for v in verdicts):.1f} s | {max(v.recovery_s for v in verdicts):.1f} s "
        f"| {'kept' if not broken else f'{broken} of {len(found)} broken'} |"
    )


def _bounds(found: list[Outcome]) -> list[str]:
    """The scenarios' own figures with their bounds, over all seeds."""
    notes = [note.removeprefix("FAULT ") for outcome in found for note in outcome.notes if "at most" in note]
    return [", ".join(notes)] if notes else []
