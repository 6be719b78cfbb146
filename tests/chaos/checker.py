"""The judge of a chaos run. Pure: it sees three sources and knows nothing of how the site works inside.

1. what the API acknowledged, 2. what the receiver wrote down before it answered, 3. the rows that Postgres holds at the
end. A fault in any of the rules below is one sentence in `Verdict.faults`; none means that the site kept its promise.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.chaos.load import TIMEOUT_S, Ack, Rhythm
from tests.chaos.receiver import Arrival

ON_TIME_S = 5.0
"""Latest first delivery where nothing is wrong."""
AFTER_S = 30.0
"""What a first delivery may take on top of the outage and the failover."""
IN_FLIGHT_S = TIMEOUT_S + 1.0
"""A send may be in flight for so long: as long as its answer may take, and a moment for the commit of its result."""
ENDED = {"SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED", "EXPIRED"}


@dataclass(frozen=True, slots=True)
class Row:
    """An execution in Postgres when all was quiet."""

    id: str
    schedule_id: str | None
    scheduled_for: datetime
    run_no: int
    state: str
    attempt: int
    unknown_outcomes: int
    created_at: datetime
    number: int | None
    """The job's number, from its payload."""


@dataclass(frozen=True, slots=True)
class Window:
    """One fault: when it began and was taken back, and how long the site may need to find itself again."""

    begin: datetime
    end: datetime
    failover_s: float


@dataclass(slots=True)
class Evidence:
    acks: Sequence[Ack]
    arrivals: Sequence[Arrival]
    rows: Sequence[Row]
    windows: Sequence[Window]
    rhythms: Sequence[Rhythm] = ()
    refusals: Sequence[str] = ()
    unanswered: Sequence[int] = ()


@dataclass(slots=True)
class Verdict:
    """Figures of one scenario; `faults` is empty where every promise was kept."""

    scheduled: int = 0
    received: int = 0
    lost: int = 0
    doubled: int = 0
    in_flight: int = 0
    """Executions that may have been between send and stored result at a fault: as many doubles are no fault."""
    worst_delay_s: float = 0.0
    recovery_s: float = 0.0
    """From the end of the last fault to the last first delivery that came late."""
    faults: list[str] = field(default_factory=list)


def judge(evidence: Evidence) -> Verdict:
    """Every rule, in turn."""
    verdict = Verdict()
    arrived: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in sorted(evidence.arrivals, key=lambda a: a.at):
        arrived[arrival.execution_id].append(arrival)
    rows = {row.id: row for row in evidence.rows}
    _judge_api(evidence, rows, verdict)
    _judge_deliveries(evidence, rows, arrived, verdict)
    _judge_states(rows, arrived, verdict)
    _judge_attempts(rows, arrived, verdict)
    _judge_doubles(evidence, arrived, verdict)
    return verdict


def _judge_api(evidence: Evidence, rows: dict[str, Row], verdict: Verdict) -> None:
    """Each job that was asked for exists once, however often it was asked for."""
    for refusal in sorted(set(evidence.refusals))[:3]:
        verdict.faults.append(f"the API refused a good request: {refusal}")
    if evidence.unanswered:
        verdict.faults.append(f"{len(evidence.unanswered)} requests were never acknowledged")
    missing = [ack.execution_id for ack in evidence.acks if ack.execution_id not in rows]
    _tell(verdict, "acknowledged and not in Postgres", missing)
    numbers = Counter(row.number for row in rows.values() if row.run_no == 0 and row.number is not None)
    twice = [str(number) for number, n in numbers.items() if n > 1]
    _tell(verdict, "job numbers that exist twice", twice)
    occurrences = Counter((r.schedule_id, r.scheduled_for) for r in rows.values() if r.schedule_id and r.run_no == 0)
    _tell(verdict, "(schedule, scheduled_for) twice", [str(key[0]) for key, n in occurrences.items() if n > 1])


def _judge_deliveries(
    evidence: Evidence, rows: dict[str, Row], arrived: dict[str, list[Arrival]], verdict: Verdict
) -> None:
    """Each is received, first inside its window and never early: what was acknowledged, and what a rhythm owes."""
    lost, late, early = [], [], []
    last_fault = max((window.end for window in evidence.windows), default=None)
    owed = _owed(evidence, rows)
    verdict.scheduled = len(owed)
    for name, row in owed:
        found = arrived.get(row.id) if row is not None else None
        if not found or row is None:
            lost.append(name)
            continue
        due = max(row.scheduled_for, row.created_at)
        delay_s = (found[0].at - due).total_seconds()
        verdict.worst_delay_s = max(verdict.worst_delay_s, delay_s)
        if delay_s > ON_TIME_S / 5 and last_fault is not None:
            verdict.recovery_s = max(verdict.recovery_s, (found[0].at - last_fault).total_seconds())
        if delay_s < 0:
            early.append(name)
        if found[0].at > _latest(due, evidence.windows):
            late.append(f"{name} ({delay_s:.1f} s)")
    verdict.lost = len(lost)
    verdict.received = verdict.scheduled - len(lost)
    _tell(verdict, "never received", lost)
    _tell(verdict, "received before their time", early)
    _tell(verdict, "received after their window", late)


def _owed(evidence: Evidence, rows: dict[str, Row]) -> list[tuple[str, Row | None]]:
    """What should have been received, each by a name, with its row where there is one."""
    owed: list[tuple[str, Row | None]] = [(ack.execution_id, rows.get(ack.execution_id)) for ack in evidence.acks]
    made = {(row.schedule_id, row.scheduled_for): row for row in rows.values() if row.run_no == 0}
    for rhythm in evidence.rhythms:
        assert rhythm.until is not None
        first = math.ceil(rhythm.since.timestamp() / rhythm.every_s)
        last = math.floor(rhythm.until.timestamp() / rhythm.every_s)
        for number in range(first, last + 1):
            at = datetime.fromtimestamp(number * rhythm.every_s, UTC)
            owed.append((f"{rhythm.schedule_id} at {at:%H:%M:%S}", made.get((rhythm.schedule_id, at))))
    return owed


def _latest(due: datetime, windows: Sequence[Window]) -> datetime:
    """The end of the window for a first delivery: a fault stretches it for what was due just before it or later."""
    latest = due + timedelta(seconds=ON_TIME_S)
    for window in windows:
        settled = window.end + timedelta(seconds=window.failover_s + AFTER_S)
        if window.begin - timedelta(seconds=ON_TIME_S) <= due <= settled:
            latest = max(latest, settled)
    return latest


def _judge_states(rows: dict[str, Row], arrived: dict[str, list[Arrival]], verdict: Verdict) -> None:
    """All has ended after the quiet time, and what is called a success was one."""
    open_rows = [f"{row.id} ({row.state})" for row in rows.values() if row.state not in ENDED]
    _tell(verdict, "not ended after the quiet time", open_rows)
    # A recurring schedule is cancelled in the end, and its last occurrences with it.
    wrong = ENDED - {"SUCCEEDED"}
    failed = [
        f"{row.id} ({row.state})"
        for row in rows.values()
        if row.state in wrong and not (row.number is None and row.state == "CANCELLED")
    ]
    _tell(verdict, "ended without success although the receiver came back", failed)
    claimed = [
        row.id for row in rows.values() if row.state == "SUCCEEDED" and not any(map(_is_2xx, arrived.get(row.id, [])))
    ]
    _tell(verdict, "SUCCEEDED without a 2xx of the receiver", claimed)


def _judge_attempts(rows: dict[str, Row], arrived: dict[str, list[Arrival]], verdict: Verdict) -> None:
    """Attempt numbers run from 1 to the row's; one that never arrived is explained by an unknown outcome."""
    gaps, repeated = [], []
    for row in rows.values():
        seen = [arrival.attempt for arrival in arrived.get(row.id, [])]
        missing = set(range(1, row.attempt + 1)) - set(seen)
        if len(missing) > row.unknown_outcomes or any(not 1 <= number <= row.attempt for number in seen):
            gaps.append(f"{row.id} (saw {sorted(seen)}, the row says {row.attempt})")
        if len(seen) != len(set(seen)):
            repeated.append(row.id)
    _tell(verdict, "attempt numbers with gaps", gaps)
    _tell(verdict, "one attempt sent twice", repeated)


def _judge_doubles(evidence: Evidence, arrived: dict[str, list[Arrival]], verdict: Verdict) -> None:
    """Delivered again after a 2xx: as many as were in flight when a fault struck, and none without one."""
    before, after = timedelta(seconds=IN_FLIGHT_S), timedelta(seconds=1)
    unexplained = []
    for execution_id, found in arrived.items():
        near = any(w.begin - before <= arrival.at <= w.end + after for arrival in found for w in evidence.windows)
        verdict.in_flight += near
        if sum(map(_is_2xx, found)) > 1:
            verdict.doubled += 1
            if not near:
                unexplained.append(execution_id)
    _tell(verdict, "doubled without a fault near their send", unexplained)


def _is_2xx(arrival: Arrival) -> bool:
    return arrival.status is not None and 200 <= arrival.status < 300


def _tell(verdict: Verdict, what: str, found: Sequence[str]) -> None:
    if found:
        shown = ", ".join(list(found)[:3])
        verdict.faults.append(f"{len(found)} {what}: {shown}{', …' if len(found) > 3 else ''}")
