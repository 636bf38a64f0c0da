"""Further planted models whose smallest kept set is found by brute force: ``python tests/planted/kept_further.py``.

Operators and shapes that the search was not made on: norms by hand, recurrent layers, masks, sums, powers, several
outputs, and engines in place of simulations. What a set gives is asked of the engine itself, and what is handed over of
a stock onnxruntime session. Most of what overflows in FP16 does not in ort_fp16 on a CPU, which computes in float32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnxruntime
from kept_simulation import relative_error

from planted.kept import Case, Least, least_of, show, units_of
from planted.onnx_faults import Array, Graph, image, tokens
from precision_debug import registry
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.search.fix import Fix

__all__ = ["CASES", "Engine", "smaller_sets", "stock_error"]

Build = Callable[[Graph], Sequence[str]]
CASES: list[Case] = []
_MOST = 4000


def case(kind: str, modes: str, limit: float | str = 2e-2, opset: int = 17) -> Callable[[Build], Build]:
    """Register a function of (Graph) that builds and returns the outputs, once for each mode.

    kind: "overflow", "cancellation", "other" or "clean".
    """

    def register(build: Build) -> Build:
        for mode in modes.split():
            name = f"{build.__name__}_{mode.removeprefix('ort_')}"

            def make(folder: Path, name: str = name) -> tuple[Path, dict[str, Any]]:
                graph = Graph(seed=len(build.__name__) + 40, opset=opset)
                outputs = build(graph)
                return graph.save(folder / f"{name}.onnx", outputs), graph.feeds

            CASES.append(Case(name=name, kind=kind, mode=mode, make=make, limit=limit))
        return build

    return register


def k(g: Graph, name: str, value: Any) -> str:
    return g.weight(name, np.asarray(value, np.float32))


def ints(g: Graph, name: str, *values: int) -> str:
    return g.weight(name, np.array(values, np.int64))


def body(g: Graph, x: str, size: int, name: str, layers: int = 1) -> str:
    """A few healthy layers."""
    for layer in range(layers):
        x = g.op("Tanh", [g.dense(x, size, size, f"{name}{layer}", scale=1.2)], f"{name}{layer}_t")
    return x


# --- overflow


@case("overflow", "ort_fp16_sim")
def rms_norm(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [body(g, tokens(g, 16, 4), 16, "a"), k(g, "loud", 700)], "wide")
    square = g.op("Pow", [x, k(g, "two", 2)], "square")
    mean = g.op("ReduceMean", [square], "mean", axes=[-1])
    root = g.op("Sqrt", [g.op("Add", [mean, k(g, "eps", 1e-6)], "var")], "root")
    x = g.op("Mul", [x, g.op("Reciprocal", [root], "inverse")], "normed")
    return [g.dense(x, 16, 8, "y")]


@case("overflow", "ort_fp16_sim")
def group_norm(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [g.conv(image(g), 3, 8, "c1"), k(g, "loud", 500)], "wide")
    rows = g.op("Reshape", [x, ints(g, "rows", 2, 4, 512)], "grouped")
    mean = g.op("ReduceMean", [rows], "mean", axes=[-1])
    middle = g.op("Sub", [rows, mean], "middle")
    square = g.op("Mul", [middle, middle], "square")
    var = g.op("ReduceMean", [square], "var", axes=[-1])
    x = g.op("Div", [middle, g.op("Sqrt", [var], "root")], "normed")
    return [g.conv(g.op("Reshape", [x, ints(g, "back", 2, 8, 16, 16)], "shaped"), 8, 4, "y")]


@case("overflow", "ort_fp16_sim")
def sum_of_many(g: Graph) -> Sequence[str]:
    x = g.op("Abs", [g.input("x", (g.random.normal(size=(4, 4096)) * 40).astype(np.float32))], "abs")
    total = g.op("ReduceSum", [x, ints(g, "axis", -1)], "total", keepdims=1)
    share = g.op("Div", [x, total], "share")
    x = g.op("Mul", [share, k(g, "many", 100)], "scaled")
    return [g.dense(x, 4096, 8, "y")]


@case("overflow", "ort_fp16_sim")
def log_sum_exp(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [body(g, tokens(g, 16, 4), 16, "a"), k(g, "loud", 14)], "logits")
    e = g.op("Exp", [x], "exp")
    total = g.op("ReduceSum", [e, ints(g, "axis", -1)], "total", keepdims=1)
    return [g.dense(g.op("Sub", [x, g.op("Log", [total], "log")], "scores"), 16, 8, "y")]


@case("overflow", "ort_fp16_sim")
def softplus_by_hand(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [body(g, tokens(g, 16, 4), 16, "a"), k(g, "loud", 15)], "logits")
    plus = g.op("Add", [g.op("Exp", [x], "exp"), k(g, "one", 1)], "plus")
    return [g.dense(g.op("Log", [plus], "soft"), 16, 8, "y")]


@case("overflow", "ort_fp16_sim")
def fourth_power(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [body(g, tokens(g, 16, 4), 16, "a"), k(g, "loud", 30)], "wide")
    mean = g.op("ReduceMean", [g.op("Pow", [x, k(g, "four", 4)], "fourth")], "mean", axes=[-1])
    return [g.dense(g.op("Div", [x, g.op("Pow", [mean, k(g, "quarter", 0.25)], "norm")], "scaled"), 16, 8, "y")]


@case("overflow", "ort_fp16_sim ort_fp16")
def depthwise(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    w = g.random.normal(size=(8, 1, 3, 3)) * 3e4
    deep = g.op("Conv", [x, g.weight("d.w", w)], "deep", group=8, pads=[1, 1, 1, 1])
    back = g.op("Mul", [deep, k(g, "small", 3e-5)], "back")
    return [g.conv(g.op("Add", [x, back], "skip"), 8, 4, "y")]


@case("overflow", "ort_fp16_sim")
def running_sum(g: Graph) -> Sequence[str]:
    x = g.input("x", (g.random.random((2, 2000, 4)) * 90).astype(np.float32))
    total = g.op("CumSum", [x, g.weight("axis", np.int64(1))], "total")
    return [g.dense(g.op("Mul", [total, k(g, "small", 1e-5)], "scaled"), 4, 4, "y")]


@case("overflow", "ort_fp16_sim")
def temperature(g: Graph) -> Sequence[str]:
    q, v = body(g, tokens(g, 16, 4), 16, "q"), body(g, "x", 16, "v")
    raw = g.op("MatMul", [q, g.op("Transpose", [v], "vt", perm=[0, 2, 1])], "raw")
    hot = g.op("Mul", [raw, k(g, "beta", 3e4)], "hot")
    prob = g.op("Softmax", [g.op("Div", [hot, k(g, "cool", 3e4)], "cooled")], "prob", axis=-1)
    return [g.dense(g.op("MatMul", [prob, v], "mixed"), 16, 8, "y")]


@case("overflow", "ort_fp16_sim ort_fp16")
def two_branches_two_outputs(g: Graph) -> Sequence[str]:
    x = body(g, tokens(g, 16, 4), 16, "a")
    one = g.op("Mul", [g.op("Mul", [x, k(g, "big", 4e5)], "blown"), k(g, "little", 2e-6)], "shrunk")
    two = g.op("Sub", [g.op("Add", [x, k(g, "far", 3000)], "moved"), k(g, "away", 3000)], "returned")
    return [g.dense(one, 16, 8, "y"), g.dense(two, 16, 8, "z")]


@case("overflow", "ort_fp16_sim ort_fp16")
def two_overflows_in_a_sum(g: Graph) -> Sequence[str]:
    x = body(g, tokens(g, 16, 4), 16, "a")
    one = g.op("Mul", [g.op("Mul", [x, k(g, "big", 4e5)], "blown"), k(g, "little", 2e-6)], "shrunk")
    two = g.op("Sqrt", [g.op("Mul", [g.op("Mul", [x, k(g, "loud", 900)], "wide"), "wide"], "square")], "length")
    both = g.op("Add", [one, g.op("Mul", [two, k(g, "soft", 1e-3)], "softened")], "both")
    return [g.dense(both, 16, 8, "y")]


@case("overflow", "ort_fp16_sim")
def recurrent_behind_a_large_scale(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.normal(size=(5, 2, 8)).astype(np.float32))
    wide = g.op("Mul", [x, k(g, "loud", 1e5)], "wide")
    w, r = g.random.normal(size=(1, 32, 8)) * 1e-5, g.random.normal(size=(1, 32, 8)) * 0.3
    g.op("LSTM", [wide, g.weight("w", w), g.weight("r", r)], "l", hidden_size=8)
    flat = g.op("Squeeze", ["l", ints(g, "ax", 1)], "flat")
    return [g.dense(flat, 8, 4, "y")]


@case("overflow", "ort_fp16_sim")
def gated_recurrent_sum(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.normal(size=(5, 2, 8)).astype(np.float32))
    w, r = g.random.normal(size=(1, 24, 8)) * 0.3, g.random.normal(size=(1, 24, 8)) * 0.3
    g.op("GRU", [x, g.weight("w", w), g.weight("r", r)], "gru", hidden_size=8, linear_before_reset=1)
    loud = g.op("Mul", ["gru", k(g, "loud", 9e5)], "loud_states")
    quiet = g.op("Mul", [loud, k(g, "soft", 1e-6)], "quiet")
    flat = g.op("Squeeze", [quiet, ints(g, "ax", 1)], "flat")
    return [g.dense(flat, 8, 4, "y")]


@case("other", "ort_fp16_sim")
def division_by_what_vanishes(g: Graph) -> Sequence[str]:
    x = body(g, tokens(g, 16, 4), 16, "a")
    tiny = g.op("Mul", [x, k(g, "small", 1e-9)], "tiny")
    return [g.dense(g.op("Div", [tiny, k(g, "also", 1e-9)], "again"), 16, 8, "y")]


@case("overflow", "ort_fp16_sim")
def wholly_masked(g: Graph) -> Sequence[str]:
    keep = np.zeros((2, 4, 4), np.float32)
    keep[1, 2] = -1e6
    x = tokens(g, 16, 4)
    score = g.op("MatMul", [x, g.op("Transpose", ["x"], "t", perm=[0, 2, 1])], "raw")
    mask = g.op("Add", [g.input("m", keep), k(g, "zero", [[[0.0]]])], "mask")
    prob = g.op("Softmax", [g.op("Add", [score, mask], "masked")], "prob", axis=-1)
    return [g.dense(g.op("MatMul", [prob, "x"], "mixed"), 16, 8, "y")]


@case("overflow", "ort_fp16_sim ort_fp16")
def folded_norm_of_large_variance(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1", scale=2e4)], "r1")
    for name, value in (("s", 1.0), ("b", 0.1), ("m", 0.0), ("v", 4e8)):
        g.weight(name, np.full(8, value, np.float32))
    x = g.op("BatchNormalization", [g.op("Conv", [x, g.weight("p.w", g.random.normal(size=(8, 8, 1, 1)))], "point"),
                                    "s", "b", "m", "v"], "n")  # fmt: skip
    return [g.conv(g.op("Relu", [x], "r2"), 8, 4, "y")]


# --- cancellation


@case("cancellation", "ort_fp16_sim ort_bf16_sim", limit=5e-2)
def residual_chain(g: Graph) -> Sequence[str]:
    x = tokens(g, 16, 4)
    wide = g.op("Mul", [x, k(g, "loud", 2000)], "wide")
    sum1 = g.op("Add", [wide, body(g, x, 16, "f")], "sum1")
    sum2 = g.op("Add", [sum1, g.op("Tanh", [x], "t")], "sum2")
    return [g.dense(g.op("Sub", [sum2, wide], "rest"), 16, 8, "y")]


@case("cancellation", "ort_bf16_sim", limit=5e-2)
def variance_by_squares(g: Graph) -> Sequence[str]:
    x = g.op("Add", [body(g, tokens(g, 16, 4), 16, "a"), k(g, "o", 30)], "off")
    mean = g.op("ReduceMean", [x], "mean", axes=[-1])
    of_squares = g.op("ReduceMean", [g.op("Mul", [x, x], "square")], "of_squares", axes=[-1])
    var = g.op("Sub", [of_squares, g.op("Mul", [mean, mean], "squared")], "var")
    return [g.op("Mul", [g.op("Sigmoid", [var], "gate"), k(g, "two", 2)], "y")]


@case("cancellation", "ort_fp16_sim ort_bf16_sim", limit=5e-2)
def layer_norm_of_an_offset(g: Graph) -> Sequence[str]:
    x = g.op("Add", [body(g, tokens(g, 16, 4), 16, "a"), k(g, "o", 2500)], "off")
    return [g.dense(g.norm(x, 16, "n"), 16, 8, "y")]


@case("cancellation", "ort_fp16_sim")
def two_independent_offsets(g: Graph) -> Sequence[str]:
    x = tokens(g, 16, 4)
    parts = []
    for name in ("left", "right"):
        moved = g.op("Add", [body(g, x, 16, name), k(g, f"{name}.c", 3000)], f"{name}_moved")
        parts.append(g.op("Sub", [moved, k(g, f"{name}.d", 3000)], f"{name}_back"))
    return [g.dense(g.op("Concat", parts, "both", axis=-1), 32, 8, "y")]


@case("cancellation", "ort_fp16_sim")
def offset_of_a_recurrent_layer(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.normal(size=(5, 2, 8)).astype(np.float32))
    off = g.op("Add", [x, k(g, "o", 1000)], "off")
    w, r = g.random.normal(size=(1, 24, 8)) * 0.3, g.random.normal(size=(1, 24, 8)) * 0.3
    w -= w.mean(axis=-1, keepdims=True)
    w = np.round(w * 512) / 512
    w[..., -1] -= w.sum(axis=-1)
    g.op("GRU", [off, g.weight("w", w), g.weight("r", r)], "gru", hidden_size=8, linear_before_reset=1)
    return [g.dense(g.op("Squeeze", ["gru", ints(g, "ax", 1)], "flat"), 8, 4, "y")]


@case("cancellation", "ort_bf16_sim", limit=5e-2)
def angle_of_a_position(g: Graph) -> Sequence[str]:
    position = g.input("x", (np.arange(600, 2000, 7, dtype=np.float32) + 0.5).reshape(1, -1, 1))
    angle = g.op("Mul", [position, g.weight("freq", (2.0 ** -np.arange(8)).astype(np.float32))], "angle")
    both = g.op("Concat", [g.op("Sin", [angle], "sin"), g.op("Cos", [angle], "cos")], "both", axis=-1)
    return [g.dense(both, 16, 8, "y")]


# --- neither


@case("other", "ort_fp16_sim")
def pair_that_undoes_itself(g: Graph) -> Sequence[str]:
    """Two roundings that cancel beside one offset: with one of both kept it is worse than with none."""
    x = body(g, tokens(g, 16, 4), 16, "a")
    moved = g.op("Sub", [g.op("Add", [x, k(g, "c", 3000)], "moved"), k(g, "d", 3000)], "returned")
    left = g.op("Mul", [moved, k(g, "seven", 7.013)], "left")
    right = g.op("Mul", [moved, k(g, "also", 7.013)], "right")
    more = g.op("Mul", [g.op("Sub", [left, right], "gap"), k(g, "much", 40)], "more")
    return [g.dense(g.op("Add", [moved, more], "sum"), 16, 8, "y")]


@case("other", "ort_fp16_sim")
def weight_of_an_embedding(g: Graph) -> Sequence[str]:
    table = g.random.normal(size=(20, 16)).astype(np.float32) * 3e-8
    ids = g.input("ids", np.array([[1, 7, 3, 4], [5, 6, 7, 0]]))
    rows = g.op("Gather", [g.weight("table", table), ids], "rows")
    return [g.dense(g.op("Mul", [rows, k(g, "up", 3e7)], "loud"), 16, 8, "y")]


# --- int8


def _wide_channels(g: Graph, name: str, size: int, hidden: int, places: Sequence[int]) -> None:
    """Two channels of one hidden layer that are 300 times the others, and cancel behind it."""
    wide, back = g.weights[f"{name}_up.w"], g.weights[f"{name}_down.w"]
    one, two = places
    wide[:, one] *= 300
    wide[:, two], g.weights[f"{name}_up.b"][two] = wide[:, one], g.weights[f"{name}_up.b"][one]
    back[one] *= 3
    back[two] = -back[one]


def _blocks(g: Graph, wide: Sequence[str], names: Sequence[str] = ("a", "b", "c")) -> str:
    x = tokens(g, 24, 8)
    for name in names:
        x = g.mlp(x, 24, name)
        if name in wide:
            _wide_channels(g, name, 24, 48, (5, 6))
    return g.dense(x, 24, 8, "y")


@case("other", "ort_int8 ort_int8_dynamic", limit="50%")
def outliers_of_one_block(g: Graph) -> Sequence[str]:
    return [_blocks(g, ("b",))]


@case("other", "ort_int8 ort_int8_dynamic", limit="50%")
def outliers_of_two_blocks(g: Graph) -> Sequence[str]:
    return [_blocks(g, ("a", "c"))]


@case("other", "ort_int8", limit="50%")
def concat_of_two_ranges(g: Graph) -> Sequence[str]:
    small = g.conv(image(g), 3, 8, "c1")
    big = g.op("Mul", [g.conv("x", 3, 8, "c2"), k(g, "k", 500)], "big")
    x = g.conv(g.op("Concat", [small, big], "cat", axis=1), 16, 4, "head")
    g.weights["head.w"][:, 8:] *= 1e-4
    return [g.conv(g.op("Relu", [x], "r"), 4, 4, "y")]


@case("other", "ort_int8", limit="50%")
def squeeze_and_excite(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    pooled = g.op("GlobalAveragePool", [x], "pooled")
    w1, w2 = g.random.normal(size=(4, 8, 1, 1)), g.random.normal(size=(8, 4, 1, 1)) * 40
    gate = g.op("Conv", [g.op("Relu", [g.op("Conv", [pooled, g.weight("w1", w1)], "s1")], "s2"), g.weight("w2", w2)],
                "s3")  # fmt: skip
    x = g.op("Mul", [x, g.op("HardSigmoid", [g.op("Mul", [gate, k(g, "tenth", 0.1)], "s4")], "s5")], "gated")
    return [g.conv(x, 8, 4, "y")]


# --- clean


CLEAN = "ort_fp16_sim ort_fp16"


@case("clean", CLEAN)
def gelu_of_large_numbers(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g, 16, 4), 16, 32, "up", scale=45.0)
    cube = g.op("Pow", [x, k(g, "three", 3)], "cube")
    inner = g.op("Add", [x, g.op("Mul", [cube, k(g, "c", 0.044715)], "cubic")], "inner")
    act = g.op("Tanh", [g.op("Mul", [inner, k(g, "root", 0.7978845)], "scaled")], "t")
    gelu = g.op("Mul", [g.op("Mul", [x, k(g, "half", 0.5)], "h"), g.op("Add", [act, k(g, "one", 1)], "plus")], "gelu")
    return [g.dense(gelu, 32, 8, "y")]


@case("clean", f"{CLEAN} ort_bf16_sim", limit=5e-2)
def masked_attention(g: Graph) -> Sequence[str]:
    keep = np.array([[[0, 0, 0, 0, 0, 0, -1e4, -1e4]]] * 2, np.float32)
    mask = g.op("Add", [g.input("m", keep), k(g, "zero", [[[0.0]] * 8])], "mask")
    return [g.norm(g.attention(tokens(g), 32, "a", mask), 32, "y")]


@case("clean", f"{CLEAN} ort_bf16_sim", limit=5e-2)
def recurrent(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.normal(size=(6, 2, 8)).astype(np.float32))
    w, r = g.random.normal(size=(1, 24, 8)) * 0.3, g.random.normal(size=(1, 24, 8)) * 0.3
    g.op("GRU", [x, g.weight("w", w), g.weight("r", r)], "gru", hidden_size=8)
    return [g.op("Mul", ["gru", k(g, "two", 2)], "y")]


# --- by brute force


class Engine:
    """What a kept set gives in a run mode: its error against a stock float32 session."""

    def __init__(self, path: Path, feeds: dict[str, Array], mode: str, folder: Path) -> None:
        self.files, self.feeds, self.folder = ModelFiles(model_file=str(path)), feeds, folder
        self.exact = _stock(path, feeds)
        self.backend, _ = registry.find(self.files, mode)
        self.spec = SessionSpec(model=self.files, mode=mode, work_dir=str(folder))
        keep: Any = self.backend
        self.keep = keep.keep(self.spec)
        self.known: dict[frozenset[str], float] = {}

    def error(self, keys: Sequence[str]) -> float:
        """Relative L2 of the worst output; inf where it is not finite."""
        chosen = frozenset(keys)
        if chosen not in self.known:
            session = self.backend.open(replace(self.spec, options=self.keep.options(sorted(chosen))), [self.feeds])
            found = {name: np.array(value) for name, value in session.run(self.feeds).items()}
            session.close()
            self.known[chosen] = relative_error(found, self.exact)
        return self.known[chosen]


def _stock(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def stock_error(model: Path, source: Path, feeds: dict[str, Array]) -> float:
    """Of a model that was handed over, as a stock session runs it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    got = {name: value.astype(np.float32) if value.dtype == np.float16 else value
           for name, value in zip(names, session.run(None, feeds), strict=True)}  # fmt: skip
    return relative_error(got, _stock(source, feeds))


def smaller_sets(case: Case, fix: Fix, path: Path, feeds: dict[str, Any], folder: Path) -> Least:
    """``least_of``, in the run mode itself."""
    engine = Engine(path, feeds, case.mode, folder)
    wanted = float(case.limit) if not isinstance(case.limit, str) else float(case.limit[:-1]) / 100 * engine.error(())
    return least_of(units_of(path, case.mode), fix, lambda kept: engine.error(sorted(kept)), wanted, _MOST)


def handed(fix: Fix, path: Path, feeds: dict[str, Any]) -> tuple[bool, str]:
    """Whether everything that was handed over was verified, and what a stock session makes of the models."""
    models = [item for item in fix.artefacts if item.path.endswith(".onnx")]
    told = [f"{stock_error(Path(item.path), path, feeds):.3g}" for item in models]
    verified = all(item.verified is not False for item in fix.artefacts)
    return verified, f"handed over {' '.join(told)}" if verified else "NOT VERIFIED"


if __name__ == "__main__":
    raise SystemExit(show(CASES, sys.argv[1:], smaller_sets, handed))
