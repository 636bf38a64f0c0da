"""Causes that no engine of this machine shows by itself: the rule on real arithmetic, and what is said of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted.onnx_faults import Graph

import precision_debug
from precision_debug import numbers, registry
from precision_debug.explain import Subject, explain
from precision_debug.explain.causes import _vanished, cause_of
from precision_debug.explain.grid import _saturated, outlier_of
from precision_debug.explain.inputs import inputs_differ
from precision_debug.explain.introduced import Alone, measure
from precision_debug.observe.store import Store
from precision_debug.reasons import say
from precision_debug.records import Culprit, ModelFiles, Row, SessionSpec, Status, TensorMeta
from precision_debug.report.blame import sentence_of

pytest.importorskip("onnxruntime")


def row(index: int, op_type: str, name: str, base: np.ndarray, target: np.ndarray, **more: Any) -> Row:
    compared = numbers.compare(base, target)
    return Row(
        index=index, op_type=op_type, name=name, target_name=name, status=Status.FAIL, comparison=compared, **more
    )


def tf32(array: np.ndarray) -> np.ndarray:
    """Rounded to TF32's 11 bits, to nearest even: float32 with its 13 last bits rounded away."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) >> 13 << 13
    return rounded.astype(np.uint32).view(np.float32)


@pytest.fixture
def product(tmp_path: Path) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """A baseline's session of one product, its input, and its weight."""
    g = Graph(seed=1)
    x = g.input("x", g.random.normal(size=(64, 96)).astype(np.float32))
    g.op("MatMul", [x, g.weight("w", g.random.normal(size=(96, 32)))], "y")
    path = g.save(tmp_path / "m.onnx", ["y"])
    backend = next(b for b in registry.backends() if b.name == "onnxruntime")
    session = backend.open(SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_fp32"), [g.feeds])
    session.run(g.feeds, lambda *_: None)
    yield session, g.feeds["x"], g.weights["w"]
    session.close()


def subject_of(session: Any, x: np.ndarray, exact: np.ndarray, wrong: np.ndarray, **extra: str) -> Subject:
    rows = [row(0, "Input", "x", x, x), row(1, "MatMul", "y", exact, wrong, is_output=True)]
    targets = {"y": TensorMeta(name="y", op_type="MatMul", node="node_y", dtype="float32", extra=extra)}
    return Subject(
        baseline=session, target=session, feeds={"x": x}, rows=rows, tensors=session.tensors, targets=targets,
        precision="float32",
    )  # fmt: skip


def cause(subject: Subject, exact: np.ndarray, wrong: np.ndarray) -> tuple[str, Any]:
    with Store() as one, Store() as two:
        one.put("y", exact)
        two.put("y", wrong)
        alone = Alone(method="isolated", exact=one, wrong=two)
        alone.found["y"] = measure(subject, "y", exact, wrong, "isolated")
        code, evidence, _ = cause_of(subject, alone, "y", "")
    return code, evidence


@pytest.mark.parametrize("spread", ["normal", "wide"])
def test_products_of_operands_that_were_rounded_to_tf32(product: Any, spread: str) -> None:
    session, x, w = product
    if spread == "wide":
        x = (x * np.exp(3 * np.random.default_rng(0).normal(size=x.shape))).astype(np.float32)
    exact, wrong = x @ w, tf32(x) @ tf32(w)
    code, evidence = cause(subject_of(session, x, exact, wrong), exact, wrong)
    assert code == "tf32"
    assert 0.15 < evidence["units"] < 1.2


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32 in another order", "another weight"])
def test_other_errors_are_no_tf32(product: Any, kind: str) -> None:
    session, x, w = product
    exact = x @ w
    wrong = {
        "float16": lambda: (x.astype(np.float16).astype(np.float32) @ w).astype(np.float16).astype(np.float32) * 1.01,
        "bfloat16": lambda: _bf16(x) @ _bf16(w),
        "float32 in another order": lambda: x[:, ::-1].astype(np.float32) @ w[::-1],
        "another weight": lambda: x @ (w * np.float32(1.002)),
    }[kind]()
    code, _ = cause(subject_of(session, x, exact, wrong), exact, np.ascontiguousarray(wrong))
    assert code != "tf32"


def _bf16(array: np.ndarray) -> np.ndarray:
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_a_constraint_that_was_not_obeyed_is_the_cause(product: Any) -> None:
    session, x, w = product
    exact = x @ w
    wrong = exact.astype(np.float16).astype(np.float32)
    told = {"Obeyed": "no", "Asked Precision": "FP32", "Real Precision": "FP16"}
    subject = subject_of(session, x, exact, wrong, **told)
    code, evidence = cause(subject, exact, wrong)
    assert (code, evidence) == ("not_obeyed", {"layer": "node_y", "asked": "FP32", "real": "FP16"})
    obeyed = subject_of(session, x, exact, wrong, **{**told, "Obeyed": "yes"})
    assert cause(obeyed, exact, wrong)[0] != "not_obeyed"


def test_inputs_that_differ_are_said_first_and_rounded_ones_are_the_same(product: Any, tmp_path: Path) -> None:
    session, x, w = product
    other = np.roll(x, 1, axis=0)

    def subject(given: np.ndarray, dtype: str) -> Subject:
        rows = [row(0, "Input", "x", x, given), row(1, "MatMul", "y", x @ w, given @ w, is_output=True)]
        targets = {"x": TensorMeta(name="x", op_type="Input", dtype=dtype)}
        return Subject(
            baseline=session, target=session, feeds={"x": x}, rows=rows, tensors=session.tensors, targets=targets,
            precision="float16" if dtype == "float16" else "model",
        )  # fmt: skip

    [found] = inputs_differ(subject(other, "float32"))
    assert (found.name, found.cause) == ("x", "inputs_differ")
    assert found.evidence["error"] == pytest.approx(np.linalg.norm(other - x) / np.linalg.norm(x), rel=1e-3)
    assert sentence_of(found, "model").en.startswith("Input `x` differs between the two sides: float32 of -")
    assert "两侧的输入 `x` 不同" in sentence_of(found, "model").zh
    explanation, _ = explain(subject(other, "float32"), level="fast", folder=tmp_path)
    assert explanation.culprits[0].cause == "inputs_differ"
    half = x.astype(np.float16).astype(np.float32)
    assert inputs_differ(subject(half, "float16")) == ()
    assert inputs_differ(subject(x, "float32")) == ()
    assert len(inputs_differ(subject(half, "float32"))) == 1  # it was rounded where it should not have been


def test_a_session_says_that_it_computes_in_tf32(product: Any) -> None:
    session, x, w = product
    subject = subject_of(session, x, x @ w, tf32(x) @ tf32(w))
    assert subject.typical_unit == 2.0**-24
    session.arithmetic = "tf32"
    judged = subject_of(session, x, x @ w, tf32(x) @ tf32(w))
    assert judged.typical_unit == 2.0**-11
    assert judged.error_units(judged.row_of["y"]) < 1


def test_only_a_share_is_shown_in_percent() -> None:
    evidence = {"amplifier": "s", "amplifier_type": "Sub", "input_size": 65504.0, "output_size": 0.5778, "factor": 1e5}
    found = Culprit(
        name="a",
        node="",
        op_types=("Add",),
        cause="cancellation",
        evidence=evidence,
        confidence="isolated",
        keep=("a",),
    )
    assert "result 0.5778)" in sentence_of(found, "float16").en
    assert "%" not in sentence_of(found, "float16").zh


def test_what_differs_between_two_files_has_a_chinese_name() -> None:
    evidence = {"what": "constant", "name": "w", "count": 1, "elements": 4, "base": 1.0, "target": 2.0, "largest": 1.0}
    found = Culprit(
        name="a",
        node="",
        op_types=("Add",),
        cause="files_differ",
        evidence=evidence,
        confidence="compared",
        keep=("a",),
    )
    assert "constant w" in sentence_of(found, "float16").en
    assert "常量 w" in sentence_of(found, "float16").zh
    assert "constant" not in sentence_of(found, "float16").zh


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_a_constant_vanishes_where_the_median_of_what_is_not_zero_does() -> None:
    """Counting decides nothing that the median would not."""
    random, least = np.random.default_rng(0), 2.0**-24
    some = [0.0, -0.0, 1e-9, -1e-9, least, np.nextafter(least, 0), 1e-5, 1.0, np.nan, np.inf]
    cases = [random.choice(some, int(random.integers(1, 9))).astype(np.float32) for _ in range(2000)]
    cases += [np.full(600_000, 1e-9, np.float32), random.normal(size=600_000).astype(np.float32)]
    found = []
    for values in cases:
        sizes = np.abs(values[values != 0])
        told = _vanished({"w": values}, least)
        found.append(bool(told))
        assert found[-1] == bool(sizes.size and np.median(sizes) < least)
        assert not told or told["value"] == np.median(sizes)
        assert _vanished({"w": values}, 0.0) == {}
    assert 100 < sum(found) < 1900


@pytest.mark.parametrize("behind", ["Softmax", "Tanh", "Relu"])
def test_a_product_whose_result_becomes_small_behind_it_does_not_cancel(behind: str, tmp_path: Path) -> None:
    """One region, as only its end was seen: a softmax's results are small whatever the product's terms are."""
    g = Graph(seed=1)
    weight = g.random.normal(size=(96, 256))
    if behind == "Relu":
        weight[48:] = -weight[:48] + 1e-3 * weight[48:]  # halves that nearly cancel
    half = g.random.normal(size=(64, 48))
    x = g.input("x", np.hstack([half, half]).astype(np.float32) * (30 if behind == "Tanh" else 1))
    m = g.op("MatMul", [x, g.weight("w", weight)], "m")
    y = g.op("Mul", [m, g.weight("s", np.array(1e-4))], "z") if behind == "Tanh" else m
    path = g.save(tmp_path / "m.onnx", [g.op(behind, [y], "y")])
    backend = next(b for b in registry.backends() if b.name == "onnxruntime")
    session = backend.open(SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_fp32"), [g.feeds])
    exact = session.run(g.feeds)["y"]
    wrong = exact * np.float32(1 + 2.0**-6)
    rows = [row(0, "Input", "x", g.feeds["x"], g.feeds["x"]), row(1, behind, "y", exact, wrong, is_output=True)]
    targets = {"y": TensorMeta(name="y", op_type=behind, node="node_y", dtype="float16")}
    subject = Subject(
        baseline=session, target=session, feeds=g.feeds, rows=rows, tensors=session.tensors, targets=targets,
        precision="float16",
    )  # fmt: skip
    assert (cause(subject, exact, wrong)[0] == "cancellation") is (behind == "Relu")
    session.close()


@pytest.mark.parametrize("held", ["integers", "floats"])
def test_a_large_channel_takes_the_range_only_of_what_is_held_on_its_grid(product: Any, held: str) -> None:
    """A softmax of floats behind a quantised product: its small results are no steps of the largest one's grid."""
    session, x, _ = product
    random = np.random.default_rng(4)
    exact = random.uniform(0.0, 2e-3, size=(64, 32)).astype(np.float32)
    exact[:, 7] = random.uniform(0.5, 1.0, size=64)
    wrong = np.rint(exact * 127) / 127 if held == "integers" else exact * random.uniform(0.9, 1.1, size=exact.shape)
    subject = subject_of(session, x, exact, wrong.astype(np.float32))
    targets = {"y": TensorMeta(name="y", op_type="Softmax", node="node_y", dtype="int8")}
    subject = dataclasses.replace(subject, targets=targets, precision="int8")
    assert (cause(subject, exact, wrong.astype(np.float32))[0] == "outlier_channel") is (held == "integers")


@pytest.mark.parametrize("others", ["all_small", "graded"])
def test_what_an_outlier_channel_is_larger_than_is_true_of_them(others: str) -> None:
    """Weights of a real detector: the largest is 30 x larger than a quarter of the channels, 1.2 x than the next."""
    random = np.random.default_rng(0)
    weights = random.uniform(-1, 1, size=(64, 32))
    weights *= np.ones((64, 1)) if others == "all_small" else np.geomspace(0.02, 90, 64)[:, None]
    weights[9] *= 100 if others == "all_small" else 100 / np.abs(weights[9]).max()
    ranges = np.sort(np.abs(weights).max(axis=1))
    evidence = outlier_of(weights)
    assert evidence is not None
    assert (evidence["channel"], evidence["axis"]) == (9, 0)
    told = {"from": "w", "who": say("channel", number=9), **evidence}
    words = sentence_of(Culprit(name="y", node="y", op_types=("Conv",), cause="outlier_channel", evidence=told), "int8")
    if others == "all_small":
        assert evidence["ratio"] == pytest.approx(ranges[-1] / ranges[-2])
        assert "x larger than any other and" in words.en
        assert "比其他任一个大" in words.zh
    else:
        assert evidence["ratio"] == pytest.approx(ranges[-1] / np.quantile(ranges, 0.25))
        assert "x larger than a quarter of them and" in words.en
        assert "比其中四分之一大" in words.zh


def test_what_rounds_to_the_lowest_step_is_not_cut_off_there() -> None:
    """A coarse grid's lowest number may be 0 only because all else is too small for a step: values below it are
    rounded, and the range reaches them."""
    exact = np.array([-5.8, -0.2, 0.1, 0.4, 1.3, 755.0] * 20)
    assert _saturated(exact, np.where(exact > 100, 740.0, 0.0)) == {}
    step = 3.0
    assert _saturated(exact, np.rint(exact / step) * step) == {}
    cut = _saturated(exact, np.clip(np.rint(exact / 0.05), 0, 255) * 0.05)
    assert (cut["limit"], cut["largest"]) == (pytest.approx(12.75), 755.0)


def test_rounding_of_which_a_later_operator_makes_infinity_is_told_as_that(tmp_path: Path) -> None:
    """-log(-log p) of a p of 0.9999, which is 1 in float16: nothing is amplified 5 times, it is infinite."""
    g = Graph(seed=3)
    x = g.random.normal(size=(2, 4, 16))
    x[1, 2, 3] = 9.4
    p = g.op("Sigmoid", [g.input("x", x.astype(np.float32))], "p")
    z = g.op("Log", [g.op("Neg", [g.op("Log", [p], "first")], "n")], "z")
    path = g.save(tmp_path / "m.onnx", [g.dense(g.op("Sigmoid", [z], "gate"), 16, 4, "y", 3.0), z])
    report = precision_debug.compare(path, run_mode="ort_fp16_sim", inputs=g.feeds)
    assert report.explanation is not None
    culprit = report.explanation.culprits[0]
    assert (culprit.name, culprit.cause, culprit.amplifier, culprit.evidence["broken"]) == ("p", "amplified", "z", 1)
    assert "ordinary rounding, of which Log `z` makes NaN or Inf" in sentence_of(culprit, "float16").en


def test_channels_that_were_pruned_are_nobody_s_measure() -> None:
    """As seen on a real detector: "7.219e+08 x larger than a quarter of the channels"."""
    weights = np.random.default_rng(0).uniform(0.5, 1, (32, 4, 3, 3)).astype(np.float32)
    weights[:10] *= 1e-9
    assert outlier_of(weights) is None
    weights[20] *= 40
    found = outlier_of(weights)
    assert found is not None
    assert found["channel"] == 20
    assert 20 < found["ratio"] < 100
