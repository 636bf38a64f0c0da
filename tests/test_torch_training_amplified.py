"""Training steps whose rounding is ordinary everywhere and fatal behind one operator, or decides nothing."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest
from approval import begins_approved, holds_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from planted import training_further, training_third

from precision_debug.report.lead import lead_sentences

CASES = {one.name: one for one in (*training_further.CASES, *training_third.CASES)}


def explained(name: str) -> Any:
    report = training_further.report_of(CASES[name])
    assert report.explanation is not None
    return report


def first(report: Any) -> Any:
    return report.explanation.culprits[0]


@pytest.mark.parametrize("name", ["variance_in_float32", "mixed_norm_by_hand"])
def test_the_subtraction_is_named_where_no_single_rounding_makes_the_error(name: str) -> None:
    report = explained(name)
    assert report.exit_status == 1
    assert first(report).cause == "cancels"
    assert first(report).name.startswith("sub")
    assert first(report).evidence["input_size"] > 100 * first(report).evidence["output_size"]


def test_a_gradient_that_is_more_error_than_gradient_does_not_pass() -> None:
    report = explained("positions_in_bfloat16")
    assert report.exit_status == 1
    assert (first(report).name, first(report).cause) == ("sin", "amplifies")
    assert (first(report).evidence["held_as"], first(report).evidence["apart"]) == ("bfloat16", 2.0)  # 420 of 8 bits


def test_a_slope_that_is_infinite_is_named_by_its_forward_operator() -> None:
    report = explained("root_of_zero")
    assert report.exit_status == 1
    assert (first(report).name, first(report).cause) == ("backward/sqrt/div", "slope_infinite")
    assert first(report).evidence["slope"] == "sqrt"


def test_a_slope_that_comes_down_as_inf_is_the_later_operators() -> None:
    report = explained("distance_to_itself")
    assert report.exit_status == 1
    assert first(report).cause == "slope_infinite"
    assert first(report).name.startswith("backward/pow/mul")
    assert first(report).evidence["slope"] == "sqrt"


def test_a_gradient_of_exactly_0_is_not_the_worst_output() -> None:
    report = explained("healthy_bias_before_norm")
    assert report.exit_status == 0
    assert report.explanation.decided_by_rounding == ("gradient/a.bias",)
    said = lead_sentences(report)[0]
    assert said.en.startswith("Nothing to do: all")
    assert "`gradient/n.weight` is off by 0.001" in said.en
    assert holds_approved(said.en)
    assert "未计入 `gradient/a.bias`" in said.zh


@pytest.mark.parametrize(("name", "who", "output"), [
    ("all_ignored", "nll_loss_forward", "loss"), ("where_hides_nan", "sqrt", "gradient/a.weight"),
])  # fmt: skip
def test_who_makes_the_nan_of_both_runs_is_named(name: str, who: str, output: str) -> None:
    report = explained(name)
    assert report.exit_status == 1
    assert (first(report).name, first(report).cause) == (who, "born_on_both")
    assert any(f"makes the NaN of `{output}`" in said.en for said in lead_sentences(report))
    assert any("in the baseline too" in said.en for said in lead_sentences(report))


def test_who_writes_in_place_over_what_the_backward_pass_reads_is_named() -> None:
    report = explained("changed_in_place")
    assert (first(report).op_types, first(report).cause) == (("aten.mul_",), "other_arithmetic")


def test_an_overflow_is_told_of_the_operator_whose_results_are_too_large() -> None:
    said = lead_sentences(explained("contrastive_first_scale"))[0].en
    assert "`backward/mul/mul#2` reaches" in said
    assert "`exp` reaches" not in said


@pytest.mark.parametrize("name", ["frozen_by_mistake", "detached_by_mistake"])
def test_a_gradient_that_the_target_lacks_is_told_first(name: str) -> None:
    report = explained(name)
    assert report.exit_status == 1
    said = lead_sentences(report)[0]
    assert begins_approved(said.en)
    assert "gradient/a.weight" in said.zh
    row = next(row for row in report.rows if row.name == "gradient/a.weight")
    assert row.reason.code == "step_no_gradient"


def test_what_overflows_before_the_loss_stands_before_a_gradient_that_a_scale_mends() -> None:
    report = explained("root_mean_square_by_hand")
    assert (first(report).name, first(report).cause) == ("mul#2", "overflow")
    assert "gradient_overflow" in {one.cause for one in report.explanation.culprits}


@pytest.mark.slow  # the whole batch: minutes
@pytest.mark.parametrize("case", [*training_further.CASES, *training_third.CASES], ids=lambda case: case.name)
def test_a_planted_step_is_answered_as_labelled(case: Any) -> None:
    who, why, said, fix = training_further.outcome(case)
    assert who, said
    assert why, said
    assert "NO HELP" not in fix
