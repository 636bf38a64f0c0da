"""The ONNX Runtime backend passes the contract in every mode that runs on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from precision_debug_onnxruntime import OnnxRuntimeBackend

from precision_debug.records import ModelFiles
from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

MODES = [
    "ort_fp32", "ort_opt", "ort_fp16", "ort_int8", "ort_int8_dynamic", "ort_fp16_sim", "ort_bf16_sim", "onnx_ref",
]  # fmt: skip


MODELS: dict[str, dict[str, Any]] = {
    "convnet": {"x": np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype(np.float32)},
    "mlp": {"x": np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)},
}
MORE: dict[str, dict[str, Any]] = {
    "nested_model": {"x": np.float32([1, -2]), "k": np.array(3)},
    "scan_model": {"x": np.arange(10, dtype=np.float32).reshape(5, 2)},
    "odd_outputs": {"x": np.arange(6, dtype=np.float32).reshape(2, 3) - 2},
    "strings_and_sequences": {"x": np.float32([1, 2, 3])},
}
CASES = [(mode, name) for mode in MODES for name in MODELS]
CASES += [(mode, name) for mode in ("ort_fp32", "ort_opt") for name in MORE]


@pytest.fixture(params=CASES, ids="-".join)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    mode, name = request.param
    path = tmp_path / "model.onnx"
    onnx.save(getattr(onnx_models, name)(), path)
    return Subject(
        backend=OnnxRuntimeBackend(),
        mode=mode,
        model=ModelFiles(model_file=str(path)),
        feeds=[{**MODELS, **MORE}[name]],
        work_dir=str(tmp_path),
        import_name="precision_debug_onnxruntime",
    )


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("ort_cuda_fp32", {}, "use TF32 on recent GPUs"),
        ("ort_cuda_fp32", {"use_tf32": "0"}, "TF32 was switched off"),
        ("ort_cuda_fp16", {}, ""),
        ("ort_cuda_fp16", {"op_block_list": "MatMul"}, "use TF32 on recent GPUs"),
        ("ort_opt", {}, ""),
    ],
)
def test_what_is_said_of_tf32_is_true(mode: str, options: dict[str, str], said: str) -> None:
    from precision_debug_onnxruntime.modes import recipe
    from precision_debug_onnxruntime.opening import _engine_notes

    notes = " ".join(_engine_notes(recipe(mode), options))
    assert said in notes if said else "TF32" not in notes
