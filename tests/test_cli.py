"""The command line as people type it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from approval import holds_approved
from warm import command

from precision_debug import Report, Status


@pytest.fixture
def digits(root: Path) -> list[str]:
    folder = root / "examples" / "digits"
    return ["--model_file", str(folder / "digits.onnx"), "--inputs", str(folder / "test_images.npz")]


def test_the_first_command(digits: list[str], root: Path) -> None:
    labels = str(root / "examples" / "digits" / "test_labels.npy")
    done = command(*digits, "--run_mode", "ort_int8", "--labels", labels, "--output", "o.xlsx", "--output", "o.json")
    assert done.returncode == 0, done.stderr  # what INT8 must lose, and no more
    agree = "Nothing to do: all 15 compared tensors agree"
    for words in ("AS EXPECTED", agree, "the worst output `probabilities` is off by", "top-1 accuracy", "o.xlsx"):
        assert words in done.stdout
    done = command(*digits, "--run_mode", "ort_int8", "--labels", labels, "--output", "o.json", "--atol", "1e-4")
    assert done.returncode == 1, done.stderr
    for words in ("OUT OF TOLERANCE", "first mismatch", "worst operators", "final outputs"):
        assert words in done.stdout
    report = Report.load("o.json")
    assert report.outputs[0].name == "probabilities"
    assert 0.9 < report.scores["top-1 accuracy, target"] <= report.scores["top-1 accuracy, baseline"] + 0.02
    assert report.spec.command.startswith(("python -m precision_debug --model_file", "precision_debug --model_file"))
    orders = [row.index for row in report.rows]
    assert orders == list(range(len(orders)))


def test_dashes_are_accepted(digits: list[str]) -> None:
    done = command("--model-file", digits[1], "--inputs", digits[3], "--run-mode=ort_opt", "--output", "o.json")
    assert done.returncode == 0, done.stderr


def test_a_recorded_run_is_a_baseline(digits: list[str]) -> None:
    done = command(*digits, "--run_mode", "ort_fp32", "--record", "rec")
    assert done.returncode == 0, done.stderr
    assert "recorded ort_fp32" in done.stdout
    done = command(*digits[:2], "--run_mode", "ort_opt", "--baseline", "rec", "--output", "o.json")
    assert done.returncode == 0, done.stderr
    assert Report.load("o.json").inputs_source.endswith("recording rec")


def test_marks_limit_the_table_and_say_so(digits: list[str]) -> None:
    done = command(*digits, "--run_mode", "ort_int8", "--marks_between", "relu1_out", "relu2_out", "--output", "o.json")
    assert done.returncode == 0, done.stderr
    report = Report.load("o.json")
    assert {row.name for row in report.rows if row.status is not Status.UNMATCHED} >= {"relu1_out", "relu2_out"}
    assert not {"conv1_out", "relu3_out", "logits"} & {row.name for row in report.rows}
    assert [row.name for row in report.outputs if row.comparison] == ["probabilities"], "beside marks"
    assert any("not marked" in note for note in report.notes)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--run_mode", "ort_int9"], "did you mean ort_int8"),
        (["--run_mode", "trt_fp16", "--output", "x.xls"], "no report format '.xls'"),
        (["--run_mode", "ort_opt", "--atol", "-1"], "--atol: -1 is not from 0 up"),
        (["--run_mode", "ort_opt", "--mark", "relu9_out"], "relu"),
        (["--run_mode", "ort_opt", "--inputs", "nowhere.npz"], "nowhere.npz"),
        (["--run_mode", "ort_opt", "--memory_budget", "many"], "'many' is not a size"),
        (["--run_mode", "ort_opt", "--labels", "nowhere.npy"], "nowhere.npy"),
        (["--run_mode", "ort_opt", "--rename", "a=b"], "the rename map names 'a'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        ([], "--run_mode is missing"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(digits: list[str], more: list[str], said: str) -> None:
    done = command(*digits, *more)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(Path().rglob("*.xlsx"))


def test_a_missing_model_and_a_damaged_one(tmp_path: Path) -> None:
    Path("bad.onnx").write_bytes(b"not a model")
    for name in ("nowhere.onnx", "bad.onnx"):
        done = command("--model_file", name, "--run_mode", "ort_opt")
        assert done.returncode == 2
        assert name in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_wrong_inputs_are_named(digits: list[str]) -> None:
    np.savez("x.npz", imag=np.zeros((1, 1, 8, 8), np.float32))
    done = command(*digits[:2], "--run_mode", "ort_opt", "--inputs", "x.npz")
    assert done.returncode == 2
    assert "imag" in done.stderr
    np.savez("x.npz", image=np.zeros((1, 1, 9, 9), np.float32))
    done = command(*digits[:2], "--run_mode", "ort_opt", "--inputs", "x.npz")
    assert done.returncode == 2
    assert "9" in done.stderr


def test_doctor_speaks_chinese() -> None:
    said = command("doctor", "--lang", "zh").stdout
    assert "说明，或所缺之物" in said
    assert "what it is" not in said
    assert "含义" in command("doctor", "--settings", "--lang", "zh").stdout


def test_doctor_lists_modes_and_what_they_need() -> None:
    done = command("doctor")
    assert done.returncode == 0, done.stderr
    assert "ort_int8" in done.stdout
    assert "onnxruntime-gpu" in done.stdout
    assert "precision_debug[tensorrt]" in done.stdout or "trt_fp16  " in done.stdout


def test_doctor_says_once_what_all_modes_of_a_backend_lack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from precision_debug import registry
    from precision_debug.cli import main
    from precision_debug.records import Availability

    for backend in registry.backends():
        if backend.name != "onnxruntime":
            lacks = Availability(ok=False, needs="pip install something")
            monkeypatch.setattr(type(backend), "availability", lambda _self, _mode, lacks=lacks: lacks)
    assert main(["doctor", "--lang", "en"]) == 0
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert said.count("pip install something") == sum(one.name != "onnxruntime" for one in registry.backends())
    assert "torch_fp16" in said


def test_help_of_a_verb_begins_with_a_short_usage() -> None:
    for verb in ("search", "sweep", "ladder", "reduce"):
        first, second, *_ = command(verb, "--help").stdout.splitlines()
        assert verb in first
        assert first.endswith("[options]")
        assert not second


def test_a_verb_that_reads_a_model_asks_a_backend_that_reads_such_files(tmp_path: Path) -> None:
    """A .py may be TensorRT's network script, Paddle's layer or PyTorch's module: who knows it answers."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "net.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 2), torch.ones(1, 4)\n"
    )
    done = command("inputs", f"{tmp_path / 'net.py'}:make")
    assert done.returncode == 0, done.stderr
    assert "torch_" in done.stdout


def test_marks_take_the_model_as_inputs_do(digits: list[str]) -> None:
    said = [command("marks", *words).stdout for words in (digits[:2], digits[1:2])]
    assert said[0] == said[1]
    assert "relu1_out" in said[0]
    assert "two models" in command("marks", digits[1], *digits[:2]).stderr


def test_the_command_to_copy_says_where_a_shape_goes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "net.py").write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 2)\n")
    done = command("inputs", f"{tmp_path / 'net.py'}:make")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("--input_shapes 'input:[...]'")


def test_marks_lists_names_that_can_be_given_back(digits: list[str]) -> None:
    done = command("marks", *digits[:2], "--output", "names.txt")
    assert done.returncode == 0, done.stderr
    assert "relu1_out" in Path("names.txt").read_text(encoding="utf-8").split()
    done = command(*digits, "--run_mode", "ort_opt", "--marks", "names.txt", "--output", "o.json")
    assert done.returncode == 0, done.stderr


def test_inspect_reads_real_engines(root: Path) -> None:
    folder = root / "tests" / "data" / "inspector"
    done = command("inspect", str(folder / "trt86_resnet18_fp32.json"))
    assert done.returncode == 0, done.stderr
    assert "29 layers" in done.stdout
    assert "TF32" in done.stdout
    done = command(
        "inspect", str(folder / "trt86_resnet18_fp16.json"), "--diff", str(folder / "trt86_resnet18_fp16_marked.json")
    )
    assert done.returncode == 1
    assert "88" in done.stdout


def test_version() -> None:
    from precision_debug import __version__

    assert command("--version").stdout.strip() == f"precision_debug {__version__}"


def test_validate_finds_the_operator_that_makes_the_first_nan_or_inf(root: Path) -> None:
    build = root / "examples" / "div_zero" / "build.py"
    subprocess.run([sys.executable, str(build), "-o", "div.onnx"], check=True, capture_output=True)
    arguments = ("--model_file", "div.onnx", "--run_mode", "ort_opt", "--val_range", "1,2", "--equal_nan")
    done = command(*arguments, "--output", "o.json")
    assert done.returncode == 0, done.stderr
    done = command(*arguments, "--validate", "--output", "o.json")
    assert done.returncode == 1, done.stderr
    report = Report.load("o.json")
    assert report.first_non_finite is not None
    assert report.first_non_finite.name == "divided"
    assert "first NaN or Inf" in done.stdout


def test_an_engine_without_a_baseline_model_says_what_to_add() -> None:
    Path("m.engine").write_bytes(b"engine")
    done = command("--model_file", "m.engine", "--run_mode", "trt_engine")
    assert done.returncode == 2
    assert "--baseline_model" in done.stderr


def test_marks_say_what_they_leave_out_on_both_sides(digits: list[str]) -> None:
    done = command(*digits, "--run_mode", "ort_int8", "--mark", "relu1_out", "--output", "o.json")
    assert done.returncode == 0, done.stderr
    report = Report.load("o.json")
    assert [row.name for row in report.rows] == ["relu1_out", "probabilities"]
    done = command(*digits, "--run_mode", "ort_int8", "--output", "all.json")
    every = Report.load("all.json")
    alone = every.counts[Status.UNMATCHED]
    assert alone
    left = len(every.rows) - alone - 2
    told = f"{left} of {left + 2} baseline tensors were not marked and are not in the table, nor are {alone} that only"
    assert any(note.startswith(told) for note in report.notes)
    done = command(*digits, "--run_mode", "ort_int8", "--mark", "*", "--output", "o.json")
    assert any(note.startswith(f"{alone} tensors that only") for note in Report.load("o.json").notes)


def test_fused_only_leaves_out_what_fusion_removed_and_says_how_many(digits: list[str]) -> None:
    done = command(*digits, "--run_mode", "ort_opt", "--fused_only", "--output", "o.json")
    assert done.returncode == 0, done.stderr
    report = Report.load("o.json")
    assert report.compared
    assert not report.counts[Status.FUSED_AWAY]
    assert any("were not marked" in note for note in report.notes)


def test_notes_say_which_side_they_are_of() -> None:
    from precision_debug import AssertClose, SaveBaseline
    from precision_debug.cli.summary import format_summary

    report = AssertClose(SaveBaseline()).report()
    report = dataclasses.replace(
        report,
        baseline=dataclasses.replace(report.baseline, notes=("One thread.", "Only here.")),
        target=dataclasses.replace(report.target, notes=("One thread.", "Cast.")),
    )
    said = [line.text.en for line in format_summary(report) if line.label.en == "note"][1:]
    assert [tuple(one.split(": ")) for one in said] == [
        ("baseline and target", "One thread."), ("baseline", "Only here."), ("target", "Cast."),
    ]  # fmt: skip
