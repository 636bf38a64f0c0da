"""Each tensor is judged, and each cause told, by the type that really holds it or that its operator really reads."""

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
from precision_debug.reasons import as_reason
from precision_debug.report.model import Report, Verdict

WIDE, ROWS, BLOCK = 64, 8, 32
node = helper.make_node


def saved(path: Path, nodes: list[Any], weights: dict[str, Any], kind: int = TensorProto.FLOAT) -> str:
    value = helper.make_tensor_value_info
    held = [numpy_helper.from_array(np.asarray(one), name) for name, one in weights.items()]
    graph = helper.make_graph(nodes, "g", [value("x", kind, [ROWS, WIDE])], [value("y", kind, [ROWS, WIDE])], held)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=10), path)
    return str(path)


def in_blocks(path: Path, level: int, largest: float) -> str:
    """A product with weights of 4 bits; largest: of one channel of what it reads, of which the others have about 1."""
    random = np.random.default_rng(3)
    whole = random.integers(0, 16, (WIDE, WIDE // BLOCK, BLOCK)).astype(np.uint8)
    whole[:, 0, 7] = 8  # the massive channel itself makes nothing
    gain = np.ones(WIDE, np.float32)
    gain[7] = largest
    product = node(
        "MatMulNBits", ["scaled", "w", "s"], ["y"], "product", domain="com.microsoft", bits=4, block_size=BLOCK,
        K=WIDE, N=WIDE, accuracy_level=level,
    )  # fmt: skip
    scales = random.uniform(0.01, 0.02, WIDE * WIDE // BLOCK).astype(np.float32)
    weights = {"w": whole[..., 0::2] | (whole[..., 1::2] << 4), "s": scales, "gain": gain}
    return saved(path, [node("Mul", ["x", "gain"], ["scaled"], "gains"), product], weights)


def compared(model: str, **options: Any) -> Report:
    x = np.random.default_rng(0).normal(size=(ROWS, WIDE)).astype(options.pop("kind", np.float32))
    return precision_debug.compare(model, run_mode="ort_opt", inputs={"x": x}, **options)


def test_a_product_in_int8_by_the_files_word_is_seen_against_float32(tmp_path: Path) -> None:
    """One channel is 1200 times the others: the 8 bits of its block have nothing left for them."""
    report = compared(in_blocks(tmp_path / "m.onnx", 4, 1200.0))
    assert report.verdict is Verdict.FAIL
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause, first.evidence["from"]) == ("y", "reads_rounded", "scaled")
    assert first.evidence["left"] < 0.1
    assert "onnxruntime.multiplied_in_float32" in {as_reason(note).code for note in report.baseline.notes}


def test_a_product_in_int8_that_loses_what_8_bits_lose_is_as_expected(tmp_path: Path) -> None:
    report = compared(in_blocks(tmp_path / "m.onnx", 4, 1.0))
    error = report.outputs[0].relative_l2
    assert error is not None
    assert 1e-3 < error < 0.03
    assert report.verdict is Verdict.EXPECTED


def test_weights_of_4_bits_alone_are_the_same_on_both_sides(tmp_path: Path) -> None:
    report = compared(in_blocks(tmp_path / "m.onnx", 0, 1200.0), explain="full")
    assert report.explanation is not None
    assert report.explanation.allowed is not None
    assert float(report.explanation.allowed) <= 1e-4


def test_the_second_opinion_calls_no_kernel_wrong_that_does_as_its_file_asks(tmp_path: Path) -> None:
    report = compared(in_blocks(tmp_path / "m.onnx", 4, 1200.0), second_opinion=True)
    assert report.explanation is not None
    assert {one.cause for one in report.explanation.culprits} == {"reads_rounded"}


@pytest.mark.parametrize("mode", ["ort_opt", "ort_fp32"])
def test_a_float16_file_whose_kernels_run_in_float32_says_so(tmp_path: Path, mode: str) -> None:
    random = np.random.default_rng(1)
    weights = {f"w{number}": (random.normal(size=(WIDE, WIDE)) / 8).astype(np.float16) for number in range(2)}
    nodes = [
        node("MatMul", ["x", "w0"], ["a"], "a"), node("Relu", ["a"], ["b"], "b"),
        node("MatMul", ["b", "w1"], ["y"], "y"),
    ]  # fmt: skip
    model = saved(tmp_path / "m.onnx", nodes, weights, TensorProto.FLOAT16)
    x = random.normal(size=(ROWS, WIDE)).astype(np.float16)
    report = precision_debug.compare(model, run_mode=mode, baseline="ort_fp32", inputs={"x": x})
    told = [one for one in map(as_reason, report.target.notes) if one.code == "onnxruntime.file_in_float32_on_cpu"]
    assert [(one.args["single"], one.args["all"]) for one in told] == [(3, 3)]


def test_a_float32_file_says_nothing_of_float16(tmp_path: Path) -> None:
    model = saved(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"], "y")], {})
    codes = {as_reason(note).code for note in compared(model).target.notes}
    assert "onnxruntime.file_in_float32_on_cpu" not in codes


@pytest.mark.parametrize(("kind", "times"), [(np.uint16, 300.0), (np.int16, 300.0), (np.uint8, 12.0), (np.int8, 12.0)])
@pytest.mark.parametrize("read", ["h", "p"], ids=["a sum", "a softmax"])
def test_a_scale_far_too_large_is_told_with_the_tensor_that_has_it(
    tmp_path: Path, kind: type, times: float, read: str
) -> None:
    """Behind a product, and behind a softmax, whose reader is the first that shows it."""
    random = np.random.default_rng(0)
    weights = {name: (random.normal(size=(WIDE, WIDE)) / 8).astype(np.float32) for name in ("w0", "w1")}
    x = np.random.default_rng(0).normal(size=(ROWS, WIDE)).astype(np.float32)
    h = x @ weights["w0"]
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    values = {"x": x, "h": h, "p": p}

    def graph(quantised: bool) -> list[Any]:
        end = "_d" if quantised else ""
        nodes, made = [], []
        if quantised:
            for name in values:
                made.append(
                    [node("QuantizeLinear", [name, f"{name}_s", f"{name}_z"], [f"{name}_q"], f"{name}_q"),
                     node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"], f"{name}_d")]
                )  # fmt: skip
        body = [
            node("MatMul", [f"x{end}", "w0"], ["h"], "h"), node("Softmax", [f"h{end}"], ["p"], "p", axis=-1),
            node("MatMul", [f"p{end}", "w1"], ["y"], "y"),
        ]  # fmt: skip
        for place, one in enumerate(body):
            nodes += made[place] if quantised else []
            nodes.append(one)
        return nodes

    held = dict(weights)
    for name, one in values.items():
        low, high = min(0.0, float(one.min())), max(0.0, float(one.max()))
        limits = np.iinfo(kind)
        scale = (high - low) / (int(limits.max) - int(limits.min)) * (times if name == read else 1.0)
        held |= {f"{name}_s": np.float32(scale), f"{name}_z": kind(max(limits.min, round(limits.min - low / scale)))}
    plain = saved(tmp_path / "plain.onnx", graph(False), weights)
    quantised = saved(tmp_path / "quantised.onnx", graph(True), held)
    report = compared(quantised, baseline_model=plain, baseline="ort_fp32")
    assert report.explanation is not None
    assert report.explanation.culprits, report.explanation
    first = report.explanation.culprits[0]
    assert (first.cause, first.evidence.get("from")) == ("coarse_scale", read), first
    assert times / 2 < first.evidence["scale"] / first.evidence["fits"] < 2 * times
