"""`python -m tests.bench`: figures of the hot paths, with what was wanted beside them. Nothing fails here: look."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figure
from tests.bench.ground import bench_ground

console = Console(width=140, highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    with bench_ground():
        from tests.bench import materialise  # noqa: PLC0415 - it needs Django, which needs the servers

        figures = materialise.measure()
    console.print(_table(figures))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([asdict(f) for f in figures], indent=2) + "\n", encoding="utf-8")
    return 0


def _table(figures: list[Figure]) -> Table:
    table = Table(title="Benchmarks")
    for name in ("what", "measured", "wanted", ""):
        table.add_column(name, justify="right" if name == "measured" else "left", no_wrap=True)
    for figure in figures:
        verdict = "" if not figure.wanted else "held" if figure.held else "[red]missed[/red]"
        table.add_row(figure.what, f"{figure.value:,.2f} {figure.unit}", figure.wanted, verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
