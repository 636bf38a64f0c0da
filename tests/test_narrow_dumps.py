"""Dumps in types that numpy has no kind for: they are paired as those of float32 are."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the models are ONNX files")
ort = pytest.importorskip("onnxruntime", reason="the dump is of its run")
import onnx_models  # noqa: E402

from precision_debug.cli import main  # noqa: E402
from precision_debug.recording.recorder import Recorder  # noqa: E402


def recorder(folder: Path, tensors: dict[str, Any]) -> None:
    record = Recorder(folder)
    for name, value in tensors.items():
        record("Op", name, value)



def safetensors(folder: Path, tensors: dict[str, Any]) -> None:
    folder.mkdir()
    head, data = {}, b""
    kinds = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float32": "F32", "float8_e5m2": "F8_E5M2"}
    for name, value in tensors.items():
        raw = np.ascontiguousarray(value).tobytes()
        head[name] = {"dtype": kinds[value.dtype.name], "shape": list(value.shape),
                      "data_offsets": [len(data), len(data) + len(raw)]}  # fmt: skip
        data += raw
    text = json.dumps(head).encode()
    (folder / "t.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def npy(folder: Path, tensors: dict[str, Any]) -> None:
    folder.mkdir()
    for name, value in tensors.items():
        np.save(folder / f"{name}.npy", value)


def npz(folder: Path, tensors: dict[str, Any]) -> None:
    folder.mkdir()
    np.savez(folder / "t.npz", **tensors)


def pt(folder: Path, tensors: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    folder.mkdir()
    kind = next(iter(tensors.values())).dtype.name
    torch.save({name: torch.tensor(value.astype(np.float32)).to(getattr(torch, kind))
                for name, value in tensors.items()}, folder / "t.pt")  # fmt: skip


@pytest.mark.parametrize("make", [recorder, safetensors, npy, npz, pt])
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_dump_is_paired(make: Any, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.shape_inference.infer_shapes(onnx_models.mlp())
    onnx.save(model, tmp_path / "m.onnx")
    names = [name for node in model.graph.node for name in node.output]
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, None) for one in names)
    session = ort.InferenceSession(watched.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    shapes = {one.name: [size if isinstance(size, int) else 4 for size in one.shape] for one in session.get_inputs()}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "in.npz", **feeds)
    type_ = np.dtype(getattr(ml_dtypes, kind, kind))
    values = {name: one.astype(type_) for name, one in zip(names, session.run(None, feeds), strict=True)}
    make(tmp_path / "dump", values)
    if make in (npy, npz) and kind == "float8_e5m2":
        pytest.skip("numpy writes '<f1', which it does not read")
    named = ["--dtype", kind] if make in (npy, npz) and "float8" in kind else []
    words = ["dumps", str(tmp_path / "dump"), *named, "--model_file", str(tmp_path / "m.onnx"), "--lang", "en"]
    assert main([*words, "--inputs", str(tmp_path / "in.npz"), "--record", str(tmp_path / "kept")]) == 0
    assert f"{len(names)} of {len(names)} paired" in capsys.readouterr().out
