"""The model that is judged is the one that the stock converter or quantiser makes, and it runs without us."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_models
import onnxruntime as ort
import pytest
from approval import begins_approved, holds_approved, raises_approved
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16
from planted.onnx_faults import Graph
from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_onnxruntime.engine.runtime import Runtime
from precision_debug_onnxruntime.make import change_model, float16
from precision_debug_onnxruntime.make.narrowing import as_float16
from precision_debug_onnxruntime.model import read_source
from precision_debug_onnxruntime.modes import recipe

import precision_debug
from precision_debug.errors import ModelError
from precision_debug.reasons import as_reason
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.report.lead import lead_sentences
from precision_debug.testing.backend_contract import CopyingHook, have_same_bits

RANDOM = np.random.default_rng(3)


def saved(model: onnx.ModelProto, folder: Path) -> str:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return str(path)


def opened(model: onnx.ModelProto, mode: str, folder: Path, feeds: dict[str, Any], **options: Any) -> Any:
    spec = SessionSpec(
        model=ModelFiles(model_file=saved(model, folder)), mode=mode, options=options, work_dir=str(folder)
    )
    return OnnxRuntimeBackend().open(spec, [feeds])


def plain_run(model: str | bytes, feeds: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return list(ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds))


def normal(*shape: int, random: np.random.Generator = RANDOM) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def constant(name: str, array: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.asarray(array), name))


def unknown_ends(opset: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Slices whose ends the graph only computes, of one rank and of different sizes."""
    nodes = [
        helper.make_node("Slice", ["x", "zero", "a"], ["head"]),
        helper.make_node("Slice", ["x", "zero", "b"], ["most"]),
        helper.make_node("Relu", ["head"], ["head_r"]),
        helper.make_node("Sigmoid", ["most"], ["most_s"]),
        helper.make_node("MatMul", ["head_r", "w"], ["head_m"]),
        helper.make_node("MatMul", ["most_s", "w"], ["most_m"]),
        helper.make_node("Tanh", ["head_m"], ["head_t"]),
        helper.make_node("Exp", ["most_m"], ["most_e"]),
        helper.make_node("Concat", ["head_t", "most_e"], ["y"], axis=0),
    ]
    inputs = [onnx_models.value("x", [None, 4]), *(onnx_models.value(n, [1], TensorProto.INT64) for n in "ab")]
    model = onnx_models.model(
        nodes, inputs, [onnx_models.value("y", [None, 4])],
        {"w": normal(4, 4), "zero": np.array([0])}, opset=opset,
    )  # fmt: skip
    return model, {"x": normal(9, 4), "a": np.array([2]), "b": np.array([7])}


def unknown_batches(opset: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Two inputs without named dimensions, and one that is broadcast."""
    nodes = [
        helper.make_node("Relu", ["x"], ["x_r"]),
        helper.make_node("Relu", ["y"], ["y_r"]),
        helper.make_node("Mul", ["x_r", "y_r"], ["wide"]),
        helper.make_node("Transpose", ["y_r"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["wide", "turned"], ["z"]),
        helper.make_node("Neg", ["z"], ["z_n"]),
        helper.make_node("Add", ["z_n", "z"], ["sum"]),
        helper.make_node("Sub", ["sum", "x_r"], ["out"]),
    ]
    values = [onnx_models.value(name, [None, None]) for name in ("x", "y")]
    model = onnx_models.model(nodes, values, [onnx_models.value("out", [None, None])], opset=opset)
    return model, {"x": normal(5, 1), "y": normal(1, 6)}


def paddles(opset: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """As Paddle2ONNX writes: weights in Constant nodes, Resize by a computed size, no shape but the input's."""
    nodes = [
        constant("k", normal(8, 3, 3, 3)), constant("k2", normal(8, 8, 1, 1)), constant("half", np.float32(0.5)),
        constant("from2", np.array([2])), constant("to4", np.array([4])), constant("none", np.float32([])),
        helper.make_node("Conv", ["x", "k"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "half"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Conv", ["g", "k2"], ["s"]),
        helper.make_node("HardSigmoid", ["s"], ["gate"]),
        helper.make_node("Mul", ["r", "gate"], ["m"]),
        helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Shape", ["m"], ["shape_m"]),
        helper.make_node("Slice", ["shape", "from2", "to4"], ["hw"]),
        helper.make_node("Slice", ["shape_m", "zero", "from2"], ["nc"]),
        helper.make_node("Concat", ["nc", "hw"], ["size"], axis=0),
        helper.make_node("Resize", ["m", "none", "none" if opset < 13 else "", "size"], ["y"], mode="nearest"),
        constant("zero", np.array([0])),
        helper.make_node("Max", ["y", "half"], ["z"]),
    ]  # fmt: skip
    nodes.insert(0, nodes.pop(-2))
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [None, 3, None, None])], [onnx_models.value("z", [None, 8, None, None])],
        opset=opset,
    )  # fmt: skip
    return model, {"x": normal(1, 3, 12, 20)}


GRAPHS = [unknown_ends, unknown_batches, paddles]


@pytest.mark.parametrize("opset", [11, 12, 17])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_float16_model_is_the_stock_converters_and_runs_without_us(graph: Any, opset: int, tmp_path: Path) -> None:
    model, feeds = graph(opset)
    stock = convert_float_to_float16(copy.deepcopy(model), keep_io_types=True)
    expected = plain_run(stock.SerializeToString(), feeds)
    source = read_source(saved(model, tmp_path))
    judged, _ = change_model(source, recipe("ort_fp16"), Runtime(), [feeds], tmp_path)
    assert not {
        dim.dim_param
        for item in (*judged.proto.graph.value_info, *judged.proto.graph.output)
        for dim in item.type.tensor_type.shape.dim
    } - {dim.dim_param for item in stock.graph.value_info for dim in item.type.tensor_type.shape.dim}
    path = judged.folder / "judged.onnx"
    onnx.save(judged.proto, path)
    alone = plain_run(str(path), feeds)
    session = opened(model, "ort_fp16", tmp_path, feeds)
    for outputs in (alone, session.run(feeds).values(), session.run(feeds, CopyingHook()).values()):
        assert all(have_same_bits(one, two) for one, two in zip(expected, outputs, strict=True))


def test_an_operator_of_onnx_runtimes_own_still_reaches_a_blocked_one_in_float32(tmp_path: Path) -> None:
    """The stock converter does not know QuickGelu's type, and its model does not load."""
    nodes = [
        helper.make_node("QuickGelu", ["x"], ["q"], domain="com.microsoft"),
        helper.make_node("CumSum", ["q", "axis"], ["c"]),
        helper.make_node("Mul", ["c", "c"], ["y"]),
    ]
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [None, 4])], [onnx_models.value("y", [None, 4])], {"axis": np.array(0)},
        opset=13, domains=["com.microsoft"],
    )  # fmt: skip
    feeds = {"x": normal(3, 4)}
    with pytest.raises(Exception, match="float16"):
        plain_run(convert_float_to_float16(copy.deepcopy(model), keep_io_types=True).SerializeToString(), feeds)
    session = opened(model, "ort_fp16", tmp_path, feeds)
    assert holds_approved(session.notes)
    base = opened(model, "ort_fp32", tmp_path, feeds).run(feeds)["y"]
    np.testing.assert_allclose(session.run(feeds)["y"], base, atol=5e-2)


# ---- int8


def convolutions(opset: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    random = np.random.default_rng(opset)
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "k2"], ["d"]), helper.make_node("Add", ["d", "d"], ["y"]),
    ]  # fmt: skip
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [None, 3, 8, 8])], [onnx_models.value("y", [None, 4, 8, 8])],
        {"k": normal(4, 3, 3, 3, random=random), "k2": normal(4, 4, 1, 1, random=random)}, opset=opset, ir=7,
    )  # fmt: skip
    return model, {"x": normal(1, 3, 8, 8, random=random)}


class Reader(CalibrationDataReader):
    def __init__(self, feeds: dict[str, Any]) -> None:
        self.left = [feeds]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


@pytest.mark.parametrize("options", [{}, {"per_channel": True}])
@pytest.mark.parametrize("opset", [10, 11, 12])
def test_a_model_of_an_older_opset_is_quantised(opset: int, options: dict[str, Any], tmp_path: Path) -> None:
    model, feeds = convolutions(opset)
    for mode in ("ort_int8", "ort_int8_dynamic"):
        if mode == "ort_int8_dynamic":
            options = {**options, "weight_type": "uint8"}
        session = opened(model, mode, tmp_path, feeds, **options)
        base = opened(model, "ort_fp32", tmp_path, feeds).run(feeds)["y"]
        hook = CopyingHook()
        session.run(feeds, hook)
        assert np.abs(session.run(feeds)["y"] - base).max() < 0.1 * np.abs(base).max()
        assert len(hook.arrays) >= 4


@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt"])
@pytest.mark.parametrize("opset", [10, 11, 12])
def test_a_quantised_file_of_an_older_opset_runs(mode: str, opset: int, tmp_path: Path) -> None:
    model, feeds = convolutions(opset)
    quantize_static(
        saved(model, tmp_path), str(tmp_path / "q.onnx"), Reader(feeds), quant_format=QuantFormat.QDQ, per_channel=False
    )
    expected = plain_run(str(tmp_path / "q.onnx"), feeds)
    session = opened(onnx.load(tmp_path / "q.onnx"), mode, tmp_path, feeds)
    found = session.run(feeds, CopyingHook())["y"]
    np.testing.assert_allclose(found, expected[0], atol=0 if mode == "ort_opt" else 0.05)


def test_where_the_quantiser_fails_per_channel_it_is_asked_per_tensor(tmp_path: Path) -> None:
    """A Gemm's bias of two dimensions: "the truth value of an array with more than one element is ambiguous"."""
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["g"]), helper.make_node("Sigmoid", ["g"], ["y"])]
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [2, 4])], [onnx_models.value("y", [2, 6])],
        {"w": normal(4, 6), "b": normal(1, 6)},
    )  # fmt: skip
    feeds = {"x": normal(2, 4)}
    session = opened(model, "ort_int8", tmp_path, feeds, per_channel=True)
    note = next(note for note in session.notes if "per-channel quantisation was turned off" in note)
    assert "truth value" not in note
    base = opened(model, "ort_fp32", tmp_path, feeds).run(feeds)["y"]
    np.testing.assert_allclose(session.run(feeds)["y"], base, atol=0.05)


def test_an_error_of_the_quantisers_own_is_told_in_our_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        {}["140_scale"]

    model, feeds = convolutions(17)
    monkeypatch.setattr("onnxruntime.quantization.quantize_static", fails)
    with raises_approved(ModelError) as caught:
        opened(model, "ort_int8", tmp_path, feeds)
    assert "nodes_to_exclude" in str(caught.value)
    assert "140_scale" not in str(caught.value)


# ---- simulated bfloat16


@pytest.mark.parametrize("opset", [9, 11, 12])
def test_bfloat16_is_simulated_below_opset_13(opset: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]), helper.make_node("Softmax", ["u"], ["s"], axis=2),
        helper.make_node("ReduceSum", ["s"], ["sum"], axes=[1]), helper.make_node("Mul", ["sum", "w"], ["y"]),
    ]  # fmt: skip
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [3, 4])], [onnx_models.value("y", [1, 4])], {"w": normal(4)}, opset=opset
    )
    feeds = {"x": normal(3, 4)}
    session = opened(model, "ort_bf16_sim", tmp_path, feeds)
    hook = CopyingHook()
    session.run(feeds, hook)
    assert {"s", "sum", "y"} <= {meta.origin or meta.name for meta in session.tensors if meta.name in hook.arrays}
    for name, array in hook.arrays.items():
        np.testing.assert_array_equal(array, array.astype(ml_dtypes.bfloat16).astype(np.float32), err_msg=name)
    base = opened(model, "ort_fp32", tmp_path, feeds).run(feeds)["y"]
    np.testing.assert_allclose(session.run(feeds)["y"], base, rtol=0.05)
    assert any("to 13 by onnx.version_converter" in note for note in session.notes)


def test_bfloat16_is_simulated_below_opset_13_with_branches_own_operators_and_large_weights(tmp_path: Path) -> None:
    branch = [
        helper.make_graph(
            [helper.make_node("Squeeze", ["q"], [f"{name}_s"], axes=[0]),
             helper.make_node("Mul", [f"{name}_s", f"{name}_s"], [f"{name}_y"])],
            name, [], [onnx_models.value(f"{name}_y", None)],
        )
        for name in ("then", "else")
    ]  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("QuickGelu", ["m"], ["q"], domain="com.microsoft"),
        helper.make_node("If", ["go"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [1, 3, 40]), onnx_models.value("go", [], TensorProto.BOOL)],
        [onnx_models.value("y", None)], {"w": normal(40, 40)}, opset=11, domains=["com.microsoft"],
    )  # fmt: skip
    feeds = {"x": normal(1, 3, 40), "go": np.array(True)}
    session = opened(model, "ort_bf16_sim", tmp_path, feeds)
    hook = CopyingHook()
    session.run(feeds, hook)
    base = opened(model, "ort_fp32", tmp_path, feeds).run(feeds)["y"]
    np.testing.assert_allclose(session.run(feeds)["y"], base, rtol=0.1, atol=0.1 * np.abs(base).max())
    for name in ("m", "q", "then_s", "then_y"):
        array = hook.arrays[name]
        np.testing.assert_array_equal(array, array.astype(ml_dtypes.bfloat16).astype(np.float32), err_msg=name)


def test_a_quantised_model_that_onnx_runtime_refuses_is_a_refusal_and_no_crash() -> None:
    """As of an audio model whose stock quantisation gives a Transpose that does not fit, in a plain session too."""
    from precision_debug_onnxruntime.make.quantise import after_quantisation

    from precision_debug.errors import BackendCrash, BackendError, ModelError

    with raises_approved(ModelError), after_quantisation():
        raise BackendError("Invalid attribute perm", where="m.onnx")
    with pytest.raises(BackendCrash), after_quantisation():
        raise BackendCrash("killed")


def test_weights_become_float16_as_the_stock_converter_makes_them() -> None:
    from onnxruntime.transformers.float16 import convert_np_to_float16

    random = np.random.default_rng(5)
    edges = [0.0, -0.0, np.nan, np.inf, -np.inf, 65504.0, 65520.0, -7e4, 1e38, 5.96e-08, 5.9e-08, -1e-9, 1e-45, 6e-05]
    for dtype in (np.float32, np.float64):
        for size in (1, 70000, 200001):
            plain = (random.standard_normal(size) * 10.0 ** random.uniform(-12, 8, size)).astype(dtype)
            plain[: len(edges)] = edges[:size]
            with np.errstate(all="ignore"):
                assert have_same_bits(as_float16(plain), convert_np_to_float16(plain)), (dtype, size)


def test_types_are_inferred_as_with_the_weights(tmp_path: Path) -> None:
    for model in (onnx_models.convnet(), onnx_models.attention(), onnx_models.if_model(), onnx_models.loop_model()):
        want = onnx.shape_inference.infer_shapes(model).SerializeToString(deterministic=True)
        before = float16._HEAVY
        float16._HEAVY = 64
        try:
            copy = onnx.ModelProto.FromString(model.SerializeToString())
            assert float16._infer_types(copy).SerializeToString(deterministic=True) == want
        finally:
            float16._HEAVY = before


@pytest.mark.parametrize("mode", ["ort_int8", "ort_fp16", "ort_opt"])
def test_a_full_disk_is_not_the_models_fault(mode: str, tmp_path: Path) -> None:
    """Files may not grow beyond 4 kB there, which is errno EFBIG; where the disk is full it is ENOSPC."""
    onnx.save(onnx_models.convnet(64), tmp_path / "m.onnx")
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from precision_debug.cli import main; import precision_debug.run.worker;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384)); import precision_debug as p;"
        f"p.compare('m.onnx', run_mode={mode!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert "OutputError" in last, last
    assert "not enough disk space" in last or "cannot be written" in last or "full" in last


def _dynamic_folder(folder: Path, transposed: bool) -> tuple[str, dict[str, np.ndarray[Any, Any]]]:
    """A product whose filters differ a thousandfold and are evened out behind it; or one of a transposed constant."""
    g = Graph(seed=3)
    x = g.input("x", g.random.standard_normal((4, 16)).astype(np.float32))
    size = np.geomspace(0.004, 8, 16).astype(np.float32)
    weight = (g.random.standard_normal((16, 16)) * (1 if transposed else size)).astype(np.float32)
    if transposed:
        y = g.op("MatMul", [x, g.op("Transpose", [g.weight("w", weight)], "turned", perm=[1, 0])], "y")
    else:
        filters = (g.random.standard_normal((16, 1, 3)) * size[:, None, None]).astype(np.float32)
        image = g.op("Unsqueeze", [x, g.weight("last", np.array([2]))], "image")
        deep = g.op("Conv", [image, g.weight("f", filters)], "deep", pads=[1, 1], group=16)
        y = g.op("Mul", [deep, g.weight("even", (1 / size)[:, None])], "y")
    return str(g.save(folder / "m.onnx", [y])), dict(g.feeds)


def test_dynamic_quantisation_is_the_stock_call_on_the_file_as_it_is(tmp_path: Path) -> None:
    """Folding would move a product into the weights before it, which then need other scales."""
    path, feeds = _dynamic_folder(tmp_path, transposed=False)
    stock = tmp_path / "stock.onnx"
    quantize_dynamic(path, stock)
    (want,) = ort.InferenceSession(path).run(None, feeds)
    (given,) = ort.InferenceSession(stock).run(None, feeds)
    report = precision_debug.compare(path, run_mode="ort_int8_dynamic", inputs=feeds)
    off = float(np.linalg.norm(given - want) / np.linalg.norm(want))
    assert off > 0.1
    assert report.outputs[0].relative_l2 == pytest.approx(off, rel=1e-3)
    assert report.exit_status == 1


def test_that_constants_were_folded_for_quantize_dynamic_comes_first(tmp_path: Path) -> None:
    path, feeds = _dynamic_folder(tmp_path, transposed=True)
    report = precision_debug.compare(path, run_mode="ort_int8_dynamic", inputs=feeds)
    assert [one.code for one in report.target.notes if "folded" in one.code] == ["onnxruntime.folded_first"]
    assert begins_approved(lead_sentences(report)[0].en)


@pytest.mark.parametrize("mode", ["ort_int8", "ort_int8_dynamic"])
def test_a_file_that_names_an_opset_twice_is_quantised(mode: str, tmp_path: Path) -> None:
    """Files that were merged do; ONNX Runtime runs them, and its quantiser finds no "proper ai.onnx domain"."""
    model = onnx_models.mlp()
    model.opset_import.append(copy.copy(model.opset_import[0]))
    report = precision_debug.compare(saved(model, tmp_path), run_mode=mode, inputs={"x": normal(3, 8)})
    assert "onnxruntime.opset_twice" in [as_reason(note).code for note in report.target.notes]
    assert any(row.relative_l2 or 0 for row in report.compared)
