"""`python -m tests.bench`: figures of the hot paths, with what was wanted beside them. Nothing fails here: look."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
import psutil
from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figure
from tests.bench.ground import Ground, bench_ground

console = Console(width=140, highlight=False)

PARTS = ("peers", "delivery", "lateness", "memory", "claims", "api", "materialise", "bulk")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--json", metavar="FILE", default="build/bench.json", help="where the figures go (%(default)s)")
    parser.add_argument("--only", metavar="PART,PART", default=",".join(PARTS), help="of %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="medians of so many runs (%(default)s)")
    parser.add_argument("--pending", type=int, default=1_000_000, help="pending rows beside the claims (%(default)s)")
    parser.add_argument("--bulk-2gb", action="store_true", help="let `bulk` read a file of 2 GB as well (ten minutes)")
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only: no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    figures: list[Figure] = []
    failed: list[str] = []
    with bench_ground() as ground:
        parts = _parts(ground, runs=arguments.runs, pending=arguments.pending, large=arguments.bulk_2gb)
        for name in arguments.only.split(","):
            begun = time.monotonic()
            try:
                figures += parts[name]()
            except Exception:  # The other parts have figures of their own.
                console.print_exception()
                failed.append(name)
            console.print(f"{name}: {time.monotonic() - begun:.0f} s")
    console.print(_table([*figures, *_ratios(figures)]))
    path = Path(arguments.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_as_json([*figures, *_ratios(figures)]), indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {path}")
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _parts(ground: Ground, *, runs: int, pending: int, large: bool) -> dict[str, Callable[[], list[Figure]]]:
    from tests.bench import api, bulk, claims, delivery, lateness, materialise, memory  # noqa: PLC0415 - they need Django
    from tests.bench.arrivals import SinkProcess  # noqa: PLC0415
    from tests.bench.peers import run  # noqa: PLC0415

    sink = SinkProcess(ground)
    return {
        "peers": lambda: run.measure_peers(ground, sink, runs=runs),
        "delivery": lambda: delivery.measure_deliveries(ground, sink, runs=runs),
        "lateness": lambda: lateness.measure_lateness(ground, sink),
        "memory": lambda: memory.measure_memory(ground, sink),
        "claims": lambda: claims.measure_claims(pending=pending),
        "api": lambda: api.measure_api(ground, runs=runs),
        "materialise": materialise.measure,
        "bulk": lambda: bulk.measure_bulk(ground, sink, runs=runs, large=large),
    }


def _ratios(figures: list[Figure]) -> list[Figure]:
    """Chronos beside what was measured in the same run."""
    rates = {
        figure.key.removeprefix("deliveries_per_s."): figure.value
        for figure in figures
        if figure.key.startswith("deliveries_per_s.")
    }
    ours = {name: rates.pop(name, 0.0) for name in ("chronos", "chronos_1")}["chronos"]
    celery = [rates.pop(name) for name in ("celery_prefork", "celery_threads") if name in rates]
    raw = rates.pop("raw_client", 0.0)
    if not (ours and celery and rates and raw):
        return []
    best = max(rates, key=lambda name: rates[name])
    sink = next((figure.value for figure in figures if figure.key == "sink_per_s"), 0.0)
    return [
        Figure(
            "the sink to the fastest beside it", sink / max(ours, raw, *rates.values()), "", least=3, key="ratio.sink"
        ),
        Figure("Chronos to plain Celery", ours / max(celery), "", least=10, key="ratio.celery"),
        Figure(f"Chronos to the best peer ({best})", ours / rates[best], "", least=3, key="ratio.peer"),
        Figure("Chronos to the raw client", ours / raw, "", least=0.4, key="ratio.raw_client"),
    ]


def _table(figures: list[Figure]) -> Table:
    table = Table(title="Benchmarks")
    for name in ("what", "measured", "wanted", ""):
        table.add_column(name, justify="right" if name == "measured" else "left", no_wrap=True)
    for figure in figures:
        verdict = "" if not figure.wanted else "held" if figure.held else "[red]missed[/red]"
        table.add_row(figure.what, f"{figure.value:,.2f} {figure.unit}", figure.wanted, verdict)
    return table


def _as_json(figures: list[Figure]) -> dict[str, Any]:
    memory_gib = psutil.virtual_memory().total / 2**30
    found: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cpus": os.cpu_count(), "memory_gib": round(memory_gib, 1), "system": platform.platform()},
        "versions": {"python": platform.python_version(), "django": django.get_version()},
    }
    for figure in figures:
        if figure.key:
            group, _, name = figure.key.rpartition(".")
            (found.setdefault(group, {}) if group else found)[name] = round(figure.value, 4)
    return found


if __name__ == "__main__":
    sys.exit(main())
