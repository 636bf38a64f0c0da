"""Causes that no engine of this machine shows by itself: the rule on real arithmetic, and what is said of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from approval import begins_approved, holds_approved
from planted.onnx_faults import Graph

import precision_debug
from precision_debug import numbers, registry
from precision_debug.explain import Subject, explain
from precision_debug.explain.causes import _cause_born_there, _find_vanished_constant, find_cause
from precision_debug.explain.explain_run import find_differing_inputs
from precision_debug.explain.grid import _find_saturation, find_outlier
from precision_debug.explain.introduced import (
    Alone,
    is_same_kind,
    measure,
    measure_relative_error,
    replay_operators,
    run_alone,
)
from precision_debug.explain.moved import find_first_difference
from precision_debug.explain.operator_facts import constants_of, count_terms
from precision_debug.explain.regions import with_stretches
from precision_debug.explain.work import Work
from precision_debug.observe.store import Store
from precision_debug.reasons import say
from precision_debug.reasons.causes import CAUSES
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
        code, evidence, _ = find_cause(subject, alone, "y", "")
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


def test_a_stretch_is_blamed_for_what_is_rounded_inside_and_not_for_a_factor_that_no_sum_has(tmp_path: Path) -> None:
    """An angle of 300 radians inside of four operators: "it adds up terms that nearly cancel (size 300)" was said, as a
    constant of the stretch is 300 and its last operator adds; nothing cancels there."""
    import ml_dtypes

    g = Graph(seed=3)
    x = g.input("x", g.random.normal(size=(32, 16)).astype(np.float32))
    g.op("MatMul", [x, g.weight("w", g.random.normal(size=(16, 16)) / 4)], "m")
    g.op("Mul", ["m", g.weight("far", np.float32(300))], "angle")
    g.op("Sin", ["angle"], "sine")
    g.op("Add", ["sine", g.weight("b", g.random.normal(size=16))], "y")
    path = g.save(tmp_path / "m.onnx", ["y"])
    backend = next(one for one in registry.backends() if one.name == "onnxruntime")
    session = backend.open(SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_fp32"), [g.feeds])
    given, product = g.feeds["x"], g.feeds["x"] @ g.weights["w"]
    rounded = product.astype(ml_dtypes.bfloat16).astype(np.float32)
    exact, wrong = (np.sin(300 * one) + g.weights["b"] for one in (product, rounded))
    rows = [row(0, "Input", "x", given, given), row(1, "Add", "y", exact, wrong, is_output=True)]
    targets = {"y": TensorMeta(name="y", op_type="Add", node="node_y", dtype="bfloat16")}
    subject = Subject(
        baseline=session, target=session, feeds={"x": given}, rows=rows, tensors=session.tensors, targets=targets,
        precision="bfloat16",
    )  # fmt: skip
    code, evidence = cause(subject, exact, wrong)
    assert code != "cancellation"
    with Store() as one, Store() as two:
        one.put("y", exact)
        two.put("y", wrong)
        alone = Alone(method="replayed", exact=one, wrong=two)
        alone.found["y"] = measure(subject, "y", exact, wrong, "replayed")
        plain = Culprit(name="y", node="node_y", op_types=("MatMul", "Add"), cause=code, evidence=evidence)
        (culprit,) = with_stretches(subject, alone, [plain], Work(subject, "auto"))
    assert (culprit.cause, culprit.inner, culprit.evidence["inner"]) == ("amplified", "m", "m")
    own = np.linalg.norm(rounded - product) / np.linalg.norm(product)
    whole = np.linalg.norm(wrong - exact) / np.linalg.norm(exact)
    assert culprit.evidence["factor"] == pytest.approx(whole / own, rel=0.05)
    session.close()


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

    [found] = find_differing_inputs(subject(other, "float32"))
    assert (found.name, found.cause) == ("x", "inputs_differ")
    assert found.evidence["error"] == pytest.approx(np.linalg.norm(other - x) / np.linalg.norm(x), rel=1e-3)
    assert begins_approved(sentence_of(found, "model").en)
    assert "两侧的输入 `x` 不同" in sentence_of(found, "model").zh
    explanation, _ = explain(subject(other, "float32"), level="fast", folder=tmp_path)
    assert explanation.culprits[0].cause == "inputs_differ"
    half = x.astype(np.float16).astype(np.float32)
    assert find_differing_inputs(subject(half, "float16")) == ()
    assert find_differing_inputs(subject(x, "float32")) == ()
    assert len(find_differing_inputs(subject(half, "float32"))) == 1  # it was rounded where it should not have been


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


def test_one_number_of_an_array_is_not_told_as_the_array() -> None:
    whole = np.arange(6, dtype=np.float32).reshape(2, 3)
    other = whole.copy()
    other[1] *= 2
    for base, target, place in ((whole, other, [1, 0]), (whole[:1, 1:2], other[1:, 1:2], [])):
        found = find_first_difference("w", base, target)
        told = CAUSES["files_differ"].wording(found)
        assert found["at"] == place
        assert told is not None
        assert all(("{at}" in one, "{count}" in one) == (bool(place), bool(place)) for one in (told.en, told.zh))


@pytest.mark.parametrize(("held", "beyond"), [(None, None), ("float16", 8)])
def test_numbers_beyond_rounding_are_those_beyond_the_rounding_of_what_holds_them(
    held: str | None, beyond: int | None
) -> None:
    """Numbers 5e-4 apart are rounding of a half and not of float32."""
    base = np.random.default_rng(0).normal(size=64).astype(np.float32)
    target = base * np.where(np.arange(64) < 8, 1.5, 1.0005).astype(np.float32)
    found = find_first_difference("w", base, target if held is None else target.astype(held).astype(np.float32))
    assert (found["count"], found.get("beyond"), found["at"]) == (64, beyond, [0])


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
        told = _find_vanished_constant({"w": values}, least)
        found.append(bool(told))
        assert found[-1] == bool(sizes.size and np.median(sizes) < least)
        assert not told or told["value"] == np.median(sizes)
        assert _find_vanished_constant({"w": values}, 0.0) == {}
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
    evidence = find_outlier(weights)
    assert evidence is not None
    assert (evidence["channel"], evidence["axis"]) == (9, 0)
    told = {"from": "w", "who": say("channel", number=9), **evidence}
    words = sentence_of(Culprit(name="y", node="y", op_types=("Conv",), cause="outlier_channel", evidence=told), "int8")
    if others == "all_small":
        assert evidence["ratio"] == pytest.approx(ranges[-1] / ranges[-2])
        assert holds_approved(words.en)
        assert "比其他任一个大" in words.zh
    else:
        assert evidence["ratio"] == pytest.approx(ranges[-1] / np.quantile(ranges, 0.25))
        assert holds_approved(words.en, 2)
        assert "比其余的四分之一大" in words.zh


def test_what_rounds_to_the_lowest_step_is_not_cut_off_there() -> None:
    """A coarse grid's lowest number may be 0 only because all else is too small for a step: values below it are
    rounded, and the range reaches them."""
    exact = np.array([-5.8, -0.2, 0.1, 0.4, 1.3, 755.0] * 20)
    assert _find_saturation(exact, np.where(exact > 100, 740.0, 0.0)) == {}
    step = 3.0
    assert _find_saturation(exact, np.rint(exact / step) * step) == {}
    cut = _find_saturation(exact, np.clip(np.rint(exact / 0.05), 0, 255) * 0.05)
    assert (cut["limit"], cut["largest"]) == (pytest.approx(12.75), 755.0)


def test_no_range_ends_short_of_nought() -> None:
    """All that one word of constants moved beyond the upper end is 1.27: no lower end, which 0 lies above."""
    exact = np.linspace(-1.4, 1.2, 64)
    assert _find_saturation(exact, np.full(64, 1.27)) == {}
    assert _find_saturation(exact - 1.5, np.zeros(64))["limit"] == 0


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
    assert holds_approved(sentence_of(culprit, "float16").en)


def test_channels_that_were_pruned_are_nobody_s_measure() -> None:
    """As seen on a real detector: "7.219e+08 x larger than a quarter of the channels"."""
    weights = np.random.default_rng(0).uniform(0.5, 1, (32, 4, 3, 3)).astype(np.float32)
    weights[:10] *= 1e-9
    assert find_outlier(weights) is None
    weights[20] *= 40
    found = find_outlier(weights)
    assert found is not None
    assert found["channel"] == 20
    assert 20 < found["ratio"] < 100


def chain(folder: Path, name: str = "m", *, wrong: float = 0.0, tail: str = "Tanh", infinite: bool = False) -> Any:
    """x, MatMul a, Relu b, MatMul c, d: its file and feeds. wrong: relative error of the second product's weights."""
    g = Graph(seed=1)
    x = g.input("x", g.random.normal(size=(8, 16)).astype(np.float32))
    first, second = (g.random.normal(size=(16, 16)) for _ in range(2))
    g.op("MatMul", [x, g.weight("w", first)], "a")
    g.op("Relu", ["a"], "b")
    second = second * (1 + wrong * np.sign(second.T))
    if infinite:
        second[0, 0] = np.inf
    g.op("MatMul", ["b", g.weight("v", second)], "c")
    g.op(tail, ["c"], "d", **({"perm": [1, 0]} if tail == "Transpose" else {}))
    return g.save(folder / f"{name}.onnx", ["d"]), g.feeds


@contextlib.contextmanager
def two_sides(
    one: Path, other: Path, feeds: Any, names: str = "abcd", mode: str = "ort_fp32", **more: Any
) -> Iterator[tuple[Subject, dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Both files open and compared: the subject, and what either side made of the inputs."""
    backend = next(b for b in registry.backends() if b.name == "onnxruntime")
    sessions = [
        backend.open(SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode), [feeds])
        for path, mode in ((one, "ort_fp32"), (other, mode))
    ]
    values: list[dict[str, np.ndarray]] = [{}, {}]
    for session, found in zip(sessions, values, strict=True):
        session.run(feeds, lambda _, name, value, found=found: found.update({name: np.array(value)}))
    types = {meta.name: meta.op_type for meta in sessions[0].tensors}
    rows = [
        row(place, types[name], name, values[0][name], values[1][name], is_output=name == names[-1])
        for place, name in enumerate(names)
    ]
    targets = {meta.name: meta for meta in sessions[1].tensors}
    try:
        yield Subject(
            baseline=sessions[0], target=sessions[1], feeds=feeds, rows=rows, tensors=sessions[0].tensors,
            targets=targets, **{"precision": "float32", **more},
        ), *values  # fmt: skip
    finally:
        for session in sessions:
            session.close()


@pytest.mark.parametrize("together", [False, True])
def test_each_operator_alone_has_the_baselines_inputs(together: bool, tmp_path: Path) -> None:
    """Only the product with the other weights introduces anything; what follows inherits it."""
    (one, feeds), (other, _) = chain(tmp_path), chain(tmp_path, "other", wrong=0.1)
    asked: list[tuple[str, float | None]] = []
    with two_sides(one, other, feeds, together=together) as (subject, base, target):
        assert subject.row_of["d"].relative_l2 > 1e-3
        alone = run_alone(subject, lambda name, units: bool(asked.append((name, units))), tmp_path)
        assert alone.method == "isolated"
        assert list(alone.found) == list("abcd")
        assert {name for name, one in alone.found.items() if one.rel_l2} == {"c"}
        found = alone.found["c"]
        exact, wrong = base["c"].astype(np.float64), target["c"].astype(np.float64)
        assert found.rel_l2 == pytest.approx(np.linalg.norm(wrong - exact) / np.linalg.norm(exact), rel=1e-6)
        assert found.max_abs == pytest.approx(np.abs(wrong - exact).max())
        assert (found.name, found.method, found.elements) == ("c", "isolated", 128)
        assert [name for name, _ in asked] == list("abcd")
        assert dict(asked)["c"] == found.units == pytest.approx(found.rel_l2 / subject.typical_unit)
        assert [alone.exact_of(name) is None and alone.wrong_of(name) is None for name in "abcd"] == [True] * 4
        alone.close()


@pytest.mark.parametrize("together", [False, True])
def test_the_tensors_of_suspects_alone_are_kept(together: bool, tmp_path: Path) -> None:
    (one, feeds), (other, _) = chain(tmp_path), chain(tmp_path, "other", wrong=0.1)
    with two_sides(one, other, feeds, together=together) as (subject, base, target):
        alone = run_alone(subject, lambda name, units: name in "bc", tmp_path)
        np.testing.assert_array_equal(alone.exact_of("c"), base["c"])
        np.testing.assert_array_equal(alone.wrong_of("c"), target["c"])
        np.testing.assert_array_equal(alone.wrong_of("b"), base["b"])
        assert [name for name in "abcd" if name in alone.exact] == ["b", "c"]
        assert [name for name in "abcd" if name in alone.wrong] == ["b", "c"]
        alone.close()


@pytest.mark.parametrize("together", [False, True])
def test_what_becomes_infinite_is_kept_though_nobody_suspects_it(together: bool, tmp_path: Path) -> None:
    (one, feeds), (other, _) = chain(tmp_path), chain(tmp_path, "other", infinite=True)
    with two_sides(one, other, feeds, together=together) as (subject, _, target):
        alone = run_alone(subject, lambda name, units: False, tmp_path)
        found = alone.found["c"]
        assert (found.born_inf, found.born_nan) == (np.isinf(target["c"]).sum(), np.isnan(target["c"]).sum())
        assert found.born_inf + found.born_nan == 8
        assert [name for name in "abcd" if name in alone.exact and name in alone.wrong] == ["c"]
        assert (alone.found["d"].rel_l2, alone.found["d"].born_nan) == (0.0, 0), "it was given numbers"
        alone.close()


def test_decisions_that_flip_are_kept(tmp_path: Path) -> None:
    """Of integers and of what has another shape every element that differs is a flip."""
    (one, feeds), (other, _) = chain(tmp_path, tail="Sign"), chain(tmp_path, "other", tail="Transpose")
    with two_sides(one, other, feeds, names="abc") as (subject, _, _):
        exact = np.arange(12, dtype=np.int64).reshape(3, 4)
        found = measure(subject, "c", exact, exact + (exact > 9), "isolated")
        assert (found.flips, found.elements, found.rel_l2, found.units) == (2, 12, None, None)
        found = measure(subject, "c", exact, exact.reshape(4, 3), "isolated")
        assert (found.flips, found.elements, found.method) == (12, 12, "isolated")
    with two_sides(one, other, feeds, names="abcd") as (subject, _, _):
        alone = run_alone(subject, lambda name, units: False, tmp_path)
        assert alone.found["d"].flips == 128
        assert [name for name in "abcd" if name in alone.exact and name in alone.wrong] == ["d"]
        alone.close()


def test_replayed_operators_have_the_targets_inputs(tmp_path: Path) -> None:
    (one, feeds), (other, _) = chain(tmp_path), chain(tmp_path, "other", wrong=0.1)
    with two_sides(one, other, feeds) as (subject, base, target), Store() as waiting:
        noted: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        replay_operators(subject, lambda name, *pair: noted.update({name: tuple(map(np.array, pair))}), waiting)
        assert list(noted) == list("abcd")
        for name in "abcd":
            np.testing.assert_array_equal(noted[name][1], target[name])
            assert name not in waiting
        np.testing.assert_array_equal(noted["c"][0], base["c"])
        np.testing.assert_allclose(noted["d"][0], np.tanh(target["c"]), rtol=1e-6)


@pytest.mark.parametrize(
    ("precision", "names", "method"),
    [("float32", "few", "isolated"), ("int8", "few", "replayed"), ("int8", "all", "isolated")],
)
def test_a_quantised_target_that_takes_few_values_back_is_replayed(
    precision: str, names: str, method: str, tmp_path: Path
) -> None:
    """In INT8 the last operator would be blamed for the whole. What is named twice is taken back once."""
    (one, feeds), (other, _) = chain(tmp_path), chain(tmp_path, "other", wrong=0.1)
    with two_sides(one, other, feeds, precision=precision) as (subject, _, _):
        # a row whose tensor the engine no longer has when its operators are run one by one
        gone = dataclasses.replace(subject.row_of["a"], name="gone", target_name="gone")
        more = [gone] if names == "few" else []
        asked = dataclasses.replace(subject, rows=[*subject.rows, *more])
        alone = run_alone(asked, lambda name, units: False, tmp_path)
        assert alone.method == method
        assert {name for name, one in alone.found.items() if one.rel_l2 and one.rel_l2 > 1e-5} == {"c"}
        assert {one.method for one in alone.found.values()} == {method}
        alone.close()


def test_what_was_given_nan_makes_none_of_its_own(tmp_path: Path) -> None:
    (one, feeds), (other, _) = chain(tmp_path), chain(tmp_path, "other", infinite=True)
    clean = np.ones((4, 4), np.float32)
    broken = clean.copy()
    broken[0, :3] = np.nan, np.nan, np.inf
    with two_sides(one, other, feeds) as (subject, _, _):
        for name, method, born in (
            ("d", "isolated", (2, 1)), ("d", "replayed", (0, 0)), ("c", "replayed", (2, 1)),
        ):  # fmt: skip
            found = measure(subject, name, clean, broken, method)
            assert (found.born_nan, found.born_inf) == born, (name, method)
        for value, born in ((np.inf, (0, 1)), (np.nan, (1, 0))):
            one = clean.copy()
            one[1, 1] = value
            found = measure(subject, "c", clean, one, "isolated")
            assert (found.born_nan, found.born_inf) == born
        found = measure(subject, "c", broken, broken[::-1].copy(), "isolated")
        assert (found.born_nan, found.born_inf) == (0, 0), "as many as before"
        found = measure(subject, "c", np.where(np.isnan(broken), np.inf, broken), broken, "isolated")
        assert (found.born_nan, found.born_inf) == (2, 0)


class TwoEngines:
    """Tensors of two sessions of one model under one name, as an engine shows them that was rebuilt for its marks."""

    def __init__(self, wide: Any, narrow: Any, elsewhere: Collection[str]) -> None:
        self.arithmetic, self.replacer, self._sides = narrow.arithmetic, None, (wide, narrow)
        self._elsewhere = frozenset(elsewhere)
        self.tensors = tuple(
            dataclasses.replace(meta, extra={"Seen In": f"engine {1 if meta.name in self._elsewhere else 2}"})
            for meta in narrow.tensors
        )

    def run(self, feeds: Any, hook: Any = None, names: Any = None) -> Any:
        found: dict[str, Any] = {}
        for side in self._sides:
            side.run(feeds, lambda _op, name, value, found=found, side=side: found.update(
                {name: np.array(value)} if (side is self._sides[0]) is (name in self._elsewhere) else {}
            ))  # fmt: skip
        for meta in self.tensors if hook is not None else ():
            if meta.name in found and (names is None or meta.name in names):
                hook(meta.op_type, meta.name, found[meta.name])
        return {meta.name: found[meta.name] for meta in self.tensors if meta.is_output}


@pytest.mark.parametrize("elsewhere", [(), ("norm",), ("up",), ("up", "norm")])
def test_what_is_behind_an_overflow_is_no_author_where_another_engine_showed_its_inputs(
    elsewhere: tuple[str, ...], tmp_path: Path
) -> None:
    """Who reads another engine's tensors with nothing lost before them still is."""
    g = Graph(seed=2)
    x = g.input("x", g.random.normal(size=(8, 16)).astype(np.float32))
    g.op("Relu", [x], "up")
    g.op("MatMul", ["up", g.weight("w", 3e4 * g.random.normal(size=(16, 16)))], "down")
    g.op("LayerNormalization", ["down", g.weight("g", np.ones(16)), g.weight("b", np.zeros(16))], "norm", axis=-1)
    g.op("MatMul", ["norm", g.weight("v", g.random.normal(size=(16, 16)))], "q")
    g.op("Tanh", ["q"], "y")
    path, (shown, names) = g.save(tmp_path / "m.onnx", ["y"]), (dict[str, Any](), ["up", "down", "norm", "q", "y"])
    with two_sides(path, path, g.feeds, names, "ort_fp16_sim", precision="float16") as (subject, base, _):
        target: Any = TwoEngines(subject.baseline, subject.target, elsewhere)
        target.run(g.feeds, lambda _op, name, value: shown.update({name: value}))
        rows = [dataclasses.replace(row(one.index, one.op_type, one.name, base[one.name], shown[one.name]),
                                    is_output=one.is_output) for one in subject.rows]  # fmt: skip
        asked = dataclasses.replace(
            subject, target=target, rows=rows, targets={meta.name: meta for meta in target.tensors}
        )
        told, _ = explain(asked, level="full", folder=tmp_path)
        assert [one.name for one in told.culprits] == ["down"]


@pytest.mark.parametrize("outside", [4, 16, 64])
@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "Gemm of a transposed weight", "MatMul of a batch", "Conv"])
def test_a_sum_has_as_many_terms_as_are_added_up(kind: str, outside: int, tmp_path: Path) -> None:
    g, transposed = Graph(seed=3), kind.endswith("weight")
    sizes = {"MatMul of a batch": (2, 8, 16), "Conv": (1, 16, 8, 8)}
    x = g.input("x", g.random.normal(size=sizes.get(kind, (8, 16))).astype(np.float32))
    shape = (outside, 16, 3, 3) if kind == "Conv" else (outside, 16) if transposed else (16, outside)
    weight = g.weight("w", g.random.normal(size=shape))
    g.op(kind.partition(" ")[0], [x, weight], "y", **({"transB": 1} if transposed else {}))
    path = g.save(tmp_path / "m.onnx", ["y"])
    with two_sides(path, path, g.feeds, ["y"]) as (subject, _, _):
        assert count_terms(subject, "y", constants_of(subject, "y")) == (144 if kind == "Conv" else 16)


def test_an_error_is_told_in_units_of_the_coarser_rounding(tmp_path: Path) -> None:
    (one, feeds), (other, _) = chain(tmp_path), chain(tmp_path, "other", wrong=0.1)
    exact = np.full((4, 4), 2.0, np.float32)
    with two_sides(one, other, feeds) as (subject, _, _):
        found = measure(subject, "c", exact, exact * np.float32(1.25), "isolated")
        assert found.rel_l2 == pytest.approx(0.25)
        assert found.unit == subject.unit("c", numbers.compare(exact, exact).base) > 0
        assert found.units == pytest.approx(0.25 / max(found.unit, subject.typical_unit))
        assert measure(subject, "c", exact, exact, "isolated").units == 0.0


def relative(exact: Any, wrong: Any, largest: float = np.inf) -> float | None:
    exact, wrong = np.array(exact, np.float32), np.array(wrong, np.float32)
    found = numbers.compare(exact, wrong)
    return measure_relative_error(exact, wrong, found.base, largest, found.sqnr_db)


@pytest.mark.parametrize(
    ("exact", "wrong", "largest", "error"),
    [
        ([3.0, 4.0], [3.0, 4.5], np.inf, 0.1),
        ([3.0, 4.0], [3.0, 4.0], np.inf, 0.0),
        ([0.0, 0.0], [0.0, 1.0], np.inf, np.inf),
        # a mask and an infinity drown nobody, and what lies beyond the target's type is an overflow of its own
        ([3.0, 4.0, 1.5e18], [3.0, 4.5, 1e18], np.inf, 0.1),
        ([3.0, 4.0, -1e30], [3.0, 4.5, -np.inf], np.inf, 0.1),
        ([3.0, 4.0, np.inf], [3.0, 4.5, np.inf], np.inf, 0.1),
        ([3.0, 4.0, np.nan], [3.0, 4.5, 1.0], np.inf, 0.1),
        ([3.0, 4.0, 70000.0], [3.0, 4.5, 65504.0], 65504.0, 0.1),
        ([3.0, 4.0, -70000.0], [3.0, 4.5, -65504.0], 65504.0, 0.1),
        ([0.0, 12.0, 5.0], [0.0, 12.0, 18.0], 12.0, 1.0),
        ([0.0, 1e30], [0.0, 1.0], np.inf, 0.0),
        ([0.0, 1e30], [2.0, 1.0], np.inf, np.inf),
        ([1e30, np.inf], [1.0, 1.0], np.inf, None),
    ],
)
def test_neither_a_mask_nor_an_overflow_stands_in_an_error(
    exact: list[float], wrong: list[float], largest: float, error: float | None
) -> None:
    assert relative(exact, wrong, largest) == (error if error is None else pytest.approx(error, rel=1e-6))


def test_only_numbers_of_one_kind_stand_in_each_others_place() -> None:
    import ml_dtypes

    floats = [np.zeros(1, kind) for kind in ("float16", "float64", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)]
    whole = [np.zeros(1, kind) for kind in ("int64", "bool")]
    assert all(is_same_kind(one, other) for group in (floats, whole) for one in group for other in group)
    assert not any(is_same_kind(one, other) or is_same_kind(other, one) for one in floats for other in whole)


@pytest.mark.parametrize(("narrow", "become"), [
    ("float16", "Inf"), ("float8_e5m2", "Inf"), ("float8_e4m3fn", "NaN"), ("float8_e5m2fnuz", "NaN"),
])  # fmt: skip
def test_what_is_beyond_a_type_becomes_what_that_type_has(narrow: str, become: str) -> None:
    one: Any = SimpleNamespace(
        found=SimpleNamespace(born_nan=1, born_inf=0), vanished={}, constants={}, narrow=narrow, types=set(),
        largest_input=1e6, limit=6e4,
    )  # fmt: skip
    told = _cause_born_there(one)
    assert told is not None
    assert told[1]["become"] == become
