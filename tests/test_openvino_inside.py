"""What lies inside OpenVINO's fused layers is compared, where a run that shows it gives the same around it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outcomes import HARDWARE
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.records import UNFUSED, ModelFiles, Row, SessionSpec

pytest.importorskip("openvino", reason="openvino is not installed")

from precision_debug_openvino import OpenVinoBackend
from precision_debug_openvino.engine.given import _makes
from precision_debug_openvino.engine.opened import Opened

from precision_debug.testing.backend_contract import CopyingHook

INSIDE = {f"{name}{number}" for name in ("conv", "add", "scaled") for number in range(3)}
"""What OpenVINO computes inside a convolution's layer: with what follows as far as the rounding."""


def quantised(folder: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Three convolutions of a QDQ file, each with an Add, a Mul and a Relu behind it."""
    g = Graph(seed=5)
    value = g.input("x", g.random.normal(size=(1, 4, 12, 12)).astype(np.float32))
    for number in range(3):
        held = rounded(g, value, f"in{number}", 0.03, np.uint8(128))
        weight = g.weight(f"w{number}", 0.2 * g.random.normal(size=(4, 4, 3, 3)))
        weight = rounded(g, weight, f"w{number}", 0.01, np.int8(0))
        made = g.op("Conv", [held, weight], f"conv{number}", pads=[1, 1, 1, 1])
        made = g.op("Add", [made, g.weight(f"b{number}", g.random.normal(size=(1, 4, 1, 1)))], f"add{number}")
        gain = g.weight(f"s{number}", g.random.uniform(0.5, 1.5, size=(1, 4, 1, 1)))
        made = g.op("Mul", [made, gain], f"scaled{number}")
        value = g.op("Relu", [made], f"relu{number}")
    return str(g.save(folder / "convs.onnx", [value])), g.feeds


def rounded(g: Graph, value: str, name: str, scale: float, zero: np.generic) -> str:
    """A tensor in eight bits."""
    at = [g.weight(f"{name}_scale", np.float32(scale)), g.weight(f"{name}_zero", zero)]
    return g.op("DequantizeLinear", [g.op("QuantizeLinear", [value, *at], f"{name}_q"), *at], f"{name}_dq")


def rows_of(folder: Path, **options: Any) -> Mapping[str, Row]:
    path, feeds = quantised(folder)
    report = precision_debug.compare(path, inputs=feeds, run_once=True, **options)
    return {row.name: row for row in report.rows}


def test_what_is_fused_is_compared_and_says_how_it_was_seen(tmp_path: Path) -> None:
    """Both sides run the same integers, one of them without fusion: what is inside must be the same numbers."""
    rows = rows_of(tmp_path, run_mode="ov_int8", baseline="ov_fp32", explain="off")
    seen = {name: rows[name].relative_l2 for name in INSIDE if rows[name].comparison is not None}
    assert seen.keys() == INSIDE
    assert {rows[name].view for name in INSIDE} >= {UNFUSED}
    assert all(error is not None and error < 1e-5 for error in seen.values()), seen
    assert "Convolution" in rows["scaled1"].extra["Fused Layer"]


def test_nobody_is_accused_of_what_only_a_further_run_shows(tmp_path: Path) -> None:
    """A tensor that the engine's own run has not cannot be put into it."""
    path, feeds = quantised(tmp_path)
    mode = {"run_mode": "ov_int8", "baseline": "ov_fp32"}
    report = precision_debug.compare(path, inputs=feeds, explain="full", rtol=1e-9, atol=0.0, **mode)
    unfused = {row.name for row in report.rows if row.view == UNFUSED}
    assert unfused
    assert report.explanation is not None
    assert not unfused & {culprit.name for culprit in report.explanation.culprits}
    assert not [name for name in unfused if next(row for row in report.rows if row.name == name).introduced]


@dataclass(kw_only=True)
class Disturbed(Opened):
    """Of a model whose own run had another number in one tensor."""

    changed: str

    def shown(self, plain: Mapping[Any, Any], infer: Any) -> Iterator[tuple[Any, Any]]:
        key = next(key for key in plain if self.graph.values[key].name == self.changed)
        return super().shown({**plain, key: plain[key] + np.float32(1)}, infer)


def test_a_run_that_is_another_around_a_tensor_shows_it_not(tmp_path: Path) -> None:
    """Neither the layer in front of a tensor that differs nor the one behind it is taken to be the same."""
    path, feeds = quantised(tmp_path)
    spec = SessionSpec(model=ModelFiles(model_file=path), mode="ov_int8", options={"side": "target"})

    def inside(changed: str) -> Collection[str]:
        session, hook = OpenVinoBackend().open(spec, [feeds]), CopyingHook()
        seen = [meta.name for meta in session.tensors if meta.view != UNFUSED]
        opened = session._opened
        assert opened is not None
        if changed:
            name = next(name for name in seen if name.startswith(changed))
            session._opened = Disturbed(
                graph=opened.graph, inner=opened.inner, names=opened.names, build=opened.build, switch=opened.switch,
                given=opened.given, maker=opened.maker,
                changed=name,
            )  # fmt: skip
        session.run(feeds, hook)
        assert {meta.name for meta in session.tensors if not meta.unseen} == set(hook.names)
        session.close()
        return set(hook.names) - set(seen)

    assert inside("") >= INSIDE
    there = inside("in2")
    assert there & INSIDE == {"conv0", "add0", "scaled0"}


def residual(folder: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Three blocks, each a hard swish between two convolutions, added to what the block reads."""
    g = Graph(seed=3)
    value = g.input("x", g.random.normal(size=(1, 8, 24, 24)).astype(np.float32))
    for number in range(3):
        first = convolved(g, value, f"one{number}")
        gate = g.op("Add", [first, g.weight(f"three{number}", np.float32(3))], f"shifted{number}")
        limits = [g.weight(f"zero{number}", np.float32(0)), g.weight(f"six{number}", np.float32(6))]
        gate = g.op("Clip", [gate, *limits], f"gate{number}")
        swish = g.op("Div", [g.op("Mul", [first, gate], f"gated{number}"), limits[1]], f"swish{number}")
        value = g.op("Add", [convolved(g, swish, f"two{number}"), value], f"sum{number}")
        value = g.op("Transpose", [value], f"turned{number}", perm=[0, 1, 3, 2])
    return str(g.save(folder / "residual.onnx", [g.op("Relu", [convolved(g, value, "last")], "y")])), g.feeds


def convolved(g: Graph, value: str, name: str) -> str:
    return g.op("Conv", [value, g.weight(f"{name}_w", 0.2 * g.random.normal(size=(8, 8, 1, 1)))], name)


def test_a_run_that_is_given_what_the_engine_shows_shows_the_rest(tmp_path: Path) -> None:
    """What a stretch computes otherwise once it is shown stays in it; OpenVINO's kernel leaves the first quantiser out
    of a layer that adds another tensor in place, and so does the run that shows what lies inside."""
    pytest.importorskip("nncf", reason="nncf is not installed")
    path, feeds = residual(tmp_path)
    report = precision_debug.compare(path, inputs=feeds, run_mode="ov_int8", run_once=True, explain="off")
    seen = {row.name for row in report.rows if row.comparison is not None}
    wanted = {f"{name}{number}" for name in ("one", "shifted", "gated", "swish", "two", "sum") for number in range(3)}
    if HARDWARE["exact_8_bit_sums"]():  # other kernels: what they add in place stays in the layer
        wanted -= {f"{name}{number}" for name in ("two", "sum") for number in range(3)}
    assert wanted <= seen, wanted - seen


def test_what_is_shown_does_not_depend_on_hashes_of_names(tmp_path: Path) -> None:
    """One run in five showed other tensors than the next."""
    pytest.importorskip("nncf", reason="nncf is not installed")
    path, feeds = residual(tmp_path)
    np.savez(tmp_path / "x.npz", **feeds)
    (tmp_path / "torch.py").write_text("raise ImportError")  # nncf would import it, for more than all the rest takes
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    shown = []
    for seed in "123":
        command = [sys.executable, "-m", "precision_debug", "--model_file", path, "--inputs", str(tmp_path / "x.npz"),
                   "--run_mode", "ov_int8", "--explain", "off", "--output", str(tmp_path / f"{seed}.json")]  # fmt: skip
        subprocess.run(command, env={**env, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
        rows = precision_debug.Report.load(tmp_path / f"{seed}.json").rows
        shown.append([row.name for row in rows if row.comparison is not None])
    assert shown[0] == shown[1] == shown[2] != []


def test_named_tensors_alone_need_no_further_run(tmp_path: Path) -> None:
    path, feeds = quantised(tmp_path)
    session = OpenVinoBackend().open(SessionSpec(model=ModelFiles(model_file=path), mode="ov_int8"), [feeds])
    first = next(meta.name for meta in session.tensors if meta.is_output)
    hook = CopyingHook()
    session.run(feeds, hook, [first])
    assert hook.names == [first]
    assert session._opened is not None
    assert session._opened._decided is None
    session.close()


@pytest.mark.parametrize("halves", [False, True])
def test_a_division_of_whole_numbers_inside_a_layer_is_told_as_one(tmp_path: Path, halves: bool) -> None:
    """OpenVINO fuses Div, Mul and Sub into one layer, whose result is float, and divides in float32; halves: of what
    another operator of that layer made."""
    g = Graph(seed=7)
    x = g.input("x", g.random.integers(200_000_000, 2_000_000_000, size=(24,)).astype(np.int32))
    eleven = g.weight("eleven", np.int32(11))
    x = g.op("Sub", [x, g.weight("seven", np.int32(7))], "less") if halves else x
    whole = g.op("Div", [x, eleven], "whole")
    digit = g.op("Sub", [x, g.op("Mul", [whole, eleven], "back")], "digit")
    plain = g.op("Cast", [digit], "plain", to=1)
    path = g.save(tmp_path / "m.onnx", [g.op("Mul", [plain, g.weight("tenth", np.float32(0.1))], "y")])
    report = precision_debug.compare(path, run_mode="ov_opt", inputs=g.feeds)
    assert report.explanation is not None
    (first,) = report.explanation.culprits
    assert (report.exit_status, first.cause, first.evidence["divides"]) == (1, "whole_in_float32", "whole")


@pytest.mark.parametrize(
    ("moved", "by", "same"), [(0, 0, True), (1, 1, True), (2, 1, False), (1, 2, False)],
)  # fmt: skip
def test_a_quantiser_behind_may_decide_a_tie_otherwise_and_no_more(moved: int, by: int, same: bool) -> None:
    """moved: of 1,000 numbers that a quantiser reads, how many lie elsewhere. by: so many of its steps."""
    ranges = tuple(np.float64(one) for one in (-1, 1, -2, 2))
    codes = np.arange(1000) % 200 + 20
    read = (-1 + codes * 2 / 255).astype(np.float32)
    read[:moved] += by * 2 / 255
    assert _makes(read, (-2 + codes * 4 / 255).astype(np.float32), (*ranges, 256)) is same
