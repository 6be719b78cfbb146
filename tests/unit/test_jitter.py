"""Jitter: the same in, the same out, for ever; and spread evenly."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.domain.jitter import offset_s

SCHEDULE = UUID("0190a3f4-7c1e-7d3a-8b52-3f6a1c9d0e11")
AT = datetime(2024, 3, 31, 1, 0, tzinfo=UTC)
FROZEN = [42.231414, 3.677547, 21.455979]
"""What the first version said: a change of the hash would move every occurrence that is already stored."""


def test_the_offset_of_an_occurrence_never_changes() -> None:
    assert [offset_s(SCHEDULE, AT + timedelta(minutes=n), 60) for n in range(3)] == FROZEN


def test_another_process_with_another_hash_seed_says_the_same() -> None:
    code = (
        "from uuid import UUID; from datetime import datetime; from scheduling.domain.jitter import offset_s; "
        f"print(offset_s(UUID('{SCHEDULE}'), datetime.fromisoformat('{AT.isoformat()}'), 60))"
    )
    for seed in ("0", "1"):
        told = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert float(told.stdout) == FROZEN[0]


def test_the_instant_counts_and_not_its_offset() -> None:
    assert offset_s(SCHEDULE, AT.astimezone(timezone(timedelta(hours=5, minutes=30))), 60) == FROZEN[0]


def test_offsets_are_spread_evenly_over_schedules_and_over_occurrences() -> None:
    by_schedule = [offset_s(UUID(int=number), AT, 10) for number in range(5000)]
    by_occurrence = [offset_s(SCHEDULE, AT + timedelta(days=number), 10) for number in range(5000)]
    for offsets in (by_schedule, by_occurrence):
        counts = [sum(1 for offset in offsets if int(offset) == second) for second in range(10)]
        assert min(counts) > 400
        assert max(counts) < 600
        assert len(set(offsets)) > 4900


@given(st.uuids(), st.datetimes(timezones=st.just(UTC)), st.floats(0, 10**9))
def test_an_offset_is_in_its_range_in_whole_microseconds(schedule_id: UUID, at: datetime, jitter_s: float) -> None:
    offset = offset_s(schedule_id, at, jitter_s)
    assert offset == offset_s(schedule_id, at, jitter_s)
    assert 0 <= offset < jitter_s or offset == 0
    assert offset == round(offset, 6)


@pytest.mark.parametrize("jitter_s", [0, 0.0, 1e-9])
def test_no_jitter_is_no_offset(jitter_s: float) -> None:
    assert offset_s(SCHEDULE, AT, jitter_s) == 0


@pytest.mark.parametrize("jitter_s", [-1, float("nan"), float("inf"), 10**10])
def test_a_jitter_that_is_no_length_of_time_is_a_mistake_of_the_caller(jitter_s: float) -> None:
    with pytest.raises(ValueError, match="jitter_s"):
        offset_s(SCHEDULE, AT, jitter_s)
    with pytest.raises(ValueError, match="offset"):
        offset_s(SCHEDULE, AT.replace(tzinfo=None), 60)
