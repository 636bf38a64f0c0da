"""The suite that every backend passes, for LiteRT: float, FP16 and INT8 files in each mode."""

from __future__ import annotations

from pathlib import Path

import litert_files
import numpy as np
import pytest

from precision_debug.records import ModelFiles
from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")

from precision_debug_litert import LiteRtBackend


@pytest.fixture(
    params=[
        ("tflite_fp32", "digits_float32"),
        ("tflite_fp32", "digits_int8"),
        ("tflite_fp32", "digits_float16"),
        ("tflite_opt", "digits_half_weights"),
        ("tflite_ref", "digits_int8"),
        ("tflite_opt", "digits_float32"),
        ("tflite_opt", "digits_int8"),
    ],
    ids="-".join,
)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    mode, name = request.param
    half = name == "digits_float16"
    feeds = litert_files.images(1).astype(np.float16) if half else litert_files.images(3)
    return Subject(
        backend=LiteRtBackend(), mode=mode, model=ModelFiles(model_file=str(litert_files.DATA / f"{name}.tflite")),
        feeds=[{"image": feeds}], work_dir=str(tmp_path), import_name="precision_debug_litert",
    )  # fmt: skip
