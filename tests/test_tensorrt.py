"""The TensorRT backend's parts that need neither TensorRT nor a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import tensorrt_models as models
from approval import holds_approved, is_approved, raises_approved
from precision_debug_tensorrt.engine.constraints import Asked, find_outcomes, match_layers
from precision_debug_tensorrt.engine.messages import Messages
from precision_debug_tensorrt.engine.network import LayerFacts, OutputFacts, find_refused_marks
from precision_debug_tensorrt.engine.options import read_options
from precision_debug_tensorrt.model import EngineFile, OnnxModel, Script, load_function, read_source
from precision_debug_tensorrt.naming import LayerIndex, columns, onnx_tensors

from precision_debug.errors import MarkError, ModelError, UsageError
from precision_debug.inspector import (
    EngineLayer,
    EngineTensor,
    compare_engines,
    find_real_precision,
    read_inspector,
    split_fused_outputs,
)
from precision_debug.records import ModelFiles

INSPECTOR = Path(__file__).parent / "data" / "inspector"
FP16 = read_inspector(INSPECTOR / "trt86_resnet18_fp16.json")
MARKED = read_inspector(INSPECTOR / "trt86_resnet18_fp16_marked.json")
FP32 = read_inspector(INSPECTOR / "trt86_resnet18_fp32.json")


# --- options


@pytest.mark.parametrize(
    "given_as",
    ["Add:float16 Sub:fp32", ["Add:float16", "Sub:float32"], {"Add": "half", "Sub": "FLOAT"}],
)
def test_layer_precisions_in_every_spelling(given_as: Any) -> None:
    options = read_options({"layer_precisions": given_as})
    assert options.layer_precisions == {"Add": "FP16", "Sub": "FP32"}
    assert options.precision_constraints == "obey"
    assert read_options({"layer_precisions": given_as, "precision_constraints": "none"}).precision_constraints == "none"


def test_a_layer_name_may_hold_colons() -> None:
    assert read_options({"layer_precisions": ["/a/b:0:float16"]}).layer_precisions == {"/a/b:0": "FP16"}


def test_what_is_for_the_target_does_not_reach_a_baseline() -> None:
    target = {"layer_precisions": "a:float16", "save_engine": "e", "fused_only": True, "workspace": "1G"}
    options = read_options({**target, "side": "baseline"})
    assert not options.asks_for_layers
    assert not options.save_engine
    assert not options.fused_only
    assert options.workspace == 2**30


def test_shapes_sources_and_sizes() -> None:
    options = read_options(
        {
            "min_shapes": {"x": [1, 3]}, "max_shapes": {"x": [8, 3]}, "tactic_sources": "cublas,CUDNN",
            "workspace": "1.5M", "plugins": "a.so b.so", "device": "other backend's",
        }
    )  # fmt: skip
    assert options.shapes == {"x": ((1, 3), (8, 3), (8, 3))}
    assert options.tactic_sources == ("CUBLAS", "CUDNN")
    assert options.workspace == 3 * 2**19
    assert options.plugins == ("a.so", "b.so")
    assert read_options({"tactic_sources": "none"}).tactic_sources == ()
    assert read_options({}).tactic_sources is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer_precisions": "Add"}, "write LAYER:float16"),
        ({"layer_precisions": "Add:float17"}, "'float17' of layer 'Add' is not a precision"),
        ({"precision_constraints": "perhaps"}, "is not one of none, prefer, obey"),
        ({"workspace": "lots"}, "'lots' is not a size"),
        ({"workspace": "-1"}, "is not a size above 0"),
        ({"min_shapes": {"x": [1]}}, "input 'x' has no --max_shapes"),
        ({"min_shapes": {"x": [4]}, "max_shapes": {"x": [2]}}, "do not rise"),
        ({"min_shapes": {"x": [1, 1]}, "max_shapes": {"x": [2]}}, "do not rise"),
        ({"typing": "loosely"}, "is not one of weak, strong"),
        ({"optimization_level": 9}, "9 is not from 0 to 5"),
    ],
)
def test_wrong_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_options(options)


# --- models and scripts


def test_the_kind_of_a_model_by_its_file(tmp_path: Path) -> None:
    onnx.save(models.residual(), tmp_path / "m.onnx")
    (tmp_path / "m.engine").write_bytes(b"plan")
    (tmp_path / "net.py").write_text("def load_network(builder, network): ...\ndef other(): ...\n")

    def read(name: str) -> Any:
        return read_source(ModelFiles(model_file=str(tmp_path / name)))

    assert isinstance(read("m.onnx"), OnnxModel)
    assert isinstance(read("m.engine"), EngineFile)
    script, other = read("net.py"), read("net.py:other")
    assert isinstance(script, Script)
    assert script.takes_network
    assert not other.takes_network
    with raises_approved(ModelError) as raised:
        read("net.py:third")
    assert "it has load_network, other" in str(raised.value)


def test_a_polygraphy_network_script_makes_its_network_itself(tmp_path: Path) -> None:
    pytest.importorskip("polygraphy", reason="polygraphy is not installed")
    (tmp_path / "net.py").write_text(
        "from polygraphy import func\n"
        "@func.extend(lambda: ('builder', 'network'))\n"
        "def load_network(builder, network): ...\n"
    )
    script = read_source(ModelFiles(model_file=str(tmp_path / "net.py")))
    assert isinstance(script, Script)
    assert not script.takes_network
    assert script.function() == ("builder", "network")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("m.engine", b"", "the file is empty"),
        ("m.plan", b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
        ("m.py", b"raise ValueError('broken')", "ValueError: broken"),
        ("m.py", b"x = 1", "has no function load_network"),
    ],
)
def test_models_that_cannot_be_read(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=said):
        read_source(ModelFiles(model_file=str(tmp_path / name)))


def test_a_missing_script(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such script"):
        load_function(str(tmp_path / "none.py"), default="postprocess")


# --- networks: which marks are refused


def layer(name: str, kind: str, inputs: str, outputs: str, shape: bool = False) -> LayerFacts:
    made = tuple(OutputFacts(name=n, dtype="float32", shape=(4,), is_shape=shape) for n in outputs.split())
    return LayerFacts(name=name, type=kind, inputs=tuple(inputs.split()), outputs=made)


def test_marks_inside_loops_and_branches_and_of_shapes_are_refused() -> None:
    layers = [
        layer("relu", "ACTIVATION", "x", "before"),
        layer("shape", "SHAPE", "before", "its_shape", shape=True),
        layer("gather", "GATHER", "its_shape", "rows", shape=True),
        layer("one", "CONSTANT", "", "c"),
        layer("state", "RECURRENCE", "before next", "held"),
        layer("mul", "ELEMENTWISE", "held c", "doubled"),
        layer("add", "ELEMENTWISE", "doubled c", "next"),
        layer("out", "LOOP_OUTPUT", "next", "looped"),
        layer("in", "CONDITIONAL_INPUT", "looped", "chosen"),
        layer("exp", "UNARY", "chosen", "then"),
        layer("end", "CONDITIONAL_OUTPUT", "then chosen", "branched"),
        layer("last", "ACTIVATION", "branched", "y"),
    ]
    refused = find_refused_marks(layers)
    assert set(refused) == {"its_shape", "rows", "c", "held", "doubled", "next", "chosen", "then"}
    assert "inside a loop" in refused["doubled"]
    assert "inside a branch" in refused["then"]
    assert "shape tensor" in refused["rows"]


def test_tensors_of_a_loop_body_are_listed_with_the_reason() -> None:
    proto = models.loop()
    from precision_debug.onnx.model import name_nodes

    name_nodes(proto.graph)
    found = {meta.name: meta for meta in onnx_tensors(proto.graph, {"before_out": "", "looped": "", "y": ""}, {})}
    assert holds_approved(found["doubled"].unseen)
    assert not found["looped"].unseen
    assert found["y"].is_output
    assert found["y"].inputs == ("looped",)
    assert found["x"].op_type == "Input"


# --- names and columns, from recorded engines


def test_a_fused_node_is_found_in_its_layer() -> None:
    index = LayerIndex(FP16)
    inside = index.find("/c/Conv_output_0", "/c/Conv")
    assert inside is not None
    assert inside.name == "/c/Conv + /Relu"
    assert columns(inside)["Real Precision"] == "FP16"
    assert "hmma" in columns(inside)["Tactic"]
    gemm = index.find("y", "/f/Gemm")
    assert gemm is not None
    assert gemm.name == "/f/Gemm"  # not the reshape after it, which writes the tensor
    assert columns(gemm)["Real Precision"] == "TF32"
    assert index.find("nowhere", "no node") is None
    assert columns(None) == {}


def test_a_copy_counts_for_the_layer_that_it_copies_from() -> None:
    index = LayerIndex(MARKED)
    found = index.find("/c/Conv_output_0", "/c/Conv")
    assert found is not None
    assert found.name == "/c/Conv"
    assert index.find("/Relu_output_0", "/Relu").name == "PWN(/Relu)"  # type: ignore[union-attr]


def test_without_metadata_a_layer_is_found_by_the_parts_of_its_name() -> None:
    layers = [EngineLayer(name="PWN(PWN(sigmoid), mul)", layer_type="PointWise"),
              EngineLayer(name="{ForeignNode[conv + relu]}", layer_type="Myelin")]  # fmt: skip
    index = LayerIndex(layers)
    assert index.find("", "sigmoid") is layers[0]
    assert index.find("", "mul") is layers[0]
    assert index.find("", "relu") is layers[1]


def test_fused_only_keeps_what_the_recorded_engine_makes() -> None:
    kept, _ = split_fused_outputs(FP16)
    assert "/Relu_output_0" in kept
    assert "/c/Conv_output_0" not in kept
    everything = compare_engines(FP16, MARKED)
    assert not everything.fusion_kept
    assert everything.layers == (29, 88)


DATA = Path(__file__).parent / "data" / "tensorrt"


@pytest.mark.parametrize(("mode", "wanted"), [("fp32", {"FP32"}), ("tf32", {"FP32", "TF32"})])
def test_recorded_engines_show_whether_tf32_was_used(mode: str, wanted: set[str]) -> None:
    """TensorRT 8.6 on an H200, models.residual(): TF32 cleared and left at its default."""
    layers = read_inspector(DATA / f"residual_8.6_{mode}.json")
    assert {find_real_precision(layer)[0] for layer in layers if not layer.is_reformat} == wanted
    convolutions = [layer for layer in layers if layer.layer_type == "CaskConvolution"]
    assert len(convolutions) == 4
    assert {find_real_precision(layer)[0] for layer in convolutions} == {"FP32" if mode == "fp32" else "TF32"}


@pytest.mark.parametrize("mode", ["fp32", "tf32", "fp16"])
def test_every_tensor_of_the_model_has_a_layer_in_the_recorded_engines(mode: str) -> None:
    proto = models.residual()
    for file, marked in ((f"residual_8.6_{mode}.json", False), (f"residual_8.6_{mode}_marked.json", True)):
        index = LayerIndex(read_inspector(DATA / file))
        for node in proto.graph.node:
            found = index.find(node.output[0], node.name)
            if node.op_type == "Flatten":  # TensorRT drops it: the memory is the same
                continue
            assert found is not None, (file, node.name)
            if marked and node.op_type in {"Conv", "Relu", "MaxPool"}:
                assert found.name in {node.name, f"PWN({node.name})"}
    change = compare_engines(*(read_inspector(DATA / f"residual_8.6_{mode}{end}.json") for end in ("", "_marked")))
    assert not change.fusion_kept
    assert "conv1 + conv1_bn + relu1" in change.lost


# --- constraints


def test_layers_by_name_pattern_and_expression() -> None:
    names = ["Add", "Sub", "block/conv", "block/norm"]
    found = match_layers({"block/*": "FP32", "block/norm": "FP16", "re:A.*": "FP32"}, names, where="x")
    assert found == {"block/conv": "FP32", "block/norm": "FP16", "Add": "FP32"}
    with raises_approved(MarkError):
        match_layers({"Ad": "FP32"}, names, where="--layer_precisions")
    with pytest.raises(MarkError, match="not a regular expression"):
        match_layers({"re:(": "FP32"}, names, where="--layer_precisions")


def test_what_became_of_constraints_on_a_recorded_engine() -> None:
    asked = [
        Asked(layer="/c/Conv", precision="FP16", output="/c/Conv_output_0"),
        Asked(layer="/l/l.0/c1/Conv", precision="FP32", output="/l/l.0/c1/Conv_output_0"),
        Asked(layer="/f/Gemm", precision="FP32", output="y"),
        Asked(layer="/MaxPool", precision="FP16", output="/MaxPool_output_0"),
        Asked(layer="gone", precision="FP16", output="gone_out"),
    ]
    told = find_outcomes(asked, FP16)
    assert [item.obeyed for item in told] == [True, False, False, None, None]  # TF32 is not FP32
    assert is_approved(told[0].got)
    assert told[1].fused_layer == "/l/l.0/c1/Conv + /l/l.0/Relu"
    assert "TF32" in told[2].got
    assert is_approved(told[4].got, 2)


@pytest.mark.parametrize(
    ("inside", "outside", "obeyed"),
    [("FP16", "FP16", True), ("FP32", "FP32", False), ("FP32", "FP16", None), ("", "", None)],
)
def test_one_kernel_for_several_operators_tells_its_edges(inside: str, outside: str, obeyed: bool | None) -> None:
    """As TensorRT 8.6 fused Add and Sub of examples/needs_constraints: FP32 throughout, or FP16 throughout."""
    fused = EngineLayer(
        name="PWN(Add, Sub)", layer_type="PointWiseV2", onnx_nodes=("Add", "Sub"),
        inputs=(EngineTensor(name="turned", dtype=inside),), outputs=(EngineTensor(name="subtracted", dtype=outside),),
    )  # fmt: skip
    for name, output in (("Add", "added"), ("Sub", "subtracted")):
        (told,) = find_outcomes([Asked(layer=name, precision="FP16", output=output)], [fused])
        assert told.obeyed is obeyed
        assert holds_approved(told.got)


def test_an_output_type_of_its_own_is_checked_too() -> None:
    alone = EngineLayer(name="Add", layer_type="ElementWise", onnx_nodes=("Add",),
                        outputs=(EngineTensor(name="added", dtype="FP32"),))  # fmt: skip
    assert find_outcomes([Asked(layer="Add", precision="FP16", output="added")], [alone])[0].obeyed is False
    both = find_outcomes([Asked(layer="Add", precision="FP32", output_type="FP16", output="added")], [alone])[0]
    assert both.obeyed is False


def test_the_builders_own_word_on_constraints() -> None:
    messages = Messages()
    for text in (
        "No implementation of layer PWN(Add, Sub) obeys the requested constraints. I.e. no conforming implementation "
        "was found for requested layer computation precision and output precision. Using fastest implementation "
        "instead.",
        "Layer conv: a non-conforming implementation was chosen than was requested i.e. requested layer computation",
    ):
        messages.take("WARNING", text)
    assert messages.disobeyed == {"PWN(Add, Sub)": "no kernel does it", "conv": "another kernel was faster"}
    fused = EngineLayer(name="PWN(Add, Sub)", layer_type="PointWiseV2", onnx_nodes=("Add", "Sub"))
    asked = [Asked(layer=name, precision="FP16") for name in ("Add", "conv", "relu")]
    told = find_outcomes(asked, [fused], messages.disobeyed)
    assert [item.obeyed for item in told] == [False, False, None]
    assert "no kernel does it" in told[0].got


@pytest.mark.parametrize(
    ("how", "asked", "obeyed"),
    [
        ("none", {"Add": "FP16", "Sub": "FP16"}, [False, False]),
        ("obey", {"Add": "FP16", "Sub": "FP16"}, [True, True]),
        ("mixed_obey", {"Add": "FP16", "Sub": "FP32"}, [True, True]),
    ],
)
def test_recorded_engines_of_needs_constraints(how: str, asked: dict[str, str], obeyed: list[bool]) -> None:
    """TensorRT 8.6 on an H200: without constraints it kept FP32; asked for both, it put the products into FP16 too."""
    layers = read_inspector(DATA / f"needs_constraints_8.6_{how}.json")
    outputs = {"Add": "added", "Sub": "subtracted"}
    wanted = [Asked(layer=name, precision=kind, output=outputs[name]) for name, kind in asked.items()]
    assert [item.obeyed for item in find_outcomes(wanted, layers)] == obeyed
    products = {find_real_precision(layer)[0] for layer in layers if layer.name.startswith("MatMul")}
    assert products == {"none": {"TF32"}, "obey": {"FP16"}, "mixed_obey": {"FP16", "TF32"}}[how]


def test_two_recorded_builds_of_one_fp16_engine_differ() -> None:
    """TensorRT 8.6 on an H200, examples/resnet, without a timing cache between them."""
    first, second = (read_inspector(DATA / f"resnet18_8.6_fp16_{which}.json") for which in ("first", "second"))
    change = compare_engines(first, second)
    assert change.fusion_kept
    assert (len(change.kept), len(change.tactics_changed)) == (25, 11)


def test_recorded_marks_of_fused_outputs_keep_the_fusion() -> None:
    """The second engine, rebuilt for --fused_only before tactics were taken again: other kernels, the same layers."""
    real, marked = (read_inspector(DATA / f"resnet18_8.6_fp16_second{end}.json") for end in ("", "_fused_only"))
    change = compare_engines(real, marked)
    assert change.fusion_kept
    assert change.reformats == (2, 23)
    assert len(change.tactics_changed) == 15
    assert set(split_fused_outputs(real)[0]) <= set(split_fused_outputs(marked)[0])
