"""Whole numbers that are floats, rounded (pixels of a picture), are judged as numbers; choices are to agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the models run in it")

from planted.onnx_faults import Graph, image
from planted.onnx_further import k

import precision_debug
from precision_debug.cli.summary import format_summary
from precision_debug.records import Status
from precision_debug.report.model import Report, Verdict


def picture(g: Graph, gain: float = 1.0) -> str:
    x = g.conv(g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1"), 8, 3, "c2", gain)
    x = g.op("Mul", [g.op("Sigmoid", [x], "s"), k(g, "f", 255)], "wide")
    return g.op("Clip", [x, k(g, "lo", 0), k(g, "hi", 255)], "cut")


def whole(g: Graph) -> Sequence[str]:
    return [g.op("Cast", [g.op("Round", [picture(g)], "whole")], "y", to=2)]


def moved(g: Graph) -> Sequence[str]:
    """Rounded, cast, and turned."""
    cast = g.op("Cast", [picture(g)], "cast", to=6)
    return [g.op("Transpose", [cast], "y", perm=[0, 2, 3, 1])]


def far(g: Graph) -> Sequence[str]:
    """The picture is wrong: one convolution's results lie beyond float16."""
    x = g.op("Mul", [g.conv(image(g), 3, 8, "c1", 3e5), k(g, "back", 1e-5)], "again")
    return [g.op("Cast", [g.op("Mul", [g.op("Sigmoid", [x], "s"), k(g, "f", 255)], "wide")], "y", to=2)]


def classes(g: Graph) -> Sequence[str]:
    """Of ten classes that nearly tie the best, as bytes."""
    x = g.conv(image(g), 3, 10, "c1")
    g.weights["c1.w"][5:] = g.weights["c1.w"][:5] * (1 + 2e-5)
    return [g.op("Cast", [g.op("ArgMax", [x], "best", axis=1)], "y", to=2)]


def as_numbers(g: Graph) -> Sequence[str]:
    """The same, by way of floats."""
    floats = g.op("Cast", [*classes(g)], "floats", to=1)
    return [g.op("Cast", [g.op("Mul", [floats, k(g, "two", 2)], "twice")], "y2", to=6)]


def over_a_limit(g: Graph) -> Sequence[str]:
    return [g.op("Cast", [g.op("Greater", [picture(g), k(g, "limit", 127)], "bright")], "y", to=2)]


def run(build: object, mode: str, folder: Path) -> Report:
    g = Graph(seed=5)
    outputs = build(g)  # type: ignore[operator]
    return precision_debug.compare(g.save(folder / "m.onnx", outputs), run_mode=mode, inputs=g.feeds)


@pytest.mark.parametrize(("build", "mode"), [(whole, "ort_fp16_sim"), (moved, "ort_bf16_sim"), (whole, "ort_int8")])
def test_a_picture_of_whole_numbers_is_as_expected(build: object, mode: str, tmp_path: Path) -> None:
    report = run(build, mode, tmp_path)
    row = next(row for row in report.rows if row.is_output)
    assert row.comparison is not None
    assert row.comparison.mismatched
    assert report.verdict is Verdict.EXPECTED, [line.text.en for line in format_summary(report)]
    said = " ".join(line.text.en for line in format_summary(report))
    assert "off by 0 (Rel L2)" not in said


def test_a_picture_that_is_wrong_fails(tmp_path: Path) -> None:
    report = run(far, "ort_fp16_sim", tmp_path)
    assert report.verdict is Verdict.FAIL
    assert report.explanation is not None
    assert [one.name for one in report.explanation.culprits][:1] == ["c1"]


@pytest.mark.parametrize("build", [classes, as_numbers])
def test_choices_are_to_agree(build: object, tmp_path: Path) -> None:
    report = run(build, "ort_bf16_sim", tmp_path)
    row = next(row for row in report.rows if row.is_output)
    assert row.comparison is not None
    assert row.comparison.mismatched
    assert report.verdict is Verdict.FAIL
    assert "off by 0 (Rel L2)" not in " ".join(line.text.en for line in format_summary(report))


def test_a_limit_that_rounding_crosses_as_often_as_predicted_is_as_expected(tmp_path: Path) -> None:
    report = run(over_a_limit, "ort_bf16_sim", tmp_path)
    assert report.verdict is Verdict.EXPECTED
    assert report.explanation is not None
    (decision,) = report.explanation.decisions
    assert (decision.name, decision.expected) == ("bright", True)
    assert decision.margin is not None
    assert 0 < decision.count <= 8 * decision.predicted
    assert decision.margin < decision.reach


def sums(g: Graph) -> Sequence[str]:
    x = g.input("x", np.random.default_rng(0).normal(size=64).astype(np.float32))
    t = g.op("Sub", [g.op("Add", [x, k(g, "much", 1024)], "a"), k(g, "less", 1024)], "t")
    return [g.op("Add", [x, g.op("Mul", [t, k(g, "part", 1e-4)], "m")], "y")]


@pytest.mark.parametrize(("options", "status"), [
    ({"explain": "fast"}, 0), ({"explain": "off"}, 0), ({"explain": "off", "rtol": 0.05}, 1),
], ids=str)  # fmt: skip
def test_without_an_explanation_the_outputs_decide(options: dict[str, Any], status: int, tmp_path: Path) -> None:
    """A sum of two large numbers loses its small part, of which the output takes next to nothing: an explained run says
    "as expected", and one that is told to explain nothing says no other thing. A tolerance that was given decides."""
    g = Graph(seed=0)
    path = g.save(tmp_path / "m.onnx", sums(g))
    report = precision_debug.compare(path, run_mode="ort_bf16_sim", inputs=g.feeds, **options)
    assert report.exit_status == status
    assert "t" in {row.name for row in report.rows if row.status is Status.FAIL}
