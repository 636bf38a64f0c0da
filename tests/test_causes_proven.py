"""A cause is said only with the measurement behind it: sentences that were false, and causes that were not told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from onnx import helper, numpy_helper
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.explain import causes, undo
from precision_debug.records import Culprit, Introduced
from precision_debug.report.lead import lead_sentences

RANDOM = np.random.default_rng(4)


def first(model: onnx.ModelProto, feeds: dict[str, Any], folder: Path, **settings: Any) -> tuple[Culprit, str]:
    pytest.importorskip("onnxruntime")
    onnx.save(model, folder / "m.onnx")
    report = precision_debug.compare(folder / "m.onnx", run_mode="ort_fp16_sim", inputs=feeds, **settings)
    assert report.explanation is not None
    assert report.explanation.culprits
    return report.explanation.culprits[0], lead_sentences(report)[0].en


@pytest.mark.parametrize("times", [20.0, 60.0, 170.0])
def test_an_outlier_is_as_large_as_the_model_has_it(times: float, tmp_path: Path) -> None:
    """What reads a tensor that one channel ruins in INT8 was measured on what is left of the others there: 3,609 times
    as large as any other was said of a channel that is 1,863 times as large."""
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(4)
    re, im = random.uniform(-1, 1, (2, 64, 32)).astype(np.float32)
    im[:, 8] = times
    weights = {"eps": np.float32(1e-3), "w": random.standard_normal((32, 4)).astype(np.float32)}
    weights["w"][8] = 1e-4
    nodes = [
        helper.make_node("Mul", ["re", "re"], ["re2"], name="re2"),
        helper.make_node("Mul", ["im", "im"], ["im2"], name="im2"),
        helper.make_node("Add", ["re2", "im2"], ["power"], name="power"),
        helper.make_node("Add", ["power", "eps"], ["more"], name="more"),
        helper.make_node("Sqrt", ["more"], ["root"], name="root"),
        helper.make_node("MatMul", ["root", "w"], ["y"], name="y"),
    ]
    inputs = [onnx_models.value(name, [64, 32]) for name in ("re", "im")]
    onnx.save(onnx_models.model(nodes, inputs, [onnx_models.value("y")], weights), tmp_path / "m.onnx")
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="ort_int8", inputs={"re": re, "im": im})
    assert report.explanation is not None
    culprit = report.explanation.culprits[0]
    assert (culprit.name, culprit.cause, culprit.evidence["channel"]) == ("power", "outlier_channel", 8)
    ranges = np.sort((re.astype(np.float64) ** 2 + im.astype(np.float64) ** 2).max(0))
    assert culprit.evidence["ratio"] == pytest.approx(ranges[-1] / ranges[-2], rel=1e-3)


@pytest.mark.parametrize("mask", [-1e4, -60000.0, -3.4e38])
def test_a_softmax_does_not_amplify_what_a_mask_beside_it_made_look_small(mask: float, tmp_path: Path) -> None:
    """An error of the scores is nothing beside a mask of -60000 that is added to them, and as large as before in what
    the softmax gives: "amplified 3237 x by Softmax" was said, and of a mask of -3.4e38 5e37 x."""
    random = np.random.default_rng(6)
    weights = {
        "far": np.float32(300), "w": (random.standard_normal((16, 16)) / 4).astype(np.float32),
        "mask": np.triu(np.full((16, 16), mask, np.float32), 1),
        "v": random.standard_normal((16, 8)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="m"),
        helper.make_node("Add", ["m", "far"], ["late"], name="late"),
        helper.make_node("Sub", ["late", "far"], ["back"], name="back"),
        helper.make_node("Add", ["back", "mask"], ["masked"], name="masked"),
        helper.make_node("Softmax", ["masked"], ["p"], name="p", axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"], name="y"),
    ]
    model = onnx_models.model(nodes, [onnx_models.value("x", [8, 16, 16])], [onnx_models.value("y")], weights)
    culprit, _ = first(model, {"x": random.standard_normal((8, 16, 16)).astype(np.float32)}, tmp_path)
    assert (culprit.name, culprit.evidence["amplifier"]) == ("late", "back")
    assert culprit.evidence["factor"] < 1000


@pytest.mark.parametrize(("scale", "key"), [(3e-5, "lost"), (1.5e-3, "digits")])
def test_what_becomes_0_or_loses_digits_is_counted_in_the_models_own_numbers(
    scale: float, key: str, tmp_path: Path
) -> None:
    """Of a square of a number that was 0 in float16 already, the operator by itself loses nothing: 511 of 512."""
    x = (scale * RANDOM.standard_normal((8, 64))).astype(np.float32)
    x[0, 0] = 1e-8
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("Mul", ["square", "up"], ["large"], name="large"),
        helper.make_node("MatMul", ["large", "w"], ["y"], name="y"),
    ]
    weights = {"up": np.float32(6e4), "w": RANDOM.standard_normal((64, 4)).astype(np.float32)}
    model = onnx_models.model(nodes, [onnx_models.value("x", [8, 64])], [onnx_models.value("y")], weights)
    culprit, _ = first(model, {"x": x}, tmp_path)
    assert (culprit.name, culprit.cause) == ("square", "underflow")
    exact = (x * x).astype(np.float32)
    rounded = exact.astype(np.float16)
    count = (rounded == 0) if key == "lost" else (np.abs(exact) < 2**-14) & (rounded.astype(np.float32) != exact)
    assert culprit.evidence[key] == int(count.sum())


def test_a_variance_of_one_channel_that_becomes_0_is_named(tmp_path: Path) -> None:
    """Half of them would have to be below the type for their median to be; and nothing overflows inside."""
    weights = {
        "scale": np.ones(8, np.float32), "bias": np.zeros(8, np.float32), "mean": np.zeros(8, np.float32),
        "variance": np.float32([1, 1, 1e-9, 1, 1, 1, 1, 1]),
    }  # fmt: skip
    nodes = [
        helper.make_node("BatchNormalization", ["x", *weights], ["norm"], name="norm", epsilon=1e-12),
        helper.make_node("Tanh", ["norm"], ["y"], name="y"),
    ]
    outputs = [onnx_models.value("norm"), onnx_models.value("y")]
    x = RANDOM.standard_normal((2, 8, 5, 6)).astype(np.float32)
    x[:, 3] *= 503 / np.abs(x[:, 3]).max()
    x[:, 2] *= 1e-5
    culprit, said = first(onnx_models.model(nodes, [onnx_models.value("x", [2, 8, 5, 6])], outputs, weights),
                          {"x": x}, tmp_path)  # fmt: skip
    assert (culprit.name, culprit.cause) == ("norm", "weight_underflow")
    assert culprit.evidence["weight"] == "variance"
    assert culprit.evidence["value"] == pytest.approx(1e-9)
    assert "overflow inside" not in said


def test_what_moves_a_difference_does_not_subtract(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "k1"], ["u"], name="u"),
        helper.make_node("Mul", ["x", "k2"], ["v"], name="v"),
        helper.make_node("Sub", ["u", "v"], ["d"], name="d"),
        helper.make_node("Transpose", ["d"], ["t"], name="t", perm=[1, 0]),
        helper.make_node("Mul", ["t", "k1"], ["y"], name="y"),
    ]
    weights = {"k1": np.float32(100.3), "k2": np.float32(100.0)}
    model = onnx_models.model(nodes, [onnx_models.value("x", [6, 7])], [onnx_models.value("y")], weights)
    feeds = {"x": RANDOM.standard_normal((6, 7)).astype(np.float32)}
    culprit, said = first(model, feeds, tmp_path, marks=("u", "v", "t", "y"))
    assert culprit.cause == "cancellation"
    assert culprit.evidence["amplifier_type"] == "Sub"
    assert "Transpose" not in said


@pytest.mark.parametrize(
    ("base", "held", "narrow", "error", "moves", "code"),
    [
        ("float32", "float16", "float16", 0.02, False, "coarse"),
        ("float32", "int8", "int8", 0.02, False, "coarse"),
        ("int8", "int8", "int8", 0.02, False, "other_arithmetic"),
        ("float16", "float16", "float16", 0.02, False, "other_arithmetic"),
        ("float32", "float32", "float32", 1e-5, False, "other_arithmetic"),
        ("float64", "float32", "float32", 1e-5, False, "coarse"),
        ("float64", "float32", "float32", 0.3, False, "other_arithmetic"),
        ("float32", "float32", "float16", 0.02, False, "coarse"),
        ("float32", "float32", "int8", 5.5, True, "other_arithmetic"),
        ("float32", "int8", "int8", 0.02, True, "coarse"),
    ],
)
def test_too_coarse_needs_a_finer_run_of_the_same(
    base: str, held: str, narrow: str, error: float, moves: bool, code: str
) -> None:
    subject: Any = SimpleNamespace(
        meta_of={"y": SimpleNamespace(dtype=base)}, held_as={"y": held}, narrow_type=narrow,
        only_moves=lambda _: moves, region_of={}, same_integers=False, quantises_itself=False,
    )  # fmt: skip
    found = Introduced(name="y", method="isolated", elements=4, rel_l2=error, units=99.0)
    numbers = SimpleNamespace(base=SimpleNamespace(dtype=base), target=SimpleNamespace(dtype=held))
    subject.row_of = {"y": SimpleNamespace(op_type="MatMul", comparison=numbers)}
    assert causes._cause_too_coarse(subject, "y", found)[0] == code
    # of several operators before one row nobody knows what cancels between them
    subject.region_of = {"y": (SimpleNamespace(op_type="tensor method"), SimpleNamespace(op_type="linear"))}
    several = "coarse" if base == "float64" else code
    assert causes._cause_too_coarse(subject, "y", found)[0] == several


class Chain:
    """A baseline of one operator after the other, into which errors are put."""

    def __init__(self, steps: dict[str, Any]) -> None:
        self._steps, self.runs = steps, 0

    def run_replacing(self, feeds: dict[str, Any], replace: Any, _names: Any) -> None:
        self.runs += 1
        value = feeds["x"]
        for name, step in self._steps.items():
            value = step(value)
            other = replace("", name, value)
            value = value if other is None else other


@pytest.mark.parametrize(
    ("last", "times"), [(lambda y: y * 3 - 2.9, 30.0), (np.sqrt, 0.5), (lambda y: y**40, 40.0)],
)  # fmt: skip
def test_what_an_error_grows_to_is_measured_with_it_alone(last: Any, times: float) -> None:
    """The joint error of two inputs was divided by that of the larger one."""
    from precision_debug.explain.effects import measure_growth
    from precision_debug.explain.workbench import HostWorkbench

    x = np.linspace(0.99, 1.01, 64)
    chain = Chain({"a": lambda x: x, "y": last})
    tensors = {"exact": {"a": x}, "wrong": {"a": x * (1 + 1e-6)}}
    subject: Any = SimpleNamespace(
        feeds={"x": x}, operators=lambda: (chain, None), showing=lambda hook: hook, bench=HostWorkbench(), rounded=(),
        baseline=chain,
    )  # fmt: skip
    alone: Any = SimpleNamespace(**tensors, ran={}, unlike=set())
    assert measure_growth(subject, alone, "a", "y") == pytest.approx(times, rel=0.2)
    assert measure_growth(subject, alone, "y", "y") is None


@pytest.mark.parametrize(("held", "runs"), [(1 << 20, 3), (0, 5)])
def test_errors_that_were_put_into_a_run_once_are_not_put_again(
    held: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a language model each operator's error was carried to the logits, and then once more for its token."""
    from precision_debug.explain import effects
    from precision_debug.explain.workbench import HostWorkbench

    monkeypatch.setattr(effects, "_HELD", held)
    x = np.linspace(0.5, 1.5, 64)
    chain = Chain({"a": lambda x: x * 2, "b": lambda x: x + 1, "y": np.sqrt})
    subject: Any = SimpleNamespace(
        feeds={"x": x}, operators=lambda: (chain, None), showing=lambda hook: hook, bench=HostWorkbench(), rounded=(),
        baseline=SimpleNamespace(replacer=chain),
    )  # fmt: skip
    exact = {"a": x * 2, "b": x * 2 + 1}
    alone: Any = SimpleNamespace(exact=exact, wrong={name: one * 1.01 for name, one in exact.items()},
                               ran={}, unlike=set())
    plain = {"y": np.sqrt(x * 2 + 1)}
    sinks = [effects.Sink(name="y", squared=1.0, size=1.0, is_output=True)]
    work: Any = SimpleNamespace(go_on=lambda: None, runs=8)
    carried = effects.carry_errors(subject, alone, ["a", "b"], sinks, plain, work).effects
    for name in carried:
        again = effects.run_with_errors(subject, alone, [name], ["a"], "y")
        off = effects.measure_error_at(subject.bench, plain["y"], again)
        assert carried[name][0].rel_l2 == pytest.approx(off, rel=1e-12)
    both = effects.run_with_errors(subject, alone, ["a", "b"], ["a", "b"], "y")
    assert both == pytest.approx(np.sqrt((x * 2.02 + 1) + 0.01 * (x * 2 + 1)), rel=0.01)
    assert chain.runs == runs


def test_what_a_run_shows_does_not_hang_on_what_was_asked_of_the_one_before() -> None:
    """The error of a tensor of which the baseline keeps its own value is put in only where that tensor is asked for."""
    from precision_debug.explain import effects
    from precision_debug.explain.workbench import HostWorkbench

    x = np.linspace(0.5, 1.5, 64)
    chain = Chain({"a": lambda x: x * 2, "y": np.sqrt})
    subject: Any = SimpleNamespace(
        feeds={"x": x}, operators=lambda: (chain, None), showing=lambda hook: hook, bench=HostWorkbench(), rounded=(),
        baseline=SimpleNamespace(replacer=SimpleNamespace(fixed={"a"})),
    )  # fmt: skip
    tensors = {"exact": {"a": x * 2}, "wrong": {"a": x * 3}}
    sinks = {name: effects.Sink(name=name, squared=1.0, size=1.0, is_output=True) for name in ("a", "y")}
    plain = {"a": x * 2, "y": np.sqrt(x * 2)}
    asked, alone = [[*sinks.values()], [sinks["y"]], [*sinks.values()]], SimpleNamespace(
        **tensors, ran={}, unlike=set())
    for one in asked:
        said, fresh = (
            effects.carry_errors_together(subject, ran, ["a"], ["a"], one, plain)  # type: ignore[arg-type]
            for ran in (alone, SimpleNamespace(**tensors, ran={}, unlike=set()))
        )  # fmt: skip
        assert said == fresh


@pytest.mark.parametrize(("far", "seed"), [(30.0, 1), (500.0, 2)])
def test_the_factor_of_one_input_is_not_that_of_both(far: float, seed: int, tmp_path: Path) -> None:
    """Of a square and what it nearly equals, each is told its own."""
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(seed)
    x = random.uniform(0.95, 1.05, (8, 32)) * (np.float32(far) if far < 100 else 15)
    gap = random.uniform(0.2, 2, x.shape)
    feeds = {"x": x.astype(np.float32)}
    feeds["c"] = (feeds["x"].astype(np.float64) ** 2 - gap).astype(np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("Sub", ["square", "c"], ["inside"], name="inside"),
        helper.make_node("Sqrt", ["inside"], ["root"], name="root"),
    ]
    inputs = [onnx_models.value(name, [8, 32]) for name in ("x", "c")]
    onnx.save(onnx_models.model(nodes, inputs, [onnx_models.value("root")], {}), tmp_path / "m.onnx")
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="ort_fp16_sim", inputs=feeds)
    assert report.explanation is not None
    told = {one.name: one.evidence for one in report.explanation.culprits if one.cause == "cancellation"}
    exact = {name: value.astype(np.float64) for name, value in feeds.items()}

    def off(value: Any, other: Any) -> float:
        return float(np.linalg.norm(other - value) / np.linalg.norm(value))

    for name in told.keys() & exact.keys():
        held = {**exact, name: feeds[name].astype(np.float16).astype(np.float64)}
        there = off(exact["x"] ** 2 - exact["c"], held["x"] ** 2 - held["c"])
        assert told[name]["factor"] == pytest.approx(there / off(exact[name], held[name]), rel=0.05)
    assert "x" in told
    assert told["x"]["factor"] != pytest.approx(told["c"]["factor"] if "c" in told else 0.0, rel=0.3)


@pytest.mark.parametrize(("constant", "code"), [(-np.inf, "infinite_constant"), (-2.0, "born")])
def test_a_constant_that_is_infinite_is_no_finite_input(constant: float, code: str) -> None:
    subject: Any = SimpleNamespace(
        held_as={"y": "float32"}, narrow_type="float32", sources=lambda _: (), region_of={},
        constants={"y": {"k": np.float32([1, constant])}},
        row_of={"y": SimpleNamespace(op_type="Max", comparison=None)},
    )  # fmt: skip
    own = Introduced(name="y", method="isolated", elements=2, rel_l2=0.0, born_inf=1)
    alone: Any = SimpleNamespace(found={"y": own})
    exact, wrong = np.float32([1, 2]), np.float32([1, np.inf])
    assert causes._cause_by_values(subject, alone, "y", exact, wrong)[0] == code


@pytest.mark.parametrize(("seed", "tokens"), [(5, 400), (6, 700)])
def test_what_stands_behind_a_coarse_tensor_is_measured_on_right_inputs(
    tmp_path: Path, seed: int, tokens: int
) -> None:
    """One query attends to one key, all others to all: in 8 bits nothing is left of these, and what is computed of that
    lies beyond the ranges behind it. Alone these tensors lose little: "clipped", "a wrong scale" were false."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    random = np.random.default_rng(seed)

    def drawn(rows: int, columns: int, size: float = 1.0) -> np.ndarray:
        return (size * random.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)

    row = np.ones((1, tokens, 1), np.float32)
    row[0, 0] = 25
    held = {"w0": drawn(16, 16), "wq": drawn(16, 16, 0.55), "row": row, "wk": drawn(16, 16, 0.55), "wv": drawn(16, 16),
            "quarter": np.float32(0.25), "wo": drawn(16, 16, 2.0), "w2": drawn(16, 4),
            "bo": (0.1 * random.standard_normal(16)).astype(np.float32)}  # fmt: skip
    steps = [("MatMul", "x w0", "m0"), ("Tanh", "m0", "h"), ("MatMul", "x wq", "q0"), ("Mul", "q0 row", "q"),
             ("MatMul", "h wk", "k"), ("MatMul", "h wv", "v"), ("Transpose", "k", "kt"), ("MatMul", "q kt", "scores"),
             ("Mul", "scores quarter", "scaled"), ("Softmax", "scaled", "attn"), ("MatMul", "attn v", "ctx"),
             ("MatMul", "ctx wo", "o"), ("Add", "o bo", "ob"), ("Relu", "ob", "or"), ("ReduceMean", "or", "pool"),
             ("MatMul", "pool w2", "out")]  # fmt: skip
    more: dict[str, dict[str, Any]] = {"kt": {"perm": [0, 2, 1]}, "pool": {"axes": [1], "keepdims": 0}}
    nodes = [helper.make_node(kind, reads.split(), [made], **more.get(made, {})) for kind, reads, made in steps]
    path = tmp_path / "m.onnx"
    onnx.save(onnx_models.model(
        nodes, [onnx_models.value("x", [4, tokens, 16])], [onnx_models.value("out", [4, 4])], held
    ), path)  # fmt: skip
    x = (0.6 * random.standard_normal((4, tokens, 16))).astype(np.float32)
    report = precision_debug.compare(path, run_mode="ort_int8", inputs={"x": x})
    assert report.explanation is not None
    assert report.explanation.culprits[0].name == "attn"
    assert {one.name for one in report.explanation.culprits} <= {"attn", "scores", "scaled", "q"}
    introduced = {row.name: row.introduced.rel_l2 for row in report.rows if row.introduced is not None}
    assert introduced["attn"] is not None
    assert introduced["attn"] > 0.3
    for name in ("pool", "out"):
        assert introduced[name] is not None
        assert introduced[name] < 0.05, name


@pytest.mark.parametrize(("far", "seed"), [(60.0, 3), (20.0, 5)])
def test_of_a_constant_only_what_becomes_0_is_undone(far: float, seed: int, tmp_path: Path) -> None:
    """A layer whose inputs lie far from nought and whose weights add up to nought: some weights become 0 in INT8, which
    was told, while the rounding of all the others makes the error."""
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(seed)
    w = random.uniform(-0.15, 0.15, (64, 64))
    weights = {"w": (w - w.mean(0)).astype(np.float32), "v": random.normal(size=(64, 8)) / 8, "far": np.float32(far)}
    weights["v"] = weights["v"].astype(np.float32)
    nodes = [
        helper.make_node(kind, reads.split(), [made], name=made)
        for kind, reads, made in (("Tanh", "x", "t"), ("Add", "t far", "a"), ("MatMul", "a w", "b"), ("Tanh", "b", "c"),
                                  ("MatMul", "c v", "y"))
    ]  # fmt: skip
    onnx.save(onnx_models.model(nodes, [onnx_models.value("x", [16, 64])], [onnx_models.value("y")], weights),
              tmp_path / "m.onnx")  # fmt: skip
    x = random.normal(size=(16, 64)).astype(np.float32)
    exact: dict[str, Any] = {"config": {"session.x64quantprecision": "1"}}  # else 8-bit sums may saturate
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode="ort_int8_dynamic", inputs={"x": x}, **exact
    )
    assert report.explanation is not None
    told = next(one for one in report.explanation.culprits if one.name == "b")
    assert told.cause == "cancellation", (told.cause, told.evidence)
    terms = far * np.sqrt(np.mean(np.square(weights["w"]))) * 8
    assert told.evidence["input_size"] == pytest.approx(terms, rel=0.05)
    assert told.evidence["factor"] == pytest.approx(terms / told.evidence["output_size"], rel=0.5)


@pytest.mark.parametrize(("kind", "level"), [("uint8", 128), ("int8", 100)])
def test_bytes_that_wrap_around_are_no_coarse_type(kind: str, level: int, tmp_path: Path) -> None:
    """A level that is taken off before the cast: the model's own bytes are no type that anything is rounded to."""
    pytest.importorskip("onnxruntime")
    ends = np.iinfo(kind)
    held = onnx_models.value("x", [2, 3, 8, 8])
    held.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    orders = {
        "base": [("Cast", ["x"], "wide"), ("Sub", ["wide", "level"], "less")],
        "target": [("Sub", ["x", "level"], "whole"), ("Cast", ["whole"], "less")],
    }
    for file, order in orders.items():
        nodes = [
            helper.make_node(op, read, [made], name=made, **({"to": onnx.TensorProto.FLOAT} if op == "Cast" else {}))
            for op, read, made in order
        ]
        nodes += [helper.make_node("Mul", ["less", "unit"], ["scaled"]), helper.make_node("Tanh", ["scaled"], ["y"])]
        weights = {"level": np.array(level, np.float32 if file == "base" else kind), "unit": np.float32(1 / 64)}
        model = onnx_models.model(nodes, [held], [onnx_models.value("y")], weights)
        onnx.save(model, tmp_path / f"{file}.onnx")
    x = RANDOM.integers(ends.min, ends.max + 1, (2, 3, 8, 8)).astype(kind)
    report = precision_debug.compare(
        tmp_path / "target.onnx", baseline_model=str(tmp_path / "base.onnx"), run_mode="ort_fp32", inputs={"x": x}
    )
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [("less", "other_arithmetic")]
    assert "units" not in report.explanation.culprits[0].evidence


@pytest.mark.parametrize(
    ("depth", "ops", "mode", "named"),
    [
        (12, ("Mish", "Softplus"), "ov_bf16", "act"),
        (48, ("Mish", "Softplus"), "ov_bf16", "act"),
        (12, ("Softsign", "Tanh"), "ov_bf16", "y"),  # inside of a longer stretch
        (12, ("Relu", "HardSwish"), "ov_bf16", "y"),
        (12, ("Softsign", "Tanh"), "ov_int8", "y"),  # "all are 1.38 times as large"
        (12, ("Relu", "HardSwish"), "ov_int8", "y"),
        (12, ("Relu", "HardSwish"), "ov_opt_fp32", "y"),
        (12, ("Relu", "HardSwish"), "ort_int8_dynamic", "y"),  # one engine, which writes it in two operators
        (12, ("Relu", "HardSwish"), "ort_opt", "y"),
    ],
)
def test_another_operator_behind_a_sum_is_no_sum_in_a_narrow_type(
    depth: int, ops: tuple[str, str], mode: str, named: str, tmp_path: Path
) -> None:
    """Rounding all that the stretch reads and makes is far from what the other operator does."""
    pytest.importorskip("openvino" if mode.startswith("ov") else "onnxruntime")
    if mode == "ov_int8":
        pytest.importorskip("nncf")
    graphs = Graph(seed=3, opset=18), Graph(seed=3, opset=18)
    for g, op in zip(graphs, ops, strict=True):
        x = g.input("x", g.random.standard_normal((5, depth)).astype(np.float32))
        g.dense(g.op(op, [g.dense(x, depth, 16, "a", 3)], "act"), 16, 4, "y")
    first, second = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    report = precision_debug.compare(
        second, baseline_model=first, run_mode=mode, baseline="ort_fp32", inputs=graphs[0].feeds
    )
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [(named, "files_differ")]
    assert [report.explanation.culprits[0].evidence[key] for key in ("name", "base", "target")] == ["act", *ops]


@pytest.mark.parametrize(("shape", "axis"), [((1, 6), 0), ((3, 1, 2), 1), ((6,), 3)])
def test_an_axis_of_which_a_result_has_one_slice_is_the_whole_result(shape: tuple[int, ...], axis: int) -> None:
    """The axis is of an input that has an outlier; an explanation ended there ("kth(=-1) out of bounds")."""
    exact = np.linspace(1, 2, 6).reshape(shape)
    assert undo._measure_by_slices(exact, 1.25 * exact, axis) == pytest.approx(0.25)


@pytest.mark.parametrize(("mode", "times", "both"), [("ov_opt_fp32", 1e6, True), ("ort_fp16_sim", 1e2, False)])
def test_where_the_baselines_own_rounding_is_amplified_as_much_neither_side_is_trusted(
    mode: str, times: float, both: bool, tmp_path: Path
) -> None:
    """The sine of large numbers: a sum in another order moves it, and so does rounding what it reads once, by numpy in
    float64; in float16 the target alone is that coarse."""
    pytest.importorskip("openvino" if mode.startswith("ov") else "onnxruntime")
    random = np.random.default_rng(0)
    w, x = (random.normal(size=shape).astype(np.float32) for shape in ((64, 64), (8, 64)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Mul", ["m", "times"], ["k"]),
        helper.make_node("Sin", ["k"], ["s"]), helper.make_node("Relu", ["s"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [8, 64])], [helper.make_tensor_value_info("y", 1, [8, 64])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.float32(times), "times")],
    )  # fmt: skip
    path = tmp_path / "sine.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    report = precision_debug.compare(str(path), run_mode=mode, inputs={"x": x})
    first = report.explanation.culprits[0]
    assert first.cause == "amplified"
    assert ("noise" in first.evidence) == both
    if both:
        product = x.astype(np.float64) @ w * times
        once = np.linalg.norm(np.sin(product.astype(np.float32).astype(np.float64)) - np.sin(product))
        assert first.evidence["noise"] == pytest.approx(once / np.linalg.norm(np.sin(product)), rel=0.3)


def test_a_chain_that_ends_in_integers_names_its_quantize_linear(tmp_path: Path) -> None:
    """What it gives is listed as the product's, whose values it holds; the other file has QLinearMatMul, which knows
    no addend."""
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    held = {
        "w": random.integers(-127, 128, (16, 8)).astype(np.int8), "more": random.normal(size=8).astype(np.float32),
        "zero": np.int8(0), **{f"{key}s": np.float32(one) for key, one in (("x", 0.03), ("w", 0.004), ("y", 0.05))},
    }  # fmt: skip
    first = helper.make_node("QuantizeLinear", ["x", "xs", "zero"], ["xq"])
    parts = [
        helper.make_node("DequantizeLinear", ["xq", "xs", "zero"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "zero"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["m"]), helper.make_node("Add", ["m", "more"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "ys", "zero"], ["q"]),
    ]  # fmt: skip
    whole = [helper.make_node("QLinearMatMul", ["xq", "xs", "zero", "w", "ws", "zero", "ys", "zero"], ["q"])]
    last = [helper.make_node("DequantizeLinear", ["q", "ys", "zero"], ["d"]), helper.make_node("Tanh", ["d"], ["y"])]
    paths = [str(tmp_path / name) for name in ("parts.onnx", "whole.onnx")]
    for path, nodes in zip(paths, (parts, whole), strict=True):
        graph = helper.make_graph(
            [first, *nodes, *last], "g", [helper.make_tensor_value_info("x", 1, [4, 16])],
            [helper.make_tensor_value_info("y", 1, [4, 8])],
            [numpy_helper.from_array(np.asarray(one), key) for key, one in held.items()],
        )  # fmt: skip
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    report = precision_debug.compare(
        paths[1], baseline_model=paths[0], baseline="ort_fp32", run_mode="ort_fp32",
        inputs={"x": random.normal(size=(4, 16)).astype(np.float32)},
    )  # fmt: skip
    first_named = report.explanation.culprits[0]
    assert first_named.name == "q"
    sides = [first_named.evidence[key].split("+") for key in ("base", "target")]
    assert (sides[0][-2:], sides[1]) == (["Add", "QuantizeLinear"], ["QLinearMatMul"])
