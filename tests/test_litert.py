"""LiteRT: files of real converters, faults planted into quantised ones, operators kept in float32."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import litert_files
import numpy as np
import pytest

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import BackendUnavailable, ModelError, UsageError
from precision_debug.explain.grid import _find_saturation
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.report.doubts import describe_held_claims

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")

from precision_debug_litert import LiteRtBackend
from precision_debug_litert.engine.flat import Flat

INT8 = litert_files.DATA / "digits_int8.tflite"
OUTLIER = litert_files.DATA / "outlier_int8.tflite"


def opened(path: Path, mode: str, **options: Any) -> Any:
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options=options)
    return LiteRtBackend().open(spec, [])


def compare(path: Path, mode: str = "tflite_opt", **options: Any) -> Any:
    return precision_debug.compare(path, run_mode=mode, inputs={"image": litert_files.images()}, **options)


@pytest.mark.parametrize("mode", ["tflite_ref", "tflite_opt"])
@pytest.mark.parametrize(
    "name", ["digits_int8", "digits_int16", "digits_hybrid", "digits_half_weights", "digits_int4_weights"]
)
def test_a_healthy_file_blames_nobody(name: str, mode: str) -> None:
    """Each kind of quantisation that a real quantiser makes, against the float model that the file stands for."""
    report = compare(litert_files.DATA / f"{name}.tflite", mode)
    assert str(report.verdict) == "as expected"
    assert not report.explanation.culprits
    assert all(row.comparison is not None for row in report.rows)


def test_weights_stored_in_half_are_the_float_files_own() -> None:
    """A converter puts a DEQUANTIZE before their readers: they are not missing, and their rounding is expected."""
    half, whole = (litert_files.DATA / f"digits_{name}.tflite" for name in ("half_weights", "float32"))
    report = compare(half, baseline_model=str(whole))
    assert (report.exit_status, report.explanation.culprits) == (0, ())


@pytest.mark.parametrize("mode", ["tflite_ref", "tflite_opt"])
@pytest.mark.parametrize(
    ("fault", "culprit", "cause"),
    [
        ("outlier", "pool_input_nhwc", "outlier_channel"),
        ("range", "relu3_out", "saturation"),
        ("zero point", "logits", "saturation"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, mode: str, fault: str, culprit: str, cause: str) -> None:
    path = OUTLIER
    if fault == "range":
        path = litert_files.changed(tmp_path / "m.tflite", litert_files.saturate("relu3_out", 8))
    if fault == "zero point":
        path = litert_files.changed(tmp_path / "m.tflite", litert_files.zero_point("logits", 100))
    report = compare(path, mode)
    assert str(report.verdict) == "out of tolerance"
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [(culprit, cause)]


@pytest.mark.parametrize("mode", ["tflite_fp32", "tflite_ref", "tflite_opt"])
@pytest.mark.parametrize("path", [INT8, litert_files.DATA / "digits_half_weights.tflite"], ids=["int8", "half"])
def test_operators_one_by_one_are_the_whole(path: Path, mode: str) -> None:
    """What runs operators alone computes bit for bit what the engine does."""
    session, feeds = opened(path, mode), {"image": litert_files.images(5)}
    seen: dict[str, Any] = {}
    session.run(feeds, lambda op, name, value: seen.update({name: np.array(value)}))
    alone: dict[str, Any] = {}
    outputs = session.run_replacing(feeds, lambda op, name, value: alone.update({name: np.array(value)}))
    assert list(alone) == list(seen)
    for name, value in seen.items():
        np.testing.assert_array_equal(alone[name], value, err_msg=name)
    zeros = session.run_replacing(feeds, lambda op, name, value: value * 0 if name == "logits" else None)
    np.testing.assert_allclose(outputs["probabilities"].sum(1), 1, atol=0.05)
    assert np.ptp(zeros["probabilities"]) < 0.01


def test_the_float_model_of_a_quantised_file_has_its_weights(tmp_path: Path) -> None:
    """By hand: the first convolution with the dequantised weights, on inputs that nothing rounds."""
    flat = Flat.read(str(INT8))
    op = flat.main.operators[0]
    weights, bias = (flat.real(flat.main.tensors[index]) for index in op.inputs[1:])
    assert weights is not None
    image = litert_files.images(2)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    wanted = np.maximum(np.einsum("nhwcij,oijc->nhwo", windows, weights) + bias, 0)
    session = opened(INT8, "tflite_fp32")
    seen: dict[str, Any] = {}
    session.run({"image": image}, lambda op, name, value: seen.update({name: np.array(value)}))
    np.testing.assert_allclose(seen["conv2_input_nhwc"], wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(seen["image"], image)


def test_what_is_kept_in_float32_brings_the_answers_back(tmp_path: Path) -> None:
    """And the file that it hands over runs in LiteRT alone, to the same bits."""
    before = compare(OUTLIER).explanation.actual
    saved = tmp_path / "kept.tflite"
    kept = ["pool_input_nhwc", "pool_output_nhwc", "relu3_out"]
    report = compare(OUTLIER, keep_fp32=kept, save_tflite=str(saved))
    assert str(report.verdict) == "as expected"
    assert report.outputs[0].relative_l2 < before / 10
    session = opened(OUTLIER, "tflite_opt", side="target", keep_fp32=tuple(kept))
    assert any("3 operators compute in float32" in note for note in session.notes)
    from ai_edge_litert.interpreter import Interpreter

    alone = Interpreter(model_path=str(saved))
    image = litert_files.images(1)
    alone.allocate_tensors()
    (fed,), (end,) = alone.get_input_details(), alone.get_output_details()
    scale, zero = fed["quantization"]
    alone.set_tensor(fed["index"], np.clip(np.rint(image / scale) + zero, -128, 127).astype(np.int8))
    alone.invoke()
    scale, zero = end["quantization"]
    got = (alone.get_tensor(end["index"]).astype(np.int32) - zero) * np.float32(scale)
    np.testing.assert_array_equal(session.run({"image": image})["probabilities"], got)


def test_a_name_that_nothing_makes_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean pool_output_nhwc"):
        opened(INT8, "tflite_opt", side="target", keep_fp32=("pool_output_nhw",))


def test_raw_inputs_are_the_files_integers() -> None:
    image = litert_files.images(2)
    told = Flat.read(str(INT8)).real_numbers()
    codes = told.codes("image", image, np.zeros(image.shape, np.int8))
    real = opened(INT8, "tflite_opt").run({"image": image})
    raw = opened(INT8, "tflite_opt", quantised_inputs="raw").run({"image": codes})
    np.testing.assert_array_equal(real["probabilities"], raw["probabilities"])


@pytest.mark.parametrize("mode", ["tflite_ref", "tflite_opt"])
def test_an_array_of_the_files_own_type_is_its_integers(mode: str) -> None:
    image = litert_files.images(4)
    told = Flat.read(str(INT8)).real_numbers()
    codes = told.codes("image", image, np.zeros(image.shape, np.int8))
    both = [
        precision_debug.compare(str(INT8), run_mode=mode, inputs={"image": one}, explain="off", seed=0)
        for one in (told.shown("image", codes), codes)
    ]
    real, whole = [[row.comparison for row in report.outputs] for report in both]
    assert real == whole
    assert any(note.code == "input_codes" for note in both[1].notes)
    assert not any(note.code == "input_codes" for note in both[0].notes)


def test_the_delegate_is_told() -> None:
    session = opened(INT8, "tflite_opt", side="target")
    assert any("XNNPACK took 7 of 8 operators" in note and "SOFTMAX 1" in note for note in session.notes)
    kernels = {meta.name: meta.extra.get("Kernel") for meta in session.tensors}
    assert kernels["relu3_out"] == "XNNPACK"
    assert kernels["probabilities"] == "LiteRT"


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    content = INT8.read_bytes()
    for name, broken in {"cut": content[:2000], "text": b"\x00" * 4 + b"TFL3" + b"\xff" * 90, "empty": b""}.items():
        (tmp_path / f"{name}.tflite").write_bytes(broken)
        with pytest.raises(ModelError) as caught:
            opened(tmp_path / f"{name}.tflite", "tflite_ref")
        assert "\n" not in str(caught.value)


def test_inspect_tells_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copy(INT8, tmp_path / "m.tflite")
    assert main(["inspect", "model", str(tmp_path / "m.tflite"), "--show", "layers", "weights"]) == 0
    printed = capsys.readouterr().out
    assert "3 CONV_2D" in printed
    assert "int8" in printed


def test_openvino_reads_the_same_file(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="needs openvino")
    path = litert_files.DATA / "digits_float32.tflite"
    report = compare(path, baseline="ov_fp32")
    assert str(report.verdict) == "as expected"
    assert {row.name for row in report.rows if row.comparison} >= {"image", "logits", "probabilities"}


def test_operators_one_by_one_take_their_shapes_from_the_run(tmp_path: Path) -> None:
    """A converter may leave stand-ins for the shapes of what lies inside; LiteRT infers the true ones as it plans."""

    def stand_in(flat: Any) -> None:
        ends = {*flat.main.inputs, *flat.main.outputs}
        for index, one in enumerate(flat.main.tensors):
            if not flat.is_constant(one) and index not in ends:
                one.shape = np.ones(len(one.shape), np.int32)

    path = litert_files.changed(tmp_path / "m.tflite", stand_in)
    session, feeds = opened(path, "tflite_ref"), {"image": litert_files.images(5)}
    whole = session.run(feeds)
    alone = session.run_replacing(feeds, lambda op, name, value: None)
    for name, value in whole.items():
        np.testing.assert_array_equal(alone[name], value, err_msg=name)


def test_a_file_with_variables_is_compared_with_its_own_types(tmp_path: Path) -> None:
    """Each run begins as the file does, so that the second says what the first did."""
    path = litert_files.changed(tmp_path / "stream.tflite", litert_files.with_state)
    feeds = {"image": litert_files.images(1)}
    report = precision_debug.compare(path, run_mode="tflite_opt", inputs=feeds)
    assert report.baseline.mode == "tflite_ref"
    assert str(report.verdict) == "as expected", report.lead
    for mode in ("tflite_ref", "tflite_opt"):
        session = opened(path, mode)
        seen: list[Any] = []
        for _ in range(2):
            shown: dict[str, Any] = {}
            session.run(feeds, lambda op, name, value, shown=shown: shown.update({name: np.array(value)}))
            seen.append(shown)
        assert not np.any(seen[1]["last"])
        np.testing.assert_allclose(seen[1]["total"], seen[0]["total"])
        assert np.any(seen[1]["total"])
    named = precision_debug.compare(path, run_mode="tflite_opt", baseline="tflite_fp32", inputs=feeds)
    assert named.baseline.mode == "tflite_fp32"
    assert any(claim.why is not None and claim.why.code == "not_fp32" for claim in named.claims)
    assert "?" not in describe_held_claims(named).en
    assert all(row.status != "fail" for row in named.outputs)


def test_operators_of_a_file_with_variables_are_run_alone(tmp_path: Path) -> None:
    """A variable is read as the file begins, and what is read after a write is what was written."""

    def read_again(flat: Any) -> None:
        litert_files.with_state(flat)
        main = flat.main
        place = next(place for place, op in enumerate(main.operators) if len(op.inputs) == 2 and not len(op.outputs))
        total = int(main.operators[place].inputs[1])
        tensor, read = copy.copy(main.tensors[total]), copy.copy(main.operators[2])
        tensor.name = b"again"
        main.tensors.append(tensor)
        read.outputs = [len(main.tensors) - 1]
        for op in main.operators[place + 1 :]:
            op.inputs = [read.outputs[0] if int(index) == total else int(index) for index in op.inputs]
        main.operators.insert(place + 1, read)

    path = litert_files.changed(tmp_path / "stream.tflite", read_again)
    feeds = {"image": litert_files.images(1)}
    for mode in ("tflite_ref", "tflite_opt", "tflite_fp32"):
        session = opened(path, mode)
        assert session.replacer is not None
        shown: dict[str, Any] = {}

        def show(_op: str, name: str, value: Any, shown: dict[str, Any] = shown) -> None:
            shown[name] = np.array(value)

        whole = session.run(feeds, show)
        for name, value in session.run_replacing(feeds, lambda op, name, value: None).items():
            np.testing.assert_array_equal(value, whole[name], err_msg=name)
        for one in ("last", "total", "again"):
            moved = session.run_replacing(feeds, lambda op, name, value, one=one: value + 1 if name == one else None)
            assert any(not np.array_equal(moved[name], value) for name, value in whole.items()), one
    report = precision_debug.compare(path, run_mode="tflite_opt", inputs=feeds)
    assert report.explanation is not None
    assert report.explanation.state == "healthy"


def test_a_kernel_that_only_the_delegate_has_is_told(tmp_path: Path) -> None:
    """XNNPACK takes MediaPipe's Convolution2DTransposeBias, of which LiteRT itself has no kernel."""

    def custom(name: str) -> Any:
        def change(flat: Any) -> None:
            from ai_edge_litert import schema_py_generated as schema

            main = flat.main
            made = schema.OperatorCodeT()
            made.builtinCode = made.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
            made.customCode, made.version = name.encode(), 1
            flat.model.operatorCodes.append(made)
            op, logits = schema.OperatorT(), main.tensors[main.inputs[0]]
            like: Any = schema.TensorT()
            vars(like).update(vars(logits))
            like.name, like.shapeSignature, like.shape = b"wide", None, np.array([1, 16, 16, 1], np.int32)
            logits.shapeSignature, logits.shape = None, np.array([1, 8, 8, 1], np.int32)
            main.tensors.append(like)
            wide = len(main.tensors) - 1
            constants = []
            for label, shape in (("kernel", (1, 2, 2, 1)), ("bias", (1,))):
                one: Any = schema.TensorT()
                one.name, one.type, one.shape = label.encode(), schema.TensorType.FLOAT32, np.array(shape, np.int32)
                buffer: Any = schema.BufferT()
                buffer.data = np.full(shape, 0.5, np.float32).reshape(-1).view(np.uint8)
                flat.model.buffers.append(buffer)
                one.buffer, one.hasRank = len(flat.model.buffers) - 1, True
                main.tensors.append(one)
                constants.append(len(main.tensors) - 1)
            op.opcodeIndex = len(flat.model.operatorCodes) - 1
            op.inputs, op.outputs = [main.inputs[0], *constants], [wide]
            op.customOptions = np.array([1, 2, 2], np.int32).view(np.uint8)  # SAME, strides of 2
            main.operators = [op]
            main.outputs = [wide]

        return change

    for name, hint in (("Convolution2DTransposeBias", "--baseline tflite_opt"), ("Mine", "recording")):
        path = litert_files.changed(tmp_path / f"{name}.tflite", custom(name), source="digits_float32.tflite")
        with pytest.raises(BackendUnavailable) as caught:
            precision_debug.compare(path, run_mode="tflite_opt", inputs={"image": litert_files.images(1)})
        assert name in caught.value.what
        assert hint in caught.value.hint
    path = tmp_path / "Convolution2DTransposeBias.tflite"
    report = precision_debug.compare(
        path, run_mode="tflite_opt", baseline="tflite_opt", inputs={"image": litert_files.images(1)}
    )
    assert report.exit_status == 0


def test_what_is_below_half_a_step_of_its_own_scale_is_not_called_cut_off(tmp_path: Path) -> None:
    """All of a result are one number, so that the numbers themselves do not show the step; the file tells it."""
    meta = next(one for one in opened(INT8, "tflite_ref").tensors if one.is_output)
    low, high, count = meta.grids[meta.name]
    assert count == 256
    exact, step = np.full(8, 0.3 * (high - low) / (count - 1)), (high - low) / (count - 1)
    assert _find_saturation(exact, np.zeros(8), step) == {}
    assert _find_saturation(exact * 3, np.zeros(8), step)["limit"] == 0


@pytest.mark.parametrize("given", [{"experimental_disable_delegate_node_fusion": "1"},
                                   {"config": "experimental_disable_delegate_node_fusion=true"}])  # fmt: skip
def test_xnnpack_runs_as_it_is_deployed(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches of the Interpreter reach each one of the target, and none of the baseline's."""
    from ai_edge_litert import interpreter

    seen: list[tuple[str, bool]] = []
    own = interpreter.Interpreter.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        kind = kwargs["experimental_op_resolver_type"].name
        seen.append((kind, kwargs.get("experimental_disable_delegate_node_fusion", False)))
        own(self, *args, **kwargs)

    monkeypatch.setattr(interpreter.Interpreter, "__init__", made)
    report = precision_debug.compare(
        litert_files.DATA / "digits_float32.tflite", run_mode="tflite_opt", baseline="tflite_ref", explain="off",
        inputs={"image": litert_files.images(1)}, **given,
    )  # fmt: skip
    assert report.exit_status == 0
    assert set(seen) == {("BUILTIN", True), ("BUILTIN_REF", False)}


@pytest.mark.parametrize("pair", ["experimental_disable_delegate_node_fusion=maybe", "experimental_delegates=x"])
def test_a_switch_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match=pair.partition("=")[0]):
        precision_debug.compare(litert_files.DATA / "digits_float32.tflite", run_mode="tflite_opt", config=pair)
