"""NaN and Inf that several operators make together, and none alone: the first from which on the numbers break."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from approval import holds_approved

pytest.importorskip("onnx", reason="the models are ONNX's")
pytest.importorskip("onnxruntime", reason="they run in ONNX Runtime")

from planted.onnx_faults import Graph, tokens
from planted.onnx_further import k

import precision_debug
from precision_debug.explain import work
from precision_debug.report.blame import blame
from precision_debug.report.model import Report, Verdict
from precision_debug.run import fixes


def spectrum(g: Graph, volume: float) -> str:
    """Powers, 3e-9 in every fourth channel at a volume of 5e-5, their logarithm, and that scaled to 0 to 1. Float16
    holds the epsilon as 0."""
    loud = g.op("Add", [g.op("Abs", [g.mlp(tokens(g), 32, "m")], "size"), k(g, "one", 1.0)], "loud")
    quiet = g.op("Mul", [loud, k(g, "volume", np.where(np.arange(32) % 4, 1.0, volume))], "quiet")
    power = g.op("Mul", [quiet, quiet], "power")
    logarithm = g.op("Log", [g.op("Add", [power, k(g, "epsilon", 1e-10)], "floored")], "log")
    above = g.op("Sub", [logarithm, g.op("ReduceMin", [logarithm], "least", axes=[-1])], "above")
    return g.op("Div", [above, g.op("ReduceMax", [above], "most", axes=[-1])], "scaled")


def report_of(volume: float, folder: Path) -> Report:
    g = Graph(seed=3)
    out = g.dense(spectrum(g, volume), 32, 8, "y")
    return precision_debug.compare(g.save(folder / "m.onnx", [out]), run_mode="ort_fp16_sim", inputs=g.feeds)


def test_an_epsilon_that_vanishes_behind_what_vanished_is_the_culprit(tmp_path: Path) -> None:
    """With the baseline's powers the lost epsilon does no harm, and with the epsilon the lost powers are no NaN: what
    they make is told as what is left with it kept."""
    report = report_of(5e-5, tmp_path)
    said = report.explanation
    assert said is not None
    first = said.culprits[0]
    assert (first.name, first.cause, first.confidence) == ("floored", "weight_underflow", "substituted")
    assert (first.at, first.fails_first, first.share) == ("y", "log", None)
    powers = said.culprits[1]
    assert (len(said.culprits), powers.name, powers.cause) == (2, "power", "underflow")
    assert powers.beside is not None
    assert powers.beside.before == np.inf > powers.beside.left > 10 * powers.beside.then
    evidence = blame(report).lines[1][1].text
    assert holds_approved(evidence.en)
    assert "代入该张量的值会使其后出现 NaN 或 Inf" in evidence.zh
    kept = report.to_keep
    assert kept is not None
    assert kept.after is not None
    assert np.isfinite(kept.after)


def test_the_same_epsilon_beside_powers_that_the_type_holds_breaks_nothing(tmp_path: Path) -> None:
    report = report_of(1.0, tmp_path)
    assert report.explanation is not None
    assert (report.explanation.culprits, report.first_non_finite) == ((), None)
    assert report.verdict is Verdict.EXPECTED


def test_nan_of_inputs_that_are_infinite_on_both_sides_is_not_from_finite_ones(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    from planted.twelfth.torch_cases import CASES

    case = next(one for one in CASES if one.name == "row_that_sees_nobody_as_exported")
    path, base, feeds = case.make(tmp_path)
    report = precision_debug.compare(
        str(path), run_mode=case.mode, baseline_model=str(base), baseline="torch_fp32", inputs=feeds
    )
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.cause, first.evidence["what"], first.evidence["infinite"]) == ("born", "NaN", 31)


def beside_a_held_logarithm(g: Graph, steps: int) -> str:
    """A little of the logarithm of the same powers, which is infinite where float16 holds neither them nor their floor,
    and goes through several operators to a largest silence: no output is NaN or Inf, nor far off."""
    loud = g.op("Add", [g.op("Abs", [tokens(g)], "size"), k(g, "one", 1.0)], "loud")
    quiet = g.op("Mul", [loud, k(g, "volume", np.where(np.arange(32) % 4, 1.0, 8e-5))], "quiet")
    floored = g.op("Max", [g.op("Mul", [quiet, quiet], "power"), k(g, "floor", 3e-10)], "floored")
    last = g.op("Log", [floored], "log")
    for step in range(steps):
        last = g.op("Mul", [last, k(g, f"by{step}", 1 + 0.002 * (-1) ** step)], f"step{step}")
    held = g.op("Max", [last, k(g, "silence", -60.0)], "held")
    return g.op("Add", [loud, g.op("Mul", [held, k(g, "little", 5e-4)], "part")], "sum")


def test_what_makes_an_inf_that_no_output_shows_is_the_culprit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put in alone, the lost floor does nothing and the lost powers hardly anything. None of the operators behind the
    logarithm can have made its Inf, and there are more of them than are tried alone in a large model."""
    monkeypatch.setattr(work, "_LEAST", 8)
    monkeypatch.setattr(work, "_MOST", 8)
    monkeypatch.setattr(fixes, "_MOST", 3)
    g = Graph(seed=3)
    out = g.dense(beside_a_held_logarithm(g, 40), 32, 8, "y")
    report = precision_debug.compare(g.save(tmp_path / "m.onnx", [out]), run_mode="ort_fp16_sim", inputs=g.feeds)
    said = report.explanation
    assert said is not None
    first = said.culprits[0]
    assert (first.name, first.cause, first.at, first.fails_first) == ("floored", "weight_underflow", "y", "log")
    assert first.confidence == "substituted"
    kept = report.to_keep
    assert kept is not None
    assert kept.after is not None
    assert kept.before is not None
    assert 2 * kept.after < kept.before
