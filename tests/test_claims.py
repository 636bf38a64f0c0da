"""A pass is proved claim by claim: whatever options are given, no wrong pair comes to status 0, and no claim can be
left out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import begins_approved, holds_approved
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug import Report, compare
from precision_debug.claims import (
    NEEDED,
    State,
    Verdict,
    claims_of_files,
    held,
    opened,
    refuted,
    status_of,
    verdict_of,
    verdict_of_files,
)
from precision_debug.cli import main
from precision_debug.errors import PrecisionDebugError
from precision_debug.inspector import EngineLayer, EngineTensor
from precision_debug.products.training.claims import claims_of_training, verdict_of_training
from precision_debug.products.training.rank_faults import RankFault
from precision_debug.products.training.training_faults import Departure
from precision_debug.reasons import say
from precision_debug.recording.rank_log import RankedStep, RankStep
from precision_debug.recording.training_log import ParameterNumbers, StepNumbers, written
from precision_debug.records import Doubt, Explanation, InputInfo, MetricChange, Row, SamplesRead, Side, Status
from precision_debug.report.difference import difference

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from attack.pairs import drawn_pairs  # noqa: E402

EXAMPLES = int(os.environ.get("PRECISION_DEBUG_EXAMPLES", "40"))
"""Of the property test: so many that continuous integration can pay for them; a night may take 5000."""
WRONG = ("triple", "nan", "shape", "missing", "unreturned", "more", "type", "inside_too")


def save(path: Path, wrong: str = "") -> None:
    """x -> up -> relu -> down -> y, and relu -> score -> z: two final outputs and two tensors before them."""
    rng = np.random.default_rng(0)
    up, down, score = (rng.normal(0, 0.3, size).astype(np.float32) for size in ((16, 32), (32, 4), (32, 3)))
    if wrong == "triple":
        down = down * 3
    elif wrong == "nan":
        down[0, 0] = np.nan
    elif wrong == "shape":
        down = np.concatenate([down, down[:, :1]], axis=1)
    elif wrong == "inside_too":
        up, down = up * 3, down / 7
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in (("up", up), ("d", down), ("s", score))]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "up"], ["hidden"], name="up"),
        onnx.helper.make_node("Relu", ["hidden"], ["active"], name="relu"),
        onnx.helper.make_node("MatMul", ["active", "d"], ["y" if wrong != "type" else "y_float"], name="down"),
        onnx.helper.make_node("MatMul", ["active", "s"], ["z"], name="score"),
    ]
    if wrong == "type":
        nodes.append(onnx.helper.make_node("Cast", ["y_float"], ["y"], to=7, name="cast"))
    outputs = {"y": ([8, down.shape[1]], 7 if wrong == "type" else 1), "z": ([8, 3], 1)}
    if wrong == "missing":
        del outputs["y"]
        nodes = [node for node in nodes if node.name != "down"]
    elif wrong == "unreturned":
        del outputs["y"]
    elif wrong == "more":
        outputs["hidden"] = ([8, 32], 1)
    info = [onnx.helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in outputs.items()]
    fed = [onnx.helper.make_tensor_value_info("x", 1, [8, 16])]
    graph = onnx.helper.make_graph(nodes, "g", fed, info, weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """right.onnx, and one file for each way to be wrong."""
    made = tmp_path_factory.mktemp("pairs")
    for wrong in ("", *WRONG):
        save(made / f"{wrong or 'right'}.onnx", wrong)
    return made


def of(folder: Path, target: str, **options: Any) -> Report:
    return compare(folder / f"{target}.onnx", run_mode="ort_opt", baseline_model=folder / "right.onnx", **options)


def states(report: Report, code: str) -> list[State]:
    return [claim.state for claim in report.claims if claim.code == code]


MARKS: list[dict[str, Any]] = [
    {}, {"marks": ("hidden",)}, {"marks": ("re:hid.*",)}, {"marks": ("z",)}, {"marks_between": ("hidden", "active")},
    {"fused_only": True}, {"marks": ("hidden",), "validate": True},
]  # fmt: skip


@pytest.mark.parametrize("marks", MARKS, ids=str)
@pytest.mark.parametrize("wrong", ["triple", "nan"])
def test_final_outputs_are_compared_beside_whatever_is_marked(
    folder: Path, wrong: str, marks: dict[str, Any]
) -> None:
    report = of(folder, wrong, explain="off", **marks)
    assert (report.exit_status, report.verdict) == (1, Verdict.FAIL)
    assert {row.name for row in report.outputs if row.comparison is not None} == {"y", "z"}
    alone = {row.name for row in report.rows} - {"y", "z"}
    if "marks" in marks:
        assert alone <= {"hidden"}, "of the tensors between, only what is marked"


def test_outputs_are_left_out_by_an_option_alone_and_that_is_said_first(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = of(folder, "triple", marks=("hidden",), without_outputs=True)
    assert (report.verdict, report.exit_status) == (Verdict.INCONCLUSIVE, 1)
    assert [doubt.code for doubt in report.doubts][:1] == ["outputs_left_out"]
    words = ["--model_file", str(folder / "triple.onnx"), "--baseline_model", str(folder / "right.onnx")]
    words += ["--run_mode", "ort_opt", "--mark", "hidden", "--without_outputs", "--output", str(tmp_path / "r.json")]
    assert main(words) == 1
    said = capsys.readouterr().out.splitlines()
    assert "No output was judged" in said[0]
    assert not any("No culprit: the outputs" in line for line in said)


def test_a_right_pair_passes_and_says_what_that_rests_on(folder: Path) -> None:
    report = of(folder, "right", marks=("hidden",))
    assert report.exit_status == 0
    assert {claim.code for claim in report.claims} >= set(NEEDED)
    assert {claim.state for claim in report.claims} == {State.HELD}
    plain = report.to_dict()["summary"]
    assert [claim["state"] for claim in plain["claims"]] == ["held"] * len(report.claims)
    compared = next(claim for claim in plain["claims"] if claim["code"] == "outputs_compared")
    assert compared["evidence"]["outputs"] == 2
    assert "2 final outputs compared" in plain["rests_on"]


def test_the_terminal_says_in_one_line_what_a_pass_rests_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model_file", str(folder / "right.onnx"), "--run_mode", "ort_opt", "--lang", "en"]
    assert main([*words, "--output", str(tmp_path / "r.json"), "--output", str(tmp_path / "r.html")]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("rests on")]
    assert len(said) == 1
    assert "2 final outputs compared" in said[0]
    assert holds_approved((tmp_path / "r.html").read_text(encoding="utf-8"))


MARKING = [["--mark", "re:hid.*"], ["--marks_between", "hidden", "active", "--validate"]]
"""Marks that leave out ``y``, which is off by 200 %, as they are typed."""


def test_a_sweep_judges_the_outputs_that_its_marks_leave_out(folder: Path, tmp_path: Path) -> None:
    sweep = ["sweep", "--run_modes", "ort_opt", "--baseline_model", str(folder / "right.onnx"), "--explain", "off",
             "--speed_seconds", "0.01", "--quiet", "--output", str(tmp_path / "s.json")]  # fmt: skip
    for marks in MARKING:
        assert main([*sweep, "--model_file", str(folder / "triple.onnx"), *marks]) == 1, marks
        rows = json.loads((tmp_path / "s.json").read_text())["table"]
        assert {row["verdict"] for row in rows if row["mode"] == "ort_opt"} == {Verdict.FAIL}
    assert main([*sweep, "--model_file", str(folder / "right.onnx"), *MARKING[0]]) == 0


ASSERTED = """
import pytest

MARKS = {marks}

@pytest.mark.parametrize("model", ["right", "triple"])
@pytest.mark.parametrize("marks", MARKS, ids=str)
def test_it(assert_precision, model, marks):
    assert_precision(
        r"{folder}/" + model + ".onnx", run_mode="ort_opt", baseline_model=r"{folder}/right.onnx", explain="off",
        **marks
    )
"""


def test_an_asserted_precision_judges_the_outputs_that_its_marks_leave_out(folder: Path, tmp_path: Path) -> None:
    """In a process of its own, since the plugin is pytest's."""
    from test_pytest_plugin import run

    marks = [one for one in MARKS if one]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(ASSERTED.format(marks=marks, folder=folder))
    status, said = run(tmp_path, "--junitxml", "out.xml")
    assert status == 1, said
    cases = ElementTree.parse(tmp_path / "out.xml").iter("testcase")
    failed = {str(case.get("name")): case.find("failure") is not None for case in cases}
    assert len(failed) == 2 * len(marks)
    assert {name for name, bad in failed.items() if bad} == {name for name in failed if "triple" in name}, said


TOLERANCES: list[dict[str, Any]] = [
    {}, {"atol": 1e-3, "rtol": 1e-3}, {"atol": 30.0}, {"atol": 1e-3, "check_error_stat": "median"},
    {"equal_nan": True}, {"atol": 1e-3, "tolerance_rule": "either"},
]  # fmt: skip


@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES <= 100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    wrong=st.sampled_from(WRONG), marks=st.sampled_from(MARKS), tolerance=st.sampled_from(TOLERANCES),
    flags=st.sets(st.sampled_from(["validate", "without_outputs", "allow_non_finite", "every_iteration", "top1"])),
    explain=st.sampled_from(["off", "off", "fast"]), seed=st.integers(0, 3),
    rename=st.sampled_from([{}, {"y": "z"}, {"z": "y"}, {"hidden": "hidden"}]),
)  # fmt: skip
@example(wrong="triple", marks=MARKS[1], tolerance={}, flags=set(), explain="off", seed=0, rename={})
@example(wrong="missing", marks=MARKS[1], tolerance={}, flags=set(), explain="off", seed=0, rename={})
@example(wrong="nan", marks={}, tolerance={"equal_nan": True}, flags={"allow_non_finite"}, explain="off", seed=0,
         rename={})  # fmt: skip
def test_no_options_bring_a_wrong_pair_to_status_0(
    folder: Path, wrong: str, marks: dict[str, Any], tolerance: dict[str, Any], flags: set[str], explain: str,
    seed: int, rename: dict[str, str],
) -> None:  # fmt: skip
    options = {**marks, **tolerance, **dict.fromkeys(flags, True), "explain": explain, "seed": seed}
    report = None
    with contextlib.suppress(PrecisionDebugError):  # whose exit status is never 0
        report = of(folder, wrong, renames=rename, **options)
    if report is None:
        return
    assert report.exit_status != 0, report.claims
    assert any(claim.state is not State.HELD for claim in report.claims)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES <= 100,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip
@given(seed=st.integers(0, 1 << 30))
def test_a_drawn_pair_passes_where_it_is_right_and_nowhere_else(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Models, changes, inputs, modes, marks, criteria and flags: what is right is told by plain sessions."""
    drawn_pairs(random.Random(seed), tmp_path_factory.mktemp("pair"))


FP32 = Side(mode="ort_fp32", backend="onnxruntime", model="m", precision="float32")


def report_of(*rows: Row, **changes: Any) -> Report:
    given_ = {"rows": rows, "target": dataclasses.replace(FP32, mode="ort_opt"), "baseline": FP32, "scores": {}}
    return dataclasses.replace(make_report(0), **{**given_, **changes})


def exact(index: int = 0, **changes: Any) -> Row:
    return make_row(index, 1e-7, comparison=make_comparison(1e-7, target=make_stats(), mismatched=0), **changes)


def both_sides(**numbers: int) -> Row:
    stats = make_stats(**numbers)
    return make_row(1, 1e-7, comparison=make_comparison(1e-7, base=stats, target=stats, mismatched=0), is_output=True,
                    name="y", inputs=("h",))  # fmt: skip


def of_types(base: str, target: str) -> Row:
    """An output that is equal on both sides, and of another type."""
    both = make_comparison(0.0, base=make_stats(dtype=base), target=make_stats(dtype=target), mismatched=0)
    return make_row(1, 0.0, comparison=both, is_output=True, name="y")


def of_numbers(**numbers: Any) -> Row:
    """An output that is equal on both sides."""
    stats = make_stats(**numbers)
    return make_row(1, 0.0, comparison=make_comparison(0.0, base=stats, target=stats, mismatched=0), is_output=True,
                    name="y")  # fmt: skip


def doubted(code: str) -> dict[str, Any]:
    return {"target": dataclasses.replace(FP32, mode="ort_opt", doubts=(Doubt(code=code),))}


def asked(**changes: Any) -> dict[str, Any]:
    """A report whose command has other options."""
    return {"spec": dataclasses.replace(make_report(0).spec, **changes)}


def noted(code: str, **values: Any) -> dict[str, Any]:
    return {"notes": (say(code, **values),)}


def side(**changes: Any) -> dict[str, Any]:
    return {"target": dataclasses.replace(FP32, mode="ort_opt", **changes)}


def changed(target: float, **changes: Any) -> dict[str, Any]:
    return {"metric": MetricChange(**{"name": "accuracy", "baseline": 0.9, "target": target, "samples": 50, **changes})}


UNASKED = dataclasses.replace(make_report(0).spec.tolerance, given=False)
HOOKS = {"baseline": dataclasses.replace(FP32, backend="recording"), **side(backend="recording")}
"""Two sides of which nothing says which tensors are final."""
PASSES = (exact(is_output=True, name="y"),)
HALF = make_row(1, 1e-7, name="h", comparison=make_comparison(
    1e-7, base=make_stats(dtype="float16"), target=make_stats(), mismatched=0))  # fmt: skip
UNSEEN = tuple(make_row(n, None, status=Status.NOT_COMPARED, reason="x") for n in range(2, 8))
LOST = tuple(
    one for n in range(2, 8)
    for one in (make_row(n, None, reason="x"), make_row(n + 6, None, status=Status.UNMATCHED, reason="x"))
)  # fmt: skip
INPUT = exact(1, op_type="Input", name="x")
ZERO = InputInfo(name="x", dtype="float32", shape=(2, 3), sha256="", min=0.0, max=0.0)
EMPTY = make_stats(elements=0, shape=(0,))
SHOWN = EngineLayer(
    name="conv", layer_type="Convolution", weights_type="FP32",
    inputs=(EngineTensor(name="x", dtype="FP32"),), outputs=(EngineTensor(name="y", dtype="FP32"),),
)  # fmt: skip

OPEN, REFUTED = State.OPEN, State.REFUTED
AGAINST: list[tuple[str, State, str, tuple[Row, ...], dict[str, Any]]] = [
    ("metric", OPEN, "metric_no_number", PASSES, changed(0.9, baseline=float("nan"))),
    ("metric", REFUTED, "metric_beyond", PASSES, {**changed(0.8), **asked(metric_drop="0.05")}),
    ("metric", REFUTED, "metric_beyond", PASSES, {**changed(0.8), **asked(metric_drop="5%")}),
    ("metric", REFUTED, "metric_fell_alone", PASSES, changed(0.5)),
    ("metric", REFUTED, "metric_fell", PASSES, changed(0.5, low=0.3, high=0.5)),
    ("ran_as_asked", OPEN, "precision_not_run", PASSES, doubted("precision_not_run")),
    ("ran_as_asked", OPEN, "precision_not_run", PASSES, doubted("precision_not_run") | {"baseline": dataclasses.replace(
        FP32, doubts=(Doubt(code="precision_not_run"),))}),
    ("ran_as_asked", OPEN, "a code of another wheel", PASSES, doubted("a code of another wheel")),
    ("ran_as_asked", OPEN, "precision_unseen", PASSES, side(precision="float16")),
    ("ran_as_asked", OPEN, "precision_not_run", PASSES, {**side(precision="float16"), "layers": (SHOWN,)}),
    ("outputs_compared", OPEN, "output_not_compared", (*PASSES, make_row(1, None, is_output=True)), {}),
    ("outputs_compared", OPEN, "output_no_gradient", (
        *PASSES,
        make_row(1, None, is_output=True, status=Status.NOT_COMPARED, reason=say("step_no_gradient")),
    ), {}),
    ("outputs_compared", OPEN, "outputs_left_out", PASSES, asked(without_outputs=True)),
    ("outputs_compared", OPEN, "no_output_known", (exact(),), {}),
    ("outputs_compared", OPEN, "no_output_known", (exact(),), side(backend="recording")),
    ("outputs_compared", OPEN, "output_empty", (*PASSES, make_row(
        1, 1e-7, status=Status.INCONCLUSIVE, is_output=True,
        comparison=make_comparison(1e-7, base=EMPTY, target=EMPTY, mismatched=0))), {}),
    ("outputs_compared", OPEN, "output_hidden", (*PASSES, exact(1, status=Status.INCONCLUSIVE, is_output=True)), {}),
    ("outputs_compared", OPEN, "output_not_compared", PASSES, {
        "baseline": dataclasses.replace(FP32, outputs=("y", "boxes"))}),
    ("outputs_compared", OPEN, "output_not_compared", PASSES, side(outputs=("y", "boxes"))),
    ("outputs_compared", OPEN, "output_not_returned", (*PASSES, exact(1, name="z", is_output=True)), {
        "baseline": dataclasses.replace(FP32, outputs=("y", "z")), **side(outputs=("y",))}),
    ("outputs_compared", OPEN, "output_of_other_kind", (of_types("float32", "int64"),), {}),
    ("outputs_compared", OPEN, "output_of_other_kind", (of_types("bool", "uint8"),), {}),
    ("outputs_compared", OPEN, "outputs_tell_nothing", (of_numbers(min=0.0, max=0.0, rms=0.0),), {}),
    ("outputs_compared", OPEN, "outputs_tell_nothing", (of_numbers(min=None, max=None, inf=make_stats().elements),),
     asked(allow_non_finite=True)),
    ("outputs_compared", OPEN, "outputs_not_judged", (*PASSES, exact(1, name="z", is_output=True)), {
        "checks": {"y": 1.0}}),
    ("outputs_finite", REFUTED, "output_non_finite", (both_sides(nan=3),), {}),
    ("outputs_finite", REFUTED, "output_non_finite", (both_sides(inf=1),), {}),
    ("tensors_seen", OPEN, "nothing_seen", (), {}),
    ("tensors_seen", OPEN, "nothing_compared", UNSEEN, HOOKS),
    ("tensors_seen", OPEN, "few_seen", (exact(), *UNSEEN), HOOKS),
    ("tensors_seen", OPEN, "few_compared", (exact(), *LOST), HOOKS),
    ("all_read", OPEN, "iterations_unread", PASSES, doubted("iterations_unread")),
    ("all_read", OPEN, "stopped_early", PASSES, noted("fail_fast", name="h")),
    ("all_read", OPEN, "stopped_early", PASSES, noted("fail_fast_sample", sample=1)),
    ("all_read", OPEN, "samples_unread", PASSES, {"samples": SamplesRead(given=5, asked=5, read=4)}),
    ("all_read", OPEN, "samples_unread", PASSES, {
        "samples": SamplesRead(given=5, asked=1, read=1), **noted("one_recorded", count=5)}),
    ("all_read", OPEN, "files_unread", PASSES, noted("dump_skipped", count=1, file="a.npy", why="cut off")),
    ("all_read", OPEN, "inputs_all_zero", PASSES, {"inputs": (ZERO,)}),
    ("all_read", OPEN, "inputs_unknown", (*PASSES, INPUT), {"inputs": ()}),
    ("unchanged", OPEN, "model_changed", PASSES, doubted("model_changed")),
    ("unseen_inputs", OPEN, "off_on_others", PASSES, doubted("off_on_others")),
    ("unseen_inputs", OPEN, "only_calibrated", PASSES, doubted("only_calibrated")),
    ("criterion", OPEN, "nothing_decided", (exact(status=Status.INCONCLUSIVE),), HOOKS),
    ("within", REFUTED, "", (exact(status=Status.FAIL, is_output=True, name="y"),), {}),
    ("within", REFUTED, "", PASSES, {"checks": {"y": 0.5}}),
    ("within", REFUTED, "", PASSES, {"asserted": (refuted("within", name="y"),)}),
    ("repeatable", OPEN, "draws_numbers", PASSES, doubted("draws_numbers")),
    ("repeatable", OPEN, "differs_from_itself", PASSES, doubted("differs_from_itself")),
    ("repeatable", OPEN, "fails_again", PASSES, doubted("fails_again")),
    ("ended", OPEN, "ended_early", PASSES, {"failure": "killed"}),
    ("thresholds", OPEN, "x", PASSES, {"asserted": (opened("thresholds", Doubt(code="x")),)}),
]  # fmt: skip


def ways(one: object) -> str:
    return one if isinstance(one, str) else ""


@pytest.mark.parametrize(("code", "state", "why", "rows", "changes"), AGAINST, ids=ways)
def test_each_claim_is_open_or_refuted_by_what_speaks_against_it_and_no_other_is(
    code: str, state: State, why: str, rows: tuple[Row, ...], changes: dict[str, Any]
) -> None:
    assert report_of(*PASSES).exit_status == 0
    report = report_of(*rows, **changes)
    against = [one for one in report.claims if one.state is not State.HELD]
    assert [(one.code, one.state, one.why.code if one.why else "") for one in against] == [(code, state, why)]
    assert State.HELD not in states(report, code)
    assert report.verdict is (
        Verdict.FAIL if state is State.REFUTED else Verdict.PARTIAL if code == "ended" else Verdict.INCONCLUSIVE
    )
    needed = [one.code for one in report.claims if one.code in NEEDED]
    assert needed == list(NEEDED), "each once, the weightiest first"


HOLDS: list[tuple[str, str, str, tuple[Row, ...], dict[str, Any]]] = [
    ("metric", "", "", PASSES, changed(0.9)),
    ("metric", "", "", PASSES, changed(0.8, low=-0.1, high=0.3)),
    ("metric", "given", "", PASSES, {**changed(0.88), **asked(metric_drop="0.05")}),
    ("metric", "given", "", PASSES, {**changed(0.88), **asked(metric_drop="5%")}),
    ("ran_as_asked", "", "", PASSES, {}),
    ("ran_as_asked", "", "not_fp32", (*PASSES, HALF), {}),
    ("outputs_compared", "", "", PASSES, {}),
    ("outputs_compared", "function", "", PASSES, {"checks": {"y": 1.0}}),
    ("outputs_compared", "hooks", "", (exact(),), HOOKS),
    ("outputs_compared", "", "", (of_numbers(dtype="int64", min=0, max=0),), {}),
    ("outputs_compared", "", "", (of_numbers(min=0.0, max=0.0), *PASSES), {}),
    ("outputs_compared", "function", "", PASSES, {"checks": {"": 1.0}}),
    ("outputs_finite", "", "", PASSES, {}),
    ("outputs_finite", "allowed", "", (both_sides(nan=3),), asked(allow_non_finite=True)),
    ("outputs_finite", "function", "", (both_sides(nan=3),), {"checks": {"y": 1.0}}),
    ("tensors_seen", "", "", PASSES, {}),
    ("tensors_seen", "", "few_seen_inside", (*PASSES, *UNSEEN), {}),
    ("tensors_seen", "", "few_compared_inside", (*PASSES, *LOST), {}),
    ("all_read", "", "", PASSES, {}),
    ("all_read", "", "", PASSES, {"inputs": (ZERO, dataclasses.replace(ZERO, name="ids", dtype="int64"))}),
    ("all_read", "samples", "", PASSES, {"samples": SamplesRead(given=5, asked=5, read=5)}),
    ("unchanged", "", "", PASSES, {}),
    ("unchanged", "same", "", PASSES, side(stored="same")),
    ("unchanged", "unknown", "", PASSES, side(stored="unknown")),
    ("unseen_inputs", "", "", PASSES, {}),
    ("unseen_inputs", "tried", "", PASSES, noted("calibrated_here", count=2, here=0.1, there=0.2)),
    ("criterion", "asserted", "", PASSES, {"asserted": (held("thresholds"),)}),
    ("criterion", "function", "", PASSES, {"checks": {"y": 1.0}}),
    ("criterion", "metric", "", PASSES, {**changed(0.88), **asked(metric_drop="5%", tolerance=UNASKED)}),
    ("criterion", "given", "", PASSES, {}),
    ("criterion", "derived", "", PASSES, {
        "explanation": Explanation(state="healthy", allowed=0.01), **asked(tolerance=UNASKED)}),
    ("criterion", "usual", "", PASSES, asked(tolerance=UNASKED)),
    ("within", "", "", PASSES, {}),
    ("within", "", "", PASSES, {"checks": {"y": 1.0}}),
    ("within", "", "", PASSES, {"asserted": (held("within"),)}),
    ("within", "metric", "", (exact(status=Status.FAIL, is_output=True, name="y"),), {
        **changed(0.88), **asked(metric_drop="5%", tolerance=UNASKED)}),
    ("repeatable", "", "", PASSES, {}),
    ("repeatable", "", "run_once", PASSES, asked(run_once=True)),
    ("ended", "", "", PASSES, {}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "kind", "why", "rows", "changes"), HOLDS, ids=ways)
def test_each_claim_holds_by_each_kind_of_evidence(
    code: str, kind: str, why: str, rows: tuple[Row, ...], changes: dict[str, Any]
) -> None:
    report = report_of(*rows, **changes)
    assert report.exit_status == 0
    found = [one for one in report.claims if one.code == code]
    assert (kind, why) in [(one.evidence.get("kind", ""), one.why.code if one.why else "") for one in found]
    assert len(found) == (2 if why == "not_fp32" else 1), "what is only told stands beside the evidence"


@pytest.mark.parametrize("code", NEEDED)
def test_a_claim_that_nobody_makes_is_open(code: str) -> None:
    """So that one which is forgotten, or left out by a mistake, fails every pass."""
    claims = report_of(*PASSES).claims
    assert verdict_of(claims, NEEDED, asked=True) is Verdict.PASS
    assert verdict_of([one for one in claims if one.code != code], NEEDED, asked=True) is Verdict.INCONCLUSIVE


def test_the_fold() -> None:
    true, doubt = held("a"), Doubt(code="d")
    assert verdict_of([true], ["a"], asked=True) is Verdict.PASS
    assert verdict_of([true], ["a"], asked=False) is Verdict.EXPECTED
    assert verdict_of([true, opened("b", doubt)], ["a"], asked=True) is Verdict.INCONCLUSIVE
    assert verdict_of([true, opened("b", doubt), refuted("c")], ["a"], asked=True) is Verdict.FAIL
    assert verdict_of([refuted("c"), opened("ended", doubt)], [], asked=True) is Verdict.PARTIAL
    assert [status_of([one]) for one in Verdict] == [0, 0, 1, 1, 3]
    assert (status_of(["within tolerance", "partial"]), status_of([]), status_of(["of another version"])) == (3, 1, 1)


def test_nan_on_both_sides_names_who_makes_it_unless_it_is_allowed() -> None:
    made = exact(name="h", index=0)
    stats = make_stats(nan=2)
    maker = make_row(1, 1e-7, name="s", op_type="Sqrt", inputs=("h",),
                     comparison=make_comparison(1e-7, base=stats, target=stats, mismatched=0))  # fmt: skip
    mask = dataclasses.replace(maker, name="mask", op_type="Where", index=0, inputs=())
    last = dataclasses.replace(maker, name="y", op_type="MatMul", index=2, inputs=("s",), is_output=True)
    report = report_of(mask, made, maker, last)
    why = next(claim.why for claim in report.claims if claim.state is State.REFUTED)
    assert why is not None
    assert (why.code, why.values["by"], why.values["op_type"]) == ("output_non_finite", "s", "Sqrt")
    allowed = dataclasses.replace(report, spec=dataclasses.replace(report.spec, allow_non_finite=True))
    assert states(allowed, "outputs_finite") == [State.HELD]
    tolerance = dataclasses.replace(report.spec.tolerance, equal_nan=True)
    equal = dataclasses.replace(report, spec=dataclasses.replace(report.spec, tolerance=tolerance))
    assert states(equal, "outputs_finite") == [State.HELD]
    fed = dataclasses.replace(maker, name="x", op_type="Input", index=0, inputs=())
    report = report_of(fed, dataclasses.replace(last, inputs=("x",)))
    why = next(claim.why for claim in report.claims if claim.state is State.REFUTED)
    assert why is not None
    assert why.code == "output_non_finite_fed"
    report = report_of(fed, dataclasses.replace(last, inputs=()))  # of a folder of tensors: nobody knows what it reads
    assert [claim.why.code for claim in report.claims if claim.state is State.REFUTED and claim.why] == [why.code]


def saved(folder: Path, tmp_path: Path) -> dict[str, Any]:
    """What right.onnx gave, as Polygraphy's JSON: {"lst": [[runner, [iteration]]]}."""
    path = tmp_path / "outputs.json"
    words = ["--model_file", str(folder / "right.onnx"), "--run_mode", "ort_opt", "--inputs", str(folder / "x.npz")]
    assert main([*words, "--save_outputs", str(path), "--output", str(tmp_path / "r.json"), "--quiet"]) == 0
    whole: dict[str, Any] = json.loads(path.read_text())
    whole["lst"] = whole["lst"][:1]
    return whole


@pytest.mark.parametrize(
    ("damage", "codes"),
    [("", set()), ("output", {"output_not_compared"}), ("iteration", {"iterations_unread"})],
)
def test_outputs_that_a_file_lacks_or_nobody_read_are_no_pass(
    folder: Path, tmp_path: Path, damage: str, codes: set[str]
) -> None:
    np.savez(folder / "x.npz", x=np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32))
    results = saved(folder, tmp_path)
    iterations = results["lst"][0][1]
    if damage == "output":
        del iterations[0]["outputs"]["y"]
    elif damage == "iteration":
        iterations.append(iterations[0])
    (tmp_path / "given.json").write_text(json.dumps(results))
    words = ["--model_file", str(folder / "right.onnx"), "--run_mode", "ort_opt", "--inputs", str(folder / "x.npz")]
    words += ["--load_outputs", str(tmp_path / "given.json"), "--output", str(tmp_path / "r.json"), "--quiet"]
    assert main(words) == int(bool(damage))
    report = Report.load(tmp_path / "r.json")
    assert {doubt.code for doubt in report.doubts} == codes
    if damage == "iteration":  # and where one is chosen, nothing is unread
        assert main([*words, "--sample", "0"]) == 0


@pytest.mark.parametrize(("seed", "inside"), [(None, False), (None, True), (3.0, False)])
def test_numbers_that_are_drawn_without_a_seed_prove_nothing(
    tmp_path: Path, seed: float | None, inside: bool
) -> None:
    helper = onnx.helper
    drawn = helper.make_node("RandomUniformLike", ["x"], ["r"], name="draw", **({} if seed is None else {"seed": seed}))
    nodes = [drawn, helper.make_node("Add", ["x", "r"], ["y"], name="add")]
    if inside:
        outs = [helper.make_tensor_value_info("y", 1, [4, 4])]
        body = helper.make_graph(nodes, "then", [], outs)
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["n"], name="neg")], "else", [],
                                  [helper.make_tensor_value_info("n", 1, [4, 4])])  # fmt: skip
        flag = onnx.numpy_helper.from_array(np.array(True), "flag")
        nodes = [helper.make_node("If", ["flag"], ["y"], name="if", then_branch=body, else_branch=other)]
    info = [helper.make_tensor_value_info(name, 1, [4, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [flag] if inside else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    report = compare(tmp_path / "m.onnx", run_mode="ort_opt", explain="off")
    assert (State.OPEN in states(report, "repeatable")) is (seed is None)
    if seed is None:
        assert report.exit_status == 1
        said = next(doubt for doubt in report.doubts if doubt.code == "draws_numbers")
        assert said.values["detail"] == "RandomUniformLike draw"


MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x):
        h = self.layer(x)
        return h + 0.01 * {noise}

def net():
    torch.manual_seed(0)
    return Net(), torch.randn(4, 8)
"""


@pytest.mark.parametrize(("noise", "draws"), [("torch.randn_like(h)", True), ("torch.ones_like(h)", False)])
def test_a_module_that_draws_numbers_is_not_identical_by_one_seed(tmp_path: Path, noise: str, draws: bool) -> None:
    pytest.importorskip("torch", reason="needs torch")
    (tmp_path / "m.py").write_text(MODULE.format(noise=noise))
    report = compare(f"{tmp_path / 'm.py'}:net", run_mode="torch_fp32", baseline="torch_fp32", explain="off")
    assert (report.exit_status, "draws_numbers" in {one.code for one in report.doubts}) == (int(draws), draws)


def logged(count: int, norm: float = 1.0) -> tuple[StepNumbers, ...]:
    one = ParameterNumbers(norm=norm, zeros=0.0, below=0.0, broken=0, size=1.0, moved=0.1)
    return tuple(StepNumbers(step=step, scale=1.0, parameters={"w": one}) for step in range(count))


def of_ranks(count: int, here: int, of: int = 2) -> tuple[RankedStep, ...]:
    steps = logged(count)
    return tuple(
        RankedStep(step=one.step, of=of, ranks={r: RankStep(numbers=one, rank=r, ranks=of) for r in range(here)})
        for one in steps
    )


OUT = Departure(step=9, parameter="w", what="larger", value=9.0, usual=1.0)
OFF = RankFault(step=1, what="sum", parameter="w", parameters=1, ranks=(1,), of=2)


@pytest.mark.parametrize(
    ("steps", "ranks", "found", "off", "verdict"),
    [
        (logged(10), (), None, None, Verdict.PASS),
        (logged(10), of_ranks(10, 2), None, None, Verdict.PASS),
        (logged(3), (), None, None, Verdict.INCONCLUSIVE),
        (logged(3), of_ranks(3, 2), None, None, Verdict.INCONCLUSIVE),  # several ranks on too few steps
        (logged(10), of_ranks(10, 1), None, None, Verdict.INCONCLUSIVE),
        (logged(10, 0.0), (), None, None, Verdict.INCONCLUSIVE),  # no gradient ever was
        (logged(10, 0.0), of_ranks(10, 2), None, None, Verdict.INCONCLUSIVE),
        ((), (), None, None, Verdict.INCONCLUSIVE),
        (tuple(StepNumbers(step=n, scale=1.0) for n in range(10)), (), None, None, Verdict.INCONCLUSIVE),  # all None
        (logged(10), (), OUT, None, Verdict.FAIL),
        (logged(10), of_ranks(10, 2), None, OFF, Verdict.FAIL),
    ],
)
def test_a_training_log_passes_only_where_something_was_learnt_and_looked_at(
    steps: Any, ranks: Any, found: Any, off: Any, verdict: Verdict
) -> None:
    claims = claims_of_training(steps, ranks, found, off)
    assert verdict_of_training(claims) is verdict
    assert verdict is not Verdict.PASS or all(
        verdict_of_training([one for one in claims if one is not left]) is Verdict.INCONCLUSIVE for left in claims
    )


FAULT, APART = say("proven_nan", name="w", count=1), say("proven_other_order")
ALONE = say("unproven_first", count=1, names="Relu y")
UNREAD = say("unread_constants", count=1, names="w")


@pytest.mark.parametrize(
    ("faults", "differing", "unread", "verdict"),
    [
        ([], None, [], Verdict.PASS),
        ([], [], [], Verdict.PASS),
        ([FAULT], None, [], Verdict.FAIL),
        ([FAULT], [], [UNREAD], Verdict.FAIL),
        ([], None, [UNREAD], Verdict.INCONCLUSIVE),
        ([], [], [UNREAD], Verdict.INCONCLUSIVE),
        ([], [ALONE], [], Verdict.INCONCLUSIVE),
        ([], [APART, ALONE], [], Verdict.FAIL),
    ],
)
def test_files_pass_only_where_all_of_them_was_looked_at(
    faults: Any, differing: Any, unread: Any, verdict: Verdict
) -> None:
    claims, two = claims_of_files(faults, differing, unread, 3), differing is not None
    assert verdict_of_files(claims, two=two) is verdict
    assert verdict is not Verdict.PASS or all(
        verdict_of_files([one for one in claims if one is not left], two=two) is Verdict.INCONCLUSIVE for left in claims
    )
    assert verdict is not Verdict.PASS or verdict_of_files(claims, two=True) is (
        Verdict.PASS if two else Verdict.INCONCLUSIVE
    )


def test_a_log_without_any_gradient_is_status_1_and_says_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "statistics.jsonl").write_text("".join(map(written, logged(10, 0.0))))
    assert main(["training", str(tmp_path), "--lang", "en"]) == 1
    assert begins_approved(capsys.readouterr().out)
    (tmp_path / "statistics.jsonl").write_text("".join(map(written, logged(10))))
    assert main(["training", str(tmp_path), "--lang", "en"]) == 0


def test_a_difference_is_a_pass_only_of_two_whole_runs_that_have_something_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = report_of(*PASSES)
    early = dataclasses.replace(first, failure="killed")
    nothing = report_of(make_row(0, None, is_output=True, name="y"))
    nan = report_of(both_sides(nan=3))
    assert difference(first, first).verdict is Verdict.PASS
    assert difference(first, early).verdict is Verdict.PARTIAL
    assert difference(early, first).verdict is Verdict.PASS
    assert difference(nothing, nothing).verdict is Verdict.INCONCLUSIVE
    assert difference(first, nan).verdict is Verdict.FAIL, "its numbers are as good, and its verdict is not"
    first.save(tmp_path / "first.json")
    early.save(tmp_path / "early.json")
    assert main(["diff", str(tmp_path / "first.json"), str(tmp_path / "early.json"), "--lang", "en"]) == 3
    assert "ended early" in capsys.readouterr().out.splitlines()[0]
