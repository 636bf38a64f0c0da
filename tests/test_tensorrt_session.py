"""The backend's session from model to rows, on a stand-in for TensorRT (see tensorrt_fake)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tensorrt_models as models
from precision_debug_tensorrt import TensorRTBackend, device, opening, timing, versions
from precision_debug_tensorrt.device import CudaPython
from tensorrt_fake import HostCuda, fake_tensorrt

from precision_debug.records import ModelFiles, SessionSpec

pytest.importorskip("onnxruntime", reason="the stand-in computes with it")

IMAGE = {"image": np.random.default_rng(3).uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32)}
NAMES = ["image", *(node.output[0] for node in models.residual().graph.node)]

Install = Callable[..., Any]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Put a stand-in where TensorRT is looked for; returns its module."""

    def put(memory: Any = None, **settings: Any) -> Any:
        module = fake_tensorrt(**settings)
        api = versions.Api(module)
        memory = memory or CudaPython(HostCuda(limit=10**9, free=10**9))
        for place in (versions, opening):
            monkeypatch.setattr(place, "load_api", lambda: api)
        for place in (device, opening):
            monkeypatch.setattr(place, "find_device", lambda: memory)
        monkeypatch.setattr(timing, "_of_this_process", [])
        onnx.save(models.residual(), tmp_path / "m.onnx")
        return module

    return put


def opened(mode: str = "trt_fp16", **options: Any) -> Any:
    spec = SessionSpec(model=ModelFiles(model_file="m.onnx"), mode=mode, options=options)
    return TensorRTBackend().open(spec, [IMAGE])


def shown(session: Any, names: Any = None) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    session.run(IMAGE, lambda kind, name, value: seen.update({name: value}), names)
    return seen


def test_every_tensor_in_order_and_the_outputs_of_the_real_engine(install: Install) -> None:
    trt = install()
    session = opened()
    assert list(shown(session)) == NAMES
    assert trt.builds[0] == ["probabilities"]
    assert set(trt.builds[1]) == set(NAMES[1:])
    tensors = {meta.name: meta for meta in session.tensors}
    assert tensors["probabilities"].extra["Seen In"] == "the real engine"
    inside = tensors["conv1_out"].extra
    assert inside["Fused Layer"] == "conv1 + conv1_bn + relu1"
    assert inside["Fused Layer There"] == "conv1"
    assert "Fused Layer There" not in tensors["logits"].extra
    assert any("come from another fusion than the real engine's" in note for note in session.notes)


def test_the_budget_bounds_what_one_engine_shows(install: Install) -> None:
    """Outputs of one build, the model's own aside, never add up to more than the budget, unless one is larger."""
    trt = install()
    sizes = {name: 4 * value.size for name, value in shown(opened()).items()}
    largest = max(sizes.values())
    for budget in (largest, 3 * largest, sum(sizes.values())):
        trt.builds.clear()
        seen = shown(opened(memory_budget=budget))
        marked = [[name for name in names if name != "probabilities"] for names in trt.builds[1:]]
        assert all(sum(sizes[name] for name in names) <= budget for names in marked)
        assert [name for names in marked for name in names] == NAMES[1:-1]
        assert list(seen) == NAMES
        assert (len(marked) == 1) == (budget >= sum(sizes[name] for name in NAMES[1:-1]))
    trt.builds.clear()
    shown(opened(memory_budget=1))
    assert all(len(names) == 2 for names in trt.builds[1:])


def test_without_a_budget_half_of_the_free_memory_is_one(install: Install) -> None:
    trt = install(memory=CudaPython(HostCuda(limit=10**9, free=200_000)))
    shown(opened())
    assert len(trt.builds) > 2


def test_memory_is_given_back(install: Install) -> None:
    cuda = HostCuda(limit=10**9, free=10**9)
    install(memory=CudaPython(cuda))
    session = opened(memory_budget=300_000)
    most = [0]

    def hook(kind: str, name: str, value: Any, /) -> None:
        most[0] = max(most[0], sum(len(buffer) for buffer in cuda.held.values()))

    session.run(IMAGE, hook)
    session.close()
    assert not cuda.held
    inputs, outputs = IMAGE["image"].nbytes, 2 * 10 * 4
    assert most[0] <= 300_000 + inputs + outputs


def test_what_cannot_be_built_at_once_is_halved(install: Install) -> None:
    trt = install(too_large=300_000)
    session = opened()
    assert sorted(shown(session)) == sorted(NAMES)
    assert len(trt.builds) > 3


def test_a_refused_tensor_is_left_out_and_said(install: Install) -> None:
    install(refuse=["relu2_out"])
    session = opened()
    seen = shown(session)
    assert set(NAMES) - set(seen) == {"relu2_out"}
    refused = next(meta for meta in session.tensors if meta.name == "relu2_out")
    assert "TensorRT built no engine with it as an output" in refused.unseen


def test_fused_only_marks_the_fused_layers_outputs(install: Install) -> None:
    trt = install()
    session = opened(fused_only=True)
    seen = shown(session)
    assert "conv1_out" not in seen
    assert "relu1_out" in seen
    assert all(batch.diff.fusion_kept for batch in session.marked_batches)
    assert "conv1_out" not in trt.builds[-1]
    assert not any("another fusion" in note for note in session.notes)


@pytest.mark.parametrize("names", [None, {"relu1_out", "probabilities"}])
def test_the_listener_of_later_versions(install: Install, names: Any) -> None:
    trt = install(version="10.3.0")
    session = opened("trt_fp32")
    seen = shown(session, names)
    assert list(seen) == [name for name in NAMES if names is None or name in names]
    assert all(outputs == ["probabilities"] for outputs in trt.builds)
    assert any("Seen by TensorRT's debug listener (marked tensors)" in note for note in session.notes)


def test_the_same_run_without_a_hook_is_one_build(install: Install) -> None:
    trt = install()
    session = opened()
    first = session.run(IMAGE)["probabilities"]
    assert len(trt.builds) == 1
    outputs: dict[str, Any] = session.run(IMAGE, lambda *_: None)
    np.testing.assert_array_equal(outputs["probabilities"], first)
