"""The judge is judged: a clean run passes, and every kind of broken promise is named."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.chaos.checker import Evidence, Row, Window, judge
from tests.chaos.load import Ack, Rhythm
from tests.chaos.mutants import MUTANTS
from tests.chaos.receiver import Arrival
from tests.chaos.scenarios import SCENARIOS, SHORT, scenario

T = datetime(2030, 1, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return T + timedelta(seconds=seconds)


def ack(number: int = 1, run_at: datetime = T) -> Ack:
    return Ack(number, f"e{number}", f"s{number}", run_at, T - timedelta(seconds=5), tries=1)


def row(number: int = 1, **changes: object) -> Row:
    clean = Row(
        id=f"e{number}",
        schedule_id=f"s{number}",
        scheduled_for=T,
        run_no=0,
        state="SUCCEEDED",
        attempt=1,
        unknown_outcomes=0,
        created_at=T - timedelta(seconds=5),
        number=number,
    )
    return replace(clean, **changes)  # type: ignore[arg-type]


def arrival(seconds: float = 0.1, *, number: int = 1, attempt: int = 1, status: int | None = 200) -> Arrival:
    return Arrival(after(seconds), f"e{number}", attempt, status)


def faults(**given: object) -> str:
    evidence = {"acks": [ack()], "arrivals": [arrival()], "rows": [row()], "windows": [], **given}
    return "\n".join(judge(Evidence(**evidence)).faults)  # type: ignore[arg-type]


FAULT = Window(after(-1), after(1), failover_s=10)


def test_a_clean_run_has_no_fault() -> None:
    assert faults() == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"arrivals": []}, "never received"),
        ({"rows": []}, "not in Postgres"),
        ({"arrivals": [arrival(-0.1)]}, "before their time"),
        ({"arrivals": [arrival(5.5)]}, "after their window"),
        ({"arrivals": [arrival(42)], "windows": [FAULT]}, "after their window"),
        ({"rows": [row(state="RUNNING")]}, "not ended"),
        ({"rows": [row(state="FAILED")]}, "without success"),
        ({"arrivals": [arrival(status=500)]}, "without a 2xx"),
        ({"arrivals": [arrival(status=None)]}, "without a 2xx"),
        ({"rows": [row(attempt=2)]}, "gaps"),
        ({"arrivals": [arrival(attempt=2)]}, "gaps"),
        ({"arrivals": [arrival(status=500), arrival(0.2)]}, "one attempt sent twice"),
        ({"rows": [row(), row(id="e9")]}, "(schedule, scheduled_for) twice"),
        ({"rows": [row(), row(id="e9", schedule_id="s9")]}, "exist twice"),
        ({"arrivals": [arrival(), arrival(3, attempt=2)], "rows": [row(attempt=2)]}, "doubled without"),
        ({"refusals": ["500 no"]}, "refused"),
        ({"unanswered": [7]}, "never acknowledged"),
    ],
)
def test_every_broken_promise_is_named(given: dict[str, object], told: str) -> None:
    assert told in faults(**given)


def test_a_fault_stretches_the_window_by_its_failover_and_thirty_seconds() -> None:
    assert faults(arrivals=[arrival(40.9)], windows=[FAULT]) == ""


def test_what_was_in_flight_at_a_fault_may_come_twice() -> None:
    doubled = [arrival(0.1), arrival(35, attempt=2)]
    assert faults(arrivals=doubled, rows=[row(attempt=2, unknown_outcomes=1)], windows=[FAULT]) == ""


def test_an_attempt_that_never_arrived_is_explained_by_an_unknown_outcome() -> None:
    lost_send = {"arrivals": [arrival(35, attempt=2)], "windows": [FAULT]}
    assert faults(rows=[row(attempt=2, unknown_outcomes=1)], **lost_send) == ""
    assert "gaps" in faults(rows=[row(attempt=2)], **lost_send)


def rhythm() -> Rhythm:
    return Rhythm("s7", 2, since=after(0.5), until=after(5))


def beat(seconds: float, **changes: object) -> Row:
    given = {"id": f"c{seconds}", "schedule_id": "s7", "scheduled_for": after(seconds), "created_at": T, **changes}
    return replace(row(), number=None, **given)  # type: ignore[arg-type]


def test_what_a_rhythm_owes_is_expected_from_the_clock_alone() -> None:
    arrivals = [arrival(), Arrival(after(2.1), "c2", 1, 200), Arrival(after(4.1), "c4", 1, 200)]
    assert faults(rows=[row(), beat(2), beat(4)], arrivals=arrivals, rhythms=[rhythm()]) == ""
    assert "never received" in faults(rows=[row(), beat(2)], arrivals=arrivals[:2], rhythms=[rhythm()])
    doubled = [row(), beat(2), beat(4), replace(beat(4), id="c5")]
    assert "(schedule, scheduled_for) twice" in faults(rows=doubled, arrivals=arrivals, rhythms=[rhythm()])
    skipped = [row(), beat(2), beat(4, state="SKIPPED")]
    assert "without success" in faults(rows=skipped, arrivals=arrivals, rhythms=[rhythm()])
    cancelled = [row(), beat(2), beat(4), beat(6, state="CANCELLED", attempt=0)]
    assert faults(rows=cancelled, arrivals=arrivals, rhythms=[rhythm()]) == ""


def test_a_replay_of_an_occurrence_is_not_the_occurrence_again() -> None:
    arrivals = [arrival(), Arrival(after(9), "e9", 1, 200)]
    assert faults(rows=[row(), row(id="e9", run_no=1)], arrivals=arrivals) == ""


def test_every_mutant_and_short_run_names_a_scenario() -> None:
    assert {scenario(name).name for name in (*SHORT, *(m.scenario for m in MUTANTS))} <= {s.name for s in SCENARIOS}
