"""The tables of right answers in `tests/cases/`, as parameters named by their ids."""

import json
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

CASES = Path(__file__).parent.parent / "cases"


def rows(table: str) -> list[ParameterSet]:
    return [
        pytest.param(row, id=row["id"]) for row in json.loads((CASES / f"{table}.json").read_text(encoding="ascii"))
    ]
