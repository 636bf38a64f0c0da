"""The exit status of a search, and of a stage, is the fold over their claims: what is not proved is no 0."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug.claims import (
    Judge,
    State,
    Verdict,
    claim_stage,
    claims_of_search,
    exit_status_of,
    fold_stage_verdicts,
    verdict_of_search,
)
from precision_debug.cli import main
from precision_debug.records import Doubt, Side
from precision_debug.report.model import Report
from precision_debug.search.fix import STATES, Artefact, Fix, KeptUnit

FP32 = Side(mode="ort_fp32", backend="onnxruntime", model="m", precision="float32")


def report_of(*doubts: Doubt, **changes: Any) -> Report:
    numbers = make_comparison(1e-7, target=make_stats(), mismatched=0)
    row = make_row(0, 1e-7, comparison=numbers, is_output=True, name="y")
    given: dict[str, Any] = {"rows": (row,), "baseline": FP32, "scores": {},
                             "target": dataclasses.replace(FP32, mode="ort_opt", doubts=doubts)}  # fmt: skip
    return dataclasses.replace(make_report(0), **{**given, **changes})


def fix_of(**changes: Any) -> Fix:
    good = Artefact(kind="model", title="the model", verified=True)
    unit = KeptUnit(key="big", op_types=("Mul",), nodes=("node_big",), tensors=("big",))
    plain = Fix(state="found", kept=(unit,), evaluations=3, held_out=2, held=2, artefacts=(good,))
    return dataclasses.replace(plain, **changes)


def verdict(report: Report, fix: Fix | None, judge: Judge = "tolerance") -> Verdict:
    return verdict_of_search(claims_of_search(report, fix, judge), judge)


NOT_RUN = dataclasses.replace(fix_of().artefacts[0], verified=None)
FAILS = dataclasses.replace(fix_of().artefacts[0], verified=False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Verdict.PASS), ({"state": "not needed", "kept": (), "artefacts": ()}, Verdict.PASS),
        *[({"state": state}, Verdict.FAIL) for state in STATES if state not in ("found", "not needed", "unfinished")],
        ({"state": "unfinished"}, Verdict.INCONCLUSIVE), ({"state": "a later version's"}, Verdict.FAIL),
        ({"held": 1}, Verdict.FAIL), ({"held": 0, "held_out": 0}, Verdict.PASS),
        ({"artefacts": (*fix_of().artefacts, FAILS)}, Verdict.FAIL),
        ({"artefacts": (*fix_of().artefacts, NOT_RUN)}, Verdict.PASS),
        ({"artefacts": (NOT_RUN,)}, Verdict.INCONCLUSIVE),
    ],
    ids=str,
)  # fmt: skip
def test_a_search_passes_by_its_claims(changes: dict[str, Any], expected: Verdict) -> None:
    assert verdict(report_of(), fix_of(**changes)) is expected
    assert verdict(report_of(), None) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("code", ["precision_not_run", "draws_numbers", "differs_from_itself", "iterations_unread"])
@pytest.mark.parametrize("fix", [fix_of(), fix_of(state="not needed", kept=(), artefacts=())], ids=["found", "none"])
def test_what_is_open_of_the_comparison_is_open_of_every_set(code: str, fix: Fix) -> None:
    assert verdict(report_of(Doubt(code=code)), fix) is Verdict.INCONCLUSIVE
    assert verdict(report_of(Doubt(code=code)), fix, "command") is Verdict.PASS, "it runs the saved models itself"
    assert verdict(report_of(failure="killed"), fix, "command") is Verdict.PARTIAL


@pytest.mark.parametrize("judge", ["tolerance", "limit", "metric", "command"])
def test_a_claim_of_a_search_that_nobody_makes_is_open(judge: Judge) -> None:
    claims = claims_of_search(report_of(), fix_of(), judge)
    assert verdict_of_search(claims, judge) is Verdict.PASS
    left_to_others = {"outputs_compared", "outputs_finite"}  # which a limit, a metric or a command may judge otherwise
    for code in {one.code for one in claims} - left_to_others:
        kept = [one for one in claims if one.code != code]
        assert verdict_of_search(kept, judge) is Verdict.INCONCLUSIVE, code


def test_what_is_found_closes_what_was_open_with_nothing_kept() -> None:
    inside = report_of(Doubt(code="sum_overflows", values={"name": "big"}))
    elsewhere = report_of(Doubt(code="sum_overflows", values={"name": "rest"}))
    calibrated = report_of(Doubt(code="off_on_others"))
    none = fix_of(state="not needed", kept=())
    assert [verdict(one, fix_of()) for one in (inside, elsewhere, calibrated)] == [
        Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.PASS,
    ]  # fmt: skip
    assert {verdict(one, none) for one in (inside, elsewhere, calibrated)} == {Verdict.INCONCLUSIVE}
    assert verdict(calibrated, fix_of(held_out=0, held=0)) is Verdict.INCONCLUSIVE


def test_a_command_or_metric_judges_outputs_in_its_own_way() -> None:
    broken = make_stats(nan=3)
    row = make_row(0, 1e-7, comparison=make_comparison(1e-7, base=broken, target=broken, mismatched=0),
                   is_output=True, name="y")  # fmt: skip
    report = report_of(rows=(row,))
    assert verdict(report, fix_of()) is Verdict.FAIL
    assert verdict(report, fix_of(), "limit") is Verdict.FAIL
    assert verdict(report, fix_of(), "metric") is Verdict.PASS
    assert verdict(report, fix_of(), "command") is Verdict.PASS


def test_a_stage_passes_by_its_claims_and_tensors_between_decide_only_where_asked() -> None:
    between = make_row(1, 0.5, name="h")
    report = report_of()
    report = dataclasses.replace(report, rows=(*report.rows, between))
    assert State.REFUTED in {one.state for one in claim_stage(report, outputs_only=False)}
    assert {one.state for one in claim_stage(report, outputs_only=True)} == {State.HELD}
    doubted = report_of(Doubt(code="draws_numbers"))
    assert State.OPEN in {one.state for one in claim_stage(doubted, outputs_only=True)}


def test_a_climb_folds_to_its_answer() -> None:
    answers = [fold_stage_verdicts("", (), True), fold_stage_verdicts("", ("fusions",), True),
               fold_stage_verdicts("", (), None), fold_stage_verdicts("fusions", (), False)]  # fmt: skip
    assert [exit_status_of([one]) for one in answers] == [0, 0, 1, 1]


def test_a_search_of_a_model_that_draws_numbers_proves_nothing(tmp_path: Path, capsys: Any) -> None:
    onnx = pytest.importorskip("onnx", reason="builds a model")
    pytest.importorskip("onnxruntime", reason="runs it")
    helper = onnx.helper
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["r"], name="draw", high=1e-6, low=0.0),
             helper.make_node("Add", ["x", "r"], ["y"], name="add")]  # fmt: skip
    info = [helper.make_tensor_value_info(name, 1, [4, 4]) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx")
    words = ["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_fp16", "--output", str(tmp_path / "r.json")]
    assert main(["search", *words, "--limit", "0.1"]) == 1
    assert "random numbers" in capsys.readouterr().out


def test_what_needs_nothing_on_one_input_is_run_on_the_users_others(tmp_path: Path) -> None:
    """x * 60 fits into float16 at 1, and not at 2000."""
    onnx = pytest.importorskip("onnx", reason="builds a model")
    pytest.importorskip("onnxruntime", reason="runs it")
    helper, to = onnx.helper, onnx.numpy_helper.from_array
    nodes = [helper.make_node("Mul", ["x", "a"], ["big"], name="up"),
             helper.make_node("Mul", ["big", "b"], ["y"], name="down")]  # fmt: skip
    info = [helper.make_tensor_value_info(name, 1, [4, 4]) for name in "xy"]
    weights = [to(np.float32(60), "a"), to(np.float32(1 / 60), "b")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    for name, size in (("small", 1.0), ("large", 2000.0)):
        np.savez(tmp_path / f"{name}.npz", x=(size * rng.uniform(0.9, 1.0, (4, 4))).astype(np.float32))
    words = ["search", "--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_fp16_sim", "--quiet",
             "--inputs", str(tmp_path / "small.npz"), "--output", str(tmp_path / "r.json")]  # fmt: skip
    assert main(words) == 0
    assert json.loads((tmp_path / "r.json").read_text())["fix"]["state"] == "not needed"
    status = main([*words, "--held_out", str(tmp_path / "large.npz")])
    fix = Report.load(tmp_path / "r.json").fix
    assert fix is not None
    assert fix.state != "not needed"
    assert (status == 0) is (fix.state == "found")
