"""The demo's verdict: what it counts, and what makes it fail."""

from datetime import UTC, datetime, timedelta

import pytest

from chronos_site.stack.demo import Row, Totals, percentile
from chronos_site.stack.receiver import Received

DUE = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def row(*late_s: float, state: str = "SUCCEEDED") -> Row:
    arrivals = [Received("POST", "/hook", {}, b"", DUE + timedelta(seconds=late)) for late in late_s]
    return Row("an-id", DUE, arrivals, state)


def test_every_job_delivered_once_and_in_time_is_a_good_end() -> None:
    totals = Totals.of([row(0.01), row(0.2)])
    assert (totals.accepted, totals.delivered, totals.lost, totals.doubled) == (2, 2, 0, 0)
    assert totals.faults == []


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([row(0.1), row()], "1 lost"),
        ([row(0.1, 0.2)], "1 doubled"),
        ([row(-0.001)], "1 delivered too early"),
        ([row(1.0)], "p99 lateness 1.000 s is not below 1 s"),
        ([row(0.1, state="RUNNING")], "1 not shown as SUCCEEDED by the API"),
        ([], "nothing was accepted"),
    ],
)
def test_the_demo_fails_and_says_why(rows: list[Row], fault: str) -> None:
    assert fault in Totals.of(rows).faults


def test_percentiles_are_taken_by_nearest_rank() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (50.0, 99.0, 7.0)
