"""Pipes, devices and archives that inflate without end: refused at once, in one line, without waiting."""

from __future__ import annotations

import os
import socket
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from approval import holds_approved, raises_approved
from onnx_models import mlp
from warm import command

from precision_debug.errors import InputError, ModelError, RecordingError
from precision_debug.feeds import make_feeds
from precision_debug.numbers.scores import load_labels
from precision_debug.recording import RecordingWriter, open_recording
from precision_debug.records import InputMeta, ModelFiles, RunSpec
from precision_debug.run.plan import make_plan

pytestmark = pytest.mark.timeout(60)
X = InputMeta(name="x", dtype="float32", shape=(2, 8))


def pipe(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("name", ["p.npz", "p.npy", "p.json", "p.py", "folder/p.npy", "folder/p.npz", "set/input_0.pb"])
def test_a_pipe_as_input(name: str, tmp_path: Path) -> None:
    path = pipe(tmp_path / name)
    source = path if path.parent == tmp_path else path.parent
    with raises_approved(InputError):
        make_feeds([X], source=str(source))


@pytest.mark.parametrize("name", ["p.onnx", "p.pt2", "p.pt", "p.pdmodel", "p.json", "p.engine", "p.py"])
def test_a_pipe_as_model(name: str, tmp_path: Path) -> None:
    path = pipe(tmp_path / name)
    model = f"{path}:make" if name == "p.py" else str(path)
    with raises_approved(ModelError):
        make_plan(RunSpec(model=ModelFiles(model_file=model), run_mode="ort_fp32"))


def test_devices_sockets_and_labels(tmp_path: Path) -> None:
    (tmp_path / "zero.onnx").symlink_to("/dev/zero")
    with raises_approved(ModelError):
        make_plan(RunSpec(model=ModelFiles(model_file=str(tmp_path / "zero.onnx")), run_mode="ort_fp32"))
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        with raises_approved(InputError, 2):
            make_feeds([X], source=str(tmp_path / "s"))
    with raises_approved(InputError, 3):
        load_labels(str(pipe(tmp_path / "labels.npy")))


def test_a_pipe_in_a_recording(tmp_path: Path) -> None:
    feeds = {"x": np.ones(2, np.float32)}
    with RecordingWriter(tmp_path / "run") as writer:
        writer("Add", "y", np.ones(0, np.float32))
        writer.finish(mode="m", backend="b", feeds=feeds, outputs={"y": np.ones(0, np.float32)})
    file = next((tmp_path / "run" / "tensors").iterdir())
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"bytes": {file.stat().st_size}', '"bytes": 0'))
    file.unlink()
    pipe(file)
    with raises_approved(RecordingError):
        open_recording(tmp_path / "run")


@pytest.mark.parametrize("option", ["--model_file", "--inputs"])
def test_the_command_does_not_wait_for_a_pipe(option: str, tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "m.onnx")
    pipe(tmp_path / "p.onnx")
    pipe(tmp_path / "p.npz")
    given = {"--model_file": "m.onnx", option: "p.onnx" if option == "--model_file" else "p.npz"}
    words = [word for pair in given.items() for word in pair]
    done = command(*words, "--run_mode", "ort_opt", "--output", "r.json")
    assert done.returncode == 2
    assert holds_approved(done.stderr)
    assert len(done.stderr.splitlines()) == 1


def bomb(path: Path, name: str) -> Path:
    """512 MB of zeros in half a megabyte."""
    np.savez_compressed(path, x=np.ones((2, 8), np.float32))
    header = np.lib.format.header_data_from_array_1_0(np.zeros(1, np.uint8)) | {"shape": (1 << 29,)}
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{name}.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(512):
            file.write(bytes(1 << 20))
    return path


def test_entries_that_nobody_asked_for_are_not_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bomb(tmp_path / "b.npz", "unused")
    inflated: list[str] = []
    read = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(
        np.lib.npyio.NpzFile, "__getitem__", lambda self, key: (inflated.append(key), read(self, key))[1]
    )
    with raises_approved(InputError):
        make_feeds([X], source=str(path))
    assert inflated == []


def test_a_planted_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "m.onnx")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".r.json.lock").symlink_to("victim")
    done = command("--model_file", "m.onnx", "--run_mode", "ort_opt", "--output", "r.json", "--quiet")
    assert (tmp_path / "victim").read_text() == "precious"
    assert done.returncode in (0, 2)
