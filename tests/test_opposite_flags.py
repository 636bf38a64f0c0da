"""A flag that says the opposite by another name in OpenVINO, and what is told of a stretch holds at its end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("openvino", reason="openvino is not installed")

from planted.twentyfourth_onnx import CASES

import precision_debug
from precision_debug.explain.relations import find_relation
from precision_debug.report.blame import blame

[POOL] = [case for case in CASES if case.name == "pool_of_an_ir_that_counts_its_padding"]


@pytest.mark.parametrize("mode", ["ov_opt", "ov_fp32"])
def test_padding_that_an_ir_counts_is_named_by_both_names(mode: str, tmp_path: Path) -> None:
    target, baseline, feeds = POOL.make(tmp_path)
    report = precision_debug.compare(
        target, baseline_model=str(baseline), run_mode=mode, baseline="ort_fp32", inputs=feeds
    )
    assert report.explanation is not None
    [culprit] = report.explanation.culprits
    assert (culprit.cause, culprit.evidence["base"], culprit.evidence["target"]) == ("files_differ", "0", "1")
    assert {"count_include_pad", "exclude-pad"} <= {*str(culprit.evidence["name"]).replace("(", "").split()}
    assert culprit.evidence["left"] < 0.1
    assert "in the target" not in blame(report).lines[0][1].text.zh


def test_padding_that_one_of_two_irs_counts_is_named(tmp_path: Path) -> None:
    target, _, feeds = POOL.make(tmp_path)
    baseline = tmp_path / "base.xml"
    baseline.write_text(Path(target).read_text().replace('exclude-pad="false"', 'exclude-pad="true"'))
    baseline.with_suffix(".bin").write_bytes(Path(target).with_suffix(".bin").read_bytes())
    report = precision_debug.compare(
        target, baseline_model=str(baseline), run_mode="ov_fp32", baseline="ov_fp32", inputs=feeds
    )
    assert report.explanation is not None
    [culprit] = report.explanation.culprits
    assert culprit.cause == "files_differ"
    assert "exclude-pad" in str(culprit.evidence["name"])


def test_factors_of_what_is_inside_are_not_told_of_what_follows() -> None:
    random = np.random.default_rng(3)
    pooled, factors = random.uniform(0.2, 1.4, (1, 8, 3, 3)), np.where(np.eye(3) > 0, 4 / 9, 1.0)
    exact, wrong = np.tanh(pooled), np.tanh(pooled * factors)
    assert find_relation(pooled, pooled * factors, {}, 0.1, 0.01)["relation"].code == "times_along_an_axis"
    assert find_relation(exact, wrong, {}, 0.2), "as near as a narrow type's rounding leaves"
    assert not find_relation(exact, wrong, {}, 0.2, 0.01)
