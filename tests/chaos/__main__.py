"""`python -m tests.chaos`: break everything, in turn, and prove from three sources that nothing was lost."""

import argparse
import json
import random
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from rich.console import Console

from tests.chaos.mutants import MUTANTS, SHORT_MUTANTS, Mutant
from tests.chaos.receiver import ChaosReceiver
from tests.chaos.report import table_of, write_report
from tests.chaos.runner import Outcome, Scenario, perform
from tests.chaos.scenarios import SCENARIOS, SHORT, scenario
from tests.chaos.world import World

ROOT = Path(__file__).resolve().parents[2]
console = Console(width=150, highlight=False)


def main() -> int:
    arguments = _arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)  # The world is taken down on the way out.
    if arguments.list:
        for known in SCENARIOS:
            console.print(f"{known.name:<34} {known.text}")
        return 0
    if arguments.results:
        results = [json.loads(Path(name).read_text(encoding="utf-8")) for name in arguments.results]
        write_report(Path(arguments.report), results)
        return 0
    seeds = arguments.seed or [random.SystemRandom().randrange(1_000_000)]
    chosen = _chosen(arguments)
    outcomes: list[tuple[int, Outcome]] = []
    for seed in seeds:
        console.print(f"seed {seed}: {len(chosen)} scenarios (again with: python -m tests.chaos --seed {seed})")
        outcomes += [(seed, outcome) for outcome in run_scenarios(chosen, seed=seed)]
        if len(seeds) > 1:
            console.print(table_of([outcome for s, outcome in outcomes if s == seed], f"seed {seed}"))
    console.print(table_of([outcome for _, outcome in outcomes], f"seeds {', '.join(map(str, seeds))}"))
    planted = _planted(arguments)
    caught = run_mutants(planted, seed=seeds[0])
    escaped = [name for name, what in caught.items() if what is None]
    result = _as_json(outcomes, caught, seeds, only=arguments.only)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if arguments.report:
        write_report(Path(arguments.report), [result])
    faults = sum(bool(outcome.verdict.faults) for _, outcome in outcomes)
    lost = sum(outcome.verdict.lost for _, outcome in outcomes)
    console.print(
        f"chaos: {lost} lost, {faults} of {len(outcomes)} runs with faults, "
        f"{len(escaped)} of {len(planted)} mutants not caught"
    )
    return 1 if faults or escaped else 0


def run_scenarios(chosen: list[Scenario], *, seed: int) -> list[Outcome]:
    """All in one world, which each scenario leaves working."""
    outcomes = []
    with (
        TemporaryDirectory(prefix="chronos-chaos-log-") as folder,
        ChaosReceiver(Path(folder) / "receiver.log") as receiver,
        World(root=ROOT, say=console.print) as world,
    ):
        for number, each in enumerate(chosen, start=1):
            console.print(f"[{number}/{len(chosen)}] {each.name}: {each.text}")
            outcome = perform(each, world=world, receiver=receiver, rng=random.Random(f"{seed}:{each.name}"))
            _tell(outcome)
            outcomes.append(outcome)
    return outcomes


def run_mutants(planted: Sequence[Mutant], *, seed: int) -> dict[str, str | None]:
    """Plant each fault in a copy of the product and run the scenario that must catch it: by what, None for nothing."""
    caught: dict[str, str | None] = {}
    for mutant in planted:
        console.print(f"mutant {mutant.name}: {mutant.text}")
        faults = _run_mutant(mutant, seed).verdict.faults
        caught[mutant.name] = faults[0] if faults else None
        console.print(f"    caught: {faults[0]}" if faults else f"    [red]not caught[/red] by {mutant.scenario}")
    return caught


def _run_mutant(mutant: Mutant, seed: int) -> Outcome:
    with TemporaryDirectory(prefix="chronos-chaos-mutant-") as folder:
        root = mutant.plant(root=ROOT, into=Path(folder) / "checkout")
        with (
            ChaosReceiver(Path(folder) / "receiver.log") as receiver,
            World(root=root, say=console.print, prepare=mutant.prepare) as world,
        ):
            rng = random.Random(f"{seed}:{mutant.name}")
            return perform(scenario(mutant.scenario), world=world, receiver=receiver, rng=rng)


def _tell(outcome: Outcome) -> None:
    verdict = outcome.verdict
    console.print(
        f"    scheduled {verdict.scheduled}, lost {verdict.lost}, doubled {verdict.doubled} "
        f"(in flight {verdict.in_flight}), worst delay {verdict.worst_delay_s:.1f} s, "
        f"recovery {verdict.recovery_s:.1f} s, took {outcome.took_s:.0f} s"
    )
    for note in outcome.notes:
        console.print(f"    {note}")
    for fault in verdict.faults:
        console.print(f"    [red]fault[/red]: {fault}")


def _leave(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _as_json(
    outcomes: list[tuple[int, Outcome]], caught: dict[str, str | None], seeds: list[int], *, only: str | None
) -> dict[str, Any]:
    arguments = [*(f"--seed={seed}" for seed in seeds), *([f"--only={only}"] if only else [])]
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": shlex.join(["python", "-m", "tests.chaos", *arguments]),
        "mutants": {name: f"caught by: {what}" if what else "not caught" for name, what in caught.items()},
        "runs": [
            {"seed": seed, "scenario": outcome.scenario.name, "notes": outcome.notes, **asdict(outcome.verdict)}
            for seed, outcome in outcomes
        ],
    }


def _chosen(arguments: argparse.Namespace) -> list[Scenario]:
    if arguments.only:
        return [scenario(name) for name in arguments.only.split(",")]
    if arguments.mutants_only:
        return []
    return [scenario(name) for name in SHORT] if arguments.short else list(SCENARIOS)


def _planted(arguments: argparse.Namespace) -> list[Mutant]:
    if arguments.mutants:
        return list(MUTANTS)
    return [mutant for mutant in MUTANTS if mutant.name in SHORT_MUTANTS] if arguments.short else []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, action="append", help="may be repeated; one is drawn and shown otherwise")
    parser.add_argument("--only", help="names of scenarios, with commas between")
    parser.add_argument("--short", action="store_true", help="the few scenarios that CI runs")
    parser.add_argument("--mutants", action="store_true", help="also plant the faults that must be caught")
    parser.add_argument("--mutants-only", action="store_true", help="the planted faults and nothing else")
    parser.add_argument("--list", action="store_true", help="name the scenarios and leave")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("--report", metavar="FILE", help="put the figures into docs/reliability.md")
    parser.add_argument("--from", dest="results", metavar="FILE", action="append", help="run nothing: report these")
    arguments = parser.parse_args()
    if arguments.results and not arguments.report:
        parser.error("--from needs --report")
    arguments.mutants = arguments.mutants or arguments.mutants_only
    names = {known.name for known in SCENARIOS}
    for name in (arguments.only or "").split(","):
        if name and name not in names:
            parser.error(f"there is no scenario {name!r}; --list names them")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
