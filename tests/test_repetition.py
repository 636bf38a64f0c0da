"""`--repeat N`: how far builds of the target are apart is measured, its source is named, and the verdict says so."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import holds_approved
from onnx import helper

from precision_debug import compare
from precision_debug.cli import main
from precision_debug.records import Repeated
from precision_debug.report.layout import list_columns
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Report
from precision_debug.report.summary import summarise

X = {"x": np.linspace(0.5, 2.0, 64, dtype=np.float32).reshape(4, 16)}


def noisy(path: Path, scale: float) -> Path:
    """x -> Mul -> Add(noise of that scale, drawn anew in each run) -> Sigmoid -> y; a second branch is steady."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["doubled"], name="double"),
        helper.make_node("RandomNormalLike", ["doubled"], ["noise"], name="draw", scale=scale),
        helper.make_node("Add", ["doubled", "noise"], ["shaken"], name="shake"),
        helper.make_node("Sigmoid", ["shaken"], ["y"], name="squash"),
        helper.make_node("Tanh", ["doubled"], ["z"], name="calm"),
    ]
    ends = [onnx_models.value(name, [4, 16]) for name in ("x", "y", "z")]
    onnx.save(onnx_models.model(nodes, ends[:1], ends[1:], {"two": np.float32([2])}), path)
    return path


def run(model: Path, **more: Any) -> Report:
    return compare(model, run_mode="ort_opt", inputs=X, explain="off", **more)


def test_a_random_operator_is_named_and_the_verdict_says_that_the_error_is_chance(tmp_path: Path) -> None:
    report = run(noisy(tmp_path / "m.onnx", 1e-2), repeat=4)
    assert report.repeats is not None
    assert report.repeats.count == 4
    assert report.repeats.first == ("noise",)
    assert len(report.repeats.errors["y"]) == 4
    assert len(set(report.repeats.errors["y"])) > 1
    assert set(report.repeats.errors["z"]) == {report.repeats.errors["z"][0]}
    by_name = {row.name: row.repeated for row in report.rows}
    noise, shaken, calm = by_name["noise"], by_name["shaken"], by_name["z"]
    assert noise is not None
    assert noise.first
    assert noise.times == 3
    assert 1.0 < float(noise.rel_l2) < 2.0, "two draws of one size are sqrt(2) apart"
    assert shaken is not None
    assert not shaken.first
    assert 1e-3 < float(shaken.rel_l2) < 1e-1
    assert calm is not None
    assert (calm.times, calm.rel_l2) == (0, 0.0)
    said = " ".join(sentence.en for sentence in lead_sentences(report))
    assert holds_approved(said)
    assert holds_approved(said, 2)
    assert "始于" in " ".join(sentence.zh for sentence in lead_sentences(report))


def test_a_distance_far_below_the_error_is_told_apart_from_it(tmp_path: Path) -> None:
    model = noisy(tmp_path / "m.onnx", 1e-7)
    report = compare(model, run_mode="ort_fp16_sim", inputs=X, explain="off", repeat=2)
    said = " ".join(sentence.en for sentence in lead_sentences(report))
    assert holds_approved(said), "the noise is far below FP16's rounding"
    apart = {name: Repeated(name=name, rel_l2=1e-7, times=1, first=name == "noise") for name in ("y", "noise")}
    rows = tuple(dataclasses.replace(row, repeated=apart.get(row.name, row.repeated)) for row in report.rows)
    said = " ".join(sentence.en for sentence in lead_sentences(dataclasses.replace(report, rows=rows)))
    assert holds_approved(said, 2)
    assert "as far from each" not in said


def test_a_steady_target_is_said_to_be_so_and_every_format_has_the_columns(tmp_path: Path) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    report = compare(tmp_path / "m.onnx", run_mode="ort_fp16_sim", explain="off", repeat=3)
    assert holds_approved({sentence.en for sentence in lead_sentences(report)})
    assert {row.repeated.times for row in report.rows if row.repeated is not None} == {0}
    assert {"repeat_rel_l2", "error_over_repeat", "repeat_first"} <= {column.key for column in list_columns(report)}
    assert any(section.key == "repeats" for section in summarise(report).sections)
    report.save(tmp_path / "r.json")
    again = Report.load(tmp_path / "r.json")
    assert again.repeats == report.repeats
    assert again.rows == report.rows
    for ending in ("csv", "md", "html", "xlsx"):
        assert report.save(tmp_path / f"r.{ending}").stat().st_size > 100
    assert "Repeat Rel L2" in (tmp_path / "r.csv").read_text(encoding="utf-8")
    assert "逐位相同" in (tmp_path / "r.md").read_text(encoding="utf-8")


def test_of_many_samples_the_worst_one_is_repeated(tmp_path: Path) -> None:
    inputs = [{"x": X["x"] * scale} for scale in (0.1, 1.0, 0.2)]
    report = compare(noisy(tmp_path / "m.onnx", 1e-2), run_mode="ort_opt", inputs=inputs, explain="off", repeat=2)
    assert report.repeats is not None
    assert report.repeats.sample in (0, 1, 2)
    assert report.repeats.first == ("noise",)


def test_the_tensors_that_wait_may_do_so_on_disk(tmp_path: Path) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    found = [
        compare(tmp_path / "m.onnx", run_mode="ort_opt", explain="off", repeat=2, **more)
        for more in ({}, {"memory_budget": 0})
    ]
    assert [row.repeated for row in found[0].rows] == [row.repeated for row in found[1].rows]


@pytest.mark.parametrize(
    "words", [["--repeat", "1"], ["--repeat", "3", "--jobs", "2"], ["--repeat", "2", "--record", "d"]]
)
def test_what_cannot_be_repeated_is_refused(tmp_path: Path, words: list[str]) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    assert main(["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_opt", *words]) == 2


def test_the_command_line_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model_file", str(noisy(tmp_path / "m.onnx", 1e-2)), "--run_mode", "ort_opt", "--repeat", "2"]
    main([*words, "--explain", "off", "--output", str(tmp_path / "r.json")])
    assert "2 builds of the target" in capsys.readouterr().out
    assert Report.load(tmp_path / "r.json").repeats is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "mode"), [("torch", "torch_bf16"), ("paddle", "onednn_bf16"), ("openvino", "ov_bf16")]
)
def test_other_backends_are_repeated_too(tmp_path: Path, package: str, mode: str, root: Path) -> None:
    pytest.importorskip(package, reason=f"needs {package}")
    if package == "paddle":
        from paddle_models import export

        model = str(export("mlp", tmp_path))
    elif package == "torch":
        model = f"{root}/examples/digits/other_formats.py:digits"
    else:
        onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
        model = str(tmp_path / "m.onnx")
    report = compare(model, run_mode=mode, explain="off", repeat=2)
    assert report.repeats is not None
    assert report.repeats.count == 2
    assert report.repeats.first == ()
    assert all(row.repeated is not None for row in report.compared)
