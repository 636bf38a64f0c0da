"""A cause is told where undoing it, and it alone, takes most of the operator's own error away; others are not told."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from planted.fourteenth_onnx import CASES

import precision_debug
from precision_debug.explain.undo import EXPERIMENTS, find_saturating_sums, measure_left_of
from precision_debug.pairing.weights import compare_weights
from precision_debug.reasons.causes import CAUSES
from precision_debug.records import Culprit
from precision_debug.report.blame import sentence_of

Nodes = list[tuple[Any, ...]]


def he(random: np.random.Generator, *shape: int) -> Any:
    return (random.standard_normal(shape) * np.sqrt(2 / shape[-2])).astype(np.float32)


def save(path: Path, nodes: Nodes, inputs: dict[str, Any], constants: dict[str, Any], out: str) -> Path:
    """nodes: type, inputs in one text, output, and attributes."""
    made = [helper.make_node(op, read.split(), [one], name=f"n_{one}", **(more[0] if more else {}))
            for op, read, one, *more in nodes]  # fmt: skip
    graph = helper.make_graph(
        made, "g", [helper.make_tensor_value_info(name, 1, value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info(out, 1, None)],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def first(model: Path, feeds: dict[str, Any], mode: str, **settings: Any) -> Culprit:
    pytest.importorskip("onnxruntime")
    report = precision_debug.compare(model, run_mode=mode, inputs=feeds, **settings)
    assert report.explanation is not None
    assert report.explanation.culprits
    return report.explanation.culprits[0]


def test_each_cause_that_says_what_is_undone_has_its_experiment() -> None:
    declared = {code for code, cause in CAUSES.items() if cause.undone is not None}
    # undone where they are found: exchanged, or given a scale that fits
    elsewhere = {"files_differ", "coarse_scale", "broken_scale", "other_range"}
    assert declared - elsewhere == {*EXPERIMENTS}


def averages(signed: bool) -> tuple[Any, Any, Any, Any]:
    """Two factors, their product, and what a kernel makes of it that adds each two of its 8-bit products in 16 bits."""
    drawn = np.random.default_rng(3)
    weights = np.full((2, 1, 12), 1 / 12) * (np.where(np.arange(12) // 2 % 2, 1, -1) if signed else 1)
    values = drawn.uniform(-1, 1, (2, 12, 40))
    top, steps = np.abs(weights).max(), 127 if signed else 255
    one = np.rint(weights / top * steps).astype(int) + (128 if signed else 0)
    unit = np.abs(values).max() / 127
    other = np.rint(values / unit).astype(int)
    whole = np.zeros((2, 1, 40), int)
    for first in range(0, 12, 2):
        pair = sum(one[..., at, None] * other[:, None, at] for at in (first, first + 1))
        whole += np.maximum(np.minimum(pair, 32767), -32768)
    if signed:
        whole -= 128 * other.sum(1, keepdims=True)
    return weights, values, np.matmul(weights, values), whole * unit * top / steps


def test_square_maps_of_different_channels_are_no_factors() -> None:
    """A Concat of boxes and scores: multiplying one by the other was a ValueError, and nobody was named."""
    drawn = np.random.default_rng(0)
    given = {name: drawn.normal(size=(2, many, 16, 16)) for name, many in (("boxes", 4), ("scores", 3))}
    exact = np.concatenate(list(given.values()), 1)
    case: Any = SimpleNamespace(
        subject=SimpleNamespace(sources=lambda _: list(given)), name="y", exact=exact, wrong=exact + 0.1,
        given=given.get, narrow="int8", constants={}, own=1.0,
    )  # fmt: skip
    assert find_saturating_sums(case) == {}


@pytest.mark.parametrize("signed", [False, True])
def test_sums_of_two_activations_that_saturate_are_computed_once_more(signed: bool) -> None:
    weights, values, exact, wrong = averages(signed)
    given = {"values": values, "weights": weights}  # in any order
    subject = SimpleNamespace(sources=lambda _: list(given))
    case: Any = SimpleNamespace(
        subject=subject, name="y", exact=exact, wrong=wrong, given=given.get, narrow="int8", constants={},
        own=float(np.linalg.norm(wrong - exact)),
    )  # fmt: skip
    evidence = find_saturating_sums(case)
    assert 0.05 < evidence["pairs"] < 0.9
    undone = EXPERIMENTS["saturating_sums"](case, evidence)
    assert np.linalg.norm(undone - exact) < 0.05 * np.linalg.norm(wrong - exact)
    for other in ({"narrow": "float16"}, {"constants": given}, {"exact": exact[..., :3]}):
        assert find_saturating_sums(SimpleNamespace(**{**vars(case), **other})) == {}  # type: ignore[arg-type]
    weights[..., 2:] *= 1e-3  # all but the largest are far from the end of 16 bits
    weights[..., 1] *= 1e-3
    case.exact = np.matmul(weights, values)
    assert find_saturating_sums(case) == {}


@pytest.mark.hardware("saturating_8_bit_sums")
def test_an_average_by_attention_is_told_whose_sums_saturate(tmp_path: Path) -> None:
    """Its weights are alike, each the largest integer: "all its results are 0.71 x what they should be" was said."""
    if find_spec("nncf") is None or find_spec("openvino") is None:
        pytest.skip("ov_int8 needs openvino and nncf")
    drawn = np.random.default_rng(3)
    feeds = {"x": np.zeros((2, 1, 12), np.float32), "m": drawn.uniform(-1, 1, (2, 12, 40)).astype(np.float32)}
    nodes: Nodes = [("Softmax", "x", "a"), ("MatMul", "a m", "y")]
    path = save(tmp_path / "attention.onnx", nodes, feeds, {}, "y")
    assert first(path, feeds, "ov_int8").cause == "saturating_sums"


@pytest.mark.hardware("saturating_8_bit_sums")
def test_the_same_in_a_file_that_is_quantised_blames_no_pass(tmp_path: Path) -> None:
    """`LP_TRANSFORMS_MODE` was: without that pass nothing is computed in 8 bits. What follows may turn its sign."""
    if find_spec("openvino") is None:
        pytest.skip("ov_opt needs openvino")
    drawn = np.random.default_rng(3)
    feeds = {"x": np.zeros((2, 1, 12), np.float32), "m": drawn.uniform(-1, 1, (2, 12, 40)).astype(np.float32)}
    held = {"as": np.float32(1 / 12 / 255), "az": np.uint8(0), "ms": np.float32(1 / 127), "mz": np.int8(0)}
    nodes = [helper.make_node("Softmax", ["x"], ["a"], name="a", axis=-1)]
    for name in ("a", "m"):
        scale = [f"{name}s", f"{name}z"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *scale], [f"{name}q"], name=f"{name}q"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}q", *scale], [f"{name}d"], name=f"{name}d"))
    nodes += [helper.make_node("MatMul", ["ad", "md"], ["p"], name="p"), helper.make_node("Neg", ["p"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(name, 1, value.shape) for name, value in feeds.items()],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()],
    )  # fmt: skip
    path = tmp_path / "quantised.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert first(path, feeds, "ov_opt").cause == "saturating_sums"


@pytest.mark.parametrize("harmful", [False, True])
def test_tiny_numbers_of_a_weight_are_told_where_they_do_the_harm(tmp_path: Path, harmful: bool) -> None:
    """Pruned weights of 1e-10 beside terms that cancel: without them nothing changes. Others are all that there is."""
    r = np.random.default_rng(9)
    x, keep = r.standard_normal((16, 32)).astype(np.float32), r.random((96, 48)) < 0.4
    w = r.standard_normal((96, 48)) * 0.2 * keep
    w -= keep * (w.sum(0) / keep.sum(0))
    w1 = np.where(keep, w, 1e-10 * r.standard_normal((96, 48)))
    if harmful:
        w1 = 3e-8 * r.standard_normal((96, 48))
    constants = {"w0": he(r, 32, 96), "off": np.full(96, 60), "w1": w1, "up": 1.0, "w2": he(r, 48, 6)}
    nodes: Nodes = [("MatMul", "x w0", "mm0"), ("Tanh", "mm0", "th"), ("Add", "th off", "feat"),
                    ("MatMul", "feat w1", "mm1"), ("Mul", "mm1 up", "big"), ("Tanh", "big", "act"),
                    ("MatMul", "act w2", "out")]  # fmt: skip
    if harmful:
        constants |= {"off": np.full(96, 1000), "up": 5e3}
        nodes[2] = ("Mul", "th off", "feat")
    culprit = first(save(tmp_path / "m.onnx", nodes, {"x": x}, constants, "out"), {"x": x}, "ort_fp16_sim")
    assert culprit.name == "mm1"
    assert culprit.cause == ("weight_underflow" if harmful else "cancellation")
    assert culprit.evidence["left"] < 0.1


def test_results_that_lose_digits_have_not_become_0(tmp_path: Path) -> None:
    r = np.random.default_rng(5)
    x = r.standard_normal((8, 32)).astype(np.float32)
    constants = {"w0": he(r, 32, 32), "one": 1.2, "tiny": 2.0**-22, "k1": 2.0**11, "k2": 2.0**11, "w1": he(r, 32, 6)}
    nodes: Nodes = [("MatMul", "x w0", "mm0"), ("Sigmoid", "mm0", "sg"), ("Add", "sg one", "pos"),
                    ("Mul", "pos tiny", "small"), ("Mul", "small k1", "up1"), ("Mul", "up1 k2", "up2"),
                    ("MatMul", "up2 w1", "out")]  # fmt: skip
    culprit = first(save(tmp_path / "m.onnx", nodes, {"x": x}, constants, "out"), {"x": x}, "ort_fp16_sim")
    assert (culprit.name, culprit.cause) == ("small", "underflow")
    assert "lost" not in culprit.evidence
    assert 0 < culprit.evidence["digits"] <= 256
    assert culprit.evidence["left"] < 0.1


@pytest.mark.parametrize(
    ("axes", "told"),
    [((3, 5), "token 5 of sample 3"), ((slice(None), slice(None), 7), "channel 7"), ((slice(None), 2), "token 2")],
)
def test_an_outlier_is_called_what_it_is(tmp_path: Path, axes: tuple[Any, ...], told: str) -> None:
    r = np.random.default_rng(74)
    x = r.standard_normal((8, 16, 32)).astype(np.float32)
    x[axes] *= 120
    constants = {"w0": he(r, 32, 48), "w1": he(r, 48, 32), "lg": np.ones(32), "lb": np.zeros(32), "w3": he(r, 32, 6)}
    if told.startswith("channel"):
        constants["w0"][7] /= 60
    nodes: Nodes = [("MatMul", "x w0", "mm0"), ("Relu", "mm0", "r0"), ("MatMul", "r0 w1", "mm1"),
                    ("LayerNormalization", "mm1 lg lb", "ln"), ("MatMul", "ln w3", "out")]  # fmt: skip
    culprit = first(save(tmp_path / "m.onnx", nodes, {"x": x}, constants, "out"), {"x": x}, "ort_int8_dynamic")
    assert (culprit.cause, culprit.evidence["from"], culprit.evidence["who"]) == ("outlier_channel", "x", told)
    assert culprit.evidence["left"] < 0.72


def test_a_constant_that_becomes_0_on_its_scale_saturates_nothing(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    s = 0.0016 * (1 + 0.3 * r.random((1, 16, 1, 1)))
    s[0, 0] = 31.2
    w = r.standard_normal((16, 4, 3, 3)) * 900
    w[0] *= 1e-9
    x = r.standard_normal((1, 4, 24, 24)).astype(np.float32)
    b, v = r.standard_normal((1, 16, 1, 1)) * 0.3, r.standard_normal((3, 16, 1, 1)) / 4
    constants = {"W": w, "s": s, "b": b, "V": v}
    nodes: Nodes = [("Conv", "x W", "c", {"pads": [1] * 4, "kernel_shape": [3, 3]}), ("Relu", "c", "r"),
                    ("Mul", "r s", "m"), ("Add", "m b", "a"),
                    ("Conv", "a V", "y", {"kernel_shape": [1, 1]})]  # fmt: skip
    culprit = first(save(tmp_path / "m.onnx", nodes, {"x": x}, constants, "y"), {"x": x}, "ort_int8")
    assert (culprit.name, culprit.cause, culprit.evidence["weight"]) == ("m", "constant_scale", "s")
    assert culprit.evidence["share"] == pytest.approx(15 / 16)


@pytest.mark.parametrize(
    ("case", "share"),
    [
        ("depth_in_kilometres_beside_a_picture", 0.75),
        pytest.param("loud_row_in_each_block_of_four_bits", 0.9707, marks=pytest.mark.skipif(
            not find_spec("onnx_ir"), reason="ONNX Runtime's own quantiser of 4 bits needs onnx_ir")),
    ],
)  # fmt: skip
def test_what_a_scale_makes_0_is_counted_on_the_grid_that_the_target_has(
    case: str, share: float, tmp_path: Path
) -> None:
    one = next(one for one in CASES if one.name == case)
    made, _, feeds = one.make(tmp_path)
    report = precision_debug.compare(made, run_mode=one.mode, inputs=feeds)
    assert report.explanation is not None
    culprit = report.explanation.culprits[0]
    assert culprit.cause == "constant_scale"
    assert culprit.evidence["share"] == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("decay", [0.999, 0.5])
def test_a_constant_whose_rounding_its_operator_amplifies_is_told(tmp_path: Path, decay: float) -> None:
    """0.999 is 1 in bfloat16, so that nothing decays; a half is held exactly."""
    age = np.arange(400, 0, -1, dtype=np.float32)[None] * np.float32(0.001 / (1 - decay))
    x = np.random.default_rng(0).normal(1, 1, size=(400, 8)).astype(np.float32)
    nodes: Nodes = [("Pow", "decay age", "weight"), ("MatMul", "weight x", "y")]
    file = save(tmp_path / "m.onnx", nodes, {"age": age, "x": x}, {"decay": np.float32(decay)}, "y")
    report = precision_debug.compare(file, run_mode="ort_bf16_sim", inputs={"age": age, "x": x})
    assert report.explanation is not None
    told = [(one.cause, one.evidence["weight"]) for one in report.explanation.culprits]
    assert told == ([("constant_rounded", "decay")] if decay == 0.999 else [])


@pytest.mark.parametrize("wrong", ["weight", "bias"])
def test_the_form_of_an_operator_is_not_the_fault_of_its_weight(tmp_path: Path, wrong: str) -> None:
    """Every layer is MatMul and Add in one file and a transposed Gemm in the other; one constant is off by 10 %."""
    r = np.random.default_rng(4)
    one, two, first_nodes, second_nodes, last = {}, {}, list[Any](), list[Any](), "x"
    for i in range(4):
        w, b = he(r, 24, 24), (0.3 * r.standard_normal(24)).astype(np.float32)
        off = (1 + 0.1 * r.standard_normal((24, 24))) if (i, wrong) == (2, "weight") else 1.0
        one |= {f"w{i}": w, f"b{i}": b}
        two |= {f"w{i}": np.ascontiguousarray((w * off).T), f"b{i}": b * (1.5 if (i, wrong) == (2, "bias") else 1)}
        first_nodes += [("MatMul", f"{last} w{i}", f"mm{i}"), ("Add", f"mm{i} b{i}", f"fc{i}")]
        first_nodes += [("Relu", f"fc{i}", f"a{i}")]
        second_nodes += [("Gemm", f"{last} w{i} b{i}", f"fc{i}", {"transB": 1}), ("Relu", f"fc{i}", f"a{i}")]
        last = f"a{i}"
    x = r.standard_normal((16, 24)).astype(np.float32)
    base = save(tmp_path / "b.onnx", first_nodes, {"x": x}, one, last)
    model = save(tmp_path / "m.onnx", second_nodes, {"x": x}, two, last)
    culprit = first(model, {"x": x}, "ort_fp32", baseline="ort_fp32", baseline_model=base)
    assert (culprit.name, culprit.cause, str(culprit.evidence["what"])) == ("fc2", "files_differ", "constant")
    assert culprit.evidence["name"] == ("w2" if wrong == "weight" else "b2")
    assert culprit.evidence["left"] < 0.01


def test_a_constant_is_called_by_what_is_read(tmp_path: Path) -> None:
    """w2 is the same in both files; the second file's second tower reads another one."""
    r = np.random.default_rng(2)
    constants = {"w1": he(r, 16, 24), "w2": he(r, 24, 16), "wo": he(r, 32, 4)}
    stale = constants["w2"] * (1 + 0.1 * r.standard_normal((24, 16)))
    feeds = {name: r.standard_normal((8, 16)).astype(np.float32) for name in "ab"}
    files = []
    for name in ("w2", "w2s"):
        nodes: Nodes = [("MatMul", "a w1", "a1"), ("Relu", "a1", "ar"), ("MatMul", "ar w2", "a2"),
                        ("MatMul", "b w1", "b1"), ("Relu", "b1", "br"), ("MatMul", f"br {name}", "b2"),
                        ("Concat", "a2 b2", "cat", {"axis": -1}), ("MatMul", "cat wo", "out")]  # fmt: skip
        more = {"w2s": stale} if name == "w2s" else {}
        files.append(save(tmp_path / f"{name}.onnx", nodes, feeds, constants | more, "out"))
    culprit = first(files[1], feeds, "ort_fp32", baseline="ort_fp32", baseline_model=files[0])
    assert (culprit.name, culprit.cause) == ("b2", "files_differ")
    assert "w2s" in culprit.evidence["name"]
    assert "w2s" in sentence_of(culprit, "float32").en
    assert culprit.evidence["left"] < 0.01


@pytest.mark.parametrize("renamed", [False, True])
def test_one_of_two_equal_weights_that_was_changed_is_not_unchanged(renamed: bool) -> None:
    r = np.random.default_rng(1)
    w, other = he(r, 6, 6), he(r, 6, 6)
    module = {"a.weight": w, "b.weight": w.copy(), "c.weight": other}
    file = {"a.weight": w.T.copy(), "b.weight": (w * 1.1).T.copy(), "c.weight": other.T.copy()}
    if renamed:
        file = {f"onnx::MatMul_{number}": value for number, value in enumerate(file.values())}
    states = {one.name: one.state for one in compare_weights(module, file)}
    assert states["b.weight"] == "differs"
    assert "differs" not in (states["a.weight"], states["c.weight"])
    shared = {name: value for name, value in file.items() if value is not list(file.values())[1]}
    if renamed:  # one that serves both is no difference
        assert "differs" not in {one.state for one in compare_weights(module, shared)}


def test_behind_one_coarse_tensor_the_others_are_not_accused(tmp_path: Path) -> None:
    """One query attends to one key and all others to all: in 8 bits the others' weights become 0. What is measured
    behind it, on inputs that this ruined, does not add up; what is kept on the engine tells."""
    r = np.random.default_rng(73)
    x = (0.6 * r.standard_normal((4, 600, 16))).astype(np.float32)
    row = np.ones((1, 600, 1))
    row[0, 0] = 25
    constants = {
        "w0": he(r, 16, 16), "wq": 0.55 * he(r, 16, 16), "row": row, "wk": 0.55 * he(r, 16, 16), "wv": he(r, 16, 16),
        "quarter": 0.25, "wo": 2 * he(r, 16, 16), "bo": 0.1 * r.standard_normal(16), "w2": he(r, 16, 4),
    }  # fmt: skip
    nodes: Nodes = [
        ("MatMul", "x w0", "mm0"), ("Tanh", "mm0", "h0"), ("MatMul", "x wq", "q0"), ("Mul", "q0 row", "q"),
        ("MatMul", "h0 wk", "k"), ("MatMul", "h0 wv", "v"), ("Transpose", "k", "kt", {"perm": [0, 2, 1]}),
        ("MatMul", "q kt", "scores"), ("Mul", "scores quarter", "scaled"), ("Softmax", "scaled", "attn", {"axis": -1}),
        ("MatMul", "attn v", "ctx"), ("MatMul", "ctx wo", "o"), ("Add", "o bo", "ob"), ("Relu", "ob", "or"),
        ("ReduceMean", "or", "pool", {"axes": [1], "keepdims": 0}), ("MatMul", "pool w2", "out"),
    ]  # fmt: skip
    culprit = first(save(tmp_path / "m.onnx", nodes, {"x": x}, constants, "out"), {"x": x}, "ort_int8")
    assert culprit.name == "attn"
    assert culprit.cause in {"found_by_repair", "outlier_channel"}, "one query's weights take up the range"
    assert culprit.evidence.get("after", 0.0) < 0.1


def test_how_far_results_reach_is_said_of_the_model_and_not_of_rounded_inputs(tmp_path: Path) -> None:
    x = np.linspace(0.1, 16.86, 64, dtype=np.float32).reshape(8, 8)
    nodes: Nodes = [("Mul", "x one", "z"), ("Exp", "z", "ex"), ("ReduceSum", "ex", "den", {"keepdims": 1}),
                    ("Div", "ex den", "y")]  # fmt: skip
    model = save(tmp_path / "m.onnx", nodes, {"x": x}, {"one": 1.0007}, "y")
    culprit = first(model, {"x": x}, "ort_fp16_sim")
    assert (culprit.name, culprit.cause) == ("ex", "overflow")
    assert culprit.evidence["largest"] == pytest.approx(np.exp(np.float64(x.max()) * 1.0007), rel=1e-3)


def test_a_result_that_becomes_nan_undoes_nothing() -> None:
    exact, wrong = np.array([1.0, 2.0]), np.array([1.5, 2.5])
    case: Any = SimpleNamespace(exact=exact, wrong=wrong, own=float(np.linalg.norm(wrong - exact)))
    assert measure_left_of(case, np.array([np.nan, np.nan])) == math.inf
    assert measure_left_of(case, np.array([1.0, 2.5])) == pytest.approx(0.5**0.5)
