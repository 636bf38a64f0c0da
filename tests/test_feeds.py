"""Feeds: what is made, what is read, and what is refused with one line."""

from __future__ import annotations

import base64
import io
import json
import re
import string
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from approval import begins_approved, holds_approved
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from precision_debug.errors import InputError, OutputError, PrecisionDebugError, UsageError
from precision_debug.feeds import FeedSet, check_feeds, make_feeds, save_feeds
from precision_debug.feeds.dtypes import as_dtype, cast_exactly, dtype_name
from precision_debug.records import InputMeta
from precision_debug.safety.nearest import find_nearest
from precision_debug.settings.setting import parse_shapes, parse_val_range

EXTENDED = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "int4", "uint4"]
PINNED_FLOATS = ["0x1.2e8cc20000000p-1", "0x1.52e1900000000p-2", "0x1.c69a960000000p-1"]
PINNED_INTS = [35, 46, 97, 52, 65, 38]
PLAIN = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint64", "bool", "complex64"]


def meta(name, dtype="float32", shape=(2, 3), optional=False):
    return InputMeta(name=name, dtype=dtype, shape=shape, optional=optional)


def fails(*parts, kind=InputError):
    """The error is ours, on one line, and says these things."""
    return pytest.raises(kind, match="(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts) + r"\A[^\n]*\Z")


def same(one, other):
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


# random


def test_random_has_each_inputs_own_type_and_shape():
    inputs = [meta(name, name, ("batch", 3)) for name in (*PLAIN, *EXTENDED, "str")]
    made = make_feeds(inputs, shapes={"float32": (4, 3)}, val_range={"": (-2, 2), "float64": (5, 6)}, seed=3)
    feeds = made.feeds[0]
    assert [*feeds] == [one.name for one in inputs]
    for name, value in feeds.items():
        assert dtype_name(value.dtype) == name
        assert value.shape == (4, 3), "a named dimension is the same in every input"
    assert made.source == "seeded random (seed 3)"
    assert 5 <= feeds["float64"].min() <= feeds["float64"].max() <= 6
    assert feeds["float32"].min() < 0
    assert set(feeds["int64"].ravel()) <= {-2, -1, 0, 1, 2}
    assert set(feeds["uint8"].ravel()) <= {0, 1, 2}, "a range for all inputs is cut to the type"
    assert begins_approved(made.notes)
    assert not any("chosen" in note for note in made.notes)


def test_random_defaults():
    made = make_feeds([meta("x", shape=("n", "c", 50, 50)), meta("i", "int32", (100,)), meta("b", "bool", (100,))])
    assert made.feeds[0]["x"].shape == (2, 3, 50, 50)
    assert 0 <= made.feeds[0]["x"].min() < 0.1 < 0.9 < made.feeds[0]["x"].max() <= 1
    assert set(made.feeds[0]["i"]) == {0, 1}
    assert set(made.feeds[0]["b"]) == {False, True}
    told = "x: batch 2, channels 3 chosen for dimensions that the model leaves open;"
    told += " --input_shapes x:[2,3,50,50] sets others"
    assert told in made.notes


def test_random_is_a_stream_of_its_own_for_each_input():
    alone = make_feeds([meta("x")], seed=7).feeds[0]
    joined = make_feeds([meta("a"), meta("x"), meta("b", "int64")], seed=7).feeds[0]
    assert same(alone["x"], joined["x"])
    assert not same(joined["a"], joined["x"])
    assert not same(alone["x"], make_feeds([meta("x")], seed=8).feeds[0]["x"])


def test_random_is_the_same_on_every_machine():
    made = make_feeds([meta("x", shape=(3,)), meta("i", "int64", (6,))], val_range={"i": (0, 99)})
    assert [float(v).hex() for v in made.feeds[0]["x"]] == PINNED_FLOATS
    assert made.feeds[0]["i"].tolist() == PINNED_INTS


def test_random_scalars_empties_and_wide_ranges():
    made = make_feeds(
        [
            meta("s", shape=()),
            meta("i", "int64", ()),
            meta("t", "str", ()),
            meta("e", shape=(0, 3)),
            meta("w", shape=(9,)),
        ],
        val_range={"w": (-3e38, 3e38)},
    ).feeds[0]
    assert made["s"].shape == made["i"].shape == made["t"].shape == ()
    assert made["e"].shape == (0, 3)
    assert np.isfinite(made["w"]).all()


def test_random_leaves_out_what_has_a_default():
    made = make_feeds([meta("x"), meta("y", optional=True), meta("z", optional=True)], shapes={"z": (2, 3)})
    assert [*made.feeds[0]] == ["x", "z"]
    assert ("inputs_left_out", "'y'") in [(note.code, note.args.get("names")) for note in made.notes]


@pytest.mark.parametrize(("dtype", "form"), [("sequence", "[array, array]"), ("map", "{key: value}")])
def test_what_is_not_made_up_is_told_in_its_form(dtype, form):
    with fails("'x'", dtype, form):
        make_feeds([meta("x", dtype, shape=None)])


@pytest.mark.parametrize("dtype", ["sequence", "map"])
def test_an_array_is_no_sequence_and_no_map(dtype, tmp_path):
    """What only a script can give, and a file of arrays was given."""
    np.savez(tmp_path / "x.npz", x=np.ones(3, np.float32))
    with fails("'x'", dtype, "SCRIPT.py"):
        make_feeds([meta("x", dtype, shape=None)], source=str(tmp_path / "x.npz"))
    given = FeedSet(feeds=({"x": [np.ones(3)] if dtype == "sequence" else {"k": np.ones(3)}},), source="here")
    assert [*check_feeds([meta("x", dtype, shape=None)], given).feeds[0]] == ["x"]


@pytest.mark.parametrize(
    ("inputs", "options", "parts"),
    [
        ([meta("x", shape=None)], {}, ["'x'", "--input_shapes x:"]),
        ([meta("x", "seq(tensor(float))")], {}, ["'x'", "seq(tensor(float))", "--inputs"]),
        ([meta("pixels")], {"shapes": {"pixel": (2, 3)}}, ["'pixel'", "did you mean 'pixels'"]),
        ([meta("pixels")], {"val_range": {"pixel": (0, 1)}}, ["--val_range", "did you mean 'pixels'"]),
        ([meta("x")], {"shapes": {"x": (2, 4)}}, ["[2, 4]", "[2, 3]"]),
        ([meta("x")], {"shapes": {"x": (2,)}}, ["[2]", "[2, 3]"]),
        ([meta("x", "float16")], {"val_range": {"": (0, 1e6)}}, ["'x'", "float16", "65504"]),
        ([meta("x", "uint8")], {"val_range": {"x": (-1, 1)}}, ["'x'", "uint8", "0 to 255"]),
        ([meta("x", "int64")], {"val_range": {"x": (0.2, 0.8)}}, ["'x'", "no whole number"]),
        ([meta("x", shape=("n",))], {"shapes": {"x": (1 << 50,)}}, ["'x'", "does not fit in memory"]),
    ],
)
def test_random_refusals(inputs, options, parts):
    with fails(*parts):
        make_feeds(inputs, **options)


# save and load


@st.composite
def any_array(draw):
    name = draw(st.sampled_from([*PLAIN, *EXTENDED, "str"]))
    shape = draw(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    dtype = as_dtype(name)
    if name == "str":
        texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
        size = int(np.prod(shape))
        return np.array(draw(st.lists(texts, min_size=size, max_size=size)), dtype=np.str_).reshape(shape)
    if name == "bool":
        return draw(npst.arrays(np.bool_, shape))
    bits = draw(npst.arrays(np.uint8, (*shape, dtype.itemsize)))
    if name in ("int4", "uint4"):
        bits &= 15
    return np.frombuffer(bits.tobytes(), dtype=dtype).reshape(shape)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(
    ["a/b:0", "x:0", "/x", "__feeds__", "__array_0__", "file", "x.npy", "../up", "a\\b", "a\0b", "arr_0", "ä" * 300]
)


@settings(deadline=None, max_examples=150)
@given(sets=st.lists(st.dictionaries(NAMES, any_array(), min_size=1, max_size=4), min_size=1, max_size=3))
def test_saved_feeds_come_back_bit_for_bit(tmp_path_factory, sets):
    keys = sets[0]
    sets = [{name: one.get(name, value) for name, value in keys.items()} for one in sets]
    sets = [
        {n: v if v.dtype.kind == keys[n].dtype.kind and v.dtype == keys[n].dtype else keys[n] for n, v in one.items()}
        for one in sets
    ]
    path = tmp_path_factory.mktemp("feeds") / "inputs.npz"
    inputs = [meta(name, dtype_name(value.dtype), None) for name, value in keys.items()]
    save_feeds(path, sets)
    back = make_feeds(inputs, source=str(path))
    assert len(back.feeds) == len(sets)
    for one, other in zip(sets, back.feeds, strict=True):
        assert [*one] == [*other]
        assert all(same(one[name], other[name]) for name in one)
    assert not any("converted" in note or "raw" in note for note in back.notes)
    assert {entry.name for entry in path.parent.iterdir()} == {"inputs.npz"}


def test_saved_feeds_are_plain_numpy_and_reproducible(tmp_path):
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "a/b:0": np.ones(2, np.int64)}
    first = save_feeds(tmp_path / "deep" / "a.npz", feeds)
    second = save_feeds(tmp_path / "b.npz", [feeds])
    assert first.read_bytes() == second.read_bytes()
    with np.load(first, allow_pickle=False) as archive:
        assert same(archive["x"], feeds["x"])
        assert same(archive["a/b:0"], feeds["a/b:0"])
    assert first.stat().st_mode & 0o600 == 0o600


def test_values_that_are_no_arrays_survive(tmp_path):
    sequence = [np.ones(2, np.float32), np.zeros((0, 1), ml_dtypes.bfloat16)]
    path = save_feeds(tmp_path / "a.npz", {"s": sequence, "o": None, "m": {"a": 0.5, "bc": -2.0}, "n": {3: "x"}})
    made = make_feeds(
        [
            meta("s", "seq(tensor(float))", None), meta("o", "optional(tensor(float))", None),
            meta("m", "map", None), meta("n", "map", None),
        ],
        source=str(path),
    )  # fmt: skip
    assert made.feeds[0]["m"] == {"a": 0.5, "bc": -2.0}
    assert made.feeds[0]["n"] == {3: "x"}
    assert same(made.feeds[0]["s"], sequence)
    assert made.feeds[0]["o"] is None
    assert any(note.startswith("s: type seq") for note in made.notes)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = save_feeds(tmp_path / "a.npz", {"x": np.ones(2)})
    before = path.read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with fails("No space left", str(path), kind=OutputError):
        save_feeds(path, {"x": np.zeros(2)})
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]
    with fails("end the name with .npz", kind=OutputError):
        save_feeds(tmp_path / "a.json", {})


# files of the user


def test_plain_npz_npy_and_folders(tmp_path):
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    np.savez(tmp_path / "plain.npz", x=x)
    np.savez(tmp_path / "unnamed.npz", x)
    np.save(tmp_path / "one.npy", x)
    for source in ("plain.npz", "unnamed.npz", "one.npy"):
        assert same(make_feeds([meta("x")], source=str(tmp_path / source)).feeds[0]["x"], x)

    folder = tmp_path / "by_name"
    folder.mkdir()
    np.save(folder / "x.npy", x)
    np.save(folder / "a_b_0.npy", y)
    made = make_feeds([meta("a/b:0"), meta("x")], source=str(folder))
    assert same(made.feeds[0]["a/b:0"], y)
    assert [*made.feeds[0]] == ["a/b:0", "x"]

    folder = tmp_path / "sets"
    folder.mkdir()
    for number in (10, 9, 1):
        np.savez(folder / f"set{number}.npz", x=x * number)
    assert [one["x"][0, 0] for one in make_feeds([meta("x")], source=str(folder)).feeds] == [1, 9, 10]

    only = make_feeds([meta("z", optional=True), meta("x")], source=str(tmp_path / "one.npy"))
    assert [*only.feeds[0]] == ["x"]
    assert "inputs_left_out" in [note.code for note in only.notes]


def test_onnx_test_data_set(tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs the onnx package")
    arrays = {"x": np.ones((2, 3), np.float32), "y": np.arange(4, dtype=np.int64)}
    inputs = [meta("x"), meta("y", "int64", (4,)), meta("s", "seq(tensor(float))", None)]
    for number in range(2):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        for index, (name, value) in enumerate(arrays.items()):
            proto = onnx.numpy_helper.from_array(value * (number + 1), name)
            (folder / f"input_{index}.pb").write_bytes(proto.SerializeToString())
        listed = onnx.numpy_helper.from_list([np.ones(2, np.float32)], "s")
        (folder / "input_2.pb").write_bytes(listed.SerializeToString())
        (folder / "output_0.pb").write_bytes(b"")
    made = make_feeds(inputs, source=str(tmp_path))
    assert len(made.feeds) == 2
    assert same(made.feeds[1]["y"], arrays["y"] * 2)
    assert same(made.feeds[0]["s"], [np.ones(2, np.float32)])
    assert len(make_feeds(inputs, source=str(tmp_path / "test_data_set_0")).feeds) == 1
    (tmp_path / "test_data_set_0" / "input_1.pb").write_bytes(b"\xff\xff\xff")
    with fails("input_1.pb", "cannot be read as int64"):
        make_feeds(inputs, source=str(tmp_path))


def test_pb_without_the_onnx_package(tmp_path, monkeypatch):
    (tmp_path / "input_0.pb").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with fails("need the onnx package", "pip install onnx"):
        make_feeds([meta("x")], source=str(tmp_path))


POLYGRAPHY = Path(__file__).parent / "data" / "polygraphy_inputs.json"


def test_polygraphys_own_file():
    """Committed: written by polygraphy 0.53.6, save_json([{"x": ..., "ids": ...}, {...}], ...)."""
    made = make_feeds([meta("x", shape=("n", 3)), meta("ids", "int32", ("n",))], source=str(POLYGRAPHY))
    assert same(made.feeds[0]["x"], np.arange(6, dtype=np.float32).reshape(2, 3))
    assert made.feeds[1]["ids"].tolist() == [3, 4]
    assert holds_approved(made.notes)


def test_what_polygraphy_writes_here(tmp_path):
    polygraphy = pytest.importorskip("polygraphy.json", reason="needs polygraphy")
    feeds = [{"x": np.full((2, 3), i, np.float32)} for i in range(3)]
    polygraphy.save_json(feeds, str(tmp_path / "in.json"))
    made = make_feeds([meta("x")], source=str(tmp_path / "in.json"))
    assert all(same(one["x"], other["x"]) for one, other in zip(feeds, made.feeds, strict=True))


def test_json_with_older_keys_bfloat16_bits_and_plain_numbers(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([1.5, 2], ml_dtypes.bfloat16))
    text = base64.b64encode(buffer.getvalue()).decode()
    (tmp_path / "a.json").write_text(
        json.dumps([{"h": {"array": text, "type": "ndarray"}, "x": [[0.1, 2, 3], [4, 5, 6]]}])
    )
    made = make_feeds([meta("h", "bfloat16", (2,)), meta("x")], source=str(tmp_path / "a.json"))
    assert made.feeds[0]["h"].astype(np.float32).tolist() == [1.5, 2]
    assert made.feeds[0]["x"][0, 0] == np.float32(0.1)
    (note,) = made.notes
    assert (note.code, note.args) == ("input_raw", {"name": "h", "bytes": 2, "dtype": "bfloat16"})


# scripts


def script(tmp_path, text):
    path = tmp_path / "feeds_script.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "function", "sets"),
    [
        ("def load_data():\n    return {'x': np.ones((2, 3), np.float32)}", "", 1),
        ("def load_data():\n    for i in range(3):\n        yield {'x': np.full((2, 3), i, np.float32)}", "", 3),
        ("def mine():\n    return [{'x': [[1, 2, 3], [4, 5, 6]]}] * 2", ":mine", 2),
        ("import neighbour\ndef load_data():\n    return {'x': neighbour.X}", "", 1),
    ],
)
def test_scripts(tmp_path, text, function, sets):
    (tmp_path / "neighbour.py").write_text("import numpy as np\nX = np.ones((2, 3), np.float32)")
    path = script(tmp_path, "import numpy as np\n" + text)
    before = list(sys.path)
    try:
        made = make_feeds([meta("x")], source=f"{path}{function}")
    finally:
        sys.modules.pop("neighbour", None)
    assert len(made.feeds) == sets
    assert made.feeds[0]["x"].dtype == np.float32
    assert sys.path == before


@pytest.mark.parametrize(
    ("text", "function", "parts"),
    [
        ("\ndef load_data():\n    return missing_name", "", ["feeds_script.py:3", "NameError"]),
        ("def load_data():\n    yield {}\n    raise SystemExit(3)", "", ["feeds_script.py:3", "SystemExit"]),
        ("def load_data(:", "", ["feeds_script.py:1", "SyntaxError"]),
        ("import no_such_module_here", "", ["feeds_script.py:1", "no_such_module_here"]),
        ("def other():\n    return {}", "", ["no function 'load_data'", "it defines other"]),
        ("x = 1", ":f", ["no function 'f'", "define f()"]),
        ("def load_data(path):\n    return {}", "", ["TypeError", "path"]),
        ("def load_data():\n    return 3", "", ["returned int"]),
        ("def load_data():\n    return [3]", "", ["sample set 1 is int"]),
        ("def load_data():\n    return []", "", ["no sample set"]),
        ("def load_data():\n    while True:\n        yield {}", "", ["more than 1048576"]),
        ("def load_data():\n    return [{'x': [[1, 2, 3]] * 2}, {'y': 1}]", "", ["sample set 2", "no input 'y'"]),
    ],
)
def test_script_errors_are_one_line(tmp_path, text, function, parts):
    with fails(*parts):
        make_feeds([meta("x")], source=f"{script(tmp_path, text)}{function}")


def test_script_errors_are_chained(tmp_path):
    with pytest.raises(InputError) as caught:
        make_feeds([meta("x")], source=str(script(tmp_path, "1 / 0")))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with fails("cannot be read", "nowhere.py"):
        make_feeds([meta("x")], source=str(tmp_path / "nowhere.py"))


# checks


def given_feeds(**feeds):
    return FeedSet(feeds=(feeds,), source="here")


@pytest.mark.parametrize(
    ("inputs", "feeds", "parts"),
    [
        (
            [meta("pixels")],
            {"pixel": np.ones((2, 3), np.float32)},
            ["here: the model has no input 'pixel'", "'pixels'"],
        ),
        ([meta("x")], {"x": np.ones((2, 3), np.float32), "qqq": 1}, ["no input 'qqq'", "the model's inputs: 'x'"]),
        ([meta("x"), meta("y")], {"x": np.ones((2, 3), np.float32)}, ["no value for 'y'", "it has 'x'"]),
        ([meta("x")], {"x": np.ones((3, 2), np.float32)}, ["'x'", "[3, 2]", "expects [2, 3]"]),
        ([meta("x", shape=("n", 3))], {"x": np.ones(3, np.float32)}, ["[3]", "expects [n, 3]"]),
        ([meta("x")], {"x": np.full((2, 3), 0.1)}, ["'x' is float64", "expects float32", "would change"]),
        ([meta("x", "int32")], {"x": np.full((2, 3), 2**40)}, ["int64", "int32", "would change"]),
        ([meta("x", "int32")], {"x": np.full((2, 3), np.nan)}, ["float64", "int32"]),
        ([meta("x", "bfloat16")], {"x": np.ones((2, 3), np.uint16)}, ["uint16", "values or bits"]),
        ([meta("x")], {"x": np.array([["a"] * 3] * 2)}, ["'x' is str", "float32"]),
        ([meta("x", "str", (1,))], {"x": np.ones(1)}, ["float64", "str"]),
        ([meta("x", "str", (1,))], {"x": ["a\0b"]}, ["NUL"]),
        ([meta("x", "str", (1,))], {"x": np.array([b"\xff"])}, ["not UTF-8"]),
        ([meta("x")], {"x": [object()] * 6}, ["Python objects"]),
        ([meta("x")], {"x": [[1, 2], [3]]}, ["'x' cannot become an array"]),
    ],
)
def test_refused_feeds(inputs, feeds, parts):
    with fails(*parts):
        check_feeds(inputs, given_feeds(**feeds))


def test_conversions_that_keep_the_values_are_noted():
    made = check_feeds(
        [
            meta("x"), meta("i", "int64", (2,)), meta("b", "bfloat16", (1,)), meta("t", "str", (2,)),
            meta("e", "float32", (1,)),
        ],
        given_feeds(
            x=np.full((2, 3), 0.5), i=np.array([1, 2], np.int32), b=np.ones(1, np.float32),
            t=np.array(["a", b"b"], dtype=object), e=np.ones(1, ">f4"),
        ),
    )  # fmt: skip
    assert made.feeds[0]["x"].dtype == np.float32
    assert made.feeds[0]["t"].tolist() == ["a", "b"]
    assert {note.code for note in made.notes} == {"input_converted"}
    assert [tuple(note.args.values()) for note in made.notes] == [
        ("x", "float64", "float32"), ("i", "int32", "int64"), ("b", "float32", "bfloat16"),
    ]  # fmt: skip


def test_non_finite_values_are_noted():
    values = np.array([np.nan, np.inf, -np.inf, 1], ml_dtypes.bfloat16)
    made = check_feeds([meta("x", "bfloat16", (4,))], given_feeds(x=values))
    (note,) = made.notes
    assert (note.code, note.args) == ("input_non_finite", {"name": "x", "nan": 1, "inf": 2, "count": 4})


def test_a_source_that_does_not_fit_its_options(tmp_path):
    path = save_feeds(tmp_path / "a.npz", {"x": np.ones((2, 3), np.float32)})
    with fails("[2, 3]", "expects [4, 3]"):
        make_feeds([meta("x", shape=("n", 3))], source=str(path), shapes={"x": (4, 3)})
    made = make_feeds([meta("x")], source=str(path), val_range={"x": (0, 1)})
    assert [note.code for note in made.notes] == ["range_idle"]


def test_sources_that_cannot_be_read(tmp_path):
    inputs = [meta("x")]
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    np.save(tmp_path / "mixed" / "x.npy", np.ones(1))
    np.savez(tmp_path / "mixed" / "x.npz", np.ones(1))
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "whole.npz", x=np.ones((2, 3), np.float32))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "text.txt").write_text("")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "run.json").write_text('{"lst": [], "polygraphy_class": "RunResults"}')
    (tmp_path / "torch.json").write_text('[{"x": {"tensor": "..", "polygraphy_class": "Tensor"}}]')
    (tmp_path / "cut.json").write_text('[{"x": {"array": "k05V", "polygraphy_class": "ndarray"}}]')
    cases = {
        "nowhere.npz": "no such file", "empty": "has no .npz", "mixed": ".npz files and .npy files",
        "pickle.npy": "Python objects", "cut.npz": "cannot be read", "cut.npy": "cannot be read",
        "text.txt": "'.txt' files cannot be read", "bad.json": "not readable JSON", "run.json": "holds RunResults",
        "torch.json": "stored as Tensor", "cut.json": "'x' is damaged",
    }  # fmt: skip
    for name, part in cases.items():
        with fails(part, name):
            make_feeds(inputs, source=str(tmp_path / name))
    with fails("2 inputs: x, y"):
        make_feeds([*inputs, meta("y")], source=str(tmp_path / "pickle.npy"))


def test_a_damaged_index_is_refused(tmp_path):
    for number, index in enumerate(
        ['{"version": 9, "sets": []}', "{", '{"version": 1, "sets": [[["x", {"key": "no"}]]]}']
    ):
        np.savez(tmp_path / f"{number}.npz", __feeds__=np.array(index))
    with fails("format 9"):
        make_feeds([meta("x")], source=str(tmp_path / "0.npz"))
    for number in (1, 2):
        with fails("damaged"):
            make_feeds([meta("x")], source=str(tmp_path / f"{number}.npz"))


NUMERIC = [*PLAIN[:-1], *EXTENDED]


@settings(deadline=None, max_examples=400)
@given(data=st.data(), have=st.sampled_from(NUMERIC), want=st.sampled_from(NUMERIC))
def test_exact_cast_keeps_every_value_or_refuses(data, have, want):
    source, target = as_dtype(have), as_dtype(want)
    if have == "bool":
        array = data.draw(npst.arrays(np.bool_, 3))
    else:
        raw = data.draw(npst.arrays(np.uint8, (3, source.itemsize)))
        array = np.frombuffer((raw & 15 if "int4" in have else raw).tobytes(), source).copy()
        if data.draw(st.booleans()):
            with np.errstate(all="ignore"):
                array = data.draw(npst.arrays(np.int8, 3, elements=st.integers(-8, 7))).astype(source)
    result = cast_exactly(array, target)
    exact = [_number(value) for value in array]
    with np.errstate(all="ignore"):
        wide = array.astype(np.int8 if "int4" in have else np.float32) if have in EXTENDED else array
        naive = [_number(value) for value in wide.astype(target)]
    if result is not None:
        assert result.dtype == target
        assert [_number(value) for value in result] == exact
    elif "nan" not in exact and "inf" not in map(str, exact):
        fits = naive == exact and _in_range(exact, target)
        assert not fits, f"{exact} fit {want}"


def _number(value):
    """An exact, comparable number: an int of any size, a float, or "nan"."""
    number = float(value) if not isinstance(value, np.integer) else int(value)
    if number != number:
        return "nan"
    return int(number) if abs(number) != float("inf") and number == int(number) else number


def _in_range(numbers, target):
    if target.kind == "b":
        return all(number in (0, 1) for number in numbers)
    if target.kind in "iu" or "int" in target.name:
        info = ml_dtypes.iinfo(target)
        return all(int(info.min) <= number <= int(info.max) for number in numbers)
    return True


# the command line's words


LABEL = st.text(string.ascii_letters + string.digits + "_/.:[]- ", min_size=1, max_size=12).map(str.strip).filter(bool)


@given(name=LABEL, shape=st.lists(st.integers(0, 10**6), max_size=5), form=st.sampled_from(["[{}]", "({})", "{}", "x"]))
def test_shapes_parse_to_what_was_written(name, shape, form):
    if form in ("{}", "x") and not shape:
        form = "[{}]"
    text = "x".join(map(str, shape)) if form == "x" else form.format(", ".join(map(str, shape)))
    assert parse_shapes([f"{name}:{text}"]) == {name: tuple(shape)}


@given(name=LABEL | st.just(""), low=st.floats(-1e30, 1e30), high=st.floats(-1e30, 1e30), brackets=st.booleans())
def test_ranges_parse_to_what_was_written(name, low, high, brackets):
    low, high = min(low, high), max(low, high)
    text = f"[{low!r}, {high!r}]" if brackets else f"{low!r},{high!r}"
    assert parse_val_range([f"{name}:{text}" if name else text]) == {name: (low, high)}


@given(text=st.text(string.printable, max_size=12))
def test_any_text_parses_or_is_one_usage_error(text):
    for parse in (parse_shapes, parse_val_range):
        try:
            parse([text])
        except UsageError as error:
            message = str(error)
        else:
            message = ""
        assert "\n" not in message


def test_parsing_by_example():
    assert parse_shapes(["x:[1,3,224,224]", "y:1x3", "x:0:[1,3]", "s:[]"]) == {
        "x": (1, 3, 224, 224), "y": (1, 3), "x:0": (1, 3), "s": (),
    }  # fmt: skip
    assert parse_val_range(["0,1", "x:-1,1", "x:0:[-1,1]"]) == {"": (0, 1), "x": (-1, 1), "x:0": (-1, 1)}


@pytest.mark.parametrize("text", ["1x3", "x:", ":[1]", "x:[1,-3]", "x:[1,a]", "x:[1,]", "x:1.5", "x:[1,3", "x:²"])
def test_bad_shapes(text):
    with fails(text, "--input_shapes", "NAME:[1,3,224,224]", kind=UsageError):
        parse_shapes([text])


@pytest.mark.parametrize("text", ["1", "x:1", "a,b", "1,2,3", "nan,1", "0,inf", "2,1", "x:[0,1", ""])
def test_bad_ranges(text):
    with fails(text, "--val_range", "LOW,HIGH", kind=UsageError):
        parse_val_range([text])


def test_contradictions():
    with fails("two shapes for 'x'", kind=UsageError):
        parse_shapes(["x:[1]", "x:[2]"])
    with fails("two ranges for all inputs", kind=UsageError):
        parse_val_range(["0,1", "0,2"])


# names and imports


def test_nearest_names():
    names = ["conv1_out", "conv2_out", "relu_7", "fc.weight"]
    assert find_nearest("conv1out", names)[0] == "conv1_out"
    assert find_nearest("CONV2_OUT", names)[0] == "conv2_out"
    assert find_nearest("zzzz", names) == []


def test_nearest_names_of_very_many():
    names = [
        f"/model/layers.{i}/attn/{kind}/MatMul_output_0" for i in range(20000) for kind in ("q", "k", "v", "o", "p")
    ]
    assert "/model/layers.12345/attn/q/MatMul_output_0" in find_nearest(
        "/model/layers.12345/attn/q/MatMul_output", names
    )


def test_errors_are_ours():
    assert issubclass(InputError, PrecisionDebugError)


def test_feeds_import_no_framework():
    heavy = ("onnx", "torch", "paddle", "onnxruntime", "pandas")
    code = f"import sys, precision_debug.feeds; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_weights_that_a_file_lists_among_its_inputs_are_one_note():
    inputs = [meta("x"), *(meta(f"w{place}", optional=True) for place in range(180))]
    drawn = make_feeds(inputs)
    given = check_feeds(inputs, FeedSet(feeds=[{"x": np.zeros((2, 3), np.float32)}], source="a script"))
    for feeds in (drawn, given):
        (note,) = [note for note in feeds.notes if note.code == "inputs_left_out"]
        assert "'w0'" in str(note)
        assert len(str(note)) < 300


def test_a_torch_tensor_in_bfloat16_is_fed():
    torch = pytest.importorskip("torch", reason="needs torch")
    given = FeedSet(feeds=({"x": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)},), source="here")
    fed = check_feeds([meta("x", "bfloat16", shape=(2,))], given).feeds[0]["x"]
    assert (fed.dtype.name, fed.astype(np.float32).tolist()) == ("bfloat16", [1.5, -2.0])
