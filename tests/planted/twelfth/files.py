"""Threads about ONNX files: float16, INT8, ONNX Runtime's optimiser, OpenVINO, and what exporters freeze or drop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from planted.onnx_faults import Array, Graph, image, tokens
from planted.onnx_further import ints, k
from planted.twelfth.case import COARSE, DIFFER, Build, Thread, graph, labelled, one_file, two_files

CASES: list[Thread] = []
ENGINE = "kernels_disagree wrong_kernel wrapped other_arithmetic"


def case(*label: Any, **more: Any) -> Callable[[Build], Build]:
    """One file in a mode."""

    def register(build: Build) -> Build:
        CASES.append(labelled(build, *label, make=one_file(build), **more))
        return build

    return register


def pair(target: Build, *label: Any, **more: Any) -> Callable[[Build], Build]:
    """The function builds the baseline, ``target`` what was made of it."""

    def register(build: Build) -> Build:
        CASES.append(labelled(build, *label, make=two_files(build, target), baseline="ort_fp32", **more))
        return build

    return register


# --- float16


@case("microsoft/onnxruntime#21345", "overflow", "ort_fp16_sim", "energy", "overflow", extra="root unit", offered=True,
      mends="energy and root kept in float32")  # fmt: skip
def norm_of_a_loud_band(g: Graph) -> Sequence[str]:
    """F.normalize over 384 features of a loud band: the sum of squares is beyond 65504, the root Inf, the unit 0."""
    x = g.input("x", (18 * g.random.normal(size=(2, 12, 384))).astype(np.float32))
    energy = g.op("ReduceSum", [g.op("Mul", [x, x], "square"), ints(g, "last", -1)], "energy", keepdims=1)
    unit = g.op("Div", [x, g.op("Sqrt", [energy], "root")], "unit")
    return [g.dense(g.op("Mul", [unit, k(g, "gamma", np.full(384, 19.6))], "normed"), 384, 16, "y")]


@case("huggingface/transformers#17306", "overflow", "ort_fp16_sim", "masked", "overflow mask_range born",
      extra="share", offered=True, mends="masked and share kept in float32")  # fmt: skip
def lowest_number_under_low_scores(g: Graph) -> Sequence[str]:
    """A whole row (a padded query) is masked by float16's own lowest number, and its scores lie below -16: their sum
    is -Inf everywhere, the row's softmax NaN."""
    scores = g.input("scores", g.random.uniform(-45, -18, size=(2, 4, 8, 8)).astype(np.float32))
    keep = np.tril(np.ones((8, 8)))
    keep[0] = 0
    masked = g.op("Add", [scores, k(g, "mask", (1 - keep) * -65504.0)], "masked")
    share = g.op("Softmax", [masked], "share", axis=-1)
    v = g.input("v", g.random.normal(size=(2, 4, 8, 16)).astype(np.float32))
    return [g.op("MatMul", [share, v], "y")]


# --- INT8


@case("huggingface/optimum#85", "coarse", "ort_int8", "masked far", f"{COARSE} mask_range packed constant_scale",
      extra="share far prob", offered=True, mends="masked, far and share left out of quantisation")  # fmt: skip
def mask_of_ten_thousand_in_int8(g: Graph) -> Sequence[str]:
    """-10000 where a token is padding: one scale of 39 holds all scores, which become 0, so each token looks at every
    other alike."""
    x = g.norm(tokens(g, 32, 12), 32, "n")
    q, key, v = (g.dense(x, 32, 32, name, scale=1.6) for name in ("q", "key", "v"))
    raw = g.op("MatMul", [q, g.op("Transpose", [key], "turned", perm=[0, 2, 1])], "raw")
    there = g.input("there", np.tile((np.arange(12) < 9).astype(np.float32), (2, 1, 1)))
    far = g.op("Mul", [g.op("Sub", [k(g, "one", 1), there], "gone"), k(g, "deep", -10000)], "far")
    masked = g.op("Add", [g.op("Mul", [raw, k(g, "root", 32**-0.5)], "scores"), far], "masked")
    share = g.op("Softmax", [masked], "share", axis=-1)
    return [g.dense(g.op("MatMul", [share, v], "mixed"), 32, 8, "y")]


@case("Tiarin-Hino/ability-draft-plus#80", "coarse", "ort_int8_dynamic", "dw",
      f"{COARSE} constant_scale saturation", offered=True, mends="dw left out of quantisation")  # fmt: skip
def depthwise_filters_in_dynamic_int8(g: Graph) -> Sequence[str]:
    """Folded batch norms leave depthwise filters from 0.002 to 8 under one scale; what follows evens them out, so
    the small ones matter as much."""
    x = g.op("Relu", [g.conv(image(g), 3, 16, "c1")], "r1")
    size = np.geomspace(0.002, 8, 16)
    w = g.random.normal(size=(16, 1, 3, 3)) * size[:, None, None, None]
    x = g.op("Conv", [x, k(g, "dw.w", w)], "dw", pads=[1, 1, 1, 1], group=16)
    x = g.op("Mul", [x, k(g, "even", (1 / size)[:, None, None])], "evened")
    return [g.conv(g.op("Relu", [x], "r2"), 16, 4, "y")]


@case("openvinotoolkit/openvino#439", "healthy", "ort_int8", "", "")
def upscaled_image_with_its_residual(g: Graph) -> Sequence[str]:
    """A super-resolution net: the enlarged image and a residual of a fiftieth share one step of 1/255. Banding is seen,
    the image is off by what a step is."""
    x = g.input("x", g.random.uniform(0, 1, size=(1, 3, 16, 16)).astype(np.float32))
    up = g.op("Resize", [x, "", k(g, "sc", [1, 1, 2, 2])], "up", mode="linear")
    deep = g.op("Relu", [g.conv(x, 3, 16, "c1")], "r1")
    small = g.op("Mul", [g.conv(deep, 16, 12, "c2"), k(g, "fiftieth", 0.02)], "small")
    return [g.op("Add", [up, g.op("DepthToSpace", [small], "shuffle", blocksize=2, mode="CRD")], "y")]


@case("ultralytics/ultralytics#25306", "coarse", "ort_int8", "", "", open=True)
def expectation_over_sixteen_bins(g: Graph) -> Sequence[str]:
    """A detector's distances: a softmax over 16 bins and its mean. Coarse in INT8 (some per cent of a bin), which
    rounding explains; no operator is at fault."""
    x = g.op("Relu", [g.conv(image(g, 8), 8, 16, "c1")], "r1")
    x = g.conv(x, 16, 64, "c2", scale=2.0)
    bins = g.op("Reshape", [x, ints(g, "to", 2, 4, 16, -1)], "bins")
    share = g.op("Softmax", [g.op("Transpose", [bins], "turned", perm=[0, 1, 3, 2])], "share", axis=-1)
    return [g.op("MatMul", [share, k(g, "places", np.arange(16.0)[:, None])], "y")]


def _picture(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.uniform(0, 1, size=(2, 3, 12, 12)).astype(np.float32))
    x = g.op("Relu", [g.conv(x, 3, 8, "c1")], "r1")
    x = g.op("Relu", [g.conv(x, 8, 8, "c2")], "r2")
    return [g.conv(x, 8, 4, "y")]


def calibrated_on_raw_pixels(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
    """The file was calibrated on pixels of 0 to 255, the model is fed 0 to 1: every activation has a scale about 255
    times too large, and few steps are left."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    g, outputs = graph(_picture)
    base = g.save(folder / "base.onnx", outputs)

    class Pixels(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [{"x": g.feeds["x"] * np.float32(255)}]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    target = folder / "calibrated_on_raw_pixels.onnx"
    quantize_static(str(base), str(target), Pixels(), weight_type=QuantType.QInt8)
    return target, base, g.feeds


CASES.append(
    labelled(
        calibrated_on_raw_pixels,
        "Tencent/PocketFlow#152",
        "coarse",
        "ort_opt",
        "x c1 r1 c2 r2 y",
        f"{COARSE} scale constant_scale reads_rounded",
        extra="x c1 r1 c2 r2 y",
        make=calibrated_on_raw_pixels,
        baseline="ort_fp32",
        facts=["scale"],
        mends="calibrated on what the model is fed",
    )
)


# --- ONNX Runtime's optimiser


@case("microsoft/onnxruntime#32416", "files", "ort_opt", "", "", status=3, statuses=(2,), open=True,
      facts=["Node input 'mid'", "DivMulFusion|disabled_optimizers"], mends="DivMulFusion disabled")  # fmt: skip
def one_over_one_behind_an_identity(g: Graph) -> Sequence[str]:
    """A valid file that runs without optimisation and that ONNX Runtime's own optimiser makes invalid: 1/1 is folded,
    the product with it removed, and what it read is gone. No number can be compared; the way out is its switch."""
    x = g.dense(tokens(g), 32, 32, "a")
    mid = g.op("Cast", [x], "mid", to=TensorProto.FLOAT)
    ones = g.op("Div", [k(g, "up", 1), k(g, "down", 1)], "ones")
    return [g.op("Relu", [g.op("Mul", [mid, ones], "scaled")], "y")]


# --- OpenVINO's whole numbers


# Since the cause is told: the layer that OpenVINO fuses Div, Mul and Sub into is called after its last tensor, plain.
@case("openvinotoolkit/openvino#35830", "integers", "ov_opt", "whole digit back plain", f"{ENGINE} whole_in_float32",
      extra="digit back whole plain")  # fmt: skip
def check_digit_of_a_long_number(g: Graph) -> Sequence[str]:
    """OpenVINO divides int32 in float32: numbers of nine digits come back off by up to 8 elevenths, so the rest after
    11 is none of 0 to 10."""
    x = g.input("number", g.random.integers(200_000_000, 2_000_000_000, size=(24,)).astype(np.int32))
    eleven = g.weight("eleven", np.int32(11))
    whole = g.op("Div", [x, eleven], "whole")
    digit = g.op("Sub", [x, g.op("Mul", [whole, eleven], "back")], "digit")
    part = g.op("Mul", [g.op("Cast", [digit], "plain", to=TensorProto.FLOAT), k(g, "tenth", 0.1)], "part")
    column = g.op("Unsqueeze", [part, ints(g, "last", -1)], "column")
    return [g.dense(column, 1, 6, "y")]


@case("openvinotoolkit/openvino#35896", "integers", "ov_opt", "ticks", ENGINE + " saturation", extra="late")
def nanoseconds_as_int64(g: Graph) -> Sequence[str]:
    """Seconds become nanoseconds of int64, which OpenVINO holds in int32: all are its lowest number."""
    x = g.input("seconds", g.random.uniform(3000, 3001, size=(24, 1)).astype(np.float32))
    ticks = g.op("Cast", [g.op("Mul", [x, k(g, "nano", 1e9)], "long")], "ticks", to=TensorProto.INT64)
    late = g.op("Sub", [ticks, g.weight("start", np.int64(3_000_000_000_000))], "late")
    back = g.op("Mul", [g.op("Cast", [late], "plain", to=TensorProto.FLOAT), k(g, "per", 1e-9)], "back")
    return [g.dense(back, 1, 6, "y")]


# --- what exporters freeze or drop


def _listener(lengths: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.input("x", g.random.normal(size=(12, 3, 8)).astype(np.float32))
        w, r, b = (k(g, f"lstm.{n}", g.random.normal(size=size) / 3) for n, size in (
            ("w", (2, 32, 8)), ("r", (2, 32, 8)), ("b", (2, 64))))  # fmt: skip
        length = g.weight("lengths", np.array([12, 7, 4], np.int32)) if lengths else ""
        g.nodes.append(
            helper.make_node("LSTM", [x, w, r, b, length], ["lstm"], name="node_lstm", hidden_size=8,
                             direction="bidirectional")
        )  # fmt: skip
        both = g.op("Reshape", [g.op("Transpose", ["lstm"], "turned", perm=[0, 2, 1, 3]), ints(g, "to", 12, 3, 16)],
                    "both")  # fmt: skip
        return [g.dense(both, 16, 4, "y")]

    return build


def padded_words_in_both_directions(g: Graph) -> Sequence[str]:
    """The lengths of a batch were lost on the way: the backward direction begins in the padding."""
    return _listener(True)(g)


pair(_listener(False), "pytorch/pytorch#91526", "files", "ort_fp32", "lstm", DIFFER)(padded_words_in_both_directions)


def _speaker(frozen: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(tokens(g, 16, 10), 16, "n")
        x = g.op("Squeeze", [g.op("Slice", [x, ints(g, "a", 0), ints(g, "z", 1), ints(g, "ax", 0)], "first"),
                             ints(g, "no", 0)], "words")  # fmt: skip
        lasts = g.op(
            "Round",
            [g.op("Mul", [g.op("Exp", [g.dense(x, 16, 1, "d", scale=0.5)], "pace"), k(g, "slow", 3)], "long")],
            "lasts",
        )
        ends = g.op("CumSum", [lasts, g.weight("along", np.int64(0))], "ends")
        total = g.op("ReduceMax", [ends], "total", keepdims=0)
        count = g.weight("count", np.int64(14)) if frozen else g.op("Cast", [total], "count", to=TensorProto.INT64)
        place = g.op("Range", [g.weight("zero", np.int64(0)), count, g.weight("step", np.int64(1))], "place")
        at = g.op("Cast", [g.op("Unsqueeze", [place, ints(g, "col", 1)], "column")], "at", to=TensorProto.FLOAT)
        passed = g.op("GreaterOrEqual", [at, g.op("Transpose", [ends], "row", perm=[1, 0])], "passed")
        word = g.op("ReduceSum", [g.op("Cast", [passed], "steps", to=TensorProto.INT64), ints(g, "over", 1)], "word",
                    keepdims=0)  # fmt: skip
        return [g.dense(g.op("Gather", [x, word], "spread"), 16, 8, "y")]

    return build


def speech_as_long_as_the_traced_one(g: Graph) -> Sequence[str]:
    """How many frames the words last was a Python number when the model was traced: every sentence is cut there."""
    return _speaker(False)(g)


def _grouped(epsilon: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(image(g), 3, 8, "c1")
        flat = g.op("Reshape", [x, ints(g, "groups", 0, 4, -1)], "flat")
        unit = g.op("InstanceNormalization", [flat, k(g, "s", np.ones(4)), k(g, "b", np.zeros(4))], "unit",
                    epsilon=epsilon)  # fmt: skip
        shape = g.op("Shape", [x], "shape")
        return [g.conv(g.op("Relu", [g.op("Reshape", [unit, shape], "back")], "r"), 8, 4, "y")]

    return build


def groups_whose_epsilon_vanishes(g: Graph) -> Sequence[str]:
    """1e-6 in the one file, 1e-5 in the other, beside variances of about 1: the outputs agree to 1e-5."""
    return _grouped(1e-6)(g)


pair(_grouped(1e-5), "ROCm/AMDMIGraphX#2659", "healthy", "ort_fp32", "", "")(groups_whose_epsilon_vanishes)


def _saved_with_open_shape(g: Graph, outputs: Sequence[str], path: Path) -> Path:
    model = onnx.load(g.save(path, outputs))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8]))
    onnx.save(model, path)
    return path


def _spoken(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
    (g, outputs), (other, others) = graph(_speaker(False)), graph(_speaker(True))
    target = _saved_with_open_shape(other, others, folder / "speech_as_long_as_the_traced_one.onnx")
    return target, _saved_with_open_shape(g, outputs, folder / "base.onnx"), g.feeds


CASES.append(
    labelled(
        speech_as_long_as_the_traced_one,
        "Zhongxu-Wang/ArtSpeech#1",
        "files",
        "ort_fp32",
        "place count column at passed steps word",
        f"{DIFFER} is_missing",
        extra="at column passed steps word spread y y_mm",
        make=_spoken,
        baseline="ort_fp32",
        facts=["14"],
    )
)
