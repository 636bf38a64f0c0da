"""What people type in place of what is meant: the line names it; and what a verb does nothing with is refused."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from approval import holds_approved

from precision_debug.cli import main
from precision_debug.recording import RecordingWriter, open_recording

COMMAND = [sys.executable, "-m", "precision_debug"]
DIGITS = str(Path(__file__).resolve().parent.parent / "examples" / "digits" / "digits.onnx")
MODES = ["--model_file", DIGITS, "--run_mode", "ort_opt"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input", "a.npz", *MODES], "did you mean '--inputs'?"),
        (["--tolerance", "1e-3", *MODES], "did you mean '--atol' or '--rtol'?"),
        (["--model", DIGITS, "--run_mode", "ort_opt"], "did you mean '--model_file'?"),
        (["--basline=ort_fp32", *MODES], "did you mean '--baseline'"),
        (["--wholly-unheard-of-thing", *MODES], "see `"),
        (["search", "--held-oot", "x", *MODES], "did you mean '--held_out' or"),
        (["serch", *MODES], "there is no verb 'serch'; did you mean 'search'"),
        (["frobnicate"], "there is no verb 'frobnicate'; see `precision_debug --help`"),
        (["model.onnx"], "model.onnx: expects the model as an option; write --model_file model.onnx --run_mode MODE"),
        ([DIGITS, "--run_mode", "ort_opt"], "write --model_file "),
        (["-m", DIGITS, "--run_mode", "ort_opt"], "did you mean '--model_file'?"),
        (["-run_mode", "ort_opt", "--model_file", DIGITS], "did you mean '--run_mode'?"),
        (["\N{EN DASH}\N{EN DASH}atol", "1", *MODES], "did you mean '--atol'?"),
        (["-\N{EN DASH}rtol", "1", *MODES], "did you mean '--rtol'?"),
        (["\N{EM DASH}inputs", "x.npz", *MODES], "did you mean '--inputs'?"),
        (["--csv", *MODES], "did you mean '--output'?"),
        (["--cuda", *MODES], "did you mean '--run_mode'?"),
        ([*MODES, "--baseline", "other.onnx"], "--baseline_model other.onnx"),
        (["--model_file", DIGITS, "--run_mode", "b.pdmodel"], "--baseline_model b.pdmodel"),
        (["--model_file", DIGITS, "--run_mode", "ort_fp16,ort_int8"], "--run_modes ort_fp16 ort_int8"),
        (["--model_file", DIGITS.replace("digits.onnx", "digit.onnx"), "--run_mode", "ort_opt"], "digits.onnx'?"),
        ([*MODES, "--inputs", DIGITS.replace("digits.onnx", "test_image.npz")], "test_images.npz'?"),
        (["a model.onnx"], "write --model_file 'a model.onnx' --run_mode MODE"),
    ],
)
def test_what_may_have_been_meant(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("reduce", ["--output", "r.html"]), ("reduce", ["--gen_script", "x.py"]), ("reduce", ["--save_tensors", "3"]),
        ("reduce", ["--plots"]), ("reduce", ["--jobs", "2"]), ("ladder", ["--record", "d"]),
        ("ladder", ["--save_outputs", "o.json"]), ("ladder", ["--checkpoint", "c"]),
        ("search", ["--gen_script", "x.py"]), ("search", ["--plots", "2"]), ("sweep", ["--gen_script", "x.py"]),
    ],
)  # fmt: skip
def test_what_a_verb_does_nothing_with_is_refused(
    verb: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *MODES, *words]) == 2
    assert f"{words[0]}: has no effect in `{verb}`; " in capsys.readouterr().err
    assert not list(Path().iterdir())


@pytest.mark.parametrize("words", [["doctor", "--settings"], ["--help"], ["search", "--help"]])
def test_a_reader_that_leaves_ends_it_quietly(words: list[str]) -> None:
    """As ``| head``: no line, and not the status of a crash."""
    child = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    said = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=200) == 141
    assert said == b""


@pytest.mark.parametrize("content", [b"junk", b"", b"\x08\x07" * 50])
def test_marks_of_no_model_is_one_line(content: bytes, tmp_path: Path) -> None:
    """OpenVINO's readers of other formats, which are all tried, say nothing of it."""
    pytest.importorskip("openvino", reason="needs openvino")
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    done = subprocess.run([*COMMAND, "marks", str(path)], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_recording_is_replaced_by_the_next_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    record = ["--model_file", DIGITS, "--run_mode", "ort_fp32", "--record", "kept", "--quiet"]
    assert main(record) == 0
    first = Path("kept", "manifest.json").stat().st_mtime_ns
    assert main(record) == 0
    assert Path("kept", "manifest.json").stat().st_mtime_ns != first
    assert main([*MODES, "--baseline", "kept", "--quiet"]) == 0
    assert main([*MODES, "--baseline", "kept", "--record", "kept"]) == 2
    assert holds_approved(capsys.readouterr().err)
    Path("kept", "thesis.tex").touch()
    assert main(record) == 2
    assert Path("kept", "thesis.tex").exists()


def test_a_recording_with_weights_can_be_replaced(tmp_path: Path) -> None:
    import numpy as np

    for turn in range(2):
        with RecordingWriter(tmp_path / "kept", overwrite=True) as writer:
            writer("op", "x", np.full(2, turn, np.float32))
            writer.finish(weights={"w": np.full(2, turn, np.float32)})
        weights = open_recording(tmp_path / "kept").weights()
        assert {name: value.tolist() for name, value in weights.items()} == {"w": [turn, turn]}


def test_reduce_passes_by_an_input_that_the_target_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With no tolerance at all an input that float16 does not hold fails first, and no operator made it."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    command = ["reduce", "--model_file", DIGITS, "--run_mode", "ort_fp16", "--atol", "0", "--rtol", "0", "--quiet"]
    assert main([*command, "--part", "part.onnx"]) == 0
    assert "operators still fail at" in capsys.readouterr().out
    assert Path("part.onnx").exists()


@pytest.mark.parametrize(
    ("word", "near"),
    [("ort_fp61", "ort_fp16"), ("fp16", "ort_fp16"), ("tensorrt_fp16", "trt_fp16"), ("onnxruntime_int8", "ort_int8"),
     ("ort-half", "ort_fp16"), ("OV_FP16", "ov_fp16"), ("int8", "ort_int8")],
)  # fmt: skip
def test_a_mistyped_mode_is_answered_by_three(word: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model_file", DIGITS, "--run_mode", word]) == 2
    told = capsys.readouterr().err
    assert f"unknown run mode '{word}'; did you mean " in told
    assert near in told
    assert told.count(" or ") == 2
    assert "doctor" in told
    assert len(told) < 250


@pytest.mark.parametrize("word", ["nosuchdir", "golden", "../elsewhere", "runs/x"])
@pytest.mark.parametrize("option", ["--baseline", "--run_mode"])
def test_what_is_no_mode_is_told_as_a_path(option: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    modes = {"--run_mode": "ort_opt", option: word}
    assert main(["--model_file", DIGITS, *(text for pair in modes.items() for text in pair)]) == 2
    told = capsys.readouterr().err
    assert f"{word}: " in told
    assert "folder" in told
    assert "unknown run mode" not in told


@pytest.mark.parametrize("words", [["--model_file", DIGITS, "--run_modes", "ort_fp16", "ort_fp17"],
                                   ["--model_file", "missing.onnx", "--run_modes", "ort_fp16"]])  # fmt: skip
def test_a_sweep_refuses_before_it_runs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *words]) == 2
    told = capsys.readouterr()
    assert len(told.err.splitlines()) == 1
    assert told.out == ""
    assert not list(Path().iterdir())


def test_short_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-V"]) == 0
    assert capsys.readouterr().out.startswith("precision_debug ")
    assert main([*MODES, "-o", "r.odd"]) == 2
    assert "no report format '.odd'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "helper", "line"),
    [("def make():\n    x = 1\n    return x.foo\n", "", "model.py:3"),
     ("import helper\n\ndef make():\n    return helper.build()\n", "def build():\n    raise OSError('no')\n",
      "helper.py:2"),
     ("def make():\n  return (\n", "", "model.py:2"), ("import json\n\nx = json.loads('{')\n", "", "model.py:3")],
)  # fmt: skip
def test_a_factorys_exception_has_its_line(source: str, helper: str, line: str, tmp_path: Path) -> None:
    from precision_debug.errors import ModelError
    from precision_debug.feeds.factory import call_factory
    from precision_debug.reasons import NOTHING

    (tmp_path / "model.py").write_text(source)
    (tmp_path / "helper.py").write_text(helper)
    sys.modules.pop("helper", None)
    with pytest.raises(ModelError) as caught:
        call_factory(f"{tmp_path / 'model.py'}:make", contextlib.nullcontext, returns=NOTHING)
    assert caught.value.where == str(tmp_path / line)


@pytest.mark.parametrize(("words", "first"), [(["help"], "usage: "), (["help", "search"], "usage: "),
                                              (["version"], "precision_debug ")])  # fmt: skip
def test_help_and_version_as_words(words: list[str], first: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told.startswith(first)
    assert (len(words) == 1) or f"{words[1]} " in told.splitlines()[0]


def test_a_model_beside_a_verb_and_a_folder_as_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "m.onnx", "--run_mode", "ort_fp16"]) == 2
    assert "write --model_file m.onnx" in capsys.readouterr().err
    Path("out").mkdir()
    assert main([*MODES, "--output", "out"]) == 2
    assert "out: is a folder" in capsys.readouterr().err
