"""A scale far too large for an activation is named, whether the file says it by an operator or within one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.records import Culprit

Array = np.ndarray[Any, Any]


def _convolutions(g: Graph) -> Sequence[str]:
    h = g.conv(g.input("x", g.random.uniform(0, 1, (2, 3, 8, 8)).astype(np.float32)), 3, 8, "h")
    return [g.conv(h, 8, 4, "y")]


def _products(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.standard_normal((8, 16)).astype(np.float32))
    h = g.op("MatMul", [x, g.weight("v", g.random.standard_normal((16, 16)).astype(np.float32))], "h")
    return [g.op("MatMul", [h, g.weight("w", g.random.standard_normal((16, 8)).astype(np.float32))], "y")]


def _gemms(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.standard_normal((8, 16)).astype(np.float32))
    bias = g.weight("b", g.random.standard_normal(16).astype(np.float32))
    h = g.op("Gemm", [x, g.weight("v", g.random.standard_normal((16, 16)).astype(np.float32)), bias], "h")
    return [g.op("Gemm", [h, g.weight("w", g.random.standard_normal((16, 8)).astype(np.float32))], "y")]


def _sums(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.standard_normal((8, 16)).astype(np.float32))
    h = g.op("MatMul", [x, g.weight("v", g.random.standard_normal((16, 16)).astype(np.float32))], "h")
    return [g.op("Add", [h, g.op("Sigmoid", [h], "s")], "y")]


class _Feeds(CalibrationDataReader):
    def __init__(self, feeds: dict[str, Array]) -> None:
        self.left: Iterator[dict[str, Array]] = iter([feeds])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.left, None)


def _find_first_culprit(
    folder: Path, build: Any, way: QuantFormat, mode: str, faults: dict[str, float], times: float = 1.0
) -> Culprit:
    """Of a file that is quantised by the stock tool, with the scales of some tensors multiplied; times: what it is
    calibrated on is larger than what it is fed."""
    g = Graph(seed=5)
    base, target = g.save(folder / "base.onnx", list(build(g))), folder / "target.onnx"
    larger = {name: (one * times).astype(one.dtype) for name, one in g.feeds.items()}
    quantize_static(str(base), str(target), _Feeds(larger), quant_format=way, weight_type=QuantType.QInt8)
    model = onnx.load(target)
    assert {f"{name}_scale" for name in faults} <= {tensor.name for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        if (name := tensor.name.removesuffix("_scale")) in faults and tensor.name.endswith("_scale"):
            scale = numpy_helper.to_array(tensor) * np.float32(faults[name])
            tensor.CopyFrom(numpy_helper.from_array(scale, tensor.name))
    onnx.save(model, target)
    report = precision_debug.compare(
        target, run_mode=mode, baseline="ort_fp32", baseline_model=base, inputs=dict(g.feeds)
    )  # fmt: skip
    assert report.explanation is not None
    assert report.explanation.culprits, report.explanation
    return report.explanation.culprits[0]


@pytest.mark.parametrize("way", [QuantFormat.QDQ, QuantFormat.QOperator], ids=["qdq", "qoperator"])
@pytest.mark.parametrize(
    ("build", "tensor"),
    [(_convolutions, "h"), (_convolutions, "y"), (_products, "h"), (_products, "x"), (_gemms, "h"), (_sums, "s"),
     (_sums, "y")],
    ids=lambda one: one if isinstance(one, str) else one.__name__[1:],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["ort_opt", "ort_fp32"])
def test_the_tensor_and_the_scale_that_fits_are_named(
    build: Any, tensor: str, way: QuantFormat, mode: str, tmp_path: Path
) -> None:
    culprit = _find_first_culprit(tmp_path, build, way, mode, {tensor: 100})
    assert (culprit.cause, culprit.evidence.get("from")) == ("coarse_scale", tensor), culprit
    assert 50 < culprit.evidence["scale"] / culprit.evidence["fits"] < 200


@pytest.mark.parametrize("way", [QuantFormat.QDQ, QuantFormat.QOperator], ids=["qdq", "qoperator"])
@pytest.mark.parametrize("build", [_convolutions, _products, _gemms, _sums], ids=lambda one: str(one.__name__[1:]))
def test_a_file_calibrated_on_larger_numbers_is_told_by_a_scale(build: Any, way: QuantFormat, tmp_path: Path) -> None:
    culprit = _find_first_culprit(tmp_path, build, way, "ort_opt", {}, times=255)
    assert culprit.cause == "coarse_scale", culprit
    assert culprit.evidence["scale"] > 4 * culprit.evidence["fits"]
