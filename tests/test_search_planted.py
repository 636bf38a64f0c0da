"""Planted models whose smallest kept set is known by brute force; ``python tests/planted/kept.py`` prints them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import kept_further
from planted.kept import CASES, Case, searched, smaller_sets

QUICK = {"overflow0_cancellation2", "cancellation1", "squares0_cancellation1", "only_together", "weight_overflow"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=[] if c.name in QUICK else [pytest.mark.slow]) for c in CASES]
)
def test_the_true_minimum_in_few_runs(case: Case, tmp_path: Path) -> None:
    fix, path, feeds = searched(case, tmp_path)
    assert fix.state == "found"
    assert fix.minimal
    least, _, whole = smaller_sets(case, fix, path, feeds, tmp_path)
    assert whole
    assert least == len(fix.kept)
    if case.kind != "other":
        assert fix.evaluations <= len(fix.kept) + 5


FURTHER = {
    "variance_by_squares_bf16_sim", "angle_of_a_position_bf16_sim", "folded_norm_of_large_variance_fp16",
    "two_branches_two_outputs_fp16_sim", "outliers_of_one_block_int8_dynamic", "masked_attention_fp16",
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=[] if c.name in FURTHER else [pytest.mark.slow]) for c in kept_further.CASES],
)
def test_other_operators_and_engines_too(case: Case, tmp_path: Path) -> None:
    """The least set is asked of the engine; what is handed over, of a stock session."""
    fix, path, feeds = searched(case, tmp_path)
    assert fix.before is None or fix.after is not None
    if case.kind == "clean":
        assert (fix.state, fix.kept, fix.evaluations) == ("not needed", (), 1)
        return
    assert (fix.state, fix.minimal) == ("found", True)
    assert all(item.verified is not False for item in fix.artefacts)
    (tmp_path / "brute").mkdir()
    least, _, whole = kept_further.smaller_sets(case, fix, path, feeds, tmp_path / "brute")
    assert whole
    assert least == len(fix.kept)
    if case.kind != "other":
        assert fix.evaluations <= len(fix.kept) + 5
    limit = float(case.limit) if not isinstance(case.limit, str) else float(case.limit[:-1]) / 100 * (fix.before or 0)
    for item in fix.artefacts:
        if item.path.endswith(".onnx"):
            assert kept_further.stock_error(Path(item.path), path, feeds) <= limit


def test_there_are_thirty_cases_and_more() -> None:
    assert len(CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)
