"""The judge of bulk jobs is judged: a clean job passes, and every kind of broken promise is named."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.chaos.bulk_checker import BulkEvidence, BulkRow, judge_bulk
from tests.chaos.receiver import Arrival

T = datetime(2030, 1, 1, 12, tzinfo=UTC)


def arrival(number: int, *, attempt: int = 1, path: str = "", status: int = 200) -> Arrival:
    return Arrival(T + timedelta(seconds=attempt), f"e{number}", attempt, status, path or f"/bulk/{number}")


def result(number: int, status: str) -> dict[str, str]:
    return {"row": str(number), "status": status}


ARRIVALS = {1: [arrival(1)], 2: [arrival(2)]}
ROWS = {1: BulkRow(1, 0), 2: BulkRow(1, 0), 3: BulkRow(0, 0)}
COUNTS = {"total": 3, "succeeded": 2, "failed": 0, "cancelled": 0, "invalid": 1}
RESULTS = [result(1, "SUCCEEDED"), result(2, "SUCCEEDED"), result(3, "INVALID")]
TWICE = {
    "arrivals": {**ARRIVALS, 2: [arrival(2), arrival(2, attempt=2)]},
    "rows": {**ROWS, 2: BulkRow(2, 1)},
}


def faults(**given: Any) -> str:
    clean: dict[str, Any] = {
        "total": 3,
        "invalid": {3},
        "arrivals": ARRIVALS,
        "rows": ROWS,
        "state": "PARTIAL_FAILURE",
        "counts": COUNTS,
        "results": RESULTS,
        "in_flight": (),
    }
    return "\n".join(judge_bulk(BulkEvidence(**clean | given)).faults)


def test_a_clean_job_has_no_fault() -> None:
    assert faults() == ""


def test_a_row_that_was_in_flight_at_a_kill_may_come_twice() -> None:
    assert faults(**TWICE, in_flight={2}) == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"arrivals": {1: [arrival(1)]}}, "valid and never received: 2"),
        ({"arrivals": {**ARRIVALS, 2: [arrival(2, status=500)]}}, "valid and never received: 2"),
        ({"arrivals": {**ARRIVALS, 3: [arrival(3)]}}, "not a valid row of the file: 3"),
        ({"arrivals": {**ARRIVALS, 4: [arrival(4)]}}, "not a valid row of the file: 4"),
        ({"arrivals": {**ARRIVALS, 2: [arrival(2, path="/bulk/1")]}}, "values of another row: 2"),
        ({**TWICE, "in_flight": {1}}, "received twice and not in flight at a kill: 2"),
        ({"rows": {**ROWS, 2: BulkRow(2, 0)}}, "gaps in their attempts: 2"),
        ({"arrivals": {**ARRIVALS, 2: [arrival(2)] * 2}, "in_flight": {2}}, "one attempt sent twice: 2"),
        ({"rows": {1: ROWS[1], 2: ROWS[2]}}, "2 rows of 3 are in Postgres"),
        ({"state": "RUNNING"}, "the bulk job is RUNNING"),
        ({"counts": {**COUNTS, "succeeded": 1}}, "succeeded 1 (not 2)"),
        ({"counts": {**COUNTS, "failed": 1}}, "do not add up"),
        ({"results": RESULTS[:2]}, "the results have 2 lines"),
        ({"results": [RESULTS[1], RESULTS[0], RESULTS[2]]}, "not one for each of 3"),
        ({"results": [*RESULTS[:2], result(3, "SUCCEEDED")]}, "another end in the results: 3"),
    ],
)
def test_each_broken_promise_is_named(given: dict[str, Any], told: str) -> None:
    assert told in faults(**given)
