"""--fail_fast ends a run at its first failure; --validate looks at one run alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import mlp, model, value

import precision_debug
from precision_debug.errors import UsageError
from precision_debug.records import Status


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    onnx.save(mlp(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("lockstep", [True, False])
def test_nothing_is_compared_after_the_first_failure(dense: Path, lockstep: bool) -> None:
    given = {"run_mode": "ort_fp16_sim", "explain": "off", "atol": 1e-9, "rtol": 0.0, "lockstep": lockstep}
    whole = precision_debug.compare(dense, **given)
    fast = precision_debug.compare(dense, **given, fail_fast=True)
    failed = [row.name for row in fast.rows if row.status is Status.FAIL]
    made = [row.name for row in whole.rows if row.status is Status.FAIL and row.op_type != "Input"]
    rounded = [row.name for row in whole.rows if row.status is Status.FAIL and row.op_type == "Input"]
    assert rounded, "the target rounds the input, which is no reason to stop"
    assert failed == [*rounded, made[0]]
    assert len([row for row in whole.rows if row.status is Status.FAIL]) > 1
    assert fast.exit_status == 1
    assert any(note.code == "fail_fast" for note in fast.notes)
    later = fast.rows[max(row.index for row in fast.rows if row.status is Status.FAIL) + 1 :]
    assert all(row.comparison is None for row in later)
    assert {row.reason.code for row in later if row.status is Status.NOT_COMPARED} <= {"ended", "ended_first"}
    assert fast.seconds > 0  # the run ended well


def test_a_run_that_passes_is_whole(dense: Path) -> None:
    report = precision_debug.compare(dense, run_mode="ort_opt", explain="off", atol=1e-3, fail_fast=True)
    assert report.exit_status == 0
    assert not any(note.code == "fail_fast" for note in report.notes)


def test_of_many_samples_the_first_that_fails_is_the_last(dense: Path) -> None:
    name = onnx.load(dense).graph.input[0].name
    shape = [side.dim_value or 2 for side in onnx.load(dense).graph.input[0].type.tensor_type.shape.dim]
    sets = [{name: np.full(shape, scale, np.float32)} for scale in (0, 0, 1, 1, 1)]
    given = {"run_mode": "ort_fp16_sim", "explain": "off", "atol": 1e-9, "rtol": 0.0}
    report = precision_debug.compare(dense, inputs=sets, **given, fail_fast=True)
    plain = [precision_debug.compare(dense, inputs=one, **given).first_mismatch is not None for one in sets]
    note = next(note for note in report.notes if note.code == "fail_fast_sample")
    assert f"sample {plain.index(True)}," in str(note)
    assert report.exit_status == 1


def square(path: Path) -> Path:
    """y = (x * x) - 1, which overflows FP16 at x = 1000."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squared"], name="square"),
        helper.make_node("Sub", ["squared", "one"], ["y"], name="less"),
    ]
    onnx.save(model(nodes, [value("x", [4])], [value("y", [4])], {"one": np.ones(1, np.float32)}), path)
    return path


@pytest.mark.parametrize(("top", "status"), [(1e3, 0), (1e30, 1)])
def test_one_run_is_validated_alone(tmp_path: Path, top: float, status: int) -> None:
    path = square(tmp_path / "square.onnx")
    feeds = {"x": np.array([1, 2, 3, top], np.float32)}
    report = precision_debug.compare(path, run_mode="ort_fp32", baseline="none", validate=True, inputs=feeds)
    assert report.exit_status == status
    assert any(note.code == "validated_alone" for note in report.notes)
    assert report.baseline.mode == report.target.mode == "ort_fp32"
    names = [row.name for row in report.rows if row.status is Status.FAIL]
    assert names == (["squared", "y"] if status else [])
    if status:
        assert report.first_non_finite is not None
        assert report.first_non_finite.name == "squared"


def test_nothing_to_compare_with_needs_validate(dense: Path) -> None:
    with pytest.raises(UsageError, match="add --validate"):
        precision_debug.compare(dense, run_mode="ort_fp32", baseline="none")


def test_a_statistic_is_told_where_it_judges(dense: Path) -> None:
    """And not how many elements lie outside, which nothing hangs on then."""
    from precision_debug.cli.summary import describe_row
    from precision_debug.records import Tolerance

    for atol, status in ((1e-9, Status.FAIL), (1.0, Status.PASS)):
        tolerance = Tolerance(atol=atol, rtol=0.0, check_error_stat="mean")
        report = precision_debug.compare(dense, run_mode="ort_fp16_sim", explain="off", tolerance=tolerance)
        row = next(row for row in report.outputs if row.comparison is not None)
        said, numbers = describe_row(row), row.comparison
        assert row.status is status
        assert numbers is not None
        assert "elements" not in said.en
        assert "个元素" not in said.zh
        assert f"{numbers.stat_abs:.3g}" in said.en
        assert ("mean abs" if status is Status.FAIL else "judged by") in said.en
        plain = precision_debug.compare(dense, run_mode="ort_fp16_sim", explain="off", atol=1e-9, rtol=0.0)
        assert "elements" in describe_row(next(row for row in plain.outputs if row.comparison is not None)).en
