"""What ONNX Runtime's optimiser hides of a file that was converted or quantised is compared, where the same file, run
without the optimiser, gives the same around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.observe.unfused import describe_surroundings, find_differing
from precision_debug.records import UNFUSED, ModelFiles, Row, SessionSpec

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_onnxruntime.engine.opened import Opened

from precision_debug.testing.backend_contract import CopyingHook

INSIDE = {"scaled", "erf", "shifted", "gated"}
"""What becomes one Gelu."""

PRODUCTS: dict[str, Any] = {"op_types": ["MatMul"]}
"""The quantiser leaves the rest in float, where it is fused."""


def gelu(folder: Path, layers: int = 1) -> tuple[str, dict[str, np.ndarray]]:
    """Products with a Gelu behind each, written out as PyTorch's exporter does; names of the second end with "1"."""
    g = Graph(seed=3)
    value = g.input("x", g.random.normal(size=(8, 32)).astype(np.float32))
    for number in range(layers):
        end = str(number or "")
        product = g.op("MatMul", [value, g.weight(f"w{end}", 0.3 * g.random.normal(size=(32, 32)))], f"product{end}")
        first = g.op("Tanh", [product], f"first{end}")
        scaled = g.op("Div", [first, g.weight(f"root{end}", np.float32(np.sqrt(2)))], f"scaled{end}")
        erf = g.op("Erf", [scaled], f"erf{end}")
        shifted = g.op("Add", [erf, g.weight(f"one{end}", np.float32(1))], f"shifted{end}")
        gated = g.op("Mul", [first, shifted], f"gated{end}")
        value = g.op("Mul", [gated, g.weight(f"half{end}", np.float32(0.5))], f"active{end}")
    out = g.op("MatMul", [value, g.weight("last", 0.3 * g.random.normal(size=(32, 8)))], "out")
    return str(g.save(folder / "gelu.onnx", [out])), g.feeds


def rows_of(path: str, feeds: Any, **options: Any) -> Mapping[str, Row]:
    report = precision_debug.compare(path, inputs=feeds, run_once=True, explain="off", **options)
    return {row.name: row for row in report.rows}


@pytest.mark.parametrize("mode", ["ort_int8", "ort_int8_dynamic"])
def test_what_the_optimiser_hides_is_compared_and_says_how_it_was_seen(mode: str, tmp_path: Path) -> None:
    rows = rows_of(*gelu(tmp_path), run_mode=mode, **PRODUCTS)
    assert {name for name in rows if rows[name].view == UNFUSED} == INSIDE
    errors = {name: rows[name].relative_l2 for name in INSIDE}
    assert all(error is not None and 0 < error < 0.1 for error in errors.values()), errors


def test_what_stands_before_an_activation_that_the_quantiser_removed_is_compared(tmp_path: Path) -> None:
    g = Graph(seed=3)
    value = g.input("x", g.random.normal(size=(1, 4, 12, 12)).astype(np.float32))
    for number in range(2):
        weight = g.weight(f"w{number}", 0.3 * g.random.normal(size=(4, 4, 3, 3)))
        value = g.op("Relu", [g.op("Conv", [value, weight], f"conv{number}")], f"relu{number}")
    rows = rows_of(str(g.save(tmp_path / "m.onnx", [value])), g.feeds, run_mode="ort_int8", reduce_range=True)
    before, behind = (rows[name].comparison for name in ("conv0", "relu0"))
    assert before is not None
    assert behind is not None
    assert {name for name in rows if rows[name].view == UNFUSED} == {"conv0", "conv1"}
    assert ((before.target.min or 0) < 0, behind.target.min) == (True, 0)
    error = rows["conv0"].relative_l2
    assert error is not None
    assert 0 < error < 0.1  # not that of values of which half became 0


def test_the_unoptimised_run_of_the_model_itself_shows_nothing(tmp_path: Path) -> None:
    """It would be compared with itself."""
    rows = rows_of(*gelu(tmp_path), run_mode="ort_opt")
    assert {rows[name].status.value for name in INSIDE} == {"fused away"}


def test_nobody_is_accused_of_what_only_a_further_run_shows(tmp_path: Path) -> None:
    path, feeds = gelu(tmp_path)
    options = {"run_mode": "ort_int8", "explain": "full", "rtol": 1e-9, "atol": 0.0, **PRODUCTS}
    report = precision_debug.compare(path, inputs=feeds, **options)
    unfused = {row.name for row in report.rows if row.view == UNFUSED}
    assert unfused
    assert report.explanation is not None
    assert not unfused & {culprit.name for culprit in report.explanation.culprits}
    assert not [row.name for row in report.rows if row.name in unfused and row.introduced]


@dataclasses.dataclass(kw_only=True)
class Disturbed(Opened):
    """Of a model whose own run had another number in one tensor."""

    changed: str

    def begin(self, name: str, tensor: Any) -> None:
        super().begin(name, tensor + np.float32(1) if name == self.changed else tensor)


def open_session(folder: Path, layers: int = 1) -> tuple[Any, Any]:
    path, feeds = gelu(folder, layers)
    spec = SessionSpec(model=ModelFiles(model_file=path), mode="ort_int8", options=PRODUCTS)
    return OnnxRuntimeBackend().open(spec, [feeds]), feeds


def seen_inside(session: Any, feeds: Any, changed: str) -> set[str]:
    """What a further run shows where the engine's own had another number in one tensor; "" where it had not."""
    opened = session._inside
    inner = {meta.name for meta in opened.inner.values()}
    fields = {one.name: getattr(opened, one.name) for one in dataclasses.fields(opened) if one.init}
    session._inside = Disturbed(**{**fields, "changed": changed})
    hook = CopyingHook()
    session.run(feeds, hook)
    assert {meta.name for meta in session.tensors if not meta.unseen} == set(hook.names)
    session._inside = opened
    return set(hook.names) & inner


def test_a_run_that_is_another_around_a_tensor_shows_it_not_and_each_stretch_is_judged_alone(tmp_path: Path) -> None:
    """What comes after a difference is given the engine's own numbers, and is judged by what it makes of these."""
    session, feeds = open_session(tmp_path, layers=2)
    second = {f"{name}1" for name in INSIDE}
    assert {meta.name for meta in session.tensors if meta.view == UNFUSED} == INSIDE | second
    assert seen_inside(session, feeds, "") == INSIDE | second
    opened = session._inside
    behind = {name: opened.marks[next(iter(opened.around[name].behind))] for name in ("gated", "gated1")}
    assert seen_inside(session, feeds, behind["gated"]) == second
    assert seen_inside(session, feeds, behind["gated1"]) == INSIDE
    assert seen_inside(session, feeds, "first1") == INSIDE
    session.close()


def test_an_inner_tensor_may_be_asked_for_alone_and_others_need_no_further_run(tmp_path: Path) -> None:
    session, feeds = open_session(tmp_path)
    inner = next(meta.name for meta in session.tensors if meta.view == UNFUSED)
    output = next(meta.name for meta in session.tensors if meta.is_output)
    for name in (inner, output):
        hook = CopyingHook()
        session.run(feeds, hook, [name])
        assert hook.names == [name]
    assert not session._inside.plain.found
    session.close()


def test_outputs_are_those_of_the_optimised_run(tmp_path: Path) -> None:
    session, feeds = open_session(tmp_path)
    bare = session.run(feeds)
    assert session.tensors
    seen = session.run(feeds, CopyingHook())
    assert all(np.array_equal(bare[name], seen[name]) for name in bare)
    session.close()


def test_what_is_around_a_tensor_is_the_nearest_that_is_shown() -> None:
    reads = {"x": (), "a": ("x",), "b": ("a",), "c": ("b", "x"), "d": ("c",), "e": ("d",)}
    around = describe_surroundings(reads, ["b", "c"], {"x", "a", "d", "e"})
    assert (around["b"].front, around["b"].behind) == ({"a"}, {"d"})
    assert (around["c"].front, around["c"].behind) == ({"a", "x"}, {"d"})


def test_infinities_and_another_order_of_sums_are_no_difference_and_a_rounding_step_is() -> None:
    plain = np.array([1.0, np.inf, np.nan, 3.0], np.float32)
    assert not find_differing({"a": plain}, {"a": plain * np.float32(1 + 2e-7)})
    assert find_differing({"a": plain}, {"a": plain * np.float32(1 + 1e-4)}) == {"a"}
    assert find_differing({"a": plain}, {"a": np.array([1.0, -np.inf, np.nan, 3.0], np.float32)}) == {"a"}
