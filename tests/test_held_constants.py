"""What is told of a constant in few bits is counted in the codes that the target's own file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from planted.onnx_faults import Graph
from planted.twentieth_onnx import CASES
from planted.twentyfirst_narrow import CASES as NARROW

import precision_debug

pytest.importorskip("onnxruntime.quantization")


def find_first(folder: Path, name: str) -> tuple[Path, Any]:
    """A case's file and its first culprit."""
    one = next(one for one in (*CASES, *NARROW) if one.name == name)
    model, _, feeds = one.make(folder)
    options = dict(word.split("=") for word in one.options if "=" in word)
    report = precision_debug.compare(model, run_mode=one.mode, inputs=feeds, **options)
    assert report.explanation is not None
    return model, report.explanation.culprits[0]


def test_what_becomes_0_in_4_bits_is_counted_in_the_engines_own_codes(tmp_path: Path) -> None:
    quantiser = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    model, first = find_first(tmp_path, "blocks_with_one_weight_of_twenty")
    made = quantiser.MatMulNBitsQuantizer(onnx.load(model), bits=4, block_size=128, is_symmetric=True)
    made.process()
    node = next(node for node in made.model.model.graph.node if node.op_type == "MatMulNBits")
    held = {one.name: numpy_helper.to_array(one) for one in made.model.model.graph.initializer}
    packed = held[node.input[1]]
    codes = np.concatenate([packed & 15, packed >> 4], axis=None)
    assert first.cause == "constant_scale"
    assert first.evidence["share"] == pytest.approx(np.mean(codes == 8), abs=1e-6)
    assert first.evidence["left"] == pytest.approx(0, abs=1e-4)  # all of it restored, as it is told


def test_what_becomes_0_in_8_bits_is_counted_in_the_engines_own_codes(tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    model, first = find_first(tmp_path, "one_weight_of_a_hundred_in_dynamic_int8")
    quantize_dynamic(str(model), str(tmp_path / "q.onnx"), reduce_range=True)
    held = {one.name: numpy_helper.to_array(one) for one in onnx.load(tmp_path / "q.onnx").graph.initializer}
    assert first.cause == "constant_scale"
    assert first.evidence["share"] == pytest.approx(np.mean(held["h.w_quantized"] == 0), abs=1e-6)
    assert first.evidence["left"] < 0.2


def test_a_scale_that_unlike_channels_share_is_why_and_not_the_type(tmp_path: Path) -> None:
    """Channels of ten sizes to one, none of them an outlier; those that are small are as large again behind it."""
    g = Graph(seed=11)
    x = g.input("x", g.random.normal(size=(6, 32)).astype(np.float32))
    sizes = np.geomspace(1, 0.1, 64).astype(np.float32)
    g.weight("w", g.random.normal(size=(32, 64)) / 6 * sizes)
    h = g.op("MatMul", [x, "w"], "h")
    back = g.op("Mul", [h, g.weight("back", 1 / sizes**2)], "back_up")
    model = g.save(tmp_path / "m.onnx", [g.op("Tanh", [back], "y")])
    report = precision_debug.compare(
        model, run_mode="ort_int8_dynamic", inputs=g.feeds, reduce_range="True", atol=1e-3, rtol=1e-3
    )
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) == ("h", "outlier_channel")
    assert (first.evidence["several"], first.evidence["axis"]) == ("w", 1)
    assert first.evidence["left"] < 0.7


@pytest.mark.parametrize(("levels", "fits"), [(1, 1), (3, 3), (0, 0)])
def test_numbers_that_another_scale_of_the_type_holds_exactly_are_told(levels: int, fits: int, tmp_path: Path) -> None:
    """Of -1, 0 and 1, or of -3 to 3, times a number for each column; ONNX Runtime's scale is the largest / 8."""
    pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    g = Graph(seed=12)
    x = g.input("x", g.random.normal(size=(4, 128)).astype(np.float32))
    plain = g.random.integers(-levels, levels + 1, (128, 32)) if levels else g.random.normal(size=(128, 32))
    g.weight("w", plain * g.random.uniform(0.05, 0.2, 32))
    model = g.save(tmp_path / "m.onnx", [g.op("MatMul", [x, "w"], "y")])
    report = precision_debug.compare(model, run_mode="ort_int4", inputs=g.feeds, atol=1e-3, rtol=1e-3)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) == ("y", "coarse")
    assert first.evidence.get("fits", 0) == fits
    if fits:
        assert first.evidence["weight"] == "w"
        assert first.evidence["left"] < 1e-3
