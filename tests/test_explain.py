"""Who did it, and why, where that is known: planted faults, and clean models that accuse nobody."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from approval import holds_approved
from planted import onnx_further, paddle_faults
from planted.onnx_faults import CASES, Case, Graph
from planted.run import judged, quick_ones, report_of
from precision_debug_onnxruntime import OnnxRuntimeBackend

import precision_debug
from precision_debug import registry
from precision_debug.explain import Subject
from precision_debug.explain.broken_outputs import find_hidden_overflow
from precision_debug.explain.effects import list_sinks
from precision_debug.explain.introduced import Alone
from precision_debug.explain.regions import with_stretches
from precision_debug.explain.units import unit_of
from precision_debug.explain.work import Work
from precision_debug.explain.workbench import HostWorkbench
from precision_debug.reasons.causes import CAUSES
from precision_debug.records import (
    Comparison,
    Culprit,
    Introduced,
    ModelFiles,
    Row,
    SessionSpec,
    Status,
    TensorMeta,
    TensorStats,
)
from precision_debug.report.blame import sentence_of
from precision_debug.report.formats.json import from_dict
from precision_debug.report.formats.xlsx.chart import make_curve
from precision_debug.report.model import Report

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
def test_the_culprit_comes_first_with_its_cause_and_clean_models_accuse_nobody(one: Case, tmp_path: Path) -> None:
    report = report_of(one, tmp_path)
    who, why, said = judged(one, report)
    assert who, said
    assert why, said
    if one.who:
        assert report.to_dict()["summary"]["culprits"][0]["name"] in one.who
    culprits = report.explanation.culprits if report.explanation is not None else ()
    assert [(found.cause, wrong) for found in culprits if (wrong := CAUSES[found.cause].misfits(found.evidence))] == []


@pytest.mark.parametrize("one", quick_ones(onnx_further.CASES))
def test_so_it_is_of_kinds_that_the_rules_were_not_calibrated_on(one: Case, tmp_path: Path) -> None:
    who, why, said = judged(one, report_of(one, tmp_path))
    assert who, said
    assert why, said


@pytest.mark.parametrize("one", paddle_faults.CASES, ids=[one.name for one in paddle_faults.CASES])
def test_the_same_of_paddle(one: paddle_faults.Case, tmp_path: Path) -> None:
    pytest.importorskip("paddle", reason="paddlepaddle is not installed")
    available = next(b for b in registry.backends() if b.name == "paddle").availability(one.mode)
    if not available.ok:
        pytest.skip(available.needs)
    report = report_of(one, tmp_path)
    who, why, said = judged(one, report)
    assert who, said
    assert why, said
    assert report.explanation is not None
    assert report.explanation.method == ("replayed" if "onednn" in one.mode else "isolated")


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


def _report_of_a_shift(tmp_path: Path, **settings: Any) -> tuple[Report, Graph]:
    g = Graph(seed=3)
    x = g.input("x", g.random.normal(size=(4, 16)).astype(np.float32))
    g.dense(x, 16, 16, "a", scale=3.0)
    g.op("Add", ["a", g.weight("c", np.float32(900))], "shifted")
    g.op("Sub", ["shifted", g.weight("c2", np.float32(900))], "y")
    model = g.save(tmp_path / "m.onnx", ["y"])
    return precision_debug.compare(model, run_mode="ort_fp16_sim", inputs=g.feeds, **settings), g


@pytest.mark.parametrize("lockstep", [True, False])
def test_inherited_error_is_what_an_independent_computation_says(tmp_path: Path, lockstep: bool) -> None:
    report, g = _report_of_a_shift(tmp_path, lockstep=lockstep)

    def held(array: np.ndarray) -> np.ndarray:
        return array.astype(np.float16).astype(np.float32)

    def off(made: np.ndarray, plain: np.ndarray) -> float:
        return float(np.linalg.norm((made - plain).astype(np.float64)) / np.linalg.norm(plain.astype(np.float64)))

    a = g.feeds["x"] @ g.weights["a.w"] + g.weights["a.b"]
    target = held(held(held(g.feeds["x"]) @ held(g.weights["a.w"])) + held(g.weights["a.b"]))
    shifted = held(target + np.float32(900))
    rows = {row.name: row for row in report.rows}
    found = {name: row.introduced.inherited for name, row in rows.items() if row.introduced is not None}
    assert found["x"] is None
    assert found["shifted"] == pytest.approx(off(target + 900, a + 900), rel=1e-2)
    assert found["y"] == pytest.approx(off(shifted - 900, (a + 900) - 900), rel=1e-3)
    assert rows["y"].introduced is not None
    assert rows["y"].introduced.rel_l2 == 0.0
    frame = report.to_pandas().set_index("name")
    assert frame.loc["y", "inherited_rel_l2"] == found["y"]
    path = tmp_path / "r.html"
    report.save(path)
    page = path.read_text(encoding="utf-8")
    assert "inherited_rel_l2" in page
    assert holds_approved(page)
    drawn = {point.name: point.introduced for point in make_curve(report).points}
    assert rows["shifted"].introduced is not None
    assert drawn["shifted"] == rows["shifted"].introduced.rel_l2


def test_a_replayed_target_has_an_inherited_error_too(tmp_path: Path) -> None:
    one = next(case for case in paddle_faults.CASES if case.name == "shift_and_back_onednn_bf16")
    pytest.importorskip("paddle", reason="paddlepaddle is not installed")
    available = next(b for b in registry.backends() if b.name == "paddle").availability(one.mode)
    if not available.ok:
        pytest.skip(available.needs)
    report = report_of(one, tmp_path)
    rows = {row.name: row for row in report.rows}
    own, handed = rows["add_1"].introduced, rows["add_2"].introduced
    assert own is not None
    assert handed is not None
    assert own.rel_l2 is not None
    assert handed.inherited is not None
    assert handed.inherited > 10 * own.rel_l2


def test_a_factor_behind_a_subtraction_is_not_what_amplifies(tmp_path: Path) -> None:
    """oneDNN fuses both into one; before: "ordinary rounding, amplified 78.72 x by scale", which no factor does."""
    pytest.importorskip("paddle", reason="paddle is not installed")
    from planted import eighth_paddle
    from planted.unseen import runs_here

    if not runs_here("onednn_bf16"):
        pytest.skip("this CPU has no bfloat16 that oneDNN takes")
    case = next(one for one in eighth_paddle.CASES if one.name == "turn_between_two_vectors")
    model, _, feeds = case.make(tmp_path)
    report = precision_debug.compare(model, run_mode="onednn_bf16", inputs=feeds)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.cause, first.evidence["amplifier"]) == ("cancellation", "subtract_0")
    assert first.evidence["factor"] > 60


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
    assert unit_of("float16", None) == 2.0**-11
    stats = TensorStats(dtype="float32", shape=(4,), elements=4, min=-1.0, max=1.55, rms=0.5)
    assert unit_of("uint8", stats) == pytest.approx(0.01)
    assert unit_of("int64", stats) == 0.0


def recorded_encoder() -> Report:
    """TensorRT 8.6.1 on an H200: FP16, layer 2's output dense reaches 743,818; the real engine's output is all NaN."""
    path = Path(__file__).parent / "data" / "tensorrt" / "encoder_overflow_h200.json.gz"
    return from_dict(json.loads(gzip.decompress(path.read_bytes())))


def recorded_subject(report: Report) -> Subject:
    """What explain knows of a recorded report; nothing of it runs."""
    tensors = [
        TensorMeta(name=row.name, op_type=row.op_type, node=row.node, inputs=row.inputs, is_output=row.is_output)
        for row in report.rows
    ]
    nothing: Any = SimpleNamespace(arithmetic="", replacer=None)
    return Subject(
        baseline=nothing, target=nothing, feeds={}, rows=report.rows, tensors=tensors, targets={}, precision="float16"
    )


def test_what_is_above_a_tensor_is_what_has_it_below() -> None:
    subject = recorded_subject(recorded_encoder())
    assert any(subject.ancestors(name) for name in subject.row_of)
    for at in subject.row_of:
        assert subject.ancestors(at) == {name for name in subject.row_of if at in subject.descendants(name)}


def test_a_real_engine_names_the_dense_that_overflows() -> None:
    report = recorded_encoder()
    culprit = report.to_dict()["summary"]["culprits"][0]
    assert (culprit["name"], culprit["cause"]) == ("layer2_down_matmul_out", "overflow")
    assert report.first_non_finite is not None


def test_an_overflow_that_a_rebuilt_engine_hides_is_told_from_the_baseline() -> None:
    report = recorded_encoder()

    def hidden(row: Row) -> Row:
        """As an engine shows it that computes everything but the output in float32."""
        if row.comparison is None or row.is_output:
            return row
        return dataclasses.replace(
            row, comparison=dataclasses.replace(row.comparison, target=row.comparison.base, rmse=0.0)
        )

    rows = [hidden(row) for row in report.rows]
    subject = recorded_subject(dataclasses.replace(report, rows=tuple(rows)))
    sinks = list_sinks(subject, "")
    assert [sink.name for sink in sinks if sink.non_finite] == ["encoded"]
    found = find_hidden_overflow(subject, sinks)
    assert found is not None
    assert (found.name, found.cause, found.confidence) == ("layer2_down_matmul_out", "overflow", "ranked")
    assert found.evidence["largest"] == pytest.approx(743818.125)
    assert find_hidden_overflow(subject, [sink for sink in sinks if not sink.non_finite]) is None


@pytest.mark.parametrize(("scale", "offset"), [(3e6, 0.0), (30.0, 0.0), (30.0, -1e9)])
def test_an_overflow_inside_a_stretch_is_told_where_its_end_alone_is_seen(
    scale: float, offset: float, tmp_path: Path
) -> None:
    """As an engine shows it that fuses everything: NaN at the output. Keeping the output alone mends nothing; a mask of
    -1e9 is no result that grew."""
    graph = Graph(seed=3)
    x = graph.input("x", graph.random.normal(size=(4, 8)).astype(np.float32))
    value = graph.op("MatMul", [x, graph.weight("w", graph.random.normal(size=(8, 8)))], "product")
    value = graph.op("Mul", [value, graph.weight("up", np.float32(scale))], "large")
    masks = np.where(np.arange(8) < 2, offset, 0.0).astype(np.float32)
    value = graph.op("Add", [value, graph.weight("mask", masks)], "masked")
    value = graph.op("Relu", [value], "kept")
    value = graph.op("Mul", [value, graph.weight("down", np.float32(1 / scale))], "small")
    path = str(graph.save(tmp_path / "m.onnx", [graph.op("Sigmoid", [value], "y")]))
    spec = SessionSpec(model=ModelFiles(model_file=path), mode="ort_fp32", work_dir=str(tmp_path))
    session = OnnxRuntimeBackend().open(spec, [graph.feeds])
    base, target = (TensorStats(dtype="float32", shape=(4, 8), elements=32, nan=nan, min=0.0, max=1.0, rms=0.5)
                    for nan in (0, 32))  # fmt: skip
    row = Row(index=0, op_type="Sigmoid", name="y", status=Status.FAIL, target_name="y", is_output=True,
              comparison=Comparison(base=base, target=target, shapes_match=True))  # fmt: skip
    subject = Subject(
        baseline=session, target=session, feeds=graph.feeds, rows=[row], tensors=session.tensors, targets={},
        precision="float16",
    )  # fmt: skip
    nothing: Any = {}
    own = Introduced(name="y", method="replayed", elements=32, born_nan=32)
    alone = Alone(method="replayed", found={"y": own}, exact=nothing, wrong=nothing)
    born = Culprit(name="y", node="", op_types=("Sigmoid",), cause="born", evidence={"what": "NaN", "count": 32},
                   confidence="replayed", keep=("y",))  # fmt: skip
    (found,) = with_stretches(subject, alone, [born], Work(subject, "auto"))
    session.close()
    assert found.inside == ("product", "large", "masked", "kept", "small", "y")
    if scale < 100:
        assert (found.cause, found.inner, found.keep) == ("born", "", ("y",))
        return
    assert (found.cause, found.inner, found.keep) == ("overflow", "large", ("large", "masked", "kept", "y"))
    assert found.evidence["limit"] < found.evidence["largest"]
    assert 0 < found.evidence["count"] <= 32
    assert found.evidence["inner"] == "large"


def test_an_fp32_target_is_never_told_to_try_fp32(tmp_path: Path) -> None:
    culprit = Culprit(name="y", node="n", op_types=("Conv",), cause="other_arithmetic", keep=("y",))
    assert "in FP32, with" not in sentence_of(culprit, "model").en
    assert "Keep `y` in FP32" in sentence_of(culprit, "float16").en


def test_what_would_take_minutes_is_not_done_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostWorkbench, "rate", 1.0)
    one = next(case for case in CASES if case.name == "shift_and_back")
    model, _, feeds = one.make(tmp_path)
    skipped = precision_debug.compare(model, run_mode=one.mode, inputs=feeds).explanation
    assert skipped is not None
    assert (skipped.state, skipped.culprits) == ("unknown", ())
    assert "--explain full" in skipped.reason
    asked = precision_debug.compare(model, run_mode=one.mode, inputs=feeds, explain="full").explanation
    assert asked is not None
    assert asked.culprits


def test_shapes_that_differ_inside_a_healthy_model_are_not_as_expected(tmp_path: Path) -> None:
    one = next(case for case in CASES if case.name == "cnn_ort_fp16_sim")
    report = report_of(one, tmp_path)
    assert str(report.verdict) == "as expected"
    place = next(i for i, row in enumerate(report.rows) if row.comparison is not None and not row.is_output)
    row = report.rows[place]
    assert row.comparison is not None
    apart = dataclasses.replace(row.comparison, shapes_match=False, mismatched=None)
    broken = dataclasses.replace(row, status=Status.FAIL, comparison=apart)
    rows = (*report.rows[:place], broken, *report.rows[place + 1 :])
    assert str(dataclasses.replace(report, rows=rows).verdict) == "out of tolerance"
