"""The contract suite over this backend's modes, levels and kinds of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from backend_contract import *  # noqa: F403
from backend_contract import Subject

pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch import TorchBackend

from precision_debug.records import ModelFiles, SessionSpec

MODELS = Path(__file__).with_name("torch_models.py")


@pytest.fixture(
    params=[
        ("torch_fp32", "op", "resnet"),
        ("torch_fp64", "op", "encoder"),
        ("torch_bf16", "module", "decoder"),
        ("torch_fp16", "op", "repvgg"),
        ("torch_autocast_bf16", "op", "decoder"),
        ("torch_autocast_fp16", "module", "encoder"),
        ("torch_tf32", "op", "resnet"),
    ],
    ids="-".join,
)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    mode, level, factory = request.param
    backend = TorchBackend()
    model = ModelFiles(model_file=f"{MODELS}:{factory}")
    options = {"level": level, "device": "cpu"}
    feeds = backend.examples(SessionSpec(model=model, mode="torch_fp32", options=options))
    return Subject(
        backend=backend, mode=mode, model=model, feeds=[feeds], work_dir=str(tmp_path),
        import_name="precision_debug_torch", options=options,
    )  # fmt: skip
