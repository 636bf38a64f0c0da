"""Sentences about models that were converted to float16, each beside what the converted model itself shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from approval import holds_approved

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.onnx_faults import Graph
from report_factory import make_report, make_row

import precision_debug
from precision_debug import registry
from precision_debug.records import Culprit, Explanation, ModelFiles, RunMode, SessionSpec, Status
from precision_debug.report.blame import blame
from precision_debug.report.lead import lead_sentences
from precision_debug.run.plan import Opening
from precision_debug.run.side import count_executed


def test_infinities_of_the_models_own_are_not_first_seen_behind_a_cast(tmp_path: Path) -> None:
    """A Pad with minus infinity, as a mask; the converted model casts it to float32 and goes on from there."""
    g = Graph(seed=1)
    x = g.input("x", g.random.normal(size=(1, 8, 16)).astype(np.float32))
    low, pads = g.weight("low", np.array(-np.inf, np.float32)), g.weight("pads", np.int64([0, 0, 1, 0, 0, 2]))
    s = g.op("Softmax", [g.op("Pad", [g.dense(x, 16, 16, "h"), pads, low], "p")], "s", axis=-1)
    report = precision_debug.compare(
        g.save(tmp_path / "m.onnx", [g.dense(s, 19, 4, "y")]), run_mode="ort_fp16", inputs=g.feeds
    )
    alone = [row for row in report.rows if row.status is Status.UNMATCHED and row.target is not None and row.target.inf]
    assert alone, "the target has the same infinities under a name of its own"
    assert report.first_non_finite is None


def test_an_epsilon_that_the_converter_raises_did_not_become_zero(tmp_path: Path) -> None:
    g = Graph(seed=1)
    x = g.random.normal(size=(8, 16)).astype(np.float32)
    x[:, ::3] = 0
    h = g.op("Abs", [g.input("x", x)], "h")
    q = g.op("Log", [g.op("Add", [h, g.weight("eps", np.array(1e-10))], "p")], "q")
    report = precision_debug.compare(
        g.save(tmp_path / "m.onnx", [g.dense(q, 16, 4, "y")]), run_mode="ort_fp16", inputs=g.feeds
    )
    assert report.explanation is not None
    assert [one.cause for one in report.explanation.culprits] == ["weight_underflow"]
    said = " ".join(one.en for one in lead_sentences(report))
    assert holds_approved(said)
    assert "became 0" not in said
    assert "which is 0" not in said
    assert any("1 weight is below" in note and "raised to 5.96e-08" in note for note in map(str, report.target.notes))


def test_what_a_kept_operator_reads_is_no_fault_of_the_file(tmp_path: Path) -> None:
    g = Graph(seed=1)
    x = g.input("x", g.random.normal(size=(8, 16)).astype(np.float32))
    small = g.op("Mul", [g.op("Mul", [x, g.weight("big", np.array(1e6))], "up"), g.weight("c", np.array(1e-6))], "down")
    path = g.save(tmp_path / "m.onnx", [g.dense(small, 16, 4, "y")])

    def proven(**options: object) -> list[str]:
        found = precision_debug.compare(path, run_mode="ort_fp16_sim", inputs=g.feeds, **options)
        return [str(note) for note in found.notes if "The file proves it" in str(note)]

    assert [one for one in proven() if "`big`" in one]
    assert not proven(node_block_list=["node_up", "node_down"])


def test_zeros_are_the_cause_only_where_they_alone_make_the_error(tmp_path: Path) -> None:
    """Some results of a product become 0 and harm nothing; the rounding of the others is what is amplified."""
    g = Graph(seed=3)
    x = g.input("x", g.random.normal(size=(64, 16)).astype(np.float32))
    weight = 1e-2 * g.random.normal(size=(16, 16))
    weight[:, :4] *= 1e-7
    offset = np.where(np.arange(16) < 4, 0.0, 30.0)
    a = g.op("Gemm", [x, g.weight("w", weight), g.weight("b", offset)], "a")
    s = g.op("Sub", [a, g.weight("o", offset)], "s")
    report = precision_debug.compare(
        g.save(tmp_path / "m.onnx", [g.dense(s, 16, 4, "y")]), run_mode="ort_fp16_sim", inputs=g.feeds
    )
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.amplifier) == ("a", "s")
    assert first.cause != "underflow", first.evidence


def test_operators_in_float16_are_those_that_compute_in_it(tmp_path: Path) -> None:
    """One whose result is only rounded to float16 computes in float32; the note and the report count the same."""
    g = Graph(seed=2)
    x = g.input("x", g.random.normal(size=(1, 4, 64)).astype(np.float32))
    h = g.op("Conv", [x, g.weight("k", g.random.normal(size=(8, 4, 3)))], "c", kernel_shape=[3])
    r = g.op("Relu", [h], "r")
    back = g.op("Reshape", [r, g.weight("shape", np.int64([1, 62, 8]))], "t")
    path = g.save(tmp_path / "m.onnx", [g.op("LayerNormalization", [back, g.weight("one", np.ones(8))], "n")])
    backend = next(one for one in registry.backends() if one.name == "onnxruntime")
    mode: RunMode = next(one for one in backend.run_modes if one.name == "ort_fp16")
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_fp16")
    session = backend.open(spec, [g.feeds])
    try:
        executed = count_executed(Opening(spec=spec, mode=mode, backend=backend), session)
        assert executed is not None
        note = next(str(one) for one in session.notes if "floating-point nodes" in str(one))
        assert f"{executed.low} of {executed.of} floating-point nodes" in note
    finally:
        session.close()


def test_the_first_tensor_that_fails_is_by_the_bound_that_decided() -> None:
    """The bound of one operator's error is known when that operator is, and may fail the operator itself."""
    rows = (
        dataclasses.replace(make_row(0, 2e-3, name="a"), status=Status.FAIL),
        dataclasses.replace(make_row(1, 2e-3, name="b"), status=Status.FAIL, inputs=("a",)),
        dataclasses.replace(make_row(2, 5e-2, name="y", is_output=True), status=Status.FAIL, inputs=("b",)),
    )
    culprit = Culprit(
        name="a", node="a", op_types=("Conv",), cause="coarse", evidence={"units": 2.0}, fails_first="y", at="y",
        share=1.0,
    )  # fmt: skip
    explanation = Explanation(state="culprits", at="y", culprits=(culprit,))
    report = dataclasses.replace(make_report(0), rows=rows, explanation=explanation)
    assert "first tensor that fails" not in blame(report).lines[1][1].text.en
    passes = dataclasses.replace(rows[0], status=Status.PASS)
    report = dataclasses.replace(report, rows=(passes, *rows[1:]))
    assert holds_approved(blame(report).lines[1][1].text.en)
