"""A tenth batch in ONNX: small real architectures, tables, clocks and places that float16 cannot count, epsilons that
it cannot hold, faults that hide behind others, integers that one channel takes; written and labelled before any of it
was compared. What each plants was computed in float64 and by rounding every operator's output, without the tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper

from planted.onnx_faults import Graph, _info, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen
from planted.unseen_onnx import group_norm, rms, rope, silu
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []

HALF = "ort_fp16_sim"
CANCELS = "cancellation cancels amplified coarse"


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=307, **more)


# --- float16: beyond its ends


def hard_swish(g: Graph, x: str, out: str) -> str:
    """As it is written out: the product comes before the sixth."""
    six = g.op(
        "Clip",
        [g.op("Add", [x, k(g, f"{out}.3", 3)], f"{out}_3"), k(g, f"{out}.0", 0), k(g, f"{out}.6", 6)],
        f"{out}_six",
    )
    return g.op("Div", [g.op("Mul", [x, six], f"{out}_prod"), f"{out}.6"], out)


def excite(g: Graph, x: str, channels: int, out: str) -> str:
    pool = g.op("GlobalAveragePool", [x], f"{out}_pool")
    down = g.op("Conv", [pool, k(g, f"{out}.d", g.random.normal(size=(4, channels, 1, 1)) / 4)], f"{out}_down")
    up = g.op(
        "Conv",
        [g.op("Relu", [down], f"{out}_r"), k(g, f"{out}.u", g.random.normal(size=(channels, 4, 1, 1)))],
        f"{out}_up",
    )
    return g.op("Mul", [x, g.op("Sigmoid", [up], f"{out}_gate")], out)


def mobile(g: Graph, x: str, out: str, loud: float = 1.0) -> str:
    """Expand, filter each channel, excite, project."""
    wide = g.op("Conv", [x, k(g, f"{out}.w", g.random.normal(size=(16, 8, 1, 1)) / 3 * loud)], f"{out}_wide")
    deep = g.op(
        "Conv",
        [hard_swish(g, wide, f"{out}_a"), k(g, f"{out}.f", g.random.normal(size=(16, 1, 3, 3)) / 3)],
        f"{out}_deep",
        pads=[1, 1, 1, 1],
        group=16,
    )
    small = g.op("Mul", [deep, k(g, f"{out}.s", 1 / loud)], f"{out}_small")
    seen = excite(g, small, 16, f"{out}_se")
    return g.op("Conv", [seen, k(g, f"{out}.p", g.random.normal(size=(8, 16, 1, 1)) / 4)], out)


@unseen("overflow", HALF, "m_a_prod", "overflow", most=2)
def hard_swish_whose_sixth_comes_last(g: Graph) -> Sequence[str]:
    """A depthwise block of features up to 30000: x * min(x + 3, 6) is beyond the type, its sixth is not."""
    x = mobile(g, g.conv(image(g), 3, 8, "c1"), "m", 8000.0)
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 8, 6, "y")]


@unseen("overflow", HALF, "total", "overflow", most=2)
def partition_over_fifty_thousand_words(g: Graph) -> Sequence[str]:
    """exp() of 50,000 logits of about one, added up: some 80,000."""
    x = g.input("x", g.random.normal(size=(2, 32)).astype(np.float32))
    w = k(g, "w", g.random.normal(size=(32, 50000)) / np.sqrt(32))
    logits = g.op("MatMul", [x, w], "logits")
    total = g.op("ReduceSum", [g.op("Exp", [logits], "e"), ints(g, "axes", -1)], "total")
    least = g.op("Sub", [g.op("ReduceMax", [logits], "best", axes=[-1]), g.op("Log", [total], "log")], "least")
    return [g.dense(least, 1, 4, "y")]


@unseen("overflow", HALF, "gram", "overflow range_inside", most=2)
def style_by_a_gram_matrix(g: Graph) -> Sequence[str]:
    """Einsum over 64 x 64 places of features of about six, divided by how many there are afterwards."""
    x = g.input("x", g.random.normal(size=(1, 3, 64, 64)).astype(np.float32))
    f = g.op("Relu", [g.conv(x, 3, 8, "c1", 10.0)], "r")
    f = g.op("Reshape", [f, ints(g, "rows", 1, 8, 4096)], "f")
    gram = g.op("Einsum", [f, f], "gram", equation="bip,bjp->bij")
    return [g.dense(g.op("Mul", [gram, k(g, "per", 1 / 4096)], "even"), 8, 6, "y")]


@unseen("overflow", HALF, "ticks", "overflow", most=2)
def milliseconds_before_a_cast(g: Graph) -> Sequence[str]:
    """70 to 120 seconds (in eighths, which the type holds) in thousandths, made whole: Inf, cast, is anything."""
    t = g.input("t", (g.random.integers(560, 960, size=(4, 8)) / 8).astype(np.float32))
    ticks = g.op("Mul", [t, k(g, "kilo", 1000)], "ticks")
    slot = g.op("Mod", [g.op("Cast", [ticks], "whole", to=7), ints(g, "slots", 16)], "slot")
    rows = g.op("Gather", [k(g, "table", np.eye(16) * 3), g.op("Abs", [slot], "place")], "rows")
    return [g.dense(rows, 16, 4, "y")]


@unseen("overflow", HALF, "hot", "overflow", extra=("hot", "all", "share"), most=3)
def tail_of_a_boltzmann_factor(g: Graph) -> Sequence[str]:
    """Twelve terms of a unit each are added, and their exponential taken before it is divided by all of them."""
    x = g.input("x", (g.random.normal(size=(4, 16, 12)) * 0.3 + 1.0).astype(np.float32))
    energy = g.op("ReduceSum", [x, ints(g, "axes", -1)], "energy", keepdims=0)
    hot = g.op("Exp", [energy], "hot")
    share = g.op("Div", [hot, g.op("ReduceSum", [hot, ints(g, "last", -1)], "all")], "share")
    return [g.dense(share, 16, 4, "y")]


@unseen(
    "underflow",
    HALF,
    "power mel",
    "underflow weight_underflow born",
    extra=("power", "mel", "floored", "level", "re2", "im2"),
    most=6,
)
def mel_spectrogram_of_a_quiet_room(g: Graph) -> Sequence[str]:
    """Samples of a ten-thousandth: the power is 1e-7, its floor of 1e-10 is nothing at all, the logarithm infinite."""
    x = g.input("x", (g.random.normal(size=(2, 20, 64)) * 1e-4).astype(np.float32))
    turn = np.outer(np.arange(64), np.arange(33)) * 2 * np.pi / 64
    re, im = (
        g.op("MatMul", [x, k(g, name, f(turn) / 8)], name[:2]) for name, f in (("re.w", np.cos), ("im.w", np.sin))
    )
    power = g.op("Add", [g.op("Mul", [re, re], "re2"), g.op("Mul", [im, im], "im2")], "power")
    bank = np.maximum(0, 1 - np.abs(np.arange(33)[:, None] / 4 - np.arange(1, 9)))
    mel = g.op("MatMul", [power, k(g, "bank", bank)], "mel")
    level = g.op("Log", [g.op("Max", [mel, k(g, "floor", 1e-10)], "floored")], "level")
    return [g.dense(level, 8, 6, "y")]


CASES[-1] = Unseen(**{**CASES[-1].__dict__, "who": ("re2", "im2", "power", "mel", "floored")})


@unseen(
    "underflow",
    HALF,
    "dot both la lb",
    "underflow weight_underflow born",
    most=10,
    extra=("dot", "both", "la", "lb", "na", "nb", "sa", "sb", "floor", "cosine", "ab"),
)
def cosine_of_faint_vectors(g: Graph) -> Sequence[str]:
    """Vectors of some 2e-4: their squares of 4e-8 are one step of the type, and the epsilon is none."""
    few = k(g, "few", 2e-4 / np.sqrt(32))
    a, b = (
        g.op("Mul", [g.dense(one, 32, 32, f"{name}_d"), few], name)
        for name, one in (("a", tokens(g)), ("b", g.input("z", g.random.normal(size=(2, 8, 32)).astype(np.float32))))
    )
    dot = g.op("ReduceSum", [g.op("Mul", [a, b], "ab"), ints(g, "axes", -1)], "dot")
    la, lb = (
        g.op("Sqrt", [g.op("ReduceSum", [g.op("Mul", [one, one], f"s{one}"), "axes"], f"n{one}")], f"l{one}")
        for one in (a, b)
    )
    floor = g.op("Add", [g.op("Mul", [la, lb], "both"), k(g, "eps", 1e-12)], "floor")
    return [g.dense(g.op("Div", [dot, floor], "cosine"), 1, 4, "y")]


CASES[-1] = Unseen(**{**CASES[-1].__dict__, "who": ("ab", "sa", "sb", "dot", "na", "nb", "both", "floor", "cosine")})


@unseen("born", HALF, "floor n", "weight_underflow underflow born", extra=("floor", "n", "root"), most=3)
def group_of_a_flat_background(g: Graph) -> Sequence[str]:
    """GroupNorm by hand in a U-Net's stem: one group of one picture is flat, and its epsilon of 1e-8 becomes 0: 0/0."""
    x = g.random.normal(size=(2, 4, 8, 8)).astype(np.float32)
    x[1, 2:] = 0.5
    x = g.op("Reshape", [g.input("x", x), ints(g, "groups", 2, 2, 128)], "flat")
    c = g.op("Sub", [x, g.op("ReduceMean", [x], "mean", axes=[-1])], "c")
    var = g.op("ReduceMean", [g.op("Mul", [c, c], "sq")], "var", axes=[-1])
    floor = g.op("Add", [var, k(g, "eps", 1e-8)], "floor")
    n = g.op("Reshape", [g.op("Div", [c, g.op("Sqrt", [floor], "root")], "n"), ints(g, "back", 2, 4, 8, 8)], "maps")
    return [g.conv(silu(g, n, "act"), 4, 4, "y")]


@unseen("two", HALF, "far near", "overflow underflow weight_underflow", also=("far", "near"), most=4)
def one_branch_too_large_and_one_too_small(g: Graph) -> Sequence[str]:
    """Two outputs of one trunk, each with a fault of its own."""
    x = g.norm(tokens(g), 32, "n")
    far = g.op("Mul", [g.dense(x, 32, 16, "a"), k(g, "many", 4e4)], "far")
    near = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 32, 16, "b")], "s"), k(g, "few", 1.3e-7)], "near")
    large = g.dense(g.op("Mul", [far, k(g, "less", 1 / 4e4)], "large"), 16, 4, "y1")
    small = g.op("Mul", [g.op("Mul", [near, k(g, "more", 5e4)], "mid"), k(g, "rest", 150)], "small")
    return [large, g.dense(small, 16, 4, "y2")]


@unseen("interacting", HALF, "huge tiny", "overflow underflow", also=("huge", "tiny"), extra=("both",), most=4)
def zero_times_infinity(g: Graph) -> Sequence[str]:
    """exp(a) * exp(-b), where a and b are 19: alone, neither repair makes a number of the product."""
    x = g.norm(tokens(g), 32, "n")
    a = g.op("Add", [g.op("Tanh", [g.dense(x, 32, 16, "a")], "ta"), k(g, "up", 19)], "late")
    b = g.op("Sub", [g.op("Tanh", [g.dense(x, 32, 16, "b")], "tb"), k(g, "down", 19)], "soon")
    both = g.op("Mul", [g.op("Exp", [a], "huge"), g.op("Exp", [b], "tiny")], "both")
    return [g.dense(both, 16, 4, "y")]


@unseen(
    "bodies",
    HALF,
    "energy@20 energy@21 energy@22 energy@23",
    "overflow",
    extra=(*tuple(f"{one}@{n}" for one in ("energy", "seen", "level") for n in range(15, 41)), "energies", "last"),
    fix=False,
)
def energy_that_a_scan_adds_up(g: Graph) -> Sequence[str]:
    """A Scan keeps a sum of squares of 55: the type ends after some twenty steps."""
    x = g.input(
        "x", (g.random.choice([-1.0, 1.0], size=(40, 8)) * g.random.uniform(50, 60, size=(40, 8))).astype(np.float32)
    )
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["frame", "frame"], ["square"], name="body_square"),
            helper.make_node("Add", ["before", "square"], ["energy"], name="body_energy"),
            helper.make_node("Log", ["energy"], ["level"], name="body_level"),
        ],
        "step",
        [_info("before", [8]), _info("frame", [8])],
        [_info("energy", [8]), _info("level", [8])],
    )
    g.nodes.append(
        helper.make_node(
            "Scan", [k(g, "nought", np.zeros(8)), x], ["last", "levels"], name="node_scan", body=body, num_scan_inputs=1
        )
    )
    return [g.dense("levels", 8, 4, "y")]


@unseen("bodies", HALF, "strong chosen", "overflow", extra=("strong", "chosen", "back"), fix=False)
def branch_that_is_taken_overflows(g: Graph) -> Sequence[str]:
    """An If takes its branch by the input's own sum; inside, a product is beyond the type and brought back."""
    x = g.norm(tokens(g), 32, "n")
    then = helper.make_graph(
        [
            helper.make_node("Mul", ["n", "large"], ["strong"], name="then_strong"),
            helper.make_node("Mul", ["strong", "little"], ["back"], name="then_back"),
        ],
        "then",
        [],
        [_info("back", [2, 8, 32])],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["n"], ["turned"], name="else_turned")], "else", [], [_info("turned", [2, 8, 32])]
    )
    k(g, "large", 6e4), k(g, "little", 1 / 6e4)
    total = g.op("ReduceSum", [g.op("Mul", [x, x], "sq")], "total", keepdims=0)
    g.nodes.append(
        helper.make_node(
            "If",
            [g.op("Greater", [total, k(g, "least", 1)], "any")],
            ["chosen"],
            name="node_chosen",
            then_branch=then,
            else_branch=other,
        )
    )
    return [g.dense("chosen", 32, 4, "y")]


# --- float16: too few digits


@unseen("cancellation", HALF, "sum", CANCELS, extra=("sum", "late", "soon", "box", "s", "mean"), most=6)
def window_from_a_running_sum(g: Graph) -> Sequence[str]:
    """A box filter over 4096 samples by the difference of two running sums, which reach 2000."""
    x = g.input("x", g.random.uniform(0, 1, size=(2, 4096)).astype(np.float32))
    total = g.op("CumSum", [g.op("Identity", [x], "s"), ints(g, "axis", 1)], "sum")
    late, soon = (
        g.op("Slice", [total, ints(g, f"{n}.a", a), ints(g, f"{n}.z", z), ints(g, f"{n}.x", 1)], n)
        for n, a, z in (("late", 16, 4096), ("soon", 0, 4080))
    )
    box = g.op("Sub", [late, soon], "box")
    swing = g.op("Sub", [g.op("Mul", [box, k(g, "per", 1 / 16)], "mean"), k(g, "half", 0.5)], "swing")
    return [g.op("Tanh", [g.op("Mul", [swing, k(g, "gain", 6)], "loud")], "y")]


@unseen("coarse", HALF, "angle when", CANCELS, extra=("angle", "when", "column", "cos", "sin"), most=5)
def step_of_a_diffusion(g: Graph) -> Sequence[str]:
    """A time step of 9973 is cast to the model's type, which knows every eighth; then times sixteen frequencies."""
    t = g.input("t", np.array([9973, 9005, 8190, 6011], np.int64))
    when = g.op("Unsqueeze", [g.op("Cast", [t], "when", to=1), ints(g, "last", -1)], "column")
    angle = g.op("Mul", [when, k(g, "freq", 100.0 ** -(np.arange(16) / 16))], "angle")
    wave = g.op("Concat", [g.op("Cos", [angle], "cos"), g.op("Sin", [angle], "sin")], "wave", axis=-1)
    return [g.dense(silu(g, g.dense(wave, 32, 32, "a"), "act"), 32, 8, "y")]


@unseen(
    "coarse", HALF, "flat", "coarse flips amplified cancellation", extra=("flat", "row", "at", "rows", "whole"), most=3
)
def place_in_a_table_of_four_thousand(g: Graph) -> Sequence[str]:
    """A row of 64 columns times its number, plus the column, in the model's type: beyond 2048 every other is lost."""
    x = g.input("x", g.random.integers(33, 63, size=(4, 8)).astype(np.float32))
    z = g.input("z", g.random.integers(0, 32, size=(4, 8)).astype(np.float32) * 2 + 1)
    flat = g.op("Add", [g.op("Mul", [x, k(g, "wide", 64)], "row"), z], "flat")
    at = g.op("Cast", [flat], "at", to=7)
    rows = g.op("Gather", [k(g, "table", g.random.normal(size=(4096, 8))), at], "rows")
    return [g.dense(rows, 8, 4, "y")]


@unseen("coarse", HALF, "place", f"{CANCELS} flips", extra=("place", "low", "rest", "offset", "index", "high"), most=4)
def offsets_of_a_deformable_filter(g: Graph) -> Sequence[str]:
    """Each of 1500 places is moved by a learnt part of a step and read between its neighbours, as deformable
    convolutions do: a place of 1200.4 is 1200."""
    x = g.input("x", np.sin(np.arange(1500) * 1.1)[None].astype(np.float32))
    offset = g.op("Sigmoid", [g.input("z", g.random.normal(size=(1, 1400)).astype(np.float32))], "offset")
    place = g.op("Add", [offset, k(g, "grid", np.arange(1400)[None])], "place")
    low = g.op("Floor", [place], "low")
    rest = g.op("Sub", [place, low], "rest")
    index = g.op("Cast", [low], "index", to=7)
    high = g.op("Add", [index, ints(g, "one", 1)], "high")
    a, b = (g.op("GatherElements", [x, one], f"at_{one}", axis=1) for one in (index, high))
    moved = g.op("Mul", [g.op("Sub", [b, a], "step"), rest], "part")
    return [g.op("Add", [a, moved], "y")]


@unseen("cancellation", HALF, "moved", CANCELS, extra=("moved", "w", "h", "area", "left", "right"), most=6)
def boxes_moved_apart_by_their_class(g: Graph) -> Sequence[str]:
    """Batched suppression moves the boxes of a class by 1024 times its number; their sizes are read afterwards."""
    corner = g.random.uniform(0, 300, size=(32, 2))
    boxes = np.concatenate([corner, corner + g.random.uniform(3, 12, size=(32, 2))], 1).astype(np.float32)
    of = g.input("of", g.random.integers(6, 20, size=(32, 1)))
    far = g.op("Mul", [g.op("Cast", [of], "number", to=1), k(g, "apart", 1024)], "far")
    moved = g.op("Add", [g.input("x", boxes), far], "moved")
    left, right = (
        g.op("Slice", [moved, ints(g, f"{n}.a", a), ints(g, f"{n}.z", a + 2), ints(g, f"{n}.x", 1)], n)
        for n, a in (("left", 0), ("right", 2))
    )
    return [g.op("ReduceProd", [g.op("Sub", [right, left], "w")], "y", axes=[1])]


@unseen(
    "cancellation",
    HALF,
    "sq ms mean sqm",
    f"{CANCELS} born",
    extra=("sq", "ms", "mean", "sqm", "var", "x", "kelvin", "root", "n", "c"),
    most=6,
)
def spread_of_a_temperature(g: Graph) -> Sequence[str]:
    """E[x^2] - E[x]^2 of readings of 140 and a deviation of 3: 19600 less 19591."""
    x = g.input("x", g.random.normal(size=(4, 8, 64)).astype(np.float32))
    kelvin = g.op("Add", [g.op("Mul", [x, k(g, "few", 3)], "swing"), k(g, "level", 140)], "kelvin")
    mean = g.op("ReduceMean", [kelvin], "mean", axes=[-1])
    ms = g.op("ReduceMean", [g.op("Mul", [kelvin, kelvin], "sq")], "ms", axes=[-1])
    var = g.op("Sub", [ms, g.op("Mul", [mean, mean], "sqm")], "var")
    floor = g.op("Max", [var, k(g, "least", 1e-2)], "floor")
    return [g.op("Log", [floor], "y")]


@unseen("decision", HALF, "late", f"{CANCELS} flips", extra=("late", "best", "rows", "a", "a_mm"), most=3)
def best_word_behind_an_offset(g: Graph) -> Sequence[str]:
    """Scores of one, 1500 added so that masked ones may be 0, and the best of 64: steps of one, so the first wins."""
    x = g.norm(tokens(g, 32, 16), 32, "n")
    late = g.op("Add", [g.dense(x, 32, 64, "a"), k(g, "up", 1500)], "late")
    best = g.op("ArgMax", [late], "best", axis=-1, keepdims=0)
    rows = g.op("Gather", [k(g, "table", g.random.normal(size=(64, 16))), best], "rows")
    return [g.dense(rows, 16, 4, "y")]


# --- healthy in float16


@unseen("healthy", HALF)
def softmax_over_fifty_thousand(g: Graph) -> Sequence[str]:
    """The operator takes its largest away before it adds up; the best word has a hundredth."""
    x = g.input("x", g.random.normal(size=(2, 32)).astype(np.float32))
    logits = g.op("MatMul", [x, k(g, "w", g.random.normal(size=(32, 50000)) / 3)], "logits")
    p = g.op("Softmax", [logits], "p", axis=-1)
    return [g.dense(g.op("MatMul", [p, k(g, "e", g.random.uniform(0.5, 1.5, size=(50000, 8)))], "mixed"), 8, 6, "y")]


@unseen("healthy", HALF)
def gelu_whose_cube_overflows(g: Graph) -> Sequence[str]:
    """0.5 x (1 + tanh(0.8 (x + 0.0447 x^3))) of features up to 80: the cube is infinite, tanh makes one of it."""
    x = g.dense(tokens(g), 32, 32, "a", scale=25.0)
    cube = g.op("Mul", [g.op("Pow", [x, k(g, "three", 3)], "cube"), k(g, "c", 0.044715)], "term")
    bend = g.op("Tanh", [g.op("Mul", [g.op("Add", [x, cube], "both"), k(g, "r", 0.79788)], "scaled")], "bend")
    gate = g.op("Add", [bend, k(g, "one", 1)], "gate")
    half = g.op("Mul", [g.op("Mul", [x, gate], "twice"), k(g, "half", 0.5)], "gelu")
    return [g.dense(half, 32, 6, "y")]


@unseen("healthy", HALF)
def logistic_by_its_exponential(g: Graph) -> Sequence[str]:
    """1 / (1 + exp(-x)) where -x reaches 14: exp is infinite, and its inverse 0 in place of a millionth."""
    x = g.dense(tokens(g), 32, 32, "a", scale=5.0)
    e = g.op("Exp", [g.op("Neg", [x], "minus")], "e")
    p = g.op("Reciprocal", [g.op("Add", [e, k(g, "one", 1)], "plus")], "p")
    return [g.dense(p, 32, 6, "y")]


@unseen("healthy", f"{HALF} ort_fp16 ort_opt ort_int8")
def mobile_block_of_plain_features(g: Graph) -> Sequence[str]:
    x = mobile(g, g.conv(image(g), 3, 8, "c1"), "m")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 8, 6, "y")]


@unseen("healthy", HALF)
def far_scores_where_they_are_not_chosen(g: Graph) -> Sequence[str]:
    """An infinite product is scattered into places that Where leaves out."""
    x = g.norm(tokens(g, 32), 32, "n")
    scores = g.dense(x, 32, 8, "a")
    rows = np.stack(np.meshgrid([0, 1], [5, 6, 7], indexing="ij"), -1).reshape(-1, 2)
    far = k(g, "far", np.full((6, 8), 3e5))
    written = g.op("ScatterND", [scores, g.weight("rows", rows.astype(np.int64)), far], "written")
    keep = np.ones((2, 8, 1), bool)
    keep[:, 5:] = False
    picked = g.op("Where", [g.weight("keep", keep), written, k(g, "nought", 0)], "picked")
    return [g.op("Softmax", [picked], "y", axis=-1)]


def unet(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "stem")
    x = silu(g, group_norm(g, x, 8, "n1"), "s1")
    small = g.op("AveragePool", [x], "small", kernel_shape=[2, 2], strides=[2, 2])
    mid = silu(g, group_norm(g, g.conv(small, 8, 8, "mid"), 8, "n2", side=8), "s2")
    up = g.op("Resize", [mid, "", k(g, "sc", [1, 1, 2, 2])], "up", mode="linear")
    return [g.conv(g.op("Concat", [x, up], "both", axis=1), 16, 4, "y")]


@unseen("healthy", f"{HALF} ort_opt")
def unet_of_group_norms(g: Graph) -> Sequence[str]:
    return unet(g)


@unseen("healthy", f"{HALF} ort_opt")
def best_of_many_ties(g: Graph) -> Sequence[str]:
    """Votes are whole numbers, and many are equal: both sides take the first of them."""
    votes = g.input("x", g.random.integers(0, 9, size=(4, 60)).astype(np.float32))
    total = g.op("Add", [g.op("Mul", [votes, k(g, "two", 2)], "twice"), k(g, "least", 1)], "total")
    parts = ["top", "which"]
    g.nodes.append(helper.make_node("TopK", [total, ints(g, "five", 5)], parts, name="node_top", axis=-1))
    rows = g.op("Gather", [k(g, "table", g.random.normal(size=(60, 8))), "which"], "rows")
    return [g.dense(rows, 8, 4, "y"), g.op("Identity", ["which"], "winners")]


# --- float16 as ONNX Runtime deploys it on a CPU


@unseen(
    "weights",
    "ort_fp16",
    "n_var",
    "weight_underflow underflow coarse",
    extra=("n_var", "n_root", "n_ms"),
    most=3,
)
def floor_that_the_converter_lifts(g: Graph) -> Sequence[str]:
    """Activations of a few ten-thousandths under an epsilon of 1e-12, of which the converter makes 1e-7."""
    x = g.op("Mul", [g.norm(tokens(g), 32, "first"), k(g, "few", 3e-4)], "faint")
    return [g.dense(rms(g, x, 32, "n", 1e-12), 32, 6, "y")]


# --- INT8


@unseen(
    "int8",
    "ort_int8",
    "first_mm first",
    "constant_scale coarse outlier_channel",
    extra=("first_mm", "first", "t"),
    most=3,
)
def feature_that_never_comes(g: Graph) -> Sequence[str]:
    """One row of the weights is 400 times any other, and its input always 0: every column's scale is that row's."""
    x = g.random.normal(size=(32, 48)).astype(np.float32)
    x[:, 7] = 0
    h = g.dense(g.input("x", x), 48, 32, "first")
    g.weights["first.w"][7] *= 400
    return [g.dense(g.op("Tanh", [h], "t"), 32, 6, "y")]


@unseen("int8", "ort_int8", "lifted", f"{CANCELS} zero_point", extra=("lifted", "c", "a", "level"), most=3)
def level_far_from_zero(g: Graph) -> Sequence[str]:
    """Values of 89 to 91: a range that has to hold 0 leaves six steps for them."""
    x = g.op("Tanh", [g.dense(tokens(g), 32, 32, "a")], "t")
    lifted = g.op("Add", [x, k(g, "level", 90)], "lifted")
    c = g.op("Sub", [lifted, k(g, "down", 90)], "c")
    return [g.dense(c, 32, 6, "y")]


@unseen(
    "int8",
    "ort_int8",
    "re im re2 im2 power floored",
    "coarse outlier_channel underflow",
    extra=("re", "im", "re2", "im2", "power", "floored", "x"),
    most=8,
)
def mel_spectrogram_in_steps(g: Graph) -> Sequence[str]:
    """The power of a tone beside that of noise a hundredth as loud: all but the tone is below one step; a logarithm
    tells."""
    x = 0.01 * g.random.normal(size=(2, 20, 64)) + np.sin(np.arange(64) * np.pi / 4)
    x = g.input("x", x.astype(np.float32))
    turn = np.outer(np.arange(64), np.arange(33)) * 2 * np.pi / 64
    re, im = (
        g.op("MatMul", [x, k(g, name, f(turn) / 8)], name[:2]) for name, f in (("re.w", np.cos), ("im.w", np.sin))
    )
    power = g.op("Add", [g.op("Mul", [re, re], "re2"), g.op("Mul", [im, im], "im2")], "power")
    level = g.op("Log", [g.op("Add", [power, k(g, "floor", 1e-6)], "floored")], "level")
    return [g.dense(level, 33, 6, "y")]


@unseen("int8", "ort_int8", "p", "coarse underflow outlier_channel", extra=("p", "logits", "mixed"), most=3)
def shares_of_fifty_thousand_in_steps(g: Graph) -> Sequence[str]:
    """A softmax whose best word has a hundredth, and 50,000 others far less: most of these are below one step."""
    x = g.input("x", g.random.normal(size=(2, 32)).astype(np.float32))
    logits = g.op("MatMul", [x, k(g, "w", g.random.normal(size=(32, 50000)) / 3)], "logits")
    p = g.op("Softmax", [logits], "p", axis=-1)
    return [g.dense(g.op("MatMul", [p, k(g, "e", g.random.uniform(0.5, 1.5, size=(50000, 8)))], "mixed"), 8, 6, "y")]


@unseen("int8", "ort_int8", "y", "packed coarse outlier_channel", extra=("y", "boxes", "prob"), most=3)
def boxes_of_a_screen_beside_their_chances(g: Graph) -> Sequence[str]:
    """Corners of up to 1900 pixels and chances below 1 in one output."""
    x = g.norm(tokens(g, 32, 16), 32, "n")
    boxes = g.op(
        "Mul", [g.op("Sigmoid", [g.dense(x, 32, 4, "box")], "unit"), k(g, "screen", [1920, 1080, 1920, 1080])], "boxes"
    )
    prob = g.op("Sigmoid", [g.dense(x, 32, 6, "class")], "prob")
    return [g.op("Concat", [boxes, prob], "y", axis=-1)]


@unseen("int8", "ort_int8_dynamic", "lstm h", "constant_scale coarse outlier_channel", extra=("lstm", "h"), most=2)
def gate_that_is_two_hundred_times_as_steep(g: Graph) -> Sequence[str]:
    """An LSTM's output gate is all but a switch: its weights take the one scale of the four gates."""
    steps = g.op("Transpose", [tokens(g, 32, 8)], "steps", perm=[1, 0, 2])
    w, r = g.random.normal(size=(1, 64, 32)) / 5, g.random.normal(size=(1, 64, 16)) / 5
    w[:, 16:32] *= 200
    g.nodes.append(
        helper.make_node("LSTM", [steps, k(g, "w", w), k(g, "r", r)], ["lstm"], name="node_lstm", hidden_size=16)
    )
    h = g.op("Squeeze", ["lstm", ints(g, "one", 1)], "h")
    return [g.dense(h, 16, 4, "y")]


def small_bias(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    w = g.random.normal(size=(8, 8, 3, 3)) / 9
    w[3] *= 1e-9
    x = g.op("Conv", [x, k(g, "c2.w", w), k(g, "c2.b", g.random.uniform(0.5, 1, 8))], "c2", pads=[1, 1, 1, 1])
    return [g.conv(g.op("Relu", [x], "r2"), 8, 4, "y")]


@unseen("healthy", "ort_int8")
def bias_of_a_dead_filter(g: Graph) -> Sequence[str]:
    """A filter of a billionth has a bias of 1, which its own scale cannot count in 32 bits."""
    return small_bias(g)


def rotary(g: Graph) -> Sequence[str]:
    x = tokens(g, 32, 8)
    n = rms(g, x, 32, "n")
    q, key, v = (g.dense(n, 32, 32, one) for one in "qkv")
    q, key = (rope(g, one, 8, 16, f"{one}_r") for one in (q, key))
    raw = g.op("MatMul", [q, g.op("Transpose", [key], "kt", perm=[0, 2, 1])], "raw")
    prob = g.op("Softmax", [g.op("Mul", [raw, k(g, "d", 32**-0.5)], "score")], "prob", axis=-1)
    x = g.op("Add", [x, g.dense(g.op("MatMul", [prob, v], "mixed"), 32, 32, "o")], "h")
    return [g.dense(x, 32, 8, "y")]


@unseen("healthy", "ort_int8 ort_int8_dynamic ort_opt")
def attention_with_rotated_positions(g: Graph) -> Sequence[str]:
    return rotary(g)


@unseen("healthy", "ort_int8_dynamic ort_opt")
def gates_of_one_size(g: Graph) -> Sequence[str]:
    steps = g.op("Transpose", [tokens(g, 32, 8)], "steps", perm=[1, 0, 2])
    w, r = k(g, "w", g.random.normal(size=(1, 64, 32)) / 6), k(g, "r", g.random.normal(size=(1, 64, 16)) / 5)
    g.nodes.append(helper.make_node("LSTM", [steps, w, r], ["lstm"], name="node_lstm", hidden_size=16))
    return [g.dense(g.op("Squeeze", ["lstm", ints(g, "one", 1)], "h"), 16, 4, "y")]
