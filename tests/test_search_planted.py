"""Planted models whose smallest kept set is known by brute force; ``python tests/planted/kept.py`` prints them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import kept_fresh, kept_further, onnx_faults
from planted.kept import CASES, Case, searched, smaller_sets

from precision_debug import registry
from precision_debug.events import Tried
from precision_debug.products.search.evaluations import is_rough
from precision_debug.run.journal import read_events
from precision_debug.search.fix import Fix

QUICK = {"overflow0_cancellation2", "cancellation1", "squares0_cancellation1", "only_together", "weight_overflow"}

EVERYTHING = {"embedding_overflow_ort_fp16_sim", "differences_of_running_sums_ort_bf16_sim"}
"""Two operators, both of which are needed: to keep them switches the low precision off, which is not an answer."""


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=[] if c.name in QUICK else [pytest.mark.slow]) for c in CASES]
)
def test_the_true_minimum_in_few_runs(case: Case, tmp_path: Path) -> None:
    fix, path, feeds = searched(case, tmp_path)
    if case.name in EVERYTHING:
        assert fix.state == "not possible"
        assert fix.whole_passes
        return
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
    # a set found where most of float16 computes in float32 may not hold in genuine float16, and it is told so
    assert all(item.verified is not False for item in fix.artefacts if "ort_fp16_sim" not in item.text)
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


FRESH = {"energies", "a_large_mean_before_a_norm", "gated", "softmax_scaled_away", "convolution_of_a_far_image"}
NEEDS = {"ort": "onnxruntime", "ov": "openvino", "torch": "torch", "onednn": "paddle"}


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=[] if c.name in FRESH else [pytest.mark.slow]) for c in kept_fresh.CASES],
)
def test_fresh_ones_over_four_engines(case: kept_fresh.Planted, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS[case.mode.partition("_")[0]], reason="the engine is not installed")
    found = next(backend for backend in registry.backends() if any(m.name == case.mode for m in backend.run_modes))
    if not (available := found.availability(case.mode)).ok:
        pytest.skip(f"{case.mode} {available.needs}")
    fix, _ = kept_fresh.searched(case, tmp_path)
    if not case.least:  # the engine ignores what is kept
        assert fix.state == "not possible"
        assert fix.whole_still is not None
        assert fix.whole_still.low > 0
        return
    assert (fix.state, len(fix.kept)) == ("found", case.least)
    assert fix.evaluations <= case.least + 5


def in_int8(name: str, mode: str, folder: Path, limit: str = "50%") -> tuple[Fix, list[Tried]]:
    """One search for half of the error, or so, and the sets that were run for it."""
    model, _, feeds = next(case for case in onnx_faults.CASES if case.name == name).make(folder)
    case = kept_fresh.Planted(name=name, mode=mode, least=0, make=lambda _folder: (str(model), feeds), limit=limit)
    fix, _ = kept_fresh.searched(case, folder)
    return fix, [event for event in read_events(folder / "journal.jsonl", Tried) if isinstance(event, Tried)]


@pytest.mark.parametrize(("name", "mode", "least", "limit"), [
    pytest.param("mask_in_int8", "ov_int8", 1, "50%", marks=pytest.mark.slow),
    ("outlier_activation", "ov_int8", 1, "50%"),
    ("mask_in_int8", "ort_int8", 2, "50%"),
])  # fmt: skip
def test_int8_sets_are_chosen_among_by_one_calibration_and_the_answer_is_calibrated_anew(
    name: str, mode: str, least: int, limit: str, tmp_path: Path
) -> None:
    pytest.importorskip("nncf" if mode == "ov_int8" else "onnxruntime", reason="it quantises")
    fix, told = in_int8(name, mode, tmp_path, limit)
    assert (fix.state, len(fix.kept), fix.minimal) == ("found", least, True)
    assert all(item.verified is not False for item in fix.artefacts)
    chosen_among = {(event.kept, event.evaluation.error) for event in told if is_rough(event.what)}
    anew = [event for event in told if not event.what]
    assert len(chosen_among) > len({(event.kept, event.evaluation.error) for event in anew if event.kept})
    assert (least, fix.after) in [(event.kept, event.evaluation.error) for event in anew]


def test_a_calibration_that_misleads_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the one model with anything kept were exact: any single unit would do."""
    pytest.importorskip("nncf", reason="it quantises")
    from precision_debug_openvino.engine import quantise

    monkeypatch.setattr(quantise, "without_quantisers", lambda _quantised, model, _names: model)
    fix, told = in_int8("outlier_activation", "ov_int8", tmp_path)
    assert (fix.state, len(fix.kept), fix.minimal) == ("found", 1, True)
    assert fix.before is not None
    assert fix.after is not None
    assert 0 < fix.after <= 0.5 * fix.before
    assert any(is_rough(event.what) and event.evaluation.error == 0 for event in told)
    assert all(item.verified is not False for item in fix.artefacts)


def test_there_are_thirty_cases_and_more() -> None:
    assert len(CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)
