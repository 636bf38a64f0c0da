"""A target of 16-bit integers is judged by 16-bit steps, and one that has coarser ones beside them by these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="the models are ONNX's")
pytest.importorskip("onnxruntime", reason="they run in ONNX Runtime")

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import precision_debug
from precision_debug.report.model import Report, Verdict

F = np.float32
ROWS, WIDE = 64, 32


def layers(quantised: bool) -> list[Any]:
    """Three products, each with a tensor before it that is quantised or is not."""
    nodes, x = [], "x"
    for number in range(3):
        read = x
        if quantised:
            scale, zero = f"{x}_s", f"{x}_z"
            nodes += [
                helper.make_node("QuantizeLinear", [x, scale, zero], [f"{x}_q"], name=f"{x}_q"),
                helper.make_node("DequantizeLinear", [f"{x}_q", scale, zero], [f"{x}_d"], name=f"{x}_d"),
            ]
            read = f"{x}_d"
        weight = f"w{number}"
        x = "y" if number == 2 else f"h{number}"
        nodes.append(helper.make_node("MatMul", [read, weight], [x], name=x))
    return nodes


def report_of(folder: Path, *, times: float = 1.0, coarse_weights: bool = False) -> Report:
    """times: that the second tensor's scale is too large. coarse_weights: they have the values that 8 bits give."""
    random = np.random.default_rng(0)
    weights = [random.normal(size=(WIDE, WIDE)).astype(F) / 6 for _ in range(3)]
    x = random.normal(size=(ROWS, WIDE)).astype(F)
    value = helper.make_tensor_value_info
    ends = [value("x", TensorProto.FLOAT, x.shape)], [value("y", TensorProto.FLOAT, x.shape)]
    paths = []
    for quantised in (False, True):
        held = [numpy_helper.from_array(rounded(one) if quantised and coarse_weights else one, f"w{number}")
                for number, one in enumerate(weights)]  # fmt: skip
        shown = x
        for number, name in enumerate(["x", "h0", "h1"] if quantised else []):
            shown = x if not number else shown @ weights[number - 1]
            low, high = float(shown.min()), float(shown.max())
            scale = F((high - low) / 65535)
            zero = np.uint16(round(-low / scale))
            if name == "h0":
                scale, zero = F(scale * times), zero if times == 1 else np.uint16(32768)
            held += [numpy_helper.from_array(np.array(scale), f"{name}_s"),
                     numpy_helper.from_array(np.array(zero), f"{name}_z")]  # fmt: skip
        graph = helper.make_graph(layers(quantised), "layers", *ends, held)
        paths.append(folder / f"{quantised}.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), paths[-1])
    return precision_debug.compare(
        str(paths[1]), baseline_model=str(paths[0]), run_mode="ort_opt", baseline="ort_fp32", inputs={"x": x}
    )


def rounded(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    step = np.abs(weights).max() / 127
    return (np.rint(weights / step) * step).astype(F)


def test_a_healthy_one_is_as_expected_far_below_what_8_bits_cost(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    assert report.explanation is not None
    assert report.explanation.culprits == ()
    assert report.verdict is Verdict.EXPECTED
    assert 0 < float(report.explanation.unit) < 1e-3
    assert (report.outputs[0].relative_l2 or 0) < float(report.explanation.allowed or 0) < 0.05


def test_a_scale_that_leaves_it_8_bits_fails(tmp_path: Path) -> None:
    report = report_of(tmp_path, times=500)
    assert report.verdict is Verdict.FAIL
    assert (report.outputs[0].relative_l2 or 0) < 0.05
    assert report.explanation is not None
    culprit = report.explanation.culprits[0]
    assert (culprit.name, culprit.cause) == ("h0", "coarse_scale")  # and not h1, which reads it
    assert culprit.evidence["from"] == "h0"
    assert culprit.evidence["used"] < 65536 / 100
    assert culprit.evidence["left"] < 0.05


def test_weights_of_8_bits_are_judged_by_these(tmp_path: Path) -> None:
    report = report_of(tmp_path, coarse_weights=True)
    assert report.explanation is not None
    assert float(report.explanation.unit) >= 5e-3
    assert report.verdict is Verdict.EXPECTED
