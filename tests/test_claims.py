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
from report_factory import make_row
from test_claims_made import PASSES, both_sides, report_of, states

from precision_debug import Report, compare
from precision_debug.claims import (
    NEEDED,
    State,
    Verdict,
)
from precision_debug.cli import main
from precision_debug.errors import PrecisionDebugError
from precision_debug.products.training.rank_faults import RankFault
from precision_debug.products.training.training_faults import Departure
from precision_debug.products.training.training_verb import claim_training, fold_training_claims
from precision_debug.recording.rank_log import RankedStep, RankStep
from precision_debug.recording.training_log import ParameterNumbers, StepNumbers, encode_step
from precision_debug.report.difference import compare_reports

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from attack.pairs import drawn_pairs  # noqa: E402
from planted.twelfth.files import CASES  # noqa: E402

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
    assert "ran as asked" in said[0]
    assert "more in the report" in said[0]
    assert holds_approved((tmp_path / "r.html").read_text(encoding="utf-8"))


def test_the_first_screen_of_a_pass_is_short(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model_file", str(folder / "right.onnx"), "--run_mode", "ort_opt", "--lang", "en"]
    assert main([*words, "--output", str(tmp_path / "r.json")]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 6
    assert len(said.split()) <= 110


def test_a_difference_of_two_files_without_effect_leaves_the_first_screen_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (case,) = [one for one in CASES if one.name == "groups_whose_epsilon_vanishes"]
    model, base, feeds = case.make(tmp_path)
    np.savez(tmp_path / "in.npz", **(feeds or {}))
    words = ["--model_file", str(model), "--run_mode", "ort_fp32", "--baseline_model", str(base), "--baseline",
             "ort_fp32", "--inputs", str(tmp_path / "in.npz"), "--lang", "en"]  # fmt: skip
    assert main([*words, "--output", str(tmp_path / "r.json")]) == 0
    said = capsys.readouterr().out
    assert "epsilon" in said
    assert len(said.splitlines()) <= 8


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


@pytest.mark.parametrize(("noise", "draws"), [
    ("torch.randn_like(h)", True), ("torch.ones_like(h)", False),
    ("torch.randn(4, 8, generator=torch.Generator().manual_seed(5))", False),
    ("torch.empty(4, 8).uniform_(generator=torch.Generator().manual_seed(5))", False),
])  # fmt: skip
def test_a_module_that_draws_numbers_is_not_identical_by_one_seed(tmp_path: Path, noise: str, draws: bool) -> None:
    pytest.importorskip("torch", reason="needs torch")
    (tmp_path / "m.py").write_text(MODULE.format(noise=noise))
    report = compare(f"{tmp_path / 'm.py'}:net", run_mode="torch_fp32", baseline="torch_fp32", explain="off")
    assert (report.exit_status, "draws_numbers" in {one.code for one in report.doubts}) == (int(draws), draws)


def test_a_generator_that_a_module_keeps_goes_on_in_the_next_run(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    module = MODULE.format(noise="torch.randn(4, 8, generator=KEPT)")
    (tmp_path / "m.py").write_text(f"{module}\nKEPT = torch.Generator()\n")
    report = compare(f"{tmp_path / 'm.py'}:net", run_mode="torch_fp32", baseline="torch_fp32", explain="off")
    assert report.exit_status == 1


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
    claims = claim_training(steps, ranks, found, off)
    assert fold_training_claims(claims) is verdict
    assert verdict is not Verdict.PASS or all(
        fold_training_claims([one for one in claims if one is not left]) is Verdict.INCONCLUSIVE for left in claims
    )


def test_a_log_without_any_gradient_is_status_1_and_says_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "statistics.jsonl").write_text("".join(map(encode_step, logged(10, 0.0))))
    assert main(["training", str(tmp_path), "--lang", "en"]) == 1
    assert begins_approved(capsys.readouterr().out)
    (tmp_path / "statistics.jsonl").write_text("".join(map(encode_step, logged(10))))
    assert main(["training", str(tmp_path), "--lang", "en"]) == 0


def test_a_difference_is_a_pass_only_of_two_whole_runs_that_have_something_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = report_of(*PASSES)
    early = dataclasses.replace(first, failure="killed")
    nothing = report_of(make_row(0, None, is_output=True, name="y"))
    nan = report_of(both_sides(nan=3))
    assert compare_reports(first, first).verdict is Verdict.PASS
    assert compare_reports(first, early).verdict is Verdict.PARTIAL
    assert compare_reports(early, first).verdict is Verdict.PASS
    assert compare_reports(nothing, nothing).verdict is Verdict.INCONCLUSIVE
    assert compare_reports(first, nan).verdict is Verdict.FAIL, "its numbers are as good, and its verdict is not"
    first.save(tmp_path / "first.json")
    early.save(tmp_path / "early.json")
    assert main(["diff", str(tmp_path / "first.json"), str(tmp_path / "early.json"), "--lang", "en"]) == 3
    assert "ended early" in capsys.readouterr().out.splitlines()[0]
