"""Settings: each is declared once, read somewhere, checked before anything runs, and reaches the side that reads it."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import house_numbers
import pytest
from approval import raises_approved
from warm import command

import precision_debug
from precision_debug import Report, registry
from precision_debug.errors import UsageError
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run.plan import make_plan, make_stage_spec
from precision_debug.settings import SIDES, Setting, Taker, get_passed, share_settings, value
from precision_debug.settings.options import OPTIONS, list_options

PLUGINS = {backend.name: backend for backend in registry.backends() if backend.name in registry.BUILT_IN}


def read_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Function and literal name of each ``setting(options, NAME)`` and ``passed(options, NAME)`` in a plugin."""
    for path in folder.rglob("*.py"):
        tree = house_numbers.parse(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                literal = len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
                if node.func.id in {"setting", "passed"} and literal:
                    yield node.func.id, ast.literal_eval(node.args[1])
            if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.DictComp)) and "setting(" in ast.unparse(node):
                names = node.generators[0].iter
                if isinstance(names, ast.Tuple):
                    yield from (("setting", ast.literal_eval(name)) for name in names.elts)
        ours = {"options", "settings"} if path.name != "settings.py" else set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "get":
                assert ast.unparse(node.value).split(".")[-1] not in ours, f"{path}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_each_declared_setting_is_read_and_each_read_one_is_declared(name: str, root: Path) -> None:
    folder = root / "backends" / registry.BUILT_IN[name].partition(":")[0]
    found = set(read_in(folder))
    assert {key for how, key in found if how == "setting"} == {one.name for one in PLUGINS[name].settings}
    for how, key in found:
        if how == "passed":
            get_passed({}, key)  # KeyError where the core tells no such thing


def test_a_setting_that_is_not_declared_cannot_be_read() -> None:
    with pytest.raises(KeyError, match="no setting 'thread'"):
        value(PLUGINS["paddle"].settings, {"thread": 1}, "thread")
    with pytest.raises(KeyError):
        get_passed({"device": 1}, "device")


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_tables_are_whole(name: str) -> None:
    backend = PLUGINS[name]
    modes = [mode.name for mode in backend.run_modes]
    names = [one.name for one in backend.settings]
    assert len(set(names)) == len(names)
    for one in backend.settings:
        assert one.help
        assert any("\u4e00" <= letter <= "\u9fff" for letter in one.zh), one.name
        assert set(one.sides) <= set(SIDES)
        assert one.sides
        for pattern in one.modes:
            assert any(Setting(name="x", kind="text", help="", zh="", modes=(pattern,)).matters("target", mode)
                       for mode in modes), (one.name, pattern)  # fmt: skip
        if one.default not in (None, "", (), {}):
            assert one.read(one.default) == one.default


@pytest.mark.quick
def test_the_page_has_what_the_tables_say(tmp_path: Path) -> None:
    done = command("doctor", "--columns_page", "columns.md", "--settings_page", "settings.md")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "columns.md").is_file()
    written = (tmp_path / "settings.md").read_text(encoding="utf-8")
    for backend in PLUGINS.values():
        assert all(f"| `{'--' * one.flag}{one.name}` |" in written for one in backend.settings)


def test_help_and_doctor_name_every_setting() -> None:
    shown, told = command("--help").stdout, command("doctor", "--settings").stdout
    for backend in PLUGINS.values():
        for one in backend.settings:
            assert one.name in shown
            assert one.name in told
            assert not one.flag or f"--{one.name}" in shown


# --- kinds


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        ("flag", "True", True), ("flag", "0", False), ("flag", "no", False), ("flag", 1, True),
        ("whole", "4", 4), ("whole", 4, 4), ("whole", " 4 ", 4),
        ("size", "4G", 4 << 30), ("size", "1.5KiB", 1536), ("size", 10, 10),
        ("choice", "ONE", "one"), ("text", "a b", "a b"), ("text", "'a b'", "a b"), ("text", Path("/x"), "/x"),
        ("names", "a, b", ("a", "b")), ("names", "['a','b,c']", ("a", "b,c")), ("names", ["a"], ("a",)),
        ("pairs", "A=1,b.c = x=y", {"A": "1", "b.c": "x=y"}),
        ("pairs", ["A=1"], {"A": "1"}), ("pairs", {"A": 1}, {"A": "1"}),
        ("layers", "a:half b:int8", {"a": "half", "b": "int8"}), ("layers", {"a": "half"}, {"a": "half"}),
        ("shapes", "{'x':[1,3]}", {"x": (1, 3)}), ("shapes", {"x": [1]}, {"x": (1,)}),
    ],
)  # fmt: skip
def test_values_are_read_by_their_kind(kind: Any, given: Any, read: Any) -> None:
    one = Setting(name="x", kind=kind, help="", zh="", choices=("one", "two") if kind == "choice" else ())
    assert one.read(given) == read
    assert one.read(one.read(given)) == read  # a session reads again what the plan has read


@pytest.mark.parametrize(("low", "read"), [(None, None), (0, 0)])
def test_a_size_of_0_is_read_where_the_setting_knows_it(low: int | None, read: int | None) -> None:
    one = Setting(name="knob", kind="size", help="", zh="", low=low)
    if read is None:
        with pytest.raises(UsageError, match="above 0"):
            one.read("0")
    else:
        assert one.read("0") == read


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("flag", "perhaps"), ("flag", 2), ("whole", "1.5"), ("whole", "four"), ("whole", True), ("whole", 1.5),
        ("whole", 11), ("whole", "-1"), ("whole", "9" * 5000), ("size", "lots"), ("size", "-1"),
        ("size", "1e999"), ("size", "nan"), ("size", True), ("choice", "three"), ("choice", 1), ("text", 1j),
        ("text", b"x"), ("text", "'a'b'"), ("names", 5), ("names", "[1,2]"), ("names", "['a'"), ("names", {"a": 1}),
        ("pairs", "a"), ("pairs", "=1"), ("pairs", 3), ("layers", "a"),
        ("layers", 3), ("shapes", "x"), ("shapes", {"x": 3}), ("shapes", {"x": [-1]}),
        ("shapes", {"x": [1.5]}), ("shapes", "(" * 3000),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line_that_names_the_setting(kind: Any, given: Any) -> None:
    choices = ("one", "two") if kind == "choice" else ()
    one = Setting(name="knob", kind=kind, help="", zh="", choices=choices, low=0, high=10)
    with pytest.raises(UsageError) as caught:
        one.read(given)
    assert caught.value.exit_status == 2
    assert "knob" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


# --- sides

BOTH = Setting(name="both", kind="whole", help="", zh="")
ONE_SIDE = Setting(name="one_side", kind="text", help="", zh="", sides=("target",), flag=True)
ONE_MODE = Setting(name="one_mode", kind="text", help="", zh="", modes=("b_fp16",))
TABLE = (BOTH, ONE_SIDE, ONE_MODE)
TAKERS = [
    Taker(side="baseline", mode="b_fp32", backend="b", table=TABLE),
    Taker(side="target", mode="b_fp16", backend="b", table=TABLE),
]
OTHER = {"b": TABLE, "other": (Setting(name="foreign", kind="flag", help="", zh="", flag=True),)}


@pytest.mark.parametrize(
    ("options", "baseline", "target"),
    [
        ({"both": "1"}, {"both": 1}, {"both": 1}),
        ({"baseline.both": "1"}, {"both": 1}, {}),
        ({"target.both": 2, "both": 1}, {"both": 1}, {"both": 2}),
        ({"one_side": "a", "one_mode": "b"}, {}, {"one_side": "a", "one_mode": "b"}),
        ({"both": None}, {}, {}),
    ],
)
def test_each_side_gets_its_own_only(options: dict[str, Any], baseline: dict[str, Any], target: dict[str, Any]) -> None:
    assert share_settings(options, TAKERS, OTHER) == (baseline, target)


ENGINE = Setting(name="config", kind="pairs", help="", zh="", target_unless_said=True, native="[A-Z_]+")


@pytest.mark.parametrize(
    ("options", "baseline", "target"),
    [
        ({"config": "A=1"}, {}, {"config": {"A": "1"}}),
        ({"A_B": 1, "config": {"C": "2"}}, {}, {"config": {"A_B": "1", "C": "2"}}),
        ({"baseline.A": "1", "A": "2"}, {"config": {"A": "1"}}, {"config": {"A": "2"}}),
        ({"target.config": "A=3", "A": "2"}, {}, {"config": {"A": "3"}}),
    ],
)
def test_an_engines_own_names_reach_the_target_unless_a_side_is_named(
    options: dict[str, Any], baseline: dict[str, Any], target: dict[str, Any]
) -> None:
    takers = [dataclasses.replace(taker, table=(*TABLE, ENGINE)) for taker in TAKERS]
    assert share_settings(options, takers, {}) == (baseline, target)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"boht": 1}, "--option boht: neither the baseline b_fp32 nor the target b_fp16 takes this setting;"
                      " did you mean 'both'?"),
        ({"both": "x"}, "--option both: 'x' is not a whole number; write a whole number"),
        ({"target.both": "x"}, "--option target.both: 'x' is not a whole number"),
        ({"baseline.one_side": "a"}, "the baseline b_fp32 does not take this setting; it is for the target only"),
        ({"baseline.one_mode": "a"}, "the baseline b_fp32 does not take this setting; it applies to b_fp16"),
        ({"foreign": 1}, "--foreign: neither the baseline b_fp32 nor the target b_fp16 takes this setting;"
                         " it is a setting of the backend other"),
        ({"seed": 1}, "give it with --seed N"),
        ({"side": 1}, "--option side: is not a setting"),
        ({"baseline.memory_budget": "1G"}, "the baseline b_fp32 does not take this setting"),
        ({"boht": None}, "did you mean 'both'?"),
        ({"": 1}, "takes this setting"),
        ({"target.": 1}, "takes this setting"),
    ],
)  # fmt: skip
def test_what_no_side_takes_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        share_settings(options, TAKERS, OTHER)
    assert said.replace("takes this setting", "take") in str(caught.value).replace("takes this setting", "take")


def test_a_backend_without_a_table_says_so() -> None:
    with raises_approved(UsageError):
        share_settings({"x": 1}, [Taker(side="target", mode="old_fp16", backend="old")], {})


# --- whole commands


@pytest.fixture
def model(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests" / "fake"), os.environ["PYTHONPATH"]]))
    Path("m.fake").write_text(json.dumps({"layers": 4, "width": 4}), encoding="utf-8")
    return ["--model_file", "m.fake", "--run_mode", "fake_off", "--output", "out/r.json"]


def test_settings_reach_the_side_that_they_are_for(model: list[str]) -> None:
    done = command(*model, "--keep", "x", "--option", "offset=a,b", "--option", "target.pause=0")
    assert done.returncode == 1, done.stderr
    report = Report.load("out/r.json")
    assert report.baseline.notes == ("a fake",)
    assert report.target.notes == ("a fake", "keep='x'", "offset=('a', 'b')")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--option", "offest=a"], "--option offest: neither the baseline fake_fp32 nor the target fake_off takes this"
                                   " setting; did you mean 'offset'?"),
        (["--option", "pause=long"], "--option pause: 'long' is not a whole number; write a whole number from 0 to 9"),
        (["--option", "pause=1j"], "--option pause: '1j' is not a whole number"),
        (["--option", "pause=99"], "--option pause: 99 is not from 0 to 9"),
        (["--layer_precisions", "a:half"], "--layer_precisions: neither the baseline fake_fp32 nor the target fake_off "
                                           "takes this setting; it is a setting of the backend tensorrt"),
        (["--save_engine", "e"], "--save_engine: neither"), (["--plugins", "no_such.so"], "--plugins: neither"),
        (["--level", "op"], "--level: neither"), (["--device", "cuda:7"], "--device: neither"),
        (["--use_dynamic_shape", "1"], "--use_dynamic_shape: neither"),
        (["--min_shapes", "x:[1]"], "--min_shapes: neither"),
        (["--option", "baseline.keep=x"], "baseline fake_fp32 does not take this setting; it is for the target only"),
        (["--option", "pause"], "--option: expects KEY=VALUE"), (["--option", "pause="], "expects KEY=VALUE"),
        (["--option", "pause=1", "--option", "pause=2"], "given twice: 1 and 2"), (["--seed", "-1"], "--seed: expects"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_written(model: list[str], more: list[str], said: str) -> None:
    done = command(*model, *more)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("ort_int8", {"nodes_to_exlude": "a"}, "did you mean 'nodes_to_exclude'"),
        ("ort_int8", {"level": "op"}, "it is a setting of the backend torch"),
        ("ort_int8", {"device": "cuda:7"}, "--device: neither"),
        ("ort_int8", {"use_tf32": 0}, "it applies to ort_cuda_"),
        ("ort_int8", {"intra_op_num_threads": 99999}, "99999 is not from 0 to 256"),
        ("ort_int8", {"intra_op_num_threads": "99999"}, "is not from 0 to 256"),
        ("ort_int8", {"intra_op_num_threads": "two"}, "is not a whole number"),
        ("ort_int8", {"calibration": "guess"}, "'guess' is not one of minmax"),
        ("ort_int8", {"per_channel": object()}, "neither true nor false"),
        ("onnx_ref", {"target.verbose": True}, "the target onnx_ref does not take this setting"),
    ],
)
def test_the_python_api_refuses_them_too(mode: str, options: dict[str, Any], said: str, root: Path) -> None:
    with pytest.raises(UsageError) as caught:
        precision_debug.compare(root / "examples/digits/digits.onnx", run_mode=mode, output="o.json", **options)
    assert said in str(caught.value)
    assert not Path("o.json").exists()


def test_a_paddle_baseline_beside_a_tensorrt_target_has_settings_of_both() -> None:
    for name in ("m.onnx", "m.json"):
        Path(name).write_text("{}", encoding="utf-8")
    spec = RunSpec(
        model=ModelFiles(model_file="m.onnx"), run_mode="trt_fp16", baseline="paddle_fp32",
        baseline_model=ModelFiles(model_file="m.json"),
        options={"workspace": "2G", "threads": 3, "save_engine": "e.engine", "mark_builds": 5},
    )  # fmt: skip
    plan = make_plan(spec, check_machine=False)
    assert plan.baseline is not None
    told = {"seed": 0, "target_mode": "trt_fp16"}
    assert plan.baseline.spec.options == {"threads": 3, "mark_builds": 5, "side": "baseline", **told}
    assert plan.target.spec.options == {"workspace": 2 << 30, "save_engine": "e.engine", "side": "target", **told}


def test_a_stage_of_the_ladder_leaves_out_what_its_mode_does_not_read() -> None:
    Path("m.json").write_text("{}", encoding="utf-8")
    given = {"bfloat16_ops": "conv2d", "threads": "2", "baseline.fetch_bytes": "1M"}
    spec = RunSpec(model=ModelFiles(model_file="m.json"), run_mode="onednn_bf16", options=given)
    make_plan(spec, check_machine=False)
    stage = make_stage_spec(spec, "cpu_opt", {"delete_pass": ["a"]})
    kept = {"threads": "2", "baseline.fetch_bytes": "1M", "target.delete_pass": ["a"]}
    assert stage.options == kept
    make_plan(stage, check_machine=False)
    assert make_stage_spec(spec, "onednn_bf16", {}).options == given


def test_fused_only_is_told_to_engines_that_have_it() -> None:
    Path("m.onnx").write_text("", encoding="utf-8")
    for mode, told in (("trt_fp16", True), ("ort_opt", False)):
        spec = RunSpec(model=ModelFiles(model_file="m.onnx"), run_mode=mode, fused_only=True)
        plan = make_plan(spec, check_machine=False)
        assert plan.target.spec.options.get("fused_only", False) is told
        assert plan.baseline is not None
        assert "fused_only" not in plan.baseline.spec.options


def test_the_core_has_no_setting_of_a_backends_name() -> None:
    ours = {one.name for one in list_options(RunSpec)} - {"fused_only"}  # which TensorRT's engines are built by, too
    for backend in PLUGINS.values():
        assert all(one in OPTIONS for one in backend.settings if one.name in ours)
