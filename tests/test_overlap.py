"""Errors that do not add up: behind a threshold one operator may do what all do, and the others without it, too."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import begins_approved

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.onnx_faults import Graph

import precision_debug
from precision_debug.explain import explain_run
from precision_debug.reasons import say
from precision_debug.report.blame import blame
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Report


def decided_by_a_sign(folder: Path, *sizes: float) -> tuple[str, dict[str, Any]]:
    """Inputs to each of which a constant is added and taken away again, which rounds it; a sign of the sum of all."""
    graph = Graph(seed=7)
    parts = [graph.input("x", 2 * graph.random.normal(size=(64, 64)).astype(np.float32))]
    for number, size in enumerate(sizes):
        step = np.spacing(np.float32(size)) * 2.0**16  # of BF16
        z = graph.input(f"z{number}", (step * graph.random.uniform(-1, 1, size=(64, 64))).astype(np.float32))
        constant = graph.weight(f"c{number}", np.float32(size))
        there = graph.op("Add", [z, constant], f"there{number}")
        parts.append(graph.op("Sub", [there, constant], f"back{number}"))
    total = graph.op("Sum", parts, "total")
    steep = graph.op("Mul", [total, graph.weight("steep", np.float32(50))], "steeper")
    return str(graph.save(folder / "sign.onnx", [graph.op("Tanh", [steep], "sign")])), graph.feeds


@pytest.fixture(scope="module")
def one_of_many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Any]:
    """What a comparison says of one operator that makes all, and what it would find if not all had been tried."""
    asked, cut_short = explain_run.find_overlap, []

    def ask_twice(subject: Any, alone: Any, tried: Any, *rest: Any) -> Any:
        whole = asked(subject, alone, tried, *rest)
        cut_short.append(asked(subject, alone, dataclasses.replace(tried, untried=("back5", "back6")), *rest))
        return whole

    path, feeds = decided_by_a_sign(tmp_path_factory.mktemp("overlap"), 460.0, *[40.0] * 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain_run, "find_overlap", ask_twice)
        return precision_debug.compare(path, run_mode="ort_bf16_sim", inputs=feeds), *cut_short


def test_an_error_that_others_make_as_well_without_it_is_nobodys(one_of_many: tuple[Report, Any]) -> None:
    """Before, the one operator was named at 100 %, beside "without it most is left", and no conclusion was drawn."""
    report, _ = one_of_many
    explanation = report.explanation
    assert explanation is not None
    assert (explanation.state, explanation.culprits) == ("diffuse", ())
    overlap = explanation.overlap
    assert overlap is not None
    assert overlap.name == "there0"
    assert overlap.alone**2 > 0.5 * explanation.actual**2
    assert overlap.without * 1.5 > explanation.actual
    assert overlap.fewest is not None
    assert overlap.fewest > 2
    first = lead_sentences(report)[0]
    assert begins_approved(first.en)
    assert "`there0`" in first.zh


def test_what_is_left_without_it_is_measured_though_not_all_were_tried(one_of_many: tuple[Report, Any]) -> None:
    """As seen of PP-OCRv5's recogniser: "no single culprit ... the largest makes 100% of it", and not a word of why."""
    report, overlap = one_of_many
    assert report.explanation is not None
    assert overlap is not None
    assert overlap.without * 1.5 > report.explanation.actual


def test_two_of_which_each_is_enough_are_both_named(tmp_path: Path) -> None:
    path, feeds = decided_by_a_sign(tmp_path, 460.0, 460.0)
    report = precision_debug.compare(path, run_mode="ort_bf16_sim", inputs=feeds)
    assert report.explanation is not None
    named = report.explanation.culprits
    assert {one.name for one in named} == {"there0", "there1"}
    assert {"there0", "there1"} <= {*named[0].left_out}
    assert named[0].without is not None
    assert named[0].with_all is not None
    assert 2 * named[0].without < named[0].with_all


def test_an_error_of_which_not_every_author_was_tried_gets_the_fixes_of_one_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it was said that nobody was found, and nothing was tried or offered."""
    whole = explain_run.conclude

    def cut_short(*given: Any, **more: Any) -> Any:
        found = whole(*given, **more)
        return dataclasses.replace(found, state="unknown", reason=say("not_tried", tried=3, left=126))

    monkeypatch.setattr(explain_run, "conclude", cut_short)
    path, feeds = decided_by_a_sign(tmp_path, 460.0, *[40.0] * 64)
    report = precision_debug.compare(path, run_mode="ort_bf16_sim", inputs=feeds)
    assert report.explanation is not None
    assert (report.explanation.state, report.explanation.culprits) == ("unknown", ())
    assert report.to_keep is not None
    assert any("search" in str(cell.text) for line in blame(report).lines for cell in line)


@pytest.mark.skipif(not find_spec("onnx_ir"), reason="ONNX Runtime's own quantiser of 4 bits needs onnx_ir")
@pytest.mark.parametrize("layers", [3, 4])
def test_keeping_most_of_a_small_model_accuses_nobody(layers: int, tmp_path: Path) -> None:
    """Layers of 4 bits each of which rounds as much as the others: keeping two of three halves the error, as keeping
    most of anything does."""
    graph = Graph(seed=layers)
    x = graph.input("x", graph.random.normal(size=(6, 64)).astype(np.float32))
    for number in range(layers):
        weight = graph.weight(f"w{number}", (graph.random.normal(size=(64, 64)) / 6).astype(np.float32))
        x = graph.op("Relu", [graph.op("MatMul", [x, weight], f"m{number}")], f"r{number}")
    path = str(graph.save(tmp_path / "even.onnx", [x]))
    report = precision_debug.compare(path, run_mode="ort_int4", inputs=graph.feeds)
    assert report.explanation is not None
    assert report.explanation.culprits == ()
