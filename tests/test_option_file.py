"""Options from a file: they are as if typed, typed ones win, and a wrong one names its file and key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from approval import is_approved

from precision_debug import Report
from precision_debug.cli import compare, main
from precision_debug.cli.option_file import with_file
from precision_debug.cli.parser import parse
from precision_debug.errors import UsageError
from precision_debug.products.search import search_verb as search
from precision_debug.records import RunSpec
from precision_debug.run.content import digest_contents


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "pyproject.toml") -> str:
    Path(name).write_text(text if name != "pyproject.toml" else f"[tool.precision_debug]\n{text}", encoding="utf-8")
    return name


def spec_of(*typed: str, verb: str = "compare") -> RunSpec:
    parser = compare.build_parser()
    words = with_file(parser, verb, typed)
    return compare.make_spec(parse(parser, words), command=" ".join(words))


MODEL = 'model_file = "m.onnx"\nrun_mode = "ort_opt"\n'
TYPED = ("--model_file", "m.onnx", "--run_mode", "ort_opt")

SAME: Mapping[str, tuple[str, list[str]]] = {
    "numbers": ("atol = 1e-3\nrtol = 1\nseed = 7", ["--atol", "1e-3", "--rtol", "1", "--seed", "7"]),
    "dashes": ("memory-budget = '4K'", ["--memory_budget", "4K"]),
    "shapes": ("input_shapes = {x = [1, 3], y = [2]}", ["--input_shapes", "x:[1,3]", "y:[2]"]),
    "words of shapes": ("input_shapes = ['x:[1,3]']", ["--input_shapes", "x:[1,3]"]),
    "a range": ("val_range = '-1,1'", ["--val_range=-1,1"]),
    "ranges": ("val_range = {x = [-1, 1]}", ["--val_range", "x:-1,1"]),
    "lists": ("mark = ['a*', 'b']", ["--mark", "a*", "b"]),
    "renames": ("rename = {b = 'a'}", ["--rename", "b=a"]),
    "on or off": ("lockstep = false", ["--lockstep", "off"]),
    "true": ("fail_fast = true", ["--fail_fast"]),
    "false": ("fail_fast = false", []),
    "an engine's": ("save_model = 'a.onnx'\nverbose = true", ["--save_model", "a.onnx", "--verbose"]),
    "an engine's list": ("disabled_optimizers = ['A', 'B']", ["--option", "disabled_optimizers=['A', 'B']"]),
    "of one side": ("option = {target = {intra_op_num_threads = 2}}", ["--option", "target.intra_op_num_threads=2"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_what_a_file_gives_is_as_if_typed(case: str) -> None:
    text, typed = SAME[case]
    expected = spec_of(*TYPED, *typed)
    given = spec_of("--config", write(MODEL + text, "o.toml"))
    assert given.options_from.startswith("o.toml: model_file, run_mode")
    assert not expected.options_from
    plain = dataclasses.replace(given, command="", options_from="")
    assert plain == dataclasses.replace(expected, command="")


def test_a_checkpoint_asks_nothing_of_who_gave_an_option(root: Path) -> None:
    model = str(root / "examples" / "digits" / "digits.onnx")
    typed = spec_of("--model_file", model, "--run_mode", "ort_opt", "--seed", "3")
    write(f"model_file = '{model}'\nrun_mode = 'ort_opt'\nseed = 3\n")
    assert digest_contents(spec_of(), once="1") == digest_contents(typed, once="1")
    assert digest_contents(spec_of("--seed", "4"), once="1") != digest_contents(typed, once="1")


@pytest.mark.parametrize(("typed", "atol", "seed"), [
    ((), 1e-3, 3), (("--atol", "0.5"), 0.5, 3), (("--atol=0.5", "--seed", "4"), 0.5, 4),
])  # fmt: skip
def test_typed_ones_win(typed: tuple[str, ...], atol: float, seed: int) -> None:
    write(MODEL + "atol = 1e-3\nseed = 3\n")
    found = spec_of(*typed)
    assert (found.tolerance.atol, found.seed) == (atol, seed)
    assert ("atol" in found.options_from) == (not typed)


@pytest.mark.parametrize(("typed", "name", "value"), [
    (("--mark", "b"), "marks", ("b",)),
    (("--option", "intra_op_num_threads=4"), "options", {"intra_op_num_threads": "4"}),
])  # fmt: skip
def test_typed_ones_stand_for_those_that_add_up(typed: tuple[str, ...], name: str, value: Any) -> None:
    write(MODEL + 'mark = ["a"]\nintra_op_num_threads = 2\n')
    assert getattr(spec_of(*typed), name) == value


def test_a_typed_folder_stands_for_the_files_model() -> None:
    write(MODEL)
    assert spec_of("--model_dir", "d").model.path == "d"


WRONG: Mapping[str, tuple[str, str]] = {
    "atoll = 1": ("pyproject.toml atoll", "atol"), "atol = 'x'": ("pyproject.toml atol", "number"),
    "atol = true": ("pyproject.toml atol", ""), "seed = 1.5": ("pyproject.toml seed", ""),
    "seed = [1]": ("pyproject.toml seed", ""), "fail_fast = 1": ("pyproject.toml fail_fast", "true"),
    "run_mode = 3": ("pyproject.toml run_mode", ""), "check_error_stat = 'x'": ("pyproject.toml check_error_stat", ""),
    "jobs = -1": ("pyproject.toml jobs", ""), "option = 3": ("pyproject.toml option", ""),
    "option.nonsense = 3": ("pyproject.toml option.nonsense", ""), "search = 3": ("pyproject.toml search", ""),
    "mark = []": ("pyproject.toml mark", ""), "atol = 1979-05-27": ("pyproject.toml atol", ""),
    "atol = nan": ("pyproject.toml atol", ""), "= 3": ("pyproject.toml", ""),
    "help = true": ("pyproject.toml help", ""),
    "config = 'x'": ("pyproject.toml config", ""),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_one_names_file_and_key(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    where, hint = WRONG[text]
    write(text)
    assert main([*TYPED]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert where in said
    assert hint in said


@pytest.mark.parametrize("name", ["missing.toml", "", "."])
def test_a_file_that_cannot_be_read_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", name, *TYPED]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "config" in said or name in said


CODE = [
    "inputs = 'mine.py:f'", "model_file = 'mine.py:make'", "baseline_model = 'mine.PY'", "metric = 'mine.py:f'",
    "gen_script = 'x'", "plugins = ['libx.so']", "custom_ops_library = ['libx']", "network_script = 'x'",
    "option.ep_library = 'x'", "option.target.custom_ops_library = ['x']", "save_model = '/tmp/x.so'",
    "model_file = 'net.engine'", "address = 'a:1'",
]  # fmt: skip


@pytest.mark.parametrize("text", CODE)
def test_a_file_that_nobody_named_names_no_code(text: str) -> None:
    write(text)
    with pytest.raises(UsageError) as error:
        with_file(compare.build_parser(), "compare", [])
    assert error.value.what.code == "option_file_code"  # type: ignore[attr-defined]
    assert with_file(compare.build_parser(), "compare", ["--config", "pyproject.toml"])


def test_tables_of_verbs_and_of_the_pytest_plugin() -> None:
    own = "[tool.precision_debug.search]\nruns = 5\nrun_mode = 'ort_int8'\n"
    write(f"{MODEL}{own}[tool.precision_debug.thresholds]\na = 1")
    assert spec_of().run_mode == "ort_opt"
    parser = compare.make_comparison_parser("search", "", "", search._HEADING, search._FLAGS)
    args = parse(parser, with_file(parser, "search", ["--seconds", "3"], without=["gen_script"]))
    assert (args.runs, args.seconds, args.run_mode) == (5, 3, "ort_int8")


@pytest.mark.parametrize("text", ["", "[tool.other]\nx = 1", "[project]\nname = 'precision_debug'"])
def test_a_pyproject_without_options_is_none(text: str) -> None:
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    assert with_file(compare.build_parser(), "compare", list(TYPED)) == list(TYPED)


def test_what_a_verb_has_no_use_for_is_passed_over() -> None:
    write('run_mode = "ort_opt"\natol = 1\n')
    assert with_file(compare.build_parser(), "sweep", [], without=["run_mode"]) == ["--atol=1"]


def test_the_report_says_which_file_gave_options(root: Path) -> None:
    digits = root / "examples" / "digits"
    model = f'model_file = "{digits / "digits.onnx"}"\n'
    write(model + 'run_mode = "ort_opt"\noutput = ["o.json", "o.md"]\nexplain = "off"\n')
    assert main(["--quiet", "--inputs", str(digits / "test_images.npz")]) == 0
    spec = Report.load("o.json").spec
    assert is_approved(spec.options_from)
    assert "--run_mode=ort_opt" in spec.command
    assert "Options from" in Path("o.md").read_text(encoding="utf-8")
