"""Who did it, and why, where that is known: planted faults, and clean models that accuse nobody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from planted.onnx_faults import CASES, Case, Graph
from planted.run import judged, report_of

import precision_debug
from precision_debug.explain.units import arithmetic_of, unit_of
from precision_debug.records import TensorStats

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
def test_the_culprit_comes_first_with_its_cause_and_clean_models_accuse_nobody(one: Case, tmp_path: Path) -> None:
    report = report_of(one, tmp_path)
    who, why, said = judged(one, report)
    assert who, said
    assert why, said
    if one.who:
        assert report.to_dict()["summary"]["culprits"][0]["name"] in one.who


def test_an_operator_alone_is_what_an_independent_computation_says(tmp_path: Path) -> None:
    g = Graph(seed=3)
    x = g.input("x", g.random.normal(size=(4, 16)).astype(np.float32))
    g.dense(x, 16, 16, "a", scale=3.0)
    g.op("Mul", ["a", g.weight("k", np.float32(1.7))], "y")
    model = g.save(tmp_path / "m.onnx", ["y"])
    report = precision_debug.compare(model, run_mode="ort_fp16_sim", inputs=g.feeds)
    rows = {row.name: row for row in report.rows}

    def held(array: np.ndarray) -> np.ndarray:
        return array.astype(np.float16).astype(np.float32)

    x16 = held(g.feeds["x"])
    exact = x16 @ g.weights["a.w"]
    wrong = held(x16 @ held(g.weights["a.w"]))
    expected = np.linalg.norm((wrong - exact).astype(np.float64)) / np.linalg.norm(exact.astype(np.float64))
    introduced = rows["a_mm"].introduced
    assert introduced is not None
    assert introduced.rel_l2 == pytest.approx(expected, rel=1e-3)
    assert introduced.method == "isolated"
    assert introduced.units == pytest.approx(expected * 2**11, rel=1e-3)


def test_explaining_changes_no_row(tmp_path: Path) -> None:
    one = next(case for case in CASES if case.name == "shift_and_back")
    model, _, feeds = one.make(tmp_path)
    plain = precision_debug.compare(model, run_mode=one.mode, inputs=feeds, explain="off")
    explained = precision_debug.compare(model, run_mode=one.mode, inputs=feeds, explain="full")
    assert plain.explanation is None
    assert explained.explanation is not None
    assert [row.comparison for row in plain.rows] == [row.comparison for row in explained.rows]


def test_feeds_stay_as_they_are(tmp_path: Path) -> None:
    one = next(case for case in CASES if case.name == "dense_overflow")
    model, _, feeds = one.make(tmp_path)
    before = {name: array.copy() for name, array in feeds.items()}
    precision_debug.compare(model, run_mode=one.mode, inputs=feeds)
    assert all(np.array_equal(before[name], feeds[name]) for name in feeds)


def test_units() -> None:
    assert arithmetic_of("ort_fp16_sim") == "float16"
    assert arithmetic_of("torch_autocast_bf16") == "bfloat16"
    assert arithmetic_of("ort_opt") == ""
    assert unit_of("float16", None) == 2.0**-11
    stats = TensorStats(dtype="float32", shape=(4,), elements=4, min=-1.0, max=1.55, rms=0.5)
    assert unit_of("uint8", stats) == pytest.approx(0.01)
    assert unit_of("int64", stats) == 0.0
