"""An operator whose weight, input and result each lose some on a grid: all of them together are why, and none alone."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from precision_debug import compare

CHANNELS = 16


def write_folded_pair(folder: Path, apart: float, *, static: bool) -> tuple[Path, Path, dict[str, Any]]:
    """Write a depthwise convolution before a batch normalisation whose factors span three decades, and what ONNX
    Runtime's own quantiser makes of it; its inputs are smaller where the factors are larger, by a power of them."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    rng = np.random.default_rng(0)
    factors = np.linspace(-1.5, 1.5, CHANNELS)
    rng.shuffle(factors)
    constants = {
        "w": rng.standard_normal((CHANNELS, 1, 3, 3)), "factors": 10**factors, "offsets": rng.standard_normal(CHANNELS),
        "mean": np.zeros(CHANNELS), "variance": np.ones(CHANNELS),
    }  # fmt: skip
    shape = [1, CHANNELS, 24, 24]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4, group=CHANNELS),
        helper.make_node("BatchNormalization", ["c", "factors", "offsets", "mean", "variance"], ["y"], epsilon=0.0),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(one.astype(np.float32), name) for name, one in constants.items()],
    )  # fmt: skip
    x = rng.standard_normal(shape) * 10 ** (-apart * factors.reshape(-1, 1, 1))
    feeds = {"x": x.astype(np.float32)}
    plain, prepared, quantised = (folder / f"{name}.onnx" for name in ("plain", "prepared", "quantised"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), plain)
    quant_pre_process(plain, prepared, skip_symbolic_shape=True)

    class Reader(CalibrationDataReader):
        left = iter((feeds, None))

        def get_next(self) -> Any:
            return next(self.left)

    if static:
        quantize_static(prepared, quantised, Reader(), weight_type=QuantType.QInt8)
    else:
        quantize_dynamic(prepared, quantised, weight_type=QuantType.QInt8)
    return plain, quantised, feeds


def measure_parts(plain: Path, feeds: dict[str, Any]) -> dict[str, float]:
    """Return the squared error of rounding the folded weight, and the input, on one grid each, by numpy."""
    held = {one.name: numpy_helper.to_array(one).astype(np.float64) for one in onnx.load(plain).graph.initializer}
    weight = held["w"] * held["factors"].reshape(-1, 1, 1, 1)
    step = np.abs(weight).max() / 127
    x = feeds["x"].astype(np.float64)
    fine = (max(x.max(), 0) - min(x.min(), 0)) / 255
    exact = convolve(x, weight)
    made = {"w": convolve(x, np.rint(weight / step) * step), "x": convolve(np.rint(x / fine) * fine, weight)}
    return {name: float(np.sum((one - exact) ** 2)) for name, one in made.items()}


def convolve(x: Any, weight: Any) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    size = x.shape[2:]
    return sum(
        padded[:, :, i : i + size[0], j : j + size[1]] * weight[:, 0, i, j].reshape(1, -1, 1, 1)
        for i in range(3) for j in range(3)
    )  # fmt: skip


def read_parts(text: str) -> dict[str, float]:
    return {name: float(share) / 100 for name, share in re.findall(r"`(\w+)` (\d+)%", text)}


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("apart", [1.05, 1.1, 1.13, 1.2])
def test_what_a_folded_weight_and_its_input_make_is_told_of_both(tmp_path: Path, apart: float, static: bool) -> None:
    plain, quantised, feeds = write_folded_pair(tmp_path, apart, static=static)
    report = compare(quantised, baseline_model=plain, run_mode="ort_opt", inputs=feeds)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert first.cause in {"coarse", "constant_scale", "outlier_channel"}, first
    expected, told = measure_parts(plain, feeds), read_parts(str(first.evidence["parts"]))
    whole = sum(expected.values())
    assert told.keys() == {"w", "x"}
    assert all(math.isclose(told[name], expected[name] / whole, abs_tol=0.06) for name in told), (told, expected)
    assert next(iter(told)) == max(told, key=lambda name: told[name])
    assert first.evidence.get("folded") == "BatchNormalization" or first.evidence.get("from") == "x"
