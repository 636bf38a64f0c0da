"""Fresh planted models for the search, over four engines: ``python tests/planted/kept_fresh.py [WORD …]``.

Of each the smallest set is known by how it was made (``least``), and asked of the engine once more: smaller sets are
run there. Six were labelled otherwise before they were run: what is fused into one layer goes with it, Paddle keeps the
product beside a kept scale, of a loud input that fits into FP16 the norm alone has to stay, a wide channel in INT8
takes both products, and one convolution's input is rounded whatever is kept. A set in which what was not kept no longer
runs in the low precision does not count.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import paddle_models

from planted.onnx_faults import Graph, image, tokens
from precision_debug.errors import PrecisionDebugError
from precision_debug.events import FixFound
from precision_debug.products.search.search_run import search
from precision_debug.records import ModelFiles, RunSpec, Tolerance
from precision_debug.run.inputs import load_feeds
from precision_debug.run.journal import Journal, read_events
from precision_debug.run.plan import Opening, make_plan
from precision_debug.run.side import count_executed
from precision_debug.search.fix import Fix, SearchRequest
from precision_debug.search.offer import does_stay_low
from precision_debug.search.units import Units

__all__ = ["CASES", "Planted", "brute", "searched"]

NETS = Path(__file__).with_name("kept_fresh_nets.py")
_MOST = 150
"""Sets that the engine is asked for at most beyond those of the answer's own units."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """make: writes a model and its inputs (None: its own) into a folder. least: units of the smallest set that holds,
    0 where the engine ignores what is kept, so that none does."""

    name: str
    mode: str
    least: int
    make: Callable[[Path], tuple[str, dict[str, Any] | None]]
    limit: str = "0.02"


CASES: list[Planted] = []

Build = Callable[[Graph], Sequence[str]]


def onnx(mode: str, least: int, limit: str = "0.02") -> Callable[[Build], Build]:
    """Register a function of (Graph) that builds and returns the outputs."""

    def register(build: Build) -> Build:
        def make(folder: Path) -> tuple[str, dict[str, Any]]:
            graph = Graph(seed=60 + len(build.__name__))
            outputs = build(graph)
            return str(graph.save(folder / f"{build.__name__}.onnx", outputs)), graph.feeds

        CASES.append(Planted(name=build.__name__, mode=mode, least=least, make=make, limit=limit))
        return build

    return register


def k(g: Graph, name: str, value: Any) -> str:
    return g.weight(name, np.asarray(value, np.float32))


def layers(g: Graph, x: str, name: str, count: int = 1, size: int = 16) -> str:
    """Healthy ones."""
    for number in range(count):
        x = g.op("Tanh", [g.dense(x, size, size, f"{name}{number}", scale=1.2)], f"{name}{number}_t")
    return x


def shifted(g: Graph, x: str, name: str, by: float) -> str:
    moved = g.op("Add", [x, k(g, f"{name}.c", by)], f"{name}_moved")
    return g.op("Sub", [moved, k(g, f"{name}.d", by)], f"{name}_back")


def blown(g: Graph, x: str, name: str) -> str:
    big = g.op("Mul", [x, k(g, f"{name}.big", 4e5)], f"{name}_big")
    return g.op("Mul", [big, k(g, f"{name}.small", 2.5e-6)], f"{name}_small")


# --- ONNX Runtime


@onnx("ort_fp16_sim", 3)
def energies(g: Graph) -> Sequence[str]:
    """Squares of a loud signal and their sum are out of range; the logarithm brings them back."""
    loud = g.op("Mul", [layers(g, tokens(g, 16, 4), "a", 2), k(g, "loud", 700)], "loud_x")
    mean = g.op("ReduceMean", [g.op("Mul", [loud, loud], "square")], "mean", axes=[-1])
    level = g.op("Log", [mean], "level")
    both = g.op("Concat", [layers(g, "x", "b"), level], "both", axis=-1)
    return [g.dense(both, 17, 8, "y")]


@onnx("ort_fp16_sim", 4)
def blown_twice(g: Graph) -> Sequence[str]:
    x = blown(g, layers(g, tokens(g, 16, 4), "a"), "first")
    x = blown(g, layers(g, x, "b", 2), "second")
    return [g.dense(layers(g, x, "c"), 16, 8, "y")]


@onnx("ort_fp16_sim", 6)
def three_of_two_kinds(g: Graph) -> Sequence[str]:
    x = shifted(g, layers(g, tokens(g, 16, 4), "a"), "first", 3000)
    x = blown(g, layers(g, x, "b"), "second")
    x = shifted(g, layers(g, x, "c"), "third", 2500)
    return [g.dense(layers(g, x, "d"), 16, 8, "y")]


@onnx("ort_bf16_sim", 2, "0.05")
def one_branch_of_two(g: Graph) -> Sequence[str]:
    x = layers(g, tokens(g, 16, 4), "a")
    both = g.op("Add", [shifted(g, layers(g, x, "l", 2), "left", 400), layers(g, x, "r", 2)], "both")
    return [g.dense(both, 16, 8, "y")]


@onnx("ort_bf16_sim", 4, "0.05")
def shifted_twice(g: Graph) -> Sequence[str]:
    x = shifted(g, layers(g, tokens(g, 16, 4), "a"), "first", 300)
    x = shifted(g, layers(g, x, "b", 2), "second", 500)
    return [g.dense(layers(g, x, "c"), 16, 8, "y")]


def _wide(g: Graph, name: str) -> None:
    """Two channels of one hidden layer that are 200 times the others, and cancel behind it."""
    wide, back = g.weights[f"{name}_up.w"], g.weights[f"{name}_down.w"]
    wide[:, 3] *= 200
    wide[:, 9], g.weights[f"{name}_up.b"][9] = wide[:, 3], g.weights[f"{name}_up.b"][3]
    back[3] *= 3
    back[9] = -back[3]


@onnx("ort_int8_dynamic", 2, "40%")
def one_wide_block(g: Graph) -> Sequence[str]:
    x = tokens(g, 24, 8)
    for name in "abcd":
        x = g.mlp(x, 24, name)
    _wide(g, "c")
    return [g.dense(x, 24, 8, "y")]


# --- OpenVINO


@onnx("ov_bf16", 1, "0.05")
def far_and_back(g: Graph) -> Sequence[str]:
    x = layers(g, tokens(g, 16, 4), "a", 2)
    x = g.op("Softsign", [g.op("Add", [x, k(g, "c", 500)], "moved")], "soft")
    x = g.op("Mul", [g.op("Sub", [x, k(g, "d", 500 / 501)], "back"), k(g, "e", 2e5)], "loud")
    return [g.dense(layers(g, x, "b"), 16, 8, "y")]


@onnx("ov_bf16", 1, "0.05")
def sines_of_positions(g: Graph) -> Sequence[str]:
    position = g.input("x", (np.arange(256, 768, 16, dtype=np.float32)).reshape(1, -1, 1))
    angle = g.op("Mul", [position, g.weight("freq", (3.0 ** -np.arange(8)).astype(np.float32))], "angle")
    both = g.op("Concat", [g.op("Sin", [angle], "sin"), g.op("Cos", [angle], "cos")], "both", axis=-1)
    return [g.dense(layers(g, both, "a"), 16, 8, "y")]


@onnx("ov_bf16", 2, "0.05")
def a_large_mean_before_a_norm(g: Graph) -> Sequence[str]:
    x = g.op("Add", [layers(g, tokens(g, 16, 4), "a", 2), k(g, "c", 150)], "far")
    return [g.dense(layers(g, g.norm(x, 16, "near"), "b"), 16, 8, "y")]


@onnx("ov_bf16", 2, "0.05")
def one_far_head_of_two(g: Graph) -> Sequence[str]:
    x = layers(g, tokens(g, 16, 4), "a", 2)
    far = g.op("Add", [layers(g, x, "l"), k(g, "c", 250)], "far")
    return [g.dense(g.norm(far, 16, "near"), 16, 8, "y"), g.dense(layers(g, x, "r"), 16, 4, "z")]


@onnx("ov_bf16", 0, "0.05")
def convolution_of_a_far_image(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    x = g.op("Add", [x, k(g, "c", 400)], "far")
    mean = g.op("ReduceMean", [x], "mean", axes=[2, 3])
    return [g.conv(g.op("Sub", [x, mean], "near"), 8, 4, "y")]


# --- PyTorch


def torch(name: str, mode: str, least: int, limit: str = "0.02") -> None:
    made = (f"{NETS}:{name}", None)
    CASES.append(Planted(name=name, mode=mode, least=least, make=lambda _folder: made, limit=limit))


torch("two_offsets", "torch_bf16", 4, "0.05")
torch("loud_norm", "torch_fp16", 1)
torch("rotary", "torch_bf16", 1, "0.03")
torch("gated", "torch_fp16", 3)
torch("far_convolution", "torch_bf16", 2, "0.05")


# --- Paddle


def paddle(name: str, least: int, limit: str = "0.05") -> None:
    """A legacy program of ``kept_fresh_paddle``, whose operators go by type."""

    def make(folder: Path) -> tuple[str, dict[str, Any]]:
        feeds = {"x": np.random.default_rng(4).normal(size=(4, 16)).astype(np.float32)}
        return str(paddle_models.legacy(name, folder)), feeds

    CASES.append(Planted(name=name, mode="onednn_bf16", least=least, make=make, limit=limit))


paddle("scaled_away", 1)
paddle("norm_of_far_numbers", 2)
paddle("products_of_far_numbers", 1)
paddle("softmax_scaled_away", 1)


# --- searched, and by brute force


def searched(case: Planted, folder: Path) -> tuple[Fix, RunSpec]:
    """One search, in this process."""
    model, feeds = case.make(folder)
    inputs = ""
    if feeds is not None:
        inputs = str(folder / "inputs.npz")
        np.savez(inputs, **feeds)
    spec = RunSpec(
        model=ModelFiles(model_file=model), run_mode=case.mode, inputs=inputs, tolerance=Tolerance(given=False),
        options={"device": "cpu"} if case.mode.startswith("torch") else {},
    )  # fmt: skip
    asked = SearchRequest(limit=case.limit, folder=str(folder / "search"), artefacts=str(folder / "fix"))
    (folder / "work").mkdir()
    with Journal(folder / "journal.jsonl") as journal:
        search(spec, asked, journal, folder / "work")
    told = read_events(folder / "journal.jsonl")
    return next(event.fix for event in told if isinstance(event, FixFound)), spec


def brute(case: Planted, fix: Fix, spec: RunSpec, folder: Path) -> tuple[int, int, bool]:
    """Units of the smallest set that holds on the engine, how many sets were run for that, and whether it was all
    smaller ones; where none was found, all of one unit."""
    plan = make_plan(spec, work_dir=str(folder))
    assert plan.baseline is not None
    given = load_feeds(spec, plan, ())
    feeds, theirs = given.feeds[0], given.for_target().feeds
    keeper = plan.target.capabilities.keeper
    assert keeper is not None
    keep = keeper.keep(plan.target.spec)
    assert keep is not None
    session = plan.baseline.open(given.feeds)
    exact = {name: np.array(value, np.float64) for name, value in session.run(feeds).items()}
    units = Units(session.tensors, keep.key_of)
    session.close()

    def run(kept: Sequence[int]) -> tuple[float, Any]:
        keys = units.keys(kept)
        options = {**plan.target.spec.options, **keep.options(keys)} if keys else plan.target.spec.options
        opening: Opening = replace(plan.target, spec=replace(plan.target.spec, options=options))
        try:
            session = opening.open(theirs)
        except PrecisionDebugError:
            return float("inf"), None
        got = [np.array(value, np.float64) for value in session.run(theirs[0]).values()]
        ran = count_executed(opening, session)
        session.close()
        errors = [
            np.linalg.norm(mine - value) / np.linalg.norm(mine) for mine, value in zip(exact.values(), got, strict=True)
        ]
        worst = max(errors)
        return (float(worst) if np.isfinite(worst) else float("inf")), ran

    low, was = run(())
    limit = float(case.limit[:-1]) / 100 * low if case.limit.endswith("%") else float(case.limit)
    most = len(fix.kept) if fix.state == "found" else 2
    own = [number for number, unit in enumerate(units.units) if unit.key in {kept.key for kept in fix.kept}]
    inside = [several for size in range(1, most) for several in itertools.combinations(own, size)]
    smaller = (several for size in range(1, most) for several in itertools.combinations(range(len(units)), size))
    count, least = 0, most
    for several in dict.fromkeys([*inside, *itertools.islice(smaller, _MOST)]):
        count += 1
        error, ran = run(several)
        if error <= limit and does_stay_low(units, units.keys(several), was, ran):
            least = min(least, len(several))
    whole = next(smaller, None) is None
    return (0 if fix.state != "found" and least == most else least), count, whole


def main(words: Sequence[str]) -> int:
    """One line a case; 1 where a set is not the least, or took more than |S| + 5 evaluations. "fast" among the words:
    smaller sets are not asked for."""
    wrong = count = 0
    fast, words = "fast" in words, [word for word in words if word != "fast"]
    for case in CASES:
        if words and not any(word in f"{case.name} {case.mode}" for word in words):
            continue
        count += 1
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home)
            fix, spec = searched(case, folder)
            (folder / "brute").mkdir()
            least, tried, whole = case.least, 0, False
            if not fast:
                least, tried, whole = brute(case, fix, spec, folder / "brute")
        right = (fix.state == "found" if case.least else fix.state == "not possible") and least == len(fix.kept)
        quick = fix.evaluations <= len(fix.kept) + 5
        wrong += not (right and quick)
        said = "" if case.least else f"everything kept {fix.whole} low {fix.whole_still}"
        print(
            f"{'ok  ' if right and quick else 'LOOK'} {case.name:28s} {case.mode:17s} {fix.state:12s}"
            f" kept {len(fix.kept)}/{fix.units} planted {case.least} least {least}{'' if whole else '?'} ({tried} run)"
            f" evaluations {fix.evaluations} error {fix.before} -> {fix.after}"
            f" {' '.join(unit.key for unit in fix.kept)} {said}".rstrip(),
            flush=True,
        )
    print(f"{count} cases, {wrong} to look at")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
