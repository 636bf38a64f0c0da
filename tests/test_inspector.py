"""Engine inspector files: the six real ones (see the facts that they show), and the shapes other versions write."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from approval import begins_approved, is_approved

from precision_debug.errors import ModelError
from precision_debug.inspector import (
    EngineLayer,
    EngineTensor,
    compare_engines,
    find_real_precision,
    map_producers,
    parse_inspector,
    read_inspector,
    split_fused_outputs,
    strip_subgraph_suffix,
)

COPY = "Reformatted Input Tensor 0 to conv2d (Output: a_subgraph_1)"
LAST = "save_infer_model/scale_0.tmp_0_subgraph_326"
DATA = Path(__file__).parent / "data" / "inspector"


def engine(name):
    return read_inspector(DATA / f"{name}.json")


def fails(*parts):
    return pytest.raises(ModelError, match="".join(f"(?=.*{re.escape(part)})" for part in parts) + r"[^\n]*\Z")


# reading


@pytest.mark.parametrize(
    ("name", "layers", "nodes"),
    [
        ("paddle26_trt853_resnet18_fp16", 26, 0),
        ("paddle26_trt853_resnet18_fp16_marked", 87, 0),
        ("paddle26_trt853_resnet18_fp32", 26, 0),
        ("trt86_resnet18_fp16", 29, 50),
        ("trt86_resnet18_fp16_marked", 88, 50),
        ("trt86_resnet18_fp32", 29, 50),
    ],
)
def test_real_files(name, layers, nodes):
    read = engine(name)
    assert len(read) == layers == len(json.loads((DATA / f"{name}.json").read_text(), strict=False)) or layers in (
        29,
        88,
    )
    assert sum(len(layer.onnx_nodes) for layer in read) == nodes
    assert not any(layer.nodes_cut for layer in read)


def test_a_real_layer():
    layer = engine("trt86_resnet18_fp16")[1]
    assert layer == EngineLayer(
        name="/c/Conv + /Relu",
        layer_type="CaskConvolution",
        inputs=(
            EngineTensor(
                name="Reformatted Input Tensor 0 to /c/Conv + /Relu",
                shape=(-1, 3, 224, 224),
                format="N/A due to dynamic shapes",
            ),
        ),
        outputs=(EngineTensor(name="/Relu_output_0", shape=(-1, 64, 112, 112), format="N/A due to dynamic shapes"),),
        weights_type="FP16",
        tactic_name=layer.tactic_name,
        onnx_nodes=("/c/Conv", "/Relu"),
        tactic_value="0xc4e457eb6dc4cc67",
    )
    assert layer.tactic_name.startswith("sm90_xmma_fprop_image_first_layer_f16f16_f32_f16_")
    assert find_real_precision(layer)[0] == "FP16"
    assert [one.is_reformat for one in engine("trt86_resnet18_fp16")[:3]] == [True, False, False]


def test_several_files_are_read_in_the_order_of_their_names():
    both = read_inspector(DATA / "trt86_resnet18_fp*.json")
    names = ["trt86_resnet18_fp16", "trt86_resnet18_fp16_marked", "trt86_resnet18_fp32"]
    assert both == tuple(layer for name in names for layer in engine(name))
    assert read_inspector(DATA / "trt86_resnet18_fp32.json", DATA / "trt86*fp32.json") == engine("trt86_resnet18_fp32")


def test_a_file_whose_name_looks_like_a_pattern(tmp_path):
    file = tmp_path / "engine[1].json"
    file.write_text('{"Name": "a", "LayerType": "Reduce", "Outputs": [{"Name": "t"}]}')
    assert [layer.name for layer in read_inspector(file)] == ["a"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('{"Layers": ["conv1", "relu1"]}', ["only the names", "DETAILED"]),
        ('[{"Name": "conv1"}]', ["no layer with its outputs", "DETAILED"]),
        ('{"Layers": [{"LayerType": "x"}]}', ["without a name"]),
        ('{"rows": []}', ["no list of layers"]),
        ("3", ["no list of layers"]),
        ("[]", ["has no layer"]),
        ('{"Layers": []}', ["has no layer"]),
        ('"text"', ["no list of layers"]),
        ("{", ["not engine-inspector JSON"]),
    ],
)
def test_refused(tmp_path, text, parts):
    (tmp_path / "e.json").write_text(text)
    with fails("e.json", *parts):
        read_inspector(tmp_path / "e.json")


def test_no_match_is_one_error(tmp_path):
    with fails("no engine inspector file matches", "engine_info_*.json"):
        read_inspector(tmp_path / "engine_info_*.json")


def test_other_versions_spellings():
    layers = parse_inspector(
        json.dumps(
            {
                "Layers": [
                    {
                        "Name": "matMul1_myl0_0",
                        "LayerType": "gemm",
                        "Inputs": [{"Name": "a", "Dimensions": [4, 8], "Format/Datatype": "Half"}],
                        "Outputs": [
                            {"Name": "b", "Dimensions": [4, 8], "Format/Datatype": "Row major linear FP16 format"}
                        ],
                        "Metadata": "[ONNX Layer: /a[0]]\x1f[ONNX Layer: /b][ONNX Layer: /c]\x1e[ONNX Layer: /cut",
                    },
                    {
                        "Name": "conv",
                        "LayerType": "CaskConvolution",
                        "Inputs": [{"Name": "b", "Datatype": "BFloat16", "Format": "Row major linear"}],
                        "Outputs": [{"Name": "c", "Datatype": "Float", "Format": "Row major linear"}],
                    },
                ],
                "Bindings": ["a", "c"],
            }
        )
    )
    gemm, conv = layers
    assert gemm.inputs[0] == EngineTensor(name="a", shape=(4, 8), dtype="FP16")
    assert gemm.outputs[0] == EngineTensor(name="b", shape=(4, 8), dtype="FP16", format="Row major linear FP16 format")
    assert gemm.onnx_nodes == ("/a[0]", "/b", "/c")
    assert gemm.nodes_cut
    assert conv.inputs[0] == EngineTensor(name="b", dtype="BF16", format="Row major linear")
    assert conv.outputs[0].dtype == "FP32"


def test_a_quantising_layer_is_no_copy():
    (layer,) = parse_inspector(
        '[{"Name": "/DQ_y", "LayerType": "Reformat", "Origin": "QDQ", "Outputs": [{"Name": "y"}]}]'
    )
    assert not layer.is_reformat


# real precision


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("paddle26_trt853_resnet18_fp16", {"FP16": 20, "FP32": 2, "": 2}),
        ("paddle26_trt853_resnet18_fp16_marked", {"FP16": 17, "FP32": 7, "": 29}),
        ("paddle26_trt853_resnet18_fp32", {"TF32": 19, "FP32": 4, "": 1}),
        ("trt86_resnet18_fp16", {"FP16": 20, "TF32": 1, "": 4}),
        ("trt86_resnet18_fp16_marked", {"FP16": 16, "FP32": 5, "TF32": 2, "": 29}),
        ("trt86_resnet18_fp32", {"TF32": 21, "FP32": 1, "": 3}),
    ],
)
def test_real_precision_of_the_real_engines(name, counts):
    layers = [layer for layer in engine(name) if not layer.is_reformat]
    assert Counter(find_real_precision(layer)[0] for layer in layers) == counts
    for layer in layers:
        precision, source = find_real_precision(layer)
        if layer.layer_type in ("CaskConvolution", "CaskGemmConvolution"):
            assert precision, layer.tactic_name
            assert source == "tactic name"
            assert {"FP16": "FP16", "FP32": "FP32", "TF32": "FP32"}[precision] == layer.weights_type
        assert bool(precision) == bool(source)


def layer_of(tactic="", weights="", inputs=(), outputs=(), kind="CaskConvolution"):
    return EngineLayer(
        name="l",
        layer_type=kind,
        tactic_name=tactic,
        weights_type=weights,
        inputs=tuple(EngineTensor(name=f"i{i}", dtype=dtype) for i, dtype in enumerate(inputs)),
        outputs=tuple(EngineTensor(name=f"o{i}", dtype=dtype) for i, dtype in enumerate(outputs)),
    )


@pytest.mark.parametrize(
    ("tactic", "precision"),
    [
        ("sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_tilesize64x96x64", "INT8"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", "BF16"),
        ("sm89_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize128x128x64", "FP8"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x64", "TF32"),
        ("sm50_xmma_cublas_smallN_NN_f32f32_f32_f32_nn", "FP32"),
        ("volta_h884cudnn_256x128_ldg8_relu_exp_small_nhwc_tn_v1", "FP16"),
        ("turing_h1688cudnn_256x128_ldg8_relu_exp_medium_nhwc_tn_v1", "FP16"),
        ("ampere_h16816gemm_256x128_ldg8_nn_v1", "FP16"),
        ("ampere_scudnn_128x64_relu_small_nn_v1", "FP32"),
        ("sm50_xmma_pooling_tiled_FP32NCHW_kMAX_tP4", "FP32"),
        ("sm50_xmma_pooling_coalescedC_NHWC_kMAX_3_False", ""),
        ("__myl_MulAddResMul_0x1f32f32ab", ""),
        ("", ""),
    ],
)
def test_precision_by_tactic_name(tactic, precision):
    assert find_real_precision(layer_of(tactic)) == (precision, "tactic name" if precision else "")


def test_precision_by_what_else_is_known():
    assert find_real_precision(layer_of("x_f16f16_f16f16_f16_y", "FP32")) == ("FP16", "tactic name")
    assert find_real_precision(layer_of("unknown", "INT8", outputs=["FP16"])) == ("INT8", "weights type")
    assert find_real_precision(layer_of(inputs=["FP8", "FP8"], outputs=["FP16"], kind="gemm")) == ("FP8", "input type")
    assert find_real_precision(layer_of(inputs=["INT8"], outputs=["FP16"], kind="Reduce")) == ("FP16", "output type")
    assert find_real_precision(layer_of(outputs=["INT32", "BF16"])) == ("BF16", "output type")
    assert find_real_precision(layer_of(outputs=["INT32"])) == ("", "")
    assert find_real_precision(layer_of(weights="INT4", outputs=[""])) == ("", "")


# outputs


@pytest.mark.parametrize(
    ("name", "kept", "first", "last"),
    [
        ("paddle26_trt853_resnet18_fp16", 23, "relu_0.tmp_0_subgraph_17", LAST),
        ("paddle26_trt853_resnet18_fp32", 23, "relu_0.tmp_0_subgraph_17", LAST),
        ("paddle26_trt853_resnet18_fp16_marked", 50, "batch_norm_0.tmp_2_subgraph_15", LAST),
        ("trt86_resnet18_fp16", 23, "/Relu_output_0", "y"),
        ("trt86_resnet18_fp32", 23, "/Relu_output_0", "y"),
        ("trt86_resnet18_fp16_marked", 48, "/c/Conv_output_0", "y"),
    ],
)  # fmt: skip
def test_fused_outputs_of_the_real_engines(name, kept, first, last):
    layers = engine(name)
    names, left_out = split_fused_outputs(layers)
    assert (len(names), names[0], names[-1]) == (kept, first, last)
    model_names = r"[\w/.]+_subgraph_\d+" if "paddle" in name else r"/[\w/.]+_output_0|y"
    assert all(re.fullmatch(model_names, one) for one in names)
    assert not any(re.fullmatch(model_names, one) for one in left_out)
    written = {tensor.name for layer in layers for tensor in layer.outputs}
    assert {*names, *left_out} == written
    assert not {*names} & {*left_out}
    order = {tensor.name: place for place, layer in enumerate(layers) for tensor in layer.outputs}
    assert sorted(names, key=order.__getitem__) == [*names]


def test_constants_and_made_up_names_are_left_out():
    _, left_out = split_fused_outputs(engine("trt86_resnet18_fp16_marked"))
    assert [one for one in left_out if not one.startswith("Reformatted")] == [
        "reshape_before_/f/Gemm_out_tensor",
        "/f/Gemm_out_tensor",
        "(Unnamed Layer* 48) [Matrix Multiply]_output",
        "(Unnamed Layer* 50) [Shuffle]_output",
    ]
    layers = (
        EngineLayer(name="c", layer_type="Constant", outputs=(EngineTensor(name="weight"),)),
        EngineLayer(name="m", layer_type="kgen", outputs=(EngineTensor(name="__mye12"), EngineTensor(name="real"))),
        EngineLayer(name="conv", layer_type="Conv", outputs=(EngineTensor(name="conv_output"),)),
        EngineLayer(name="one", layer_type="kgen", outputs=(EngineTensor(name="concat"),)),
        EngineLayer(name="two", layer_type="kgen", outputs=(EngineTensor(name="concat"),)),
    )
    assert split_fused_outputs(layers) == (("real", "conv_output", "concat"), ("weight", "__mye12"))


def test_a_copied_tensor_belongs_to_the_layer_that_computed_it():
    made_by = map_producers(engine("trt86_resnet18_fp16_marked"))
    layer = made_by["/c/Conv_output_0"]
    assert (layer.name, find_real_precision(layer)[0]) == ("/c/Conv", "FP16")
    assert made_by["(Unnamed Layer* 50) [Shuffle]_output"].layer_type == "Constant"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("relu_0.tmp_0_subgraph_17", ("relu_0.tmp_0", 17)),
        ("a_subgraph_1_subgraph_2", ("a_subgraph_1", 2)),
        ("relu_0.tmp_0", ("relu_0.tmp_0", None)),
        ("_subgraph_3", ("_subgraph_3", None)),
        ("a_subgraph_x", ("a_subgraph_x", None)),
        (COPY, (COPY, None)),
    ],
)  # fmt: skip
def test_subgraph_suffix(name, expected):
    assert strip_subgraph_suffix(name) == expected


# two engines


def test_marking_everything_breaks_the_fusion():
    diff = compare_engines(engine("paddle26_trt853_resnet18_fp16"), engine("paddle26_trt853_resnet18_fp16_marked"))
    assert not diff.fusion_kept
    assert diff.layers == (26, 87)
    assert diff.reformats == (2, 34)
    assert (len(diff.kept), len(diff.lost), len(diff.added)) == (7, 17, 46)
    assert is_approved(diff.lost[0])
    assert begins_approved(diff.summary, 2)
    assert "\n" not in diff.summary
    assert compare_engines(engine("trt86_resnet18_fp16"), engine("trt86_resnet18_fp16_marked")).layers == (29, 88)


def test_fp32_and_fp16_fuse_alike_with_other_tactics():
    diff = compare_engines(engine("trt86_resnet18_fp32"), engine("trt86_resnet18_fp16"))
    assert diff.fusion_kept
    assert (len(diff.kept), len(diff.tactics_changed)) == (25, 21)
    name, old, new = diff.tactics_changed[0]
    assert name == "/c/Conv + /Relu"
    assert "tf32" in old
    assert "f16f16" in new
    assert is_approved(diff.summary)


def test_the_same_engine_twice():
    layers = engine("trt86_resnet18_fp16")
    diff = compare_engines(layers, layers)
    assert diff.fusion_kept
    assert diff.tactics_changed == diff.lost == diff.added == ()


def test_names_that_come_twice_are_counted():
    one, two = layer_of("t1"), layer_of("t2")
    diff = compare_engines([one, one], [one, two, one])
    assert (diff.kept, diff.lost, diff.added) == (("l", "l"), (), ("l",))
    assert diff.tactics_changed == (("l", "t1", "t2"),)
    assert compare_engines([one, one], [one]).lost == ("l",)
