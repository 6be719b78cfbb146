"""Each planted fault still finds its place in the product."""

from pathlib import Path

import pytest

from tests.chaos.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_the_lines_that_it_means_to_change(mutant: Mutant, tmp_path: Path) -> None:
    planted = mutant.plant(root=ROOT, into=tmp_path)
    assert (planted / "manage.py").is_file()
    for name, _old, new in mutant.edits:
        assert new in (planted / name).read_text(encoding="utf-8")
        assert new not in (ROOT / name).read_text(encoding="utf-8")
