"""How many sets each strategy runs, and how many nodes it keeps: ``python tests/benchmarks/bench_search.py [CASE…]``.

``int8 [MODEL[:HOW…]…]`` in place of cases: how much each number of kept operators takes off the error of trained
models. HOW: ``channel`` (weights per channel, opset 13), inputs ``normal``, ``uniform`` or ``page`` (drawn), ``160``
(every second pixel), ``others`` (other tools' rules, over one graph with a switch for each rounding), ``least`` (how
many disjoint sets of operators each bring more than half of the error by themselves): ``int8 det:channel:160:others``.

The tool's own column is ``precision_debug search`` itself. The others are selection rules of other tools, written anew
over one evaluator (tests/kept_simulation.py): Polygraphy's `debug precision` (bisects the first N), onnxconverter's
automatic mixed precision (converts segments), ddmin, AIMET's analyser (each node alone in low precision, then the worst
first) and ModelOpt AutoCast's rule (magnitudes; runs nothing). "x" marks a set that does not hold.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
import onnx.version_converter
from int8_switches import Switches, disjoint
from kept_simulation import Simulation
from onnx import numpy_helper
from planted.kept import Case, searched, units_of
from planted.onnx_faults import Graph, tokens
from precision_debug_onnxruntime.engine.int8_units import Int8Units

ROOT = Path(__file__).resolve().parents[2]
Built = tuple[Path, dict[str, Any]]


def encoder(folder: Path, layers: int = 7, size: int = 48, length: int = 12) -> Built:
    """The scores of layer 2 overflow, and so do the squares of a norm behind layer 4 that is written out."""
    g = Graph(seed=3)
    x = tokens(g, size=size, length=length)
    for layer in range(layers):
        x = g.norm(g.attention(x, size, f"t{layer}"), size, f"n{layer}")
        if layer == 4:
            wide = g.op("Mul", [x, g.weight("w", np.float32(900))], "wide")
            square = g.op("Mul", [wide, wide], "square")
            mean = g.op("ReduceMean", [square], "mean", axes=[-1])
            x = g.op("Div", [wide, g.op("Sqrt", [mean], "root")], "normed")
        x = g.norm(g.mlp(x, size, f"m{layer}"), size, f"o{layer}")
    for name in ("t2_q.w", "t2_k.w"):
        g.weights[name] = g.weights[name] * 250
    g.weights["t2.d"] = np.float32(math.sqrt(size) * 62500)
    return g.save(folder / "encoder.onnx", [x]), g.feeds


def resnet(folder: Path, planted: bool) -> Built:
    """examples/resnet; planted: two convolutions whose results overflow, and that are scaled back behind."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "examples" / "resnet" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    proto = module.build(image=64)
    if planted:
        _scale_convolutions(proto, (5, 11), 3e6)
    path = folder / "resnet.onnx"
    onnx.save(proto, path)
    shape = [dim.dim_value or 1 for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    shape[2:] = [64, 64]
    return path, {proto.graph.input[0].name: np.random.default_rng(0).normal(size=shape).astype(np.float32)}


def _scale_convolutions(proto: Any, which: Sequence[int], factor: float) -> None:
    convolutions = [node for node in proto.graph.node if node.op_type == "Conv"]
    weights = {item.name: item for item in proto.graph.initializer}
    for number in which:
        node = convolutions[number]
        weight = weights[node.input[1]]
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(factor), weight.name))
        for reader in proto.graph.node:  # the normalisation behind takes the scale out again
            if node.output[0] in reader.input and reader.op_type == "BatchNormalization":
                for place, power in ((3, 1.0), (4, 2.0)):
                    held = weights[reader.input[place]]
                    value = numpy_helper.to_array(held).astype(np.float64) * factor**power
                    held.CopyFrom(numpy_helper.from_array(value.astype(np.float32), held.name))


def not_monotone(folder: Path) -> Built:
    """Two cancellations; and a pair whose roundings undo each other, so that keeping one of both is worse than none."""
    g = Graph(seed=5)
    x = tokens(g, size=24, length=6)
    for layer in range(14):
        x = g.op("Tanh", [g.dense(x, 24, 24, f"l{layer}", scale=1.2)], f"a{layer}")
        if layer in (3, 10):
            shifted = g.op("Add", [x, g.weight(f"c{layer}", np.float32(4000))], f"shifted{layer}")
            x = g.op("Sub", [shifted, g.weight(f"d{layer}", np.float32(4000))], f"back{layer}")
        if layer == 6:
            left = g.op("Mul", [x, g.weight("seven", np.float32(7.013))], "left")
            right = g.op("Mul", [x, g.weight("also", np.float32(7.013))], "right")
            gap = g.op("Mul", [g.op("Sub", [left, right], "gap"), g.weight("much", np.float32(300))], "more")
            x = g.op("Add", [x, gap], "with_gap")
    return g.save(folder / "not_monotone.onnx", [g.dense(x, 24, 24, "y")]), g.feeds


def cancelling(folder: Path) -> Built:
    g = Graph(seed=6)
    x = tokens(g, size=24, length=6)
    for layer in range(17):
        x = g.op("Tanh", [g.dense(x, 24, 24, f"l{layer}", scale=1.2)], f"a{layer}")
        if layer in (4, 12):
            shifted = g.op("Add", [x, g.weight(f"c{layer}", np.float32(4000))], f"shifted{layer}")
            x = g.op("Sub", [shifted, g.weight(f"d{layer}", np.float32(4000))], f"back{layer}")
    return g.save(folder / "cancelling.onnx", [g.dense(x, 24, 24, "y")]), g.feeds


CASES: dict[str, tuple[Callable[[Path], Built], str, str]] = {
    "encoder, norm and scores overflow, fp16": (encoder, "ort_fp16_sim", "0.02"),
    "ResNet-18, two culprits, fp16": (functools.partial(resnet, planted=True), "ort_fp16_sim", "0.005"),
    "not monotone, fp16": (not_monotone, "ort_fp16_sim", "0.01"),
    "cancellation without overflow, fp16": (cancelling, "ort_fp16_sim", "0.01"),
    "ResNet-18 clean, bf16, half of the error": (functools.partial(resnet, planted=False), "ort_bf16_sim", "50%"),
}


class Counted:
    """Which sets of units hold; each counts once."""

    def __init__(self, simulation: Simulation | Switches, units: Sequence[Sequence[str]], limit: float) -> None:
        self.simulation, self.units, self.limit = simulation, units, limit
        self.known: dict[frozenset[int], float] = {}

    def error(self, kept: Sequence[int] | set[int] | range) -> float:
        key = frozenset(kept)
        if key not in self.known:
            self.known[key] = self.simulation.error({name for unit in key for name in self.units[unit]})
        return self.known[key]

    def holds(self, kept: Sequence[int] | set[int] | range) -> bool:
        return self.error(kept) <= self.limit


def first_n(o: Counted) -> set[int] | None:
    """Bisects how many of the first units are kept, as if more were always better."""
    low, high = 0, len(o.units)
    if not o.holds(range(high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if o.holds(range(middle)) else (middle, high)
    return set(range(high))


def segments(o: Counted) -> set[int] | None:
    """Converts the largest undecided segment, and splits it where that fails."""
    parts = [(0, len(o.units), "open")]
    while any(state == "open" for _, _, state in parts):
        size = max(count for _, count, state in parts if state == "open")
        place = next(i for i, part in enumerate(parts) if part[2] == "open" and part[1] == size)
        start = parts[place][0]
        kept = {u for i, (s, c, state) in enumerate(parts) if i != place and state != "low" for u in range(s, s + c)}
        if o.holds(kept):
            parts[place] = (start, size, "low")
        elif size == 1:
            parts[place] = (start, size, "kept")
        else:
            half = size // 2
            parts[place : place + 1] = [(start, half, "open"), (start + half, size - half, "open")]
    kept = {u for s, c, state in parts if state != "low" for u in range(s, s + c)}
    return kept if o.holds(kept) else None


def ddmin(o: Counted) -> set[int] | None:
    kept = list(range(len(o.units)))
    if not o.holds(kept):
        return None
    parts = 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[i : i + size] for i in range(0, len(kept), size)]
        rests = [[u for u in kept if u not in chunk] for chunk in chunks] if len(chunks) > 2 else []
        smaller = next((tried for tried in (*chunks, *rests) if o.holds(tried)), None)
        if smaller is not None:
            parts = 2 if smaller in chunks else max(parts - 1, 2)
            kept = smaller
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(kept))
    return set(kept)


def low_one(o: Counted) -> set[int] | None:
    """Each unit alone in low precision; the worst ones are kept until it holds."""
    everything = set(range(len(o.units)))
    damage = sorted(everything, key=lambda unit: (-o.error(everything - {unit}), unit))
    kept: set[int] = set()
    for unit in damage:
        if o.holds(kept):
            break
        kept = kept | {unit}
    return kept if o.holds(kept) else None


def by_magnitude(o: Counted) -> set[int] | None:
    """Nodes with results or inputs beyond 512, or weights beyond 65504; nothing is run."""
    simulation = o.simulation
    assert isinstance(simulation, Simulation)
    values: dict[str, Any] = dict(simulation.feeds) | simulation.constants
    kept = set()
    large: dict[str, bool] = {}
    for node in simulation.nodes:
        read = [values.get(name) if name else None for name in node.input]
        for name, value in zip(node.output, simulation.one(node, read), strict=True):
            if name:
                values[name] = value
        near = [values[name] for name in (*node.input, *node.output) if name in values]
        floats = [value for value in near if value is not None and value.dtype == np.float32 and value.size]
        large[node.name] = any(float(np.nanmax(np.abs(value))) > 512 for value in floats)
    for unit, names in enumerate(o.units):
        if any(large.get(name) for name in names):
            kept.add(unit)
    return kept


OTHERS: dict[str, Callable[[Counted], set[int] | None]] = {
    "first N": first_n, "segments": segments, "ddmin": ddmin, "low one": low_one, "magnitude": by_magnitude,
}  # fmt: skip


def int8(names: Sequence[str]) -> int:
    """How diffuse int8 is on trained models: PRECISION_DEBUG_WILD names the folder of those that are not ours."""
    wild = Path(os.environ.get("PRECISION_DEBUG_WILD", "/nowhere"))
    cases = {name: (wild / f"{name}.onnx", wild / f"{name}.npz") for name in ("det", "rec", "cls", "minilm")}
    cases["digits"] = (ROOT / "examples/digits/digits.onnx", ROOT / "examples/digits/test_images.npz")
    print("| model (units) | nothing kept | half of it: sets, kept | Rel L2 by number of kept units | seconds |")
    print("|---" * 5 + "|", flush=True)
    for name, (path, inputs) in cases.items():
        chosen = [word for word in names if word.partition(":")[0] == name]
        if (names and not chosen) or not path.exists():
            continue
        for word in chosen or [name]:
            with tempfile.TemporaryDirectory() as home:
                print(_int8(word, path, inputs, Path(home)), flush=True)
    return 0


def _int8(word: str, path: Path, inputs: Path, folder: Path) -> str:
    """word: a name, and after each colon how; see above."""
    name, *how = word.split(":")
    feeds = dict(np.load(inputs))
    if name == "digits":
        feeds = {key: value[:1] for key, value in feeds.items()}
    proto = onnx.load(path)
    if "channel" in how:
        proto = onnx.version_converter.convert_version(proto, 13)
    if "160" in how:
        feeds = {key: np.ascontiguousarray(value[..., ::2, ::2]) for key, value in feeds.items()}
    dice = np.random.default_rng(0)
    if "normal" in how:
        feeds = {key: dice.normal(size=value.shape).astype(np.float32) for key, value in feeds.items()}
    if "uniform" in how:
        feeds = {key: dice.uniform(0, 1, size=value.shape).astype(np.float32) for key, value in feeds.items()}
    if "page" in how:
        feeds = {key: _page(dice, value.shape[-1]) for key, value in feeds.items()}
    onnx.save(proto, folder / "model.onnx")
    model = folder / "model.onnx"
    if "others" in how or "least" in how:
        _switched(word, model, feeds, least="least" in how)
        return ""
    case = Case(name=word, kind="", mode="ort_int8", make=lambda _: (model, feeds), limit="50%")
    begun = time.monotonic()
    fix, *_ = searched(case, folder)
    seconds = time.monotonic() - begun
    curve = ", ".join(f"{point.kept}: {point.error:.3g}" for point in fix.trade if point.error is not None)
    return (
        f"| {word} ({fix.units}) | {fix.before:.3g} | {fix.evaluations}, {len(fix.kept)} ({fix.state})"
        f" | {curve} | {seconds:.0f} |"
    )


def _page(dice: Any, size: int) -> Any:
    """Lines of dark strokes on white, normalised as PP-OCR's detector wants them."""
    page = np.full((size, size), 255.0, np.float32)
    for _ in range(12):
        y, x = dice.integers(0, size - 12), dice.integers(0, size // 2)
        height, width = dice.integers(6, 12), dice.integers(size // 8, size // 2)
        for column in range(x, min(size, x + width), 4):
            page[y : y + height, column : column + 2] = dice.integers(0, 60)
    mean, spread = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return ((page[..., None] / 255 - mean) / spread).transpose(2, 0, 1)[None].astype(np.float32)


def _switched(word: str, model: Path, feeds: dict[str, Any], *, least: bool) -> None:
    """Other rules over the same units, and how many disjoint sets bring too much: printed as they come."""
    switches = Switches(model, feeds, per_channel="channel" in word.split(":"))
    limit = 0.5 * switches.error(())
    names = Int8Units.of(str(model), "int8").names
    units = [[name for key in keys for name in names.get(key, (key,))] for keys in units_of(model, "ort_int8")]
    print(f"{word}: Rel L2 {2 * limit:.3g} with nothing kept", flush=True)
    for rule in () if least else ("first N", "segments", "ddmin"):
        counted = Counted(switches, units, limit)
        kept = OTHERS[rule](counted)
        print(f"  {rule}: {len(counted.known)} / {len(kept) if kept is not None else '-'}", flush=True)
    if least:
        count = len(disjoint(switches, limit, lambda nodes, error: print(f"  {error:.3g} by {nodes}", flush=True)))
        print(f"  {count} disjoint sets: so many operators at least", flush=True)


def main(names: Sequence[str]) -> int:
    if names[:1] == ["int8"]:
        return int8(names[1:])
    print(f"| case (units; limit) | {' | '.join(OTHERS)} | this tool | seconds |")
    print("|---" * (len(OTHERS) + 3) + "|")
    for name, (make, mode, limit) in CASES.items():
        if names and not any(word in name for word in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path, feeds = make(Path(folder))
            case = Case(name=name, kind="", mode=mode, make=lambda _, made=(path, feeds): made, limit=limit)
            begun = time.monotonic()
            fix, *_ = searched(case, Path(folder))
            seconds = time.monotonic() - begun
            simulation = Simulation(onnx.load(path), feeds, "bf16" if "bf16" in mode else "fp16")
            units = units_of(path, mode)
            wanted = float(limit) if "%" not in limit else float(limit[:-1]) / 100 * simulation.error(())
            cells = []
            for rule in OTHERS.values():
                counted = Counted(simulation, units, wanted)
                kept = rule(counted)
                runs = len(counted.known)
                wrong = "" if kept is not None and counted.holds(kept) else " x"
                cells.append(f"{runs} / {len(kept) if kept is not None else '-'}{wrong}")
            mine = Counted(simulation, units, wanted)
            place = {keys[0]: number for number, keys in enumerate(units)}
            agrees = mine.holds({place[unit.key] for unit in fix.kept})
            print(
                f"| {name} ({len(units)}; {limit}) | {' | '.join(cells)} | {fix.evaluations} / {len(fix.kept)}"
                f"{'' if agrees and fix.state == 'found' else f' x ({fix.state})'} | {seconds:.0f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
