"""After a crash the engine runs once more alone, in a child, and the error says whose it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved

from precision_debug import cli, registry
from precision_debug.codec import encode
from precision_debug.events import Event, Stage, Tensors
from precision_debug.reasons import say
from precision_debug.records import ModelFiles, RunSpec, SessionSpec
from precision_debug.run import outcome
from precision_debug.run.journal import Journal
from precision_debug.run.locked_folder import JOB, JOURNAL

CRASHES = """
import os, signal
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

class Net(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        if {condition}:
            os.kill(os.getpid(), signal.SIGSEGV)
        return y + 1

def build():
    return Net().eval(), (torch.ones(2, 3),)
"""


def error_of(tmp_path: Path, condition: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("torch")
    file = tmp_path / "net.py"
    file.write_text(CRASHES.format(condition=condition))
    command = ["--model_file", f"{file}:build", "--run_mode", "torch_bf16", "--output", str(tmp_path / "o.json")]
    assert cli.main(command) == 3
    return capsys.readouterr().err


def test_a_crash_that_the_engine_alone_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = error_of(tmp_path, "True", capsys)
    assert holds_approved(said)


def test_a_crash_that_comes_of_being_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = error_of(tmp_path, "_get_current_dispatch_mode() is not None", capsys)
    assert holds_approved(said)


@pytest.mark.parametrize(
    ("events", "sides"),
    [
        ([], []),
        ([("opening", "baseline")], ["baseline"]),
        ([("opening", "target"), ("opening", "baseline"), "baseline"], ["target"]),
        ([("opening", "baseline"), "baseline", ("running", "target"), ("running", "baseline")], ["target", "baseline"]),
    ],
)
def test_who_was_at_work(events: list[Any], sides: list[str], tmp_path: Path) -> None:
    def event(one: Any) -> Event:
        if isinstance(one, str):
            return Tensors(side=one, tensors=())
        return Stage(text=say(f"stage_{one[0]}", side=say(one[1]), mode=f"mode of the {one[1]}"))

    with Journal(tmp_path / JOURNAL) as journal:
        for one in events:
            journal.write(event(one))
    assert outcome._list_sides_at_work(tmp_path) == sides
    assert all(outcome._modes_by_side(tmp_path)[side] == f"mode of the {side}" for side in sides)


def test_nothing_is_said_of_what_could_not_be_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path / JOURNAL) as journal:
        journal.write(Stage(text=say("stage_running", side=say("target"), mode="m")))
    (tmp_path / "job.json").write_text(json.dumps({"spec": {}}))
    assert outcome.describe_crash(tmp_path) == ""
    monkeypatch.setattr(outcome, "_PATIENCE", 0.0)
    assert outcome.describe_crash(tmp_path) == ""


@pytest.mark.parametrize(
    ("mode", "typed"), [("ort_opt", "--option graph_optimization_level=EXTENDED"), ("ort_fp32", "")]
)
def test_what_an_engine_does_less_of_is_told_once_the_side_ran_with_it(mode: str, typed: str, tmp_path: Path) -> None:
    """As after a crash of ONNX Runtime, of which those that are known are of single releases and processors."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    file = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
    spec = RunSpec(model=ModelFiles(model_file=str(file)), run_mode=mode, baseline="ort_fp32")
    with Journal(tmp_path / JOURNAL) as journal:
        journal.write(Stage(text=say("stage_opening", side=say("target"), mode=mode)))
    (tmp_path / JOB).write_text(json.dumps({"spec": encode(spec)}))
    assert outcome.runs_with(tmp_path) == typed


@pytest.mark.parametrize(
    ("mode", "able"),
    [("ort_fp32", True), ("ort_opt", True), ("ort_fp16_sim", False), ("ov_opt", True), ("ov_fp32", True),
     ("ov_int8", False)],
)  # fmt: skip
def test_engines_of_onnx_files_run_alone(mode: str, able: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime" if mode.startswith("ort") else "openvino")
    file = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
    backend = next(one for one in registry.backends() if mode in {known.name for known in one.run_modes})
    spec = SessionSpec(model=ModelFiles(model_file=str(file)), mode=mode, work_dir=str(tmp_path))
    inputs = backend.inputs(spec)
    feeds = {meta.name: np.zeros([2 if isinstance(n, str) else n for n in meta.shape], meta.dtype) for meta in inputs}
    runner = backend.capabilities.bare_runner
    assert runner is not None
    assert runner.run_bare(spec, feeds) is able


@pytest.mark.parametrize("mode", ["cpu_opt", "onednn_fp32"])
def test_paddle_runs_alone(mode: str, tmp_path: Path) -> None:
    pytest.importorskip("paddle")
    folder = Path(__file__).parent.parent / "examples" / "paddle_digits"
    backend = next(one for one in registry.backends() if one.name == "paddle")
    files = ModelFiles(model_file=str(folder / "digits.json"), params_file=str(folder / "digits.pdiparams"))
    spec = SessionSpec(model=files, mode=mode, work_dir=str(tmp_path))
    (meta,) = backend.inputs(spec)
    feeds = {meta.name: np.zeros([2 if isinstance(n, str) else n for n in meta.shape], meta.dtype)}
    assert backend.capabilities.bare_runner.run_bare(spec, feeds)


@pytest.mark.parametrize(
    ("name", "mode", "able"),
    [("digits_float32", "tflite_opt", True), ("digits_int8", "tflite_opt", True), ("digits_int8", "tflite_ref", True),
     ("digits_int8", "tflite_fp32", False)],
)  # fmt: skip
def test_litert_runs_alone(name: str, mode: str, able: bool) -> None:
    """A quantised file is fed integers, and the crash of a real one in tflite_opt was nobody's before."""
    pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")
    backend = next(one for one in registry.backends() if one.name == "litert")
    file = Path(__file__).parent / "data" / "litert" / f"{name}.tflite"
    spec = SessionSpec(model=ModelFiles(model_file=str(file)), mode=mode)
    feeds = {"image": np.random.default_rng(0).uniform(0, 1, (2, 8, 8, 1)).astype(np.float32)}
    assert backend.capabilities.bare_runner.run_bare(spec, feeds) is able
