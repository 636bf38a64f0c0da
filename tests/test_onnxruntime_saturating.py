"""8-bit products that the processor adds in 16 bits, where they saturate: who is named, why, and what mends it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper
from precision_debug_onnxruntime.backend import OnnxRuntimeBackend
from precision_debug_onnxruntime.engine import remedies
from precision_debug_onnxruntime.engine.remedies import remedies_of
from precision_debug_onnxruntime.make import exact_sums
from precision_debug_onnxruntime.make.exact_sums import make_sums_exact
from precision_debug_onnxruntime.modes import RUN_MODES, availability

from precision_debug import compare
from precision_debug.cli import main
from precision_debug.onnx.model import read_model
from precision_debug.protocols import Remedy
from precision_debug.records import Culprit, Explanation, ModelFiles, SessionSpec
from precision_debug.report.blame import sentence_of
from precision_debug.run import fixes
from precision_debug.run.fixes import prove_by_remedy
from precision_debug.run.judging import Pasted
from precision_debug.run.plan import Opening

SWITCH = {"config": {"session.x64quantprecision": "1"}}
DIGITS = Path(__file__).parent.parent / "examples" / "digits"


def named(cause: str) -> Explanation:
    cause, _, left = cause.partition(" ")  # with what is left where it was undone
    evidence = {"left": 0.1} if left else {}
    culprit = Culprit(name="y", node="n", op_types=("Conv",), cause=cause, evidence=evidence)
    return Explanation(state="culprits", culprits=(culprit,))


@pytest.mark.parametrize(
    ("cause", "left", "told", "precision", "recorded"),
    [
        ("coarse", 0.01, "sums", "int8", False), ("unfound", 0.06, "sums", "int8", False),
        ("coarse", 0.09, "coarse", "int8", False), ("scale", 0.01, "scale", "int8", False),
        ("coarse", 0.01, "coarse", "int8", True), ("outlier_channel", 0.01, "sums", "int8", False),
        ("outlier_channel left", 0.01, "outlier_channel", "int8", False),
        ("scale left", 0.01, "sums", "model", False), ("scale left", 0.09, "scale", "model", False),
    ],
)
def test_what_takes_most_of_the_own_error_away_is_the_cause_where_no_other_is_known(
    monkeypatch: pytest.MonkeyPatch, cause: str, left: float, told: str, precision: str, recorded: bool
) -> None:
    asked: list[Any] = []

    def again(settings: Any) -> Pasted:
        asked.append(settings)
        return Pasted(introduced={"y": left})

    monkeypatch.setattr(fixes, "list_remedies", lambda *_: [Remedy(settings={"other": 1}), known])
    side: Opening = SimpleNamespace(settings=(), recording=recorded, precision=precision)  # type: ignore[assignment]
    known = Remedy(settings={}, cause="sums")
    found = prove_by_remedy(named(cause), {"y": 0.1}, side, side, again)
    assert found.culprits[0].cause == told
    known_already = cause in ("scale", "outlier_channel left")
    assert asked == ([] if known_already or recorded else [{}])  # nothing is run in vain


@pytest.mark.parametrize("saturates", [True, False])
def test_the_switch_is_tried_first_where_sums_saturate(monkeypatch: pytest.MonkeyPatch, saturates: bool) -> None:
    monkeypatch.setattr(remedies, "adds_in_16_bits", lambda: saturates)
    culprits = named("coarse").culprits
    first = next(remedies_of("int8", {}, str(DIGITS / "digits.onnx"), culprits))
    assert (first.settings == SWITCH, first.cause == "saturating_sums") == (saturates, saturates)
    given = next(remedies_of("int8", SWITCH, str(DIGITS / "digits.onnx"), culprits))
    assert not given.cause


@pytest.mark.hardware("saturating_8_bit_sums")
def test_a_real_model_whose_sums_saturate_is_told_so() -> None:
    report = compare(DIGITS / "digits.onnx", run_mode="ort_int8", inputs=str(DIGITS / "test_images.npz"))
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (report.exit_status, first.cause, first.name) == (1, "saturating_sums", "conv1_out")
    assert first.evidence["after"] < first.evidence["before"] / 4
    assert "session.x64quantprecision" in first.evidence["switch"]


def quantised(folder: Path) -> str:
    """Write a product between QuantizeLinear and DequantizeLinear, whose 8-bit sums are large: all of one sign."""
    drawn = np.random.default_rng(0)
    weight = drawn.integers(90, 127, (64, 16)).astype(np.int8)
    held = {"s": np.float32(1 / 127), "z": np.int8(-128), "w": weight, "ws": np.float32(0.01), "wz": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], name="q"),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], name="d"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="dw"),
        helper.make_node("MatMul", ["xd", "wd"], ["y"], name="product"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (8, size)) for name, size in (("x", 64), ("y", 16)))
    held_as = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "quantised", [x], [y], held_as)
    path = folder / "quantised.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return str(path)


def test_the_switch_is_known_of_a_file_that_is_quantised_already(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(remedies, "adds_in_16_bits", lambda: True)
    culprits = named("coarse").culprits
    (only,) = remedies_of("", {}, quantised(tmp_path), culprits)
    assert (only.settings, only.cause) == (SWITCH, "saturating_sums")
    assert list(remedies_of("", {}, str(DIGITS / "digits.onnx"), culprits)) == []  # nothing in it is quantised


@pytest.mark.hardware("saturating_8_bit_sums")
def test_a_quantised_file_is_told_so_and_no_pass_is_blamed(tmp_path: Path) -> None:
    feeds = {"x": np.random.default_rng(1).uniform(0.5, 2, (8, 64)).astype(np.float32)}
    report = compare(quantised(tmp_path), run_mode="ort_opt", inputs=feeds)
    assert report.explanation is not None
    assert [(one.cause, one.name) for one in report.explanation.culprits] == [("saturating_sums", "y")]
    kept = report.to_keep
    assert kept is not None
    assert (kept.settings, kept.state) == (SWITCH, "mended")


def integers(folder: Path, kind: str) -> str:
    """Write a product that integer kernels compute in every session, whose 8-bit sums are large: all of one sign."""
    drawn = np.random.default_rng(0)
    weight = drawn.integers(90, 127, (64, 16)).astype(np.int8)
    held: dict[str, Any] = {"w": weight, "wz": np.int8(0), "ws": np.float32(0.01), "xs": np.float32(1 / 127)}
    held |= {"xz": np.uint8(0), "ys": np.float32(0.6), "yz": np.uint8(0)}
    floats, shape = TensorProto.FLOAT, [8, 64]
    quantise = helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], name="q")
    narrow = [
        quantise, helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], name="d"),
    ]  # fmt: skip
    if kind == "QLinearMatMul":
        inputs = ["xq", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
        nodes = [narrow[0], helper.make_node(kind, inputs, ["yq"], name="product"), narrow[1]]
    elif kind == "QLinearConv":
        held["w"], shape = np.ascontiguousarray(weight.T).reshape(16, 64, 1, 1), [8, 64, 1, 1]
        inputs = ["xq", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
        nodes = [narrow[0], helper.make_node(kind, inputs, ["yq"], name="product"), narrow[1]]
    elif kind == "DynamicQuantizeMatMul":
        nodes = [helper.make_node(kind, ["x", "w", "ws"], ["y"], name="product", domain="com.microsoft")]
    else:
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"], name="q"),
            helper.make_node(kind, ["xq", "w", "xz"], ["whole"], name="product"),
            helper.make_node("Cast", ["whole"], ["float"], name="cast", to=floats),
            helper.make_node("Mul", ["float", "xs"], ["scaled"], name="scale"),
            helper.make_node("Mul", ["scaled", "ws"], ["y"], name="scale2"),
        ]
    read = {name for node in nodes for name in node.input} - {name for node in nodes for name in node.output}
    held_as = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items() if name in read]
    x, y = helper.make_tensor_value_info("x", floats, shape), helper.make_tensor_value_info("y", floats, None)
    graph = helper.make_graph(nodes, "integers", [x], [y], held_as)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    path = folder / f"{kind}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return str(path)


@pytest.mark.hardware("saturating_8_bit_sums")
@pytest.mark.parametrize("kind", ["MatMulInteger", "QLinearMatMul", "QLinearConv", "DynamicQuantizeMatMul"])
def test_a_file_whose_baseline_runs_integer_kernels_has_exact_sums_there(tmp_path: Path, kind: str) -> None:
    """Both sides would saturate alike, and everything would agree."""
    path = integers(tmp_path, kind)
    shape = (8, 64, 1, 1) if kind == "QLinearConv" else (8, 64)
    feeds = {"x": np.random.default_rng(1).uniform(0.5, 2, shape).astype(np.float32)}
    report = compare(path, run_mode="ort_opt", inputs=feeds)
    assert report.exit_status == 1
    assert report.explanation is not None
    assert [one.cause for one in report.explanation.culprits] == ["saturating_sums"]
    kept = report.to_keep
    assert kept is not None
    assert (kept.settings, kept.state) == (SWITCH, "mended")
    assert "onnxruntime.sums_made_exact" in [note.code for note in report.baseline.notes]
    mended = compare(path, run_mode="ort_opt", inputs=feeds, **SWITCH)
    assert mended.exit_status == 0


@pytest.mark.parametrize("mode", ["ort_fp32", "onnx_ref", "ort_fp16_sim"])
def test_sums_are_exact_wherever_the_engine_is_not_shown_as_it_ships(tmp_path: Path, mode: str) -> None:
    """onnx.reference lacks the operator, so that ONNX Runtime's kernel computes it."""
    path = integers(tmp_path, "DynamicQuantizeMatMul")
    feeds = {"x": np.random.default_rng(1).uniform(0.5, 2, (8, 64)).astype(np.float32)}
    (weight,) = (
        numpy_helper.to_array(one) for one in read_model(path).proto.graph.initializer if one.name == "w"
    )  # fmt: skip
    exact = feeds["x"] @ (weight * np.float32(0.01))
    session = OnnxRuntimeBackend().open(SessionSpec(model=ModelFiles(model_file=path), mode=mode), [feeds])
    off = np.linalg.norm(session.run(feeds)["y"] - exact) / np.linalg.norm(exact)
    session.close()
    assert off < 0.01


def test_a_remedy_may_tell_of_what_the_file_has_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    told = named("outlier_channel left")
    quantised = dataclasses.replace(told.culprits[0], op_types=("Slice", "DynamicQuantizeLSTM"))
    known = Remedy(settings={}, cause="sums")
    monkeypatch.setattr(fixes, "list_remedies", lambda *_: [known])
    side: Opening = SimpleNamespace(settings=(), recording=False, precision="int8")  # type: ignore[assignment]
    explanation = dataclasses.replace(told, culprits=(quantised,))
    again = Pasted(introduced={"y": 0.01})
    assert prove_by_remedy(explanation, {"y": 0.1}, side, side, lambda _: again).culprits[0].cause == "sums"


def test_whole_numbers_are_counted_where_a_remedy_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of them an own error is the share that differs, which is none to be told beside a relative one."""
    monkeypatch.setattr(fixes, "list_remedies", lambda *_: [Remedy(settings={}, cause="saturating_sums")])
    side: Opening = SimpleNamespace(settings=(), recording=False, precision="int8")  # type: ignore[assignment]
    again = Pasted(introduced={"y": 0.03125})
    told = prove_by_remedy(named("coarse"), {"y": 0.5}, side, side, lambda _: again, {"y": 128}).culprits[0]
    assert told.evidence == {"switch": "", "differed": 64, "differ": 4, "elements": 128}
    assert holds_approved(sentence_of(told, "int8").en)


def test_what_is_too_large_to_have_exact_sums_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exact_sums, "adds_in_16_bits", lambda: True)
    source = read_model(integers(tmp_path, "MatMulInteger"))
    assert [note.code for note in make_sums_exact(source)[1]] == ["onnxruntime.sums_made_exact"]
    monkeypatch.setattr(exact_sums, "_MOST_BYTES", 64 * 16 - 1)
    same, notes = make_sums_exact(source)
    assert (same is source, [note.code for note in notes]) == (True, ["onnxruntime.sums_not_exact"])


def test_weights_are_made_unsigned_where_the_kernel_would_saturate_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = read_model(integers(tmp_path, "QLinearMatMul"))
    monkeypatch.setattr(exact_sums, "adds_in_16_bits", lambda: False)
    assert make_sums_exact(model) == (model, ())
    monkeypatch.setattr(exact_sums, "adds_in_16_bits", lambda: True)
    made, (note,) = make_sums_exact(model)
    assert note.args["count"] == 1
    held = {one.name: numpy_helper.to_array(one) for one in made.proto.graph.initializer}
    product = next(node for node in made.proto.graph.node if node.op_type == "QLinearMatMul")
    weight, zero = held[product.input[3]], held[product.input[5]]
    assert (weight.dtype, zero.dtype) == (np.uint8, np.uint8)
    before = {one.name: numpy_helper.to_array(one) for one in model.proto.graph.initializer}
    np.testing.assert_array_equal(weight.astype(int) - int(zero), before["w"])
    signed = read_model(integers(tmp_path, "QLinearMatMul"))
    zeros = next(one for one in signed.proto.graph.initializer if one.name == "xz")
    zeros.CopyFrom(numpy_helper.from_array(np.int8(0), "xz"))
    assert make_sums_exact(signed) == (signed, ())  # two signed ones do not saturate


@pytest.mark.parametrize("saturates", [True, False])
def test_doctor_says_where_sums_saturate(monkeypatch: pytest.MonkeyPatch, saturates: bool) -> None:
    monkeypatch.setattr(remedies, "adds_in_16_bits", lambda: saturates)
    told = {mode.name: availability(mode.name).inexact for mode in RUN_MODES}
    of_int8 = {"ort_int8", "ort_int8_dynamic"}
    assert {name for name, text in told.items() if text} == (of_int8 if saturates else set())


@pytest.mark.hardware("saturating_8_bit_sums")
def test_doctor_prints_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    assert capsys.readouterr().out.count("session.x64quantprecision") == 1
