"""Myelin regions, as TensorRT 8.6 lists them: what is known, and what must not be claimed."""

from __future__ import annotations

import logging
import types
from pathlib import Path

import pytest
import tensorrt_models as models
from approval import holds_approved, is_approved
from precision_debug_tensorrt.engine.constraints import Asked, find_outcomes
from precision_debug_tensorrt.engine.messages import Messages, make_logger, read_progress
from precision_debug_tensorrt.engine.session_facts import region_notes
from precision_debug_tensorrt.naming import LayerIndex, columns, onnx_tensors, operators

from precision_debug.inspector import EngineLayer, compare_engines, find_real_precision, is_opaque, read_inspector

DATA = Path(__file__).parent / "data" / "tensorrt"
FP16 = read_inspector(DATA / "encoder_8.6_fp16.json")
PROTO = models.encoder(layers=1)
TENSORS = onnx_tensors(PROTO.graph, dict.fromkeys([out for node in PROTO.graph.node for out in node.output], ""), {})
READS = {meta.name: meta.inputs for meta in TENSORS}


def test_a_region_does_not_tell_its_precision() -> None:
    """The FP16 engine of the encoder reads and writes FP32, as the TF32 one does: both files were equal."""
    (region,) = FP16
    assert is_opaque(region)
    precision, read_from = find_real_precision(region)
    assert precision == ""
    assert read_from.endswith("reads FP32, writes FP32")
    assert columns(region)["Real Precision"] == "not reported"
    assert "Myelin region, reads FP32" in columns(region)["Precision Read From"]


def test_kernels_that_myelin_names_are_told() -> None:
    named = EngineLayer(name="__myl_Cast_myl0_0", layer_type="kgen", tactic_name="__myl_Cast_0xf16f16_f16f16_f16")
    assert not is_opaque(named)
    assert not is_opaque(EngineLayer(name="x", layer_type="Myelin", tactic_name="sm80_xmma_gemm_f16f16_f16f16_f16"))


def test_operators_inside_a_region_are_found() -> None:
    """Its name has the first and the last one only."""
    plain, index = LayerIndex(FP16), LayerIndex(FP16, READS)
    softmax = next(node for node in PROTO.graph.node if node.op_type == "Softmax")
    assert plain.find(softmax.output[0], softmax.name) is None
    assert index.find(softmax.output[0], softmax.name) is FP16[0]
    assert all(index.find(node.output[0], node.name) is FP16[0] for node in PROTO.graph.node)
    assert index.find("embeddings", "") is None


def test_a_region_ends_at_its_inputs_also_behind_a_copy() -> None:
    layers = read_inspector(DATA / "div_zero_8.6_fp16.json")
    region = next(layer for layer in layers if is_opaque(layer))
    graph = {"product": ("zero", "divided"), "clipped": ("divided",), "is_number": ("product",),
             "cleaned": ("is_number", "product"), "y": ("cleaned", "clipped"), "divided": ("more", "zero"),
             "zero": ("below",), "below": ("x",), "more": ("x",)}  # fmt: skip
    index = LayerIndex(layers, graph)
    assert index.find("is_number", "equal") is region
    assert index.find("cleaned", "where") is region
    assert index.find("more", "more") is not region
    marked = read_inspector(DATA / "encoder_8.6_fp16_marked.json")
    assert marked[0].is_reformat  # the region reads FP16: a copy stands before it
    assert LayerIndex(marked, READS).find("embeddings", "") is None


def test_a_region_with_other_outputs_is_another_one() -> None:
    change = compare_engines(FP16, read_inspector(DATA / "encoder_8.6_fp16_marked.json"))
    assert not change.fusion_kept
    assert change.lost == change.added == (FP16[0].name,)
    assert compare_engines(FP16, FP16).fusion_kept


def test_the_types_at_a_regions_edges_stand_for_its_tactic() -> None:
    half, full = (read_inspector(DATA / f"encoder_8.6_{mode}_marked.json") for mode in ("fp16", "tf32"))
    change = compare_engines(half, full)
    assert change.fusion_kept
    assert change.tactics_changed == (
        (FP16[0].name, "0x0000000000000000 reads FP16, writes FP32", "0x0000000000000000 reads FP32, writes FP32"),
    )


def test_constraints_inside_a_region_are_not_judged() -> None:
    softmax = next(node for node in PROTO.graph.node if node.op_type == "Softmax")
    asked = Asked(layer=softmax.name, precision="FP16", output=softmax.output[0])
    (told,) = find_outcomes([asked], FP16, reads=READS)
    assert told.obeyed is None
    assert is_approved(told.got)
    (by_builder,) = find_outcomes([asked], FP16, {FP16[0].name: "no kernel does it"}, READS)
    assert by_builder.obeyed is False


def test_the_builders_times_of_a_region() -> None:
    messages = Messages()
    name = FP16[0].name
    said = [
        "*************** Autotuning format combination: Float(2048,64,1) -> Float(2048,64,1) ***************",
        f"--------------- Timing Runner: {name} (Myelin[0x80000023])",
        "Tactic: 0x0000000000000000 Time: 0.0471",
        f"{name} (Myelin[0x80000023]) profiling completed in 0.3 seconds. Fastest Tactic: 0x00 Time: 0.0469",
        "*************** Autotuning format combination: Half(2048,64,1) -> Float(2048,64,1) ***************",
        f"--------------- Timing Runner: {name} (Myelin[0x80000023])",
        "Tactic: 0x0000000000000000 Time: 0.0523",
        "--------------- Timing Runner: PWN(relu) (PointWiseV2[0x80000028])",
        "Tactic: 0x0000000000000001 Time: 0.001",
    ]
    for line in said:
        messages.take("VERBOSE", line)
    assert messages.regions.found == {name: {"reads FP32, writes FP32": 0.0469, "reads FP16, writes FP32": 0.0523}}
    notes = " ".join(region_notes(FP16, TENSORS, messages.regions.found, 1000, PROTO))
    assert f"a Myelin region of {len(PROTO.graph.node)} operators" in notes
    assert holds_approved(notes)
    assert region_notes(read_inspector(DATA / "residual_8.6_fp16.json"), (), {}, 0, None) == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("PWN(Sub_largest, PWN(PWN(Add_largest, Add), Sub))", ("Sub_largest", "Add_largest", "Add", "Sub")),
        ("PWN(relu)", ()),
        ("conv1", ()),
    ],
)
def test_operators_of_a_layer_without_metadata(name: str, wanted: tuple[str, ...]) -> None:
    assert operators(EngineLayer(name=name, layer_type="PointWiseV2")) == wanted


def test_which_layer_is_timed_is_told_now_and_then_and_understood(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "precision_debug.tensorrt")
    trt = types.SimpleNamespace(ILogger=object)
    logger = make_logger(trt, Messages())
    for name in ("conv1", "conv2"):
        logger.log("Severity.VERBOSE", f"--------------- Timing Runner: {name} (CaskConvolution[0x80000009])")
    lines = [one.getMessage() for one in caplog.records]
    assert len(lines) == 1, "a build times thousands of kernels"
    assert read_progress(lines[0]) == "timing kernels for conv1"
    assert read_progress("[TensorRT] WARNING: something else") is None
    assert read_progress("Timing Runner: conv1 (x)") is None, "somebody else's line"
