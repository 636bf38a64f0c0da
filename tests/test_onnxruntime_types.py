from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import onnx
import onnx_models
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from precision_debug_onnxruntime.engine.light_imports import import_lean
from precision_debug_onnxruntime.engine.runtime import Runtime
from precision_debug_onnxruntime.engine.types import read_types
from precision_debug_onnxruntime.make.running_graph import infer_types

import precision_debug
from precision_debug.errors import ModelError
from precision_debug.onnx.model import read_model

F = TensorProto.FLOAT


def saved(nodes: list[Any], inputs: list[Any], outputs: list[str], folder: Path, initializers: Any = ()) -> bytes:
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info(name, F, None) for name in outputs], list(initializers)
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(folder / "m.ort")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return (folder / "m.ort").read_bytes()


def by_generated_classes(graph: Any, fbs: Any) -> dict[str, Any]:
    """Names of the main graph's values to kind, element type and dimensions, by ONNX Runtime's own classes."""
    found = {}
    for place in range(graph.NodeArgsLength()):
        arg = graph.NodeArgs(place)
        info = arg.Type()
        if info is None or info.ValueType() != fbs.TypeInfoValue.TypeInfoValue.tensor_type:
            found[arg.Name().decode()] = (0 if info is None else info.ValueType(), 0, None)
            continue
        tensor = fbs.TensorTypeAndShape.TensorTypeAndShape()
        tensor.Init(info.Value().Bytes, info.Value().Pos)
        shape = tensor.Shape()
        dims = None
        if shape is not None:
            values = [shape.Dim(i).Value() for i in range(shape.DimLength())]
            dims = [None if v is None else (v.DimType(), v.DimValue(), (v.DimParam() or b"").decode()) for v in values]
        found[arg.Name().decode()] = (1, tensor.ElemType(), dims)
    return found


def test_types_are_those_of_the_generated_classes(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["inner"])], "then", [], [helper.make_tensor_value_info("inner", F, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Mul", ["x", "x"], ["more"])], "else", [], [helper.make_tensor_value_info("more", F, None)]
    )
    data = saved(
        [
            helper.make_node("If", ["yes"], ["y"], name="", then_branch=body, else_branch=other),
            helper.make_node("SequenceConstruct", ["x", "y"], ["both"]),
            helper.make_node("SequenceAt", ["both", "at"], ["z"]),
        ],
        [
            helper.make_tensor_value_info("x", F, ["batch", 3, None]),
            helper.make_tensor_value_info("yes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("at", TensorProto.INT64, []),
        ],
        ["z"],
        tmp_path,
    )
    types = read_types(data)
    fbs = import_lean("onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs")
    graph = fbs.InferenceSession.InferenceSession.GetRootAsInferenceSession(bytearray(data), 0).Model().Graph()
    expected = by_generated_classes(graph, fbs)
    assert {name for key, name in types.known if not key} == set(expected)
    for name, (kind, elem, dims) in expected.items():
        found = types.of((), name)
        assert found.kind == {0: "", 1: "tensor", 2: "sequence", 3: "map"}[kind]
        assert found.elem == elem
        if dims is not None:
            assert found.shape == tuple(
                f"dim{i}" if dim is None or not dim[0] else dim[1] if dim[0] == 1 else dim[2]
                for i, dim in enumerate(dims)
            )
    assert types.of((), "x").shape == ("batch", 3, "dim2")
    assert types.of((("y", "then_branch"),), "inner").shape == ("batch", 3, "dim2")
    assert types.of((("y", "else_branch"),), "more").dtype == "float32"
    assert types.of((), "both").kind == "sequence"


@pytest.mark.parametrize("data", [b"", b"\0" * 3, b"\xff" * 64])
def test_other_bytes_end_in_an_error_of_pythons(data: bytes) -> None:
    with pytest.raises(struct.error):
        read_types(data)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("short", "has 4 bytes, which does not match"), ("none", "which does not match|refuses the model"),
        ("int4", "has no kernel here for Identity"),
    ],
)  # fmt: skip
def test_what_onnx_runtime_does_not_load_is_the_models_fault(name: str, what: str, tmp_path: Path) -> None:
    """Status 2: nothing has failed that could be reported on."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    weight.raw_data = {"short": b"1234", "none": b"", "int4": bytes(8)}[name]
    kind = TensorProto.INT4 if name == "int4" else TensorProto.FLOAT
    node = helper.make_node("Identity", ["x"], ["y"], name="n") if name == "int4" else helper.make_node(
        "Add", ["x", "w"], ["y"], name="n"
    )  # fmt: skip
    ends = [onnx_models.value("x", [2], kind)], [onnx_models.value("y", [2], kind)]
    proto = onnx_models.model([node], *ends, opset=23, ir=10)
    proto.graph.initializer.append(weight)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=what):
        precision_debug.compare(path, run_mode="ort_opt")


def test_a_model_that_is_opened_again_is_loaded_for_its_types_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search opens one model for each set that it tries; another model, or other entries, are asked for anew."""
    opened, plain = [], Runtime.open
    monkeypatch.setattr(Runtime, "open", lambda self, *a, **k: opened.append(self) or plain(self, *a, **k))
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    model = read_model(str(tmp_path / "m.onnx"))
    others = Runtime(settings={"config": {"session.intra_op.allow_spinning": "0"}}), Runtime(telling=True)
    first = infer_types(model, Runtime(), tmp_path)
    assert infer_types(model, Runtime(settings={"disabled_optimizers": ["MatMulAddFusion"]}), tmp_path) == first
    assert len(opened) == 1
    for runtime in others:
        assert infer_types(model, runtime, tmp_path) == first
    model.proto.graph.node[-1].output[0] = "renamed"
    model.proto.graph.output[0].name = "renamed"
    assert ((), "renamed") in infer_types(model, Runtime(), tmp_path).known
    assert len(opened) == 4
    assert not list(tmp_path.glob("*.ort"))
