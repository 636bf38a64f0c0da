"""The ONNX Runtime backend passes the contract in every mode that runs on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from backend_contract import *  # noqa: F403
from backend_contract import Subject
from precision_debug_onnxruntime import OnnxRuntimeBackend

from precision_debug.records import ModelFiles

MODES = [
    "ort_fp32", "ort_opt", "ort_fp16", "ort_int8", "ort_int8_dynamic", "ort_fp16_sim", "ort_bf16_sim", "onnx_ref",
]  # fmt: skip


def _feeds(name: str) -> dict[str, Any]:
    random = np.random.default_rng(1)
    if name == "convnet":
        return {"x": random.standard_normal((2, 3, 16, 16)).astype(np.float32)}
    return {"x": random.standard_normal((3, 8)).astype(np.float32)}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["convnet", "mlp"])
def subject(request: pytest.FixtureRequest, mode: str, tmp_path: Path) -> Subject:
    path = tmp_path / "model.onnx"
    onnx.save(getattr(onnx_models, request.param)(), path)
    return Subject(
        backend=OnnxRuntimeBackend(),
        mode=mode,
        model=ModelFiles(model_file=str(path)),
        feeds=[_feeds(request.param)],
        work_dir=str(tmp_path),
        import_name="precision_debug_onnxruntime",
    )
