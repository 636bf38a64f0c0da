"""Every option that writes, on a folder full of other people's files: all of them stay as they are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from warm import command

from precision_debug.errors import OutputError, RecordingError
from precision_debug.feeds import save_feeds
from precision_debug.ownership import LIST, guard_output, is_ours, list_foreign_files, refuse_foreign
from precision_debug.recording import RecordingWriter
from precision_debug.recording.training_log import begin_log
from precision_debug.report.atomic_file import replace_atomically

THEIRS = b"\x00 somebody else's, and the only copy\n" * 40

onnx = pytest.importorskip("onnx", reason="the models are ONNX files")
pytest.importorskip("onnxruntime", reason="a run needs an engine")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model, its inputs and a report."""
    from onnx import TensorProto, helper, numpy_helper

    folder = tmp_path_factory.mktemp("home")
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    np.savez(folder / "in.npz", x=np.ones((2, 4), np.float32))
    assert run(folder, "compare", *COMPARED, "--output", "r.json").returncode in (0, 1)
    return folder


COMPARED = ("--model_file", "m.onnx", "--run_mode", "ort_fp16", "--inputs", "in.npz", "--explain", "off", "--quiet")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return command(*words, cwd=folder)


WRITERS: dict[str, tuple[Sequence[str], str]] = {
    **{
        f"compare {ending}": (("compare", *COMPARED, "--output", f"t/o.{ending}"), f"t/o.{ending}")
        for ending in ("json", "csv")
    },
    **{
        f"report {output}": (("report", "r.json", "--output", output), output.rpartition(":")[2])
        for output in (
            "t/o.xlsx", "t/o.html", "t/o.md", "t/o.json", "t/o.csv", "netron:t/o.onnx", "explorer:t/o.json",
            "netron:m.onnx",
        )
    },
    "gen_script": (("compare", *COMPARED, "--output", "t/p.json", "--gen_script", "t/o.py"), "t/o.py"),
    "save_inputs": (("compare", *COMPARED, "--output", "t/p.json", "--save_inputs", "t/o.json"), "t/o.json"),
    "save_outputs": (("compare", *COMPARED, "--output", "t/p.json", "--save_outputs", "t/o.json"), "t/o.json"),
    "save_model": (("compare", *COMPARED, "--output", "t/p.json", "--save_model", "t/o.onnx"), "t/o.onnx"),
    "its weights": (("compare", *COMPARED, "--output", "t/p.json", "--save_model", "t/o.onnx"), "t/o.onnx.data"),
    "checkpoint": (("compare", *COMPARED, "--output", "t/p.json", "--checkpoint", "t/o"), "t/o"),
    "marks": (("marks", "--model_file", "m.onnx", "--output", "t/o.txt"), "t/o.txt"),
    "data": (("data", "merge", "in.npz", "--output", "t/o.json"), "t/o.json"),
    **{
        f"diff {ending}": (("diff", "r.json", "r.json", "--output", f"t/o.{ending}"), f"t/o.{ending}")
        for ending in ("md", "json", "html", "xlsx")
    },
    "reduce": (("reduce", *COMPARED, "--part", "t/o.onnx"), "t/o.onnx"),
    **{
        f"reduce, its {name}": (("reduce", *COMPARED, "--part", "t/o.onnx"), f"t/o.{name}")
        for name in ("npz", "expected.npz", "py")
    },
    "page": (("doctor", "--columns_page", "t/o.md"), "t/o.md"),
    **{
        f"record onto {name}": (("compare", *COMPARED, "--record", "t", "--output", "p.json"), f"t/{name}")
        for name in ("tensors/photo.jpg", "tensors/000001.npy", "tensors/.git/HEAD", "manifest.json", "weights.npz",
                     "outputs.npz", "inputs.npz")
    },
    "sweep": (("sweep", *COMPARED[:2], "--run_modes", "ort_fp16", "--output", "t/o.json"), "t/o.json"),
    "a sweep's mode": (
        ("sweep", *COMPARED[:2], "--run_modes", "ort_fp16", "--output", "t/o.json"), "t/o.modes/ort_fp16.json",
    ),
    "a sweep's picture": (("sweep", *COMPARED[:2], "--run_modes", "ort_fp16", "--output", "t/o.md"), "t/o.svg"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_somebody_elses_stays(home: Path, name: str, tmp_path: Path) -> None:
    words, victim = WRITERS[name]
    place = home / victim
    before = place.read_bytes() if place.exists() else None
    if victim.startswith("t/"):
        (home / "t").rename(tmp_path / "away") if (home / "t").exists() else None
        place.parent.mkdir(parents=True)
        if name.startswith("record"):
            (home / "t" / "tensors").mkdir(exist_ok=True)
        place.write_bytes(THEIRS)
        before = THEIRS
    done = run(home, *words)
    assert place.read_bytes() == before
    assert done.returncode == 2, done.stderr
    assert any(part in done.stderr for part in Path(victim).parts[1:] or [victim])
    assert len(done.stderr.strip().splitlines()) <= 2


def test_ones_own_are_replaced_again_and_again(home: Path) -> None:
    folder = home / "own"
    outputs = [word for ending in ("json", "csv", "md", "html", "xlsx") for word in ("--output", f"own/o.{ending}")]
    words = ("compare", *COMPARED, *outputs, "--save_model", "own/o.onnx", "--save_inputs", "own/i.json")
    for more in ((), ("--gen_script", "own/o.py")) * 2:
        done = run(home, *words, *more)
        assert done.returncode in (0, 1), done.stderr
    assert not list_foreign_files(folder)
    csv = folder / "o.csv"
    csv.write_bytes(csv.read_bytes() + b"my own note\n")
    assert run(home, *words).returncode == 2
    assert csv.read_bytes().endswith(b"my own note\n")


def test_a_recording_is_replaced_while_all_of_it_is_ours(tmp_path: Path) -> None:
    def record(done: bool = True) -> None:
        with RecordingWriter(tmp_path / "run", overwrite=True) as writer:
            writer("Op", "t", np.ones(9))
            if done:
                writer.finish(feeds={"x": np.ones(3)}, outputs={"z": np.ones(2)})

    record()
    record(done=False)
    record()
    (tmp_path / "run" / LIST).unlink()  # as an earlier version wrote it, or a copy that leaves hidden files out
    record()
    tensor = tmp_path / "run" / "tensors" / "000001.npy"
    np.save(tensor, np.zeros(9))  # of the same name, size and type: not what was written
    for strange in (tensor, tmp_path / "run" / "tensors" / "a.jpg", tmp_path / "run" / "notes"):
        if not strange.exists():
            strange.write_bytes(THEIRS)
        kept = strange.read_bytes()
        with pytest.raises(RecordingError, match=strange.name):
            record()
        assert strange.read_bytes() == kept
        assert (tmp_path / "run" / "manifest.json").exists()
        strange.unlink()
        record() if strange != tensor else None
        if strange == tensor:
            (tmp_path / "run" / "manifest.json").unlink()
            record()


def test_a_file_is_ours_until_somebody_changes_it(tmp_path: Path) -> None:
    file = tmp_path / "engine.bin"
    for content in (b"one", b"two"):
        with guard_output(file) as place:
            place.write_bytes(content)
    assert is_ours(file)
    (tmp_path / "link").symlink_to(file)
    assert is_ours(tmp_path / "link")
    file.write_bytes(b"tow")
    with pytest.raises(OutputError):
        refuse_foreign(tmp_path / "link")
    with pytest.raises(OutputError), replace_atomically(file):
        pass
    assert file.read_bytes() == b"tow"
    (tmp_path / "empty").touch()
    assert is_ours(tmp_path / "empty")
    assert is_ours(tmp_path / "none")
    np.savez(tmp_path / "theirs.npz", a=np.ones(3))
    with pytest.raises(OutputError):
        save_feeds(tmp_path / "theirs.npz", {"x": np.ones(2)})
    save_feeds(tmp_path / "ours.npz", {"x": np.ones(2)})
    save_feeds(tmp_path / "ours.npz", {"x": np.ones(3)})


def test_a_damaged_list_owns_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    for text in ("", "[]\n", '{"name": "a"}\n', "\x00\n", json.dumps({"name": "a", "bytes": 4, "crc32": 0}) + "\n"):
        (tmp_path / LIST).write_text(text)
        assert not is_ours(tmp_path / "a")


def test_a_training_log_of_somebody_else_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "statistics.jsonl"
    theirs.write_text('{"step": 1, "loss": 0.5}\n')
    with pytest.raises(OutputError):
        begin_log(theirs)
    theirs.write_text('{"step": 1, "scale": 1.0, "parameters": {}}\n')
    begin_log(theirs)
    assert not theirs.read_text()
