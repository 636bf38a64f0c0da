"""A seventeenth batch, by somebody who built none of it: speech front-ends, graphs of atoms, diffusion steps, caches,
regions of detectors, sequences of unlike length, external data, files that hold functions or sparse weights, samples
that see each other in a baked batch; float16, bfloat16, 8 and 4 bits, LiteRT's bytes; 14 are healthy. Labelled before
the tool was run on any; what a docstring states was measured in the stock engine or numpy
(``python tests/planted/fourteenth_truth.py seventeenth``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from planted import fourteenth_onnx, thirteenth_onnx
from planted.fifteenth_onnx import SEVEN, _bytes, _detail, _put
from planted.fourteenth_onnx import DATA, ROUNDS, _fed, _filters, _images
from planted.onnx_faults import Array, Graph, _body, _info
from planted.onnx_further import ints, k
from planted.sixteenth_onnx import newer as _newer
from planted.twelfth.case import COARSE, DIFFER, Build, Thread, graph, labelled

CASES: list[Thread] = []

case, pair = (functools.partial(one, cases=CASES) for one in (fourteenth_onnx.case, fourteenth_onnx.pair))


def newer(*words: Any, **more: Any) -> Callable[[Build], Build]:
    """The sixteenth batch's, in this batch."""

    def register(build: Build) -> Build:
        before = len(sixteenth := _newer.__globals__["CASES"])
        _newer(*words, **more)(build)
        CASES.extend(sixteenth[before:])
        del sixteenth[before:]
        return build

    return register


def samples(*words: Any, **more: Any) -> Callable[[Build], Build]:
    """The thirteenth batch's, in this batch."""

    def register(build: Build) -> Build:
        before = len(thirteenth_onnx.CASES)
        thirteenth_onnx.samples(*words, **more)(build)
        CASES.extend(thirteenth_onnx.CASES[before:])
        del thirteenth_onnx.CASES[before:]
        return build

    return register


# --- speech


def _framed(periodic: int, scale: float = 1, rate: int = 16000) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 1, 1, 512)
        frames = g.op("Conv", [x, k(g, "eye", np.eye(64)[:, None])], "frames", strides=[32])
        turned = g.op("Transpose", [frames], "turned", perm=[0, 2, 1])
        window = g.op("HannWindow", [g.weight("size", np.array(64, np.int64))], "window", periodic=periodic)
        seen = g.op("Mul", [turned, window], "seen")
        n, f = np.arange(64), np.arange(33)
        for name, wave in (("re", np.cos), ("im", np.sin)):
            g.op("MatMul", [seen, k(g, f"{name}.w", wave(2 * np.pi * np.outer(n, f) / 64))], name)
        power = g.op("Add", [g.op("Mul", ["re", "re"], "re2"), g.op("Mul", ["im", "im"], "im2")], "power")
        told = [g.weight(name, np.array(value)) for name, value in (("bins", 12), ("dft", 64), ("rate", rate))]
        low, high = k(g, "low", 100), k(g, "high", 6000)
        mel = g.op("MatMul", [power, g.op("MelWeightMatrix", [*told, low, high], "filters")], "mel")
        y = g.op("Log", [g.op("Add", [mel, k(g, "floor", 1e-3)], "held")], "log")
        y = g.op("Mul", [y, k(g, "scale", scale)], "even") if scale != 1 else y
        return [g.dense(y, 12, 6, "y")]

    return build


@pair(_framed(0), "window", extra="window seen", facts=["periodic"])
def window_that_is_symmetric(g: Graph) -> Sequence[str]:
    """The window of analysis lost periodic 1, which the trainer had."""
    return _framed(1)(g)


@pair(_framed(1, rate=22050), "filters", extra="filters mel", facts=[r"\brate\b"])
def filters_of_another_sampling_rate(g: Graph) -> Sequence[str]:
    """The filter bank was made for 22050 samples a second, where 16000 come."""
    return _framed(1)(g)


@pair(_framed(1), "log y_mm even", mode="ort_opt", extra="log y_mm even y")
def natural_logarithm_in_place_of_the_common_one(g: Graph) -> Sequence[str]:
    """The factor 0.4343 behind the logarithm was lost."""
    return _framed(1, 0.4342944819)(g)


def _lengths(told: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 9, 3, 8)
        g.weights["lengths"] = np.array([9, 5, 2], np.int32)
        given = [k(g, name, g.random.normal(size=(2, 48, n)) / np.sqrt(n)) for name, n in (("w", 8), ("r", 12))]
        given += [k(g, "b", g.random.normal(size=(2, 96)) / 5), "lengths" if told else ""]
        g.nodes.append(helper.make_node("LSTM", [x, *given], ["h", "last"], name="node_h", hidden_size=12,
                                        direction="bidirectional"))  # fmt: skip
        flat = g.op("Reshape", [g.op("Transpose", ["last"], "turned", perm=[1, 0, 2]), ints(g, "to", 3, 24)], "flat")
        return [g.dense(flat, 24, 5, "y"), "h"]

    return build


@pair(_lengths(False), "h last", extra="h last", facts=[r"\blengths\b|sequence_lens"])
def lengths_that_an_exporter_dropped(g: Graph) -> Sequence[str]:
    """sequence_lens of a bidirectional LSTM is missing: padded steps run, and the backward half begins in them."""
    return _lengths(True)(g)


def _reversed(batch: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Tanh", [g.dense(_fed(g, 6, 6, 8), 8, 8, "a")], "t")
        g.weights["lengths"] = np.array([6, 4, 3, 6, 2, 5], np.int64)
        back = g.op("ReverseSequence", [x, "lengths"], "back", batch_axis=batch, time_axis=1 - batch)
        return [g.dense(g.op("Concat", [x, back], "both", axis=-1), 16, 4, "y")]

    return build


@pair(_reversed(0), "back", mode="ov_opt", facts=["batch_axis|time_axis"])
def steps_reversed_along_the_batch(g: Graph) -> Sequence[str]:
    """Six sequences of six steps: batch and time are exchanged where they are reversed."""
    return _reversed(1)(g)


def _peeps(yes: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 7, 2, 8)
        given = [k(g, name, g.random.normal(size=(1, 40, n)) / np.sqrt(n)) for name, n in (("w", 8), ("r", 10))]
        given.append(k(g, "b", g.random.normal(size=(1, 80)) / 5))
        peeps = k(g, "peeps", g.random.normal(size=(1, 30)))
        g.op("LSTM", [x, *given, *(["", "", "", peeps] if yes else [])], "h", hidden_size=10)
        return [g.dense(g.op("Squeeze", ["h", ints(g, "one", 1)], "flat"), 10, 4, "y")]

    return build


@pair(_peeps(False), "h", facts=[r"\bpeeps\b|peephole"])
def cell_that_no_longer_looks_at_itself(g: Graph) -> Sequence[str]:
    """An LSTM with peepholes lost them."""
    return _peeps(True)(g)


# --- attention


def _grouped(tiled: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 2, 5, 16), 16, "n")
        q = g.op("Reshape", [g.dense(x, 16, 16, "q"), ints(g, "q4", 2, 5, 4, 4)], "q_heads")
        q = g.op("Transpose", [q], "qt", perm=[0, 2, 1, 3])
        for name, perm in (("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            heads = g.op("Reshape", [g.dense(x, 16, 8, name), ints(g, f"{name}2", 2, 5, 2, 4)], f"{name}_heads")
            turned = g.op("Transpose", [heads], f"{name}t", perm=perm)
            shape = [4, 5] if name == "k" else [5, 4]
            both = [2, 1, 2, *shape] if tiled else [2, 2, 1, *shape]
            wide = g.op("Reshape", [turned, ints(g, f"{name}_at", *both)], f"{name}_one")
            wide = g.op("Expand", [wide, ints(g, f"{name}_to", 2, 2, 2, *shape)], f"{name}_all")
            g.op("Reshape", [wide, ints(g, f"{name}_out", 2, 4, *shape)], f"{name}_wide")
        score = g.op("Mul", [g.op("MatMul", [q, "k_wide"], "score"), k(g, "half", 0.5)], "scaled")
        mixed = g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), "v_wide"], "mixed")
        flat = g.op("Reshape", [g.op("Transpose", [mixed], "back", perm=[0, 2, 1, 3]), ints(g, "o3", 2, 5, 16)], "flat")
        return [g.dense(flat, 16, 8, "y")]

    return build


WIDE = "k_all v_all k_wide v_wide k_one v_one"


@pair(_grouped(True), WIDE, extra=WIDE, facts=["k_at|v_at"])
def heads_shared_by_their_remainder(g: Graph) -> Sequence[str]:
    """Two heads of keys serve four of queries: 0 1 0 1 in place of 0 0 1 1, for keys and values."""
    return _grouped(False)(g)


def _cached(first: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 1, 2, 16), 16, "n")
        for name in "qkv":
            g.dense(x, 16, 16, name, scale=1.5)
        for name in "kv":
            past = g.input(f"past_{name}", g.random.normal(size=(1, 6, 16)).astype(np.float32))
            g.op("Concat", [name, past] if first else [past, name], f"present_{name}", axis=1)
        mask = np.zeros((2, 8))
        mask[0, 7] = -1e4
        score = g.op("MatMul", ["q", g.op("Transpose", ["present_k"], "kt", perm=[0, 2, 1])], "score")
        scaled = g.op("Add", [g.op("Mul", [score, k(g, "s", 0.25)], "scaled"), k(g, "mask", mask)], "masked")
        mixed = g.op("MatMul", [g.op("Softmax", [scaled], "share", axis=-1), "present_v"], "mixed")
        return [g.dense(mixed, 16, 8, "y"), "present_k", "present_v"]

    return build


@pair(_cached(True), "present_k present_v", also="present_k present_v", extra="masked share")
def cache_joined_in_front(g: Graph) -> Sequence[str]:
    """New keys and values are put before those of the cache, in place of behind: y is off where the mask hides a word,
    and both caches are, each by its own operator."""
    return _cached(False)(g)


def _crossed(itself: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        memory = g.input("memory", g.random.normal(size=(1, 6, 16)).astype(np.float32))
        x = g.attention(g.norm(_fed(g, 1, 6, 16), 16, "n"), 16, "self")
        known = g.norm(memory, 16, "known")
        g.dense(g.norm(x, 16, "m"), 16, 16, "q")
        for name in "kv":
            g.dense("m" if itself else known, 16, 16, name)
        score = g.op("MatMul", ["q", g.op("Transpose", ["k"], "kt", perm=[0, 2, 1])], "score")
        share = g.op("Softmax", [g.op("Mul", [score, k(g, "s", 0.25)], "scaled")], "share", axis=-1)
        return [g.dense(g.op("MatMul", [share, "v"], "mixed"), 16, 8, "y"), g.op("ReduceMax", [known], "most")]

    return build


@pair(_crossed(True), "k_mm v_mm k v", extra="k_mm v_mm k v", facts=[r"\bknown\b"])
def cross_attention_that_reads_itself(g: Graph) -> Sequence[str]:
    """Keys and values are made of the decoder's own words in place of the encoder's."""
    return _crossed(False)(g)


def _hidden(axis: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 2, 6, 16), 16, "n")
        for name in "qkv":
            g.dense(x, 16, 16, name, scale=1.5)
        there = np.ones((2, 6), np.float32)
        there[0, 4:], there[1, 2:] = 0, 0
        wide = g.op("Unsqueeze", [g.input("there", there), ints(g, "axis", axis)], "wide")
        far = g.op("Mul", [g.op("Sub", [k(g, "one", 1), wide], "away"), k(g, "far", -1e4)], "bias")
        score = g.op("MatMul", ["q", g.op("Transpose", ["k"], "kt", perm=[0, 2, 1])], "score")
        score = g.op("Add", [g.op("Mul", [score, k(g, "s", 0.25)], "scaled"), far], "masked")
        mixed = g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), "v"], "mixed")
        return [g.dense(g.op("ReduceMean", [mixed], "mean", axes=[1], keepdims=0), 16, 8, "y")]

    return build


@pair(_hidden(2), "wide away bias masked share", extra="wide away bias masked share", facts=[r"\baxis\b"])
def padding_mask_laid_over_the_queries(g: Graph) -> Sequence[str]:
    """A mask of [2, 6] became [2, 6, 1] in place of [2, 1, 6]: it hides whole queries, which changes nothing of their
    shares, and padded keys are seen."""
    return _hidden(1)(g)


def _batched(baked: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 2, 4, 16), 16, "n")
        for name in "qkv":
            g.op("Reshape", [g.dense(x, 16, 16, name, scale=2), ints(g, f"{name}_to", baked, -1, 16)], f"{name}_rows")
        score = g.op("MatMul", ["q_rows", g.op("Transpose", ["k_rows"], "kt", perm=[0, 2, 1])], "score")
        share = g.op("Softmax", [g.op("Mul", [score, k(g, "s", 0.25)], "scaled")], "share", axis=-1)
        rows = g.op("MatMul", [share, "v_rows"], "mixed")
        return [g.dense(g.op("Reshape", [rows, ints(g, "back", -1, 4, 16)], "flat"), 16, 8, "y")]

    return build


ROWS = "q_rows k_rows v_rows kt score scaled share mixed"


@pair(_batched(1), ROWS, extra=ROWS, facts=["_to"])
def samples_that_see_each_other(g: Graph) -> Sequence[str]:
    """A batch of 1 was baked into three reshapes: of two samples one sequence of eight words is made, and every word
    looks at both."""
    return _batched(2)(g)


def _swiglu(up: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 2, 6, 16), 16, "n")
        for name in ("gate", "up"):
            g.dense(x, 16, 32, name, scale=2)
        one, other = ("up", "gate") if up else ("gate", "up")
        act = g.op("Mul", [one, g.op("Sigmoid", [one], "open")], "act")
        return [g.dense(g.op("Mul", [act, other], "both"), 32, 8, "y")]

    return build


@pair(_swiglu(True), "open act both", mode="ov_opt", extra="open act both")
def gate_on_the_other_half(g: Graph) -> Sequence[str]:
    """SwiGLU's sigmoid was put on the half that it multiplies, in OpenVINO."""
    return _swiglu(False)(g)


def _sliced(yes: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 2, 5, 16), 16, "n")
        for name in "qkv":
            g.dense(x, 16, 16, name, scale=1.5)
        quarter = k(g, "s", 0.5)
        if yes:
            heads, axis = [], ints(g, "axis", 2)
            for n in range(4):
                span = [ints(g, f"from{n}", 4 * n), ints(g, f"to{n}", 4 * n + 4), axis]
                q, key, v = (g.op("Slice", [name, *span], f"{name}{n}") for name in "qkv")
                score = g.op("MatMul", [q, g.op("Transpose", [key], f"kt{n}", perm=[0, 2, 1])], f"score{n}")
                share = g.op("Softmax", [g.op("Mul", [score, quarter], f"scaled{n}")], f"share{n}", axis=-1)
                heads.append(g.op("MatMul", [share, v], f"mixed{n}"))
            flat = g.op("Concat", heads, "flat", axis=2)
        else:
            to = ints(g, "to4", 2, 5, 4, 4)
            for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
                g.op("Transpose", [g.op("Reshape", [name, to], f"{name}h")], f"{name}t", perm=perm)
            score = g.op("Mul", [g.op("MatMul", ["qt", "kt"], "score"), quarter], "scaled")
            mixed = g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), "vt"], "mixed")
            back = g.op("Transpose", [mixed], "back", perm=[0, 2, 1, 3])
            flat = g.op("Reshape", [back, ints(g, "to3", 2, 5, 16)], "flat")
        return [g.dense(flat, 16, 8, "y")]

    return build


@pair(_sliced(True), kind="healthy", mode="ov_opt")
def heads_by_slices(g: Graph) -> Sequence[str]:
    """Four heads of attention, each by slices of its own, against one product of four axes."""
    return _sliced(False)(g)


# --- graphs


def _graph_net(sent: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 12, 8), 8, 8, "a")
        edges = g.random.integers(0, 12, size=(2, 40))
        for name, row in zip(("source", "target"), edges, strict=True):
            g.weights[name] = row
        message = g.op("Gather", [x, sent], "message", axis=0)
        here = g.op("Gather", [x, "target"], "here", axis=0)
        both = g.op("Concat", [message, here], "pair", axis=1)
        score = g.op("LeakyRelu", [g.dense(both, 16, 1, "score", scale=2)], "leaky", alpha=0.2)
        part = g.op("Mul", [message, g.op("Exp", [score], "weight")], "part")
        g.weights["rows"] = np.repeat(edges[1][:, None], 8, 1)
        zero = k(g, "zero", np.zeros((12, 8)))
        total = g.op("ScatterElements", [zero, "rows", part], "total", axis=0, reduction="add")
        return [g.dense(g.op("Tanh", [total], "t"), 8, 4, "y")]

    return build


@pair(_graph_net("target"), "message", facts=[r"\bsource\b"])
def edges_read_from_their_other_end(g: Graph) -> Sequence[str]:
    """Messages are gathered from the nodes that receive them."""
    return _graph_net("source")(g)


# --- diffusion


def _denoised(cosine: bool, linear: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 2, 4, 8, 8)
        step = g.input("step", np.array([600, 250], np.int64))
        alphas = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000) if linear else
                            1 - np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)  # fmt: skip
        a = g.op("Gather", [k(g, "alphas", alphas), step], "a_t", axis=0)
        a = g.op("Reshape", [a, ints(g, "to4", 2, 1, 1, 1)], "a_at")
        late = g.op("Reshape", [g.op("Cast", [step], "late", to=TensorProto.FLOAT), ints(g, "to2", 2, 1)], "late2")
        angle = g.op("Mul", [late, k(g, "rates", np.exp(-np.arange(8) * np.log(1e4) / 8))], "angle")
        s, c = g.op("Sin", [angle], "sine"), g.op("Cos", [angle], "cosine")
        time = g.dense(g.op("Concat", [c, s] if cosine else [s, c], "time", axis=1), 16, 8, "told")
        h = g.op("Add", [g.conv(x, 4, 8, "in"), g.op("Reshape", [time, ints(g, "to8", 2, 8, 1, 1)], "time4")], "h")
        noise = g.conv(g.op("Mul", [h, g.op("Sigmoid", [h], "gate")], "silu"), 8, 4, "noise")
        rest = g.op("Sqrt", [g.op("Sub", [k(g, "one", 1), a], "less")], "sigma")
        clean = g.op("Sub", [x, g.op("Mul", [rest, noise], "part")], "minus")
        return [g.op("Div", [clean, g.op("Sqrt", [a], "level")], "y"), noise]

    return build


@pair(_denoised(False, False), "time", extra="time told_mm")
def sine_before_cosine_of_a_time(g: Graph) -> Sequence[str]:
    """A step's cosines and sines are joined the other way round (flip_sin_to_cos)."""
    return _denoised(True, False)(g)


@pair(_denoised(True, True), "a_t a_at", extra="a_t a_at", facts=[r"\balphas\b"])
def schedule_of_another_model(g: Graph) -> Sequence[str]:
    """The table of a schedule is that of linear betas in place of scaled ones."""
    return _denoised(True, False)(g)


# --- pictures


def _regions(how: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 16, 16), 3, 8, "a")], "r")
        corner = g.random.uniform(0, 50, size=(5, 2))
        rois = g.input("rois", np.concatenate([corner, corner + g.random.uniform(20, 60, size=(5, 2))], 1).astype("f4"))
        g.weights["which"] = np.zeros(5, np.int64)
        x = g.op("RoiAlign", [x, rois, "which"], "regions", output_height=4, output_width=4, spatial_scale=0.125,
                 sampling_ratio=2, coordinate_transformation_mode=how)  # fmt: skip
        return [g.dense(g.op("Flatten", [x], "flat"), 128, 6, "y")]

    return build


@pair(_regions("output_half_pixel"), "regions", facts=["coordinate_transformation_mode"])
def regions_half_a_pixel_aside(g: Graph) -> Sequence[str]:
    """RoiAlign's aligned=True (half_pixel) became opset 10's only way, output_half_pixel."""
    return _regions("half_pixel")(g)


def _multiplied(other: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 4, "a")], "r")
        w = g.random.normal(size=(4, 3, 1, 3, 3)) / 3
        w = (w.transpose(1, 0, 2, 3, 4) if other else w).reshape(12, 1, 3, 3)
        x = g.op("Conv", [x, k(g, "dw.w", w)], "dw", group=4, pads=[1, 1, 1, 1])
        return [g.op("Conv", [g.op("Relu", [x], "s"), _filters(g, "pw.w", 6, 12, 1, 1)], "y")]

    return build


@pair(_multiplied(True), "dw s", mode="ort_opt", extra="dw s", facts=[r"\bdw\.w\b"])
def filters_of_a_multiplier_in_another_order(g: Graph) -> Sequence[str]:
    """TensorFlow's depthwise filters (4 channels, 3 each) were laid out 3 by 4."""
    return _multiplied(False)(g)


def _spectral(divided: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 1, 3, 10, 10)
        for n, inside in enumerate((3, 8, 8)):
            w = g.random.normal(size=(8, inside, 3, 3)) / 3
            sigma = np.linalg.svd(w.reshape(8, -1))[1][0] if divided or n != 1 else 1
            x = g.op("LeakyRelu", [g.op("Conv", [x, k(g, f"c{n}.w", w / sigma)], f"c{n}")], f"l{n}", alpha=0.2)
        return [g.dense(g.op("Flatten", [x], "flat"), 128, 1, "y")]

    return build


@pair(_spectral(False), "c1", extra="c1 l1", facts=[r"\bc1\.w\b"])
def filter_not_divided_by_its_spectral_norm(g: Graph) -> Sequence[str]:
    """A discriminator's second filter kept its length: it is 3.56 times what it should be."""
    return _spectral(True)(g)


def _decoded(order: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 6, 6), 3, 8, "a")], "r")
        head = g.op("Transpose", [g.conv(x, 8, 24, "head", scale=0.5)], "last", perm=[0, 2, 3, 1])
        head = g.op("Reshape", [head, ints(g, "to", 1, 216, 4)], "rows")
        scores = g.op("Reshape", [g.op("Transpose", [g.conv(x, 8, 6, "cls")], "c_last", perm=[0, 2, 3, 1]),
                                  ints(g, "to1", 1, 216)], "c_rows")  # fmt: skip
        ratio, scale = np.meshgrid([0.5, 1, 2], [32, 64], indexing="ij")
        sizes = np.stack([scale * np.sqrt(ratio), scale / np.sqrt(ratio)], -1)
        sizes = (sizes.transpose(1, 0, 2) if order else sizes).reshape(6, 2)
        g.nodes.append(helper.make_node("Split", [head], ["shift", "grow"], name="node_split", axis=-1))
        anchors = k(g, "anchors", np.tile(sizes, (36, 1))[None])
        cells = np.stack(np.meshgrid(np.arange(6), np.arange(6)), -1).reshape(36, 2).repeat(6, 0) * 16.0 + 8
        centre = g.op("Add", [g.op("Mul", ["shift", anchors], "moved"), k(g, "cells", cells[None])], "centre")
        size = g.op("Mul", [g.op("Exp", ["grow"], "factor"), anchors], "size")
        return [g.op("Concat", [centre, size], "boxes", axis=-1), g.op("Sigmoid", [scores], "scores")]

    return build


@pair(_decoded(True), "moved size", extra="moved size", facts=[r"\banchors\b"])
def anchors_by_size_in_place_of_shape(g: Graph) -> Sequence[str]:
    """Six anchors a cell were listed sizes first in place of ratios first: boxes are off, scores agree."""
    return _decoded(False)(g)


def _gemma(one: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 2, 6, 16), 16, 16, "a")
        power = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "power", axes=[-1])
        unit = g.op("Div", [x, g.op("Sqrt", [g.op("Add", [power, k(g, "eps", 1e-6)], "held")], "root")], "unit")
        gain = g.op("Add", [k(g, "gain", g.random.normal(size=16) * 0.3), k(g, "one", one)], "gains")
        return [g.dense(g.op("Mul", [unit, gain], "normed"), 16, 8, "y")]

    return build


@pair(_gemma(0), "gains normed", mode="ort_opt", extra="gains normed", facts=[r"\bone\b"])
def gains_of_gemma_without_their_one(g: Graph) -> Sequence[str]:
    """Gemma's gains are 1 + w; the file has w."""
    return _gemma(1)(g)


# --- bodies, integers, files


def _forgetful(keeps: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 1, 8), 8, 8, "a")
        body = _body(
            [
                helper.make_node("MatMul", ["state", "turn"], ["moved"], name="body_mm"),
                helper.make_node("Add", ["moved", "start"], ["sum"], name="body_add"),
                helper.make_node("Tanh", ["sum"], ["new"], name="body_tanh"),
                helper.make_node("Identity", ["state" if keeps else "new"], ["next"], name="body_next"),
                helper.make_node("Identity", ["new"], ["seen"], name="body_seen"),
                helper.make_node("Identity", ["on"], ["on_out"], name="body_on"),
            ],
            [_info("n", [], TensorProto.INT64), _info("on", [], TensorProto.BOOL), _info("state", [1, 8])],
            [_info("on_out", [], TensorProto.BOOL), _info("next", [1, 8]), _info("seen", [1, 8])],
            {"turn": (g.random.normal(size=(8, 8)) / 2).astype(np.float32),
             "start": (g.random.normal(size=(1, 8)) / 2).astype(np.float32)},
        )  # fmt: skip
        turns, on = g.weight("turns", np.array(5, np.int64)), g.weight("true", np.array(True))
        g.nodes.append(helper.make_node("Loop", [turns, on, x], ["final", "states"], name="node_final", body=body))
        return [g.dense("states", 8, 4, "y")]

    return build


LOOPED = "final states next@0 next seen@1 moved@1 sum@1 new@1 moved sum new seen"


@pair(_forgetful(True), LOOPED, extra=LOOPED + " final@0 state@1")
def loop_that_keeps_its_first_state(g: Graph) -> Sequence[str]:
    """A Loop gives on the state that it got and not the new one: every turn computes the first."""
    return _forgetful(False)(g)


def _either(turned: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 4, 8), 8, 8, "a")
        mean = g.op("ReduceMean", [x], "mean", keepdims=0)
        high = g.op("Greater", [mean, k(g, "zero", 0)], "high")
        high = g.op("Not", [high], "low") if turned else high
        bodies = [
            _body([helper.make_node("Mul", ["a", f"{name}_by"], [f"{name}_out"], name=f"{name}_mul")], [],
                  [_info(f"{name}_out", [4, 8])], {f"{name}_by": np.array(by, np.float32)})
            for name, by in (("then", 0.5), ("else", -1.5))
        ]  # fmt: skip
        g.nodes.append(helper.make_node("If", [high], ["chosen"], name="node_chosen", then_branch=bodies[0],
                                        else_branch=bodies[1]))  # fmt: skip
        return [g.dense("chosen", 8, 4, "y")]

    return build


@pair(_either(False), "chosen high low then_out else_out", extra="chosen high low then_out else_out")
def branch_whose_condition_lost_its_not(g: Graph) -> Sequence[str]:
    """The Not before an If is missing: the other branch runs."""
    return _either(True)(g)


def _hashed(direction: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        ids = g.input("x", g.random.integers(1, 2**31, size=(2, 10)).astype(np.uint64))
        mixed = g.op("BitShift", [ids, g.weight("by", np.array(13, np.uint64))], "shifted", direction=direction)
        mixed = g.op("Mod", [g.op("Add", [ids, mixed], "sum"), g.weight("size", np.array(97, np.uint64))], "bucket")
        row = g.op("Cast", [mixed], "row", to=TensorProto.INT64)
        rows = g.op("Gather", [k(g, "table", g.random.normal(size=(97, 8))), row], "rows")
        return [g.dense(rows, 8, 4, "y")]

    return build


@pair(_hashed("RIGHT"), "shifted", facts=["direction"])
def hash_shifted_to_the_other_side(g: Graph) -> Sequence[str]:
    """A hash of ids shifts to the right in place of the left: other rows of the table."""
    return _hashed("LEFT")(g)


def _binned(op: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.input("x", (g.random.integers(0, 40, size=(3, 12)) / 4).astype(np.float32))
        wide = g.op("Unsqueeze", [x, ints(g, "last", -1)], "wide")
        above = g.op(op, [wide, k(g, "edges", np.arange(1, 9))], "above")
        count = g.op("ReduceSum", [g.op("Cast", [above], "ones", to=TensorProto.INT64), ints(g, "last2", -1)], "bin",
                     keepdims=0)  # fmt: skip
        return [g.dense(g.op("Gather", [k(g, "table", g.random.normal(size=(9, 8))), count], "rows"), 8, 4, "y")]

    return build


@pair(_binned("Greater"), "above", mode="ov_opt", facts=["Greater"])
def edges_that_belong_to_the_other_bin(g: Graph) -> Sequence[str]:
    """Quarter steps in bins of one: a number on an edge is counted below it and not above."""
    return _binned("GreaterOrEqual")(g)


def _outside(build: Build, wrong: bool) -> Callable[[Path], tuple[Path, Path, Mapping[str, Array]]]:
    """The target's weights in a file of their own; wrong: one tensor's offset is another's."""

    def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
        g, outputs = graph(build)
        base, path = g.save(folder / "base.onnx", outputs), folder / "outside.onnx"
        onnx.save(onnx.load(base), path, save_as_external_data=True, location="outside.bin", size_threshold=0)
        model = onnx.load(path, load_external_data=False)
        held = {one.name: one.external_data for one in model.graph.initializer}
        if wrong:
            offsets = [next(pair for pair in held[name] if pair.key == "offset") for name in ("b.w", "c.w")]
            offsets[1].value = offsets[0].value
        path.write_bytes(model.SerializeToString())
        return path, base, g.feeds

    return make


def _layers(g: Graph) -> Sequence[str]:
    x = _fed(g, 4, 16)
    for name in "abcd":
        x = g.op("Tanh", [g.dense(x, 16, 16, name, scale=1.4)], f"{name}_t")
    return [g.dense(x, 16, 4, "y")]


def weight_read_from_another_offset() -> None:
    """The third layer's weight lies outside of the file, at the offset of the second's."""


def weights_beside_the_file() -> None:
    """The same with every offset right."""


def _functions(sparse: bool, alpha: float) -> Callable[[Path], tuple[Path, Path, Mapping[str, Array]]]:
    """The target calls a function of the file for each layer, whose slope is told at each call; sparse: one weight is
    held by its numbers that are not 0."""

    def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
        g = Graph(seed=1212)
        x = _fed(g, 4, 16)
        for name in "abc":
            x = g.op("LeakyRelu", [g.dense(x, 16, 16, name, scale=1.4)], f"{name}_l", alpha=0.3)
        if sparse:
            g.weights["b.w"] *= g.random.uniform(size=(16, 16)) < 0.2
        y = g.dense(x, 16, 4, "y")
        base, path = g.save(folder / "base.onnx", [y]), folder / "functions.onnx"
        model = onnx.load(base)
        if sparse:
            dense = next(one for one in model.graph.initializer if one.name == "b.w")
            value = numpy_helper.to_array(dense)
            at = np.stack(np.nonzero(value), 1).astype(np.int64)
            held = numpy_helper.from_array(value[tuple(at.T)], "b.w")
            model.graph.initializer.remove(dense)
            model.graph.sparse_initializer.append(
                helper.make_sparse_tensor(held, numpy_helper.from_array(at, "b.w_at"), [16, 16])
            )
        else:
            leaky = helper.make_node("LeakyRelu", ["sum"], ["out"])
            ref = leaky.attribute.add()
            ref.name, ref.ref_attr_name, ref.type = "alpha", "slope", onnx.AttributeProto.FLOAT
            layer = helper.make_function(
                "mine", "Layer", ["x", "w", "b"], ["out"],
                [helper.make_node("MatMul", ["x", "w"], ["product"]),
                 helper.make_node("Add", ["product", "b"], ["sum"]), leaky], [helper.make_opsetid("", 17)], ["slope"],
            )  # fmt: skip
            model.functions.append(layer)
            model.opset_import.append(helper.make_opsetid("mine", 1))
            calls = [
                helper.make_node("Layer", [read, f"{name}.w", f"{name}.b"], [f"{name}_l"], domain="mine",
                                 name=f"call_{name}", slope=alpha if name == "b" else 0.3)
                for read, name in (("x", "a"), ("a_l", "b"), ("b_l", "c"))
            ]  # fmt: skip
            last = [one for one in model.graph.node if one.output[0] in {"y_mm", "y"}]
            del model.graph.node[:]
            model.graph.node.extend([*calls, *last])
        onnx.save(model, path)
        return path, base, g.feeds

    return make


def slope_that_a_function_was_told() -> None:
    """Each layer is a call of the file's own function; the second is told a slope of 0.01 in place of 0.3."""


def layers_as_calls_of_one_function() -> None:
    """The same with the right slopes."""


def weight_held_by_what_is_not_nought() -> None:
    """A pruned weight is a sparse initializer in the target's file."""


CASES += [
    labelled(weight_read_from_another_offset, "", "converter", "ort_fp32", "c_mm c", DIFFER, extra="c_mm c",
             make=_outside(_layers, True), baseline="ort_fp32", facts=[r"\bc\.w\b"]),
    labelled(weights_beside_the_file, "", "healthy", "ort_opt", "", "", make=_outside(_layers, False),
             baseline="ort_fp32"),
    labelled(slope_that_a_function_was_told, "", "converter", "ort_fp32", "b_l", DIFFER, make=_functions(False, 0.01),
             baseline="ort_fp32", facts=["alpha|slope"], extra="b_l"),
    labelled(layers_as_calls_of_one_function, "", "healthy", "ort_opt", "", "", make=_functions(False, 0.3),
             baseline="ort_fp32"),
    labelled(weight_held_by_what_is_not_nought, "", "healthy", "ort_fp32", "", "", make=_functions(True, 0.3),
             baseline="ort_fp32"),
]  # fmt: skip


# --- quantised files of other tools


def _added(by: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 4, 16)
        zero = g.weight("zero", np.array(0, np.int8))
        for name in "ab":
            g.op("QuantizeLinear", [g.dense(x, 16, 16, name), k(g, f"{name}_s", 0.03), zero], f"{name}_q")
        told = ["a_q", "a_s", zero, "b_q", k(g, "b_s2", 0.03 * by), zero, k(g, "sum_s", 0.05), zero]
        g.op("QLinearAdd", told, "sum_q", domain="com.microsoft")
        sum_ = g.op("DequantizeLinear", ["sum_q", "sum_s", zero], "sum")
        return [g.dense(g.op("Tanh", [sum_], "t"), 16, 4, "y")]

    return build


def quantised_sum(scale: float) -> Callable[[Path], tuple[Path, Path, Mapping[str, Array]]]:
    """QLinearAdd, whose type onnx cannot infer: it is told by hand."""

    def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
        paths = []
        for name, by in (("target", scale), ("base", 1.0)):
            g, outputs = graph(_added(by))
            told = [helper.make_tensor_value_info(one, TensorProto.FLOAT, [4, 4]) for one in outputs]
            made = helper.make_graph(g.nodes, "sum", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
                                     told, [numpy_helper.from_array(v, n) for n, v in g.weights.items()])  # fmt: skip
            sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
            onnx.save(helper.make_model(made, opset_imports=sets, ir_version=8), folder / f"{name}.onnx")
            paths.append(folder / f"{name}.onnx")
        return paths[0], paths[1], g.feeds

    return make


def scale_of_one_side_of_a_sum() -> None:
    """QLinearAdd reads its second side with 1.6 times its scale."""


CASES.append(labelled(scale_of_one_side_of_a_sum, "", "converter", "ort_fp32", "sum_q sum", f"{DIFFER} scale",
                      make=quantised_sum(1.6), baseline="ort_fp32", facts=[r"\bb_s2\b"],
                      extra="sum_q sum"))  # fmt: skip


def _blocked(held: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.dense(_fed(g, 6, 32), 32, 32, "a")], "r")
        w = (g.random.normal(size=(32, 16)) / 5).reshape(2, 16, 16)
        scale = np.float32(np.abs(w).max(1, keepdims=True) / 127)
        q = np.rint(w / scale)
        if held:
            g.weights["w.q"], g.weights["w.s"] = q.reshape(32, 16).astype(np.int8), scale[:, 0]
            g.op("DequantizeLinear", ["w.q", "w.s"], "w", axis=0, block_size=16)
        else:
            k(g, "w", (q.astype(np.float32) * scale).reshape(32, 16))
        return [g.dense(g.op("Relu", [g.op("MatMul", [x, "w"], "h")], "s"), 16, 4, "y")]

    return build


@newer(_blocked(True), "", 21)
def weight_in_blocks_beside_its_floats(g: Graph) -> Sequence[str]:
    """Opset 21's blocks of 16 against a file that holds the same weight in floats."""
    return _blocked(False)(g)


# --- float16 and bfloat16


@case("overflow", "ort_fp16_sim", "fourth", "overflow range_inside", extra="fourth total share")
def saturation_by_hill(g: Graph) -> Sequence[str]:
    """x^4 / (k^4 + x^4) of doses up to 30: the fourth power is infinite from 16 on, and Inf / Inf NaN."""
    x = g.input("x", g.random.uniform(0.5, 30, size=(4, 16)).astype(np.float32))
    fourth = g.op("Pow", [x, k(g, "n", 4)], "fourth")
    total = g.op("Add", [fourth, k(g, "half", 2000)], "total")
    return [g.dense(g.op("Div", [fourth, total], "share"), 16, 4, "y")]


@case("underflow", "ort_fp16_sim", "open", "underflow", extra="open top total share")
def shares_of_two_unlikely_experts(g: Graph) -> Sequence[str]:
    """A router's likelihoods of e to the -22 to -18 are all 0 in float16, and so is the sum that they are divided by:
    0 / 0."""
    x = _fed(g, 6, 16)
    logits = g.op("Sub", [g.dense(x, 16, 8, "router"), k(g, "low", 20)], "logits")
    open_ = g.op("Exp", [logits], "open")
    g.nodes.append(helper.make_node("TopK", [open_, ints(g, "two", 2)], ["top", "which"], name="node_top"))
    total = g.op("ReduceSum", ["top", ints(g, "last", -1)], "total")
    share = g.op("Div", ["top", total], "share")
    rows = g.op("Gather", [k(g, "experts", g.random.normal(size=(8, 16))), "which"], "rows", axis=0)
    wide = g.op("Mul", [rows, g.op("Unsqueeze", [share, ints(g, "end", -1)], "share3")], "chosen")
    return [g.op("ReduceSum", [wide, ints(g, "experts_axis", 1)], "y", keepdims=0)]


@case("underflow", "ort_fp16_sim", "twelfth", f"underflow {COARSE} amplified",
      extra="twelfth sixth inverse")  # fmt: skip
def repulsion_by_the_twelfth_power(g: Graph) -> Sequence[str]:
    """Lennard-Jones' (s / r)^12 of distances of 3.5 to 4.5: about 1e-7, a step or two of float16, times 4e6."""
    r = g.input("x", g.random.uniform(3.5, 4.5, size=(4, 16)).astype(np.float32))
    inverse = g.op("Reciprocal", [r], "inverse")
    sixth = g.op("Pow", [inverse, k(g, "six", 6)], "sixth")
    twelfth = g.op("Mul", [sixth, sixth], "twelfth")
    strong = g.op("Mul", [g.op("Mul", [twelfth, k(g, "two_thousand", 2000)], "part"), k(g, "again", 2000)], "strong")
    return [g.dense(strong, 16, 4, "y")]


@case("cancellation", "ort_fp16_sim", "energy each", ROUNDS, extra="energy each less")
def energy_of_molecules_less_their_atoms(g: Graph) -> Sequence[str]:
    """Atoms of -500 each, and what a net adds to them, are added up by molecule; then the atoms are taken away."""
    a = g.op("Tanh", [g.dense(_fed(g, 12, 8), 8, 1, "a")], "shifts")
    each = g.op("Add", [a, k(g, "level", np.full((12, 1), -500.0))], "each")
    g.weights["molecule"] = np.repeat(np.arange(3), 4)[:, None]
    zero = k(g, "zero", np.zeros((3, 1)))
    total = g.op("ScatterElements", [zero, "molecule", each], "energy", axis=0, reduction="add")
    return [g.op("Sub", [total, k(g, "atoms", np.full((3, 1), -2000.0))], "less")]


def _weighed_history(g: Graph) -> Sequence[str]:
    x = g.dense(_fed(g, 10, 8), 8, 8, "a")
    key = g.op("Add", [g.dense(x, 8, 8, "key"), k(g, "offset", 11.5)], "keys")
    body = _body(
        [
            helper.make_node("Exp", ["k_t"], ["e"], name="body_exp"),
            helper.make_node("Mul", ["e", "v_t"], ["ev"], name="body_ev"),
            helper.make_node("Mul", ["num", "decay"], ["num_less"], name="body_less"),
            helper.make_node("Add", ["num_less", "ev"], ["num_out"], name="body_num"),
            helper.make_node("Mul", ["den", "decay"], ["den_less"], name="body_dless"),
            helper.make_node("Add", ["den_less", "e"], ["den_out"], name="body_den"),
            helper.make_node("Div", ["num_out", "den_out"], ["wkv"], name="body_wkv"),
        ],
        [_info("num", [8]), _info("den", [8]), _info("k_t", [8]), _info("v_t", [8])],
        [_info("num_out", [8]), _info("den_out", [8]), _info("wkv", [8])],
        {"decay": np.float32(np.linspace(0.5, 0.95, 8))},
    )
    zeros = k(g, "zeros", np.zeros(8))
    g.nodes.append(helper.make_node("Scan", [zeros, zeros, key, x], ["n", "d", "mixed"], name="node_mixed", body=body,
                                    num_scan_inputs=2))  # fmt: skip
    return [g.dense("mixed", 8, 4, "y")]


@case("overflow", "ort_fp16_sim", "e@0 e@1 e@2 den_out@0 ev@0 e@3", "overflow range_inside", anyone=False,
      extra=" ".join(f"{name}@{n}" for n in range(10) for name in ("e", "ev", "den_out", "num_out", "wkv")))
def weighed_history_of_rwkv(g: Graph) -> Sequence[str]:
    """RWKV without its running maximum: e to keys of up to 14 is beyond 65504 within a Scan."""
    return _weighed_history(g)


@case("cancellation", "ort_bf16_sim", "phase shifted", ROUNDS, extra="shifted phase")
def phase_of_a_day_in_seconds(g: Graph) -> Sequence[str]:
    """Seconds of a day over 86400, moved by 30 days: bfloat16 knows an eighth of a day beside 30, whose sine is
    read."""
    x = g.input("x", g.random.uniform(0, 1, size=(4, 16)).astype(np.float32))
    shifted = g.op("Add", [x, k(g, "days", 30)], "shifted")
    turns = g.op("Mul", [shifted, k(g, "tau", 2 * np.pi)], "phase")
    return [g.dense(g.op("Sin", [turns], "share"), 16, 4, "y")]


@case("healthy", "ort_fp16_sim")
def slope_of_a_wall(g: Graph) -> Sequence[str]:
    """atan(dy / dx) where dx is 1e-5: the quotient is Inf in float16, and the angle a quarter turn, as it should."""
    dy = g.input("x", g.random.uniform(1, 3, size=(4, 16)).astype(np.float32))
    dx = g.input("run", np.where(np.arange(64) % 7 == 0, 1.2e-5, 1.5).reshape(4, 16).astype(np.float32))
    angle = g.op("Atan", [g.op("Div", [dy, dx], "slope")], "angle")
    return [g.dense(angle, 16, 4, "y"), angle]


@case("healthy", "ort_fp16_sim")
def flow_of_six_couplings(g: Graph) -> Sequence[str]:
    """A normalising flow: halves scale and move each other, and the logarithms of the scales are added up."""
    x = _fed(g, 8, 16)
    logs = []
    for n in range(6):
        g.nodes.append(helper.make_node("Split", [x], [f"l{n}", f"r{n}"], name=f"node_split{n}", axis=-1))
        h = g.op("Relu", [g.dense(f"l{n}", 8, 16, f"h{n}")], f"a{n}")
        log = g.op("Tanh", [g.dense(h, 16, 8, f"s{n}", scale=0.5)], f"log{n}")
        moved = g.op("Add", [g.op("Mul", [f"r{n}", g.op("Exp", [log], f"e{n}")], f"m{n}"), g.dense(h, 16, 8, f"t{n}")],
                     f"o{n}")  # fmt: skip
        x = g.op("Concat", [moved, f"l{n}"], f"x{n}", axis=-1)
        logs.append(g.op("ReduceSum", [log, ints(g, f"axis{n}", -1)], f"det{n}"))
    return [x, g.op("Sum", logs, "det")]


@case("healthy", "ort_bf16_sim")
def graph_net_in_bfloat16(g: Graph) -> Sequence[str]:
    """Messages scattered to their nodes, twice, with a mean over all."""
    x = _fed(g, 20, 16)
    edges = g.random.integers(0, 20, size=(2, 60))
    g.weights["source"], g.weights["rows"] = edges[0], np.repeat(edges[1][:, None], 16, 1)
    zero = k(g, "zero", np.zeros((20, 16)))
    for n in "ab":
        message = g.op("Gather", [g.dense(x, 16, 16, f"{n}_m"), "source"], f"{n}_sent", axis=0)
        total = g.op("ScatterElements", [zero, "rows", message], f"{n}_got", axis=0, reduction="add")
        x = g.op("Tanh", [g.dense(g.op("Concat", [x, total], f"{n}_both", axis=1), 32, 16, f"{n}_u")], f"{n}_t")
    return [g.dense(g.op("ReduceMean", [x], "mean", axes=[0]), 16, 4, "y")]


# --- 8 and 4 bits


@case("amplified", "ort_int8", "likeness logits shares", f"{ROUNDS} {COARSE}",
      extra="logits shares likeness unit_a unit_b bt")  # fmt: skip
def likeness_times_a_hundred(g: Graph) -> Sequence[str]:
    """CLIP's cosines all lie within 0.9 and 1 (one narrow cone), in steps of 0.004, which 100 makes 0.39 before their
    softmax: with the two products and the softmax in floats 0.021 of 0.143 is left."""
    for name, rows in (("a", 8), ("b", 24)):
        v = g.dense(g.input(f"x{name}", g.random.normal(size=(rows, 32)).astype(np.float32)), 32, 32, name)
        v = g.op("Add", [v, k(g, f"cone_{name}", np.full(32, 4.0))], f"far_{name}")
        g.op("Div", [v, g.op("ReduceL2", [v], f"long_{name}", axes=[-1])], f"unit_{name}")
    likeness = g.op("MatMul", ["unit_a", g.op("Transpose", ["unit_b"], "bt", perm=[1, 0])], "likeness")
    logits = g.op("Mul", [likeness, k(g, "hundred", 100)], "logits")
    return [g.op("Softmax", [logits], "shares", axis=-1)]


@case("coarse", "ov_int8", "both h", f"packed constant_scale {COARSE}", extra="both h loud quiet a b y r")
def branches_of_unlike_size_joined_by_nncf(g: Graph) -> Sequence[str]:
    """A branch of up to 300 and one of up to 1 are joined and read by one filter, which weighs the first by 1/300."""
    x = _fed(g, 1, 3, 12, 12)
    loud = g.op("Relu", [g.conv(x, 3, 8, "a", scale=300)], "loud")
    quiet = g.op("Relu", [g.conv(x, 3, 8, "b")], "quiet")
    both = g.op("Concat", [loud, quiet], "both", axis=1)
    y = g.conv(both, 16, 8, "h")
    g.weights["h.w"][:, :8] /= 300
    return [g.op("Relu", [y], "y")]


@case("flips", "ort_int4", "router_mm", f"{COARSE} few_bits flips amplified cancellation constant_scale",
      extra="router_mm router best rows pick y h_mm h a_mm a")  # fmt: skip
def expert_chosen_by_four_bits(g: Graph) -> Sequence[str]:
    """A router's 4 bits choose another of eight experts for some of 64 tokens; with it in floats all are right."""
    x = g.norm(_fed(g, 64, 64), 64, "n")
    best = g.op("ArgMax", [g.dense(x, 64, 8, "router")], "best", axis=-1, keepdims=0)
    rows = g.op("Gather", [k(g, "experts", g.random.normal(size=(8, 64))), best], "rows", axis=0)
    return [g.op("Mul", [x, rows], "y")]


@case("healthy", "ort_int8", options=SEVEN)
def encoder_in_static_int8(g: Graph) -> Sequence[str]:
    """A norm, an attention, a norm, two products with a skip: of like sizes."""
    x = g.attention(g.norm(_fed(g, 2, 8, 32), 32, "n"), 32, "at")
    return [g.mlp(g.norm(x, 32, "m"), 32, "ff")]


@case("healthy", "ort_int8_dynamic", options=SEVEN)
def encoder_in_dynamic_int8(g: Graph) -> Sequence[str]:
    """The same with ranges taken at run time, and a table of words before."""
    ids = g.input("x", g.random.integers(0, 100, size=(2, 8)))
    rows = g.op("Gather", [k(g, "table", g.random.normal(size=(100, 32))), ids], "rows")
    return [g.mlp(g.norm(g.attention(g.norm(rows, 32, "n"), 32, "at"), 32, "m"), 32, "ff")]


NEAREST = "def recall(outputs, label):\n    return float((outputs['y'].argmax(-1) == label).mean())\n"


def _right(path: Path, xs: Sequence[Array]) -> Array:
    from planted.twelfth.measure import stock

    return np.stack([np.argmax(np.asarray(stock(path, {"x": x})[0]), -1) for x in xs])


@samples(thirteenth_onnx._drawn(8, 4, 32), "metric", "ort_bf16_sim", "at cross twice away",
         f"{ROUNDS} {COARSE} unfound", script=NEAREST, labels=_right,
         told=["--metric", "FOLDER/mine.py:recall", "--metric_drop", "0.05"],
         anyone=True, facts=[r"\brecall\b"], status=1,
         extra="small at cross twice away y")  # fmt: skip
def recall_of_near_duplicates(g: Graph) -> Sequence[str]:
    """16 rows of a catalogue differ by 0.3 % around one vector: by their squared distances bfloat16 finds another,
    and one label in 16 is right."""
    x = _fed(g, 4, 32)
    close = 1 + 0.003 * g.random.normal(size=(16, 32))
    unit = g.op("Add", [g.op("Mul", [x, k(g, "little", 0.003)], "small"), k(g, "about", np.ones(32))], "at")
    cross = g.op("MatMul", [unit, k(g, "rows", close.T)], "cross")
    twice = g.op("Mul", [cross, k(g, "two", -2)], "twice")
    away = g.op("Add", [twice, k(g, "square", (close**2).sum(1))], "away")
    return [g.op("Neg", [away], "y")]


@samples(thirteenth_onnx._drawn(8, 4, 32), "healthy", "ort_int8", script=NEAREST, labels=_right,
         told=["--metric", "FOLDER/mine.py:recall", "--metric_drop", "0.1", *SEVEN], facts=[r"\brecall\b"])
def accuracy_that_eight_bits_keep(g: Graph) -> Sequence[str]:
    """A classifier of five classes: 8 bits change no class that is clear, and the drop is within 0.1."""
    x = g.op("Relu", [g.dense(_fed(g, 4, 32), 32, 32, "a")], "r")
    return [g.dense(x, 32, 5, "y", scale=3)]


# --- LiteRT, a second opinion


def _bias(run: Any, blob: bytes) -> bytes:
    b = run.get_tensor(_detail(run, "conv2_conv_bias")["index"])
    return _put(blob, b, b * 3)


def bias_in_a_third_of_its_scale() -> None:
    """In 8 bits: the second convolution's 32-bit biases were written in a third of the scale that the kernel takes."""


def _nibbles(run: Any, blob: bytes) -> bytes:
    w = run.get_tensor(_detail(run, "conv2_conv_filter")["index"]).reshape(-1, 2)
    low, high = (w.astype(np.uint8) & 15).T
    return _put(blob, low | high << 4, high | low << 4)


def nibbles_of_each_byte_exchanged() -> None:
    """Weights of 4 bits: the second filter's bytes hold their halves the other way round."""


def _plain(folder: Path) -> tuple[Path, None, Mapping[str, Array]]:
    (folder / "digits.tflite").write_bytes((DATA / "digits_int8.tflite").read_bytes())
    return folder / "digits.tflite", None, _images()


def digits_in_eight_bits_as_they_ship() -> None:
    """LiteRT's optimised kernels beside its reference kernels on one 8-bit file."""


CASES += [
    labelled(bias_in_a_third_of_its_scale, "", "converter", "tflite_opt", "pool_input_nhwc", f"{DIFFER} {COARSE}",
             make=_bytes("digits_int8", _bias), baseline="tflite_ref", facts=["conv2_conv_bias"],
             extra="pool_input_nhwc"),
    labelled(nibbles_of_each_byte_exchanged, "", "converter", "tflite_ref", "pool_input_nhwc",
             f"{DIFFER} {COARSE}", make=_bytes("digits_int4_weights", _nibbles), baseline="tflite_ref",
             facts=["conv2_conv_filter"], extra="pool_input_nhwc conv2_conv_filter_dequant"),
    labelled(digits_in_eight_bits_as_they_ship, "", "healthy", "tflite_opt", "", "", make=_plain,
             baseline="tflite_ref"),
]  # fmt: skip


@case("healthy", "onnx_ref")
def regions_and_a_second_opinion(g: Graph) -> Sequence[str]:
    """A small detector's features, regions by RoiAlign, a head, in onnx.reference."""
    return _regions("half_pixel")(g)


@case("float64", "ov_opt_fp32", "since x", f"coarse held_narrower {DIFFER} {thirteenth_onnx.ENGINE} found_by_repair",
      baseline="ort_fp32", extra="since x since32 wave y y_mm")  # fmt: skip
def seconds_in_float64_in_openvino(g: Graph) -> Sequence[str]:
    """Unix times in float64 less another: OpenVINO's CPU computes float64 in float32, which knows every 128th
    second."""
    x = g.input("x", 1.7e9 + g.random.uniform(0, 5, size=(4, 16)))
    g.weights["start"] = np.array(1.7e9)
    since = g.op("Sub", [x, "start"], "since")
    wave = g.op("Sin", [g.op("Cast", [since], "since32", to=TensorProto.FLOAT)], "wave")
    return [g.dense(wave, 16, 4, "y")]


@case("healthy", "ov_fp32", baseline="ort_fp32")
def detector_in_openvino(g: Graph) -> Sequence[str]:
    """Anchors, boxes and scores of a small detector."""
    return _decoded(False)(g)
