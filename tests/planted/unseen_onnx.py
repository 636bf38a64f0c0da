"""Faults in architectures that the rules were not calibrated on: one ONNX file, one narrow run mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted.onnx_faults import Array, Graph, _body, _info, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen

CASES: list[Unseen] = []

Build = Callable[[Graph], Sequence[str]]


def unseen(
    kind: str, modes: str, who: str = "", why: str = "", *, status: int | None = None, opset: int = 17, seed: int = 0,
    cases: list[Unseen] = CASES, **more: Any,
) -> Callable[[Build], Build]:  # fmt: skip
    """Register a builder of a graph once for each mode; whom to accuse and why, in words. status: 1 where one is."""

    def register(build: Build) -> Build:
        for mode in modes.split():

            def make(folder: Path) -> tuple[Path, None, dict[str, Array]]:
                graph = Graph(seed=seed + 7 * len(build.__name__), opset=opset)
                outputs = build(graph)
                return graph.save(folder / f"{build.__name__}.onnx", outputs), None, graph.feeds

            cases.append(
                Unseen(
                    name=build.__name__, kind=kind, mode=mode, make=make, who=tuple(who.split()),
                    why=tuple(why.split()), status=int(bool(who)) if status is None else status, **more,
                )
            )  # fmt: skip
        return build

    return register


def rms(g: Graph, x: str, size: int, out: str, epsilon: float = 1e-6) -> str:
    """RMSNorm as exporters write it."""
    sq = g.op("Pow", [x, k(g, f"{out}.two", 2)], f"{out}_sq")
    var = g.op("Add", [g.op("ReduceMean", [sq], f"{out}_ms", axes=[-1]), k(g, f"{out}.eps", epsilon)], f"{out}_var")
    inverse = g.op("Reciprocal", [g.op("Sqrt", [var], f"{out}_root")], f"{out}_inv")
    return g.op("Mul", [g.op("Mul", [x, inverse], f"{out}_n"), k(g, f"{out}.g", np.ones(size))], out)


def rope(g: Graph, x: str, length: int, half: int, out: str, start: int = 0, base: float = 10000.0) -> str:
    """Rotary embedding computed in the graph from positions, halves swapped."""
    pos = k(g, f"{out}.pos", np.arange(start, start + length)[:, None])
    freq = k(g, f"{out}.freq", base ** -(np.arange(half) / half))
    angle = g.op("Mul", [pos, freq], f"{out}_angle")
    cos, sin = g.op("Cos", [angle], f"{out}_cos"), g.op("Sin", [angle], f"{out}_sin")
    parts = [f"{out}_a", f"{out}_b"]
    g.nodes.append(helper.make_node("Split", [x], parts, name=f"node_{out}_split", axis=-1))
    a, b = parts
    first = g.op("Sub", [g.op("Mul", [a, cos], f"{out}_ac"), g.op("Mul", [b, sin], f"{out}_bs")], f"{out}_first")
    last = g.op("Add", [g.op("Mul", [a, sin], f"{out}_as"), g.op("Mul", [b, cos], f"{out}_bc")], f"{out}_last")
    return g.op("Concat", [first, last], out, axis=-1)


def silu(g: Graph, x: str, out: str) -> str:
    return g.op("Mul", [x, g.op("Sigmoid", [x], f"{out}_gate")], out)


def llama_layer(g: Graph, x: str, size: int, out: str, length: int = 8, start: int = 0, up: float = 1.0) -> str:
    n = rms(g, x, size, f"{out}_n1")
    q, key, v = (g.dense(n, size, size, f"{out}_{one}") for one in "qkv")
    q, key = (rope(g, one, length, size // 2, f"{out}_r{place}", start) for place, one in enumerate((q, key)))
    score = g.op("MatMul", [q, g.op("Transpose", [key], f"{out}_kt", perm=[0, 2, 1])], f"{out}_raw")
    score = g.op("Mul", [score, k(g, f"{out}.d", size**-0.5)], f"{out}_score")
    causal = k(g, f"{out}.causal", np.triu(np.full((length, length), -1e4), 1)[None])
    prob = g.op("Softmax", [g.op("Add", [score, causal], f"{out}_m")], f"{out}_prob", axis=-1)
    x = g.op("Add", [x, g.dense(g.op("MatMul", [prob, v], f"{out}_mix"), size, size, f"{out}_o")], f"{out}_h")
    n = rms(g, x, size, f"{out}_n2")
    gate = silu(g, g.dense(n, size, 2 * size, f"{out}_g", up), f"{out}_act")
    both = g.op("Mul", [gate, g.dense(n, size, 2 * size, f"{out}_u", up)], f"{out}_gu")
    return g.op("Add", [x, g.dense(both, 2 * size, size, f"{out}_down", 1 / up**2)], out)


def group_norm(g: Graph, x: str, channels: int, out: str, groups: int = 2, side: int = 16) -> str:
    flat = g.op("Reshape", [x, ints(g, f"{out}.s", 2, groups, -1)], f"{out}_flat")
    one, zero = k(g, f"{out}.1", np.ones(groups)), k(g, f"{out}.0", np.zeros(groups))
    n = g.op("InstanceNormalization", [flat, one, zero], f"{out}_in", epsilon=1e-5)
    back = g.op("Reshape", [n, ints(g, f"{out}.b", 2, channels, side, side)], f"{out}_back")
    return g.op("Mul", [back, k(g, f"{out}.g", np.ones((channels, 1, 1)))], out)


def squeeze_excite(g: Graph, x: str, channels: int, out: str) -> str:
    pool = g.op("GlobalAveragePool", [x], f"{out}_pool")
    w = g.weight(f"{out}.w", g.random.normal(size=(channels, channels, 1, 1)) / np.sqrt(channels))
    gate = g.op("HardSigmoid", [g.op("Conv", [pool, w], f"{out}_fc")], f"{out}_gate", alpha=1 / 6, beta=0.5)
    return g.op("Mul", [x, gate], out)


# --- overflow


@unseen("overflow", "ort_fp16_sim", "mid", "overflow")
def unet_middle(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "stem")
    down = g.op("MaxPool", [silu(g, group_norm(g, x, 8, "n1"), "s1")], "pool", kernel_shape=[2, 2], strides=[2, 2])
    mid = g.conv(down, 8, 8, "mid", scale=1.2e5)
    mid = group_norm(g, mid, 8, "n2", side=8)
    up = g.op("Resize", [mid, "", k(g, "sc", [1, 1, 2, 2])], "up", mode="nearest")
    both = g.op("Concat", [up, x], "cat", axis=1)
    return [g.conv(silu(g, both, "s2"), 16, 3, "y")]


@unseen("overflow", "ort_fp16_sim", "l1_gu", "overflow")
def llama_massive_activation(g: Graph) -> Sequence[str]:
    x = llama_layer(g, tokens(g), 32, "l0")
    x = llama_layer(g, x, 32, "l1", up=400.0)
    return [rms(g, llama_layer(g, x, 32, "l2"), 32, "y")]


@unseen("overflow", "ort_fp16_sim", "area", "overflow", extra=("union",))
def box_areas(g: Graph) -> Sequence[str]:
    w = g.input("w", g.random.uniform(100, 900, size=(1, 12)).astype(np.float32))
    h = g.input("h", g.random.uniform(100, 900, size=(1, 12)).astype(np.float32))
    area = g.op("Mul", [w, h], "area")
    other = g.op("Transpose", [area], "area_t", perm=[1, 0])
    return [g.op("Div", [area, g.op("Add", [area, other], "union")], "y")]


@unseen("overflow", "ort_fp16_sim", "re im amp", "overflow")
def spectrum_of_int16_samples(g: Graph) -> Sequence[str]:
    x = g.input("x", (g.random.normal(size=(3, 64)) * 8000).round().astype(np.float32))
    turn = np.outer(np.arange(64), np.arange(33)) * 2 * np.pi / 64
    re = g.op("MatMul", [x, k(g, "cos", np.cos(turn))], "re")
    im = g.op("MatMul", [x, k(g, "sin", np.sin(turn))], "im")
    power = g.op("Add", [g.op("Abs", [re], "are"), g.op("Abs", [im], "aim")], "amp")
    return [g.op("Log", [g.op("Add", [power, k(g, "one", 1)], "p1")], "y")]


@unseen("overflow", "ort_fp16_sim", "sharp", "overflow")
def temperature_of_a_thousandth(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 16, "logits", 30.0)
    return [g.op("Softmax", [g.op("Div", [x, k(g, "t", 1e-3)], "sharp")], "y", axis=-1)]


@unseen("overflow", "ort_fp16_sim", "both na_ na nb", "overflow range_inside")
def cosine_of_large_vectors(g: Graph) -> Sequence[str]:
    a, b = g.dense(tokens(g), 32, 32, "a", 120.0), g.dense("x", 32, 32, "b", 120.0)
    na, nb = g.op("ReduceL2", [a], "na", axes=[-1]), g.op("ReduceL2", [b], "nb", axes=[-1])
    dot = g.op("ReduceSum", [g.op("Mul", [g.op("Div", [a, k(g, "h", 100)], "as"), b], "ab"), ints(g, "ax", -1)], "dot")
    return [g.op("Div", [dot, g.op("Mul", [na, nb], "both")], "y")]


@unseen("overflow", "ort_fp16_sim", "income centred", "overflow weight_overflow")
def tabular_income(g: Graph) -> Sequence[str]:
    """A raw feature is itself beyond the type."""
    income = g.input("income", g.random.uniform(2e4, 2e5, size=(8, 1)).astype(np.float32))
    ids = g.input("city", g.random.integers(0, 10, size=(8,)))
    e = g.op("Gather", [k(g, "table", g.random.normal(size=(10, 15))), ids], "e")
    n = g.op("Div", [g.op("Sub", [income, k(g, "m", 1e5)], "centred"), k(g, "s", 5e4)], "scaled")
    x = g.op("Concat", [e, n], "x", axis=1)
    return [g.op("Sigmoid", [g.dense(g.op("Relu", [g.dense(x, 16, 32, "a")], "r"), 32, 1, "b")], "y")]


@unseen("overflow", "ort_fp16_sim", "past cat", "overflow", fix=False)
def cached_key_overflow(g: Graph) -> Sequence[str]:
    past = g.random.normal(size=(2, 5, 32)).astype(np.float32)
    past[0, 3, 7] = 9e4
    new = g.dense(tokens(g, length=1), 32, 32, "key")
    key = g.op("Concat", [g.input("past", past), new], "cat", axis=1)
    key = g.op("Mul", [key, k(g, "d", 32**-0.5)], "keys")
    q = g.op("Mul", [g.dense("x", 32, 32, "q"), k(g, "qs", 1e-3)], "query")
    raw = g.op("MatMul", [q, g.op("Transpose", [key], "kt", perm=[0, 2, 1])], "raw")
    return [g.op("Softmax", [raw], "y", axis=-1)]


@unseen("overflow", "ort_fp16_sim", "mask2 masked mask1", "overflow", extra=("a_masked",))
def two_masks_added(g: Graph) -> Sequence[str]:
    """Either fits, together they are -inf over a whole row."""
    pad = np.zeros((2, 1, 8), np.float32)
    pad[1] = -6e4
    window = np.zeros((2, 8, 8), np.float32)
    window[1, 2] = -6e4
    mask = g.op("Add", [g.input("pad", pad), g.input("window", window)], "mask1")
    return [g.norm(g.attention(tokens(g), 32, "a", g.op("Add", [mask, k(g, "z", [[[0.0]]])], "mask2")), 32, "y")]


@unseen("overflow", "ort_fp16_sim", "total", "overflow")
def cumulative_sum(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.uniform(50, 150, size=(2, 900, 3)).astype(np.float32))
    total = g.op("CumSum", [x, g.weight("axis", np.int64(1))], "total")
    last = g.op("ReduceMax", [total], "last", axes=[1])
    return [g.op("Div", [total, last], "y")]


@unseen("overflow", "ort_fp16_sim", "square@0 square@1", "overflow", extra=("s@0", "s@1", "s@2", "square@2"))
def power_iteration(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g, scale=30.0), 32, 32, "a", scale=30.0)
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="it_go"),
            helper.make_node("Mul", ["state", "state"], ["square"], name="it_sq"),
            helper.make_node("ReduceSum", ["square", "ax"], ["s"], name="it_sum"),
            helper.make_node("Sqrt", ["s"], ["length"], name="it_root"),
            helper.make_node("Div", ["state", "length"], ["unit"], name="it_div"),
            helper.make_node("Mul", ["unit", "far"], ["next"], name="it_far"),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 8, 32])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 8, 32])],
        {"ax": np.array([-1]), "far": np.float32(1200)},
    )  # fmt: skip
    g.nodes.append(helper.make_node("Loop", [g.weight("n", np.int64(3)), "", x], ["it"], name="node_it", body=body))
    return [g.op("Mul", ["it", k(g, "k", 1e-3)], "y")]


# --- constants


@unseen("weight_overflow", "ort_fp16_sim ort_fp16", "h_mm h y", "weight_overflow overflow")
def one_huge_weight(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [g.norm(tokens(g), 32, "n"), k(g, "tiny", 1e-3)], "small")
    y = g.dense(g.dense(x, 32, 16, "h"), 16, 4, "y")
    g.weights["h.w"][4, 2] = 2.4e5
    return [y]


@unseen("weight_underflow", "ort_fp16_sim", "denominator count total", "weight_underflow underflow")
def sine_positions_of_padding(g: Graph) -> Sequence[str]:
    """DETR's: counted positions over the last of them and an epsilon; a padded row counts nothing."""
    keep = np.ones((2, 6, 1), np.float32)
    keep[1] = 0
    total = g.op("CumSum", [g.input("keep", keep), g.weight("axis", np.int64(1))], "total")
    last = g.op("ReduceMax", [total], "count", axes=[1])
    share = g.op("Div", [total, g.op("Add", [last, k(g, "eps", 1e-9)], "denominator")], "share")
    return [g.dense(g.op("Sin", [g.op("Mul", [share, k(g, "f", np.arange(1, 9))], "angle")], "sin"), 8, 4, "y")]


@unseen("weight_underflow", "ort_fp16_sim", "floor", "weight_underflow underflow")
def mean_of_unmasked(g: Graph) -> Sequence[str]:
    keep = np.ones((2, 8, 1), np.float32)
    keep[0, 3:], keep[1] = 0, 0
    m = g.input("keep", keep)
    total = g.op("ReduceSum", [g.op("Mul", [g.mlp(tokens(g), 32, "a"), m], "kept"), ints(g, "ax", 1)], "sum")
    count = g.op("Clip", [g.op("ReduceSum", [m, ints(g, "ax2", 1)], "count"), k(g, "least", 1e-9)], "floor")
    return [g.op("Div", [total, count], "y")]


@unseen("weight_underflow", "ort_fp16_sim", "floored power", "weight_underflow underflow")
def log_mel_of_silence(g: Graph) -> Sequence[str]:
    x = g.random.normal(size=(4, 64)).astype(np.float32) * 0.3
    x[2:] = 0
    turn = np.outer(np.arange(64), np.arange(33)) * 2 * np.pi / 64
    re, im = (
        g.op("MatMul", [g.input("x", x), k(g, f"d{i}", f(turn))], f"s{i}") for i, f in enumerate((np.cos, np.sin))
    )
    power = g.op("Add", [g.op("Mul", [re, re], "re2"), g.op("Mul", [im, im], "im2")], "power")
    floored = g.op("Add", [power, k(g, "eps", 1e-10)], "floored")
    return [g.op("Div", [g.op("Log", [floored], "log"), k(g, "ten", 10)], "y")]


# --- underflow


@unseen("underflow", "ort_fp16_sim", "both", "underflow")
def product_that_is_divided_by(g: Graph) -> Sequence[str]:
    p = g.op("Sigmoid", [g.dense(tokens(g), 32, 16, "a", 2.0)], "p")
    both = g.op("Mul", [g.op("Mul", [p, k(g, "s", 1e-4)], "small"), k(g, "s2", 1e-4)], "both")
    return [
        g.op("Div", [g.op("Mul", [p, k(g, "s3", 1e-3)], "over"), g.op("Mul", [both, k(g, "u", 6e4)], "under")], "y")
    ]


@unseen("underflow", "ort_fp16_sim", "first first_mm", "underflow weight_underflow")
def everything_is_tiny(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 32, "first", 1e-7)
    g.weights["first.b"] *= np.float32(1e-7)
    x = g.op("Relu", [x], "r")
    return [g.op("Mul", [x, k(g, "up", 1e4)], "back"), g.op("Mul", ["back", k(g, "up2", 1e3)], "y")]


@unseen("underflow", "ort_fp16_sim", "joint", "underflow")
def naive_bayes(g: Graph) -> Sequence[str]:
    p = g.op("Softmax", [g.dense(tokens(g), 32, 12, "logits")], "p", axis=-1)
    joint = g.op("ReduceProd", [p], "joint", axes=[1])
    return [g.op("Div", [joint, g.op("ReduceSum", [joint, ints(g, "ax", -1)], "all")], "y")]


# --- cancellation and amplification


@unseen("amplified", "ort_fp16_sim", "l0_r0_angle l0_r1_angle l1_r0_angle l1_r1_angle", "amplified cancellation")
def rope_far_from_the_start(g: Graph) -> Sequence[str]:
    x = tokens(g)
    for layer in range(2):
        x = llama_layer(g, x, 32, f"l{layer}", start=30000)
    return [rms(g, x, 32, "y")]


@unseen("amplified", "ort_bf16_sim", "decay", "amplified")
def state_space_decay(g: Graph) -> Sequence[str]:
    """The decay of a step is rounded, and then raised to the number of steps."""
    x = g.input("x", g.random.normal(size=(2, 16)).astype(np.float32))
    dt = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 16, 16, "dt")], "p"), k(g, "s", -4e-3)], "log_decay")
    decay = g.op("Exp", [dt], "decay")
    return [g.op("Mul", [x, g.op("Pow", [decay, k(g, "steps", 700)], "kept")], "y")]


@unseen("cancellation", "ort_bf16_sim", "noisy noise x sample latent", "cancellation amplified")
def diffusion_step(g: Graph) -> Sequence[str]:
    """x0 from a very noisy sample: two terms of size 150 whose difference is 1."""
    x0 = g.input("x", g.random.normal(size=(2, 3, 16, 16)).astype(np.float32))
    eps = g.conv(x0, 3, 3, "eps")
    sample = g.op("Add", [g.op("Mul", [x0, k(g, "a", 6e-3)], "signal"), eps], "latent")
    noisy = g.op("Mul", [sample, k(g, "b", 1 / 6e-3)], "noisy")
    noise = g.op("Mul", [eps, k(g, "c", 1 / 6e-3)], "noise")
    return [g.op("Clip", [g.op("Sub", [noisy, noise], "pred"), k(g, "lo", -4), k(g, "hi", 4)], "y")]


@unseen("cancellation", "ort_bf16_sim", "when centred", "cancellation amplified", fix=False)
def tabular_timestamp(g: Graph) -> Sequence[str]:
    when = g.input("when", g.random.uniform(1.699e9, 1.701e9, size=(16, 1)).astype(np.float32))
    x = g.op("Div", [g.op("Sub", [when, k(g, "m", 1.7e9)], "centred"), k(g, "s", 6e5)], "scaled")
    return [g.dense(g.op("Tanh", [g.dense(x, 1, 16, "a")], "t"), 16, 2, "y")]


@unseen("cancellation", "ort_fp16_sim", "points centroid x", "cancellation amplified")
def points_far_from_the_origin(g: Graph) -> Sequence[str]:
    x = g.op("Add", [g.input("x", g.random.normal(size=(2, 40, 3)).astype(np.float32)), k(g, "o", 6000)], "points")
    local = g.op("Sub", [x, g.op("ReduceMean", [x], "centroid", axes=[1])], "local")
    return [g.op("ReduceMax", [g.dense(local, 3, 16, "f")], "y", axes=[1])]


@unseen("cancellation", "ort_fp16_sim", "sq square m2 mean msq", "cancellation amplified born")
def batch_variance_in_one_pass(g: Graph) -> Sequence[str]:
    x = g.op("Add", [g.conv(image(g), 3, 8, "c"), k(g, "o", 40)], "x40")
    mean, sq = g.op("GlobalAveragePool", [x], "mean"), g.op("Mul", [x, x], "sq")
    var = g.op("Sub", [g.op("GlobalAveragePool", [sq], "msq"), g.op("Mul", [mean, mean], "m2")], "var")
    root = g.op("Sqrt", [g.op("Add", [g.op("Relu", [var], "pos"), k(g, "e", 1e-3)], "vare")], "root")
    return [g.op("Div", [g.op("Sub", [x, mean], "centred"), root], "y")]


@unseen("cancellation", "ort_fp16_sim", "residual", "cancellation amplified")
def residual_stream_offset(g: Graph) -> Sequence[str]:
    """A bias of a residual stream that the norm behind it takes away again."""
    x = g.attention(tokens(g), 32, "a")
    x = g.op("Add", [x, k(g, "o", np.full(32, 900.0))], "residual")
    return [g.mlp(g.norm(x, 32, "n"), 32, "y")]


@unseen("amplified", "ort_bf16_sim", "z", "amplified cancellation")
def matrix_near_singular(g: Graph) -> Sequence[str]:
    """A 2 x 2 system solved by its determinant."""
    t = g.op("Sigmoid", [g.dense(tokens(g), 32, 16, "a")], "z")
    one = g.op("Mul", [t, t], "ad")
    other = g.op("Add", [one, k(g, "e", -2e-3)], "bc")
    return [g.op("Div", [t, g.op("Sub", [one, other], "det")], "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("ad", "bc", "z")})


# --- decisions


@unseen("decision", "ort_fp16_sim", "score", "amplified cancellation coarse flips")
def confident_scores_tie(g: Graph) -> Sequence[str]:
    """Sigmoids near 1 become equal, and other boxes are the best three."""
    score = g.op("Sigmoid", [g.op("Add", [g.dense(tokens(g), 32, 40, "a"), k(g, "o", 9)], "sure")], "score")
    g.nodes.append(helper.make_node("TopK", [score, ints(g, "k", 3)], ["top", "where"], name="node_topk", axis=-1))
    table = k(g, "table", g.random.normal(size=(40, 8)))
    return [g.op("Gather", [table, "where"], "y")]


@unseen("decision", "ort_fp16_sim", "bins", "amplified cancellation coarse flips")
def buckets(g: Graph) -> Sequence[str]:
    x = g.input("x", (np.arange(64, dtype=np.float32) * 37 + 0.49).reshape(4, 16))
    bins = g.op("Div", [x, k(g, "w", 37)], "bins")
    which = g.op("Cast", [g.op("Floor", [g.op("Add", [bins, k(g, "o", 1 - 0.0132)], "moved")], "floor")], "which", to=7)
    return [g.op("Gather", [k(g, "table", g.random.normal(size=(70, 8))), which], "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("bins", "moved", "x", "w")})


@unseen("decision", "ort_bf16_sim", "sum mean", "amplified cancellation coarse flips")
def branch_taken_otherwise(g: Graph) -> Sequence[str]:
    x = g.op("Add", [g.dense(tokens(g), 32, 32, "a"), k(g, "o", 400)], "sum")
    x = g.op("Sub", [x, k(g, "o2", 400)], "back")
    mean = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "mean", keepdims=0)
    plain = g.feeds["x"] @ g.weights["a.w"] + g.weights["a.b"]
    yes = g.op("Greater", [mean, k(g, "limit", np.mean(plain**2) + 0.1)], "yes")
    branches = [
        helper.make_graph([helper.make_node("Mul", ["a", key], [f"{key}_out"], name=f"node_{key}")], key, [],
                          [_info(f"{key}_out", [2, 8, 32])])
        for key in ("small", "large")
    ]  # fmt: skip
    k(g, "small", 0.5), k(g, "large", 2)
    g.nodes.append(
        helper.make_node("If", [yes], ["chosen"], name="node_if", then_branch=branches[0], else_branch=branches[1])
    )
    return [g.op("Identity", ["chosen"], "y")]


@unseen("decision", "ort_bf16_sim", "router router_mm", "amplified cancellation coarse flips")
def mixture_of_experts(g: Graph) -> Sequence[str]:
    """The router's bias is equal and large for all, so that softmax takes no notice and rounding does."""
    x = g.norm(tokens(g), 32, "n")
    logits = g.dense(x, 32, 8, "router")
    g.weights["router.b"] += np.float32(500)
    g.nodes.append(helper.make_node("TopK", [logits, ints(g, "k", 1)], ["top", "who"], name="node_topk", axis=-1))
    which = g.op("Squeeze", ["who", ints(g, "ax", -1)], "which")
    w = g.op("Gather", [k(g, "experts", g.random.normal(size=(8, 32, 32)) / 6), which], "chosen")
    row = g.op("Unsqueeze", [x, ints(g, "ax2", 2)], "row")
    return [g.op("Squeeze", [g.op("MatMul", [row, w], "mixed"), ints(g, "ax3", 2)], "y")]


# --- int8


@unseen("int8", "ort_int8", "scaled", "outlier_channel coarse", extra=("y",))
def outlier_feature_of_a_norm(g: Graph) -> Sequence[str]:
    gain = np.ones(32, np.float32)
    gain[9] = 700
    x = g.op("Mul", [g.norm(tokens(g), 32, "n0"), k(g, "gain", gain)], "scaled")
    q, v = g.dense(x, 32, 32, "q"), g.dense(x, 32, 32, "v")
    for name in ("q.w", "v.w"):
        g.weights[name][9] = 0
    return [g.op("Mul", [g.op("Sigmoid", [q], "p"), v], "y")]


@unseen("benign", "ort_int8")  # weights have a scale for each channel, and the clip cuts what is large
def depthwise_outlier_weight(g: Graph) -> Sequence[str]:
    x = g.op("HardSwish", [g.conv(image(g), 3, 16, "stem")], "hs")
    w = g.random.normal(size=(16, 1, 3, 3)) / 3
    w[5] *= 400
    x = g.op("Conv", [x, g.weight("dw.w", w)], "dw", group=16, pads=[1, 1, 1, 1])
    x = g.op("Clip", [x, k(g, "lo", 0), k(g, "hi", 6)], "relu6")
    return [g.conv(squeeze_excite(g, x, 16, "se"), 16, 4, "y")]


@unseen("int8", "ort_int8_dynamic", "up up_mm", "outlier_channel coarse", extra=("y",))
def one_large_weight_of_a_matrix(g: Graph) -> Sequence[str]:
    x = g.norm(tokens(g), 32, "n")
    y = g.dense(g.op("Relu", [g.dense(x, 32, 64, "up")], "act"), 64, 8, "y")
    g.weights["up.w"][:, 11] *= 500
    g.weights["y.w"][11] *= 1e-4
    return [y]


@unseen("int8", "ort_int8", "past_mask biased masked", "mask_range outlier_channel")
def lowest_float_mask(g: Graph) -> Sequence[str]:
    keep = np.zeros((2, 1, 8), np.float32)
    keep[:, :, 6:] = np.finfo(np.float32).min
    score = g.op("MatMul", [g.dense(tokens(g), 32, 32, "q"), g.op("Transpose", ["x"], "t", perm=[0, 2, 1])], "raw")
    score = g.op("Add", [g.op("Mul", [score, k(g, "d", 32**-0.5)], "score"), g.input("mask", keep)], "masked")
    return [g.op("MatMul", [g.op("Softmax", [score], "p", axis=-1), g.dense("x", 32, 32, "v")], "y")]


# --- random, and what its author left on


@unseen("random", "ort_fp16_sim ort_opt", "dropped y_up", "random", fix=False)
def dropout_left_on(g: Graph) -> Sequence[str]:
    x = g.mlp(tokens(g), 32, "a")
    ratio, training = k(g, "ratio", 0.3), g.weight("training", np.bool_(True))
    return [g.mlp(g.op("Dropout", [x, ratio, training], "dropped"), 32, "y")]


@unseen("random", "ort_bf16_sim", "noise", "random", fix=False)
def latent_is_drawn(g: Graph) -> Sequence[str]:
    mean, log = g.dense(tokens(g), 32, 8, "mean"), g.dense("x", 32, 8, "log")
    noise = g.op("RandomNormal", [], "noise", shape=[2, 8, 8])
    drawn = g.op("Add", [mean, g.op("Mul", [g.op("Exp", [log], "std"), noise], "spread")], "latent")
    return [g.dense(drawn, 8, 32, "y")]


# --- two at once


@unseen("two", "ort_fp16_sim", "big moved", "overflow weight_overflow cancellation", also=("big", "moved"))
def overflow_and_cancellation(g: Graph) -> Sequence[str]:
    x = g.mlp(tokens(g), 32, "a")
    big = g.op("Mul", [g.dense(x, 32, 16, "h"), k(g, "b", 9e4)], "big")
    first = g.op("Tanh", [g.op("Mul", [big, k(g, "c", 1e-5)], "small")], "y1")
    moved = g.op("Add", [g.dense(x, 32, 16, "m"), k(g, "o", 2500)], "moved")
    return [first, g.op("Sub", [moved, k(g, "o2", 2500)], "y2")]


@unseen("two", "ort_fp16_sim", "first second", "overflow weight_overflow", also=("first", "second"))
def two_branches_overflow(g: Graph) -> Sequence[str]:
    x = g.norm(tokens(g), 32, "n")
    parts = []
    for name in ("first", "second"):
        big = g.op("Mul", [g.dense(x, 32, 16, f"{name}_d"), k(g, f"{name}.k", 8e4)], name)
        parts.append(g.op("Mul", [big, k(g, f"{name}.s", 1e-5)], f"{name}_s"))
    return [g.op("Concat", parts, "y", axis=-1)]


@unseen("two", "ort_bf16_sim", "early late", "cancellation amplified", also=("early", "late"))
def two_offsets_in_a_row(g: Graph) -> Sequence[str]:
    x = tokens(g)
    for name in ("early", "late"):
        x = g.op("Add", [g.mlp(x, 32, f"{name}_m"), k(g, f"{name}.o", 600)], name)
        x = g.norm(g.op("Sub", [x, k(g, f"{name}.b", 600)], f"{name}_b"), 32, f"{name}_n")
    return [x]
