"""What Polygraphy's users type here is answered by the command that does it, from the page's own table."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from precision_debug.cli import main
from precision_debug.cli.compare import build_parser
from precision_debug.cli.polygraphy import answer_polygraphy_words, translate_command

PAGE = Path(__file__).parent.parent / "docs" / "from_polygraphy.md"
ROWS = [
    [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")][:2]
    for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `polygraphy ")
]  # fmt: skip
ANSWERED = [(theirs, ours) for theirs, ours in ROWS if theirs.split()[1] in ("run", "debug") and ours]


def _options(command: str) -> tuple[str, dict[str, list[str]]]:
    """The verb, and each option's values."""
    words = shlex.split(command)[1:]
    verb = words[0] if words and not words[0].startswith("-") else ""
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            found[word] = []
        elif found:
            found[[*found][-1]].append(word)
    return verb, found


@pytest.mark.parametrize(("theirs", "ours"), ANSWERED)
def test_every_row_of_the_page_is_answered(theirs: str, ours: str) -> None:
    """The page's commands run without a card, so that their modes are others; all else is the same."""
    command, odd = translate_command(shlex.split(theirs)[1:])
    verb, options = _options(command)
    known_verb, known = _options(ours)
    assert verb == known_verb
    assert not odd
    told = [name for name in options if name not in ("--run_mode", "--baseline", "--baseline_model", "--model_file")]
    assert [known.get(name) for name in told] == [options[name] for name in told]


def test_every_option_of_an_answer_is_ours() -> None:
    ours = build_parser()._option_string_actions
    for theirs, _ in ANSWERED:
        command, _ = translate_command(shlex.split(theirs)[1:])
        assert not [name for name in _options(command)[1] if name not in ours], command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "m.onnx", "--onnxrt", "--trt", "--fp16"], "m.onnx --run_mode trt_fp16 --baseline ort_fp32"),
        (["polygraphy", "run", "m.onnx", "--onnxrt"], "--model_file m.onnx --run_mode ort_opt"),
        (["run", "--onnxrt", "m.onnx", "--atol=1e-3"], "--model_file m.onnx --run_mode ort_opt --atol 1e-3"),
        (["convert", "m.onnx", "--int8", "-o", "e.plan"], "--run_mode trt_int8 --save_engine e.plan"),
        (["convert", "m.onnx", "--fp16", "--int8"], "--run_mode trt_best --save_engine m.engine"),
        (["debug", "precision", "m.onnx", "--check", "python c.py"], "search --model_file m.onnx --run_mode trt_fp16"),
        (["debug", "reduce", "m.onnx"], "reduce --model_file m.onnx"),
        (["check", "lint", "m.onnx"], "precision_debug check m.onnx"),
        (["--model_file", "m.onnx", "--trt"], "--model_file m.onnx --run_mode trt_fp32"),
        (["m.onnx", "--onnxrt", "--load-inputs", "i.json"], "--run_mode ort_opt --inputs i.json"),
        (["run", "a model.onnx", "--onnxrt"], "--model_file 'a model.onnx'"),
        (["run", "m.onnx", "--trt", "--workspace", "1G"], "(without --workspace"),
        (["surgeon", "sanitize", "m.onnx"], "this tool does not do it"),
        (["surgeon", "extract", "m.onnx", "--inputs", "x"], "this tool does not do it"),
    ],
)
def test_the_line_has_the_command(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("words", [["serch"], ["--model_file", "m.onnx"], ["frobnicate", "--loud"], ["doctor"]])
def test_what_is_nobodys_is_not_taken_for_polygraphys(words: list[str]) -> None:
    assert answer_polygraphy_words(words) is None


@pytest.mark.parametrize(
    ("word", "meant"),
    [("--abs", "--atol"), ("--rel", "--rtol"), ("--load-inputs", "--inputs"), ("--fp16", "--run_mode"),
     ("--reference", "--baseline"), ("--workers", "--jobs")],
)  # fmt: skip
def test_single_words_of_other_tools(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model_file", "m.onnx", "--run_mode", "ort_opt", word, "1"]) == 2
    assert f"did you mean '{meant}'?" in capsys.readouterr().err
