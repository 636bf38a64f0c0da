"""What was stored of a model says nothing once the model is another one: its recording, its report, a difference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_claims import save

from precision_debug import Report, compare
from precision_debug.claims import State
from precision_debug.cli import main
from precision_debug.records import ModelFiles
from precision_debug.report.formats.json import to_dict
from precision_debug.run.content import digest_model, iterate_external_files

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

WAYS = ["in_place", "same_name_elsewhere", "named_by_the_user", "in_place_seen_by_another"]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """right.onnx and its recording, triple.onnx, and the folder to be in."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "right.onnx")
    save(tmp_path / "triple.onnx", "triple")
    assert main(["--model_file", "right.onnx", "--run_mode", "ort_fp32", "--record", "rec", "--quiet"]) == 0
    return tmp_path


def of(model: Path, **options: object) -> Report:
    return compare(model, run_mode="ort_opt", baseline="rec", explain="off", **options)


def state(report: Report) -> State:
    return next(claim.state for claim in report.claims if claim.code == "unchanged")


def test_a_recording_of_the_model_that_is_here_holds(recorded: Path) -> None:
    report = of(recorded / "right.onnx")
    assert (state(report), report.baseline.stored, report.exit_status) == (State.HELD, "same", 0)
    assert report.baseline.digest == to_dict(report)["target"]["digest"] != ""


@pytest.mark.parametrize("way", WAYS)
def test_a_recording_of_a_model_that_changed_is_no_pass(recorded: Path, way: str) -> None:
    """Whether or not the numbers would agree: a tolerance of 30 lets every one pass."""
    (recorded / "there").mkdir()
    right, other = recorded / "right.onnx", recorded / "there" / "right.onnx"
    options: dict[str, object] = {"atol": 30.0, "rtol": 1.0}
    shutil.copy(recorded / "triple.onnx", other)
    if way == "in_place":
        shutil.copy(other, right)
        model = right
    elif way == "same_name_elsewhere":
        right.unlink()
        model = other
    elif way == "named_by_the_user":
        model, options["baseline_model"] = other, other
    else:
        shutil.copy(right, recorded / "simplified.onnx")
        shutil.copy(other, right)
        model = recorded / "simplified.onnx"
    report = of(model, **options)
    assert (state(report), report.baseline.stored, report.exit_status) == (State.OPEN, "changed", 1)
    assert "model_changed" in [doubt.code for doubt in report.doubts]


def test_a_recording_whose_model_is_not_here_is_said_to_be_unknown(recorded: Path) -> None:
    (recorded / "right.onnx").rename(recorded / "other.onnx")
    report = of(recorded / "other.onnx")
    assert (report.baseline.stored, report.exit_status) == ("unknown", 0)
    assert next(claim for claim in report.claims if claim.code == "unchanged").evidence["kind"] == "unknown"


def test_a_report_of_a_model_that_changed_since_says_so_first(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model_file", "right.onnx", "--run_mode", "ort_opt", "--explain", "off", "--quiet"]
    assert main([*words, "--output", "first.json"]) == 0
    for verb in (["report", "first.json"], ["diff", "first.json", "first.json"]):
        assert main(verb) == 0, verb
    save(recorded / "right.onnx", "triple")
    for verb in (["report", "first.json"], ["diff", "first.json", "first.json"]):
        capsys.readouterr()
        assert main([*verb, "--lang", "en"]) == 1, verb
        assert "another one now" in capsys.readouterr().out.splitlines()[0]
    main(["report", "first.json", "--output", "again.json"])
    claims = json.loads(Path("again.json").read_text())["summary"]["claims"]
    assert [claim["state"] for claim in claims if claim["code"] == "unchanged"] == ["open"]


def test_a_fix_between_two_reports_is_what_a_difference_is_for(recorded: Path) -> None:
    words = ["--model_file", "right.onnx", "--run_mode", "ort_opt", "--explain", "off", "--quiet"]
    main([*words, "--output", "first.json"])
    right = onnx.load("right.onnx")
    right.producer_name = "exported again"
    onnx.save(right, "right.onnx")
    main([*words, "--output", "second.json"])
    assert main(["diff", "first.json", "second.json"]) == 0


def test_a_digest_is_over_all_files_that_belong_to_a_model(tmp_path: Path) -> None:
    save(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    files = ModelFiles(model_file=str(tmp_path / "m.onnx"))
    first = digest_model(files)
    assert first
    (tmp_path / "m.json").write_text("{}")  # a report beside the model is none of its files
    assert digest_model(files) == first
    weights = np.fromfile(tmp_path / "weights.bin", np.uint8)
    weights[-1] ^= 1
    weights.tofile(tmp_path / "weights.bin")
    assert digest_model(files) != first
    for model_file, beside in (("n.xml", "n.bin"), ("p.pdmodel", "p.pdiparams"), ("q.json", "q.pdiparams")):
        for name in (model_file, beside):
            (tmp_path / name).write_text("a")
        first = digest_model(ModelFiles(model_file=str(tmp_path / model_file)))
        (tmp_path / beside).write_text("bb")
        assert digest_model(ModelFiles(model_file=str(tmp_path / model_file))) != first
    (tmp_path / "net.py").write_text("")
    assert digest_model(ModelFiles(model_file=str(tmp_path / "net.py"))) == "", "its weights may be anywhere"


def test_links_to_a_model_and_to_its_weights_are_the_same_model(tmp_path: Path) -> None:
    """As a cache of downloads lays them out: each file once, and a folder of links to them."""
    whole, there, links = tmp_path / "whole.onnx", tmp_path / "there", tmp_path / "links"
    save(whole)
    there.mkdir()
    links.mkdir()
    onnx.save_model(
        onnx.load(whole), there / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0
    )
    for name in ("m.onnx", "m.bin"):
        (links / name).symlink_to(there / name)
    digest = digest_model(ModelFiles(model_file=str(there / "m.onnx")))
    assert digest_model(ModelFiles(model_file=str(links / "m.onnx"))) == digest != ""


def test_a_model_is_read_whole_only_where_a_report_is_stored_and_is_then_what_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    whole = Path.open

    def opened(self: Path, *args: object, **more: object) -> object:
        read.append(self.name)
        return whole(self, *args, **more)  # type: ignore[call-overload]

    save(tmp_path / "m.onnx")
    words: dict[str, object] = {"run_mode": "ort_opt", "explain": "off"}
    first = compare(tmp_path / "m.onnx", output=tmp_path / "r.html", **words)
    assert [state.path for state in first.target.files] == [str(tmp_path / "m.onnx")]
    assert first.target.digest == ""
    monkeypatch.setattr(Path, "open", opened)
    stored = to_dict(first)
    assert read == ["m.onnx"], "once for both sides"
    assert stored["target"]["digest"] == stored["baseline"]["digest"] == digest_model(
        ModelFiles(model_file=str(tmp_path / "m.onnx"))
    )  # fmt: skip
    assert "files" not in stored["target"]
    save(tmp_path / "n.onnx")
    again = compare(tmp_path / "n.onnx", **words)
    save(tmp_path / "n.onnx", "triple")
    assert "digest" not in to_dict(again)["target"], "what lies there is not what was run"


def test_weights_that_lie_at_no_number_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What only lists a model's files does not stumble over what whoever opens it has a sentence for."""
    save(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "soon" if entry.key == "offset" else entry.value
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert {file.name for file in iterate_external_files(tmp_path / "m.onnx")} == {"m.data"}
    words = ["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_opt", "--output", str(tmp_path / "r.json")]
    assert main(words) == 2
    assert "lie at no number" in capsys.readouterr().err
