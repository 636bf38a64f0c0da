"""A scale of 0, NaN, Inf or next to nothing is the cause that is told, whoever wrote it into whichever file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the models are ONNX's")
pytest.importorskip("onnxruntime", reason="they run in ONNX Runtime")

from planted.onnx_faults import Graph
from planted.onnx_further import k

import precision_debug
from precision_debug.records import Culprit

Array = np.ndarray[Any, Any]
BROKEN = {"0": 0.0, "NaN": np.nan, "Inf": np.inf, "1.001e-42": 1e-42}


def quantise(g: Graph, x: str, out: str, kind: Any, scale: float, read: float) -> str:
    zero = g.weight(f"{out}.z", np.zeros((), kind))
    g.op("QuantizeLinear", [x, k(g, f"{out}.s", scale), zero], f"{out}.q")
    return g.op("DequantizeLinear", [f"{out}.q", k(g, f"{out}.r", read), zero], out)


def net(g: Graph, *, kind: Any = None, scale: float | None = None, read: float | None = None,
        weight: float | None = None) -> list[str]:  # fmt: skip
    """Three products; of the second the result, or two channels of the weight, are on the scale that is given."""
    r = np.random.default_rng(5)
    x = g.input("x", r.normal(size=(4, 16)).astype(np.float32))
    for n in range(3):
        w = (r.normal(size=(16, 16)) / 4).astype(np.float32)
        if kind is None or weight is None:
            held = g.weight(f"w{n}", w)
        else:
            steps = (np.abs(w).max(0) / 127).astype(np.float32)
            g.weight(f"w{n}.q", np.round(w / steps).astype(np.int8))
            if n == 1:
                steps[[2, 5]] = weight
            g.weight(f"w{n}.s", steps), g.weight(f"w{n}.z", np.zeros(16, np.int8))
            held = g.op("DequantizeLinear", [f"w{n}.q", f"w{n}.s", f"w{n}.z"], f"w{n}", axis=1)
        x = g.op("MatMul", [x, held], f"h{n}")
        if kind is not None and weight is None:
            wrong, sound = n == 1, 6 / 127 if np.dtype(kind) != np.int16 else 6 / 32767
            first = sound if not wrong or scale is None else scale
            x = quantise(g, x, f"d{n}", kind, first, first if not wrong or read is None else read)
        x = g.op("Tanh", [x], f"y{n}")
    return [x]


def explain(folder: Path, mode: str = "ort_opt", **faults: Any) -> Culprit:
    plain, made = Graph(seed=9, opset=21), Graph(seed=9, opset=21)
    base, model = plain.save(folder / "base.onnx", net(plain)), made.save(folder / "m.onnx", net(made, **faults))
    report = precision_debug.compare(
        model, run_mode=mode, baseline=f"{mode.partition('_')[0]}_fp32", baseline_model=base, inputs=plain.feeds
    )
    assert report.explanation is not None
    return report.explanation.culprits[0]


@pytest.mark.parametrize("kind", [np.int8, np.int16])
@pytest.mark.parametrize("where", ["scale", "read"])
@pytest.mark.parametrize("broken", BROKEN)
def test_a_tensors_scale_in_a_file_that_was_given(tmp_path: Path, broken: str, where: str, kind: Any) -> None:
    first = explain(tmp_path, kind=kind, **{where: BROKEN[broken]})
    assert (first.cause, first.evidence["scale"]) == ("broken_scale", broken)
    assert first.name in {"h1", "y1"}
    assert (first.evidence["from"], first.evidence["type"]) == ("h1", np.dtype(kind).name)
    assert first.evidence["left"] < 0.1


@pytest.mark.parametrize("broken", BROKEN)
def test_the_scales_of_some_channels_of_a_weight(tmp_path: Path, broken: str) -> None:
    first = explain(tmp_path, kind=np.int8, weight=BROKEN[broken])
    assert (first.name, first.cause) == ("h1", "broken_scale")
    told = {key: first.evidence[key] for key in ("weight", "scale", "count", "elements")}
    assert told == {"weight": "w1", "scale": broken, "count": 2 * 16, "elements": 16 * 16}
    assert first.evidence["left"] < 0.1


@pytest.mark.skipif(not find_spec("openvino"), reason="openvino is not installed")
@pytest.mark.parametrize("mode", ["ov_fp32", "ov_opt"])
@pytest.mark.parametrize("where", ["scale", "read", "weight"])
@pytest.mark.parametrize("broken", BROKEN)
def test_openvino_reads_the_same_files(tmp_path: Path, broken: str, where: str, mode: str) -> None:
    """It makes a FakeQuantize, a Subtract and a Multiply of them, all of it one layer where it optimises."""
    if (mode, where, broken) == ("ov_opt", "scale", "NaN"):
        pytest.skip("OpenVINO 2026.4 does not compile it: its FuseClip asserts that the ends of a range are in order")
    first = explain(tmp_path, mode, kind=np.int8, **{where: BROKEN[broken]})
    assert (first.cause, first.evidence["scale"]) == ("broken_scale", broken)
    assert (first.evidence["type"], first.evidence.get("from"), first.evidence.get("weight")) == (
        "int8", *((None, "w1") if where == "weight" else ("h1", None))
    )  # fmt: skip
    assert first.evidence["left"] < 0.1


def compare_float8(folder: Path, g: Graph, outputs: list[str]) -> dict[str, Culprit]:
    report = precision_debug.compare(
        g.save(folder / "m.onnx", outputs), run_mode="ort_int8", inputs=g.feeds, explain="full",
        activation_type="float8", weight_type="float8",
    )
    assert report.explanation is not None
    return {one.name: one for one in report.explanation.culprits}


def product(g: Graph) -> str:
    r = np.random.default_rng(5)
    x = g.input("x", r.normal(size=(4, 16)).astype(np.float32))
    return g.op("MatMul", [x, g.weight("w", (r.normal(size=(16, 16)) / 4).astype(np.float32))], "h")


def test_a_constant_whose_numbers_are_all_alike_has_no_scale_in_float8(tmp_path: Path) -> None:
    g = Graph(opset=19)
    g.op("Mul", [product(g), g.weight("c", np.full(16, 0.7, np.float32))], "y")
    told = compare_float8(tmp_path, g, ["y"])["y"]
    assert (told.cause, told.evidence["weight"], told.evidence["scale"]) == ("broken_scale", "c", "0")
    assert told.evidence["left"] < 0.1


@pytest.mark.parametrize("size", [1e-3, 70.0])
def test_a_tensor_whose_numbers_are_all_alike_has_no_scale_in_float8(tmp_path: Path, size: float) -> None:
    """The deviation that is its scale is 0, or the root of a rounding error below 0."""
    g = Graph(opset=19)
    one = g.input("one", np.full(1, size, np.float32))
    g.op("Mul", [one, one], "square")
    g.op("Add", [product(g), "square"], "y")
    told = compare_float8(tmp_path, g, ["y"])
    assert (told["square"].cause, told["square"].evidence["from"]) == ("broken_scale", "square")
    assert told["square"].evidence["scale"] in {"0", "NaN"}
    assert told["square"].evidence["left"] < 0.1


def test_who_reads_a_broken_tensor_twice_is_judged_on_sound_numbers(tmp_path: Path) -> None:
    """ONNX Runtime dequantises once more for a second reader; what is put in place of one is for both."""
    g = Graph(opset=19)
    one = g.input("one", np.full(1, 3.0, np.float32))
    g.op("Mul", [one, one], "square")  # its own scale is a number
    g.op("Add", [product(g), "square"], "y")
    told = compare_float8(tmp_path, g, ["y"])
    assert told["one"].cause == "broken_scale"
    assert "square" not in told or told["square"].cause != "born"


def test_who_reads_a_tensor_of_sound_scale_beside_another_is_not_given_the_coarse_one(tmp_path: Path) -> None:
    """As seen of magika: a Reshape behind a product whose constant has a scale of 0 was told as too coarse; it read the
    tensor dequantised once more, in whose place nothing was put."""
    g = Graph(opset=19)
    g.op("Mul", [product(g), g.weight("c", np.full(16, 0.7, np.float32))], "gone")
    square = g.op("Mul", ["gone", "gone"], "square")
    turned = g.op("Reshape", ["gone", g.weight("shape", np.array([16, 4]))], "turned")
    summed = g.op("MatMul", [turned, square], "summed")
    told = compare_float8(tmp_path, g, [summed])
    assert told["gone"].evidence["weight"] == "c"
    assert "turned" not in told


def test_a_tensor_that_its_scale_in_float8_cuts_off_is_told_with_its_end(tmp_path: Path) -> None:
    """It was "overflow, above the type's maximum of 448", or "this type is too coarse" of numbers below that."""
    g = Graph(opset=19)
    one = g.input("one", np.array([3.0], np.float32))
    g.op("Mul", [one, one], "square")  # its deviation is next to nothing, and not 0
    g.op("Add", [product(g), "square"], "y")
    told = compare_float8(tmp_path, g, ["y"])["square"]
    assert told.cause == "saturation"
    assert told.evidence["limit"] < 0.1 < told.evidence["largest"]
    assert (told.evidence["share"], told.evidence["left"]) == (1.0, pytest.approx(0, abs=0.01))
