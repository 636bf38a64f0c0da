"""Two that changed places between two files: results, operands, operators in a row. Each is told by an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import save_operators
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.reasons import say
from precision_debug.records import Culprit

RANDOM = np.random.default_rng(7)
WEIGHTS = {
    "w": RANDOM.normal(size=(8, 8)) / 2, "v": RANDOM.normal(size=(8, 8)) / 2, "u": RANDOM.normal(size=(8, 8)) / 2,
    "scale": RANDOM.uniform(0.5, 2, 8), "shift": RANDOM.normal(size=8), "two": np.array(2.0), "far": np.array(0.3),
    "last": np.array([-1]), "first_": np.array([-99]), "axis": np.array([1]),
}  # fmt: skip
MODES = {"run_mode": "ort_fp32", "baseline": "ort_fp32"}
Ops = list[tuple[Any, ...]]


def save(path: Path, ops: Ops) -> str:
    return save_operators(path, ops, WEIGHTS, (6, 8), opset=17)


def blame(folder: Path, base: Ops, target: Ops) -> tuple[Culprit, ...]:
    inputs = {"x": np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)}
    report = precision_debug.compare(
        save(folder / "target.onnx", target), baseline_model=save(folder / "base.onnx", base), inputs=inputs, **MODES
    )
    assert report.explanation is not None
    return report.explanation.culprits


@pytest.mark.parametrize("rest", ["Sub", "Div"])
def test_results_of_a_split_that_changed_places(tmp_path: Path, rest: str) -> None:
    def of(results: str) -> Ops:
        return [("MatMul", "x w", "h"), ("Split", "h", results, {"axis": 0}), ("Tanh", "first", "t"),
                ("Exp", "second", "e"), (rest, "t e", "y")]  # fmt: skip

    one, *_ = blame(tmp_path, of("first second"), of("second first"))
    assert one.cause == "files_differ"
    assert one.evidence["what"] == say("a_result")
    assert {one.evidence["base"], one.name} <= {"first", "second"}
    other = "second" if one.name == "first" else "first"
    assert one.evidence["target"] == say("in_its_place", name=other)
    assert one.evidence["left"] < 1e-3


@pytest.mark.parametrize(
    ("operator", "told"),
    [
        (("Transpose", "s", "other", {"perm": [1, 0]}), say("transposed", name="s", axes=(1, 0))),
        (("Slice", "s last first_ axis last", "other"), say("from_the_end", name="s", axis=1)),
    ],
)
def test_an_operand_that_is_read_turned(operator: tuple[Any, ...], told: Any, tmp_path: Path) -> None:
    """One file has an operator more, which only moves numbers."""
    def of(read: str) -> Ops:
        ops: Ops = [("MatMul", "x w", "h"), ("MatMul", "x v", "m"), ("Gemm", "h m", "s", {"transB": 1}),
                    ("Gemm", "x m", "k", {"transB": 1})]  # fmt: skip
        return [*ops, *([operator] if read == "other" else []), ("Sub", f"{read} k", "y")]

    one, *_ = blame(tmp_path, of("s"), of("other"))
    assert (one.name, one.cause) == ("y", "files_differ")
    assert (one.evidence["base"], one.evidence["target"]) == ("s", told)
    assert one.evidence["left"] < 1e-3


def test_three_results_that_moved_on_by_one(tmp_path: Path) -> None:
    def of(results: str) -> Ops:
        return [("MatMul", "x w", "h"), ("Split", "h", results, {"axis": 0}), ("Tanh", "q", "t"), ("Exp", "k", "e"),
                ("Mul", "t e", "m"), ("Sub", "m v3", "y")]  # fmt: skip

    found = blame(tmp_path, of("q k v3"), of("k v3 q"))
    told = {one.name: one.evidence["target"] for one in found if one.evidence.get("what") == say("a_result")}
    assert told
    assert all(told[name] == {"q": "v3", "k": "q", "v3": "k"}[name] for name in told)


def test_sine_and_cosine_that_have_each_other_s_name(tmp_path: Path) -> None:
    """They have one input, and other operators: the operator is what differs, or the result."""
    def of(first: str, second: str) -> Ops:
        return [("MatMul", "x w", "h"), (first, "h", "one"), (second, "h", "two_"), ("Mul", "two_ two", "d"),
                ("Sub", "one d", "y")]  # fmt: skip

    one, *_ = blame(tmp_path, of("Sin", "Cos"), of("Cos", "Sin"))
    assert one.cause == "files_differ"
    assert one.name in {"one", "two_"}


@pytest.mark.parametrize("kinds", [("BatchNormalization", "Relu"), ("Relu", "Sub"), ("Tanh", "Mul")])
def test_two_operators_in_a_row_that_changed_places(tmp_path: Path, kinds: tuple[str, str]) -> None:
    more = {"BatchNormalization": " scale shift shift scale", "Mul": " two", "Sub": " far"}

    def of(order: list[int]) -> Ops:
        names, last, ops = ["one", "other"], "h", [("MatMul", "x w", "h")]
        for place in order:
            ops.append((kinds[place], last + more.get(kinds[place], ""), names[place]))
            last = names[place]
        return [*ops, ("MatMul", f"{last} v", "y")]

    first, *others = blame(tmp_path, of([0, 1]), of([1, 0]))
    assert (first.name, first.evidence["what"]) == ("one", say("an_order"))
    assert (first.evidence["base"], first.evidence["target"]) == ("one, other", "other, one")
    assert not others


def test_three_operators_in_a_row_in_another_order(tmp_path: Path) -> None:
    kinds = {"a": ("Relu", ""), "b": ("Sub", " far"), "c": ("Tanh", "")}

    def of(order: str) -> Ops:
        last, ops = "h", [("MatMul", "x w", "h")]
        for name in order:
            ops.append((kinds[name][0], last + kinds[name][1], name))
            last = name
        return [*ops, ("MatMul", f"{last} v", "y")]

    first, *others = blame(tmp_path, of("abc"), of("cab"))
    assert (first.evidence["base"], first.evidence["target"]) == ("a, b, c", "c, a, b")
    assert not others


def test_a_reader_that_is_wrong_by_itself_is_told_beside_the_order(tmp_path: Path) -> None:
    def of(order: list[str], weight: str) -> Ops:
        ops: Ops = [("MatMul", "x w", "h")]
        for name, last in zip(order, ["h", *order], strict=False):
            ops.append(({"r": "Relu", "s": "Sub"}[name], last + (" far" if name == "s" else ""), name))
        return [*ops, ("MatMul", f"{order[-1]} {weight}", "z"), ("MatMul", f"z {weight}", "y")]

    first, *others = blame(tmp_path, of(["r", "s"], "v"), of(["s", "r"], "u"))
    assert {first.name, *(one.name for one in others)} >= {"r", "y"}


def test_an_operand_that_another_engine_reads(tmp_path: Path) -> None:
    """OpenVINO names its own results: what is read there is known by running it alone."""
    pytest.importorskip("openvino")

    def of(gate: str, up: str) -> Ops:
        return [("LayerNormalization", "x scale", "n"), ("MatMul", "n w", "gate"), ("MatMul", "n v", "up"),
                ("Sigmoid", gate, "open"), ("Mul", f"{gate} open", "act"), ("Mul", f"act {up}", "both"),
                ("MatMul", "both u", "y")]  # fmt: skip

    inputs = {"x": np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)}
    report = precision_debug.compare(
        save(tmp_path / "target.onnx", of("up", "gate")), inputs=inputs,
        baseline_model=save(tmp_path / "base.onnx", of("gate", "up")), run_mode="ov_opt_fp32", baseline="ort_fp32",
    )  # fmt: skip
    assert report.explanation is not None
    told = {one.name: one.evidence for one in report.explanation.culprits if one.cause == "files_differ"}
    assert told["act"] == {"what": say("an_input"), "name": "act", "base": "gate", "target": "up",
                           "left": pytest.approx(0, abs=1e-5)}  # fmt: skip
    assert all({one["base"], one["target"]} == {"gate", "up"} for one in told.values())  # act times act is near, too
    assert len(told) == 2


@pytest.mark.parametrize("wrong", ["bias", "weight", ""])
@pytest.mark.parametrize("several", [1, 3])
def test_of_a_wrong_folding_the_constant_is_named(several: int, wrong: str, tmp_path: Path) -> None:
    """The same operators are folded in other places, rightly."""
    random = np.random.default_rng(2)
    parts = [
        (random.normal(size=(8, 8, 3, 3)) / 6, random.uniform(0.5, 1.5, 8), random.normal(size=8),
         random.normal(size=8), random.uniform(0.2, 1, 8))
        for _ in range(several)
    ]  # fmt: skip
    files, folded = [], []
    for other in (False, True):
        g = Graph(seed=1, opset=18)
        x = g.input("x", np.random.default_rng(3).normal(size=(2, 8, 6, 6)).astype(np.float32))
        for place, (w, gain, shift, mean, variance) in enumerate(parts):
            name, last = f"n{place}", place == several - 1
            if other:
                deviation = np.sqrt(variance + 1e-5)
                right = {"weight": (w.T * gain / deviation).T, "bias": shift - mean * gain / deviation}
                folded.append({f"{name}.{key[0]}": value for key, value in right.items()})
                without = {"weight": (w.T / deviation).T, "bias": shift - mean}  # its gain
                held = {**right, **({wrong: without[wrong]} if wrong and last else {})}
                told = [g.weight(f"{name}.{key[0]}", value.astype(np.float32)) for key, value in held.items()]
                x = g.op("Conv", [x, *told], name, pads=[1] * 4)
            else:
                x = g.op("Conv", [x, g.weight(f"{name}.w", w)], f"{name}_c", pads=[1] * 4)
                norm = [g.weight(f"{name}.{key}", one) for key, one in
                        zip("gsmv", (gain, shift, mean, variance), strict=True)]  # fmt: skip
                x = g.op("BatchNormalization", [x, *norm], name, epsilon=1e-5)
            x = g.op("Relu", [x], f"r{place}")
        files.append(g.save(tmp_path / f"{other}.onnx", [g.conv(x, 8, 4, "y")]))
    report = precision_debug.compare(
        files[1], baseline_model=files[0], run_mode="ort_fp32", baseline="ort_fp32", inputs=g.feeds
    )
    assert report.explanation is not None
    named = report.explanation.culprits
    if not wrong:
        assert named == ()
        return
    (one,) = named
    key = f"n{several - 1}.{wrong[0]}"
    assert (one.cause, one.evidence["name"], one.evidence["left"] < 1e-3) == ("files_differ", key, True)
    assert one.evidence["base"] == pytest.approx(folded[-1][key][tuple(one.evidence["at"])], rel=1e-3)


def test_operators_of_one_type_that_are_told_otherwise_are_no_part_of_both(tmp_path: Path) -> None:
    """What the second file has more makes its shape fit."""
    at = np.random.default_rng(3).integers(0, 4, (4, 3, 1))
    files = []
    for batch in (1, 0):
        g = Graph(seed=1, opset=18)
        x = g.dense(g.input("x", np.random.default_rng(3).normal(size=(4, 4, 8)).astype(np.float32)), 8, 8, "a")
        where = g.weight("at", at)
        if batch:
            x = g.op("GatherND", [x, where], "picked", batch_dims=1)
        else:
            x = g.op("ReduceMax", [g.op("GatherND", [x, where], "rows"), g.weight("axes", np.array([2]))], "picked",
                     keepdims=0)  # fmt: skip
        files.append(g.save(tmp_path / f"{batch}.onnx", [g.dense(x, 8, 4, "y")]))
    report = precision_debug.compare(
        files[1], baseline_model=files[0], run_mode="ort_fp32", baseline="ort_fp32", inputs=g.feeds
    )
    assert report.explanation is not None
    told = report.explanation.culprits[0].evidence
    assert (told["base"], told["target"]) == ("GatherND (batch_dims 1)", "GatherND (batch_dims 0)+ReduceMax")
