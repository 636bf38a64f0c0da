"""The suite that every backend passes, for OpenVINO: plain graphs, branches, loops, each precision of this CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_models
import pytest

from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

pytest.importorskip("openvino", reason="openvino is not installed")

from precision_debug_openvino import OpenVinoBackend

from precision_debug.records import ModelFiles

MODELS: dict[str, dict[str, Any]] = {
    "convnet": {"x": np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype(np.float32)},
    "mlp": {"x": np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)},
    "nested_model": {"x": np.float32([1, -2]), "k": np.array(3)},
    "scan_model": {"x": np.arange(10, dtype=np.float32).reshape(5, 2)},
    "odd_outputs": {"x": np.arange(6, dtype=np.float32).reshape(2, 3) - 2},
}


@pytest.fixture(
    params=[
        ("ov_fp32", "convnet"),
        ("ov_fp32", "nested_model"),
        ("ov_fp32", "odd_outputs"),
        ("ov_opt", "scan_model"),
        ("ov_opt", "mlp"),
        ("ov_bf16", "convnet"),
        ("ov_fp16", "convnet"),
    ],
    ids="-".join,
)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    mode, name = request.param
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(getattr(onnx_models, name)().SerializeToString())
    return Subject(
        backend=OpenVinoBackend(), mode=mode, model=ModelFiles(model_file=str(path)),
        feeds=[MODELS[name]], work_dir=str(tmp_path), import_name="precision_debug_openvino",
    )  # fmt: skip
