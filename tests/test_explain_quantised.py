"""The arithmetic of the tensors decides, on both sides: one quantisation twice, a quantised file beside its model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="the models are ONNX's")
pytest.importorskip("onnxruntime", reason="they run in ONNX Runtime")

import numpy as np
from planted.fourth_files import CASES
from report_factory import make_row

import precision_debug
from precision_debug.numbers import compare
from precision_debug.numbers.judge import as_expected, verdict
from precision_debug.records import Status, Tolerance
from precision_debug.report.model import Report, Verdict


def report_of(name: str, folder: Path, **more: Any) -> tuple[Any, Report]:
    case = next(one for one in CASES if one.name == name)
    if case.mode.startswith("ov_") and importlib.util.find_spec("openvino") is None:
        pytest.skip("OpenVINO is not installed")
    model, base, feeds = case.make(folder)
    return case, precision_debug.compare(
        model, run_mode=case.mode, baseline=case.baseline, baseline_model=base, inputs=feeds, **more
    )


HEALTHY = [
    "quantised_file_at_two_levels", "quantised_file_in_openvino", "same_quantised_file_twice",
    "same_quantised_file_twice_fused", "quantised_beside_its_float_model",
    "quantised_and_fused_beside_its_float_model",
]  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_quantised_file_accuses_nobody(name: str, tmp_path: Path) -> None:
    """Engines that quantise a bias of their own differ by single steps, which spread to 2 % at the output."""
    _, report = report_of(name, tmp_path)
    assert report.explanation is not None
    assert report.explanation.culprits == ()
    assert report.verdict is Verdict.EXPECTED


FAULTS = [
    "scale_of_two_quantised_files", "scale_of_two_fused_quantised_files", "range_four_times_too_small",
    "range_too_small_and_fused", "zero_point_at_the_end",
]  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_scale_is_found(name: str, tmp_path: Path) -> None:
    case, report = report_of(name, tmp_path)
    assert report.explanation is not None
    assert report.verdict is Verdict.FAIL
    first = report.explanation.culprits[0]
    assert first.name in case.who
    assert first.cause in case.why


def test_quantised_integers_inside_are_judged_as_the_numbers_that_they_stand_for() -> None:
    """One step off in a uint8 tensor of a model is not a failed row; another index is."""
    base = np.arange(200, dtype=np.uint8)
    target = base.copy()
    target[7] += 1
    numbers = compare(base, target)
    failed: dict[str, Any] = {"comparison": numbers, "status": Status.FAIL}
    inside = make_row(op_type="DynamicQuantizeLinear", **failed)
    assert verdict(numbers, Tolerance())[0] is Status.FAIL
    assert as_expected(inside, 0.05).status is Status.PASS
    assert as_expected(inside, 1e-4).status is Status.FAIL
    for row in (
        make_row(op_type="ArgMax", **failed), make_row(op_type="QuantizeLinear", is_output=True, **failed),
    ):
        assert as_expected(row, 0.05).status is Status.FAIL


def test_coverage_is_no_verdict_where_the_outputs_were_compared(tmp_path: Path) -> None:
    _, report = report_of("quantised_file_in_openvino", tmp_path)
    assert report.coverage.share < 0.5
    assert [doubt.code for doubt in report.doubts if "seen" in doubt.code] == ["few_seen_inside"]
    assert report.exit_status == 0
