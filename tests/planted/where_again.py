"""Twelve further cases of where it hurts: slices (3), metrics (2), integers (2), an input that did not calibrate, an
island of a narrow type, work cut differently, a permutation and a decision; three are healthy. Labelled before the tool
was run on any; what a docstring states was measured without it (``python tests/planted/where_again.py``)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.eleventh_torch import names
from planted.onnx_faults import Array, Graph, tokens
from planted.onnx_further import ints, k
from planted.torch_faults import Net
from planted.twelfth.case import COARSE, DIFFER, Build, Thread, labelled, one_file, two_files

CASES: list[Thread] = []


def _padded(label: Sequence[str]) -> tuple[str, str, str, str]:
    kind, mode, who, why = (*label, "", "")[:4]
    return kind, mode, who, why


def case(*label: str, **more: Any) -> Callable[[Build], Build]:
    """One file in a mode."""

    def register(build: Build) -> Build:
        CASES.append(labelled(build, "", *_padded(label), make=one_file(build), **more))
        return build

    return register


def pair(target: Build, *label: str, **more: Any) -> Callable[[Build], Build]:
    """The function builds the baseline, ``target`` what was made of it."""

    def register(build: Build) -> Build:
        CASES.append(labelled(build, "", *_padded(label), make=two_files(build, target), baseline="ort_fp32", **more))
        return build

    return register


def many(label: Sequence[str], samples: Callable[[Any], list[Array]], options: Sequence[str] = (), metric: str = "",
         **more: Any) -> Callable[[Build], Build]:  # fmt: skip
    """One file on several samples of ``x``; metric: the source of a function, judged against the baseline's choices."""

    def register(build: Build) -> Build:
        words = [*options]

        def make(folder: Path) -> tuple[Path, None, None]:
            xs = samples(np.random.default_rng(451))
            g = Graph(seed=1212)
            g.input("x", xs[0])
            path = g.save(folder / f"{build.__name__}.onnx", build(g))
            (folder / "in").mkdir(exist_ok=True)
            for at, x in enumerate(xs):
                np.savez(folder / "in" / f"{at:03d}.npz", x=x)
            words[:] = ["--inputs", str(folder / "in"), *options]
            if metric:
                (folder / "mine.py").write_text(metric)
                np.save(folder / "labels.npy", np.stack([_label(build, _stock(path, {"x": x})) for x in xs]))
                words[:] += ["--labels", str(folder / "labels.npy"), "--metric", f"{folder}/mine.py:mine"]
            return path, None, None

        CASES.append(labelled(build, "", *_padded(label), make=make, options=words, **more))
        return build

    return register


# --- slices


@case("slices", "ort_int8", "y", f"{COARSE} packed constant_scale underflow", facts=["lost"],
      extra="y mel pitch voiced")  # fmt: skip
def mel_beside_a_pitch(g: Graph) -> Sequence[str]:
    """A vocoder's input joins 20 log-mel bands of about -4 to 4 with a pitch of 80 to 400 Hz along the last axis: one
    step of 1.6 leaves the bands little."""
    x = tokens(g, 32, 16)
    mel = g.dense(g.mlp(x, 32, "m"), 32, 20, "mel", scale=0.5)
    voiced = g.op("Sigmoid", [g.dense(x, 32, 1, "p", scale=2)], "voiced")
    pitch = g.op("Add", [g.op("Mul", [voiced, k(g, "range", 320)], "hertz"), k(g, "low", 80)], "pitch")
    return [g.op("Concat", [mel, pitch], "y", axis=2)]


@case("slices", "ort_bf16_sim", "clock y", f"{COARSE} cancellation absorbed stepped packed constant_rounded",
      facts=["lost|step|multiple"], extra="clock y shift")  # fmt: skip
def seconds_of_the_day_beside_a_position(g: Graph) -> Sequence[str]:
    """An event's time of day, 43,200 s and up to a minute more or less, stands beside a position of about 1: bfloat16
    knows multiples of 256 there, so that all times are the same."""
    x = g.norm(g.input("x", g.random.normal(size=(48, 24)).astype(np.float32)), 24, "n")
    shift = g.op("Mul", [g.op("Tanh", [g.dense(x, 24, 1, "s")], "t"), k(g, "minute", 60)], "shift")
    clock = g.op("Add", [shift, k(g, "noon", 43200)], "clock")
    return [g.op("Concat", [g.dense(x, 24, 3, "place"), clock], "y", axis=1)]


@case("healthy", "ort_fp16_sim")
def tails_of_a_steep_softmax(g: Graph) -> Sequence[str]:
    """Shares of 256 words from logits of up to 30: many are below 1e-8 and become 0 in float16; all that matters is as
    it was, 0.002."""
    x = g.norm(tokens(g, 32, 12), 32, "n")
    return [g.op("Softmax", [g.dense(x, 32, 256, "logits", scale=8)], "y", axis=-1)]


# --- a user's metric

AUC = """def mine(outputs, label):
    score = outputs["y"].ravel()
    one, other = score[label > 0], score[label == 0]
    return float(((one[:, None] > other[None]) + 0.5 * (one[:, None] == other[None])).mean())
"""
ACCURACY = """def mine(outputs, label):
    return float((outputs["y"].argmax(-1) == label).mean())
"""


def _label(build: Build, outputs: Sequence[Array]) -> Array:
    y = np.asarray(outputs[0])
    return (y > np.median(y)).ravel().astype(np.int64) if build.__name__.startswith("auc") else y.argmax(-1)


@many(["metric", "ort_bf16_sim", "sure y logit", f"{COARSE} cancellation absorbed stepped metric_lost"],
      lambda r: [r.normal(size=(64, 16)).astype(np.float32) for _ in range(6)], ["--metric_drop", "0.05"], AUC,
      anyone=True, facts=["mine"], extra="sure y logit logit_mm h h_mm t")  # fmt: skip
def auc_of_a_detector_that_is_always_sure(g: Graph) -> Sequence[str]:
    """A bias of 9 puts every score above 0.999, and the order among them is what the user asks for: in bfloat16 all are
    1, the area under the curve falls from 1 to 0.5 and the scores are off by 0.0001. 0.05 less is allowed."""
    t = g.op("Tanh", [g.dense("x", 16, 32, "h", scale=0.5)], "t")
    sure = g.op("Add", [g.dense(t, 32, 1, "logit", scale=0.5), k(g, "prior", 9)], "sure")
    return [g.op("Sigmoid", [sure], "y")]


@many(["healthy", "ort_bf16_sim"], lambda r: [r.normal(size=(128, 24)).astype(np.float32) for _ in range(6)],
      ["--metric_drop", "0.05"], ACCURACY)  # fmt: skip
def accuracy_that_a_few_close_calls_cost(g: Graph) -> Sequence[str]:
    """Ten classes: in bfloat16 some samples of 768 fall to the other side, about 1 %, of which the user allows 5."""
    return [g.dense(g.mlp(g.norm("x", 24, "n"), 24, "m"), 24, 10, "y")]


# --- integers


def _masked(kind: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x, length = tokens(g, 16, 12), g.input("length", np.array([7], np.int64))
        seen = g.op(kind, [ints(g, "places", *range(12)), length], "seen")
        count = g.op("ReduceSum", [g.op("Cast", [seen], "ones", to=TensorProto.INT64)], "count", keepdims=1)
        wide = g.op("Unsqueeze", [g.op("Cast", [seen], "kept", to=TensorProto.FLOAT), ints(g, "last", 1)], "wide")
        kept = g.op("Mul", [g.dense(x, 16, 16, "a"), wide], "masked")
        return [g.dense(kept, 16, 4, "y"), count]

    return build


@pair(_masked("LessOrEqual"), "integers", "ort_fp32", "seen", f"{DIFFER} unfound born",
      extra="seen ones count kept wide masked y y_mm")  # fmt: skip
def mask_that_sees_one_place_more(g: Graph) -> Sequence[str]:
    """An exporter made LessOrEqual of Less: one place of 12 too many is seen, the count is 8 in place of 7."""
    return _masked("Less")(g)


def _narrowed(kind: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        ids = g.op("Cast", [g.input("ids", g.random.integers(0, 30000, size=(4, 24)))], "narrow", to=kind)
        moved = g.op("Add", [ids, k_of(g, "first", 1000, kind)], "moved")
        back = g.op("Cast", [moved], "back", to=TensorProto.INT64)
        row = g.op("Mod", [back, ints(g, "rows", 512)], "row")
        return [g.dense(g.op("Gather", [k(g, "table", g.random.normal(size=(512, 16))), row], "e"), 16, 4, "y"), back]

    return build


def k_of(g: Graph, name: str, value: int, kind: int) -> str:
    return g.weight(name, np.array(value, np.int64 if kind == TensorProto.INT64 else np.int32))


@pair(_narrowed(TensorProto.INT32), "healthy", "ort_fp32")
def ids_that_fit_into_32_bits(g: Graph) -> Sequence[str]:
    """A converter holds ids of up to 31,000 in int32 and casts them back: the same to the bit."""
    return _narrowed(TensorProto.INT64)(g)


# --- an input that did not calibrate


@many(["unseen", "ort_int8", "x a_mm a r y_mm y", f"{COARSE} saturation range_inside inputs_differ"],
      lambda r: [(r.normal(size=(16, 40)) * (30 if at == 9 else 1)).astype(np.float32) for at in range(12)],
      ["--option", "config=session.x64quantprecision=1"], extra="x a_mm a r y_mm y", facts=["calibrat"])  # fmt: skip
def one_loud_day_after_the_calibration(g: Graph) -> Sequence[str]:
    """Twelve samples of which the tenth is 30 times as loud: the first six calibrate, so that it is cut off at a tenth
    of what it reaches and loses 0.9 of its output, and all others are off by about 0.02 (exact sums asked for)."""
    return [g.dense(g.op("Relu", [g.dense("x", 40, 64, "a")], "r"), 64, 10, "y")]


# --- PyTorch: an island, work cut differently


def _two_heads(island: bool, grown: float) -> Any:
    import torch

    def body(m: Any, x: Any) -> Any:
        x = torch.relu(m.stem(x))
        one = m.left(x.bfloat16()).float() if island else m.left(x)
        return torch.tanh(one), m.right(x)

    torch.manual_seed(72)
    net = Net(body, stem=torch.nn.Linear(24, 64), left=torch.nn.Linear(64, 8), right=torch.nn.Linear(64, 8))
    with torch.no_grad():
        net.right.weight[3] *= grown
    if island:
        net.left.bfloat16()
    return net, torch.randn(32, 24)


def two_heads_in_float32() -> Any:
    return _two_heads(False, 1)


def fault_of_the_head_beside_an_island() -> Any:
    """One head was put into bfloat16, as its maker says (0.002 to 0.004 there is expected); of the other one, in
    float32, a row of the weight is 1.005 times as large: 0.002, which float32 does not explain."""
    return _two_heads(True, 1.005)


def _normed(cut: bool) -> Any:
    import torch

    def body(m: Any, x: Any) -> Any:
        parts = x.chunk(2) if cut else (x,)
        return m.b(torch.relu(torch.cat([m.norm(m.a(one)) for one in parts])))

    torch.manual_seed(73)
    net = Net(body, a=torch.nn.Linear(24, 32), norm=torch.nn.BatchNorm1d(32), b=torch.nn.Linear(32, 4))
    net.norm.train()
    x = torch.randn(16, 24)
    x[8:] = 2 * x[8:] + 0.5
    return net, x


def norm_of_the_whole_batch() -> Any:
    return _normed(False)


def norm_of_two_micro_batches() -> Any:
    """A batch of 16 went through in two halves and a norm takes its statistics of each: 0.4 off at the output. After
    the first run: a forward pass puts it into evaluation mode, says so, and is inconclusive."""
    return _normed(True)


def _torch(build: Callable[[], Any], base: str, kind: str, who: str, why: str, **more: Any) -> None:
    def make(folder: Path) -> tuple[str, str, None]:
        file = folder / f"{build.__name__}_model.py"
        path = f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        file.write_text(f"{path}from planted.where_again import *  # noqa\n")
        return f"{file}:{build.__name__}", f"{file}:{base}", None

    CASES.append(labelled(build, "", kind, "torch_fp32", who, why, make=make, baseline="torch_fp32", **more))


_RIGHT = names("linear#2", "right/linear", "right/addmm", "addmm#2", "right") + " right"
_torch(fault_of_the_head_beside_an_island, "two_heads_in_float32", "type", _RIGHT, DIFFER, extra=_RIGHT)
_torch(norm_of_two_micro_batches, "norm_of_the_whole_batch", "cut", "", "", status=1, facts=["training mode"])


# --- a permutation


def _grid(turned: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.input("x", g.random.normal(size=(2, 6, 6, 6)).astype(np.float32))
        x = g.op("Relu", [g.conv(x, 6, 6, "c")], "r")
        perm = [0, 3, 1, 2] if turned else [0, 2, 3, 1]
        return [g.op("Transpose", [g.conv(x, 6, 6, "d")], "y", perm=perm)]

    return build


@pair(_grid(True), "permutation", "ort_fp32", "y", f"{DIFFER} unfound", extra="y d")
def grid_whose_axes_were_turned_the_other_way(g: Graph) -> Sequence[str]:
    """Channels, rows and columns are six each: the last Transpose of the target puts them into another order, every
    shape is the same, and the output is another (1.4)."""
    return _grid(False)(g)


# --- a decision


@case("decision", "ort_fp16_sim", "votes", f"{COARSE} cancellation absorbed flips stepped amplified constant_rounded",
      facts=["choice|winner|decision"], extra="votes winner y")  # fmt: skip
def winner_behind_a_common_count(g: Graph) -> Sequence[str]:
    """Scores of about 1 are added to a common count of 20,000 before the largest of 16 is chosen: float16 knows
    multiples of 16 there, so that most of 128 choices are others; without the count, none or one."""
    score = g.dense(g.norm(g.input("x", g.random.normal(size=(128, 24)).astype(np.float32)), 24, "n"), 24, 16, "score")
    votes = g.op("Add", [score, k(g, "count", 20000)], "votes")
    winner = g.op("ArgMax", [votes], "winner", axis=1, keepdims=0)
    rows = g.op("Gather", [k(g, "book", g.random.normal(size=(16, 16))), winner], "rows")
    return [g.op("Identity", [winner], "chosen"), g.dense(rows, 16, 4, "y")]


# --- what is true of them, without the tool


def _stock(path: Path, feeds: Any, level: int = 0) -> list[Any]:
    from planted.twelfth.measure import stock

    return list(stock(Path(path), feeds, level))


def main() -> int:
    import tempfile

    import ml_dtypes

    from planted.twelfth.measure import in_half, in_int8
    from planted.where_it_hurts import _apart

    for one in CASES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if one.mode == "torch_fp32":
                pairs = {"fault": two_heads_in_float32, "norm_": norm_of_the_whole_batch}
                (net, x), (base, same) = globals()[one.name](), pairs[one.name[:5]]()
                for got, want in zip(net(x), base(same), strict=True) if one.name[0] == "f" else [(net(x), base(same))]:
                    print(one.name, _apart(got.detach(), want.detach()))
                continue
            path, base, feeds = one.make(folder)
            files = sorted((folder / "in").glob("*.npz"))
            given = [dict(np.load(each)) for each in files] if feeds is None else [feeds]
            values: dict[str, Any] = {}
            for at, feeds in enumerate(given):
                want = _stock(Path(base or path), feeds)
                if base:
                    got = _stock(path, feeds)
                elif one.mode == "ort_int8":
                    if not at:  # the label: calibrated on the first, which is as the six are
                        in_int8(path, feeds)
                    got = _stock(path.with_suffix(".int8.onnx"), feeds)
                else:
                    got = in_half(path, feeds, kind=ml_dtypes.bfloat16 if "bf16" in one.mode else np.float16)
                print(one.name, *(_apart(g, w) for g, w in zip(got, want, strict=True)), sep="; ")
                if (folder / "mine.py").exists():
                    exec((folder / "mine.py").read_text(), values)
                    label = np.load(folder / "labels.npy")[at]
                    print("  metric", values["mine"]({"y": want[0]}, label), values["mine"]({"y": got[0]}, label))
                if one.kind == "slices":
                    axes = tuple(range(np.ndim(want[0]) - 1))
                    print("  columns", np.sqrt(((got[0] - want[0]) ** 2).mean(axes)) / want[0].std(axes))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
