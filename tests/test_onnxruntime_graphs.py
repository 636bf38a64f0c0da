"""Models of every kind: subgraphs, odd types, odd outputs, weights in files, and files that are not models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import holds_approved
from onnx import TensorProto, helper
from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_onnxruntime.engine.runtime import our_errors

from precision_debug.errors import BackendError, ModelError, PrecisionDebugError
from precision_debug.onnx.model import Model, read_inputs
from precision_debug.records import ModelFiles, SessionSpec, TensorMeta
from precision_debug.testing.backend_contract import CopyingHook, have_same_bits

CPU_MODES = ["ort_fp32", "ort_opt", "ort_fp16", "ort_fp16_sim", "ort_bf16_sim", "onnx_ref"]
SUBGRAPHS = {
    "if_model": {"x": np.float32([1, -2]), "c": np.array(True)},
    "loop_model": {"x": np.float32([1, -2]), "k": np.array(3)},
    "nested_model": {"x": np.float32([1, -2]), "k": np.array(3)},
    "scan_model": {"x": np.arange(10, dtype=np.float32).reshape(5, 2)},
}

Opener = Callable[..., Any]


@pytest.fixture
def open_model(tmp_path: Path) -> Opener:
    def open_it(model: onnx.ModelProto | Path, mode: str, feeds: dict[str, Any] | None = None, **options: Any) -> Any:
        path = model if isinstance(model, Path) else tmp_path / "model.onnx"
        if not isinstance(model, Path):
            onnx.save(model, path)
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options=options, work_dir=str(work))
        return OnnxRuntimeBackend().open(spec, [feeds] if feeds else [])

    return open_it


def run(session: Any, feeds: dict[str, Any]) -> tuple[CopyingHook, dict[str, TensorMeta], dict[str, Any]]:
    hook = CopyingHook()
    outputs = session.run(feeds, hook)
    return hook, {meta.name: meta for meta in session.tensors}, outputs


def source_name(meta: TensorMeta) -> str:
    return meta.origin or meta.name


@pytest.mark.parametrize("mode", CPU_MODES)
@pytest.mark.parametrize("name", SUBGRAPHS)
def test_subgraphs_are_seen_and_paired_by_iteration(open_model: Opener, name: str, mode: str) -> None:
    feeds = SUBGRAPHS[name]
    model = getattr(onnx_models, name)()
    base, base_metas, base_outputs = run(open_model(model, "ort_fp32"), feeds)
    session = open_model(model, mode)
    hook, metas, outputs = run(session, feeds)
    assert all(name in metas for name in hook.names)
    assert [m for m in metas if not metas[m].unseen] == hook.names
    bare = session.run(feeds)
    assert all(have_same_bits(bare[key], outputs[key]) for key in outputs)
    pairs = {source_name(meta): meta.name for meta in metas.values() if meta.name in hook.arrays}
    shared = set(pairs) & set(base.arrays)
    assert shared >= {n for n in base.arrays if n not in metas and not base_metas[n].unseen and "@" in n} & set(pairs)
    assert set(base.arrays) - set(pairs) == set(), "a tensor of the baseline has no partner"
    tolerance = 0.02 if "16" in mode else 1e-5
    for origin in shared:
        first, second = base.arrays[origin].astype(np.float64), hook.arrays[pairs[origin]].astype(np.float64)
        np.testing.assert_allclose(second, first, rtol=tolerance, atol=tolerance, err_msg=origin)
    for key in base_outputs:
        np.testing.assert_allclose(outputs[key], base_outputs[key], rtol=tolerance, atol=tolerance)


def test_a_loop_is_shown_turn_by_turn_and_its_inputs_are_the_turn_before(open_model: Opener) -> None:
    hook, metas, _ = run(open_model(onnx_models.loop_model(), "ort_fp32"), {"x": np.float32([1, -2]), "k": np.array(2)})
    assert hook.names == ["x", "k", "scaled@0", "v_out@0", "go_out@0", "scaled@1", "v_out@1", "go_out@1", "last", "y"]
    assert metas["scaled@1"].inputs == ("v_out@0", "x")
    assert metas["v_out@1"].inputs == ("scaled@1",)
    np.testing.assert_array_equal(hook.arrays["scaled@1"], hook.arrays["v_out@0"] * np.float32([1, -2]))


def test_a_nested_loop_counts_every_level(open_model: Opener) -> None:
    hook, metas, _ = run(open_model(onnx_models.nested_model(), "ort_fp32"), SUBGRAPHS["nested_model"])
    assert [name for name in hook.names if name.startswith("in_scaled")] == ["in_scaled@1.0", "in_scaled@1.1"]
    assert [name for name in hook.names if name.startswith("turned")] == ["turned@0", "turned@2"]
    assert metas["in_scaled@1.1"].op_type == "Mul"


def test_a_branch_that_was_not_taken_says_so_and_so_does_a_loop_without_turns(open_model: Opener) -> None:
    feeds = SUBGRAPHS["if_model"]
    _, metas, _ = run(open_model(onnx_models.if_model(), "ort_fp32"), feeds)
    assert "did not enter" in metas["e1"].unseen
    assert metas["t1"].unseen == ""
    _, metas, _ = run(open_model(onnx_models.loop_model(), "ort_fp32"), {"x": np.float32([1, 2]), "k": np.array(0)})
    assert "did not enter" in metas["scaled"].unseen


def test_one_iteration_can_be_asked_for(open_model: Opener) -> None:
    session, feeds = open_model(onnx_models.loop_model(), "ort_fp32"), SUBGRAPHS["loop_model"]
    some, every = CopyingHook(), CopyingHook()
    session.run(feeds, some, ["scaled@1", "y"])
    assert some.names == ["scaled@1", "y"]
    session.run(feeds, every, ["scaled"])
    assert every.names == ["scaled@0", "scaled@1", "scaled@2"]


def test_branches_with_the_same_names_inside_are_told_apart(open_model: Opener) -> None:
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], ["inner"]), helper.make_node("Neg", ["inner"], [out])], out, [],
                          [onnx_models.value(out)])
        for op, out in (("Relu", "a"), ("Abs", "b"))
    ]  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], name="choose", then_branch=branches[0], else_branch=branches[1])
    inputs = [onnx_models.value("x", [2]), onnx_models.value("c", [], TensorProto.BOOL)]
    model = onnx_models.model([node], inputs, [onnx_models.value("y", [2])])
    for mode in ("ort_fp32", "ort_opt", "ort_fp16_sim"):
        hook, metas, _ = run(open_model(model, mode), {"x": np.float32([1, -2]), "c": np.array(False)})
        np.testing.assert_array_equal(hook.arrays["choose.else_branch/inner"], [1, 2])
        assert "did not enter" in metas["choose.then_branch/inner"].unseen


EXPECTED = {
    "as_FLOAT16": "float16", "as_BFLOAT16": "bfloat16", "as_INT8": "int8", "as_UINT64": "uint64", "as_BOOL": "bool",
    "as_FLOAT8E4M3FN": "float8_e4m3fn", "as_FLOAT8E5M2": "float8_e5m2", "as_INT4": "int4", "as_UINT4": "uint4",
    "as_INT64": "int64",
}  # fmt: skip


def test_every_element_type_arrives_as_itself(open_model: Opener) -> None:
    feeds = {"x": np.float32([-1.3, 0, 1.7, 3.2])}
    hook, metas, _ = run(open_model(onnx_models.exotic_types(), "ort_fp32"), feeds)
    for name, dtype in EXPECTED.items():
        assert hook.arrays[name].dtype.name == dtype
        assert metas[name].dtype == dtype
    with np.errstate(invalid="ignore"):
        for name in ("as_FLOAT16", "as_BFLOAT16", "as_FLOAT8E5M2", "as_BOOL", "as_INT64"):
            np.testing.assert_array_equal(hook.arrays[name], feeds["x"].astype(hook.arrays[name].dtype))
    assert "removes it" in metas["as_DOUBLE"].unseen


@pytest.mark.parametrize("value", [65504.0, 1e-8, 6e-8, np.inf, -np.inf, np.nan, -0.0])
def test_float16_keeps_its_bits_on_the_way_to_the_hook(open_model: Opener, value: float) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])]
    half = [onnx_models.value(name, [3], TensorProto.FLOAT16) for name in ("x", "y")]
    feeds = {"x": np.float16([value, 1, -2])}
    hook, _, _ = run(open_model(onnx_models.model(nodes, half[:1], half[1:]), "ort_fp32"), feeds)
    assert hook.arrays["h"].tobytes() == feeds["x"].tobytes()


ODD_TYPES = "BFLOAT16 FLOAT8E4M3FN FLOAT8E5M2 INT4 UINT4 INT2 UINT2".split()  # noqa: SIM905


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("name", ODD_TYPES)
def test_odd_types_can_be_fed_and_are_returned(open_model: Opener, name: str, count: int) -> None:
    elem = getattr(TensorProto, name)
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT)]
    nodes.append(helper.make_node("Cast", ["h"], ["y"], to=elem))
    sides = [onnx_models.value(side, [count], elem) for side in ("x", "y")]
    model = onnx_models.model(nodes, sides[:1], sides[1:], opset=25, ir=12)
    dtype = helper.tensor_dtype_to_np_dtype(elem)
    feeds = {"x": np.array([1, 0, 1, 1, 0][:count]).astype(dtype)}
    session = open_model(model, "ort_fp32")
    hook, _, outputs = run(session, feeds)
    assert outputs["y"].dtype == dtype
    for array in (outputs["y"], hook.arrays["x"], hook.arrays["y"]):
        assert array.astype(np.float32).tolist() == feeds["x"].astype(np.float32).tolist()
    assert have_same_bits(session.run(feeds)["y"], outputs["y"])


def test_strings_and_sequences_are_returned_and_those_inside_are_said_to_be_unseen(open_model: Opener) -> None:
    hook, metas, outputs = run(
        open_model(onnx_models.strings_and_sequences(), "ort_fp32"), {"x": np.float32([1, 2, 3])}
    )
    assert hook.arrays["words"].tolist() == ["1", "2", "3"]
    assert outputs["words"].tolist() == ["1", "2", "3"]
    assert "string" in metas["inner"].unseen
    assert not metas["parts"].unseen
    assert metas["parts"].is_output
    np.testing.assert_array_equal(hook.arrays["parts"], [[1, 2, 3], [1, 2, 3]])
    assert [part.tolist() for part in outputs["parts"]] == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("mode", CPU_MODES)
def test_outputs_that_are_inputs_or_constants_are_seen(open_model: Opener, mode: str) -> None:
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3) - 2}
    hook, metas, outputs = run(open_model(onnx_models.odd_outputs(), mode), feeds)
    assert list(outputs) == ["c", "a", "x", "fixed"]
    for name in outputs:
        assert metas[name].is_output
        assert not metas[name].unseen
        np.testing.assert_array_equal(hook.arrays[name], outputs[name])
    np.testing.assert_array_equal(outputs["x"], feeds["x"])


def test_a_default_can_be_overridden(open_model: Opener, tmp_path: Path) -> None:
    session = open_model(onnx_models.odd_outputs(), "ort_fp32")
    outputs = session.run({"x": np.zeros((2, 3), np.float32), "default": np.float32([7, 8, 9])})
    np.testing.assert_array_equal(outputs["c"][0], [7, 8, 9])
    spec = SessionSpec(model=ModelFiles(model_file=str(tmp_path / "model.onnx")), mode="ort_fp32")
    metas = OnnxRuntimeBackend().inputs(spec)
    assert [(meta.name, meta.optional) for meta in metas] == [("x", False), ("default", True)]


@pytest.mark.parametrize("mode", CPU_MODES)
def test_what_is_inside_a_function_is_seen(open_model: Opener, mode: str) -> None:
    feeds = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    _, metas, outputs = run(open_model(onnx_models.functions(), mode), feeds)
    assert [meta.op_type for meta in metas.values() if not meta.unseen and meta.op_type == "Exp"] == ["Exp", "Exp"]
    h = np.exp(feeds["x"]) + feeds["x"]
    np.testing.assert_allclose(outputs["y"], np.exp(-h) - h, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("mode", [*CPU_MODES, "ort_int8", "ort_int8_dynamic"])
def test_weights_in_a_file_beside_the_model(open_model: Opener, tmp_path: Path, mode: str) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)}
    inside = open_model(onnx_models.convnet(), mode, feeds).run(feeds)
    beside = tmp_path / "beside"
    beside.mkdir()
    onnx.save(onnx_models.convnet(), beside / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=64)
    before = {path: path.read_bytes() for path in beside.iterdir()}
    session = open_model(beside / "m.onnx", mode, feeds)
    outputs = session.run(feeds, CopyingHook())
    assert all(have_same_bits(inside[name], outputs[name]) for name in inside)
    session.close()
    assert {path: path.read_bytes() for path in beside.iterdir()} == before, "the model's folder was written to"


def test_weights_that_are_missing_or_cut_off_are_named(open_model: Opener, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx_models.convnet(), path, save_as_external_data=True, location="w.bin", size_threshold=64)
    data = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(data[:-8])
    with pytest.raises(ModelError, match=r"w\.bin are cut off"):
        open_model(path, "ort_fp32")
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"w\.bin are missing"):
        open_model(path, "ort_fp32")


def test_unnamed_nodes_get_names_that_do_not_depend_on_their_place(open_model: Opener) -> None:
    session = open_model(onnx_models.convnet(named=False), "ort_fp32")
    nodes = {meta.name: meta.node for meta in session.tensors}
    assert nodes["c1"] == "Conv:c1"
    assert nodes["prob"] == "Softmax:prob"
    assert len(set(nodes.values())) == len(nodes)


def _old_style() -> onnx.ModelProto:
    model = onnx_models.convnet(opset=9)
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return model


@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt", "ort_fp16_sim"])
def test_an_old_model_whose_weights_are_inputs(open_model: Opener, mode: str) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)}
    hook, metas, _ = run(open_model(_old_style(), mode, feeds), feeds)
    assert "w1" not in metas
    assert "prob" in hook.arrays
    # before IR version 4 they had to be listed, and nobody may feed them; since, they are defaults
    old, model = Model(proto=_old_style(), folder=Path(), path=""), _old_style()
    model.ir_version = 4
    assert [(one.name, one.optional) for one in read_inputs(old)] == [("x", False)]
    assert ("w1", True) in [(one.name, one.optional) for one in read_inputs(Model(proto=model, folder=Path(), path=""))]


BAD: dict[str, tuple[bytes | None, str]] = {
    "empty": (b"", "empty"),
    "text": (b"hello, this is not a model at all\n" * 20, "not an ONNX model"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
    "missing": (None, "no such file"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_model_is_refused_in_one_line(open_model: Opener, tmp_path: Path, kind: str) -> None:
    data, words = BAD[kind]
    path = tmp_path / f"{kind}.onnx"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        open_model(path, "ort_fp32")
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_off_model_is_refused(open_model: Opener, tmp_path: Path) -> None:
    data = onnx_models.convnet().SerializeToString()
    for share in (0.3, 0.6, 0.99):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ModelError) as caught:
            open_model(path, "ort_fp32")
        assert "\n" not in str(caught.value)


def test_an_opset_from_the_future_is_refused(open_model: Opener) -> None:
    model = onnx_models.mlp()
    model.opset_import[0].version = 999
    with pytest.raises(ModelError, match="opset"):
        open_model(model, "ort_fp32")


def test_an_ir_from_the_future_is_refused(open_model: Opener) -> None:
    model = onnx_models.mlp()
    model.ir_version = 999
    with pytest.raises(ModelError, match="ir_version"):
        open_model(model, "ort_fp32")


def test_a_custom_operator_without_its_library_is_named(open_model: Opener) -> None:
    node = helper.make_node("Whirl", ["x"], ["y"], name="whirling", domain="com.example")
    model = onnx_models.model(
        [node], [onnx_models.value("x", [1])], [onnx_models.value("y", [1])], domains=["com.example"]
    )
    with pytest.raises(ModelError) as caught:
        open_model(model, "ort_fp32")
    text = str(caught.value)
    assert "Whirl" in text
    assert "com.example" in text
    assert "custom_ops_library" in text


@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt"])
def test_a_custom_operator_with_its_library_is_seen(open_model: Opener, mode: str) -> None:
    pytest.importorskip("onnxruntime_extensions", reason="it has no wheel for this Python", exc_type=ImportError)
    from onnxruntime_extensions import get_library_path

    nodes = [
        helper.make_node("NegPos", ["x"], ["neg", "pos"], name="split", domain="ai.onnx.contrib"),
        helper.make_node("Sub", ["pos", "neg"], ["y"], name="sub"),
    ]
    sides = [onnx_models.value("x", [3]), onnx_models.value("y", [3])]
    model = onnx_models.model(nodes, sides[:1], sides[1:], domains=["ai.onnx.contrib"])
    feeds = {"x": np.float32([1, -2, 3])}
    hook, metas, outputs = run(open_model(model, mode, custom_ops_library=get_library_path()), feeds)
    np.testing.assert_array_equal(hook.arrays["neg"], [0, -2, 0])
    np.testing.assert_array_equal(outputs["y"], [1, 2, 3])
    assert metas["neg"].op_type == "NegPos"


def test_a_converted_model_that_is_refused_says_how_to_keep_operators(open_model: Opener) -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], name="bits", to=TensorProto.FLOAT)
    sides = [onnx_models.value("x", [2], TensorProto.INT32), onnx_models.value("y", [2])]
    with pytest.raises(PrecisionDebugError) as caught:
        open_model(onnx_models.model([node], sides[:1], sides[1:], opset=26, ir=13), "ort_fp16")
    assert holds_approved(str(caught.value))
    assert "op_block_list" in str(caught.value)


def test_where_unsigned_weights_help_it_is_said() -> None:
    said = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
    told = r"ConvInteger of opset 10 .* \(node c1\); .*weight_type=uint8"
    with pytest.raises(ModelError, match=told), our_errors("m"):
        raise RuntimeError(f"{said}ConvInteger(10) node with name 'c1'")


def test_a_kernel_that_has_no_float16_as_it_runs_is_a_refusal() -> None:
    """As ONNX Runtime says it of caustic-nmr's graph network, in the middle of a run."""
    said = "MLFloat16 data type is not supported with ScatterElements opset 16 when reduction is 'add'."
    with pytest.raises(ModelError, match="op_block_list=ScatterElements"), our_errors("m"):
        raise RuntimeError(f"Non-zero status code returned while running ScatterElements node. Status Message: {said}")


def test_a_kernel_that_onnxruntime_lacks_is_named(open_model: Opener) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["y"], name="narrow", to=TensorProto.FLOAT4E2M1)]
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [2])], [onnx_models.value("y", [2], TensorProto.FLOAT4E2M1)], opset=23, ir=11
    )
    with pytest.raises(PrecisionDebugError) as caught:
        open_model(model, "ort_fp32")
    assert "Cast" in str(caught.value)
    assert "narrow" in str(caught.value)


def test_a_kernel_that_fails_is_a_backend_error(open_model: Opener) -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"], name="take")]
    model = onnx_models.model(
        nodes,
        [onnx_models.value("x", [2]), onnx_models.value("i", [1], TensorProto.INT64)],
        [onnx_models.value("y", [1])],
    )
    session = open_model(model, "ort_fp32")
    with pytest.raises(BackendError) as caught:
        session.run({"x": np.zeros(2, np.float32), "i": np.array([7])}, CopyingHook())
    assert "take" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_shape_is_said_in_one_line(open_model: Opener) -> None:
    session = open_model(onnx_models.mlp(), "ort_fp32")
    with pytest.raises(PrecisionDebugError) as caught:
        session.run({"x": np.zeros((1, 5), np.float32)})
    assert "x" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_everything_that_is_written_lies_in_the_work_folder(
    open_model: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    feeds = {"x": np.zeros((1, 3, 16, 16), np.float32)}
    for mode in (*CPU_MODES, "ort_int8", "ort_int8_dynamic"):
        open_model(onnx_models.convnet(), mode, feeds).run(feeds, CopyingHook())
    assert list(elsewhere.iterdir()) == []


def test_nothing_is_printed(open_model: Opener, capfd: pytest.CaptureFixture[str]) -> None:
    feeds = {"x": np.zeros((1, 3, 16, 16), np.float32)}
    for mode in (*CPU_MODES, "ort_int8", "ort_int8_dynamic"):
        open_model(onnx_models.convnet(), mode, feeds, calibration="entropy").run(feeds, CopyingHook())
    assert capfd.readouterr() == ("", "")
