"""Who did it at the edges of what is listed: bodies, casts, constants that are moved, shapes, functions, float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from planted.onnx_faults import Graph, _body, _info, tokens
from planted.onnx_further import k

import precision_debug
from precision_debug.explain.subject import _find_unit_of_steps
from precision_debug.explain.units import INT8
from precision_debug.explain.unsteady import Unsteady, blame_unsteady
from precision_debug.numbers.narrowing import narrow_type, round_values
from precision_debug.reasons import say
from precision_debug.records import Culprit, Row, Status
from precision_debug.report.blame import group_by_constant
from precision_debug.report.model import Report

pytest.importorskip("onnxruntime")


def compared(g: Graph, outputs: Sequence[str], folder: Path, mode: str, other: Graph | None = None, **more: Any) -> Any:
    """The report of a graph; other: the baseline's, where there are two files."""
    path = g.save(folder / "m.onnx", outputs)
    if other is not None:
        more |= {"baseline_model": other.save(folder / "base.onnx", outputs), "baseline": "ort_fp32"}
    return precision_debug.compare(path, run_mode=mode, inputs=(other or g).feeds, **more)


def row(report: Report, name: str) -> Row:
    return next(one for one in report.rows if one.name == name)


def found(report: Report) -> tuple[Culprit, ...]:
    assert report.explanation is not None
    return report.explanation.culprits


def test_what_each_round_of_a_body_does_is_judged_at_the_outputs(tmp_path: Path) -> None:
    """An early iteration is beyond rounding at its own tensor, and a later one makes the output what it is."""
    g = Graph(seed=5)
    x = g.dense(tokens(g), 32, 32, "a")
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="b_go"),
            helper.make_node("Div", ["state", "much"], ["less"], name="b_div"),
            helper.make_node("Tanh", ["less"], ["next"], name="b_tanh"),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 8, 32])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 8, 32])],
        {"much": np.float32(3000)},
    )  # fmt: skip
    g.nodes.append(helper.make_node("Loop", [g.weight("n", np.int64(3)), "", x], ["lo"], name="node_lo", body=body))
    y = g.op("Mul", [g.op("Mul", ["lo", k(g, "u", 5e4)], "up"), k(g, "u2", 5e4)], "y")
    report = compared(g, [y], tmp_path, "ort_fp16_sim")
    first = found(report)[0]
    assert first.name in {"less@1", "less@2"}
    assert first.cause == "underflow"
    assert "lo" in first.keep  # what the body hands on is as small behind the loop
    kept = compared(g, [y], tmp_path, "ort_fp16_sim", node_block_list=",".join([*first.keep, "y"]))
    assert row(kept, "y").status is Status.PASS


def test_an_integer_that_becomes_a_float_is_rounded_by_the_cast(tmp_path: Path) -> None:
    g = Graph(seed=5)
    at = g.input("at", np.arange(5001, 5065).reshape(4, 16))
    x = g.op("Sin", [g.op("Cast", [at], "atf", to=TensorProto.FLOAT)], "y")
    first = found(compared(g, [x], tmp_path, "ort_bf16_sim"))[0]
    assert (first.name, first.cause) == ("atf", "amplified")


def test_a_constant_that_is_only_moved_is_told_where_it_is_first_seen(tmp_path: Path) -> None:
    g = Graph(seed=5)
    table = g.random.normal(size=(16, 16))
    table[3, 4] = 1e5
    w = g.op("Concat", [k(g, "table", table), k(g, "rest", g.random.normal(size=(16, 16)))], "w", axis=0)
    x = g.op("Mul", [tokens(g), k(g, "s", 1e-3)], "little")
    y = g.op("Tanh", [g.op("Mul", [g.op("MatMul", [x, w], "product"), k(g, "small", 1e-3)], "back")], "y")
    first = found(compared(g, [y], tmp_path, "ort_fp16_sim"))[0]
    assert (first.name, first.cause, first.evidence.get("weight")) == ("w", "weight_overflow", "table")


def test_a_constant_that_is_shared_with_what_stays_narrow_is_kept_whole(tmp_path: Path) -> None:
    g = Graph(seed=5)
    w = np.eye(32) * 0.1
    w[3, 4] = 1e5
    x = tokens(g)
    g.feeds["x"][..., 3] = 0
    one = g.op("MatMul", [x, k(g, "w", w)], "one")
    two = g.op("Mul", [g.op("ReduceMax", ["w"], "largest", keepdims=0), k(g, "small", 1e-4)], "two")
    report = compared(g, [one, two], tmp_path, "ort_fp16_sim", node_block_list="largest,two")
    assert row(report, "two").status is Status.PASS
    assert row(report, "one").status is Status.FAIL


def test_numbers_that_are_chosen_are_kept_for_who_amplifies_them_too(tmp_path: Path) -> None:
    """One operator finds the best, another tells how good they are: the scores are too coarse for both."""
    g = Graph(seed=5)
    score = g.op("Add", [g.dense(tokens(g), 32, 24, "a"), k(g, "o", 3000)], "score")
    who = g.op("ArgMax", [score], "who", axis=-1, keepdims=0)
    row = g.op("Gather", [k(g, "table", g.random.normal(size=(24, 5))), who], "row")
    best = g.op("ReduceMax", [score], "best", axes=[-1], keepdims=1)
    y = g.op("Mul", [row, g.op("Sub", [best, k(g, "o2", 3000)], "less")], "y")
    first = found(compared(g, [y], tmp_path, "ort_fp16_sim"))[0]
    assert first.name == "score"
    assert "best" in first.keep


def test_noise_in_a_body_is_the_only_one_to_blame(tmp_path: Path) -> None:
    g = Graph(seed=5)
    x = g.dense(tokens(g), 32, 32, "a")
    branch = [
        _body([helper.make_node("Identity", [x], [f"{key}_x"], name=f"{key}_i"),
               helper.make_node("RandomNormalLike", [f"{key}_x"], [f"{key}_noise"], name=f"{key}_n"),
               helper.make_node("Add", [x, f"{key}_noise"], [f"{key}_out"], name=f"{key}_a")],
              [], [_info(f"{key}_out", [2, 8, 32])], {})
        for key in ("then", "else")
    ]  # fmt: skip
    yes = g.op("Greater", [g.op("ReduceMean", [x], "mean", keepdims=0), k(g, "limit", -50)], "yes")
    g.nodes.append(helper.make_node("If", [yes], ["out"], name="node_if", then_branch=branch[0], else_branch=branch[1]))
    culprits = found(compared(g, [g.dense("out", 32, 8, "y")], tmp_path, "ort_opt"))
    assert [one.cause for one in culprits] == ["random"]


def test_an_output_of_another_shape_has_an_author(tmp_path: Path) -> None:
    def graph(keep: int) -> tuple[Graph, list[str]]:
        g = Graph(seed=5)
        x = g.op("ReduceMean", [g.dense(tokens(g), 32, 16, "a")], "mean", axes=[1], keepdims=keep)
        return g, [g.op("Tanh", [x], "y")]

    (base, _), (target, outputs) = graph(1), graph(0)
    culprits = found(compared(target, outputs, tmp_path, "ort_fp32", base))
    assert [(one.name, one.cause) for one in culprits] == [("mean", "files_differ")]
    assert culprits[0].evidence["name"] == "keepdims"


def test_indices_of_another_number_are_somebodys_rounding(tmp_path: Path) -> None:
    """How many elements are positive is decided by what rounding leaves of them."""
    g = Graph(seed=3)
    x = g.op("Add", [g.dense(tokens(g), 32, 16, "a"), k(g, "o", 500)], "moved")
    yes = g.op("Greater", [g.op("Sub", [x, k(g, "o2", 500)], "back"), k(g, "z", 0.3)], "yes")
    g.op("NonZero", [yes], "where")
    assert [one.name for one in found(compared(g, ["where"], tmp_path, "ort_bf16_sim"))] == ["moved"]


def test_what_both_files_quantise_excuses_no_difference_between_them(tmp_path: Path) -> None:
    def graph(zero: int) -> tuple[Graph, list[str]]:
        g = Graph(seed=5)
        x = g.dense(tokens(g), 32, 16, "a")
        g.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], ["q", "s", "z"], name="node_q"))
        w = g.weight("w", g.random.integers(0, 255, size=(16, 8)).astype(np.uint8))
        whole = g.op("MatMulInteger", ["q", w, "z", g.weight("wz", np.uint8(zero))], "whole")
        return g, [g.op("Mul", [g.op("Cast", [whole], "wf", to=TensorProto.FLOAT), "s"], "y")]

    (base, _), (target, outputs) = graph(120), graph(121)
    report = compared(target, outputs, tmp_path, "ort_fp32", base)
    assert [(one.name, one.cause) for one in found(report)] == [("whole", "files_differ")]
    assert row(report, "y").status is Status.FAIL
    assert not found(compared(base, outputs, tmp_path, "ort_fp32", base))


def test_a_sample_that_is_small_beside_the_others_is_not_another_input(tmp_path: Path) -> None:
    """All samples share the range of the largest, in which a small one is coarse: both sides are fed the same."""
    g = Graph(seed=5)
    y = g.dense(g.norm(tokens(g), 32, "n"), 32, 16, "y")
    path = g.save(tmp_path / "m.onnx", [y])
    np.savez(tmp_path / "in.npz", x=np.stack([g.feeds["x"] * size for size in (1.0, 9.0, 81.0)]))
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=str(tmp_path / "in.npz"), samples_axis=0)
    assert "inputs_differ" not in {one.cause for one in found(report)}
    assert found(report)[0].name == "x"


@pytest.mark.parametrize("named", ["gn", "node_gn", "_inlfunc_GroupNormalization_Deviation"])
def test_a_function_that_is_taken_apart_is_kept_whole(named: str, tmp_path: Path) -> None:
    """By its output, its node, or a tensor that only ONNX Runtime knows, as a report names it."""
    g = Graph(seed=5, opset=21)
    x = g.op("Add", [g.input("x", g.random.normal(size=(2, 8, 4, 4)).astype(np.float32)), k(g, "o", 200)], "moved")
    g.op("GroupNormalization", [x, k(g, "g", np.ones(8)), k(g, "b", np.zeros(8))], "gn", num_groups=4)
    y = g.op("Tanh", ["gn"], "y")
    inside = "_inlfunc_GroupNormalization_Deviation"
    kept = compared(g, [y], tmp_path, "ort_bf16_sim", node_block_list=f"moved,{named},y")
    assert "rounded" not in row(kept, inside).view
    assert "rounded" in row(compared(g, [y], tmp_path, "ort_bf16_sim"), inside).view


def test_float32_has_culprits_where_the_reference_has_float64(tmp_path: Path) -> None:
    g = Graph(seed=5)
    x = g.op("Mul", [g.dense(tokens(g), 32, 16, "a"), k(g, "s", 1e-5)], "small")
    y = g.op("Sub", [g.op("Exp", [x], "e"), k(g, "one", 1)], "y")
    first = found(compared(g, [y], tmp_path, "ort_fp32", baseline="onnx_ref"))[0]
    assert (first.name, first.cause) == ("e", "cancellation")


def test_two_frameworks_attributes_are_held_against_each_other(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")

    def graph(strides: list[int]) -> tuple[Graph, list[str]]:
        g = Graph(seed=5)
        x = g.input("x", g.random.normal(size=(1, 3, 12, 12)).astype(np.float32))
        w = g.weight("w", g.random.normal(size=(4, 3, 3, 3)))
        return g, [g.op("Tanh", [g.op("Conv", [x, w], "c", dilations=strides, pads=[1, 1, 2, 2])], "y")]

    (base, _), (target, outputs) = graph([1, 2]), graph([2, 1])
    first = found(compared(target, outputs, tmp_path, "ov_fp32", base))[0]
    assert (first.name, first.cause) == ("c", "files_differ")


def _looped(g: Graph, op: str, value: float, turns: int) -> str:
    """A state that one operator and a Relu change again and again."""
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="b_go"),
            helper.make_node(op, ["state", "step"], ["moved"], name="b_step"),
            helper.make_node("Relu", ["moved"], ["next"], name="b_relu"),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 4])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 4])],
        {"step": np.float32(value)},
    )  # fmt: skip
    x = g.input("x", g.random.uniform(1, 2, size=(2, 4)).astype(np.float32))
    g.nodes.append(helper.make_node("Loop", [g.weight("n", np.int64(turns)), "", x], ["lo"], name="node_lo", body=body))
    return g.op("Mul", ["lo", k(g, "half", 0.5)], "y")


@pytest.mark.parametrize(("op", "value"), [("Mul", 0.999), ("Sub", 0.0017), ("Add", 0.0017)])
def test_a_state_that_a_narrow_type_stops_has_an_author(op: str, value: float, tmp_path: Path) -> None:
    """Each step is less than half of what the type can tell there; of the baseline's state its rounding is ordinary."""
    g = Graph(seed=5)
    y = _looped(g, op, value, 80)
    report = compared(g, [y], tmp_path, "ort_bf16_sim")
    (only,) = found(report)
    assert (only.name.partition("@")[0], only.cause) == ("moved", "drift")
    assert only.evidence["depth"] == 80
    kept = compared(g, [y], tmp_path, "ort_bf16_sim", node_block_list=",".join([*only.keep, "y"]))
    assert row(kept, "y").status is Status.PASS


def test_a_loop_of_many_steps_that_a_type_can_tell_accuses_nobody(tmp_path: Path) -> None:
    g = Graph(seed=5)
    assert not found(compared(g, [_looped(g, "Mul", 1.0, 100)], tmp_path, "ort_bf16_sim"))
    g = Graph(seed=5)
    assert not found(compared(g, [_looped(g, "Add", 0.25, 60)], tmp_path, "ort_bf16_sim"))


def test_a_mask_of_ones_and_zeros_does_not_raise_what_may_be_lost(tmp_path: Path) -> None:
    """(1 - mask) times -10000: ones and zeros are exact in FP16, so the scores of what is kept are off by nothing."""
    g = Graph(seed=7)
    x = tokens(g)
    kept = np.ones((2, 1, 8), np.float32)
    kept[1, :, 6:] = 0
    mask = g.input("mask", kept)
    hidden = g.op("Mul", [g.op("Sub", [k(g, "one", 1.0), mask], "inverse"), k(g, "low", -1e4)], "hidden")
    for layer in range(3):
        x = g.attention(g.norm(x, 32, f"n{layer}"), 32, f"a{layer}", hidden)
    report = compared(g, [x], tmp_path, "ort_fp16_sim", explain="full")
    assert report.explanation is not None
    assert report.explanation.actual is not None
    assert report.explanation.expected is not None
    assert report.explanation.expected < 5 * report.explanation.actual
    assert report.explanation.allowed == pytest.approx(24 * 2.0**-11, rel=0.5)


def test_ordinary_rounding_is_nobodys_beside_a_random_operator_whoever_enlarges_it() -> None:
    """A dropout's runs differ by as much as the sides: what an addition in front of it seems to enlarge is that."""
    rows = {name: SimpleNamespace(op_type="Dropout") for name in ("a", "drop", "y")}
    subject: Any = SimpleNamespace(row_of=rows, meta_of={}, region_of={}, descendants=lambda _name: {"y"})
    before = [
        Culprit(name=name, node="", op_types=(), cause=cause, units=units, amplifier=amplifier)
        for name, cause, units, amplifier in (
            ("x", "amplified", 0.4, "a"), ("m", "coarse", 0.5, "a"),
            ("y", "coarse", 20.0, ""), ("w", "overflow", 0.1, ""),
        )
    ]  # fmt: skip
    once = Unsteady(name="drop", between=0.8, explains=True)
    after = blame_unsteady(subject, tuple(before), once, "isolated", "y")
    assert [one.name for one in after] == ["drop", "w"]
    less = dataclasses.replace(once, explains=False)
    assert blame_unsteady(subject, tuple(before), less, "isolated", "y") == tuple(before)


@pytest.mark.parametrize("arithmetic", ["bfloat16", "float16", "float32"])
def test_steps_that_a_narrow_float_makes_fall_otherwise_are_expected(arithmetic: str) -> None:
    """A quantised layer between layers in BF16: what is rounded twice falls to the next step as often as the first
    rounding is a part of it."""
    exact = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    before = round_values(exact, narrow_type(arithmetic)) if arithmetic != "float32" else exact
    step = 2 * INT8  # half a step is INT8 of the RMS
    off = float(np.sqrt(np.mean(np.square(np.rint(before / step) - np.rint(exact / step))))) * step
    subject: Any = SimpleNamespace(arithmetic=arithmetic, held_as={"x": "int8"})
    assert off <= _find_unit_of_steps(subject) <= max(2.5 * off, INT8 / 10), off


def test_a_size_with_which_the_baseline_does_not_run_is_named(tmp_path: Path) -> None:
    """Another number of groups, of a norm that the engine writes in parts: its own sizes fit no other tensor."""
    files = []
    for groups in (4, 2):
        g = Graph(seed=3, opset=21)
        x = g.input("x", g.random.standard_normal((2, 8, 6, 6)).astype(np.float32))
        told = [g.conv(x, 8, 8, "a"), g.weight("gain", np.ones(8)), g.weight("shift", np.zeros(8))]
        norm = g.op("GroupNormalization", told, "n", num_groups=groups)
        files.append(g.save(tmp_path / f"{groups}.onnx", [g.conv(norm, 8, 4, "y")]))
    report = precision_debug.compare(
        files[1], baseline_model=files[0], run_mode="ort_fp32", baseline="ort_fp32", inputs=g.feeds
    )
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.cause, first.evidence["base"], first.evidence["target"]) == ("files_differ", 4, 2)
    assert first.share is None  # not measured
    named = report.explanation.culprits  # the shape that is made of the same number, too
    assert (len(named), len(group_by_constant(named))) == (2, 1)
    of_each = [dataclasses.replace(one, evidence={**one.evidence, "what": say("an_attribute")}) for one in named]
    assert len(group_by_constant(of_each)) == 2  # an operator has its attributes by itself
