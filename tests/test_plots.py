"""Histograms of values and errors, and the error against the magnitude: in portraits, on pages and in the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnx_models
import pytest
from approval import is_approved

from precision_debug import compare
from precision_debug.cli import main
from precision_debug.numbers.draw_portrait import draw_portrait_of
from precision_debug.products.tools.plots import plot_lines
from precision_debug.report.formats.html.data import iterate_json
from precision_debug.report.model import Report


def test_the_density_counts_each_error_at_its_magnitude() -> None:
    base = np.float32([1, 1, 1, 100, 100, 0, -1, 5, np.inf])
    target = base + np.float32([0.1, 0.1, 0.001, 1, 0, 0.5, 0.1, np.nan, 0])
    found = draw_portrait_of("x", base, target)
    assert found is not None
    against = found.against
    assert against is not None
    counts = np.array(against.counts)
    assert counts.sum() == 5, "of 9: one without error, one whose baseline is 0, two not finite"
    magnitudes, errors = np.array(against.magnitudes), np.array(against.errors)
    for magnitude, error, number in ((0.0, -1.0, 3), (0.0, -3.0, 1), (2.0, 0.0, 1)):
        column = min(np.searchsorted(magnitudes, magnitude, "right") - 1, counts.shape[1] - 1)
        near = [min(np.searchsorted(errors, error + bit, "right") - 1, counts.shape[0] - 1) for bit in (-1e-4, 1e-4)]
        assert counts[sorted(set(near)), column].sum() == number
    assert draw_portrait_of("x", base[:2], base[:2]).against is None  # type: ignore[union-attr]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    return compare(tmp_path / "m.onnx", run_mode="ort_fp16_sim", atol=1e-6, rtol=1e-6, explain="off")


def test_the_terminal_draws_all_three_and_every_element_is_in_them(report: Report) -> None:
    portrait = max(report.portraits, key=lambda one: one.sampled)
    lines = [line for line, _ in plot_lines(report, len(report.portraits))]
    start = next(place for place, line in enumerate(lines) if line.startswith(f"{portrait.name}, n = "))
    shown = lines[start : start + 50]
    assert any("values: baseline, target" in line for line in shown)
    values = [line for line in shown[2:] if "…" in line][:12]
    assert sum(int(re.findall(r" (\d+)(?:  |$)", line)[0]) for line in values) == portrait.sampled
    assert any("absolute errors" in line for line in shown)
    assert any("│" in line and "█" in line for line in shown)


def test_both_languages_and_nothing_to_draw(report: Report, tmp_path: Path) -> None:
    assert any("数值分布" in line for line, _ in plot_lines(report, 1, language="zh"))
    calm = compare(tmp_path / "m.onnx", run_mode="ort_opt", explain="off")
    (line,) = [line for line, _ in plot_lines(calm, 3)]
    assert is_approved(line)


def test_commands_draw(report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_fp16_sim", "--atol", "1e-6", "--plots"]
    assert main([*words, "--explain", "off", "--output", str(tmp_path / "r.json")]) == 1
    assert "error (upwards) against magnitude" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "r.json"), "--plots", "2", "--lang", "en"]) == 1
    assert capsys.readouterr().out.count("values: baseline, target") == 2


def test_the_page_has_the_same_numbers(report: Report) -> None:
    drawn = [one for found in json.loads("".join(iterate_json(report)))["portraits"].values() for one in found]
    assert drawn
    assert all({"values", "errors", "against"} <= one.keys() for one in drawn)
    assert all(sum(map(sum, one["against"]["counts"])) <= one["sampled"] for one in drawn)
