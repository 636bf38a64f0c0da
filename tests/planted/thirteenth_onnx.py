"""A thirteenth batch: where it hurts, once more, by somebody who built none of it. Slices, a user's metric, integers
and strings, inputs that did not calibrate, the type that holds a tensor, work cut differently, shapes and decisions; in
ONNX Runtime, OpenVINO and LiteRT. Labelled before the tool was run on any; what a docstring states was measured in
the stock engine or numpy (``python tests/planted/thirteenth_onnx.py``)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.eleventh_onnx import write_samples
from planted.onnx_faults import Array, Graph, tokens
from planted.onnx_further import ints, k
from planted.twelfth.case import COARSE, DIFFER, Build, Thread, graph, labelled, one_file, two_files

CASES: list[Thread] = []
ENGINE = "kernels_disagree wrong_kernel wrapped other_arithmetic"
PACKED = f"{COARSE} packed constant_scale underflow"
INT8_NEEDS = "calibrat|saturat|cut off|clip|beyond"


def case(kind: str, mode: str, who: str = "", why: str = "", thread: str = "", **more: Any) -> Callable[[Build], Build]:
    """One file in a mode."""

    def register(build: Build) -> Build:
        CASES.append(labelled(build, thread, kind, mode, who, why, make=one_file(build), **more))
        return build

    return register


def pair(target: Build, kind: str, mode: str, who: str = "", why: str = DIFFER, thread: str = "",
         shapes: Mapping[str, Sequence[int]] | None = None, **more: Any) -> Callable[[Build], Build]:  # fmt: skip
    """The function builds the baseline, ``target`` what was made of it. shapes: of outputs that onnx cannot infer."""

    def register(build: Build) -> Build:
        def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
            made, base, feeds = two_files(build, target)(folder)
            for path in (made, base) if shapes else ():
                model = onnx.load(path)
                for one in model.graph.output:
                    if shape := (shapes or {}).get(one.name):
                        one.CopyFrom(helper.make_tensor_value_info(one.name, TensorProto.FLOAT, shape))
                onnx.save(model, path)
            return made, base, feeds

        CASES.append(labelled(build, thread, kind, mode, who, why, make=make, baseline="ort_fp32", **more))
        return build

    return register


def samples(feeds: Callable[[np.random.Generator], Sequence[Array]], kind: str, mode: str, who: str = "", why: str = "",
            thread: str = "", script: str = "", labels: Callable[[Path, Sequence[Array]], Array] | None = None,
            told: Sequence[str] = (), **more: Any) -> Callable[[Build], Build]:  # fmt: skip
    """A model of one sample and many samples in a folder; a metric's script (mine.py) and labels. told: options."""

    def register(build: Build) -> Build:
        words: list[str] = []

        def make(folder: Path) -> tuple[Path, None, None]:
            xs = feeds(np.random.default_rng(13))
            file, _, _ = one_file(build)(folder)
            known = None if labels is None else labels(file, xs)
            write_samples(folder, xs, words, script, known, told)
            return file, None, None

        CASES.append(labelled(build, thread, kind, mode, who, why, make=make, options=words, **more))
        return build

    return register


def variants(options: Sequence[str], who: str = "", why: str = "", thread: str = "", kind: str = "cut",
             **more: Any) -> Callable[[Build], Build]:  # fmt: skip
    """One sample against itself, in a model whose batch and length are open."""

    def register(build: Build) -> Build:
        def make(folder: Path) -> tuple[Path, None, Mapping[str, Array]]:
            g, outputs = graph(build)
            path = g.save(folder / f"{build.__name__}.onnx", outputs)
            model = onnx.load(path)
            del model.graph.value_info[:]
            for one in (*model.graph.input, *model.graph.output):
                for at, dim in enumerate(one.type.tensor_type.shape.dim[:2]):
                    dim.dim_param = "batch" if at == 0 else "length"
            onnx.save(model, path)
            return path, None, {name: value[:1] for name, value in g.feeds.items()}

        CASES.append(labelled(build, thread, kind, "ort_fp32", who, why, make=make, options=[*options], **more))
        return build

    return register


# --- slices


@case("slices", "ort_int8", "y cat", PACKED, "DeGirum/PySDKExamples#54", facts=["lost"], offered=True,
      extra="y cat box score at points unit")  # fmt: skip
def pose_whose_boxes_are_shares(g: Graph) -> Sequence[str]:
    """A pose head as exported, channels first: boxes were made shares of the image, keypoints stayed pixels of 640.
    One step of 2.5 leaves nothing of boxes and scores (rows 0 to 4 of 17)."""
    x = g.norm(g.input("x", g.random.normal(size=(1, 60, 32)).astype(np.float32)), 32, "n")
    box = g.op("Sigmoid", [g.dense(x, 32, 4, "b")], "box")
    score = g.op("Sigmoid", [g.dense(x, 32, 1, "s", scale=2.0)], "score")
    at = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 32, 12, "p")], "unit"), k(g, "screen", 640)], "points")
    return [g.op("Transpose", [g.op("Concat", [box, score, at], "cat", axis=-1)], "y", perm=[0, 2, 1])]


@case("slices", "ort_int8", "y", PACKED, facts=["lost"], offered=True, extra="y r")
def two_stems_of_which_one_is_quiet(g: Graph) -> Sequence[str]:
    """A source separator: one convolution gives both stems, the second at a five-hundredth of the first. Below half a
    step it is silent."""
    x = g.input("x", g.random.normal(size=(1, 1, 256)).astype(np.float32))
    x = g.op("Conv", [x, k(g, "a.w", g.random.normal(size=(16, 1, 9)) / 3)], "a", pads=[4, 4])
    w = g.random.normal(size=(2, 16, 9)) / 12 * np.array([1, 0.002])[:, None, None]
    return [g.op("Conv", [g.op("Relu", [x], "r"), k(g, "y.w", w)], "y", pads=[4, 4])]


@case("slices", "ort_bf16_sim", "y wide", f"{COARSE} cancellation cancels amplified amplifies packed stepped",
      facts=["lost"], extra="y wide y_mm")  # fmt: skip
def pressure_beside_the_wind(g: Graph) -> Sequence[str]:
    """A weather head adds each quantity's mean: pressures of 1013 that vary by 1 stand where bfloat16 knows every
    fourth or eighth number, and say nothing any more; wind and moisture are as they were."""
    x = g.norm(tokens(g, 32, 24), 32, "n")
    return [g.op("Add", [g.dense(x, 32, 3, "wide"), k(g, "means", [1013, 4, 0.3])], "y")]


@case("healthy", "ort_fp16_sim")
def millimetres_beside_shares_in_half(g: Graph) -> Sequence[str]:
    """Depths of up to 8000 and shares below 1 in one float16 output: each keeps its own three digits."""
    x = g.norm(tokens(g, 32, 24), 32, "n")
    deep = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 32, 2, "d")], "unit"), k(g, "far", 8000)], "deep")
    return [g.op("Concat", [deep, g.op("Sigmoid", [g.dense(x, 32, 2, "s")], "share")], "y", axis=-1)]


@case("healthy", "ort_int8")
def columns_that_say_nothing(g: Graph) -> Sequence[str]:
    """Of twelve columns three belong to classes that nobody trained: two are 0 and one is 0.013 whatever comes. The
    latter becomes 0, and said nothing before."""
    x = g.norm(tokens(g, 32, 24), 32, "n")
    y = g.dense(x, 32, 12, "y", scale=2.0)
    g.weights["y.w"][:, 9:] = 0
    g.weights["y.b"][9:] = [0, 0, 0.013]
    return [y]


# --- a user's metric


def _points(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.dense("x", 16, 32, "a")], "r")
    return [g.op("Mul", [g.op("Sigmoid", [g.dense(x, 32, 8, "b")], "unit"), k(g, "screen", 640)], "y")]


def _fed(g: Graph, shape: Sequence[int]) -> None:
    g.input("x", np.zeros(shape, np.float32))


def _own(file: Path, xs: Sequence[Array]) -> Array:
    """What the model itself says in FP32."""
    return np.stack([_stock(file, {"x": x})[0] for x in xs])


def _drawn(count: int, *shape: int) -> Callable[[np.random.Generator], Sequence[Array]]:
    return lambda r: [r.normal(size=shape).astype(np.float32) for _ in range(count)]


DISTANCE = "def pixels(outputs, label):\n    return float(abs(outputs['y'] - label).mean())\n\n\n"
DISTANCE += "pixels_less_is_better = True\n"


@samples(_drawn(12, 1, 16), "metric", "ort_int8", "y unit b b_mm a a_mm r x",
         f"{PACKED} saturation saturating_sums", script=DISTANCE, labels=_own,
         told=["--metric", "FOLDER/mine.py:pixels", "--metric_drop", "0.2"], anyone=True, facts=[r"\bpixels\b"],
         extra="y unit b b_mm a a_mm r x")  # fmt: skip
def pixels_of_which_a_fifth_is_allowed(g: Graph) -> Sequence[str]:
    """Keypoints in INT8 are off by 2 pixels of 640, less than what the type costs; the user allows 0.2."""
    _fed(g, (1, 16))
    return _points(g)


# --- integers, ids, masks, strings


NAMES = ["cat", "dog", "owl", "fox", "hen", "bee", "ant", "yak", "emu", "cod"]


def _named(swap: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(tokens(g, 32, 24), 32, "n")
        best = g.op("ArgMax", [g.dense(x, 32, 10, "logits", scale=3.0)], "best", axis=-1, keepdims=0)
        names = NAMES[:3] + ([NAMES[4], NAMES[3]] if swap else NAMES[3:5]) + NAMES[5:]
        g.weights["names"] = np.array(names, dtype=object)
        return [g.op("Gather", ["names", best], "label"), g.op("Softmax", ["logits"], "prob", axis=-1)]

    return build


@pair(_named(True), "integers", "ort_fp32", "label")
def names_of_which_two_are_swapped(g: Graph) -> Sequence[str]:
    """The table of names was written anew, and "fox" and "hen" changed places: strings differ where either is best,
    every number agrees."""
    return _named(False)(g)


def _packed_bits(reverse: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(tokens(g, 32, 8), 32, "n")
        above = g.op("Greater", [g.dense(x, 32, 32, "logits"), k(g, "zero", 0)], "above")
        bits = g.op("Cast", [above], "bits", to=TensorProto.INT32)
        rows = g.op("Reshape", [bits, ints(g, "to", 2, 8, 4, 8)], "rows")
        powers = (2 ** np.arange(8)).astype(np.int32)
        held = g.op("Mul", [rows, g.weight("powers", powers[::-1] if reverse else powers)], "weighed")
        total = g.op("ReduceSum", [held, ints(g, "last", -1)], "total", keepdims=0)
        return [g.op("Cast", [total], "bytes", to=TensorProto.UINT8)]

    return build


@pair(_packed_bits(True), "integers", "ort_fp32", "weighed", extra="total bytes")
def bits_packed_from_the_other_end(g: Graph) -> Sequence[str]:
    """A mask is packed into bytes, the lowest bit first in the one file, last in the other: the same bits, other
    bytes."""
    return _packed_bits(False)(g)


@case("integers", "ort_fp16_sim", "fid moved ids plain", f"{COARSE} flips cancellation absorbed",
      extra="fid moved ids plain rows y y_mm")  # fmt: skip
def ids_that_an_offset_makes_numbers(g: Graph) -> Sequence[str]:
    """Ids of up to 5000 get their offset of 3 as numbers of float16, which knows every second or fourth beyond 2048:
    other rows of the table are read."""
    ids = g.input("x", g.random.integers(0, 5000, size=(2, 24)))
    moved = g.op("Add", [g.op("Cast", [ids], "fid", to=TensorProto.FLOAT), k(g, "three", 3)], "moved")
    row = g.op("Cast", [moved], "ids", to=TensorProto.INT64)
    rows = g.op("Gather", [k(g, "table", g.random.normal(size=(5004, 16))), row], "rows")
    return [g.dense(rows, 16, 4, "y")]


@case("healthy", "ort_fp16_sim", open=True)
def picture_of_256_levels(g: Graph) -> Sequence[str]:
    """An image as bytes: where the value lies at the edge of a level float16 tells the neighbouring one, in 5 % of the
    pixels, never by more than one level."""
    x = g.input("x", g.random.uniform(0, 1, size=(1, 3, 24, 24)).astype(np.float32))
    x = g.op("Sigmoid", [g.conv(g.op("Relu", [g.conv(x, 3, 8, "c1")], "r1"), 8, 3, "c2", scale=3.0)], "unit")
    level = g.op("Round", [g.op("Mul", [x, k(g, "most", 255)], "levels")], "level")
    return [g.op("Cast", [level], "y", to=TensorProto.UINT8)]


@case("integers", "ov_opt", "bucket x", f"{DIFFER} {ENGINE} unfound held_narrower found_by_repair whole_in_float32",
      baseline="ort_fp32", extra="bucket rows y y_mm")  # fmt: skip
def bucket_of_an_id_beyond_32_bits(g: Graph) -> Sequence[str]:
    """Users' ids of five thousand million and their rest after 1009: OpenVINO's CPU holds them in 32 bits, and other
    rows of the table are read."""
    ids = g.input("x", 5_000_000_000 + g.random.integers(0, 100_000, size=(2, 12)))
    bucket = g.op("Mod", [ids, ints(g, "prime", 1009)], "bucket")
    rows = g.op("Gather", [k(g, "table", g.random.normal(size=(1009, 16))), bucket], "rows")
    return [g.dense(rows, 16, 4, "y")]


# --- INT8 on what did not calibrate


def _late_feature(r: np.random.Generator) -> Sequence[Array]:
    xs = [r.normal(size=(1, 8, 16)).astype(np.float32) for _ in range(8)]
    for place, x in enumerate(xs):
        x[..., 3] = 40 * abs(x[..., 3]) if place >= 4 else 0
    return xs


def _small(g: Graph) -> Sequence[str]:
    return [g.dense(g.op("Relu", [g.dense("x", 16, 32, "a")], "r"), 32, 4, "y")]


EVERY = "x a_mm a r y_mm y"


@samples(_late_feature, "unseen", "ort_int8", EVERY, f"saturation scale {COARSE}", "pytorch/pytorch#45185", anyone=True,
         extra=EVERY, facts=[INT8_NEEDS])  # fmt: skip
def feature_that_only_later_samples_have(g: Graph) -> Sequence[str]:
    """One of sixteen features is 0 in the four samples that calibrate and up to 100 in the four that judge: it is cut
    off at 3."""
    _fed(g, (1, 8, 16))
    return _small(g)


@samples(_drawn(8, 1, 8, 16), "unseen", "ort_int8", "y", f"saturation {COARSE}", facts=["calibrat"], extra=EVERY)
def eight_samples_alike(g: Graph) -> Sequence[str]:
    """Four calibrate, four judge, all of one kind. Labelled healthy before the first run; measured, four samples are
    too few: 1 of 32 results of `y` is cut off at 1.74 where 2.27 is due, which makes 0.104 of 0.113 in one sample."""
    _fed(g, (1, 8, 16))
    return _small(g)


# --- the type that holds it


def _three(g: Graph) -> Sequence[str]:
    h = g.op("Tanh", [g.dense(tokens(g), 32, 32, "a")], "h")
    t = g.op("Tanh", [g.dense(h, 32, 32, "b")], "t")
    return [g.dense(t, 32, 8, "y")]


def _between(g: Graph, name: str, scale: float, kind: Any, zero: float = 0, to: str = "") -> None:
    """A quantisation of a tensor, or of a weight, in front of its readers."""
    at = next(n for n, node in enumerate(g.nodes) if name in node.input)
    s = k(g, f"{name}_scale", scale)
    z = g.weight(f"{name}_zero", np.array(zero, kind))
    for node in g.nodes:
        node.input[:] = [f"{name}_dq" if one == name else one for one in node.input]
    g.nodes[at:at] = [
        helper.make_node("QuantizeLinear", [name, s, z], [f"{name}_q"], name=f"node_{name}_q"),
        helper.make_node("DequantizeLinear", [f"{name}_q", s, z], [f"{name}_dq"], name=f"node_{name}_dq"),
    ]


def _activations(g: Graph) -> Sequence[str]:
    made = _three(g)
    _between(g, "h", 2 / 255, np.uint8, 128)
    _between(g, "t", 2 / 255, np.uint8, 128)
    return made


@pair(_activations, "healthy", "ort_opt", "", "")
def activations_alone_in_eight_bits(g: Graph) -> Sequence[str]:
    """The target holds two activations in 8 bits and every weight in FP32: off by 0.6 %, as those two cost."""
    return _three(g)


def _sixteen(factor: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        g.opset = 21
        made = _three(g)
        for name in ("h", "t"):
            _between(g, name, 2 / 65535, np.uint16, 32768)
        for name in ("a.w", "b.w", "y.w"):
            _between(g, name, float(abs(g.weights[name]).max()) / 127 * (factor if name == "b.w" else 1), np.int8)
        return made

    return build


def _three_21(g: Graph) -> Sequence[str]:
    g.opset = 21
    return _three(g)


@pair(_sixteen(10), "units", "ort_opt", "b_mm b.w_dq b.w_q b.w b t_mm t",
      f"{DIFFER} scale reads_rounded constant_scale {COARSE}", extra="b_mm b.w_dq b.w_q b.w b t y_mm")  # fmt: skip
def eight_bit_weights_under_sixteen_bit_activations(g: Graph) -> Sequence[str]:
    """Activations in 16 bits, weights in 8, and the second layer's scale is ten times what its weights ask: with
    it the output is off by 6.6 %, without by 1.3 %."""
    return _three_21(g)


@pair(_sixteen(1), "healthy", "ort_opt", "", "")
def sixteen_and_eight_bits_as_they_should_be(g: Graph) -> Sequence[str]:
    """The same with scales as the weights ask: off by 1.3 %, as 8-bit weights cost."""
    return _three_21(g)


def _half_weights(factor: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        made = _three(g)
        if factor != 1:
            g.weights["b.w"][:, 7] *= np.float32(factor)
        for name in ("a.w", "b.w", "y.w"):
            g.weights[f"{name}16"] = g.weights.pop(name).astype(np.float16)
            cast = helper.make_node("Cast", [f"{name}16"], [name], name=f"node_{name}", to=TensorProto.FLOAT)
            g.nodes.insert(0, cast)
        return made

    return build


@pair(_half_weights(1), "healthy", "ort_opt", "", "")
def weights_stored_in_half(g: Graph) -> Sequence[str]:
    """The target stores weights in float16 and computes in FP32: off by 0.0003."""
    return _three(g)


@pair(_half_weights(1.01), "units", "ort_opt", "b_mm b.w b", f"{DIFFER} constant_rounded reads_rounded",
      extra="b.w b_mm b t")  # fmt: skip
def weights_stored_in_half_of_which_a_column_grew(g: Graph) -> Sequence[str]:
    """The same, and one of 32 columns of the second layer is 1 % larger in the target: 0.001 at the output, where
    float16 weights cost 0.0003."""
    return _three(g)


def _float8(g: Graph) -> Sequence[str]:
    made = _loud(g)
    at = next(n for n, node in enumerate(g.nodes) if "h" in node.input)
    s = k(g, "h_scale", 1)
    g.nodes[at].input[0] = "h_dq"
    g.nodes[at:at] = [
        helper.make_node("Constant", [], ["h_zero"], name="node_h_zero", value=helper.make_tensor(
            "zero", TensorProto.FLOAT8E4M3FN, [], [0])),
        helper.make_node("QuantizeLinear", ["h", s, "h_zero"], ["h_q"], name="node_h_q"),
        helper.make_node("DequantizeLinear", ["h_q", s, "h_zero"], ["h_dq"], name="node_h_dq"),
    ]  # fmt: skip
    return made


def _loud(g: Graph) -> Sequence[str]:
    g.opset = 19
    h = g.op("Mul", [g.dense(tokens(g), 32, 32, "a"), k(g, "loud", 300)], "h")
    return [g.dense(h, 32, 8, "y")]


@pair(_float8, "units", "ort_opt", "h_q h_dq h", f"saturation overflow clipped scale reads_rounded {DIFFER} {COARSE}",
      extra="h_q h_dq h y_mm", facts=["448|saturat|cut off|clip|beyond"])  # fmt: skip
def numbers_of_a_thousand_in_float8(g: Graph) -> Sequence[str]:
    """Activations of up to 1000 pass through float8 with a scale of 1: what lies beyond 448 is 448."""
    return _loud(g)


def _nibbles(level: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        r = np.random.default_rng(9)
        low, high = (r.integers(0, 16, size=(32, 2, 16)).astype(np.uint8) for _ in range(2))
        g.weight("w4", low | (high << 4))
        k(g, "s4", r.uniform(0.02, 0.03, size=64))
        g.op("MatMulNBits", [tokens(g, 64), "w4", "s4"], "h", domain="com.microsoft", K=64, N=32, bits=4, block_size=32,
             accuracy_level=level)  # fmt: skip
        return [g.op("Tanh", ["h"], "y")]

    return build


@pair(_nibbles(4), "healthy", "ort_fp32", "", "", shapes={"y": (2, 8, 32)}, open=True,
      facts=["accuracy_level|int8|INT8|8.bit"])  # fmt: skip
def four_bits_multiplied_in_eight(g: Graph) -> Sequence[str]:
    """The same nibbles; the target may multiply them in int8 (accuracy_level 4), the baseline in float32: off by
    0.5 %, as int8 activations cost."""
    return _nibbles(1)(g)


# --- cut differently, shapes


@variants(["--input_variants", "alone,batch"], "centre middle", f"{DIFFER} neighbours depends_on_batch unfound",
          extra="centre middle y y_mm")  # fmt: skip
def features_less_the_mean_of_their_batch(g: Graph) -> Sequence[str]:
    """A centring over the batch that was meant over features: alone, every sample becomes 0."""
    x = g.dense(tokens(g), 32, 16, "a")
    middle = g.op("ReduceMean", [x], "middle", axes=[0], keepdims=1)
    return [g.dense(g.op("Sub", [x, middle], "centre"), 16, 4, "y")]


@variants(["--input_variants", "alone,padded"], "pooled", f"{DIFFER} neighbours unfound", "Biohub/esm#251",
          extra="pooled y y_mm")  # fmt: skip
def mean_over_the_padding_too(g: Graph) -> Sequence[str]:
    """Tokens are pooled by a plain mean: what is padded behind them is counted, the embedding shrinks."""
    x = g.op("Tanh", [g.dense(tokens(g), 32, 16, "a")], "t")
    return [g.dense(g.op("ReduceMean", [x], "pooled", axes=[1], keepdims=1), 16, 4, "y")]


def _flat(last: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.input("x", g.random.normal(size=(2, 3, 8, 8)).astype(np.float32))
        x = g.op("Relu", [g.conv(x, 3, 8, "c")], "r")
        x = g.op("Transpose", [x], "turned", perm=[0, 2, 3, 1]) if last else x
        return [g.dense(g.op("Reshape", [x, ints(g, "to", 2, -1)], "flat"), 512, 4, "y")]

    return build


@pair(_flat(True), "shape", "ort_fp32", "flat turned", extra="turned flat y_mm y")
def flattened_in_the_order_of_another_framework(g: Graph) -> Sequence[str]:
    """The target flattens channels last, as the framework it came from does, and its dense layer's rows were not
    reordered: the same numbers in another order, other logits."""
    return _flat(False)(g)


# --- decisions


@case("decision", "ort_bf16_sim", facts=["flip|turn|moved|decision|Greater"])
def mask_above_a_half(g: Graph) -> Sequence[str]:
    """4096 pixels of a mask by a threshold of a half: some turn, whose share lies at it, as bfloat16 does."""
    x = g.input("x", g.random.normal(size=(4096, 32)).astype(np.float32))
    share = g.op("Sigmoid", [g.dense(x, 32, 1, "a", scale=2.0)], "share")
    return [g.op("Greater", [share, k(g, "half", 0.5)], "mask")]


def _digits(folder: Path) -> tuple[Path, None, Mapping[str, Array]]:
    from litert_files import DATA, images

    target = folder / "digits_in_sixteen_bits.tflite"
    target.write_bytes((DATA / "digits_int16.tflite").read_bytes())
    return target, None, {"image": np.ascontiguousarray(images(8))}


def digits_in_sixteen_bits() -> None:
    """LiteRT's 16-bit activations beside 8-bit weights, as its converter makes them."""


CASES.append(labelled(digits_in_sixteen_bits, "", "healthy", "tflite_opt", "", "", make=_digits))


def _masked(limit: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.input("x", g.random.normal(size=(4096, 32)).astype(np.float32))
        share = g.op("Sigmoid", [g.dense(x, 32, 1, "a", scale=2.0)], "share")
        return [g.op("Greater", [share, k(g, "half", limit)], "mask"), share]

    return build


@pair(_masked(0.52), "decision", "ort_fp32", "mask")
def threshold_that_was_moved(g: Graph) -> Sequence[str]:
    """0.5 in the one file, 0.52 in the other: 60 to 80 of 4096 pixels turn, every share agrees."""
    return _masked(0.5)(g)


def _suppressed(limit: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        corner = g.random.uniform(0, 60, size=(1, 32, 2))
        boxes = g.input("boxes", np.concatenate([corner, corner + 24], -1).astype(np.float32))
        x = g.input("x", g.random.normal(size=(1, 32, 16)).astype(np.float32))
        score = g.op("Sigmoid", [g.dense(x, 16, 2, "s")], "score")
        turned = g.op("Transpose", [score], "by_class", perm=[0, 2, 1])
        limits = [g.weight("most", np.array([20], np.int64)), k(g, "iou", [limit]), k(g, "least", [0.4])]
        return [g.op("NonMaxSuppression", [boxes, turned, *limits], "chosen"), g.op("Identity", [score], "scores")]

    return build


@pair(_suppressed(0.6), "decision", "ort_fp32", "chosen")
def suppression_that_allows_more_overlap(g: Graph) -> Sequence[str]:
    """An overlap of 0.3 in the one file, 0.6 in the other: more boxes are kept, every score agrees."""
    return _suppressed(0.3)(g)


# --- what is true of them, without the tool


def _stock(path: Path, feeds: Mapping[str, Array]) -> Sequence[Any]:
    import onnxruntime as ort

    told = ort.SessionOptions()
    told.graph_optimization_level = ort.GraphOptimizationLevel(0)
    told.log_severity_level = 4
    session = ort.InferenceSession(str(path), told, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))  # type: ignore[no-any-return]


def _apart(got: Any, want: Any) -> str:
    if np.shape(got) != np.shape(want):
        return f"shapes {np.shape(got)} {np.shape(want)}"
    if np.asarray(want).dtype.kind not in "f":
        differ = np.asarray(got) != np.asarray(want)
        most = int(abs(np.asarray(got, np.int64) - np.asarray(want, np.int64)).max()) if want.dtype.kind in "iu" else 1
        return f"{int(differ.sum())} of {differ.size} differ, by up to {most}"
    g, w = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return f"Rel L2 {np.linalg.norm(g - w) / np.linalg.norm(w):.3g}"


def main() -> int:
    import tempfile

    from planted.twelfth.measure import in_half, in_int8, openvino

    for one in CASES:
        if len(sys.argv) > 1 and not any(word in one.name for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as name:
            path, base, feeds = one.make(Path(name))
            path = Path(path)
            if "--input_variants" in one.options or one.mode == "tflite_opt":
                continue
            if feeds is None:
                with np.load(Path(name) / "in" / "000.npz") as first:
                    feeds = dict(first)
            want = _stock(Path(str(base)) if base else path, feeds)
            if base:
                got = _stock(path, feeds)
            elif one.mode == "ort_fp16_sim":
                got = in_half(path, feeds)
            elif one.mode.startswith("ov"):
                got = openvino(path, feeds)
            elif one.mode == "ort_int8":
                got = in_int8(path, feeds)
            else:
                continue
            print(one.name, one.mode, *(_apart(g, w) for g, w in zip(got, want, strict=True)), sep="; ", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
