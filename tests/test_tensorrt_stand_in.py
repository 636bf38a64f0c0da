"""The contract suite over the backend's own steps, on a stand-in for TensorRT (see tensorrt_fake)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorrt_models as models
from precision_debug_tensorrt import TensorRTBackend, opening
from precision_debug_tensorrt.engine import device_memory, timing_cache, versions
from precision_debug_tensorrt.engine.device_memory import Device
from tensorrt_fake import HostGpu, fake_tensorrt

from precision_debug.records import ModelFiles
from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

pytest.importorskip("onnxruntime", reason="the stand-in computes with it")


@pytest.fixture(params=["8.6.1 trt_fp32", "8.6.1 trt_fp16", "10.3.0 trt_fp16", "10.16.1 trt_fp16"])
def subject(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    version, mode = request.param.split()
    api = versions.Api(fake_tensorrt(version))
    memory = Device(HostGpu(limit=10**9, free=10**9))
    for place in (versions, opening):
        monkeypatch.setattr(place, "load_api", lambda *_: api)
    for place in (device_memory, opening):
        monkeypatch.setattr(place, "find_device", lambda: memory)
    monkeypatch.setattr(timing_cache, "_of_this_process", [])
    path = tmp_path / "residual.onnx"
    onnx.save(models.residual(), path)
    feeds = {"image": np.random.default_rng(5).uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32)}
    return Subject(
        backend=TensorRTBackend(), mode=mode, model=ModelFiles(model_file=str(path)), feeds=[feeds],
        work_dir=str(tmp_path), import_name="precision_debug_tensorrt",
    )  # fmt: skip


def test_the_backend_is_one_and_its_modes_are_told_apart(subject: Subject) -> None:
    """See test_tensorrt_contract."""
    assert subject.backend.name == "tensorrt"
