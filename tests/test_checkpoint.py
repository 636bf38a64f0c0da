"""A checkpoint is gone on from where everything that decides is the same to the byte, and its lines are as written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from approval import raises_approved

from precision_debug.errors import OutputError, PrecisionDebugError, UsageError
from precision_debug.observe.shard import Shard
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run import content
from precision_debug.run.parallel_run import Checkpoint


def part(*ranges: tuple[int, int]) -> str:
    plain = {**json.loads(Shard().to_text()), "samples": [list(one) for one in ranges]}
    return json.dumps(plain)


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    """Every kind of file that a command can name."""
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    from onnx_models import mlp

    model = mlp()
    onnx.save_model(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="weights", size_threshold=0)
    for name in ("table.json", "base/t0.raw", "samples/0.npz", "samples/1.npz", "metric.py", "helper.py", "labels.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}: 123", encoding="utf-8")
    return RunSpec(
        model=ModelFiles(model_file=str(tmp_path / "m.onnx")), run_mode="ort_opt", baseline=str(tmp_path / "base"),
        inputs=str(tmp_path / "samples"), labels=str(tmp_path / "labels.npy"),
        metric=f"{tmp_path / 'metric.py'}:f", options={"table": str(tmp_path / "table.json")},
    )  # fmt: skip


def flipped(path: Path) -> None:
    """Another byte, the same size and the same times."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("m.onnx", "model"), ("weights", "model"), ("samples/1.npz", "inputs"), ("labels.npy", "labels"),
        ("base/t0.raw", "baseline"), ("metric.py", "metric"), ("helper.py", "metric"),
        ("table.json", "files of the options"),
    ],
)  # fmt: skip
def test_a_file_that_was_replaced_in_place_makes_it_stale(spec: RunSpec, tmp_path: Path, file: str, said: str) -> None:
    kept = Checkpoint(str(tmp_path / "kept"), spec)
    kept.add(part((0, 2)))
    assert Checkpoint(str(tmp_path / "kept"), spec).shards == [part((0, 2))]
    flipped(tmp_path / file)
    with pytest.raises(UsageError, match=f"since it was created: {said}"):
        Checkpoint(str(tmp_path / "kept"), spec)


def test_a_sample_more_makes_it_stale(spec: RunSpec, tmp_path: Path) -> None:
    Checkpoint(str(tmp_path / "kept"), spec)
    (tmp_path / "samples/2.npz").touch()
    with raises_approved(UsageError):
        Checkpoint(str(tmp_path / "kept"), spec)


def test_another_version_makes_it_stale(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Checkpoint(str(tmp_path / "kept"), spec)
    monkeypatch.setattr(content, "_find_versions", lambda: {"onnxruntime": "1.0"})
    with raises_approved(UsageError):
        Checkpoint(str(tmp_path / "kept"), spec)


def test_what_programs_gave_makes_it_stale(spec: RunSpec, tmp_path: Path) -> None:
    Checkpoint(str(tmp_path / "kept"), spec, more={"what the script gives": "1"})
    for more in ({"what the script gives": "2"}, {}):
        with raises_approved(UsageError):
            Checkpoint(str(tmp_path / "kept"), spec, more=more)


def test_the_same_command_typed_otherwise_goes_on(spec: RunSpec, tmp_path: Path) -> None:
    import dataclasses

    kept = Checkpoint(str(tmp_path / "samples" / "kept"), spec)
    kept.add(part((0, 2)))
    again = dataclasses.replace(spec, command="another word order", explain="off")
    assert Checkpoint(str(tmp_path / "samples" / "kept"), again).shards == [part((0, 2))]


@pytest.mark.parametrize(
    "ranges",
    [
        (), ((-5, 1),), ((0, 1_000_000),), ((500, 501),), ((0, 10), (10, 11)), ((3, 3),), ((4, 2),), ((0, 2), (1, 3)),
        ((2, 3), (0, 1)), ((0, 2.0),), ((False, True),), ((0, 10**30),),
    ],
)  # fmt: skip
def test_samples_that_the_command_has_not_are_damage(
    spec: RunSpec, tmp_path: Path, ranges: tuple[tuple[int, int], ...]
) -> None:
    """A line with a right checksum, as another version of ours could have written it."""
    kept = Checkpoint(str(tmp_path / "kept"), spec, samples=range(10))
    kept.add(part((0, 2)))
    kept.add(part(*ranges))
    with pytest.raises(OutputError, match="line 3 is damaged"):
        Checkpoint(str(tmp_path / "kept"), spec, samples=range(10))


def _without_a_sum(line: str) -> str:
    return line.partition(" ")[2]


def _other_samples(line: str) -> str:
    return line.replace("[[0, 2]]", "[[2, 4]]")


def _shorter(line: str) -> str:
    return line[:-1]


@pytest.mark.parametrize("change", [_without_a_sum, _other_samples, _shorter, str.upper, "".join, str.lstrip])
def test_a_line_that_was_changed_is_damage(
    spec: RunSpec, tmp_path: Path, change: Callable[[str], str]
) -> None:  # fmt: skip
    kept = Checkpoint(str(tmp_path / "kept"), spec)
    kept.add(part((0, 2)))
    path = tmp_path / "kept"
    head, line = path.read_text(encoding="utf-8").splitlines()
    changed = change(line)
    path.write_text(f"{head}\n{changed}\n", encoding="utf-8")
    if changed == line:
        assert Checkpoint(str(path), spec).shards == [part((0, 2))]
        return
    with pytest.raises(OutputError, match="line 2 is damaged"):
        Checkpoint(str(path), spec)


def test_a_line_of_another_checkpoint_is_damage(spec: RunSpec, tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path / "a"), spec, more={"x": "1"})
    first.add(part((0, 2)))
    Checkpoint(str(tmp_path / "b"), spec, more={"x": "2"})
    line = (tmp_path / "a").read_text(encoding="utf-8").splitlines(keepends=True)[1]
    with (tmp_path / "b").open("a", encoding="utf-8") as file:
        file.write(line)
    with pytest.raises(OutputError, match="line 2 is damaged"):
        Checkpoint(str(tmp_path / "b"), spec, more={"x": "2"})


@pytest.mark.parametrize("text", ["my notes", "my notes\n", "{}\n", '{"checkpoint": "abc"}\n', "\n\n", "\xff\n"])
def test_somebody_elses_file_is_left_alone(spec: RunSpec, tmp_path: Path, text: str) -> None:
    path = tmp_path / "kept"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(PrecisionDebugError):
        Checkpoint(str(path), spec)
    assert path.read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_first_line_that_was_cut_off_begins_anew(spec: RunSpec, tmp_path: Path, share: float) -> None:
    path = tmp_path / "kept"
    Checkpoint(str(path), spec)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert Checkpoint(str(path), spec).shards == []
    assert path.read_bytes() == data


def test_a_command_does_not_pass_by_the_parts_of_another_model(tmp_path: Path, root: Path) -> None:
    """The whole way: weights times 3, plus 100, under the same name."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    from onnx import numpy_helper

    from precision_debug.cli import main

    def save(change: bool) -> None:
        model = onnx.load(root / "examples/digits/digits.onnx")
        for tensor in model.graph.initializer if change else ():
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.float32:
                tensor.CopyFrom(numpy_helper.from_array((array * 3 + 100).astype(np.float32), tensor.name))
        onnx.save(model, tmp_path / "m.onnx")

    images = np.load(root / "examples/digits/test_images.npz")["image"][:6]
    np.savez(tmp_path / "images.npz", image=images)
    words = ["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_opt", "--baseline", "ort_fp32", "--inputs"]
    words += [str(tmp_path / "images.npz"), "--samples_axis", "0", "--jobs", "1", "--explain", "off", "--quiet"]
    words += ["--checkpoint", str(tmp_path / "kept"), "--output", str(tmp_path / "r.json")]
    save(change=False)
    assert main(words) == 0
    assert main(words) == 0
    save(change=True)
    assert main(words) == 2
