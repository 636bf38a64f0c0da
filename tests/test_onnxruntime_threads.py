"""The ONNX Runtime backend's threads under protobuf's pure-Python implementation, where reading a message writes it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug
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


@pytest.mark.parametrize(("batch", "atol", "told"), [(2, 1e-6, True), (2, 10.0, False), (1, 1e-6, False)])
def test_an_operator_whose_numbers_depend_on_the_threads_is_told_where_it_is_off(
    batch: int, atol: float, told: bool, tmp_path: Path
) -> None:
    """DynamicQuantizeLSTM gives each thread some rows of the batch: of one row, or within bounds, nobody asks."""
    import onnx
    import onnx_models
    import onnxruntime
    from onnx import helper

    drawn = np.random.default_rng(5)
    held = {"w": drawn.normal(size=(1, 256, 32)) / 4, "r": drawn.normal(size=(1, 256, 64)) / 4}
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r"], ["states"], name="lstm", hidden_size=64),
         helper.make_node("Neg", ["states"], ["y"], name="neg")], "g",
        [onnx_models.value("x", [24, batch, 32])], [onnx_models.value("y")],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in held.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    x = drawn.normal(size=(24, batch, 32)).astype(np.float32) * np.array([1, 30][:batch], np.float32)[:, None]
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode="ort_int8_dynamic", inputs={"x": x}, atol=atol,
        save_model=str(tmp_path / "q.onnx"),
    )  # fmt: skip
    found = [note for note in report.notes if getattr(note, "code", "").startswith("by_threads")]
    assert bool(found) == told, report.notes
    if not told:
        return

    def run(threads: int) -> np.ndarray[Any, Any]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        return onnxruntime.InferenceSession(str(tmp_path / "q.onnx"), options).run(None, {"x": x})[0]

    said = found[0].args
    one, other = run(said["here"]), run(said["there"])
    assert said["moved"] == pytest.approx(float(np.linalg.norm(other - one) / np.linalg.norm(one)), rel=1e-3)
    assert (said["name"], said["at"]) == ("states", "y")
