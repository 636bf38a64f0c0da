"""The TensorRT backend on the real thing: needs TensorRT and an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tensorrt_models as models
from approval import holds_approved
from precision_debug_tensorrt import TensorRTBackend

from precision_debug.errors import BackendUnavailable, InputError, MarkError, ModelError, UsageError
from precision_debug.inspector import find_real_precision
from precision_debug.records import ModelFiles, SessionSpec, TensorMeta

BACKEND = TensorRTBackend()
NEEDS = BACKEND.availability("trt_fp16").needs
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(NEEDS), reason=f"TensorRT cannot run here: {NEEDS}")]
# without cuBLAS and cuDNN, which a TensorRT may come without; level 1 builds several times faster
SOURCES = {"tactic_sources": "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS", "optimization_level": 1}
RNG = np.random.default_rng(3)
IMAGE = {"image": RNG.uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32)}


def reference(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Every tensor by ONNX Runtime without fusion."""
    ort = pytest.importorskip("onnxruntime", reason="the reference comes from onnxruntime")
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    have = {item.name for item in shown.graph.output}
    names = [name for node in shown.graph.node for name in node.output if name and name not in have]
    shown.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([item.name for item in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


class Seen:
    """A run: what the hook saw, in order, and what the session said."""

    def __init__(
        self, proto: onnx.ModelProto, mode: str, feeds: Mapping[str, Any], folder: Path, **options: Any
    ) -> None:
        path = folder / "model.onnx"
        onnx.save(proto, path)
        spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options={**SOURCES, **options})
        session = BACKEND.open(spec, [feeds])
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        try:
            self.outputs = session.run(feeds, self._hook)
            self.tensors: dict[str, TensorMeta] = {meta.name: meta for meta in session.tensors}
            self.notes = " ".join(session.notes)
            self.layers = tuple(session.layers)  # type: ignore[attr-defined]
            self.rebuilt: list[Any] = [note.args["diff"] for note in session.notes if "diff" in note.args]
        finally:
            session.close()

    def _hook(self, op_type: str, name: str, tensor: Any, /) -> None:
        assert name not in self.values
        self.values[name] = np.array(tensor)

    def error(self, wanted: Mapping[str, Any], name: str) -> float:
        """Largest difference over the tensor's largest value."""
        assert self.values[name].shape == wanted[name].shape, name
        return float(np.abs(self.values[name] - wanted[name]).max() / max(np.abs(wanted[name]).max(), 1e-6))


def test_true_fp32_is_far_closer_than_tf32(tmp_path: Path) -> None:
    proto = models.residual()
    wanted = reference(proto, IMAGE)
    # at level 1 TensorRT may find no TF32 kernel worth timing; of a rebuilt engine with marks TF32 cannot be asked
    exact, default = (Seen(proto, mode, IMAGE, tmp_path, optimization_level=3) for mode in ("trt_fp32", "trt_tf32"))
    assert max(exact.error(wanted, name) for name in wanted) < 1e-5
    assert not any(find_real_precision(layer)[0] == "TF32" for layer in exact.layers)
    assert any(find_real_precision(layer)[0] == "TF32" for layer in default.layers)
    name = "probabilities"
    assert {exact.tensors[name].extra["Seen In"], default.tensors[name].extra["Seen In"]} == {"the real engine"}
    assert default.error(wanted, name) > 10 * exact.error(wanted, name)


def test_every_tensor_is_seen_once_in_execution_order(tmp_path: Path) -> None:
    proto = models.residual()
    # left to itself TensorRT finds TF32 faster for so small a model
    options = {"layer_precisions": {"conv*": "float16"}, "precision_constraints": "obey"}
    seen = Seen(proto, "trt_fp16", IMAGE, tmp_path, **options)
    names = ["image", *(node.output[0] for node in proto.graph.node)]
    assert list(seen.values) == [name for name in names if not seen.tensors[name].unseen]
    wanted = reference(proto, IMAGE)
    assert all(seen.error(wanted, name) < 0.02 for name in seen.values if name != "image")
    assert "FP16" in {seen.tensors[name].extra.get("Real Precision") for name in names}


def test_a_rebuilt_engine_computes_in_the_real_ones_precision(tmp_path: Path) -> None:
    options = {"layer_precisions": {"*": "float16"}, "precision_constraints": "prefer", "observe": "marks"}
    forced = Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, **options)
    told = [(meta.extra.get("Real Precision"), meta.extra["Precision There"])
            for meta in forced.tensors.values() if "Precision There" in meta.extra]  # fmt: skip
    assert told.count(("FP16", "FP16")) > 0.8 * len(told), told  # a preference; else the row says so
    left = Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, observe="marks", optimization_level=3)
    told = [(meta.extra.get("Real Precision"), meta.extra["Precision There"])
            for meta in left.tensors.values() if "Precision There" in meta.extra]  # fmt: skip
    assert sum(each in {("FP16", "FP32"), ("FP32", "FP16"), ("FP16", "TF32")} for each in told) < 0.2 * len(told), told


def test_marking_everything_changes_the_engine_and_says_so(tmp_path: Path) -> None:
    seen = Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, observe="marks")
    assert "fusion changed" in seen.notes
    assert seen.tensors["probabilities"].extra["Seen In"] == "the real engine"


def test_fused_only_keeps_layers_and_tactics(tmp_path: Path) -> None:
    seen = Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, fused_only=True)
    assert seen.rebuilt
    for diff in seen.rebuilt:
        assert (diff.code, diff.args["changed"]) == ("fusion_kept", 0), str(diff)
    assert "conv1_out" not in seen.tensors
    assert "relu1_out" in seen.values


def test_a_memory_budget_makes_batches(tmp_path: Path) -> None:
    seen = Seen(models.residual(), "trt_fp32", IMAGE, tmp_path, memory_budget=200_000, observe="marks")
    assert len(seen.rebuilt) > 1
    wanted = reference(models.residual(), IMAGE)
    assert max(seen.error(wanted, name) for name in seen.values if name != "image") < 1e-5


def test_int8_is_calibrated_and_qdq_is_used(tmp_path: Path) -> None:
    options = {"layer_precisions": {"conv?": "int8"}, "precision_constraints": "prefer"}
    seen = Seen(models.residual(), "trt_int8", IMAGE, tmp_path, **options)
    assert "calibrated on 1 sample set" in seen.notes
    assert any(find_real_precision(layer)[0] == "INT8" for layer in seen.layers)
    feeds = {"image": RNG.uniform(-1, 1, (2, 3, 16, 16)).astype(np.float32)}
    quantised = Seen(models.quantised(), "trt_int8", feeds, tmp_path)
    assert "calibrated" not in quantised.notes
    assert quantised.error(reference(models.quantised(), feeds), "y") < 0.05


def test_dynamic_shapes_and_what_lies_outside(tmp_path: Path) -> None:
    shapes = {"min_shapes": {"image": (1, 3, 32, 32)}, "max_shapes": {"image": (4, 3, 32, 32)}}
    seen = Seen(models.residual("N"), "trt_fp32", IMAGE, tmp_path, **shapes)
    assert seen.outputs["probabilities"].shape == (2, 10)
    large = {"image": np.zeros((5, 3, 32, 32), np.float32)}
    with pytest.raises(InputError, match=r"outside \[1, 3, 32, 32\] to \[4, 3, 32, 32\]"):
        Seen(models.residual("N"), "trt_fp32", large, tmp_path, **shapes)


@pytest.mark.parametrize("make", [models.loop, models.branch])
def test_bodies_of_loops_and_branches_are_left_out_and_said(make: Any, tmp_path: Path) -> None:
    feeds: dict[str, Any] = {"x": RNG.uniform(0.1, 1, (4, 8)).astype(np.float32)}
    if make is models.branch:
        feeds["yes"] = np.array(True)
    seen = Seen(make(), "trt_fp32", feeds, tmp_path)
    inside = [meta for meta in seen.tensors.values() if "loop or branch" in meta.unseen]
    assert inside
    wanted = reference(make(), feeds)
    assert seen.error(wanted, "y") < 1e-5
    assert "before_out" in seen.values


def test_a_saved_engine_runs_against_its_model(tmp_path: Path) -> None:
    path = tmp_path / "saved.engine"
    built = Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, save_engine=str(path))
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="trt_engine")
    assert [item.name for item in BACKEND.inputs(spec)] == ["image"]
    session = BACKEND.open(spec, [IMAGE])
    shown: list[str] = []
    outputs = session.run(IMAGE, lambda kind, name, value: shown.append(name))
    np.testing.assert_array_equal(outputs["probabilities"], built.outputs["probabilities"])
    assert shown == ["image", "probabilities"]
    assert any("shows its outputs only" in meta.unseen for meta in session.tensors)
    session.close()


def test_a_damaged_engine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.engine"
    path.write_bytes(b"no engine at all" * 10)
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="trt_engine")
    with pytest.raises((ModelError, BackendUnavailable), match=r"broken\.engine"):
        BACKEND.inputs(spec)


def test_saved_tactics_are_taken_again(tmp_path: Path) -> None:
    from precision_debug_tensorrt.engine.versions import load_api

    from precision_debug.inspector import compare_engines

    if not load_api().replays_tactics:
        pytest.skip("this TensorRT lets no program choose tactics")
    file = str(tmp_path / "tactics.json")
    first = Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, save_tactics=file)
    second = Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, load_tactics=file)
    diff = compare_engines(first.layers, second.layers)
    assert diff.fusion_kept
    assert not diff.tactics_changed
    np.testing.assert_array_equal(first.outputs["probabilities"], second.outputs["probabilities"])


def test_a_timing_cache_makes_a_build_repeatable(tmp_path: Path) -> None:
    from precision_debug.inspector import compare_engines

    cache = str(tmp_path / "timing.cache")
    first, second = (Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, timing_cache=cache) for _ in range(2))
    diff = compare_engines(first.layers, second.layers)
    assert diff.fusion_kept
    assert not diff.tactics_changed
    np.testing.assert_array_equal(first.outputs["probabilities"], second.outputs["probabilities"])
    assert holds_approved(second.notes)


def test_constraints_are_told_layer_by_layer(tmp_path: Path) -> None:
    seen = Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, layer_precisions={"fc": "float32", "conv2": "float32"},
                precision_constraints="obey", tf32=False)  # fmt: skip
    assert seen.tensors["conv2_out"].extra["Asked Precision"] == "FP32"
    assert seen.tensors["conv2_out"].extra["Obeyed"] == "yes", seen.notes
    assert holds_approved(seen.notes)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"layer_precisions": {"conv9": "float32"}}, MarkError, "no layer 'conv9'"),
        ({"layer_precisions": {"fc": "int8"}}, UsageError, "trt_fp16 does not let TensorRT use it"),
        ({"tactic_sources": "CUDNNN"}, UsageError, "no tactic source 'CUDNNN'"),
        ({"plugins": ["./no.so"]}, ModelError, "plugin library cannot be loaded"),
    ],
)
def test_wrong_options_end_before_the_build(options: dict[str, Any], error: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=said):
        Seen(models.residual(), "trt_fp16", IMAGE, tmp_path, **options)


def test_an_unknown_operator_is_named_with_its_node(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"node 'sparkle' \(com\.example\.Sparkle\).*--plugins"):
        Seen(models.custom_operator(), "trt_fp16", {"x": np.zeros((4, 8), np.float32)}, tmp_path)
