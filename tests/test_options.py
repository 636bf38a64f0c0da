"""The table of options: each is declared once, and the command line, its help, compare(), --gen_script and the page of
settings have all of them, with the same value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from approval import raises_approved

import precision_debug
from precision_debug import api
from precision_debug.cli.compare import build_parser, make_spec
from precision_debug.cli.doctor import PAGES
from precision_debug.cli.parser import Help, parse
from precision_debug.errors import UsageError
from precision_debug.products.tools.script import make_script
from precision_debug.records import ModelFiles, RunSpec, Tolerance
from precision_debug.settings import Setting
from precision_debug.settings.options import GROUPS, OPTIONS, iterate_differing, list_options, spec_of

OURS = [one for one in list_options(RunSpec) if not one.field.startswith("model.")]

WORDS: Mapping[str, tuple[list[str], Any]] = {
    "whole": (["3"], 3), "number": (["0.25"], 0.25), "size": (["4K"], 4096), "word": (["a b"], "a b"),
    "words": (["a", "b"], ("a", "b")), "shapes": (["x:[1,3]", "y:2x2"], {"x": (1, 3), "y": (2, 2)}),
    "ranges": (["0,1", "x:-1,1"], {"": (0, 1), "x": (-1, 1)}), "renames": (["a=b"], {"a": "b"}),
}  # fmt: skip


def words_of(one: Setting) -> tuple[list[str], Any]:
    """Words of the command line for an option, and the value that they are."""
    if one.name == "metric_drop":
        return ["1%"], "1%"
    if one.name == "input_variants":
        return ["batch,padded"], "alone,batch,padded"
    if one.name == "lockstep":
        return ["off"], False
    if one.kind == "flag":
        return ["true"] if one.nargs else [], True
    if one.choices:
        choice = next(word for word in one.choices if word != one.default)
        return [choice], choice
    return (["a b.json"], "a b.json") if one.name in ("save_inputs", "save_outputs") else WORDS[one.kind]


def value_in(spec: RunSpec, one: Setting) -> Any:
    found: Any = spec
    for name in one.field.split("."):
        found = getattr(found, name)
    return found


def from_words(*words: str) -> RunSpec:
    given = parse(build_parser(), ["--model_file", "m.onnx", "--run_mode", "ort_opt", *words])
    return make_spec(given, command="")


def from_python(monkeypatch: pytest.MonkeyPatch, **options: Any) -> RunSpec:
    """The spec that ``compare`` makes of its keywords."""

    class Made(Exception):
        pass

    def stop(spec: RunSpec, **_: Any) -> None:
        raise Made(spec)

    monkeypatch.setattr(api, "make_plan", stop)
    with pytest.raises(Made) as caught:
        precision_debug.compare("m.onnx", **{"run_mode": "ort_opt", **options})
    made: RunSpec = caught.value.args[0]
    return made


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_the_command_line_compare_and_a_script_say_the_same(one: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    words, value = words_of(one)
    spec = from_words(one.option, *words)
    assert value_in(spec, one) == value
    assert (one, value) in list(iterate_differing(spec))
    if "script" in one.not_with:
        with raises_approved(UsageError):
            make_script(spec, [])
        with pytest.raises(UsageError, match="does not record runs"):
            from_python(monkeypatch, **{one.name: value})
        return
    assert value_in(from_python(monkeypatch, **{one.name: value}), one) == value
    called: dict[str, Any] = {}

    def keep(*model: Any, **given: Any) -> None:
        called.update(given)
        raise KeyboardInterrupt

    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(make_script(spec, []), "script", "exec"), names)
    with monkeypatch.context() as patch:
        patch.setattr(precision_debug, "compare", keep)
        with pytest.raises(KeyboardInterrupt):
            names["main"]()
    again = from_python(monkeypatch, **called)
    assert dataclasses.replace(again, command="") == spec


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_a_setting_of_ours_is_the_option_that_it_names(one: Setting) -> None:
    """--option KEY=VALUE of an option's name is that option, and reaches no backend."""
    words, value = words_of(one)
    if len(words) > 1 or one.name in ("run_mode", "renames"):
        return
    spec = from_words("--option", f"{one.name}={words[0] if words else 'true'}")
    assert value_in(spec, one) == value
    assert not spec.options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "x"], "--seed: 'x' is not a whole number"), (["--top_k", "0"], "--top_k: 0 is not from 1 up"),
        (["--repeat", "1"], "--repeat: 1 is not from 2 up"), (["--memory_budget", "lots"], "is not a size"),
        (["--atol", "nan"], "--atol: nan is not from 0 up"), (["--rtol", "-1"], "--rtol: -1 is not from 0 up"),
        (["--error_quantile", "1.5"], "--error_quantile: 1.5 is not from 0 to 1"),
        (["--atol", "x"], "--atol: 'x' is not a number"), (["--val_range", "3,1"], "low end above"),
        (["--rename", "a"], "--rename"), (["--input_shapes", "x"], "--input_shapes"),
        (["--seed", "1", "--option", "seed=2"], "--seed: given twice"), (["--gpus", "-1"], "--gpus: -1"),
        (["--jobs", "many"], "--jobs: 'many' is not a whole number"), (["--plots", "x"], "--plots: 'x' is not a whole"),
        (["--input_shapes", "x:[1]", "--input_shapes", "x:[2]"], "two shapes for 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_value_names_the_option(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_words(*words)
    assert said in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"explain": "x"}, "explain: 'x' is not one of off, fast, full"),
        ({"seed": "x"}, "seed: 'x' is not a whole number"),
        ({"atol": -1}, "atol: -1 is not from 0 up"), ({"val_range": (3, 1)}, "val_range: 3, 1 has its low end"),
        ({"marks": [1]}, "marks: 1 is not text"), ({"top_k": True}, "top_k: True is not a whole number"),
    ],
)  # fmt: skip
def test_compare_checks_what_the_command_line_checks(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        precision_debug.compare("m.onnx", run_mode="ort_opt", **given)


def test_what_may_be_repeated_adds_up() -> None:
    spec = from_words("--mark", "a", "b", "--mark", "c", "--input_shapes", "x:[1]", "--input_shapes", "y:[2]")
    assert spec.marks == ("a", "b", "c")
    assert spec.input_shapes == {"x": (1,), "y": (2,)}


def test_a_name_alone_is_one_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_python(monkeypatch, marks="conv").marks == ("conv",)


def test_only_what_was_given_decides() -> None:
    assert not from_words().tolerance.given
    assert from_words("--rtol", "1e-4").tolerance.given
    assert from_words("--check_error_stat", "max").tolerance.given
    assert not from_words("--equal_nan").tolerance.given
    assert spec_of({"run_mode": "m"}).tolerance == dataclasses.replace(Tolerance(), given=False)
    assert spec_of({"run_mode": "m", "model_file": "f"}).model == ModelFiles(model_file="f")


def test_the_table_is_whole() -> None:
    """Every option has a place in the help, says what it is in both languages, and stands in the page of settings."""
    assert len({one.name for one in OPTIONS}) == len(OPTIONS) - 1  # `marks` are patterns, and a file of them
    assert len({one.option for one in OPTIONS}) == len(OPTIONS)
    kept = {field.name for field in dataclasses.fields(RunSpec)}
    assert {one.field.partition(".")[0] for one in list_options(RunSpec)} == kept - {
        "baseline_model", "options", "command", "options_from", "judged_alike"
    }  # fmt: skip
    actions = {name: action for action in build_parser()._actions for name in action.option_strings}
    page = PAGES["settings"]()
    for one in OPTIONS:
        assert one.group in GROUPS
        assert one.flag
        assert any("\u4e00" <= letter <= "\u9fff" for letter in one.zh), one.name
        help_ = actions[one.option].help
        assert isinstance(help_, Help)
        assert (str(help_) % {}, help_.text.zh % {}) == (one.help, one.zh)
        assert f"| `{one.option}` |" in page
        if one.default not in (None, "", (), {}) and not one.choices:
            assert one.read(one.default) == one.default
