"""Each claim of a report, made of rows alone: open or refuted by what speaks against it, held by its evidence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug import Report
from precision_debug.claims import (
    NEEDED,
    State,
    Verdict,
    claims_of_files,
    exit_status_of,
    fold_claims,
    hold_claim,
    leave_claim_open,
    refute_claim,
    verdict_of_files,
)
from precision_debug.inspector import EngineLayer, EngineTensor
from precision_debug.reasons import say
from precision_debug.records import Doubt, Explanation, InputInfo, MetricChange, Row, SamplesRead, Side, Status


def states(report: Report, code: str) -> list[State]:
    return [claim.state for claim in report.claims if claim.code == code]


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
    ("outputs_compared", OPEN, "outputs_below_a_step", (make_row(
        1, 1.0, is_output=True, name="y", status=Status.PASS, comparison=make_comparison(
        1.0, base=make_stats(min=1e-6, max=1e-3), target=make_stats(min=0.0, max=0.0, rms=0.0), mismatched=0)),), {
        "explanation": Explanation(state="healthy", allowed=0.1, steps={"y": 1 / 256})}),
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
    ("within", REFUTED, "", PASSES, {"asserted": (refute_claim("within", name="y"),)}),
    ("repeatable", OPEN, "draws_numbers", PASSES, doubted("draws_numbers")),
    ("repeatable", OPEN, "differs_from_itself", PASSES, doubted("differs_from_itself")),
    ("repeatable", OPEN, "fails_again", PASSES, doubted("fails_again")),
    ("ended", OPEN, "ended_early", PASSES, {"failure": "killed"}),
    ("thresholds", OPEN, "x", PASSES, {"asserted": (leave_claim_open("thresholds", Doubt(code="x")),)}),
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
    ("criterion", "asserted", "", PASSES, {"asserted": (hold_claim("thresholds"),)}),
    ("criterion", "function", "", PASSES, {"checks": {"y": 1.0}}),
    ("criterion", "metric", "", PASSES, {**changed(0.88), **asked(metric_drop="5%", tolerance=UNASKED)}),
    ("criterion", "given", "", PASSES, {}),
    ("criterion", "derived", "", PASSES, {
        "explanation": Explanation(state="healthy", allowed=0.01), **asked(tolerance=UNASKED)}),
    ("criterion", "usual", "", PASSES, asked(tolerance=UNASKED)),
    ("within", "", "", PASSES, {}),
    ("within", "", "", PASSES, {"checks": {"y": 1.0}}),
    ("within", "", "", PASSES, {"asserted": (hold_claim("within"),)}),
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
    assert fold_claims(claims, NEEDED, asked=True) is Verdict.PASS
    assert fold_claims([one for one in claims if one.code != code], NEEDED, asked=True) is Verdict.INCONCLUSIVE


def test_the_fold() -> None:
    true, doubt = hold_claim("a"), Doubt(code="d")
    assert fold_claims([true], ["a"], asked=True) is Verdict.PASS
    assert fold_claims([true], ["a"], asked=False) is Verdict.EXPECTED
    assert fold_claims([true, leave_claim_open("b", doubt)], ["a"], asked=True) is Verdict.INCONCLUSIVE
    assert fold_claims([true, leave_claim_open("b", doubt), refute_claim("c")], ["a"], asked=True) is Verdict.FAIL
    assert fold_claims([refute_claim("c"), leave_claim_open("ended", doubt)], [], asked=True) is Verdict.PARTIAL
    assert [exit_status_of([one]) for one in Verdict] == [0, 0, 1, 1, 3]
    assert (
        exit_status_of(["within tolerance", "partial"]),
        exit_status_of([]),
        exit_status_of(["of another version"]),
    ) == (3, 1, 1)


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
    kinds = [(claim.state, claim.evidence.get("kind")) for claim in equal.claims if claim.code == "outputs_finite"]
    assert kinds == [(State.HELD, "equal_nan")]
    fed = dataclasses.replace(maker, name="x", op_type="Input", index=0, inputs=())
    report = report_of(fed, dataclasses.replace(last, inputs=("x",)))
    why = next(claim.why for claim in report.claims if claim.state is State.REFUTED)
    assert why is not None
    assert why.code == "output_non_finite_fed"
    report = report_of(fed, dataclasses.replace(last, inputs=()))  # of a folder of tensors: nobody knows what it reads
    assert [claim.why.code for claim in report.claims if claim.state is State.REFUTED and claim.why] == [why.code]


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
    told = {one.why.code for one in claims if one.why is not None and one.state is not State.HELD}
    assert told == {one.code for one in (*faults, *(differing or ()), *unread)}, "each says why"
    assert verdict is not Verdict.PASS or all(
        verdict_of_files([one for one in claims if one is not left], two=two) is Verdict.INCONCLUSIVE for left in claims
    )
    assert verdict is not Verdict.PASS or verdict_of_files(claims, two=True) is (
        Verdict.PASS if two else Verdict.INCONCLUSIVE
    )
