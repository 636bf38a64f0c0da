"""Marks: words to names, against a naive model, and Paddle's two functions."""

from __future__ import annotations

import json
import re
from fnmatch import translate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import precision_debug
from precision_debug.errors import MarkError, ModelError
from precision_debug.pairing.marks import (
    assign_mark_names,
    get_mark_names_from_serialized_json,
    read_marks_file,
    select,
)

DATA = Path(__file__).parent / "data" / "inspector"
NAMES = ("x", "conv1_out", "relu1_out", "conv2_out", "a*b", "re:odd", "y[0]", "y")


def fails(*parts, kind=MarkError):
    return pytest.raises(kind, match="".join(f"(?=.*{re.escape(part)})" for part in parts) + r"[^\n]*\Z")


@pytest.mark.parametrize(
    ("words", "between", "expected"),
    [
        ([], None, NAMES),
        (["y", "x"], None, ("x", "y")),
        (["x", "x", "?"], None, ("x", "y")),
        (["conv*"], None, ("conv1_out", "conv2_out")),
        (["re:(conv|relu)1_.*"], None, ("conv1_out", "relu1_out")),
        (["re:.*1"], None, None),
        (["a*b"], None, ("a*b",)),
        (["re:odd"], None, ("re:odd",)),
        (["y[?]"], None, ("y[0]",)),
        (["y[0-9]"], None, None),
        ([], ("conv1_out", "conv2_out"), ("conv1_out", "relu1_out", "conv2_out")),
        ([], ("y", "y"), ("y",)),
        (["conv*", "x"], ("relu1_out", "y"), ("conv2_out",)),
        (["x"], ("relu1_out", "y"), None),
    ],
)
def test_select(words, between, expected):
    if expected is None:
        with fails():
            select(words, between, NAMES)
    else:
        assert select(words, between, NAMES) == expected


ALPHABET = st.sampled_from("ab12_.*?")
NAME = st.text(ALPHABET, min_size=1, max_size=5)


@given(
    names=st.lists(NAME, unique=True, min_size=1, max_size=12),
    words=st.lists(NAME | NAME.map(lambda text: "re:" + re.escape(text) + ".?"), max_size=4),
    data=st.data(),
)
def test_select_agrees_with_a_naive_model(names, words, data):
    between = None
    if data.draw(st.booleans()):
        between = (data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names)))

    def naive(word, name):
        if word in names:
            return word == name
        if word.startswith("re:"):
            return re.fullmatch(word[3:], name) is not None
        return ("*" in word or "?" in word) and re.match(translate(word), name) is not None

    start, end = (0, len(names) - 1) if between is None else map(names.index, between)
    wrong = start > end or any(not any(naive(word, name) for name in names) for word in words)
    expected = tuple(name for name in names[start : end + 1] if not words or any(naive(word, name) for word in words))
    if wrong or not expected:
        with pytest.raises(MarkError):
            select(words, between, names)
    else:
        assert select(words, between, names) == expected


def test_an_unknown_name_shows_the_nearest():
    with fails("no tensor is called 'conv1_ot'", "did you mean 'conv1_out'", "8 tensors"):
        select(["conv1_ot"], None, NAMES)
    with fails("no tensor matches 'conv9*', 'q', 'w'", "did you mean"):
        select(["conv9*", "q", "w"], None, NAMES)
    with fails("no tensor is called 'zzz'", "it has 'x', 'conv1_out'"):
        select(["zzz"], None, NAMES)
    with fails("no tensor is called 'zzz'", "precision_debug marks"):
        select(["zzz"], None, (*NAMES, "one more"))
    with fails("no tensor is called 'conv'", "'*conv*' matches 2"):
        select(["conv"], None, NAMES)
    with fails("not a regular expression", "re:("):
        select(["re:("], None, NAMES)


def test_sections_the_wrong_way_round_or_unknown():
    with fails("'y' runs after 'x'", "--marks_between x y"):
        select([], ("y", "x"), NAMES)
    with fails("no tensor is called 'relu1_ou'", "'relu1_out'"):
        select([], ("x", "relu1_ou"), NAMES)
    with fails("none of the 1 marked tensors lies between 'relu1_out' and 'y'"):
        select(["x"], ("relu1_out", "y"), NAMES)


@pytest.mark.timeout(60)  # of what takes a second; a search of all names for each name would take an hour
def test_a_hundred_thousand_names():
    names = [f"/layers.{i}/{kind}/out" for i in range(20000) for kind in "abcde"]
    assert len(select(names[::2], (names[10], names[-10]), names)) == 49991
    assert len(select(["re:.*/a/out", "*/b/out"], None, names)) == 40000
    with fails("'/layers.777/a/out'"):
        select(["/layers.777/a/ou"], None, names)


# files


def test_marks_files(tmp_path):
    file = tmp_path / "marks.txt"
    file.write_text("\ufeff# the head\nconv*\n\n  y   # and the end\ny#1\nconv*\n", encoding="utf-8")
    assert read_marks_file(file) == ("conv*", "y", "y#1")
    file.write_text(' ["a", "re:b.*", "a"]')
    assert read_marks_file(file) == ("a", "re:b.*")


@pytest.mark.parametrize(
    ("text", "part"), [("", "has no names"), ("# x", "has no names"), ("[", "JSON"), ('["a", 1]', "more than names")]
)
def test_bad_marks_files(tmp_path, text, part):
    (tmp_path / "m.txt").write_text(text)
    with fails("m.txt", part):
        read_marks_file(tmp_path / "m.txt")


def test_a_marks_file_that_is_not_there(tmp_path):
    with fails("nowhere.txt", "cannot be read"):
        read_marks_file(tmp_path / "nowhere.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with fails("binary", "cannot be read"):
        read_marks_file(tmp_path / "binary")


# Paddle's functions


def test_assign_mark_names():
    names = ["a", "b", "c", "d", "b", "e", "c"]
    assert assign_mark_names("b", "c", names) == ["b", "c", "e"]
    assert assign_mark_names(["a", "d"], ["b"], names) == ["a", "b", "d"]
    assert assign_mark_names("e", [], names) == ["e", "c"]
    with fails("no end comes after the start 'd'", "exchange"):
        assign_mark_names("d", "a", names)
    with fails("'q'"):
        assign_mark_names("q", "c", names)


def test_assign_mark_names_takes_a_save_baseline():
    base = precision_debug.SaveBaseline()
    for name in "abcd":
        base("Op", name, [1.0])
    assert assign_mark_names("b", "c", baseline=base) == ["b", "c"]


def test_assign_mark_names_reads_what_the_demos_hook_wrote(tmp_path, monkeypatch):
    lines = [f">>>> save_baseline_hook: {op} {name}" for op, name in [("conv2d", "c_0"), ("relu", "r:0"), ("fc", "f")]]
    (tmp_path / "save_baseline.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    assert assign_mark_names("c_0", "r:0") == ["c_0", "r:0"]
    with fails("nowhere", "cannot be read"):
        assign_mark_names("a", "b", tmp_path / "nowhere")


def test_names_from_paddles_inspector_file(tmp_path, monkeypatch):
    names = get_mark_names_from_serialized_json(DATA / "paddle26_trt853_resnet18_fp16.json")
    assert len(names) == 23
    assert names[:3] == ["relu_0.tmp_0", "pool2d_0.tmp_0", "relu_1.tmp_0"]
    assert names[-1] == "save_infer_model/scale_0.tmp_0"
    every = get_mark_names_from_serialized_json(DATA / "paddle26_trt853_resnet18_fp16_marked.json")
    assert len(every) == 50
    assert set(names) <= set(every)

    (tmp_path / "cache").mkdir()
    for number, source in enumerate(["paddle26_trt853_resnet18_fp32", "paddle26_trt853_resnet18_fp16_marked"]):
        (tmp_path / "cache" / f"engine_info_{number}.json").write_bytes((DATA / f"{source}.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert get_mark_names_from_serialized_json() == list(dict.fromkeys([*names, *every]))


def test_names_from_tensorrts_own_file():
    names = get_mark_names_from_serialized_json(str(DATA / "trt86_resnet18_fp16.json"))
    assert (len(names), names[0], names[-1]) == (23, "/Relu_output_0", "y")


def test_what_paddle_did_not_name_is_left_out_beside_what_it_did(tmp_path):
    layers = [{"Name": n, "LayerType": "x", "Outputs": [{"Name": n}]} for n in ("a_subgraph_1", "engine_thing")]
    (tmp_path / "e.json").write_text(json.dumps(layers))
    assert get_mark_names_from_serialized_json(tmp_path / "e.json") == ["a"]


def test_no_file_is_one_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fails("cache/engine_info_*.json", kind=ModelError):
        get_mark_names_from_serialized_json()


def test_both_are_public():
    assert precision_debug.assign_mark_names is assign_mark_names
    assert precision_debug.get_mark_names_from_serialized_json is get_mark_names_from_serialized_json
