"""Planted models of which the smallest set to keep is known: ``python tests/planted/kept.py`` prints sets and runs.

A culprit is planted at several depths, two and three of them together, some that overflow, some that cancel, and pairs
that only go together. The true minimum is found by trying every smaller set in tests/kept_simulation.py.
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
import onnx
from kept_simulation import Simulation

from planted import onnx_faults, onnx_further
from planted.onnx_faults import Graph, tokens
from precision_debug.events import FixFound
from precision_debug.products.search.search_run import search
from precision_debug.records import ModelFiles, RunSpec, Tolerance
from precision_debug.run.journal import Journal, read_events
from precision_debug.search.fix import Fix, SearchRequest

__all__ = ["CASES", "Case", "Least", "least_of", "searched", "show", "smaller_sets", "units_of"]

Build = Callable[[Graph], Sequence[str]]
Least = tuple[int, int, bool]
"""How small a set can be that holds, how many sets were tried for that, and whether those were all smaller ones."""

LIMIT = 2e-2
_MOST = 60_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """make: the model's path and feeds in a folder. kind: "overflow", "cancellation" or "other". mode: a simulation."""

    name: str
    kind: str
    mode: str
    make: Callable[[Path], tuple[Path, dict[str, Any]]]
    limit: float | str = LIMIT


def _overflow(g: Graph, x: str, name: str) -> str:
    """Sums beyond 65504, brought back at once."""
    big = g.op("Mul", [x, g.weight(f"{name}.k", np.float32(3e5))], f"{name}_big")
    return g.op("Mul", [big, g.weight(f"{name}.l", np.float32(1 / 3e5))], f"{name}_back")


def _cancelling(g: Graph, x: str, name: str) -> str:
    shifted = g.op("Add", [x, g.weight(f"{name}.c", np.float32(4000))], f"{name}_shifted")
    return g.op("Sub", [shifted, g.weight(f"{name}.d", np.float32(4000))], f"{name}_subtracted")


def _squares(g: Graph, x: str, name: str) -> str:
    """A norm written out whose squares overflow, and their mean with them."""
    wide = g.op("Mul", [x, g.weight(f"{name}.w", np.float32(900))], f"{name}_wide")
    square = g.op("Mul", [wide, wide], f"{name}_square")
    mean = g.op("ReduceMean", [square], f"{name}_mean", axes=[-1])
    return g.op("Div", [wide, g.op("Sqrt", [mean], f"{name}_root")], f"{name}_normed")


_PLANTS: dict[str, Callable[[Graph, str, str], str]] = {
    "overflow": _overflow, "cancellation": _cancelling, "squares": _squares,
}  # fmt: skip


def _planted(kinds: Sequence[str], places: Sequence[int], depth: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = tokens(g, size=16, length=4)
        for layer in range(depth):
            x = g.op("Tanh", [g.dense(x, 16, 16, f"l{layer}", scale=1.2)], f"a{layer}")
            for kind, place in zip(kinds, places, strict=True):
                if place == layer:
                    x = _PLANTS[kind](g, x, f"p{layer}")
        return [g.dense(x, 16, 16, "y")]

    return build


def _together(g: Graph) -> Sequence[str]:
    """Two that round in the same way and cancel: dropping either alone raises the error, dropping both does not."""
    x = tokens(g, size=16, length=4)
    x = _cancelling(g, g.dense(x, 16, 16, "l0"), "p")
    left = g.op("Mul", [x, g.weight("seven", np.float32(7.013))], "left")
    right = g.op("Mul", [x, g.weight("also", np.float32(7.013))], "right")
    gap = g.op("Sub", [left, right], "gap")
    more = g.op("Mul", [gap, g.weight("much", np.float32(30))], "more")
    return [g.op("Add", [x, more], "y")]


def _made(name: str, build: Build, seed: int) -> Callable[[Path], tuple[Path, dict[str, Any]]]:
    def make(folder: Path) -> tuple[Path, dict[str, Any]]:
        graph = Graph(seed=seed)
        return graph.save(folder / f"{name}.onnx", build(graph)), graph.feeds

    return make


def _own() -> list[Case]:
    plans: list[tuple[tuple[str, ...], tuple[int, ...], int]] = [
        *((("overflow",), (place,), 4) for place in range(3)),
        *((("cancellation",), (place,), 4) for place in range(3)),
        *((("squares",), (place,), 3) for place in range(2)),
        (("overflow", "cancellation"), (0, 2), 4),
        (("cancellation", "overflow"), (0, 2), 4),
        (("overflow", "overflow"), (0, 2), 4),
        (("cancellation", "cancellation"), (0, 2), 4),
        (("cancellation", "cancellation", "cancellation"), (0, 1, 2), 4),
        (("overflow", "overflow", "cancellation"), (0, 1, 2), 3),
        (("squares", "cancellation"), (0, 1), 3),
    ]
    found = []
    for kinds, places, depth in plans:
        name = "_".join(f"{kind}{place}" for kind, place in zip(kinds, places, strict=True))
        kind = "cancellation" if set(kinds) == {"cancellation"} else "overflow"
        found.append(
            Case(name=name, kind=kind, mode="ort_fp16_sim", make=_made(name, _planted(kinds, places, depth), 7))
        )
    for place in range(2):
        name = f"bf16_cancellation{place}"
        build = _planted(("cancellation",), (place,), 3)
        found.append(Case(name=name, kind="cancellation", mode="ort_bf16_sim", make=_made(name, build, 9), limit=5e-2))
    found.append(
        Case(name="only_together", kind="other", mode="ort_fp16_sim", make=_made("only_together", _together, 3))
    )
    return found


def _faults() -> list[Case]:
    """The planted faults of the explanations whose graphs have no bodies, and whose inputs an engine can hold."""
    found = []
    for fault in (*onnx_faults.CASES, *onnx_further.CASES):
        kind = {"overflow": "overflow", "weight_overflow": "overflow", "cancellation": "cancellation"}.get(
            fault.kind, "other"
        )
        if fault.mode not in ("ort_fp16_sim", "ort_bf16_sim") or fault.kind not in _KINDS or fault.options:
            continue

        def make(folder: Path, fault: Any = fault) -> tuple[Path, dict[str, Any]]:
            model, _, feeds = fault.make(folder)
            return model, feeds

        limit = 5e-2 if "bf16" in fault.mode else LIMIT
        found.append(Case(name=fault.name, kind=kind, mode=fault.mode, make=make, limit=limit))
    return found


_KINDS = frozenset({"overflow", "weight_overflow", "underflow", "epsilon", "cancellation", "amplified"})

CASES = [*_own(), *_faults()]


def searched(case: Case, folder: Path) -> tuple[Fix, Path, dict[str, Any]]:
    """One search, in this process; the model and its feeds."""
    path, feeds = case.make(folder)
    np.savez(folder / "inputs.npz", **feeds)
    spec = RunSpec(
        model=ModelFiles(model_file=str(path)), run_mode=case.mode, inputs=str(folder / "inputs.npz"),
        tolerance=Tolerance(given=False),
    )  # fmt: skip
    asked = SearchRequest(limit=str(case.limit), folder=str(folder / "search"), artefacts=str(folder / "fix"))
    (folder / "work").mkdir()
    with Journal(folder / "journal.jsonl") as journal:
        search(spec, asked, journal, folder / "work")
    told = read_events(folder / "journal.jsonl")
    return next(event.fix for event in told if isinstance(event, FixFound)), path, feeds


def least_of(
    groups: Sequence[Sequence[str]], fix: Fix, error: Callable[[frozenset[str]], float], wanted: float, most: int
) -> Least:
    """The smallest number of units that holds, found by trying every set that is smaller than the answer.

    most: no more sets than this are tried.
    """
    tried = 0
    for size in range(len(fix.kept)):
        for several in itertools.combinations(groups, size):
            tried += 1
            if tried > most:
                return len(fix.kept), tried, False
            if error(frozenset(name for group in several for name in group)) <= wanted:
                return size, tried, True
    return len(fix.kept), tried, True


def smaller_sets(case: Case, fix: Fix, path: Path, feeds: dict[str, Any], _folder: Path) -> Least:
    """``least_of``, in the simulation that the tests have of their own."""
    simulation = Simulation(onnx.load(path), feeds, "bf16" if "bf16" in case.mode else "fp16")
    groups = [tuple(dict.fromkeys(n)) for n in units_of(path, case.mode)]
    return least_of(groups, fix, lambda kept: simulation.error(set(kept)), float(case.limit), _MOST)


def units_of(path: Path, mode: str) -> list[tuple[str, ...]]:
    """The nodes of every unit, as the search makes them."""
    from precision_debug import registry
    from precision_debug.records import SessionSpec
    from precision_debug.search.units import Units

    backend, _ = registry.find(ModelFiles(model_file=str(path)), "ort_fp32")
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_fp32")
    session = backend.open(spec, ())
    keep: Any = backend
    units = Units(session.tensors, keep.keep(replace(spec, mode=mode)).key_of)
    session.close()
    return [unit.keys for unit in units.units]


def show(
    cases: Sequence[Case], names: Sequence[str], smaller: Callable[[Case, Fix, Path, dict[str, Any], Path], Least],
    handed: Callable[[Fix, Path, dict[str, Any]], tuple[bool, str]] = lambda *_: (True, ""),
) -> int:  # fmt: skip
    """One line a case; 1 where a set is larger than need be, took more runs than it may, or is not as it should be.

    names: words of the cases' names; none: all. handed: of what was handed over, whether it is right, and what to say.
    """
    wrong = count = 0
    for case in cases:
        if names and not any(word in case.name for word in names):
            continue
        count += 1
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home)
            try:
                fix, path, feeds = searched(case, folder)
            except Exception as error:
                wrong += 1
                print(f"LOOK {case.name:40s} {type(error).__name__}: {error}", flush=True)
                continue
            (folder / "brute").mkdir()
            least, tried, whole = (0, 0, True)
            if fix.state == "found":
                least, tried, whole = smaller(case, fix, path, feeds, folder / "brute")
            verified, told = handed(fix, path, feeds)
        quick = case.kind == "other" or fix.evaluations <= len(fix.kept) + 5
        wanted = ("not needed",) if case.kind == "clean" else ("found",) if fix.kept else ("found", "not needed")
        right = fix.state in wanted and (not fix.kept or least == len(fix.kept)) and quick and verified
        wrong += not right
        print(
            f"{'ok  ' if right else 'LOOK'} {case.name:40s} {case.kind:13s} {fix.state:11s}"
            f" kept {len(fix.kept)}/{fix.units} least {least}{'' if whole else '?'} ({tried} tried)"
            f" evaluations {fix.evaluations} error {fix.before} -> {fix.after}"
            f" {' '.join(unit.key.removeprefix('node_') for unit in fix.kept)} {told}".rstrip(),
            flush=True,
        )
    print(f"{count} cases, {wrong} to look at")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(show(CASES, sys.argv[1:], smaller_sets))
