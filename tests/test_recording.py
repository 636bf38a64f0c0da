"""Recorded runs: what goes in comes out, and nothing else does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from approval import raises_approved
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from precision_debug.errors import BackendError, InputError, RecordingError
from precision_debug.ownership import LIST
from precision_debug.protocols import Session
from precision_debug.recording import RecordedSession, RecordingWriter, is_recording, open_recording
from precision_debug.records import TensorMeta

FEEDS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
TENSORS = [
    ("Conv", "conv", np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, ::-1]),
    ("Cast", "half/a:0", np.array([1.5, -2, np.nan], ml_dtypes.bfloat16)),
    ("Q", "fp8", np.array([[0.5]], ml_dtypes.float8_e4m3fn)),
    ("Q", "i4", np.array([-8, 7], ml_dtypes.int4)),
    ("Loop", "again", np.array(1, np.int64)),
    ("Loop", "again", np.array(2, np.int64)),
    ("Shape", "empty", np.zeros((0, 3), np.float16)),
    ("Not", "flag", np.array([True, False])),
    ("Text", "words", np.array(["ab", "ü"], dtype=object)),
    ("Relu", "y", np.asfortranarray(np.ones((2, 2), np.float64))),
]
GRAPH = [
    TensorMeta(name="conv", op_type="Conv", node="n0", inputs=("x",), dtype="float32", extra={"tactic": "t"}),
    TensorMeta(name="gone", op_type="Add", node="n1"),
    TensorMeta(name="folded", op_type="Const", unseen="it is a constant"),
    TensorMeta(name="again", op_type="Loop"),
    TensorMeta(name="again#2", op_type="Loop"),
    TensorMeta(name="y", op_type="Relu", node="n9", inputs=("conv",), is_output=True),
]


def fails(*parts, kind=RecordingError):
    return pytest.raises(kind, match="".join(f"(?=.*{re.escape(part)})" for part in parts) + r"[^\n]*\Z")


def record(folder, **options):
    model = folder.parent / "m.onnx"
    model.write_bytes(b"model")
    with RecordingWriter(folder, **options) as writer:
        for call in TENSORS:
            writer(*call)
        outputs = {
            "y": TENSORS[-1][2],
            "z": np.ones(3, ml_dtypes.bfloat16),
            "s": [np.ones(2), None],
            "conv": np.ones(1),
        }
        return writer.finish(
            mode="ort_fp32", backend="onnxruntime", model=str(model), versions={"onnxruntime": "1.31"},
            notes=("a note",), feeds=FEEDS, tensors=GRAPH, outputs=outputs,
        )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return record(tmp_path / "run")


def same(one, other):
    other = np.array(other.tolist(), np.str_) if other.dtype == object else other
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def replay(session, names=None):
    calls = []
    outputs = session.run(session.feeds, lambda *call: calls.append(call), names)
    return calls, outputs


def test_a_run_comes_back_in_order_and_bit_for_bit(folder):
    session = open_recording(folder)
    assert isinstance(session, Session)
    calls, outputs = replay(session)
    assert [call[:2] for call in calls] == [call[:2] for call in TENSORS]
    assert all(same(got[2], put[2]) for got, put in zip(calls, TENSORS, strict=True))
    assert not any(call[2].flags.writeable for call in calls if call[2].size)
    assert [*outputs] == ["y", "z", "s", "conv"]
    assert same(outputs["y"], TENSORS[-1][2])
    assert same(outputs["z"], np.ones(3, ml_dtypes.bfloat16))
    assert same(outputs["s"][0], np.ones(2))
    assert outputs["s"][1] is None
    assert same(outputs["conv"], np.ones(1))
    session.close()
    session.close()


def test_what_is_known_of_the_run(folder):
    session = open_recording(folder)
    assert (session.mode, session.backend) == ("ort_fp32", "onnxruntime")
    assert session.model.endswith("m.onnx")
    assert session.model_sha256 == "9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4"
    assert session.versions == {"onnxruntime": "1.31"}
    assert session.notes[0] == "a note"
    assert session.notes[1].startswith(f"replayed from {folder}, recorded 2")
    assert same(session.feeds["x"], FEEDS["x"])
    metas = {meta.name: meta for meta in session.tensors}
    assert [*metas][:6] == [meta.name for meta in GRAPH]
    assert metas["conv"] == GRAPH[0]
    assert metas["gone"].unseen == "it was not recorded"
    assert metas["folded"].unseen == "it is a constant"
    assert metas["again#2"].unseen == ""
    assert metas["half/a:0"] == TensorMeta(name="half/a:0", op_type="Cast", dtype="bfloat16", shape=(3,))
    assert len(metas) == len(session.tensors)


def test_only_the_wanted_names_are_replayed(folder):
    calls, outputs = replay(open_recording(folder), {"again", "y"})
    assert [call[1] for call in calls] == ["again", "again", "y"]
    assert "z" in outputs


def test_without_a_hook(folder):
    session = open_recording(folder)
    assert same(session.run(FEEDS)["y"], TENSORS[-1][2])


def test_the_folder_is_plain(folder):
    assert {entry.name for entry in folder.iterdir()} - {LIST} == {
        "manifest.json", "tensors", "inputs.npz", "outputs.npz",
    }  # fmt: skip
    assert sorted(entry.name for entry in (folder / "tensors").iterdir())[0] == "000001.npy"
    manifest = json.loads((folder / "manifest.json").read_text())
    first, half = manifest["tensors"][:2]
    assert same(np.load(folder / first["file"], allow_pickle=False), TENSORS[0][2])
    assert first["bytes"] == (folder / first["file"]).stat().st_size
    assert (first["node"], first["inputs"], first["is_output"]) == ("n0", ["x"], False)
    assert (half["dtype"], np.load(folder / half["file"]).dtype) == ("bfloat16", np.uint16)
    assert manifest["outputs"]["tensors"] == {"y": 9}, "an output that the hook was shown is not stored twice"


def test_the_writer_is_a_hook_by_itself(tmp_path):
    writer = RecordingWriter(tmp_path / "run")
    writer("relu", "r", np.ones(2, np.float32))
    assert not is_recording(tmp_path / "run")
    writer.finish()
    assert is_recording(tmp_path / "run")
    session = open_recording(tmp_path / "run")
    assert session.run({}) == {}
    assert [meta.name for meta in session.tensors] == ["r"]


def test_torch_tensors_are_recorded(tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch")
    writer = RecordingWriter(tmp_path / "run")
    writer("aten.relu", "r", torch.tensor([1.0, 2.5], dtype=torch.bfloat16))
    writer.finish()
    calls, _ = replay(open_recording(tmp_path / "run"))
    assert same(calls[0][2], np.array([1, 2.5], ml_dtypes.bfloat16))


@settings(deadline=None, max_examples=60)
@given(
    arrays=st.lists(
        npst.arrays(
            st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u8", "?", "c8", ">f4", "U3"]),
            npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
        ),
        max_size=4,
    )
)
def test_any_arrays_come_back(tmp_path_factory, arrays):
    folder = tmp_path_factory.mktemp("any") / "run"
    with RecordingWriter(folder) as writer:
        for number, array in enumerate(arrays):
            writer("Op", f"t{number % 2}", array.T)
        writer.finish(feeds={"x": np.ones(1)}, outputs={f"t{(len(arrays) - 1) % 2}": arrays[-1].T} if arrays else {})
    calls, outputs = replay(open_recording(folder))
    assert len(calls) == len(arrays)
    assert all(
        np.array_equal(got[2], put.T, equal_nan=put.dtype.kind in "fc") for got, put in zip(calls, arrays, strict=True)
    )
    assert all(
        got[2].tobytes() == np.asarray(put.T, order="C").tobytes() for got, put in zip(calls, arrays, strict=True)
    )
    assert len(outputs) == bool(arrays)
    assert not (folder / "outputs.npz").exists()


# feeds


@pytest.mark.parametrize(
    ("feeds", "part"),
    [
        ({}, "the inputs ['x'], not []"),
        ({"x": FEEDS["x"], "q": FEEDS["x"]}, "not ['q', 'x']"),
        ({"x": FEEDS["x"] + 1}, "'x' is not the recorded one"),
        ({"x": FEEDS["x"].ravel()}, "'x' is not the recorded one"),
        ({"x": (FEEDS["x"] + 0.1).astype(np.float64)}, "'x' is not the recorded one"),
    ],
)
def test_other_feeds_are_refused(folder, feeds, part):
    with fails(part, "--inputs", kind=InputError):
        open_recording(folder).run(feeds)


def test_the_same_numbers_in_another_type_are_the_recorded_ones(folder):
    found = open_recording(folder).run({"x": FEEDS["x"].astype(np.float16)})
    recorded = open_recording(folder).run(FEEDS)
    assert found.keys() == recorded.keys() == {"y", "z", "s", "conv"}
    assert all(same(found[name], recorded[name]) for name in ("y", "z", "conv"))


# where a recording may be written


def test_folders_that_are_refused(tmp_path, folder):
    with fails("run", "holds a recording already"):
        RecordingWriter(folder)
    (folder / "manifest.json").unlink()
    with fails("holds a partial recording already"):
        RecordingWriter(folder)
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with fails("mine", "not empty"):
            RecordingWriter(foreign, overwrite=overwrite)
    (folder / "thesis.tex").write_text("")
    with fails("holds 'thesis.tex'"):
        RecordingWriter(folder, overwrite=True)
    (tmp_path / "file").write_text("")
    with fails("is a file"):
        RecordingWriter(tmp_path / "file")


def test_an_old_recording_is_replaced_on_demand(tmp_path, folder):
    with RecordingWriter(folder, overwrite=True) as writer:
        writer("Op", "t", np.ones(1))
        assert not is_recording(folder)
        with fails("partial: it has 1 tensors"):
            open_recording(folder)
        writer.finish()
    assert [entry.name for entry in (folder / "tensors").iterdir()] == ["000001.npy"]
    assert not (folder / "outputs.npz").exists()
    (tmp_path / "empty").mkdir()
    record(tmp_path / "empty")


def test_a_killed_run_leaves_a_partial_recording(tmp_path):
    code = (
        "import os, sys, numpy as np\n"
        "from precision_debug.recording import RecordingWriter\n"
        "writer = RecordingWriter(sys.argv[1])\n"
        "[writer('Op', f't{i}', np.ones(9)) for i in range(3)]\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=False)
    assert done.returncode == -9
    with fails("partial: it has 3 tensors and no manifest.json", "record the run again"):
        open_recording(tmp_path / "run")


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    writer = RecordingWriter(tmp_path / "run")

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with fails("cannot be recorded: No space left on device", "mark fewer tensors"):
        writer("Op", "t", np.ones(1))
    monkeypatch.undo()
    monkeypatch.setattr(np.lib.format, "write_array", full)
    with fails("No space left"):
        writer.finish(feeds=FEEDS)
    assert not is_recording(tmp_path / "run")


def test_what_is_no_array_is_refused(tmp_path):
    writer = RecordingWriter(tmp_path / "run")
    with fails("'t' holds Python objects"):
        writer("Op", "t", np.array([{}], dtype=object))
    with raises_approved(BackendError):
        writer("Op", "t", object())


# what is refused when it is opened or read


def edit(folder, change):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_folders_without_a_recording(tmp_path):
    with fails("no such folder", "--record"):
        open_recording(tmp_path / "nowhere")
    with fails("is not a recording"):
        open_recording(tmp_path)
    assert not is_recording(tmp_path)
    assert not is_recording("a\0b")


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (lambda f: (f / "manifest.json").write_text("{"), ["manifest.json cannot be read"]),
        (lambda f: (f / "manifest.json").write_text("[]"), ["not of a recording"]),
        (lambda f: edit(f, lambda m: m.update(version=2)), ["format 2, this version reads 1"]),
        (lambda f: edit(f, lambda m: m.pop("outputs")), ["manifest.json is damaged", "outputs"]),
        (lambda f: edit(f, lambda m: m["graph"][0].update(name=1)), ["manifest.json is damaged", "name"]),
        (lambda f: edit(f, lambda m: m["tensors"][0].update(file="../../m.onnx")), ["names the file '../../m.onnx'"]),
        (lambda f: (f / "tensors" / "000003.npy").unlink(), ["tensors/000003.npy is missing"]),
        (lambda f: shutil.rmtree(f / "tensors"), ["tensors/000003.npy and 7 more are missing"]),
        (lambda f: (f / "tensors" / "000001.npy").write_bytes(b"\x93NUMPY"), ["000001.npy has 6 bytes, 224 were"]),
        (lambda f: (f / "inputs.npz").unlink(), ["inputs.npz is missing"]),
        (lambda f: flip(f / "inputs.npz"), ["inputs.npz is damaged"]),
    ],
)
def test_damage_that_is_seen_at_once(folder, damage, parts):
    damage(folder)
    with fails(str(folder), *parts):
        open_recording(folder)


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (lambda f: flip(f / "tensors" / "000001.npy"), ["tensors/000001.npy ('conv') is damaged"]),
        (lambda f: (f / "tensors" / "000001.npy").write_bytes(b""), ["('conv') cannot be read"]),
        (lambda f: (f / "tensors" / "000001.npy").unlink(), ["('conv') cannot be read"]),
        (lambda f: flip(f / "outputs.npz"), ["outputs.npz is damaged"]),
    ],
)
def test_damage_that_is_seen_when_it_is_read(folder, damage, parts):
    session = open_recording(folder)
    damage(folder)
    with fails(str(folder), *parts):
        replay(session)


def test_a_manifest_that_does_not_fit_its_files(folder):
    edit(folder, lambda m: m["tensors"][0].update(shape=[1]))
    with fails("has shape [2, 3, 4], the manifest says [1]"):
        replay(open_recording(folder))
    edit(folder, lambda m: m["tensors"][0].update(dtype="bfloat16"))
    with fails("bfloat16 is stored as float32"):
        replay(open_recording(folder))


def test_a_file_is_read_only_when_its_tensor_is(folder):
    flip(folder / "tensors" / "000001.npy")
    calls, _ = replay(open_recording(folder), {"y"})
    assert len(calls) == 1


def test_replay_needs_no_framework(folder):
    code = (
        "import sys\n"
        "from precision_debug.recording import open_recording\n"
        "session = open_recording(sys.argv[1])\n"
        "session.run(session.feeds, lambda *call: None)\n"
        "print([m for m in ('onnx', 'onnxruntime', 'torch', 'paddle', 'pandas', 'pickle5') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert isinstance(open_recording(folder), RecordedSession)


def test_weights_are_kept_unless_they_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"a.weight": np.arange(6.0).reshape(2, 3), "b": np.float32([1.5])}
    for limit, kept in ((52, True), (51, False)):
        monkeypatch.setattr("precision_debug.recording.writer.WEIGHT_BYTES", limit)
        with RecordingWriter(tmp_path / str(limit)) as writer:
            writer("Relu", "y", np.zeros(3))
            writer.finish(mode="m", backend="b", feeds={}, weights=weights)
        found = open_recording(tmp_path / str(limit)).weights()
        assert set(found) == (set(weights) if kept else set())
        assert all(np.array_equal(found[name], weights[name]) for name in found)
    (tmp_path / "52" / "weights.npz").unlink()
    with pytest.raises(RecordingError, match=r"weights\.npz is missing"):
        open_recording(tmp_path / "52")
