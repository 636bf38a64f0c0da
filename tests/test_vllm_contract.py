"""The suite that every backend passes, for vLLM: what needs the engine runs where its environment is named.

PRECISION_DEBUG_VLLM_PYTHON=/path/to/bin/python python -m pytest -m "" tests/test_vllm_contract.py: see CONTRIBUTING.md.
"""

from __future__ import annotations

from pathlib import Path

import llama_folders
import pytest
from precision_debug_vllm import VllmBackend

from precision_debug.records import ModelFiles
from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama_folders.write(tmp_path_factory.mktemp("vllm") / "qwen3", "qwen3")


@pytest.fixture(scope="module", params=["vllm_fp32", "vllm_bf16"])
def mode(request: pytest.FixtureRequest) -> str:
    """One after the other, so that the engine is not started anew for each test."""
    return str(request.param)


@pytest.fixture
def subject(mode: str, tmp_path: Path, folder: Path) -> Subject:
    return Subject(
        backend=VllmBackend(), mode=mode, model=ModelFiles(model_dir=str(folder)),
        feeds=[{"input_ids": llama_folders.ids()}], work_dir=str(tmp_path), import_name="precision_debug_vllm",
    )  # fmt: skip
