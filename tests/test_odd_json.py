"""JSON of every kind that is read, with one value of it exchanged for an odd one: a status and one line, never more."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_debug import cli
from precision_debug.errors import PrecisionDebugError
from precision_debug.inspector import compare_engines, find_real_precision, read_inspector, split_fused_outputs
from precision_debug.pairing.marks import get_mark_names_from_serialized_json, read_marks_file
from precision_debug.recording import RecordingWriter, open_recording
from precision_debug.records import TensorMeta

DEEP: list[Any] = []
for _ in range(800):
    DEEP = [DEEP]
ODD: list[Any] = [
    None, True, -1, 0, 10**400, 1e308, "", "x", "\ud800", "\0\x1b[31m", [], {}, [None], {"a": None}, [[1]], DEEP,
    {"$float": []}, {"$float": "x"}, float("inf"), float("nan"), "inf", [1, "a", {}],
]  # fmt: skip


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in children:
        yield from places(item, (*path, key))


def mutated(data: Any, seed: int, count: int) -> Iterator[str]:
    """Texts of the data with one value exchanged, taken out or doubled."""
    dice = random.Random(seed)
    known = list(places(data))
    for _ in range(count):
        path = dice.choice(known)
        text = json.dumps(_changed(data, path, dice))
        yield text.replace("Infinity", "1e999")


def _changed(data: Any, path: tuple[Any, ...], dice: random.Random) -> Any:
    if not path:
        return dice.choice(ODD)
    copied = copy.deepcopy(data)
    parent = copied
    for key in path[:-1]:
        parent = parent[key]
    if isinstance(parent, dict) and dice.random() < 0.15:
        del parent[path[-1]]
    elif isinstance(parent, dict) and dice.random() < 0.15:
        parent[dice.choice(["strange", "\ud800", ""])] = dice.choice(ODD)
    else:
        parent[path[-1]] = dice.choice(ODD)
    return copied


HOPELESS = ["", "[", "nul", "[" * 100_000, '{"a":' * 100_000, "\ufeff{}", "\0", '"\\ud800"', "1e999", "NaN", "[]", "{}"]


def report(file: Path, capsys: pytest.CaptureFixture[str]) -> int:
    status = cli.main(["report", str(file), "--output", "again.json", "--output", "again.html"])
    said = capsys.readouterr().err
    assert "internal error" not in said
    assert len(said.splitlines()) <= 1
    assert status in (0, 1, 2, 3)
    if status == 2:
        assert file.name in said
    return status


@pytest.fixture
def journal(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The events of a run of the fake backend."""
    monkeypatch.syspath_prepend(str(root / "tests" / "fake"))
    from precision_debug import registry
    from precision_debug.records import ModelFiles, RunSpec
    from precision_debug.run import pipeline
    from precision_debug.run.journal import Journal

    # another test may have asked before the fake one could be found
    monkeypatch.setattr(registry, "plugins", registry.plugins.__wrapped__)

    (tmp_path / "m.fake").write_text(json.dumps({"layers": 5, "width": 4}), encoding="utf-8")
    (tmp_path / "run").mkdir()
    with Journal(tmp_path / "run" / "journal.jsonl") as kept:
        spec = RunSpec(model=ModelFiles(model_file="m.fake"), run_mode="fake_off")
        pipeline.execute(spec, kept, folder=tmp_path / "run")
    lines = (tmp_path / "run" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_journals(tmp_path: Path, journal: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "journal.jsonl"
    seen = set()
    for text in mutated(journal, 1, 150):
        events = json.loads(text)
        lines = [json.dumps(event) for event in events] if isinstance(events, list) else [text]
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        seen.add(report(file, capsys))
    assert {1, 2} <= seen
    for text in HOPELESS:
        file.write_text(f"{text}\n", encoding="utf-8", errors="surrogatepass")
        assert report(file, capsys) in (2, 3)


def test_reports(tmp_path: Path, journal: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "run" / "journal.jsonl"
    assert cli.main(["report", str(whole), "--output", "whole.json"]) == 1
    data, file = json.loads(Path("whole.json").read_text(encoding="utf-8")), tmp_path / "odd.json"
    unlike = copy.deepcopy(data)  # more mismatched elements than it has
    next(row for row in unlike["rows"] if row.get("comparison"))["comparison"].update(mismatched=3)
    for row in unlike["rows"]:
        row.get("comparison", {"base": {}})["base"]["elements"] = 0
    for text in [*mutated(data, 2, 150), *HOPELESS, json.dumps(unlike)]:
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        report(file, capsys)


def one_of_ours(call: Callable[[], object], name: str) -> bool:
    """Whether it went well; what goes wrong is one line of ours that names the file."""
    try:
        call()
    except PrecisionDebugError as error:
        said = error
    else:
        return True
    assert said.exit_status == 2
    assert name in str(said)
    assert "\n" not in str(said)
    return False


@pytest.mark.parametrize("name", ["trt86_resnet18_fp16.json", "paddle26_trt853_resnet18_fp16.json"])
def test_inspector_files(tmp_path: Path, root: Path, name: str) -> None:
    found = json.loads((root / "tests" / "data" / "inspector" / name).read_text(encoding="utf-8"), strict=False)
    data = found[:6] if isinstance(found, list) else {**found, "Layers": found["Layers"][:6]}
    file = tmp_path / "odd.json"

    def use() -> None:
        layers = read_inspector(file)
        for layer in layers:
            find_real_precision(layer)
        split_fused_outputs(layers)
        assert compare_engines(layers, layers).summary
        get_mark_names_from_serialized_json(file)

    went = []
    for text in [*mutated(data, 3, 300), *HOPELESS]:
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        went.append(one_of_ours(use, "odd.json"))
    assert {True, False} == set(went)


def test_manifests(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    feeds = {"x": np.arange(3, dtype=np.float32)}
    with RecordingWriter(folder) as writer:
        writer("Add", "t", feeds["x"])
        writer.finish(mode="m", backend="b", feeds=feeds, tensors=[TensorMeta(name="t", op_type="Add")],
                      outputs={"t": feeds["x"], "u": feeds["x"]}, notes=("n",), versions={"v": "1"})  # fmt: skip
    manifest = folder / "manifest.json"
    data = json.loads(manifest.read_text(encoding="utf-8"))

    def use() -> None:
        session = open_recording(folder)
        session.run(session.feeds, lambda *_: None)
        session.weights()

    went = []
    for text in [*mutated(data, 4, 300), *HOPELESS]:
        manifest.write_text(text, encoding="utf-8", errors="surrogatepass")
        went.append(one_of_ours(use, "recorded"))
    assert {True, False} == set(went)


@pytest.mark.parametrize("text", [*HOPELESS, "[1]", "[null]", '[["a"]]', '["a", 1e999]', '["\\ud800"]'])
def test_marks(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.json").write_text(text, encoding="utf-8", errors="surrogatepass")
    one_of_ours(lambda: read_marks_file(tmp_path / "odd.json"), "odd.json")
