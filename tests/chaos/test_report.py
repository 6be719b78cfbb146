"""The report says of every scenario what all seeds came to."""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.report import BEGIN, END, write_report


def result(seed: int, **changes: Any) -> dict[str, Any]:
    run = {"seed": seed, "scenario": "leader-killed", "notes": ["failover 8.0 s (at most 12 s)"], "scheduled": 10}
    run |= {"lost": 0, "doubled": 1, "in_flight": 3, "worst_delay_s": float(seed), "recovery_s": 0.5, "faults": []}
    return {
        "at": "2030-01-01T00:00:00Z",
        "command": f"python -m tests.chaos --seed={seed}",
        "mutants": {"monitor-off": "caught by: 3 never received"},
        "runs": [run | changes],
    }


def test_the_figures_of_several_runs_stand_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_report(page, [result(1), result(2, faults=["1 never received: e1"], lost=1)])
    text = page.read_text(encoding="utf-8")
    assert (text.startswith("before\n"), text.endswith("\nafter\n"), "old" in text) == (True, True, False)
    assert "2 runs, 20 deliveries owed, 1 lost." in text
    assert (
        "| leader-killed | kill -9 of the leading beat | 2 | 20 | 1 | 2 (6) | 2.0 s | 0.5 s | 1 of 2 broken |" in text
    )
    assert "- leader-killed: failover 8.0 s (at most 12 s); failover 8.0 s (at most 12 s)" in text
    assert "- planted fault monitor-off: caught by: 3 never received" in text


def test_a_page_without_a_place_for_results_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match="no place for results"):
        write_report(page, [])
