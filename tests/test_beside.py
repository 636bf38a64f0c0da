"""Files beside a report, and outputs that name what the command reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from precision_debug.errors import OutputError, UsageError
from precision_debug.feeds import save_feeds
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run.companion_files import forget_log, keep_inputs, keep_log, log_head, refuse_overwriting


def made(value: float = 0.0) -> Path:
    return save_feeds("made/inputs.npz", {"x": np.full(3, value, np.float32)})


def kept(*names: str, value: float = 0.0, read: object = ()) -> str:
    outputs = [Path(name).absolute() for name in names]
    for output in outputs:
        output.parent.mkdir(exist_ok=True)
        output.write_text("a report", encoding="utf-8")
    return os.path.relpath(keep_inputs(made(value), outputs, read))


def held(name: str) -> float:
    with np.load(name) as file:
        return float(file["x"][0])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_inputs_have_the_whole_name_of_their_report() -> None:
    assert kept("train.json") == "train.json.inputs.npz"
    assert kept("train.html", value=1) == "train.html.inputs.npz"
    assert held("train.json.inputs.npz") == 0


def test_the_same_command_again_replaces_its_own() -> None:
    assert kept("a.json", "b.html") == kept("a.json", "b.html", value=1) == "a.json.inputs.npz"
    assert held("a.json.inputs.npz") == 1


def test_inputs_that_another_report_still_names_stay() -> None:
    kept("a.json", "b.html")
    assert kept("a.json", value=1) == "a.json.inputs.2.npz"
    assert held("a.json.inputs.npz") == 0
    Path("b.html").unlink()
    assert kept("a.json", value=2) == "a.json.inputs.npz"


@pytest.mark.parametrize("kind", ["file", "archive", "folder", "link", "damaged"])
def test_what_is_not_ours_keeps_its_name(kind: str) -> None:
    place = Path("a.json.inputs.npz")
    if kind == "file":
        place.write_text("mine", encoding="utf-8")
    elif kind == "archive":
        np.savez(place, x=np.arange(3))
    elif kind == "folder":
        place.mkdir()
    elif kind == "link":
        Path("mine").write_text("mine", encoding="utf-8")
        place.symlink_to("mine")
    else:
        kept("a.json")
        place.write_bytes(place.read_bytes()[:-3])
    before = place.lstat().st_mtime_ns, place.is_dir() or place.read_bytes()
    assert kept("a.json") == "a.json.inputs.2.npz"
    assert (place.lstat().st_mtime_ns, place.is_dir() or place.read_bytes()) == before


def test_inputs_that_the_command_reads_from_there_stay_as_they_are() -> None:
    kept("a.json")
    before = Path("a.json.inputs.npz").stat()
    spec = RunSpec(model=ModelFiles(), run_mode="m", inputs="a.json.inputs.npz")
    assert kept("a.json", read=spec) == "a.json.inputs.npz"
    assert Path("a.json.inputs.npz").stat() == before
    assert kept("a.json", value=1, read=spec) == "a.json.inputs.2.npz"
    assert held("a.json.inputs.npz") == 0


def test_the_longest_names() -> None:
    for name in ("n" * 251 + ".csv", "é" * 125 + ".csv"):
        beside = kept(name)
        assert len(os.fsencode(beside)) <= 255
        assert kept(name, value=1) == beside


def test_a_log_is_ours_by_its_first_line() -> None:
    output = Path("a.json").absolute()
    Path("a.log").write_text("mine", encoding="utf-8")
    Path("a.json.log").write_text("mine", encoding="utf-8")
    for _ in range(2):
        Path("log.txt").write_bytes(log_head([output]) + b"said\n")
        place = keep_log(Path("log.txt"), [output])
        assert place is not None
        assert place.name == "a.json.2.log"
    forget_log([output])
    assert sorted(path.name for path in Path().iterdir()) == ["a.json.log", "a.log"]
    assert Path("a.json.log").read_text(encoding="utf-8") == "mine"


def test_a_log_in_which_nothing_was_printed_is_none() -> None:
    output = Path("a.json").absolute()
    Path("log.txt").write_bytes(log_head([output]))
    assert keep_log(Path("log.txt"), [output]) is None


def test_a_place_that_cannot_be_written_is_an_output_error() -> None:
    Path("file").write_text("x", encoding="utf-8")
    with pytest.raises(OutputError, match="cannot write there"):
        keep_inputs(made(), [Path("file/a.json").absolute()])


def spec(**named: object) -> RunSpec:
    return RunSpec(model=ModelFiles(model_file="m.json", params_file="p.json"), run_mode="m", **named)  # type: ignore[arg-type]


@pytest.fixture
def files() -> None:
    for name in ("m.json", "p.json", "base.json", "in.json", "labels.csv", "script.py", "calls.json", "glob1.json"):
        Path(name).write_text("{}", encoding="utf-8")
    Path("models").mkdir()
    Path("models/inference.json").write_text("{}", encoding="utf-8")
    Path("recorded").mkdir()
    Path("recorded/manifest.json").write_text("{}", encoding="utf-8")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("output", "read"),
    [
        ("m.json", {}),
        ("./p.json", {}),
        ("base.json", {"baseline_model": ModelFiles(model_file="base.json")}),
        ("in.json", {"inputs": "in.json"}),
        ("labels.csv", {"labels": "labels.csv"}),
        ("script.py", {"inputs": "script.py:make"}),
        ("calls.json", {"options": {"calls": ["calls.json"]}}),
        ("glob1.json", {"marks_from_inspector": "glob*.json"}),
        ("models/inference.json", {"baseline_model": ModelFiles(model_dir="models")}),
        ("recorded/new.html", {"baseline": "recorded"}),
    ],
)
@pytest.mark.parametrize("by", ["name", "link", "hard link"])
def test_an_output_that_the_command_reads_is_refused(output: str, read: dict[str, object], by: str) -> None:
    if by == "link":
        Path("other.html").symlink_to(output)
        output = "other.html"
    elif by == "hard link":
        if output.startswith(("models", "recorded")):
            pytest.skip("a folder's files are known by their place")
        os.link(output, "other.html")
        output = "other.html"
    with pytest.raises(UsageError, match="which this command reads"):
        refuse_overwriting([output], spec(**read))


@pytest.mark.usefixtures("files")
def test_what_a_setting_saves_is_an_output_too() -> None:
    with pytest.raises(UsageError, match=r"m\.json"):
        refuse_overwriting([], spec(options={"save_engine": "m.json"}))
    refuse_overwriting([], spec(options={"save_engine": "new.engine"}))


@pytest.mark.usefixtures("files")
def test_what_nobody_reads_may_be_replaced() -> None:
    Path("models/old.json").write_text(json.dumps({"format": "precision_debug report"}, indent=1), encoding="utf-8")
    Path("models/old.html").write_text('<meta name="generator" content="precision_debug">', encoding="utf-8")
    outputs = ["new.json", "models/old.json", "models/old.html", "models/new.json", "/dev/null"]
    refuse_overwriting(outputs, spec(baseline_model=ModelFiles(model_dir="models"), labels="/dev/null"))
