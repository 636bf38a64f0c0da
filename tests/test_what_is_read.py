"""What two files' operators read, where what an engine runs has nothing for a name to tell."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the models are ONNX's")
pytest.importorskip("onnxruntime", reason="it runs them")

from planted.twentyfourth_onnx import CASES

import precision_debug

[TOLD] = [case for case in CASES if case.name == "state_told_before_its_step"]


def test_a_state_before_the_first_step_is_named_as_the_body_has_it(tmp_path: Path) -> None:
    target, baseline, feeds = TOLD.make(tmp_path)
    report = precision_debug.compare(
        target, baseline_model=str(baseline), run_mode="ort_fp32", baseline="ort_fp32", inputs=feeds
    )
    assert report.explanation is not None
    [culprit] = report.explanation.culprits
    told = culprit.evidence
    assert {str(told["base"]), str(told["target"])} == {"h_new, two", "h, two"}
