"""A weight in integers whose scale is not the one that they were made with is lost, whatever the outputs feel of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_models
import pytest
from onnx import TensorProto, helper

import precision_debug

RANDOM = np.random.default_rng(7)
WIDE, BLOCK = 64, 16
IDS = RANDOM.integers(0, 40, (2, 12)).astype(np.int64)
TABLE = RANDOM.standard_normal((40, WIDE)).astype(np.float32)
W1, W2 = ((RANDOM.standard_normal((WIDE, WIDE)) / 8).astype(np.float32) for _ in range(2))
LITTLE = 0.03
"""Of what the branch makes, what the outputs get: as much as few bits of the table make, whatever happens in it."""

Nodes = list[Any]
Constants = dict[str, Any]


def save(path: Path, table: Nodes, product: Nodes, constants: Constants, *further: Any) -> str:
    nodes = [
        *table, *product,
        helper.make_node("Tanh", ["a"], ["t"]), helper.make_node("MatMul", ["t", "w2"], ["b"], name="second"),
        helper.make_node("Mul", ["b", "little"], ["s"]), helper.make_node("Add", ["e", "s"], ["y"]),
    ]  # fmt: skip
    held = {"w2": W2, "little": np.float32(LITTLE)} | constants
    model = onnx_models.model(
        nodes, [onnx_models.value("ids", [2, 12], TensorProto.INT64)], [onnx_models.value("y", [2, 12, WIDE])],
        {name: value for name, value in held.items() if isinstance(value, (np.ndarray, np.generic))}, opset=21,
    )  # fmt: skip
    model.graph.initializer.extend(further)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, path)
    return str(path)


GATHER = helper.make_node("Gather", ["table", "ids"], ["e"], name="look_up")
MATMUL = helper.make_node("MatMul", ["e", "w1"], ["a"], name="first")


def round_to(values: Any, most: float, axis: int, block: int) -> tuple[Any, Any]:
    """Return whole numbers up to ``most`` and the scale of each block along an axis, each fitting its largest."""
    parts = np.moveaxis(values, axis, -1)
    parts = parts.reshape(*parts.shape[:-1], -1, block)
    scale = np.abs(parts).max(-1, keepdims=True) / most
    whole = np.rint(parts / scale).reshape(*parts.shape[:-2], -1)
    return np.moveaxis(whole, -1, axis), np.moveaxis(scale[..., 0], -1, axis).astype(np.float32)


def pack(whole: Any) -> Any:
    """Return two numbers of -8 to 7 in each byte, with a zero point of 8."""
    held = (whole + 8).astype(np.uint8)
    return held[..., ::2] | (held[..., 1::2] << 4)


def of_nbits(path: Path, change: Callable[[Any], Any]) -> str:
    whole, scale = round_to(W1.T, 7, 1, BLOCK)
    packed = pack(whole).reshape(WIDE, WIDE // BLOCK, BLOCK // 2)
    node = helper.make_node("MatMulNBits", ["e", "q", "q.s"], ["a"], name="first", domain="com.microsoft", K=WIDE,
                            N=WIDE, bits=4, block_size=BLOCK)  # fmt: skip
    return save(path, [GATHER], [node], {"table": TABLE, "q": packed, "q.s": change(scale).reshape(-1)})


def of_blocked_dequantisation(path: Path, change: Callable[[Any], Any]) -> str:
    whole, scale = round_to(W1, 7, 0, BLOCK)
    held = helper.make_tensor("q", TensorProto.INT4, W1.shape, whole.astype(np.int8).reshape(-1))
    node = helper.make_node("DequantizeLinear", ["q", "q.s"], ["w1"], axis=0, block_size=BLOCK)
    return save(path, [GATHER], [node, MATMUL], {"table": TABLE, "q.s": change(scale)}, held)


def of_channels(kind: Any, most: float) -> Callable[[Path, Callable[[Any], Any]], str]:
    def make(path: Path, change: Callable[[Any], Any]) -> str:
        whole, scale = round_to(W1, most, 0, WIDE)
        whole = whole if np.dtype(kind) == np.int8 else W1 / scale
        held = onnx.numpy_helper.from_array(whole.astype(kind), "q")
        node = helper.make_node("DequantizeLinear", ["q", "q.s"], ["w1"], axis=1)
        return save(path, [GATHER], [node, MATMUL], {"table": TABLE, "q.s": change(scale).reshape(-1)}, held)

    return make


def of_table(path: Path, change: Callable[[Any], Any]) -> str:
    whole, scale = round_to(TABLE, 7, 1, BLOCK)
    node = helper.make_node("GatherBlockQuantized", ["q", "ids", "q.s"], ["e"], name="look_up", domain="com.microsoft",
                            block_size=BLOCK, quantize_axis=1, gather_axis=0, bits=4)  # fmt: skip
    return save(path, [node], [MATMUL], {"w1": W1, "q": pack(whole), "q.s": change(scale)})


FORMS = {
    "MatMulNBits": ("a", of_nbits),
    "blocked int4": ("a", of_blocked_dequantisation),
    "int8 by channel": ("a", of_channels(np.int8, 127)),
    "float8 by channel": ("a", of_channels(ml_dtypes.float8_e4m3fn, 448)),
    "GatherBlockQuantized": ("e", of_table),
}


def compared(folder: Path, form: str, change: Callable[[Any], Any]) -> Any:
    whole = save(folder / "whole.onnx", [GATHER], [MATMUL], {"table": TABLE, "w1": W1})
    held = FORMS[form][1](folder / "held.onnx", change)
    return precision_debug.compare(held, run_mode="ort_fp32", baseline_model=whole, inputs={"ids": IDS})


@pytest.mark.parametrize("form", FORMS)
def test_what_was_rounded_well_is_as_expected(form: str, tmp_path: Path) -> None:
    report = compared(tmp_path, form, lambda scale: scale)
    assert report.exit_status == 0
    assert not report.explanation.culprits


@pytest.mark.parametrize("times", [5.0, 0.25])
@pytest.mark.parametrize("form", FORMS)
def test_a_scale_that_is_another_one_is_named_whatever_the_outputs_feel(
    form: str, times: float, tmp_path: Path
) -> None:
    def change(scale: Any) -> Any:
        other = scale.copy()
        other.reshape(-1)[: scale.size // 4] *= times
        return other

    report = compared(tmp_path, form, change)
    (first, *_) = report.explanation.culprits
    assert report.exit_status == 1
    assert (first.name, first.cause) == (FORMS[form][0], "scale")
    assert first.evidence["ratio"] == pytest.approx(times, rel=0.1)
