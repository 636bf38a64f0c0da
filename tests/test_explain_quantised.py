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
from planted.nineteenth_onnx import CASES as WORDS
from planted.onnx_faults import Graph
from planted.sixteenth_onnx import CASES as LOST
from report_factory import make_row

import precision_debug
from precision_debug.numbers import compare
from precision_debug.numbers.judge import as_expected, decide_status
from precision_debug.reasons import say
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


@pytest.mark.parametrize(("bits", "times"), [(8, 1), (8, 8), (16, 1), (16, 8), (16, 64)])
def test_a_file_that_quantises_inside_alone_may_lose_what_its_bits_cost(bits: int, times: int, tmp_path: Path) -> None:
    """Its tensors are called after the products before them, and no weight nor input is quantised: 0.0001 was allowed,
    so that the healthy file accused the first product. times: a scale that is too large, which its bits do not ask."""
    kind, steps = {8: (np.uint8, 255), 16: (np.uint16, 65535)}[bits]

    def build(name: str, *, quantised: bool) -> tuple[Path, Any]:
        graph = Graph(seed=3, opset=21)
        x = graph.input("x", graph.random.normal(size=(32, 16)).astype(np.float32))
        for layer, size in enumerate((16, 16, 8)):
            weight = graph.weight(f"w{layer}", graph.random.normal(size=(16, size)) / 4)
            x = graph.op("MatMul", [x, weight], f"m{layer}")
            if quantised and layer < 2:
                scale = graph.weight(f"s{layer}", np.float32(10.2 / steps * (times if layer else 1)))
                zero = graph.weight(f"z{layer}", kind(steps // 2 + 1))
                codes = graph.op("QuantizeLinear", [x, scale, zero], f"m{layer}_codes")
                x = graph.op("DequantizeLinear", [codes, scale, zero], f"m{layer}_again")
        return graph.save(tmp_path / name, [x]), graph.feeds

    base, feeds = build("floats.onnx", quantised=False)
    model, _ = build("quantised.onnx", quantised=True)
    report = precision_debug.compare(model, run_mode="ort_fp32", baseline_model=base, inputs=feeds)
    named = [] if report.explanation is None else [(one.name, one.cause) for one in report.explanation.culprits]
    fails = (Verdict.FAIL, [("m1", "coarse_scale")])
    assert (report.verdict, named) == ((Verdict.EXPECTED, []) if times == 1 else fails)
    alike = precision_debug.compare(model, run_mode="ort_opt", inputs=feeds)
    assert alike.explanation is None or (alike.explanation.unit or 0.0) < 1e-6, "both sides have the same grid"


def test_quantised_integers_inside_are_judged_as_the_numbers_that_they_stand_for() -> None:
    """One step off in a uint8 tensor of a model is not a failed row; another index is."""
    base = np.arange(200, dtype=np.uint8)
    target = base.copy()
    target[7] += 1
    numbers = compare(base, target)
    failed: dict[str, Any] = {"comparison": numbers, "status": Status.FAIL}
    inside = make_row(op_type="DynamicQuantizeLinear", **failed)
    assert decide_status(numbers, Tolerance())[0] is Status.FAIL
    assert as_expected(inside, 0.05).status is Status.PASS
    assert as_expected(inside, 1e-4).status is Status.FAIL
    for row in (
        make_row(op_type="ArgMax", **failed), make_row(op_type="QuantizeLinear", is_output=True, **failed),
    ):
        assert as_expected(row, 0.05).status is Status.FAIL


def test_what_openvino_computes_inside_of_layers_of_a_quantised_file_is_compared(tmp_path: Path) -> None:
    _, report = report_of("quantised_file_in_openvino", tmp_path)
    assert report.coverage.share > 0.5
    assert [doubt.code for doubt in report.doubts if "seen" in doubt.code] == []
    assert report.exit_status == 0


def test_a_loud_pixel_is_no_channel_of_a_token(tmp_path: Path) -> None:
    """The convolution that tells which axis holds channels reads it behind a product and a slope. Before: "channel 9 of
    token 4"."""
    graph = Graph(seed=5)
    pixels = graph.random.normal(size=(2, 3, 16, 16)).astype(np.float32)
    pixels[:, :, 4, 9] = 400
    x = graph.op("Mul", [graph.input("x", pixels), graph.weight("gain", np.float32(1.3))], "bright")
    x = graph.op("Relu", [graph.conv(graph.op("LeakyRelu", [x], "bent", alpha=0.2), 3, 8, "c1")], "r")
    x = graph.op("Clip", [x, graph.weight("low", np.float32(0)), graph.weight("high", np.float32(6))], "six")
    pool = graph.op("Flatten", [graph.op("GlobalAveragePool", [x], "pool")], "flat")
    path = graph.save(tmp_path / "pixel.onnx", [graph.dense(pool, 8, 6, "y")])
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=graph.feeds)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert first.cause == "outlier_channel"
    assert (first.evidence["axis"], first.evidence["channel"]) == (3, 9)
    place = say("one_of", one=say("place", number=9, axis=3), other=say("place", number=4, axis=2))
    assert first.evidence["who"] == str(place)


def test_a_loud_sample_is_told_by_what_the_others_lose(tmp_path: Path) -> None:
    """Of four samples one is 400 times as large, and a norm makes them alike: that one's own rounding, most of the
    product's error, is no measure of it. Before: "ordinary rounding, amplified 55 x"."""
    one = next(one for one in LOST if one.name == "quiet_speaker_in_a_batch")
    path, _, feeds = one.make(tmp_path)
    report = precision_debug.compare(
        path, run_mode="ort_int8_dynamic", inputs=feeds, reduce_range=True
    )
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.cause) == ("a_mm", "outlier_channel")
    assert (only.evidence["from"], only.evidence["axis"], only.evidence["channel"]) == ("x", 0, 2)
    assert only.evidence["left"] < 0.1


def test_a_loud_token_is_told_by_what_the_others_lose(tmp_path: Path) -> None:
    """The first word of each row is 400 times as large, and a Tanh makes them alike. Before: "along axis 0 of `up.w`
    all share one scale", 61 % left."""
    one = next(one for one in WORDS if one.name == "first_token_of_a_thousand")
    path, _, feeds = one.make(tmp_path)
    report = precision_debug.compare(path, run_mode="ort_int8_dynamic", inputs=feeds, reduce_range=True)
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.cause) == ("up", "outlier_channel")
    assert (only.evidence["from"], only.evidence["who"]) == ("x", str(say("token", number=0)))
    assert only.evidence["left"] < 0.1
