"""An operator of the file is named with its own type, and what its grid cuts off is counted on what that is fed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("ml_dtypes", reason="the file has float8")

from planted.twentyfourth_onnx import CASES

import precision_debug

[FLOAT8] = [case for case in CASES if case.name == "float8_that_ends_at_22_where_there_are_200"]


def test_a_quantiser_is_named_as_the_file_has_it_and_counted_on_what_it_reads(tmp_path: Path) -> None:
    target, baseline, feeds = FLOAT8.make(tmp_path)
    report = precision_debug.compare(
        target, baseline_model=str(baseline), run_mode="ort_fp32", baseline="ort_fp32", inputs=feeds
    )
    types = {row.name: row.op_type for row in report.rows}
    assert [types[name] for name in ("r1", "q1", "dq1")] == ["Relu", "QuantizeLinear", "DequantizeLinear"]
    assert report.explanation is not None
    [culprit] = report.explanation.culprits
    assert (culprit.name, culprit.op_types, culprit.cause) == ("q1", ("QuantizeLinear",), "saturation")
    assert culprit.evidence["share"] == pytest.approx(42 / 144)
    assert culprit.evidence["largest"] == pytest.approx(204.9, rel=1e-3)
