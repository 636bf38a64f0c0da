"""A LiteRT constant that is another one: inside of a stretch that OpenVINO writes otherwise, or by its scales."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from planted.twentyfourth_onnx import CASES

import precision_debug
from precision_debug.explain.stretch_constants import _are_factors
from precision_debug.records import Culprit


def _find_culprit(name: str, folder: Path) -> Culprit:
    [case] = [case for case in CASES if case.name == name]
    target, baseline, feeds = case.make(folder)
    report = precision_debug.compare(
        target, baseline_model=str(baseline), run_mode=case.mode, baseline=case.baseline, inputs=feeds
    )
    assert report.explanation is not None
    [culprit] = report.explanation.culprits
    return culprit


def test_a_filter_inside_of_a_stretch_of_openvino_is_named(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    told = _find_culprit("third_filter_mirrored_in_openvino", tmp_path).evidence
    assert (told["name"], told["owner"], told["seen"]) == ("conv3_conv_filter", "relu3_out", "flatten_out")


def test_scales_in_another_order_are_told_where_the_integers_are_the_same(tmp_path: Path) -> None:
    told = _find_culprit("scales_of_the_third_filter_rolled_in_8_bits", tmp_path).evidence
    assert (told["name"], told["count"], told["elements"]) == ("conv3_conv_filter", 16, 16)
    assert "scale" in str(told["what"])
    assert "another order" in str(told["target"])


def test_a_weight_with_factors_folded_in_is_no_other_one() -> None:
    random = np.random.default_rng(0)
    weight = random.normal(size=(4, 3, 3, 2))
    assert _are_factors(weight, weight * random.uniform(0.5, 2, (4, 1, 1, 1)))
    assert _are_factors(weight, 0.5 * weight)
    assert not _are_factors(weight, weight[:, ::-1, ::-1])
