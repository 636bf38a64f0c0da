"""The suite that every backend passes, for llama.cpp: F32, F16 and quantised files in each mode."""

from __future__ import annotations

from pathlib import Path

import gguf_files
import pytest

from precision_debug.records import ModelFiles
from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

pytest.importorskip("xllamacpp", reason="needs xllamacpp")
pytest.importorskip("gguf", reason="needs gguf, which writes the models")

from precision_debug_llamacpp import LlamaCppBackend


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gguf")
    for kind in ("F32", "F16", "Q8_0", "Q4_0"):
        gguf_files.write(made / f"{kind}.gguf", kind)
    return made


@pytest.fixture(
    params=[("gguf_fp32", "F32", {}), ("gguf_fp32", "Q4_0", {}), ("gguf_cpu", "F32", {"flash_attention": "off"}),
            ("gguf_cpu", "F16", {}), ("gguf_cpu", "Q8_0", {"kv_cache": "f32"}), ("gguf_cpu", "Q4_0", {})],
    ids=lambda one: "-".join(map(str, one[:2])),
)  # fmt: skip
def subject(request: pytest.FixtureRequest, tmp_path: Path, folder: Path) -> Subject:
    mode, kind, options = request.param
    return Subject(
        backend=LlamaCppBackend(), mode=mode, model=ModelFiles(model_file=str(folder / f"{kind}.gguf")),
        feeds=[{"input_ids": gguf_files.ids(11)}], work_dir=str(tmp_path), import_name="precision_debug_llamacpp",
        options=options,
    )  # fmt: skip
