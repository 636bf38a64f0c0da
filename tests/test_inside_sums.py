"""Sums inside one operator that float16 cannot hold, though what comes out fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import helper
from onnx_models import model, value

from precision_debug import compare
from precision_debug.report.lead import lead_sentences


def _compared(folder: Path, node: Any, x: Any, mode: str = "ort_fp16_sim", opset: int = 13) -> Any:
    path = folder / "sum.onnx"
    nodes = [helper.make_node("Mul", ["x", "half"], ["a"]), node]
    made = model(nodes, [value("x", list(x.shape))], [value("y", None)], {"half": np.float32(0.5)})
    made.opset_import[0].version = opset
    onnx.save(made, path)
    return compare(str(path), run_mode=mode, inputs={"x": x.astype(np.float32)})


MEAN = helper.make_node("ReduceMean", ["a"], ["y"], axes=[1])


def test_a_mean_whose_sum_overflows_is_no_pass(tmp_path: Path) -> None:
    """4096 values of 27 add up to 110592."""
    report = _compared(tmp_path, MEAN, np.full((2, 4096), 54.0))
    assert str(report.verdict) == "inconclusive"
    said = lead_sentences(report)[0]
    assert holds_approved(said.en)
    assert "4096 项之和达到 1.106e+05" in said.zh


def test_sums_that_fit_are_of_no_account(tmp_path: Path) -> None:
    report = _compared(tmp_path, MEAN, np.full((2, 4096), 2.0))
    assert report.exit_status == 0
    assert not [note for note in report.notes if note.code.startswith("sum")]


def test_terms_that_cancel_may_overflow_on_the_way(tmp_path: Path) -> None:
    x = np.full((2, 4096), 54.0)
    x[:, 1::2] *= -1
    report = _compared(tmp_path, MEAN, x + 0.25)
    notes = [str(note) for note in report.notes if note.code == "sum_may_overflow"]
    assert len(notes) == 1
    assert "4096 terms add up to 1.10" in notes[0]
    assert not [doubt for doubt in report.doubts if doubt.code == "sum_overflows"]


@pytest.mark.parametrize(
    ("node", "shape", "level", "overflows"),
    [
        (helper.make_node("GlobalAveragePool", ["a"], ["y"]), (1, 2, 64, 64), 54.0, True),
        (helper.make_node("GlobalAveragePool", ["a"], ["y"]), (1, 2, 8, 8), 54.0, False),
        (helper.make_node("ReduceL2", ["a"], ["y"], axes=[1]), (2, 64), 100.0, True),
        (helper.make_node("ReduceL2", ["a"], ["y"], axes=[1]), (2, 16), 100.0, False),
    ],
)
def test_each_kind_of_sum(node: Any, shape: tuple[int, ...], level: float, overflows: bool, tmp_path: Path) -> None:
    report = _compared(tmp_path, node, np.full(shape, level))
    assert bool([doubt for doubt in report.doubts if doubt.code == "sum_overflows"]) is overflows


def test_an_engine_that_is_known_to_sum_in_float32_is_not_doubted(tmp_path: Path) -> None:
    report = _compared(tmp_path, MEAN, np.full((2, 4096), 54.0), mode="ort_fp16")
    assert not [doubt for doubt in report.doubts if doubt.code == "sum_overflows"]


def test_a_sum_that_is_kept_in_float32_is_not_doubted(tmp_path: Path) -> None:
    """A right paste ended inconclusive: what it hands on is rounded, its sum is not."""
    nodes = [helper.make_node("Mul", ["x", "half"], ["a"], name="a"),
             helper.make_node("ReduceMean", ["a"], ["mean"], name="mean", axes=[1]),
             helper.make_node("Mul", ["mean", "half"], ["y"], name="y")]  # fmt: skip
    made = model(nodes, [value("x", [2, 4096])], [value("y", None)], {"half": np.float32(0.5)})
    onnx.save(made, tmp_path / "m.onnx")
    for kept in ([], ["mean"]):
        settings: dict[str, Any] = {"node_block_list": kept} if kept else {}
        x = np.full((2, 4096), 54.0, np.float32)
        report = compare(str(tmp_path / "m.onnx"), run_mode="ort_fp16_sim", inputs={"x": x}, **settings)
        assert ("sum_overflows" in {doubt.code for doubt in report.doubts}) is (not kept)
        assert report.exit_status == (0 if kept else 1)
