"""The judge of a bulk job in a chaos run. Pure, as the other one is, with sources of its own.

1. the file, which is known: so many rows, some of them not valid; 2. what the receiver wrote down before it answered;
3. what the API says at the end: the job, its counts, its results; 4. the rows in PostgreSQL.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.receiver import Arrival

PATH = "/bulk/"
"""The URL of a row ends with this and the row's number, which stands in the row itself."""
COUNTS = ("succeeded", "failed", "cancelled", "invalid")


@dataclass(frozen=True, slots=True)
class BulkRow:
    """A row in PostgreSQL when all was quiet."""

    attempt: int
    unknown_outcomes: int


@dataclass(slots=True)
class BulkEvidence:
    """Rows are named by their number, from 1."""

    total: int
    invalid: Collection[int]
    arrivals: Mapping[int, Sequence[Arrival]]
    rows: Mapping[int, BulkRow]
    state: str
    counts: Mapping[str, int]
    """As the API tells them: `total` and those of COUNTS."""
    results: Sequence[Mapping[str, Any]]
    """The lines of the results."""
    in_flight: Collection[int]
    """Rows whose attempt had begun and had no stored result at one of the kills: those alone may come twice."""


@dataclass(slots=True)
class BulkVerdict:
    received: int
    doubled: int
    in_flight: int
    faults: list[str]


def judge_bulk(evidence: BulkEvidence) -> BulkVerdict:
    """Every rule, in turn."""
    taken = {number: [a for a in found if a.status == 200] for number, found in evidence.arrivals.items()}
    doubled = [number for number, found in taken.items() if len(found) > 1]
    valid = [number for number in range(1, evidence.total + 1) if number not in evidence.invalid]
    received = sum(bool(taken.get(number)) for number in valid)
    verdict = BulkVerdict(received, len(doubled), len(evidence.in_flight), [])
    _judge_deliveries(evidence, taken, valid, verdict)
    in_flight = set(evidence.in_flight)
    _tell(verdict, "received twice and not in flight at a kill", [n for n in doubled if n not in in_flight])
    _judge_attempts(evidence, verdict)
    _judge_end(evidence, valid, verdict)
    _judge_results(evidence, verdict)
    return verdict


def _judge_deliveries(
    evidence: BulkEvidence, taken: Mapping[int, Sequence[Arrival]], valid: Sequence[int], verdict: BulkVerdict
) -> None:
    known = set(valid)
    _tell(verdict, "valid and never received", [number for number in valid if not taken.get(number)])
    _tell(verdict, "received and not a valid row of the file", [n for n in evidence.arrivals if n not in known])
    others = [n for n, found in evidence.arrivals.items() if any(a.path != f"{PATH}{n}" for a in found)]
    _tell(verdict, "received with the values of another row", others)


def _judge_attempts(evidence: BulkEvidence, verdict: BulkVerdict) -> None:
    """Attempt numbers run from 1 to the row's; one that never arrived is explained by an unknown outcome."""
    gaps, repeated = [], []
    for number, row in evidence.rows.items():
        seen = [arrival.attempt for arrival in evidence.arrivals.get(number, [])]
        missing = set(range(1, row.attempt + 1)) - set(seen)
        if len(missing) > row.unknown_outcomes or any(not 1 <= attempt <= row.attempt for attempt in seen):
            gaps.append(number)
        if len(seen) != len(set(seen)):
            repeated.append(number)
    _tell(verdict, "with gaps in their attempts", gaps)
    _tell(verdict, "with one attempt sent twice", repeated)


def _judge_end(evidence: BulkEvidence, valid: Sequence[int], verdict: BulkVerdict) -> None:
    expected = "PARTIAL_FAILURE" if evidence.invalid else "COMPLETED"
    if evidence.state != expected:
        verdict.faults.append(f"the bulk job is {evidence.state}, not {expected}")
    right = {"total": evidence.total, "succeeded": len(valid), "failed": 0, "cancelled": 0}
    right["invalid"] = len(evidence.invalid)
    wrong = [f"{name} {evidence.counts.get(name)} (not {n})" for name, n in right.items() if evidence.counts[name] != n]
    if wrong:
        verdict.faults.append(f"counts of the bulk job: {', '.join(wrong)}")
    if sum(evidence.counts[name] for name in COUNTS) != evidence.counts["total"]:
        verdict.faults.append("the counts of the bulk job do not add up to its total")
    if set(evidence.rows) != set(range(1, evidence.total + 1)):
        verdict.faults.append(f"{len(evidence.rows)} rows of {evidence.total} are in Postgres")


def _judge_results(evidence: BulkEvidence, verdict: BulkVerdict) -> None:
    """A line for each row, in the order of the file, with what became of it."""
    if [int(line["row"]) for line in evidence.results] != list(range(1, evidence.total + 1)):
        verdict.faults.append(f"the results have {len(evidence.results)} lines, not one for each of {evidence.total}")
    wrong = [
        int(line["row"])
        for line in evidence.results
        if line["status"] != ("INVALID" if int(line["row"]) in evidence.invalid else "SUCCEEDED")
    ]
    _tell(verdict, "with another end in the results", wrong)


def _tell(verdict: BulkVerdict, what: str, found: Sequence[int]) -> None:
    if found:
        shown = ", ".join(map(str, sorted(found)[:3]))
        verdict.faults.append(f"{len(found)} rows {what}: {shown}{', …' if len(found) > 3 else ''}")


def by_number(arrivals: Sequence[tuple[int, Arrival]]) -> dict[int, list[Arrival]]:
    found: dict[int, list[Arrival]] = defaultdict(list)
    for number, arrival in arrivals:
        found[number].append(arrival)
    return found
