"""The contract suite over this backend's modes; all of it where TensorRT can run, the rest of it everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorrt_models as models
from precision_debug_tensorrt import TensorRTBackend

from precision_debug.records import ModelFiles
from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

# without cuBLAS and cuDNN, which a TensorRT may come without
SOURCES = {"tactic_sources": "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS", "optimization_level": 0}


@pytest.fixture(params=["trt_fp32", "trt_fp16", "trt_int8"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    path = tmp_path / "residual.onnx"
    onnx.save(models.residual(), path)
    feeds = {"image": np.random.default_rng(5).uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32)}
    return Subject(
        backend=TensorRTBackend(), mode=request.param, model=ModelFiles(model_file=str(path)), feeds=[feeds],
        work_dir=str(tmp_path), import_name="precision_debug_tensorrt", options=SOURCES,
        agree=False,
    )  # fmt: skip


def test_the_backend_is_one_and_its_modes_are_told_apart(subject: Subject) -> None:
    """As in the suite, but for the baseline: ONNX Runtime's, another backend's."""
    names = [mode.name for mode in subject.backend.run_modes]
    assert subject.backend.name == "tensorrt"
    assert len(set(names)) == len(names)
    assert {mode.baseline for mode in subject.backend.run_modes} == {"ort_fp32"}
    assert all(mode.summary and mode.suffixes for mode in subject.backend.run_modes)
