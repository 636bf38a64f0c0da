"""A quantised model is judged on inputs that did not calibrate it, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnx", reason="builds a model")

from planted.onnx_faults import Graph

import precision_debug
from precision_debug.reasons import as_reason
from precision_debug.report.model import Verdict
from precision_debug.run.unseen_inputs import _varied


@pytest.mark.parametrize("gated", [False, True])
def test_a_pass_on_what_calibrated_needs_another_input(tmp_path: Path, gated: bool) -> None:
    """Gated: a branch is 0 for the input that calibrates, so its range is nothing, and it opens for a smaller one."""
    g = Graph(seed=1)
    values = g.random.uniform(1, 2, size=(4, 16)).astype(np.float32)
    x = g.input("x", values)
    y = g.dense(x, 16, 8, "d")
    if gated:
        mean = g.op("MatMul", [x, g.weight("mean", np.full((16, 8), 1 / 16, np.float32))], "mean_of")
        short = g.op("Sub", [g.weight("usual", np.float32(0.95 * values.mean(1).min())), mean], "short")
        opened = g.op("Mul", [g.op("Relu", [short], "gate"), g.weight("much", np.float32(100))], "opened")
        y = g.op("Add", [y, opened], "sum")
    path = g.save(tmp_path / "m.onnx", [g.op("Identity", [y], "y")])
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=g.feeds)
    notes = [as_reason(note) for note in report.notes if as_reason(note).code == "calibrated_here"]
    assert [note.args["count"] for note in notes] == [2]
    doubts = [doubt.code for doubt in report.target.doubts]
    assert doubts == (["off_on_others"] if gated else [])
    assert report.verdict is (Verdict.INCONCLUSIVE if gated else Verdict.EXPECTED)


@pytest.mark.parametrize(("dtype", "end"), [(np.float16, 6e4), (np.float32, 3.4e38), (np.float64, 1.7e308)])
@pytest.mark.parametrize("noised", [False, True])
def test_an_input_at_the_end_of_its_type_varies_within_its_range(dtype: type, end: float, noised: bool) -> None:
    """A mask added to scores beside measured values, and what is large throughout: no sum or square may overflow."""
    random = np.random.default_rng(0)
    mask = np.where(random.uniform(size=(4, 8)) < 0.5, 0, -end).astype(dtype)
    assert _varied(mask, random, noised=noised) is mask
    large = (random.uniform(-1, 1, (4, 8)) * end).astype(dtype)
    varied = _varied(large, random, noised=noised)
    assert varied.dtype == large.dtype
    assert (varied != large).any()
    assert large.min() <= varied.min() <= varied.max() <= large.max()
