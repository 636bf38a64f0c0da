"""An eighth batch in ONNX: transforms, fields, paths and grids, functions, bodies in bodies, operators of late opsets,
integers per channel and per tensor, with healthy ones that look dangerous; written and labelled before any was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from planted.fourth_clean import block
from planted.onnx_faults import Array, Graph, _body, _info, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen
from planted.unseen_onnx import silu
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=131, **more)


def edited(change: Callable[[Any], None]) -> None:
    """The files of the builder that was registered last are changed once they are saved."""
    name = CASES[-1].name

    def around(make: Any) -> Any:
        def again(folder: Path) -> tuple[Path, None, dict[str, Array]]:
            path, base, feeds = make(folder)
            model = onnx.load(path)
            change(model)
            onnx.save(model, path)
            return path, base, feeds

        return again

    for place, one in enumerate(CASES):
        if one.name == name:
            CASES[place] = Unseen(**{**one.__dict__, "make": around(one.make)})


HALF = "ort_fp16_sim"
FLOATS = "ort_fp16_sim ort_bf16_sim"


# --- float16: beyond its ends


@unseen("underflow", HALF, "sq floor root", "underflow weight_underflow", extra=("sq", "floor", "root", "away"))
def charbonnier_of_small_differences(g: Graph) -> Sequence[str]:
    """d / sqrt(d * d + 1e-12) of differences of a ten-thousandth: both are below the type."""
    x = block(g, tokens(g), 32, "l0")
    d = g.op("Mul", [g.op("Tanh", [x], "t"), k(g, "few", 1.5e-4)], "d")
    floor = g.op("Add", [g.op("Mul", [d, d], "sq"), k(g, "eps", 1e-12)], "floor")
    away = g.op("Div", [d, g.op("Sqrt", [floor], "root")], "away")
    return [g.dense(away, 32, 6, "y")]


@unseen("overflow", HALF, "p7", "overflow", extra=("p7", "term7"))
def polynomial_by_its_powers(g: Graph) -> Sequence[str]:
    """A lens is undistorted by powers of a radius of up to 6; the seventh is beyond the type, its factor tiny."""
    r = g.op("Mul", [g.op("Sigmoid", [g.dense(tokens(g), 32, 16, "a")], "s"), k(g, "six", 6)], "r")
    total = r
    for power, factor in ((3, 1e-2), (5, 1e-4), (7, 2e-6)):
        p = g.op("Pow", [r, k(g, f"n{power}", power)], f"p{power}")
        total = g.op("Add", [total, g.op("Mul", [p, k(g, f"c{power}", factor)], f"term{power}")], f"sum{power}")
    return [g.dense(total, 16, 4, "y")]


@unseen("underflow", HALF, "p", "underflow", extra=("p", "logp", "term"))
def divergence_of_sharp_shares(g: Graph) -> Sequence[str]:
    """p * log p, where p is e to the -25: 0 * -inf."""
    x = g.norm(tokens(g), 32, "n")
    p = g.op("Softmax", [g.op("Mul", [g.dense(x, 32, 24, "a"), k(g, "hot", 8)], "scores")], "p", axis=-1)
    term = g.op("Mul", [p, g.op("Log", [p], "logp")], "term")
    entropy = g.op("ReduceSum", [term, ints(g, "axes", -1)], "entropy")
    return [g.dense(g.op("Mul", [x, entropy], "weighted"), 32, 4, "y")]


@unseen("overflow", HALF, "ss", "overflow", extra=("ss",))
def response_over_a_large_map(g: Graph) -> Sequence[str]:
    """ConvNeXt's global response: squares of a map of 64 x 64 are added up before the root."""
    x = g.input("x", g.random.normal(size=(1, 3, 64, 64)).astype(np.float32))
    x = g.conv(x, 3, 8, "c1", 6.0)
    ss = g.op("ReduceSum", [g.op("Mul", [x, x], "sq"), ints(g, "axes", 2, 3)], "ss")
    norm = g.op("Sqrt", [ss], "root")
    ratio = g.op("Div", [norm, g.op("Add", [g.op("ReduceMean", [norm], "m", axes=[1]), k(g, "eps", 1e-6)], "me")], "nx")
    x = g.op("Add", [g.op("Mul", [x, ratio], "scaled"), x], "grn")
    return [g.conv(x, 8, 4, "y")]


def field(g: Graph) -> Sequence[str]:
    """A local function of two nodes: its product is beyond the type."""
    x = g.norm(tokens(g), 32, "n")
    g.nodes.append(helper.make_node("Charge", [g.dense(x, 32, 32, "a"), k(g, "far", 3e4)], ["force"],
                                    name="node_force", domain="own"))  # fmt: skip
    return [g.dense(g.op("Mul", ["force", k(g, "back", 1e-5)], "near"), 32, 4, "y")]


def _function(model: Any) -> None:
    nodes = [helper.make_node("Mul", ["a", "b"], ["strong"], name="strong"),
             helper.make_node("Softplus", ["strong"], ["c"], name="soft")]  # fmt: skip
    model.functions.append(helper.make_function("own", "Charge", ["a", "b"], ["c"], nodes, [helper.make_opsetid(
        "", 17)]))  # fmt: skip
    model.opset_import.append(helper.make_opsetid("own", 1))


def function_that_overflows(g: Graph) -> Sequence[str]:
    return field(g)


def _in_a_function(folder: Path) -> tuple[Path, None, dict[str, Array]]:
    """Shapes behind the function are inferred by hand: the function is put in after ``save``."""
    g = Graph(seed=140)
    outputs = field(g)
    place = next(n for n in g.nodes if n.op_type == "Charge")
    place.op_type, place.domain = "Mul", ""  # of the same shape
    path = g.save(folder / "function_that_overflows.onnx", outputs)
    model = onnx.load(path)
    node = next(n for n in model.graph.node if n.name == "node_force")
    node.op_type, node.domain = "Charge", "own"
    _function(model)
    onnx.save(model, path)
    return path, None, g.feeds


CASES.append(Unseen(name="function_that_overflows", kind="overflow", mode=HALF, make=_in_a_function, status=1,
                    who=("strong__1_0",), why=("overflow",), extra=("force",)))  # as onnx calls what it writes out


@unseen("bodies", HALF, "grown@2 grown@3 grown@4 grown", "overflow", extra=("grown@3", "grown@4", "grown@5", "next@2"))
def branch_in_a_loop_overflows(g: Graph) -> Sequence[str]:
    """A loop of four turns, whose last takes a branch that multiplies by 30000."""
    x = g.norm(tokens(g), 32, "n")
    then = helper.make_graph([helper.make_node("Mul", ["state", "large"], ["grown"], name="then_mul"),
                              helper.make_node("Tanh", ["grown"], ["bent"], name="then_tanh")], "then", [],
                             [_info("bent", [2, 8, 32])])  # fmt: skip
    other = helper.make_graph([helper.make_node("Add", ["state", "state"], ["twice"], name="else_add")], "else", [],
                              [_info("twice", [2, 8, 32])])  # fmt: skip
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="body_go"),
            helper.make_node("Greater", ["i", "two"], ["late"], name="body_late"),
            helper.make_node("If", ["late"], ["next"], name="body_if", then_branch=then, else_branch=other),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 8, 32])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 8, 32])],
        {"two": np.int64(2), "large": np.float32(30000)},
    )
    g.nodes.append(helper.make_node("Loop", [g.weight("turns", np.int64(4)), "", x], ["looped"], name="node_loop",
                                    body=body))  # fmt: skip
    return [g.dense("looped", 32, 4, "y")]


# tanh makes 1 of what is beyond the type, and of 30000: nothing is lost. The product is said to overflow all the same,
# but the output feels nothing: healthy.
CASES[-1] = Unseen(**{**CASES[-1].__dict__, "who": (), "why": (), "extra": (), "status": 0, "kind": "healthy"})


@unseen("overflow", HALF, "third", "overflow", extra=("third",))
def one_matrix_that_is_read_three_times(g: Graph) -> Sequence[str]:
    """Tied layers: what the third reader makes of it is beyond the type."""
    x = g.norm(tokens(g), 32, "n")
    w = k(g, "w", g.random.normal(size=(32, 32)) * 8)
    x = g.op("MatMul", [x, w], "first")
    x = g.op("MatMul", [g.op("Relu", [x], "r1"), w], "second")
    x = g.op("MatMul", [g.op("Relu", [x], "r2"), w], "third")
    return [g.norm(x, 32, "y")]


@unseen("overflow", HALF, "wide", "overflow", extra=("wide", "energy"))
def any_length_overflows(g: Graph) -> Sequence[str]:
    """Batch and length have names in place of numbers; the reshape is computed from the shape."""
    x = block(g, tokens(g), 32, "l0")
    wide = g.op("Mul", [g.dense(x, 32, 32, "a"), k(g, "f", 6e4)], "wide")
    small = g.op("Mul", [wide, k(g, "b", 1e-4)], "small")
    size = g.op("Gather", [g.op("Shape", [small], "shape"), ints(g, "at", 0, 1)], "size")
    flat = g.op("Reshape", [small, g.op("Concat", [size, ints(g, "halves", 2, 16)], "new", axis=0)], "cut")
    return [g.dense(g.op("ReduceMean", [flat], "m", axes=[2], keepdims=0), 16, 4, "y")]


def _any_size(model: Any) -> None:
    for one in [*model.graph.input, *model.graph.output]:
        for place, name in ((0, "N"), (1, "T")):
            one.type.tensor_type.shape.dim[place].dim_param = name


edited(_any_size)


# --- digits


@unseen("cancellation", HALF, "erf", "cancellation cancels amplified", extra=("erf", "tail"))
def tail_of_a_gaussian(g: Graph) -> Sequence[str]:
    """1 - erf(x) for x of 1.5 to 2.5: a thousandth is left of two numbers of one."""
    x = g.op("Add", [g.op("Sigmoid", [g.dense(tokens(g), 32, 16, "a")], "s"), k(g, "far", 1.5)], "moved")
    tail = g.op("Sub", [k(g, "one", 1), g.op("Erf", [x], "erf")], "tail")
    return [g.op("Log", [tail], "y")]


# what the products are of is rounded as they are: the label had the products alone
@unseen("cancellation", HALF, "re_im im_re re1 im1", "cancellation cancels", extra=("re_im", "im_re", "imag", "re1",
                                                                                    "im1"))  # fmt: skip
def turn_between_two_frames(g: Graph) -> Sequence[str]:
    """The imaginary part of a spectrum times the conjugate of the one before: both products are all but equal."""
    x = tokens(g, 64)
    re0, im0 = g.dense(x, 64, 16, "re0"), g.dense(x, 64, 16, "im0")
    e = g.input("e", g.random.normal(size=(2, 8, 16)).astype(np.float32))
    little = g.op("Mul", [e, k(g, "little", 2e-3)], "turn")
    re1 = g.op("Sub", [re0, g.op("Mul", [im0, little], "im0t")], "re1")
    im1 = g.op("Add", [im0, g.op("Mul", [re0, little], "re0t")], "im1")
    imag = g.op("Sub", [g.op("Mul", [re0, im1], "re_im"), g.op("Mul", [im0, re1], "im_re")], "imag")
    return [g.op("Mul", [imag, k(g, "scale", 200)], "y")]


@unseen("amplified", FLOATS, "place", "amplified cancellation cancels coarse flips",
        extra=("place", "rest", "low", "s", "x", "a_mm", "a"))  # fmt: skip
def fraction_of_a_far_place(g: Graph) -> Sequence[str]:
    """Linear interpolation at up to 600 of a signal: what is behind the point weighs its two neighbours."""
    s = g.op("Sigmoid", [g.dense(tokens(g), 32, 16, "a")], "s")
    place = g.op("Mul", [s, k(g, "length", 600)], "place")
    low = g.op("Floor", [place], "low")
    rest = g.op("Sub", [place, low], "rest")
    return [g.dense(rest, 16, 4, "y")]


def toom(points: Sequence[float], outputs: int, taps: int) -> tuple[Array, Array, Array]:
    """Winograd's three matrices for ``outputs`` results of a filter of ``taps``, infinity being the last point."""
    size = outputs + taps - 1
    vander = np.array([[p**n for n in range(size)] for p in points] + [[0.0] * (size - 1) + [1.0]])
    back = np.linalg.inv(vander).T  # rows: points; what the input is turned by is this, transposed
    filters = np.array([[p**n for n in range(taps)] for p in points] + [[0.0] * (taps - 1) + [1.0]])
    results = np.array([[p**n for n in range(outputs)] for p in points] + [[0.0] * (outputs - 1) + [1.0]])
    return back, filters, results


# the last matrix has powers that the type rounds, and terms of a million: the label had what it is given
@unseen("cancellation", HALF, "v m out", "cancellation amplified cancels", extra=("v", "m", "vs", "half", "out"))
def convolution_by_winograd(g: Graph) -> Sequence[str]:
    """F(8, 3) over the points 0, +-1, +-2, +-3, +-4: results are small differences of large products."""
    back, filters, results = toom([0, 1, -1, 2, -2, 3, -3, 4, -4], 8, 3)
    x = g.input("x", g.random.normal(size=(4, 16, 10)).astype(np.float32))
    v = g.op("MatMul", [x, k(g, "b", back.T)], "v")
    u = np.einsum("oit,pt->pio", g.random.normal(size=(16, 16, 3)) / 7, filters)
    vs = g.op("Transpose", [v], "vs", perm=[2, 0, 1])
    m = g.op("MatMul", [vs, k(g, "u", u)], "m")
    out = g.op("MatMul", [g.op("Transpose", [m], "half", perm=[1, 2, 0]), k(g, "a", results)], "out")
    return [g.op("Tanh", [out], "y")]


# --- integers


@unseen("healthy", "ort_int8")  # labelled coarse: the range ends at 0.05, where 255 steps are enough
def odds_by_a_division(g: Graph) -> Sequence[str]:
    """One by a sigmoid of -8 to -3: in steps of 1/255 many are 0."""
    x = g.norm(tokens(g), 32, "n")
    p = g.op("Sigmoid", [g.op("Sub", [g.dense(x, 32, 16, "a"), k(g, "rare", 5)], "logits")], "p")
    odds = g.op("Div", [k(g, "one", 1), p], "odds")
    return [g.dense(g.op("Tanh", [g.op("Mul", [odds, k(g, "f", 0.003)], "few")], "t"), 16, 4, "y")]


@unseen("int8", "ort_int8", "now before", "cancellation cancels coarse amplified", extra=("now", "before", "moved", "x",
                                                                                          "z"))  # fmt: skip
def difference_of_two_frames(g: Graph) -> Sequence[str]:
    """Features of one picture and of the next, of which the difference is read: a step is as large as it."""
    x = image(g)
    z = g.input("z", (x and g.feeds["x"] + 0.01 * g.random.normal(size=(2, 3, 16, 16))).astype(np.float32))
    w = k(g, "w", g.random.normal(size=(8, 3, 3, 3)) / 3)
    now, before = (g.op("Conv", [one, w], name, pads=[1, 1, 1, 1]) for one, name in ((x, "now"), (z, "before")))
    moved = g.op("Sub", [now, before], "moved")
    return [g.op("Tanh", [g.op("Mul", [moved, k(g, "gain", 40)], "loud")], "y")]


def uneven_rows(g: Graph) -> Sequence[str]:
    """A batch norm was folded into a kernel: its rows are of 1 to 400, and a factor behind it makes them even, which
    ONNX Runtime and NNCF fold back before they quantise: healthy, where the labels had c2."""
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    size = np.geomspace(1, 400, 8)
    w = g.random.normal(size=(8, 8, 1, 1)) / 3 * size[:, None, None, None]
    x = g.op("Conv", [x, k(g, "c2.w", w)], "c2")
    even = g.op("Mul", [x, k(g, "inverse", (1 / size)[:, None, None])], "even")
    return [g.conv(g.op("Relu", [even], "r2"), 8, 4, "y")]


@unseen("healthy", "ort_int8", options=["--option", "per_channel=false"])
def rows_that_share_one_scale(g: Graph) -> Sequence[str]:
    return uneven_rows(g)


@unseen("healthy", "ort_int8")
def rows_of_their_own_and_one_range_of_what_they_make(g: Graph) -> Sequence[str]:
    """Each row of the kernel has its scale; what it makes has one for all of them."""
    return uneven_rows(g)


def uneven_behind_a_slope(g: Graph) -> Sequence[str]:
    """The same with a slope between the kernel and the factor, through which nothing is folded."""
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    size = np.geomspace(1, 400, 8)
    w = g.random.normal(size=(8, 8, 1, 1)) / 3 * size[:, None, None, None]
    x = g.op("LeakyRelu", [g.op("Conv", [x, k(g, "c2.w", w)], "c2")], "slope", alpha=0.3)
    return [g.conv(g.op("Mul", [x, k(g, "inverse", (1 / size)[:, None, None])], "even"), 8, 4, "y")]


@unseen("int8", "ort_int8", "c2 slope", "coarse outlier_channel", extra=("c2", "slope", "even"),
        options=["--option", "per_channel=false"])  # fmt: skip
def rows_that_share_one_scale_behind_a_slope(g: Graph) -> Sequence[str]:
    return uneven_behind_a_slope(g)


@unseen("int8", "ort_int8", "c2 slope", "coarse outlier_channel", extra=("c2", "slope", "even"))
def rows_of_their_own_behind_a_slope(g: Graph) -> Sequence[str]:
    return uneven_behind_a_slope(g)


@unseen("int8", "ort_int8_dynamic", "first", "coarse outlier_channel", extra=("first", "n", "x", "loud"))
def two_columns_in_unlike_units(g: Graph) -> Sequence[str]:
    """Pascals beside shares: the range of the whole is that of the pressure, whose weight is tiny."""
    x = g.random.uniform(0, 1, size=(16, 24)).astype(np.float32)
    x[:, 7] = 101325 + 400 * g.random.normal(size=16)
    w = g.random.normal(size=(24, 32)) / 3
    w[7] = 1e-5
    x2 = g.op("MatMul", [g.input("x", x), k(g, "w", w)], "first")
    return [g.dense(g.op("Tanh", [x2], "t"), 32, 4, "y")]


# --- healthy, and dangerous to look at


@unseen("healthy", f"{HALF} ort_fp16")
def minus_infinity_before_a_relu(g: Graph) -> Sequence[str]:
    """What is beyond float16 is all negative, and cut off to 0."""
    x = g.op("Sigmoid", [g.dense(tokens(g), 32, 32, "a")], "s")
    sign = np.where(np.arange(32) % 2, 1.0, -2e5)
    x = g.op("Relu", [g.op("Mul", [x, k(g, "sign", sign)], "down")], "r")
    return [g.dense(x, 32, 4, "y")]


@unseen("healthy", HALF)
def only_its_shape_is_read(g: Graph) -> Sequence[str]:
    """Anchors' sizes are an exponential beyond the type; only how many there are is read of it."""
    x = block(g, tokens(g), 32, "l0")
    big = g.op("Exp", [g.op("Add", [x, k(g, "late", 14)], "later")], "big")
    zeros = g.op("Expand", [k(g, "nought", np.zeros(1)), g.op("Shape", [big], "shape")], "zeros")
    return [g.dense(g.op("Add", [x, zeros], "kept"), 32, 4, "y")]


@unseen("healthy", f"{FLOATS} ort_opt")
def paths_through_a_lattice(g: Graph) -> Sequence[str]:
    """A CRF's forward algorithm: forbidden steps cost ten thousand, and the largest is taken away each time."""
    emit = g.op("Mul", [g.dense(g.norm(tokens(g), 32, "n"), 32, 6, "emit"), k(g, "one", 1)], "e")
    step = g.random.normal(size=(6, 6)) * 0.5
    step[np.tril_indices(6, -2)] = -1e4
    parts = [f"e{t}" for t in range(8)]
    g.nodes.append(helper.make_node("Split", [emit], parts, name="node_split", axis=1))
    alpha = parts[0]
    for t in range(1, 8):
        turned = g.op("Transpose", [alpha], f"a{t}", perm=[0, 2, 1])
        both = g.op("Add", [turned, k(g, "step", step)], f"b{t}")
        top = g.op("ReduceMax", [both], f"top{t}", axes=[1])
        inner = g.op("Exp", [g.op("Sub", [both, top], f"c{t}")], f"x{t}")
        total = g.op("ReduceSum", [inner, ints(g, f"ax{t}", 1)], f"s{t}")
        alpha = g.op("Add", [g.op("Add", [g.op("Log", [total], f"l{t}"), top], f"f{t}"), parts[t]], f"g{t}")
    return [g.op("ReduceMax", [alpha], "y", axes=[2])]


@unseen("healthy", "ort_fp16_sim ort_int8 ort_opt")
def windows_that_are_shifted(g: Graph) -> Sequence[str]:
    """Swin's roll by two slices, a mask of -100 and a table of positions."""
    x = tokens(g, 32, 16)
    for n in range(2):
        h = g.norm(x, 32, f"n{n}")
        late = g.op("Slice", [h, ints(g, f"a{n}", 3), ints(g, f"z{n}", 16), ints(g, f"ax{n}", 1)], f"late{n}")
        soon = g.op("Slice", [h, ints(g, f"o{n}", 0), ints(g, f"b{n}", 3), f"ax{n}"], f"soon{n}")
        h = g.op("Concat", [late, soon], f"rolled{n}", axis=1)
        q, key, v = (g.dense(h, 32, 32, f"{one}{n}") for one in "qkv")
        raw = g.op("MatMul", [q, g.op("Transpose", [key], f"kt{n}", perm=[0, 2, 1])], f"raw{n}")
        score = g.op("Mul", [raw, k(g, f"d{n}", 32**-0.5)], f"score{n}")
        at = np.abs(np.arange(16)[:, None] - np.arange(16))
        bias = g.op("Gather", [k(g, f"table{n}", g.random.normal(size=16) * 0.3), g.weight(f"at{n}", at)], f"bias{n}")
        score = g.op("Add", [g.op("Add", [score, bias], f"biased{n}"), k(g, f"mask{n}", np.where(at > 9, -100.0, 0))],
                     f"masked{n}")  # fmt: skip
        mixed = g.op("MatMul", [g.op("Softmax", [score], f"p{n}", axis=-1), v], f"mixed{n}")
        x = g.op("Add", [x, g.dense(mixed, 32, 32, f"out{n}")], f"x{n}")
        x = g.mlp(x, 32, f"m{n}")
    return [g.dense(g.op("ReduceMean", [x], "mean", axes=[1], keepdims=0), 32, 6, "y")]


@unseen("healthy", "ort_fp16 ort_fp16_sim")
def images_beside_texts(g: Graph) -> Sequence[str]:
    """CLIP: unit vectors, a scale of a hundred, a softmax."""
    a = g.op("LpNormalization", [g.dense(g.norm(tokens(g), 32, "n1"), 32, 16, "a")], "u", axis=-1, p=2)
    z = g.input("z", g.random.normal(size=(2, 8, 32)).astype(np.float32))
    b = g.op("LpNormalization", [g.dense(g.norm(z, 32, "n2"), 32, 16, "b")], "v", axis=-1, p=2)
    cosine = g.op("MatMul", [a, g.op("Transpose", [b], "vt", perm=[0, 2, 1])], "cosine")
    scale = g.op("Exp", [k(g, "logit_scale", np.log(100))], "scale")
    return [g.op("Mul", [cosine, scale], "logits"), g.op("Softmax", ["logits"], "y", axis=-1)]


@unseen("healthy", "ort_opt ort_int8 ort_fp16_sim")
def channel_of_no_variance_and_no_gain(g: Graph) -> Sequence[str]:
    """A batch norm whose dead channel has a variance of 1e-10 and a gain of a hundred-thousandth."""
    x = g.conv(image(g), 3, 8, "c1")
    g.weights["c1.w"][5] *= 1e-6
    var, gain = np.full(8, 1.1), g.random.uniform(0.5, 1.5, 8)
    var[5], gain[5] = 1e-10, 1e-5
    x = g.op("BatchNormalization", [x, k(g, "s", gain), k(g, "b", g.random.normal(size=8)), k(g, "m", np.zeros(8)),
                                    k(g, "v", var)], "bn", epsilon=1e-5)  # fmt: skip
    return [g.conv(g.op("Relu", [x], "r"), 8, 4, "y")]


@unseen("healthy", "ort_int8")
def zeros_and_ones_in_int8(g: Graph) -> Sequence[str]:
    """Masks are held exactly; a one-hot picks a row of a table by a product."""
    x = g.norm(tokens(g), 32, "n")
    mask = g.op("Cast", [g.op("Greater", [x, k(g, "least", 0.3)], "over")], "mask", to=1)
    kept = g.op("Mul", [g.dense(x, 32, 32, "a"), mask], "kept")
    hot = k(g, "hot", np.eye(8)[g.random.integers(0, 8, size=8)])
    rows = g.op("MatMul", [hot, k(g, "table", g.random.normal(size=(8, 32)))], "rows")
    return [g.dense(g.op("Add", [kept, rows], "both"), 32, 4, "y")]


def late(g: Graph) -> Sequence[str]:
    """Opset 23's own operators: a root mean square, a rotation, an attention with a cap, and a gate."""
    g.opset = 23
    x = tokens(g, 32, 8)
    n = g.op("RMSNormalization", [x, k(g, "n.g", g.random.uniform(0.5, 1.5, 32))], "n", axis=-1, epsilon=1e-6)
    q, key, v = (g.dense(n, 32, 32, one) for one in "qkv")
    angle = np.outer(np.arange(8), 10000.0 ** -(np.arange(4) / 4))[None].repeat(2, 0)
    cos, sin = k(g, "cos", np.cos(angle)), k(g, "sin", np.sin(angle))
    q, key = (g.op("RotaryEmbedding", [one, cos, sin], f"{one}_r", num_heads=4) for one in (q, key))
    mixed = g.op("Attention", [q, key, v], "mixed", q_num_heads=4, kv_num_heads=4, is_causal=1, softcap=30.0)
    h = g.op("Add", [x, g.dense(mixed, 32, 32, "o")], "h")
    n = g.op("RMSNormalization", [h, k(g, "n2.g", np.ones(32))], "n2", axis=-1, epsilon=1e-6)
    both = g.op("Mul", [silu(g, g.dense(n, 32, 64, "gate"), "act"), g.dense(n, 32, 64, "up")], "gu")
    return [g.dense(g.op("Add", [h, g.dense(both, 64, 32, "down")], "l"), 32, 8, "y")]


def new(model: Any) -> None:
    model.ir_version = 11


@unseen("healthy", "ort_fp16_sim ort_opt ort_int8", opset=23)
def operators_of_a_late_opset(g: Graph) -> Sequence[str]:
    return late(g)


edited(new)


@unseen("healthy", HALF)
def seconds_since_1970_as_integers(g: Graph) -> Sequence[str]:
    """Times of 1.7e9 are subtracted as int64, and only then become floats."""
    t = 1_700_000_000 + g.random.integers(0, 3600, size=(2, 8))
    first = g.op("ReduceMin", [g.input("t", t)], "first", axes=[1])
    age = g.op("Cast", [g.op("Sub", ["t", first], "ticks")], "age", to=1)
    hours = g.op("Unsqueeze", [g.op("Mul", [age, k(g, "h", 1 / 3600)], "hours"), ints(g, "last", -1)], "column")
    x = g.op("Add", [tokens(g, 16), g.op("Mul", [hours, k(g, "w", g.random.normal(size=16))], "place")], "placed")
    return [g.dense(g.op("Tanh", [x], "th"), 16, 4, "y")]
