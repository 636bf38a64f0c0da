"""A tensor that a file quantises on a range, of all or of one channel, that its values do not have."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from onnx import helper

import precision_debug
from precision_debug.report.model import Verdict

CHANNELS = 8
RANDOM = np.random.default_rng(0)
WEIGHTS = [(RANDOM.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 8).astype(np.float32) for _ in range(3)]
SIZES = np.array([1, 2, 4, 8, 0.5, 3, 6, 1.5], np.float32).reshape(1, CHANNELS, 1, 1)
X = np.random.default_rng(1).standard_normal((2, CHANNELS, 12, 12)).astype(np.float32)
LARGEST = np.array([2.6, 5.3, 13.9, 23.4, 1.63, 9.92, 21.8, 3.22], np.float32)
"""Of each channel of `scaled`, about."""

NODES = [
    helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1] * 4), helper.make_node("Relu", ["c0"], ["r0"]),
    helper.make_node("Mul", ["r0", "sizes"], ["scaled"]),
]  # fmt: skip


def _save(path: Path, ends: Any = None) -> str:
    """Three convolutions; ends: what the second one reads is quantised up to these, of all or of each channel."""
    nodes, read, constants = [*NODES], "scaled", {f"w{place}": one for place, one in enumerate(WEIGHTS)}
    constants["sizes"] = SIZES
    if ends is not None:
        constants |= {"s": (ends / 255).astype(np.float32), "z": np.zeros(np.shape(ends), np.uint8)}
        ways = {"axis": 1} if np.ndim(ends) else {}
        nodes += [
            helper.make_node("QuantizeLinear", ["scaled", "s", "z"], ["codes"], **ways),
            helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["back"], **ways),
        ]  # fmt: skip
        read = "back"
    for place, (source, product, made) in enumerate(((read, "c1", "r1"), ("r1", "c2", "r2")), 1):
        nodes.append(helper.make_node("Conv", [source, f"w{place}"], [product], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [product], [made]))
    shape = [2, CHANNELS, 12, 12]
    model = onnx_models.model(
        nodes, [onnx_models.value("x", shape)], [onnx_models.value("r2", shape)], constants, opset=17
    )  # fmt: skip
    onnx.save(model, path)
    return str(path)


def _save_with_grid(path: Path, ends: Any) -> str:
    """The same, its quantiser as one FakeQuantize of an IR."""
    import openvino
    from openvino import opset13

    model = openvino.Core().read_model(_save(path.with_suffix(".onnx")))
    made = next(op for op in model.get_ops() if op.get_friendly_name() == "scaled")
    (reader,) = made.output(0).get_target_inputs()
    low = np.zeros((1, CHANNELS, 1, 1), np.float32)
    high = np.broadcast_to(np.reshape(ends, (1, -1, 1, 1)), low.shape).astype(np.float32)
    reader.replace_source_output(opset13.fake_quantize(made, low, high, low, high, 256, name="grid").output(0))
    openvino.save_model(model, str(path), compress_to_fp16=False)
    return str(path)


def _spoil(fault: str) -> Any:
    ends = LARGEST.copy()
    if fault == "narrow":
        ends[3] *= 0.3
    elif fault == "order":
        ends[[2, 3]] = ends[[3, 2]]
    elif fault == "all":
        return LARGEST.max() * 0.3
    return ends


WAYS = [
    pytest.param(mode, save, id=f"{mode} {kind}", marks=marks)
    for mode, kind, save in (
        ("ort_fp32", "QDQ", _save), ("ort_opt", "QDQ", _save), ("ov_fp32", "QDQ", _save), ("ov_opt", "QDQ", _save),
        ("ov_fp32", "IR", _save_with_grid), ("ov_opt", "IR", _save_with_grid),
    )
    for marks in [[pytest.mark.skipif(mode[:2] == "ov" and not find_spec("openvino"), reason="no openvino")]]
]  # fmt: skip


@pytest.mark.parametrize(("mode", "save"), WAYS)
@pytest.mark.parametrize("fault", ["", "narrow", "order", "all"])
def test_a_range_that_the_values_do_not_have_is_told_with_its_channel(
    tmp_path: Path, mode: str, save: Callable[[Path, Any], str], fault: str
) -> None:
    target = save(tmp_path / ("target.xml" if save is _save_with_grid else "target.onnx"), _spoil(fault))
    report = precision_debug.compare(
        target, baseline_model=_save(tmp_path / "base.onnx"), run_mode=mode, inputs={"x": X},
        baseline=f"{mode.partition('_')[0]}_fp32",
    )  # fmt: skip
    found = report.explanation.culprits if report.explanation is not None else ()
    if not fault:
        assert (report.verdict, found) == (Verdict.EXPECTED, ())
        return
    (one,) = found
    assert report.verdict is Verdict.FAIL
    if fault == "all" and mode.startswith("ort"):  # its result ends there
        assert one.cause == "saturation"
        return
    assert (one.cause, one.evidence["from"]) == ("other_range", "scaled")
    assert one.evidence["left"] < 0.1
    if fault == "narrow":
        assert (one.evidence["channel"], one.evidence["axis"], one.evidence["count"]) == (3, 1, 1)
        assert one.evidence["high"] == pytest.approx(LARGEST[3] * 0.3, rel=1e-3)
    elif fault == "order":
        assert one.evidence["order"] == [0, 1, 3, 2, 4, 5, 6, 7]
