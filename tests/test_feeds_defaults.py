"""What a model is fed by default: sizes by the kind of input, values by convention, and both are told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper
from warm import command

from precision_debug import Report
from precision_debug.errors import InputError
from precision_debug.feeds import make_feeds
from precision_debug.onnx.input_roles import with_uses
from precision_debug.records import InputMeta

Dims = tuple[int | str, ...]


def meta(name: str, dtype: str, shape: Dims, **more: object) -> InputMeta:
    return InputMeta(name=name, dtype=dtype, shape=shape, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "dtype", "dims", "shape"),
    [
        ("x", "float32", ("?", 3, "?", "?"), (2, 3, 224, 224)),
        ("x", "float32", ("N", 3, "height", "width"), (2, 3, 224, 224)),
        ("x", "float32", (-1, 3, -1, -1), (2, 3, 224, 224)),
        ("x", "float32", ("dim0", "dim1", "dim2", "dim3"), (2, 3, 224, 224)),
        ("x", "uint8", ("b", "h", "w", 3), (2, 224, 224, 3)),
        ("x", "float32", ("?", "?", "?", 1), (2, 224, 224, 1)),
        ("x", "float32", ("?", 3, 48, "?"), (2, 3, 48, 192)),
        ("x", "float32", ("?", 3, 320, "?"), (2, 3, 320, 320)),
        ("x", "float32", ("batch", 1, 28, 28), (2, 1, 28, 28)),
        ("x", "float32", ("N", "C", "D", "H", "W"), (2, 3, 16, 16, 16)),
        ("input_ids", "int64", ("batch", "sequence"), (2, 32)),
        ("tokens", "int32", ("?", "?"), (2, 32)),
        ("features", "float32", ("?", "?", 80), (2, 32, 80)),
        ("mel", "float32", ("batch", 80, "frames"), (2, 80, 32)),
        ("audio", "float32", ("?", "?"), (2, 512)),
        ("input", "float32", ("batch", "sequence"), (2, 512)),
        ("input", "float32", ("sequence_length", 576), (32, 576)),
        ("past_key_values.0.key", "float32", ("batch", 8, "past_sequence_length", 64), (2, 8, 8, 64)),
        ("h0", "float32", (1, "?", 128), (1, 2, 128)),
        ("x", "float32", ("?", 16), (2, 16)),
        ("x", "float32", ("?", "?"), (2, 16)),
        ("x", "float32", ("?",), (16,)),
        ("x", "float32", ("batch",), (2,)),
        ("x", "float32", (), ()),
    ],
)  # fmt: skip
def test_sizes_are_those_of_the_kind(name: str, dtype: str, dims: Dims, shape: tuple[int, ...]) -> None:
    made = make_feeds([meta(name, dtype, dims)])
    if name == "x" and len(dims) == 5:  # a volume has no convention
        assert made.feeds[0][name].size > 1
    else:
        assert made.feeds[0][name].shape == shape
    free = [dim for dim in dims if isinstance(dim, str) or dim < 0]
    assert bool(made.chosen) is bool(free)
    text = f"--input_shapes {name}:[{','.join(map(str, made.feeds[0][name].shape))}]"
    assert any("chosen for dimensions" in note and text in note for note in made.notes) is bool(free)


def test_dimensions_of_one_name_agree_and_those_without_a_name_do_not_leak() -> None:
    made = make_feeds(
        [
            meta("input_ids", "int64", ("batch", "seq")), meta("attention_mask", "int64", ("batch", "past_len + seq")),
            meta("past.key", "float32", ("batch", 4, "past_len", 8)), meta("other", "float32", ("dim0", "dim1", 3)),
        ],
        shapes={"input_ids": (5, 7)},
    )  # fmt: skip
    shapes = {name: value.shape for name, value in made.feeds[0].items()}
    assert shapes == {"input_ids": (5, 7), "attention_mask": (5, 15), "past.key": (5, 4, 8, 8), "other": (2, 32, 3)}
    vad = [
        meta("input", "float32", ("dim0", "dim1")),
        meta("state", "float32", (2, "dim1", 128)),
        meta("sr", "int64", ()),
    ]
    made = make_feeds(vad, shapes={"input": (1, 256)})
    assert made.feeds[0]["state"].shape == (2, 2, 128)


def test_values_follow_conventions_and_say_so() -> None:
    made = make_feeds(
        [
            meta("input_ids", "int64", (2, 400), limit=50), meta("attention_mask", "int64", (2, 400)),
            meta("token_type_ids", "int64", (2, 400), limit=2), meta("position_ids", "int64", (2, 400), limit=512),
            meta("sr", "int64", ()), meta("mask", "bool", (3,)), meta("bytes", "int32", (2, 400)),
            meta("pixels", "uint8", (20, 20, 3)), meta("k", "int64", (400,)),
        ]
    )  # fmt: skip
    feeds = made.feeds[0]
    assert 0 <= feeds["input_ids"].min() < 5 < 45 < feeds["input_ids"].max() < 50
    assert (feeds["attention_mask"] == 1).all()
    assert feeds["mask"].all()
    assert (feeds["token_type_ids"] == 0).all()
    assert (feeds["position_ids"] == np.arange(400)).all()
    assert feeds["sr"] == 16000
    assert feeds["bytes"].max() > 200
    assert feeds["pixels"].max() > 200
    assert set(feeds["k"]) == {0, 1}
    for name in ("input_ids", "attention_mask", "token_type_ids", "position_ids", "sr", "mask", "bytes", "pixels", "k"):
        assert any(note.startswith(f"{name} (") for note in made.notes), name
    ranged = make_feeds([meta("input_ids", "int64", (9,), limit=50)], val_range={"input_ids": (3, 3)})
    assert (ranged.feeds[0]["input_ids"] == 3).all()


def test_a_rank_that_is_not_known_is_refused_with_what_to_type() -> None:
    with pytest.raises(InputError, match=r"give --input_shapes x:\[\.\.\.\]"):
        make_feeds([InputMeta(name="x", dtype="float32", shape=None)])


def graph() -> onnx.ModelProto:
    """Ids (through a Cast) into a table of 37, indices into one of 5, an NHWC image into a convolution."""
    table = numpy_helper.from_array(np.random.default_rng(0).normal(size=(37, 4)).astype(np.float32), "table")
    kinds = numpy_helper.from_array(np.ones((5, 4), np.float32), "kinds")
    weight = numpy_helper.from_array(np.ones((4, 6, 3, 3), np.float32), "weight")
    nodes = [
        helper.make_node("Cast", ["ids"], ["ids64"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "ids64"], ["words"]), helper.make_node("Gather", ["kinds", "kind"], ["k"]),
        helper.make_node("Add", ["words", "k"], ["sum"]),
        helper.make_node("Transpose", ["image"], ["nchw"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["nchw", "weight"], ["conv"]), helper.make_node("Relu", ["plane"], ["relu"]),
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT32, ["b", "s"]),
        helper.make_tensor_value_info("kind", TensorProto.INT64, ["b", "s"]),
        helper.make_tensor_value_info("image", TensorProto.FLOAT, ["b", "?", "?", 6]),
        helper.make_tensor_value_info("plane", TensorProto.FLOAT, ["b", "s"]),
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("sum", "conv", "relu")]
    made = helper.make_graph(nodes, "g", inputs, outputs, [table, kinds, weight])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_the_graph_says_what_it_does_with_its_inputs() -> None:
    metas = [
        meta("ids", "int32", ("b", "s")), meta("kind", "int64", ("b", "s")),
        meta("image", "float32", ("b", "?", "?", 6)), meta("plane", "float32", ("b", "s")),
    ]  # fmt: skip
    found = {one.name: (one.limit, one.layout) for one in with_uses(metas, graph().graph)}
    assert found == {"ids": (37, ""), "kind": (5, ""), "image": (None, "NHWC"), "plane": (None, "")}


@pytest.mark.parametrize("wraps", [False, True])
def test_floats_that_are_cast_to_indices_are_whole_numbers(wraps: bool) -> None:
    """Keras gives every input float32; TensorFlow's tables take negative indices, which the export spells out."""
    table = numpy_helper.from_array(np.ones((37, 4), np.float32), "table")
    zero, count = (numpy_helper.from_array(np.int32(n), name) for n, name in ((0, "zero"), (37, "count")))
    nodes = [helper.make_node("Cast", ["ids"], ["whole"], to=TensorProto.INT32)]
    if wraps:
        nodes += [
            helper.make_node("Less", ["whole", "zero"], ["below"]),
            helper.make_node("Add", ["whole", "count"], ["from_the_end"]),
            helper.make_node("Where", ["below", "from_the_end", "whole"], ["index"]),
        ]
    nodes.append(helper.make_node("Gather", ["table", "index" if wraps else "whole"], ["y"]))
    nodes.append(helper.make_node("Cast", ["both"], ["whole_too"], to=TensorProto.INT32))
    nodes.append(helper.make_node("Gather", ["table", "whole_too"], ["z"]))
    nodes.append(helper.make_node("Relu", ["both"], ["r"]))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 9]) for name in ("ids", "both")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yzr"]
    made = helper.make_graph(nodes, "g", inputs, outputs, [table, zero, count])
    metas = with_uses([meta(name, "float32", ("b", 9)) for name in ("ids", "both")], made)
    assert [one.limit for one in metas] == [37, None]
    feeds = make_feeds(metas)
    ids = feeds.feeds[0]["ids"]
    assert ids.dtype == np.float32
    assert (ids == ids.astype(int)).all()
    assert len(set(ids.ravel())) > 5
    assert ids.max() < 37
    assert any("whole numbers from 0 to 36" in str(note) for note in feeds.notes)


def test_the_verb_lists_the_inputs_and_its_command_runs() -> None:
    onnx.save(graph(), "m.onnx")
    done = command("inputs", "m.onnx")
    assert done.returncode == 0, done.stderr
    assert holds_approved(done.stdout)
    assert holds_approved(done.stdout, 2)
    last = done.stdout.splitlines()[-1]
    assert holds_approved(last, 3)
    words = [word.strip("'") for word in last.split("precision_debug ", 1)[1].split()]
    done = command(*words, "--output", "o.json")
    assert done.returncode == 0, done.stderr
    done = command("--model_file", "m.onnx", "--run_mode", "ort_opt", "--output", "default.json")
    assert done.returncode == 0, done.stderr
    report = Report.load("default.json")
    assert {one.name: one.shape for one in report.inputs}["image"] == (2, 224, 224, 6)
    assert any(note.startswith("image: height 224, width 224 chosen") for note in report.notes)
    assert command("inputs", "--model_file", "m.onnx", "--input_shapes", "ids:[3,4]").stdout.count("[3, 4]") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no model given"), (["m.onnx", "--model_file", "m.onnx"], "two models"),
        (["m.txt"], "no backend reads .txt"), (["no.onnx"], "no such model"),
    ],
)  # fmt: skip
def test_the_verb_refuses_what_is_no_model(arguments: list[str], said: str) -> None:
    done = command("inputs", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_engine_that_needs_other_sizes_says_which_were_chosen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests" / "fake"), os.environ["PYTHONPATH"]]))
    for free in (True, False):
        Path("m.fake").write_text(json.dumps({"layers": 8, "width": 4, "free": free}), encoding="utf-8")
        done = command("--model_file", "m.fake", "--run_mode", "fake_raise", "--output", "o.json")
        assert done.returncode == 3
        assert ("--input_shapes x:[2,32,4]" in done.stderr) is free


WILD = os.environ.get("PRECISION_DEBUG_WILD", "")


@pytest.mark.slow
@pytest.mark.skipif(not WILD, reason="PRECISION_DEBUG_WILD names no folder of real models")
@pytest.mark.parametrize(
    "name", ["det", "rec", "cls", "nude", "vad", "vadhalf", "vadseq", "vadifless", "magika", "minilm"]
)
def test_no_real_model_passes_on_an_image_of_one_pixel(name: str) -> None:
    path = str(Path(WILD, f"{name}.onnx"))
    done = command("--model_file", path, "--run_mode", "ort_opt", "--explain", "off", "--output", "o.json")
    report = Report.load("o.json")
    for one in report.inputs:
        if len(one.shape) == 4:
            assert one.shape[2:] == (224, 224)
        assert 1 not in one.shape or name == "vadseq"
    if name == "rec":  # it needs a height of 48, which only its authors know
        assert done.returncode == 3
        assert "--input_shapes x:[2,3,224,224]" in done.stderr
    else:
        assert done.returncode in (0, 1), done.stderr
