"""What an explanation tries is counted in work, what it did not try is said, and small errors have authors too."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from approval import begins_approved, holds_approved

pytest.importorskip("onnx", reason="the models are ONNX's")
pytest.importorskip("onnxruntime", reason="they run in ONNX Runtime")

from planted import fourth_clean, fourth_onnx
from planted.unseen import Unseen

import precision_debug
from precision_debug.explain import work
from precision_debug.report.blame import blame
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Report, Verdict


def case(name: str, mode: str) -> Unseen:
    return next(one for one in (*fourth_onnx.CASES, *fourth_clean.CASES) if (one.name, one.mode) == (name, mode))


def report_of(name: str, mode: str, folder: Path, **more: Any) -> Report:
    model, _, feeds = case(name, mode).make(folder)
    return precision_debug.compare(model, run_mode=mode, inputs=feeds, **more)


def explanation(report: Report) -> Any:
    assert report.explanation is not None
    return dataclasses.replace(report.explanation, seconds=0.0)


def test_the_clock_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which every step takes ten seconds: the same is tried, and the same said."""
    fast = explanation(report_of("large_mean_before_a_norm", "ort_bf16_sim", tmp_path))
    now = itertools.count(0.0, 10.0)
    monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(work, "CAP", 1e9)
    slow = explanation(report_of("large_mean_before_a_norm", "ort_bf16_sim", tmp_path))
    assert slow == fast
    assert fast.tried == fast.candidates > 30


def test_nothing_else_of_an_explanation_reads_a_clock(root: Path) -> None:
    files = [path for path in (root / "precision_debug" / "explain").glob("*.py") if path.name != "work.py"]
    clocks = re.compile(r"^import time|monotonic|perf_counter", re.MULTILINE)
    assert [path.name for path in files if clocks.search(path.read_text(encoding="utf-8"))] == []


def test_the_far_cap_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "CAP", -1.0)
    report = report_of("large_mean_before_a_norm", "ort_bf16_sim", tmp_path)
    assert explanation(report).state == "unknown"
    assert explanation(report).reason.code == "ended_at_the_cap"
    assert "--explain full" in explanation(report).reason


@pytest.mark.parametrize("allowed", [1, 2, 5])
def test_of_more_operators_than_can_be_tried_the_one_that_matters_is_found_by_halves(
    allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_LEAST", allowed)
    monkeypatch.setattr(work, "_MOST", allowed)
    report = report_of("moving_average_of_a_running_sum", "ort_bf16_sim", tmp_path)
    said = explanation(report)
    assert said.culprits[0].name == "total"
    assert said.tried < said.candidates


def test_what_was_not_tried_alone_is_counted_and_measured_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_LEAST", 3)
    monkeypatch.setattr(work, "_MOST", 3)
    report = report_of("decoder_that_looks_at_an_encoder", "ort_bf16_sim", tmp_path)
    said = explanation(report)
    assert (said.state, said.culprits) == ("healthy", ())
    assert said.tried >= 3
    assert said.candidates > said.tried
    assert said.rest is not None
    sentence = blame(report).lines[0][0].text.en
    assert begins_approved(sentence)
    assert f"{said.candidates - said.tried} more make" in sentence


@pytest.mark.parametrize("name", ["large_mean_before_a_norm", "moving_average_of_a_running_sum"])
def test_a_small_error_that_one_operator_makes_has_an_author(name: str, tmp_path: Path) -> None:
    """Faults that cost 1 and 4 %, below what BF16 is allowed to lose where many operators make it."""
    mode = "ort_bf16_sim"
    report = report_of(name, mode, tmp_path)
    named = explanation(report).culprits
    assert named
    assert named[0].name in case(name, mode).who
    assert named[0].without is not None
    assert named[0].without * 1.5 < explanation(report).actual
    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("name", "mode"),
    [("deep_perceptron", "ort_int8"), ("decoder_that_looks_at_an_encoder", "ort_bf16_sim"),
     ("decoder_that_looks_at_an_encoder", "ort_int8_dynamic"), ("deep_perceptron", "ort_int8_dynamic")],
)  # fmt: skip
def test_a_healthy_model_that_is_looked_at_accuses_nobody(name: str, mode: str, tmp_path: Path) -> None:
    report = report_of(name, mode, tmp_path)
    said = explanation(report)
    assert said.candidates == said.tried > 10
    assert (said.state, said.culprits, report.verdict) == ("healthy", (), Verdict.EXPECTED)


def test_a_tolerance_that_is_not_met_asks_who_did_it(tmp_path: Path) -> None:
    report = report_of("encoder_of_three_layers", "ort_bf16_sim", tmp_path, atol=1e-4, rtol=1e-4)
    assert report.verdict is Verdict.FAIL
    assert explanation(report).candidates == explanation(report).tried > 10
    assert holds_approved(lead_sentences(report)[1].en)


@pytest.mark.parametrize("name", ["large_mean_before_a_norm", "encoder_of_three_layers"])
def test_a_bound_that_was_not_measured_is_called_so(name: str, tmp_path: Path) -> None:
    """Without an explanation the first of them passes, and with one it does not: each report says what it rests on."""
    said = {
        level: " ".join(one.en for one in lead_sentences(report_of(name, "ort_bf16_sim", tmp_path, explain=level)))
        for level in ("off", "fast")
    }
    assert holds_approved(said["off"])
    assert "Nothing to do" not in said["off"]
    assert "does not measure" not in said["fast"]


def test_nobody_is_cleared_of_what_was_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the untried make together may be over half of it; by parts it was measured that none of them does. Before,
    one sentence said that this was not measured, and the next one that no operator causes the error."""
    monkeypatch.setattr(work, "_LEAST", 3)
    monkeypatch.setattr(work, "_MOST", 3)
    report = report_of("decoder_that_looks_at_an_encoder", "ort_bf16_sim", tmp_path)
    said = explanation(report)
    assert (said.state, said.culprits) == ("healthy", ())
    assert said.rest >= 0.5 > said.part
    sentences = " ".join(one.en for one in (*lead_sentences(report), blame(report).lines[0][0].text))
    assert holds_approved(sentences)
    assert "(by parts, at most " in sentences
    assert "was not measured" not in sentences
    left = dataclasses.replace(report, explanation=dataclasses.replace(said, part=None))  # of another version's file
    sentences = " ".join(one.en for one in (*lead_sentences(left), blame(left).lines[0][0].text))
    assert holds_approved(sentences, 2)
    assert "No single operator" not in sentences
