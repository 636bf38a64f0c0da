"""The suite that every backend passes, for Paddle: both formats, each way in which tensors are shown."""

from __future__ import annotations

from pathlib import Path

import paddle_models
import pytest

from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle import PaddleBackend

from precision_debug.records import ModelFiles


@pytest.fixture(
    params=[
        ("legacy", "cnn", "cpu_fp32"),
        ("legacy", "cnn", "cpu_opt"),
        ("legacy", "cnn", "onednn_fp32"),
        ("legacy", "encoder", "onednn_bf16"),
        ("pir", "cnn", "paddle_fp32"),
        ("pir", "cnn", "cpu_opt"),
        ("pir", "encoder", "onednn_bf16"),
    ],
    ids="-".join,
)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    kind, name, mode = request.param
    path = paddle_models.legacy(name, tmp_path) if kind == "legacy" else paddle_models.pir(name)
    (tmp_path / "work").mkdir()
    return Subject(
        backend=PaddleBackend(),
        mode=mode,
        model=ModelFiles(model_file=str(path)),
        feeds=[paddle_models.feeds(name)],
        work_dir=str(tmp_path / "work"),
        import_name="precision_debug_paddle",
    )
