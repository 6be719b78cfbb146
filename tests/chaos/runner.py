"""One scenario: load, fault, quiet, evidence, verdict."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from tests.chaos.checker import ENDED, Evidence, Row, Verdict, Window, judge
from tests.chaos.load import SETTLED_S, Load
from tests.chaos.receiver import ChaosReceiver
from tests.chaos.world import LEADER_TTL_S, World

LEAD_S = 4.0
TAIL_S = 8.0
PER_S = 25.0

QUEUED_LEASE_S = 30
HEARTBEAT_LOST_S = 30
MONITOR_TICK_S = 10
STEADY_S = 45
MONITOR_TTL_S = 3 * LEADER_TTL_S

LEADER_S = LEADER_TTL_S + 2
"""A killed leader of the fire loop is replaced."""
MESSAGE_S = QUEUED_LEASE_S + MONITOR_TICK_S
"""A lost message is published again."""
CLAIM_S = HEARTBEAT_LOST_S + 2 * MONITOR_TICK_S
"""A lost claim is taken back."""
STEADY_CLAIM_S = STEADY_S + CLAIM_S
"""The same where the monitor had been away, or Postgres: it waits until live workers have written their results."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    text: str
    act: Callable[["Run"], None]
    failover_s: float = 0.0
    """How long the site may need, once the fault is taken back, to be its old self."""
    recovers_within_s: float | None = None
    """A bound of its own on the recovery, where one is promised."""
    mode: str = "ok"
    """The receiver's, from the start."""


@dataclass(slots=True)
class Run:
    """What a scenario may use."""

    world: World
    receiver: ChaosReceiver
    load: Load
    rng: random.Random
    failover_s: float
    windows: list[Window] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Figures of the scenario's own, and what broke a bound of its own ("FAULT …")."""

    @contextmanager
    def fault(self, failover_s: float | None = None) -> Iterator[None]:
        """The time in which something is wrong."""
        begin = datetime.now(UTC)
        try:
            yield
        finally:
            bound = self.failover_s if failover_s is None else failover_s
            self.windows.append(Window(begin, datetime.now(UTC), bound))

    def sleep(self, low: float, high: float | None = None) -> None:
        time.sleep(low if high is None else self.rng.uniform(low, high))

    def wait_for(self, condition: Callable[[], bool], most_s: float) -> float:
        """Seconds until it held; `most_s` where it did not."""
        begun = time.monotonic()
        while not condition() and time.monotonic() - begun < most_s:
            time.sleep(0.05)
        return time.monotonic() - begun

    def bound(self, what: str, seconds: float, most_s: float) -> None:
        """Note a figure; above its bound it is a fault."""
        broken = "" if seconds <= most_s else "FAULT "
        self.notes.append(f"{broken}{what} {seconds:.1f} s (at most {most_s:g} s)")


@dataclass(slots=True)
class Outcome:
    scenario: Scenario
    verdict: Verdict
    notes: list[str]
    took_s: float


def perform(scenario: Scenario, *, world: World, receiver: ChaosReceiver, rng: random.Random) -> Outcome:
    """Run one scenario in a world that works, and leave it working."""
    begun = time.monotonic()
    tag = f"{scenario.name}-{rng.getrandbits(32):08x}"
    receiver.mode = scenario.mode
    load = Load(url=world.url, api_key=world.api_key, target=receiver.url("/chaos"), tag=tag, rng=rng, per_s=PER_S)
    run = Run(world, receiver, load, rng, scenario.failover_s)
    load.start()
    time.sleep(LEAD_S)
    try:
        scenario.act(run)
    finally:
        receiver.mode = "ok"
        load.paused.clear()
        world.heal()
    time.sleep(TAIL_S)
    load.stop()
    _await_quiet(world, tag, run, settled_s=SETTLED_S)
    load.end_rhythms()
    _await_quiet(world, tag, run)
    time.sleep(1)  # A second delivery of the last one would come about now.
    evidence = Evidence(
        acks=load.acks,
        arrivals=_arrivals_of(receiver, rows := _rows(world, tag)),
        rows=rows,
        windows=run.windows,
        rhythms=load.rhythms,
        refusals=load.refusals,
        unanswered=load.unanswered,
    )
    verdict = judge(evidence)
    if scenario.recovers_within_s is not None:
        run.bound("recovery", verdict.recovery_s, scenario.recovers_within_s)
    verdict.faults += [note.removeprefix("FAULT ") for note in run.notes if note.startswith("FAULT ")]
    return Outcome(scenario, verdict, run.notes, time.monotonic() - begun)


def _await_quiet(world: World, tag: str, run: Run, *, settled_s: float = -60) -> None:
    """Until everything due so long ago has ended, or the quiet time is over: failover and the windows' allowance."""
    failover = max((window.failover_s for window in run.windows), default=0.0)
    ends = time.monotonic() + 30 + failover
    while time.monotonic() < ends:
        rows = _rows(world, tag)
        settled = datetime.now(UTC) - timedelta(seconds=settled_s)
        waited_for = [row for row in rows if row.scheduled_for <= settled or row.number is not None]
        if all(row.state in ENDED for row in waited_for):
            return
        time.sleep(0.5)


def _rows(world: World, tag: str) -> list[Row]:
    ends = time.monotonic() + 60
    while True:
        try:
            with world.database() as db:
                found: list[tuple[Any, ...]] = db.execute(
                    "SELECT id::text, schedule_id::text, scheduled_for, run_no, state, attempt, unknown_outcomes,"
                    " created_at, (payload->>'number')::int FROM execution_execution"
                    " WHERE tags @> ARRAY[%s]::varchar[]",
                    [tag],
                ).fetchall()
            return [Row(*row) for row in found]
        except psycopg.OperationalError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.5)


def _arrivals_of(receiver: ChaosReceiver, rows: list[Row]) -> list[Any]:
    ours = {row.id for row in rows}
    return [arrival for arrival in receiver.logged() if arrival.execution_id in ours]


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
