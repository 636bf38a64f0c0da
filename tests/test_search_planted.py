"""Planted models whose smallest kept set is known by brute force; ``python tests/planted/kept.py`` prints them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted.kept import CASES, Case, searched, smaller_sets

QUICK = {"overflow0_cancellation2", "cancellation1", "squares0_cancellation1", "only_together", "weight_overflow"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=[] if c.name in QUICK else [pytest.mark.slow]) for c in CASES]
)
def test_the_true_minimum_in_few_runs(case: Case, tmp_path: Path) -> None:
    fix, path, feeds = searched(case, tmp_path)
    assert fix.state == "found"
    assert fix.minimal
    least, _, whole = smaller_sets(case, fix, path, feeds)
    assert whole
    assert least == len(fix.kept)
    if case.kind != "other":
        assert fix.evaluations <= len(fix.kept) + 5


def test_there_are_thirty_cases_and_more() -> None:
    assert len(CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)
