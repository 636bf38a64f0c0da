"""A twenty-first batch, by somebody who built none of it: classical learners (ai.onnx.ml), transforms and windows,
attributes and constants that the batches before lack, quantised files. Labelled before the tool was run on any; who,
cause and fact of each were measured without it (``python tests/planted/twentyfirst_truth.py``)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from planted.fourteenth_onnx import _fed
from planted.onnx_faults import Array, Graph
from planted.onnx_further import ints, k
from planted.shared import two_graphs
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
Made = tuple[Path, Path | None, Mapping[str, Array]]
MS, ML = {"domain": "com.microsoft"}, {"domain": "ai.onnx.ml"}
OTHER = f"{DIFFER} unfound"


class Typed(Graph):
    """Declares what ONNX Runtime itself says of the outputs, so that operators of any domain can be used."""

    def save(self, path: Path, outputs: Sequence[str]) -> Path:
        import onnxruntime as ort

        told = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
                for name, one in self.feeds.items()]  # fmt: skip
        held = [numpy_helper.from_array(np.asarray(value), name) for name, value in self.weights.items()]
        sets = [helper.make_opsetid(*one) for one in (("", self.opset), ("com.microsoft", 1), ("ai.onnx.ml", 3))]

        def made(infos: Sequence[Any]) -> Any:
            graph = helper.make_graph(self.nodes, "planted", told, infos, held)
            return helper.make_model(graph, opset_imports=sets, ir_version=8)

        model = made([helper.make_empty_tensor_value_info(name) for name in outputs])
        quiet = ort.SessionOptions()
        quiet.log_severity_level, quiet.graph_optimization_level = 4, ort.GraphOptimizationLevel(0)
        found = ort.InferenceSession(model.SerializeToString(), quiet).run(list(outputs), dict(self.feeds))
        onnx.save(made([helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
                        for name, one in zip(outputs, found, strict=True)]), path)  # fmt: skip
        return path


def two(*case: Any, cases: list[Thread] = CASES, **more: Any) -> None:
    """See ``shared.two_graphs``. cases: of which batch."""
    two_graphs(cases, 2121, *case, of=Typed, **more)


# --- norms, pools, filters


def _batch_norm(g: Graph, how: str) -> Sequence[str]:
    x = g.conv(_fed(g, 2, 3, 8, 8), 3, 8, "a")
    told = {"gain": g.random.uniform(0.5, 1.5, 8), "shift": g.random.normal(size=8) / 2,
            "mean": g.random.normal(size=8) / 4, "var": g.random.uniform(0.1, 0.6, 8)}  # fmt: skip
    if how == "exchanged":
        told["gain"], told["shift"] = told["shift"], told["gain"]
    if how == "root":
        told["var"] = np.sqrt(told["var"])
    x = g.op("BatchNormalization", [x, *(k(g, name, one) for name, one in told.items())], "n", epsilon=1e-5)
    return [g.conv(g.op("Relu", [x], "r"), 8, 4, "y")]


two(_batch_norm, "", "exchanged", "gain_and_shift_of_a_norm_exchanged",
    "A batch norm's gain and shift were written under each other's names.", "n", facts=[r"gain|shift"])
two(_batch_norm, "", "root", "deviation_stored_as_a_variance",
    "The variance of a batch norm holds its root, the deviation.", "n", facts=[r"\bvar\b"])


def _holes(g: Graph, how: int) -> Sequence[str]:
    x = g.op("Tanh", [g.conv(_fed(g, 1, 3, 12, 12), 3, 6, "a")], "t")
    x = g.op("MaxPool", [x], "p", kernel_shape=[3, 3], dilations=[how, how], pads=[how] * 4)
    return [g.conv(x, 6, 4, "y")]


two(_holes, 2, 1, "holes_of_a_pool_forgotten", "A MaxPool lost its dilations of 2, and its pads were fitted.", "p",
    facts=["dilations"])  # fmt: skip


def _up(g: Graph, how: str) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 6, 6), 3, 8, "a")], "r")
    w = g.random.normal(size=(8, 8, 3, 3)) / 6
    told = {"strides": [2, 2], **({"pads": [1, 1, 0, 0]} if how == "pads" else {"pads": [1] * 4,
                                                                                "output_padding": [1, 1]})}
    x = g.op("ConvTranspose", [x, k(g, "up.w", w.swapaxes(0, 1) if how == "turned" else w)], "up", **told)
    return [g.conv(x, 8, 4, "y")]


two(_up, "", "turned", "in_and_out_of_a_transposed_filter", "A transposed filter's inputs and outputs, 8 both, changed "
    "places.", "up", facts=[r"up\.w"])  # fmt: skip
two(_up, "", "pads", "output_padding_told_as_a_pad_less", "output_padding of 1 became one pad less at the end.")


def _response(g: Graph, axes: Sequence[int]) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 2, 3, 8, 8), 3, 8, "a")], "r")
    size = g.op("ReduceL2", [x], "gx", axes=axes, keepdims=1)
    mean = g.op("Add", [g.op("ReduceMean", [size], "mean", axes=[1], keepdims=1), k(g, "eps", 1e-6)], "held")
    x = g.op("Add", [g.op("Mul", [x, g.op("Div", [size, mean], "nx")], "scaled"), x], "grn")
    return [g.conv(x, 8, 4, "y")]


two(_response, [2, 3], [1], "response_normed_over_channels",
    "A global response norm (ConvNeXt V2) takes its norm over channels in place of places.", "gx scaled",
    facts=["axes"])


def _rms(g: Graph, how: str) -> Sequence[str]:
    x = g.dense(_fed(g, 2, 6, 16), 16, 16, "a")
    if how == "mean":
        square = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "ms", axes=[-1], keepdims=1)
        x = g.op("Div", [x, g.op("Sqrt", [square], "rms")], "n")
    else:
        x = g.op("Mul", [g.op("LpNormalization", [x], "unit", axis=-1, p=2), k(g, "root", 4)], "n")
    return [g.dense(x, 16, 4, "y")]


two(_rms, "mean", "unit", "root_mean_square_by_a_unit_vector", "x / rms(x) as a unit vector times the root of 16.")


def _shifted(g: Graph, how: str) -> Sequence[str]:
    """A depthwise filter of three taps along time, as a Conv or as slices that are added."""
    x = _fed(g, 2, 6, 12)
    w = g.random.normal(size=(6, 1, 3)) / 2
    if how == "conv":
        x = g.op("Conv", [x, k(g, "w", w)], "c", group=6, kernel_shape=[3])
    else:
        taps = []
        for n in range(3):
            cut = g.op("Slice", [x, *(ints(g, f"{end}{n}", at) for end, at in (("from", n), ("to", n + 10),
                                                                               ("axis", 2)))], f"cut{n}")  # fmt: skip
            taps.append(g.op("Mul", [cut, k(g, f"w{n}", w[:, :, n])], f"tap{n}"))
        x = g.op("Sum", taps, "c")
    x = g.op("Transpose", [g.op("Relu", [x], "r")], "turned", perm=[0, 2, 1])
    return [g.dense(x, 6, 4, "y")]


two(_shifted, "conv", "slices", "depthwise_filter_by_shifts", "A depthwise filter of three taps as three slices.")

# --- transforms, windows, sounds


def _window(g: Graph, kind: str) -> Sequence[str]:
    frames = g.op("Mul", [_fed(g, 4, 32), g.op(kind, [g.weight("size", np.array(32, np.int64))], "window")], "cut")
    return [g.dense(g.op("Relu", [g.dense(frames, 32, 16, "a")], "r"), 16, 4, "y")]


two(_window, "HammingWindow", "HannWindow", "hann_taken_for_hamming", "HammingWindow became HannWindow.", "window",
    OTHER, facts=["Hann|Hamming"])  # fmt: skip


def _transform(g: Graph, how: Any) -> Sequence[str]:
    x = _fed(g, 3, 16, 2)
    if how == "matrix":
        phase = 2 * np.pi * np.outer(np.arange(16), np.arange(16)) / 16
        parts = []
        for n, (one, other) in enumerate(((np.cos(phase), np.sin(phase)), (-np.sin(phase), np.cos(phase)))):
            got = [g.op("MatMul", [k(g, f"m{n}{at}", w), g.op("Gather", [x, g.weight(f"i{n}{at}", np.array([at]))],
                                                             f"g{n}{at}", axis=2)], f"p{n}{at}")
                   for at, w in enumerate((one, other))]  # fmt: skip
            parts.append(g.op("Add", got, f"part{n}"))
        x = g.op("Concat", parts, "f", axis=2)
    else:
        x = g.op("DFT", [x], "f", axis=1, inverse=int(how))
    return [g.dense(g.op("Reshape", [x, ints(g, "flat", 3, 32)], "told"), 32, 4, "y")]


two(_transform, 1, 0, "inverse_transform_taken_forward", "DFT lost inverse = 1: forward, and not divided by 16.", "f",
    facts=["inverse"])  # fmt: skip
two(_transform, 0, "matrix", "transform_by_four_matrices", "A DFT of 16 by its matrices of cosines and sines.")


def _spoken(g: Graph, how: str) -> Sequence[str]:
    x = _fed(g, 3, 33)

    def cut(name: str, start: int) -> str:
        at = [ints(g, f"{name}_{end}", value) for end, value in (("from", start), ("to", start + 32), ("axis", 1))]
        return g.op("Slice", [x, *at], name)

    now, past = cut("now", 1), cut("past", 0)
    if how != "flat":
        now = g.op("Sub", [now, g.op("Mul", [past, k(g, "pre", 0.97)], "held")], "sharp")
    re, im = g.dense(now, 32, 12, "re"), g.dense(now, 32, 12, "im")
    power = g.op("Add", [g.op("Mul", [re, re], "re2"), g.op("Mul", [im, im], "im2")], "power")
    if how == "root":
        power = g.op("Sqrt", [power], "magnitude")
    mel = g.op("MatMul", [power, k(g, "bank", g.random.uniform(0, 1, (12, 8)))], "mel")
    return [g.dense(g.op("Log", [mel], "log"), 8, 4, "y")]


two(_spoken, "", "flat", "sound_without_its_emphasis", "The pre-emphasis x[t] - 0.97 x[t-1] was left out.", "sharp "
    "re_mm im_mm", OTHER, extra="sharp held re_mm im_mm re im re2 im2 power")  # fmt: skip
two(_spoken, "", "root", "magnitude_taken_for_power", "The mel bank reads the root of the power.", "magnitude mel",
    OTHER, extra="magnitude mel power")  # fmt: skip

# --- attention and places


def _sloped(g: Graph, how: str) -> Sequence[str]:
    """Linear biases of six heads: those of a power of two, and every second of the next."""
    x = _fed(g, 1, 8, 12)
    heads = [2.0 ** (-8 * (n + 1) / 6) for n in range(6)] if how == "even" else [
        *(2.0 ** (-2 * (n + 1)) for n in range(4)), 2.0**-1, 2.0**-3]  # fmt: skip
    away = -np.abs(np.arange(8)[:, None] - np.arange(8))
    q, key = (g.op("Transpose", [g.op("Reshape", [g.dense(x, 12, 12, n, 2), ints(g, f"to_{n}", 1, 8, 6, 2)],
                                      f"cut_{n}")],
                   f"heads_{n}", perm=p) for n, p in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1])))  # fmt: skip
    bias = g.op("Mul", [k(g, "slopes", np.reshape(heads, (6, 1, 1))), k(g, "away", away)], "bias")
    share = g.op("Softmax", [g.op("Add", [g.op("MatMul", [q, key], "raw"), bias], "score")], "share", axis=-1)
    mixed = g.op("MatMul", [share, g.op("Reshape", [x, ints(g, "one", 1, 1, 8, 12)], "wide")], "mixed")
    return [g.dense(g.op("ReduceMean", [mixed], "mean", axes=[1], keepdims=0), 12, 4, "y")]


two(_sloped, "", "even", "slopes_of_six_heads_by_one_formula",
    "ALiBi's slopes of six heads were made by the formula for powers of two.", "bias", facts=["slopes"])


def _stretched(g: Graph, factor: float) -> Sequence[str]:
    """Halves turned by places that are divided by four, as of a context that was stretched."""
    x = g.dense(_fed(g, 1, 10, 8), 8, 8, "a", 2)
    at = g.op("Mul", [k(g, "at", np.arange(20, 30)[:, None]), k(g, "stretch", factor)], "near")
    angle = g.op("MatMul", [at, k(g, "freq", 10000.0 ** (-np.arange(4) / 4)[None])], "angle")
    c, s = g.op("Cos", [angle], "cos"), g.op("Sin", [angle], "sin")
    g.nodes.append(helper.make_node("Split", [x], ["x1", "x2"], name="node_x1", axis=-1))
    one = g.op("Sub", [g.op("Mul", ["x1", c], "x1c"), g.op("Mul", ["x2", s], "x2s")], "t1")
    other = g.op("Add", [g.op("Mul", ["x2", c], "x2c"), g.op("Mul", ["x1", s], "x1s")], "t2")
    return [g.dense(g.op("Concat", [one, other], "turned", axis=-1), 8, 4, "y")]


two(_stretched, 0.25, 1.0, "context_that_is_no_longer_stretched",
    "Position interpolation by 4 was lost: places are multiplied by 1 in place of 0.25.", "near", opset=13,
    facts=["stretch"])  # fmt: skip


def _buckets(g: Graph, both: bool) -> Sequence[str]:
    """T5's 16 buckets of relative places."""
    away = np.arange(12)[None] - np.arange(12)[:, None]
    if both:
        bucket, far, few = np.where(away > 0, 8, 0), np.abs(away), 8
    else:
        bucket, far, few = np.zeros_like(away), np.maximum(-away, 0), 16
    half = few // 2
    log = half + (np.log(np.maximum(far, 1) / half) / np.log(32 / half) * (few - half)).astype(int)
    bucket = bucket + np.where(far < half, far, np.minimum(log, few - 1))
    x = _fed(g, 2, 12, 8)
    bias = g.op("Gather", [k(g, "table", g.random.normal(size=16) * 2), g.weight("bucket", bucket)], "bias")
    kt = g.op("Transpose", [g.dense(x, 8, 8, "key")], "kt", perm=[0, 2, 1])
    score = g.op("Add", [g.op("MatMul", [g.dense(x, 8, 8, "q"), kt], "raw"), bias], "score")
    return [g.dense(g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), x], "mixed"), 8, 4, "y")]


two(_buckets, True, False, "buckets_of_a_decoder_in_an_encoder",
    "T5's relative buckets are the decoder's, of one direction, in an encoder.", "bias", facts=[r"\bbucket\b"])


def _windows(g: Graph, how: str) -> Sequence[str]:
    """Four windows of four that were shifted by two: the last holds both ends of the line."""
    x = g.op("Reshape", [_fed(g, 1, 16, 8), ints(g, "cut", 4, 4, 8)], "windows")
    kt = g.op("Transpose", [g.dense(x, 8, 8, "key", 2)], "kt", perm=[0, 2, 1])
    score = g.op("MatMul", [g.dense(x, 8, 8, "q", 2), kt], "raw")
    if how == "masked":
        side = np.arange(4) // 2
        mask = np.zeros((4, 4, 4))
        mask[3] = np.where(side[:, None] == side, 0, -100)
        score = g.op("Add", [score, k(g, "mask", mask)], "masked")
    return [g.dense(g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), x], "mixed"), 8, 4, "y")]


two(_windows, "masked", "", "seam_of_shifted_windows_that_is_seen",
    "The mask of -100 between both ends of the line in the last shifted window was left out.", "masked share", OTHER,
    extra="masked share raw", facts=[])  # fmt: skip

# --- recurrences, choices, guards


def _gru(g: Graph, how: Any) -> Sequence[str]:
    x = _fed(g, 7, 2, 8)
    given = [k(g, n, g.random.normal(size=s) / 2) for n, s in (("w", (1, 36, 8)), ("rr", (1, 36, 12)))]
    h = g.op("GRU", [x, *given, k(g, "b", g.random.normal(size=(1, 72)) / 2)], "h4", hidden_size=12, **how)
    return [g.dense(g.op("Squeeze", [h, ints(g, "ax", 1)], "h"), 12, 4, "y")]


_HARD = {"activations": ["HardSigmoid", "Tanh"], "activation_alpha": [0.2, 0.0], "activation_beta": [0.5, 0.0]}
two(_gru, _HARD, {}, "gates_of_keras_1_by_a_sigmoid", "A GRU lost its activations: gates are sigmoids in place of hard "
    "ones.", "h4", extra="h4 h", facts=["activations|HardSigmoid"])  # fmt: skip
two(_gru, _HARD, {}, "gates_of_keras_1_in_openvino", "The same file pair, the target in OpenVINO.", "h4 h",
    extra="h4 h", mode="ov_opt", facts=["activations|HardSigmoid"])  # fmt: skip


def _ways(g: Graph, how: str) -> Sequence[str]:
    """An LSTM of both directions, or two of one each."""
    x = _fed(g, 6, 2, 8)
    w, r, b = (g.random.normal(size=s) / 3 for s in ((2, 40, 8), (2, 40, 10), (2, 80)))
    if how == "one":
        h = g.op("LSTM", [x, k(g, "w", w), k(g, "rr", r), k(g, "b", b)], "h4", hidden_size=10,
                 direction="bidirectional")  # fmt: skip
    else:
        each = [g.op("LSTM", [x, *(k(g, f"{n}{at}", one[at:at + 1]) for n, one in (("w", w), ("rr", r), ("b", b)))],
                     f"way{at}", hidden_size=10, direction=to) for at, to in enumerate(("forward", "reverse"))]
        h = g.op("Concat", each, "h4", axis=1)
    h = g.op("Reshape", [g.op("Transpose", [h], "turned", perm=[0, 2, 1, 3]), ints(g, "to", 6, 2, 20)], "h")
    return [g.dense(h, 20, 4, "y")]


two(_ways, "one", "two", "both_directions_as_two_layers", "An LSTM of both directions as two that are joined.")


def _divided(g: Graph, how: str) -> Sequence[str]:
    a = g.input("clicks", g.random.integers(0, 9, (5, 8)).astype(np.float32))
    seen = g.feeds["clicks"] + g.random.integers(1, 20, (5, 8)).astype(np.float32)
    seen[1, 2] = seen[3, 5] = 0
    g.feeds["clicks"][1, 2] = g.feeds["clicks"][3, 5] = 0
    b = g.input("views", seen)
    if how == "guarded":
        none = g.op("Equal", [b, k(g, "nought", 0)], "none")
        q = g.op("Div", [a, g.op("Where", [none, k(g, "one", 1), b], "safe")], "rate")
        q = g.op("Where", [none, "nought", q], "known")
    else:
        q = g.op("Div", [a, b], "rate")
    return [g.dense(g.op("Relu", [g.dense(q, 8, 12, "a", 3)], "r"), 12, 4, "y")]


two(_divided, "guarded", "bare", "quotient_that_knows_no_nought",
    "TensorFlow's divide_no_nan became a plain Div: 0 / 0 is NaN in two places.", "rate", f"{OTHER} born not_a_number",
    extra="rate known safe a_mm")  # fmt: skip


def _votes(g: Graph, how: str) -> Sequence[str]:
    x = g.dense(_fed(g, 12, 6), 6, 8, "a")
    at = np.tile(g.random.integers(0, 5, 12)[:, None], (1, 8))
    x = g.op("ScatterElements", [k(g, "empty", np.zeros((5, 8))), g.weight("at", at), x], "met", axis=0, reduction=how)
    return [g.dense(g.op("Tanh", [x], "t"), 8, 4, "y")]


two(_votes, "max", "add", "messages_added_in_place_of_their_largest", "ScatterElements' reduction is add in place of "
    "max.", "met", opset=18, facts=["reduction"])  # fmt: skip


def _logsum(g: Graph, kind: str) -> Sequence[str]:
    x = g.op("Softplus", [g.dense(_fed(g, 4, 6, 12), 12, 12, "a", 2)], "s")
    x = g.op(kind, [x], "pooled", axes=[1], keepdims=0)
    return [g.dense(x, 12, 4, "y")]


two(_logsum, "ReduceLogSumExp", "ReduceLogSum", "pool_by_logsumexp_that_lost_its_exponentials",
    "ReduceLogSumExp became ReduceLogSum.", "pooled", OTHER, facts=["ReduceLogSum"])  # fmt: skip


def _hashed(g: Graph, seed: int) -> Sequence[str]:
    ids = g.input("ids", g.random.integers(0, 10**6, (4, 6)).astype(np.int32))
    h = g.op("Cast", [g.op("MurmurHash3", [ids], "hash", **MS, seed=seed, positive=1)], "wide", to=TensorProto.INT64)
    h = g.op("Mod", [h, g.weight("many", np.array(40, np.int64))], "bucket")
    x = g.op("Gather", [k(g, "table", g.random.normal(size=(40, 8))), h], "row")
    return [g.dense(g.op("ReduceMean", [x], "mean", axes=[1], keepdims=0), 8, 4, "y")]


two(_hashed, 7, 0, "buckets_by_a_hash_of_another_seed", "MurmurHash3 lost its seed of 7.", "hash",
    f"{OTHER} flips", extra="hash wide bucket row", facts=["seed"])  # fmt: skip


def _chosen(g: Graph, how: str) -> Sequence[str]:
    best = g.op("ArgMax", [g.dense(_fed(g, 6, 8), 8, 5, "score", 2)], "best", axis=1, keepdims=0)
    table = k(g, "table", g.random.normal(size=(5, 8)))
    if how == "row":
        x = g.op("Gather", [table, best], "row")
    else:
        hot = g.op("OneHot", [best, g.weight("depth", np.array(5, np.int64)), k(g, "values", [0, 1])], "hot", axis=-1)
        x = g.op("MatMul", [hot, table], "row")
    return [g.dense(x, 8, 4, "y")]


two(_chosen, "row", "hot", "row_by_a_product_with_ones", "A Gather by an argmax as a product with its one-hot rows.")

# --- pictures


def _pixels(g: Graph, how: Any) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 12, 12), 3, 4, "a")], "r")
    scales = k(g, "scales", [1, 1, how[1], how[1]])
    return [g.conv(g.op("Resize", [x, "", scales], "less", mode="linear", coordinate_transformation_mode=how[0]),
                   4, 3, "y")]  # fmt: skip


two(_pixels, ("half_pixel_symmetric", 0.6), ("half_pixel", 0.6), "picture_no_longer_reduced_about_its_middle",
    "half_pixel_symmetric became half_pixel, where 12 pixels times 0.6 are 7.2.", "less", opset=19,
    facts=["coordinate_transformation_mode|half_pixel"])  # fmt: skip
two(_pixels, ("pytorch_half_pixel", 1.5), ("half_pixel", 1.5), "pixels_of_pytorch_and_of_everybody",
    "pytorch_half_pixel is half_pixel where more than one pixel is left.", opset=19)  # fmt: skip


def _chroma(g: Graph, order: Sequence[int]) -> Sequence[str]:
    y = g.input("luma", g.random.uniform(0, 1, (1, 1, 8, 8)).astype(np.float32))
    uv = g.input("uv", g.random.uniform(-0.5, 0.5, (1, 2, 4, 4)).astype(np.float32))
    uv = g.op("Gather", [uv, ints(g, "order", *order)], "pair", axis=1)
    uv = g.op("Resize", [uv, "", k(g, "scales", [1, 1, 2, 2])], "full", mode="nearest")
    yuv = g.op("Concat", [y, uv], "yuv", axis=1)
    m = np.array([[1, 0, 1.402], [1, -0.344, -0.714], [1, 1.772, 0]])
    return [g.conv(g.op("Conv", [yuv, k(g, "matrix", m[:, :, None, None])], "rgb"), 3, 4, "y")]


two(_chroma, [0, 1], [1, 0], "chroma_of_nv21_read_as_nv12", "The two chroma planes are taken in the other order.",
    "pair", facts=[r"\border\b"])  # fmt: skip


def _boxes(g: Graph, v: Sequence[float]) -> Sequence[str]:
    x = g.dense(_fed(g, 10, 12), 12, 4, "raw")
    x = g.op("Mul", [x, k(g, "variances", v)], "loc")
    prior = g.random.uniform(0.2, 0.8, (10, 4))
    g.nodes.append(helper.make_node("Split", [x], ["d", "s"], name="node_d", axis=1))
    centre = g.op("Add", [k(g, "c", prior[:, :2]), g.op("Mul", ["d", k(g, "wh", prior[:, 2:])], "moved")], "centre")
    size = g.op("Mul", [g.op("Exp", ["s"], "grown"), "wh"], "size")
    return [g.op("Concat", [centre, size], "y", axis=1)]


two(_boxes, [0.1, 0.1, 0.2, 0.2], [0.2, 0.2, 0.1, 0.1], "variances_of_a_box_in_the_other_order",
    "SSD's variances are 0.2 of centres and 0.1 of sizes in place of 0.1 and 0.2.", "loc", opset=13,
    facts=["variances"])  # fmt: skip


def _latent(g: Graph, unit: float) -> Sequence[str]:
    z = g.op("Div", [_fed(g, 1, 4, 6, 6, scale=0.2), k(g, "unit", unit)], "z")
    x = g.op("Tanh", [g.conv(z, 4, 8, "a")], "t")
    return [g.conv(x, 8, 3, "y")]


two(_latent, 0.18215, 0.13025, "latent_of_another_autoencoder", "Latents are divided by SDXL's 0.13025 in place of "
    "0.18215.", "z", facts=["unit"])  # fmt: skip
two(_latent, 0.18215, 0.13025, "latent_of_another_autoencoder_fused", "The same, all fusions on.", "z a",
    mode="ort_opt", extra="z a", facts=["unit"])  # fmt: skip


def _old(g: Graph, how: str) -> Sequence[str]:
    """A classifier as an exporter of opset 9 writes it, or one of 17: Upsample, Dropout, a flattened softmax."""
    old = how == "old"
    x = g.op("Relu", [g.conv(_fed(g, 2, 3, 6, 6), 3, 6, "a")], "r")
    scales = k(g, "scales", [1, 1, 2, 2])
    if old:
        x = g.op("Upsample", [x, scales], "up", mode="nearest")
    else:
        x = g.op("Resize", [x, "", scales], "up", mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric")  # fmt: skip
    x = g.op("Flatten", [g.op("GlobalAveragePool", [g.conv(x, 6, 8, "c")], "pool")], "flat")
    x = g.op("Dropout", [x], "off") if old else x
    return [g.op("Softmax", [g.dense(x, 8, 5, "logits", 4)], "y", axis=1)]


two(_old, "old", "new", "classifier_of_opset_9_beside_17", "Upsample, Dropout and a flattened softmax of opset 9.",
    base_opset=9)  # fmt: skip

# --- classical learners


def _forest(g: Graph, how: str) -> Sequence[str]:
    """Four trees of two levels on whole numbers, whose thresholds are whole numbers too."""
    x = g.input("x", g.random.integers(0, 6, (24, 4)).astype(np.float32))
    features, limits = g.random.integers(0, 4, (4, 3)), g.random.integers(1, 5, (4, 3)).astype(float)
    leaves = g.random.normal(size=(4, 4))
    if how == "where":
        parts = []
        for t in range(4):
            asks = []
            for n in range(3):
                one = g.op("Gather", [x, g.weight(f"f{t}{n}", np.array([features[t, n]]))], f"x{t}{n}", axis=1)
                asks.append(g.op("LessOrEqual", [one, k(g, f"l{t}{n}", limits[t, n])], f"ask{t}{n}"))
            values = [k(g, f"v{t}{n}", leaves[t, n]) for n in range(4)]
            left = g.op("Where", [asks[1], values[0], values[1]], f"left{t}")
            right = g.op("Where", [asks[2], values[2], values[3]], f"right{t}")
            parts.append(g.op("Where", [asks[0], left, right], f"tree{t}"))
        score = g.op("Sum", parts, "score")
    else:
        ids, nodes = [n for _ in range(4) for n in range(7)], list(itertools.product(range(4), range(7)))
        inner = "BRANCH_LT" if how == "less" else "BRANCH_LEQ"
        score = g.op(
            "TreeEnsembleRegressor", [x], "score", **ML, n_targets=1, aggregate_function="SUM",
            nodes_treeids=[t for t, _ in nodes], nodes_nodeids=ids,
            nodes_featureids=[int(features[t, n]) if n < 3 else 0 for t, n in nodes],
            nodes_values=[float(limits[t, n]) if n < 3 else 0.0 for t, n in nodes],
            nodes_modes=[inner if n < 3 else "LEAF" for _, n in nodes],
            nodes_truenodeids=[2 * n + 1 if n < 3 else 0 for _, n in nodes],
            nodes_falsenodeids=[2 * n + 2 if n < 3 else 0 for _, n in nodes],
            target_treeids=[t for t, n in nodes if n > 2], target_nodeids=[n for _, n in nodes if n > 2],
            target_ids=[0] * 16, target_weights=[float(leaves[t, n - 3]) for t, n in nodes if n > 2],
        )  # fmt: skip
    return [g.op("Tanh", [score], "y")]


two(_forest, "", "less", "branches_that_are_less_in_place_of_at_most",
    "A forest's branches ask x < t in place of x <= t, beside features and thresholds in whole numbers.", "score",
    f"{OTHER} flips", facts=["nodes_modes|BRANCH_LT"])  # fmt: skip
two(_forest, "", "where", "forest_as_where", "Four trees as comparisons and Where.")


def _scaled(g: Graph, how: str) -> Sequence[str]:
    x = g.input("x", (g.random.normal(size=(12, 5)) * [1, 3, 0.5, 2, 4] + 2).astype(np.float32))
    spread = np.array([1, 3, 0.5, 2, 4])
    unit = spread if how == "spread" else 1 / spread
    x = g.op("Scaler", [x], "scaled", **ML, offset=[2.0] * 5, scale=[float(one) for one in unit])
    x = g.op("Normalizer", [x], "unit", **ML, norm="MAX" if how == "largest" else "L2")
    return [g.dense(x, 5, 4, "y")]


two(_scaled, "", "spread", "scaler_that_multiplies_by_its_deviations",
    "Scaler's scale holds deviations in place of their inverses.", "scaled", facts=[r"\bscale\b"])  # fmt: skip
two(_scaled, "", "largest", "rows_by_their_largest_in_place_of_their_length", "Normalizer's norm is MAX, not L2.",
    "unit", facts=[r"\bnorm\b"])  # fmt: skip


def _support(g: Graph, gamma: float) -> Sequence[str]:
    x = _fed(g, 10, 4)
    vectors, weights = g.random.normal(size=(6, 4)), g.random.normal(size=6)
    y = g.op("SVMRegressor", [x], "score", **ML, kernel_type="RBF", kernel_params=[gamma, 0.0, 3.0], n_supports=6,
             support_vectors=[float(one) for one in vectors.ravel()], coefficients=[float(one) for one in weights],
             rho=[0.2], post_transform="NONE")  # fmt: skip
    return [g.op("Tanh", [y], "y")]


two(_support, 0.25, 0.5, "support_vectors_of_another_gamma", "kernel_params hold a gamma of 0.5 in place of 0.25.",
    "score", facts=["kernel_params"])  # fmt: skip

# --- quantised files, narrow constants


def _added(g: Graph, how: str) -> Sequence[str]:
    x = _fed(g, 4, 16)
    told = {"a": (0.02, 120), "b": (0.05, 131), "c": (0.06, 128)}
    sides = []
    for name, factor in (("a", 0.8), ("b", 2.0)):
        size, zero = told[name]
        s, z = k(g, f"{name}_s", size), g.weight(f"{name}_z", np.array(zero, np.uint8))
        sides += [g.op("QuantizeLinear", [g.dense(x, 16, 12, name, factor), s, z], f"{name}_q"), s, z]
    told_c = [k(g, "c_s", 0.06), g.weight("c_z", np.array(128, np.uint8))]
    if how == "exchanged":
        sides[1], sides[4] = sides[4], sides[1]
    if how == "parts":
        both = [g.op("DequantizeLinear", sides[at:at + 3], f"{name}_d") for name, at in (("a", 0), ("b", 3))]
        q = g.op("QuantizeLinear", [g.op("Add", both, "sum"), *told_c], "c_q")
    else:
        q = g.op("QLinearAdd", [*sides, *told_c], "c_q", **MS)
    return [g.dense(g.op("Relu", [g.op("DequantizeLinear", [q, *told_c], "c")], "r"), 12, 4, "y")]


two(_added, "", "exchanged", "scales_of_two_summands_exchanged", "QLinearAdd reads its two scales in each other's "
    "place.", "c_q c", extra="c_q c", facts=["[ab]_s"])  # fmt: skip
two(_added, "parts", "", "sum_of_integers_beside_its_parts", "QLinearAdd beside dequantising, adding, quantising.")


def _shares(g: Graph, zero: int) -> Sequence[str]:
    x = g.op("Softmax", [g.dense(_fed(g, 8, 12), 12, 6, "score", 4)], "share", axis=-1)
    told = [k(g, "share_s", 1 / 256), g.weight("share_z", np.array(zero, np.int8))]
    x = g.op("DequantizeLinear", [g.op("QuantizeLinear", [x, *told], "share_q"), *told], "share_d")
    return [g.dense(x, 6, 4, "y")]


two(_shares, -128, 0, "shares_cut_off_at_a_half",
    "Shares of a softmax lost the zero point of -128: at a scale of 1/256 they end at 127/256.", "share_q share_d",
    f"{DIFFER} saturation", extra="share_q share_d", facts=["share_z|zero"])  # fmt: skip


def _float8(g: Graph, saturate: int) -> Sequence[str]:
    x = g.dense(_fed(g, 6, 16), 16, 16, "a", 260.0)
    x = g.op("Cast", [x], "x8", to=TensorProto.FLOAT8E4M3FN, saturate=saturate)
    x = g.op("Mul", [g.op("Cast", [x], "back", to=TensorProto.FLOAT), k(g, "unit", 0.01)], "less")
    return [g.dense(x, 16, 4, "y")]


two(_float8, 1, 0, "float8_that_no_longer_saturates", "Cast to float8 with saturate 0: beyond 448 is NaN.", "x8 back",
    f"{OTHER} overflow born not_a_number", opset=19, extra="x8 back less", facts=["saturate"])  # fmt: skip


def _cut(g: Graph, how: str) -> Sequence[str]:
    """A level of 30,000, in float32, or in a file in float16 whose converter ends at 10,000."""
    half = how != "float"
    kind = np.float16 if half else np.float32
    x = _fed(g, 4, 12, scale=0.5)
    x = g.op("Cast", [x], "x_half", to=TensorProto.FLOAT16) if half else x
    w, level = g.random.normal(size=(12, 8)) / 3, np.where(np.arange(8) < 4, 3e4, 2.0)
    w[:, :4] *= 1e-4
    level = np.minimum(level, 1e4) if how == "cut" else level
    x = g.op("MatMul", [x, g.weight("w", w.astype(kind))], "h")
    x = g.op("Tanh", [g.op("Mul", [x, g.weight("level", level.astype(kind))], "even")], "t")
    x = g.op("MatMul", [x, g.weight("v", (g.random.normal(size=(8, 4)) / 3).astype(kind))], "y_half" if half else "y")
    return [g.op("Cast", [x], "y", to=TensorProto.FLOAT) if half else x]


two(_cut, "float", "cut", "level_that_the_half_converter_cuts",
    "onnxconverter_common's max_finite_val of 1e4: a level of 30,000 became 10,000 in the float16 file.", "even",
    f"{DIFFER} held_narrower", facts=["level"])  # fmt: skip


def _both(g: Graph, how: Any) -> Sequence[str]:
    mode, alpha = how
    x = g.op("DepthToSpace", [g.conv(_fed(g, 1, 3, 6, 6), 3, 16, "a")], "wide", blocksize=2, mode=mode)
    x = g.op("LRN", [x], "even", size=3, alpha=alpha, beta=0.75)
    return [g.conv(g.op("Mul", [x, k(g, "two", 2)], "twice"), 4, 3, "y")]


two(_both, ("DCR", 0.9), ("CRD", 0.1), "blocks_and_response_both_otherwise",
    "Two faults in a row: DepthToSpace's mode is CRD in place of DCR, LRN's alpha 0.1 in place of 0.9.", "wide even",
    also="wide even", facts=[r"\bmode\b", "alpha"])  # fmt: skip
