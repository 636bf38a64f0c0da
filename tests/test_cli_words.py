"""Words that a shell makes of a command: empty ones, and ones that begin with a minus; and what would be lost."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from approval import holds_approved
from report_factory import make_report

from precision_debug.cli import main
from precision_debug.cli.compare import build_parser
from precision_debug.cli.parser import parse
from precision_debug.errors import UsageError
from precision_debug.report import write

DIGITS = str(Path(__file__).resolve().parent.parent / "examples" / "digits" / "digits.onnx")
MODES = ["--model_file", DIGITS, "--run_mode", "ort_opt"]
TAKES_A_VALUE = [
    action for action in build_parser()._actions
    if action.option_strings and action.nargs != 0 and "" not in (action.choices or ())
]  # fmt: skip


@pytest.mark.parametrize("action", TAKES_A_VALUE, ids=lambda action: action.option_strings[0])
def test_no_option_takes_an_empty_word_for_its_default(action: argparse.Action) -> None:
    """--labels "$LABELS" of a variable that is not set would otherwise compare without labels, and pass."""
    ways = [[option, *[""] * (2 if action.nargs == 2 else 1)] for option in action.option_strings]
    if action.nargs != 2:
        ways += [[f"{option}="] for option in action.option_strings if option.startswith("--")]
    option = max(action.option_strings, key=len)  # a short one is told by its long name, which says what it is about
    for words in ways:
        with pytest.raises(UsageError, match=f"^{option}: the value is empty"):
            parse(build_parser(), [*MODES, *words])


@pytest.mark.parametrize(
    "words",
    [
        ["report", "r.json", "--output", ""], ["report", ""], ["diff", "", "b.json"], ["inputs", ""],
        ["inputs", "--model_dir", ""],
        ["search", *MODES, "--limit", ""], ["search", *MODES, "--held_out", ""],
        ["sweep", "--model_file", DIGITS, "--run_modes", ""],
        ["data", "merge", "", "--output", "o.json"], ["marks", ""], ["check", ""],
        ["inspect", "model", ""], ["view", ""],
        ["doctor", "--settings_page", ""], ["training", ""], ["dumps", ""],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_verb_takes_an_empty_word(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "the value is empty" in capsys.readouterr().err
    assert not list(Path().iterdir())


@pytest.mark.parametrize("text", ["-1,1", "-1e-3,1", "-.5,.5", "-2.5,-1"])
def test_a_range_may_begin_below_zero(text: str) -> None:
    low, high = map(float, text.split(","))
    assert parse(build_parser(), [*MODES, "--val_range", text]).val_range == {"": (low, high)}


def test_a_value_that_looks_like_an_option_is_shown_how_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODES, "--mark", "-conv.out"]) == 2
    assert holds_approved(capsys.readouterr().err)
    assert main([*MODES, "--output", "--atol", "1"]) == 2
    assert holds_approved(capsys.readouterr().err, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--error_quantile", "0.5"], "--error_quantile: has no effect without --check_error_stat quantile"),
        (["--explain", "off", "--find_pass"], "--find_pass: has no effect without --explain fast"),
        (["--explain", "off", "--second_opinion"], "--second_opinion: has no effect without --explain fast"),
        (["--params_file", DIGITS], "'.onnx' files have no file of parameters; leave it out"),
        (["--rename", "a=b", "a=c"], "--rename: two names for 'a'; keep one of them"),
        (["--save_inputs", "x.npz"], "--save_inputs x.npz: is not a .json file"),
        (["--save_outputs", "x.npz"], "--save_outputs x.npz: is not a .json file"),
        (["--save_inputs", "s.json", "--save_outputs", "./s.json"], "is also written by --save_inputs"),
        (["--save_inputs", "o.json", "--output", "o.json"], "is also written by --output"),
    ],
)  # fmt: skip
def test_what_would_be_lost_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that nobody reads, and of two things that go into one file the first."""
    assert main([*MODES, *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_a_setting_of_one_side_does_not_write_over_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(Path(DIGITS).read_bytes())
    mode = ["--model_file", "m.onnx", "--run_mode", "ort_fp16"]
    assert main([*mode, "--option", "target.save_model=./m.onnx"]) == 2
    assert "which this command reads" in capsys.readouterr().err
    assert model.read_bytes() == Path(DIGITS).read_bytes()


@pytest.mark.parametrize("wide", ["0", "00", "1", "-5", "x"])
def test_a_summary_is_printed_however_wide_the_terminal_says_it_is(
    wide: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", wide)
    write(make_report(3), Path("r.json"))
    main(["report", "r.json"])
    assert "tensors" in capsys.readouterr().out
