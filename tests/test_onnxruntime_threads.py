"""The ONNX Runtime backend's threads under protobuf's pure-Python implementation, where reading a message writes it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from precision_debug.records import ModelFiles, SessionSpec

PURE = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, **PURE},
    )  # fmt: skip


def test_pure_python_protobuf_is_told_from_the_others() -> None:
    ask = "from precision_debug.onnx.model import may_threads_read; print(may_threads_read())"
    assert python(ask).stdout.strip() == "False"


@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt"])
def test_no_parsed_model_is_read_by_two_threads_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    import onnx
    from onnx_models import convnet
    from precision_debug_onnxruntime import OnnxRuntimeBackend, opening

    onnx.save(convnet(), tmp_path / "m.onnx")
    reading, met = [0], []
    known, build = opening.Known.of, opening.build

    def slow(*arguments: Any) -> Any:
        reading[0] += 1
        time.sleep(0.1)
        found = known(*arguments)
        reading[0] -= 1
        return found

    def watched(*arguments: Any) -> Any:
        met.append(reading[0])
        return build(*arguments)

    monkeypatch.setattr(opening, "may_threads_read", lambda: False, raising=False)
    monkeypatch.setattr(opening.Known, "of", slow)
    monkeypatch.setattr(opening, "build", watched)
    OnnxRuntimeBackend().open(SessionSpec(model=ModelFiles(model_file=str(tmp_path / "m.onnx")), mode=mode), []).close()
    assert met == [0]
