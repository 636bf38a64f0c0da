"""A constant that two files do not share, behind operators that read nothing but constants: it is named, by running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from planted.onnx_faults import Graph

import precision_debug

FLOAT = TensorProto.FLOAT


def less_zeros(g: Graph, codes: Any, name: str = "zeros_f") -> str:
    """Codes less their zero points in steps of 1/64, as GPTQ is unpacked: each is cast first."""
    zeros = g.weight("zeros", np.full(16, 120, np.uint8))
    both = [g.op("Cast", [one], made, to=FLOAT) for one, made in ((g.weight("codes", codes), "codes_f"), (zeros, name))]
    return g.op("Mul", [g.op("Sub", both, "less"), g.weight("step", np.float32(1 / 64))], "w")


def moved(g: Graph, codes: Any, name: str = "turned") -> str:
    """A part of a table, which nothing computes with before the product."""
    table = g.weight("codes", np.float32(np.vstack([codes - 128.0, codes])).reshape(-1) / 64)
    turned = g.op("Reshape", [table, g.weight("sizes", np.array([32, 16], np.int64))], name)
    bounds = [g.weight(one, np.full(1, number, np.int64)) for one, number in (("first", 0), ("last", 16))]
    return g.op("Transpose", [g.op("Slice", [turned, *bounds], "cut")], "w", perm=[1, 0])


def cast(g: Graph, codes: Any) -> str:
    return g.op("Cast", [g.weight("codes", codes)], "w", to=FLOAT)


def compare(folder: Path, build: Any, codes: Any, other: Any, mode: str = "ort_fp32", **told: Any) -> Any:
    """The first culprit between the model with these codes and the one with others; None where nobody is named."""
    for file, held in (("base", codes), ("other", other)):
        g = Graph(seed=5, opset=19)
        x = g.input("x", g.random.normal(size=(5, 16)).astype(np.float32))
        w = build(g, held, **(told if file == "other" else {}))
        g.save(folder / f"{file}.onnx", [g.dense(g.op("Tanh", [g.op("MatMul", [x, w], "h")], "t"), 16, 4, "y")])
    report = precision_debug.compare(
        folder / "other.onnx", baseline_model=str(folder / "base.onnx"), run_mode=mode, baseline="ort_fp32",
        inputs=g.feeds,
    )  # fmt: skip
    assert report.explanation is not None
    return next(iter(report.explanation.culprits), None)


BYTES = np.random.default_rng(3).integers(0, 256, (16, 16)).astype(np.uint8)


@pytest.mark.parametrize("told", [{}, {"name": "renamed"}], ids=["same names", "another name"])
@pytest.mark.parametrize("build", [less_zeros, moved])
def test_a_constant_behind_operators_that_read_constants_alone_is_named(
    build: Any, told: dict[str, str], tmp_path: Path
) -> None:
    one = compare(tmp_path, build, BYTES, BYTES[::-1].copy(), **told)
    assert one.cause == "files_differ"
    assert one.evidence["name"].split()[0] == "codes"
    assert one.evidence["left"] == pytest.approx(0, abs=1e-5)


def test_bytes_that_are_read_as_another_type_are_told_by_both_types(tmp_path: Path) -> None:
    weight = (np.random.default_rng(4).uniform(0.1, 1, (16, 16))).astype(ml_dtypes.float8_e4m3fn)
    one = compare(tmp_path, cast, weight, weight.view(np.uint8).view(ml_dtypes.float8_e4m3fnuz))
    assert one.cause == "files_differ"
    assert [one.evidence[key] for key in ("base", "target")] == ["float8_e4m3fn", "float8_e4m3fnuz"]
    assert one.evidence["left"] < 0.01


def test_codes_that_are_the_same_weight_in_another_type_are_nobodys_fault(tmp_path: Path) -> None:
    weight = np.float32(BYTES - 128.0) / 64
    assert compare(tmp_path, cast, weight, weight.astype(np.float64)) is None


@pytest.mark.parametrize("differs", ["codes", "zero", "scale"])
@pytest.mark.parametrize("mode", ["ov_fp32", "ov_opt_fp32"])
def test_the_same_is_named_of_openvinos_own_files(mode: str, differs: str, tmp_path: Path) -> None:
    """A weight in 8 bits, which its file holds as codes, less a zero, times scales."""
    openvino = pytest.importorskip("openvino")
    op = pytest.importorskip("openvino.opset13")
    random = np.random.default_rng(0)
    weights = {"codes": BYTES, "zero": np.full((1, 16), 128, np.float32),
               "scale": np.float32(random.uniform(0.01, 0.02, (1, 16)))}  # fmt: skip
    other = {"codes": BYTES[::-1].copy(), "zero": weights["zero"] + 8, "scale": weights["scale"] * 1.3}
    around = [random.normal(size=(16, size)).astype(np.float32) for size in (16, 4)]
    for file, held in (("base", weights), ("other", {**weights, differs: other[differs]})):
        x = op.parameter([5, 16], np.float32, name="x")
        x.output(0).set_names({"x"})
        read = {name: op.constant(value, name=name) for name, value in held.items()}
        w = op.multiply(op.subtract(op.convert(read["codes"], "f32"), read["zero"]), read["scale"], name="w")
        made = op.matmul(op.tanh(op.matmul(x, op.constant(around[0]), False, False)), w, False, False, name="made")
        y = op.matmul(op.tanh(made), op.constant(around[1]), False, False, name="y")
        openvino.save_model(openvino.Model([op.result(y)], [x], "m"), tmp_path / f"{file}.xml", compress_to_fp16=False)
    report = precision_debug.compare(
        tmp_path / "other.xml", baseline_model=str(tmp_path / "base.xml"), run_mode=mode, baseline="ov_fp32",
        inputs={"x": random.normal(size=(5, 16)).astype(np.float32)},
    )  # fmt: skip
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.cause, str(first.evidence["name"]), first.evidence["left"] < 0.01) == ("files_differ", differs, True)
