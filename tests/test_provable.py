"""What a file proves by itself, and two files of each other: a finding for each planted fault, none for good files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper

import precision_debug
from precision_debug.cli import main
from precision_debug.onnx.constants import Constants
from precision_debug.onnx.model import read_model
from precision_debug.onnx.provable import prove_faults
from precision_debug.onnx.provable_apart import prove_differences
from precision_debug.onnx.without_weights import read_light
from precision_debug.reasons import as_reason

DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.normal(size=(4, 3, 3, 3)).astype(np.float32)


def _saved(folder: Path, nodes: Sequence[Any], constants: Mapping[str, Any], name: str = "m", **values: Any) -> str:
    shape = values.get("shape", [1, 3, 8, 8])
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()],
    )  # fmt: skip
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return str(path)


def _codes(path: str, **target: Any) -> list[str]:
    return [reason.code for reason in prove_faults(read_model(path), **target)]


def _quantised(folder: Path, *, bias: Any = (5, -7, 9, 0), scale: float = 0.02 * 0.01, two: float = 0.0) -> str:
    """A convolution between quantised tensors, whose int32 bias has a scale of its own; two: a second one beside it
    that shares the bias, on an input of that scale."""
    weight = np.round(WEIGHT * 20).astype(np.int8)
    constants = {
        "sx": np.float32(0.02), "zx": np.int8(0), "sw": np.float32(0.01), "zw": np.int8(0), "w": weight,
        "sb": np.float32(scale), "zb": np.int32(0), "b": np.asarray(bias, np.int32), "s2": np.float32(two or 0.02),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"]),
        helper.make_node("DequantizeLinear", ["b", "sb", "zb"], ["bd"]),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["y" if not two else "first"]),
    ]
    if two:
        nodes += [
            helper.make_node("QuantizeLinear", ["x", "s2", "zx"], ["xq2"]),
            helper.make_node("DequantizeLinear", ["xq2", "s2", "zx"], ["xd2"]),
            helper.make_node("Conv", ["xd2", "wd", "bd"], ["second"]),
            helper.make_node("Add", ["first", "second"], ["y"]),
        ]
    return _saved(folder, nodes, constants)


def test_a_good_file_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _codes(str(DIGITS), to="float16", int32=True) == []
    assert _codes(_quantised(tmp_path)) == []
    assert main(["check", str(DIGITS), str(DIGITS)]) == 0
    assert holds_approved(capsys.readouterr().out)


def test_a_bias_that_was_clipped_or_has_another_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _codes(_quantised(tmp_path, bias=(2**31 - 1, 1, 2, -(2**31)))) == ["proven_bias_clipped"]
    path = _quantised(tmp_path, scale=0.02)
    assert _codes(path) == ["proven_bias_scale"]
    assert main(["check", path]) == 1
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert "proven_bias_shared" in _codes(_quantised(tmp_path, two=0.05))
    # What is 0 is 0 in any unit: tf2onnx gives all layers without a bias one constant of zeros.
    assert not _codes(_quantised(tmp_path, bias=(0, 0, 0, 0), scale=1.0, two=0.05))


PAIR = {
    "s": np.float32(0.02), "z": np.uint8(128), "z1": np.uint8(129), "s1": np.float32(0.04), "sy": np.float32(0.02),
    "near": np.float32(0.02 * (1 + 1e-6)), "d": np.int64([0, 1]), "s16": np.float32(0.02 * (1 + 1e-3)),
    "c3": np.float32([0.02, 0.01, 0.03]), "c4": np.float32([0.02, 0.015, 0.03]), "zc": np.uint8([128, 128, 128]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("between", "read", "apart"),
    [
        ((), ("s", "z1"), (0.02, 128, 0.02, 129)), ((), ("s1", "z"), (0.02, 128, 0.04, 128)), ((), ("s", "z"), ()),
        ((), ("sy", "z"), ()), ((), ("near", "z"), ()), ((), ("s16", "z"), ()), ((), ("s",), (0.02, 128, 0.02, 0)),
        ((("MaxPool", {"kernel_shape": [2, 2]}), ("Transpose", {"perm": [0, 2, 3, 1]})), ("s", "z1"),
         (0.02, 128, 0.02, 129)),
        ((("MaxPool", {"kernel_shape": [2, 2]}),), ("s", "z"), ()),
    ],
)  # fmt: skip
def test_a_tensor_is_read_with_the_scale_that_it_was_quantised_with(
    between: Any, read: Any, apart: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The zero point of one DequantizeLinear of a real model was 1 more: nothing was said."""
    nodes, last = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])], "q"
    for place, (kind, attributes) in enumerate(between):
        nodes.append(helper.make_node(kind, [last], [f"m{place}"], **attributes))
        last = f"m{place}"
    nodes.append(helper.make_node("DequantizeLinear", [last, *read], ["y"]))
    path = _saved(tmp_path, nodes, PAIR)
    found = prove_faults(read_model(path))
    assert [reason.code for reason in found] == ["proven_scale_apart"] * bool(apart)
    assert main(["check", path]) == bool(apart)
    if apart:
        args = found[0].args
        told = [args[name] for name in ("made", "made_zero", "read", "read_zero")]
        assert told == pytest.approx(list(apart), rel=1e-6)
        assert args["name"] == "q"
    capsys.readouterr()


def test_each_channel_and_each_integer_operator_has_its_scale_compared(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "c3", "zc"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "c4", "zc"], ["y"], axis=1),
    ]
    found = prove_faults(read_model(_saved(tmp_path, nodes, PAIR)))
    assert [(one.code, round(one.args["made"], 4), round(one.args["read"], 4)) for one in found] == [
        ("proven_scale_apart", 0.01, 0.015)
    ]
    weight = np.round(WEIGHT * 20).astype(np.int8)
    for scale, wrong in (("s", False), ("s1", True)):
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("QLinearConv", ["q", "s", "z", "w", "sw", "zw", "s", "z"], ["r"]),
            helper.make_node("DequantizeLinear", ["r", scale, "z"], ["y"]),
        ]
        constants = {**PAIR, "w": weight, "sw": np.float32(0.01), "zw": np.int8(0)}
        assert _codes(_saved(tmp_path, nodes, constants)) == ["proven_scale_apart"] * wrong


def test_a_comparison_tells_of_a_zero_point_that_two_operators_do_not_share(tmp_path: Path) -> None:
    """Both sides run the file as it is and agree: that they do is no proof."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z1"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    path = _saved(tmp_path, nodes, PAIR)
    report = precision_debug.compare(path, run_mode="ort_opt")
    assert "proven_scale_apart" in [as_reason(note).code for note in report.notes]


@pytest.mark.parametrize(
    ("nodes", "constants", "target", "code"),
    [
        ([("Mul", ["x", "c"], {})], {"c": np.float32([1, np.nan, 2])[:, None, None]}, {}, "proven_nan"),
        ([("Add", ["x", "c"], {})], {"c": np.float32(-1e12)}, {"to": "float16"}, "proven_overflow"),
        ([("Add", ["x", "c"], {})], {"c": np.float32(1e-12)}, {"to": "float16"}, "proven_underflow"),
        ([("QuantizeLinear", ["x", "c", "z"], {}), ("DequantizeLinear", [0, "c", "z"], {})],
         {"c": np.float32(0), "z": np.int8(0)}, {}, "proven_scale"),
        ([("QuantizeLinear", ["c", "s", "z"], {}), ("DequantizeLinear", [0, "s", "z"], {}), ("Add", ["x", 1], {})],
         {"c": np.float32(3), "s": np.float32(0.01), "z": np.int8(0)}, {}, "proven_weight_clipped"),
        ([("Clip", ["x", "c", "d"], {})], {"c": np.float32(3), "d": np.float32(1)}, {}, "proven_clip"),
        ([("BatchNormalization", ["x", "a", "a", "a", "v"], {})],
         {"a": np.ones(3, np.float32), "v": np.float32([1, -2, 1])}, {}, "proven_variance"),
    ],
)  # fmt: skip
def test_each_fault_of_one_file(
    nodes: list[Any], constants: dict[str, Any], target: dict[str, Any], code: str, tmp_path: Path
) -> None:
    made = [
        helper.make_node(kind, [one if isinstance(one, str) else f"t{one}" for one in inputs],
                         ["y" if place == len(nodes) - 1 else f"t{place}"], **attributes)
        for place, (kind, inputs, attributes) in enumerate(nodes)
    ]  # fmt: skip
    path = _saved(tmp_path, made, constants)
    assert code in _codes(path, **target)
    if target:
        assert _codes(path) == []


def _normed(folder: Path, *, folded: bool, bias: float = 0.0, weight: float = 1.0, epsilon: float = 1e-3) -> str:
    norm = {name: RANDOM_NORM[name] for name in ("scale", "shift", "mean", "variance")}
    if not folded:
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("BatchNormalization", ["c", *norm], ["y"], epsilon=epsilon),
        ]
        return _saved(folder, nodes, {"w": WEIGHT, **norm}, "unfolded")
    factor = norm["scale"] / np.sqrt(norm["variance"] + np.float32(epsilon))
    own = {
        "w": weight * WEIGHT * factor[:, None, None, None],
        "b": (norm["shift"] - norm["mean"] * factor + bias).astype(np.float32),
    }
    own["w"] = own["w"].astype(np.float32)
    return _saved(folder, [helper.make_node("Conv", ["x", "w", "b"], ["y"])], own, "folded")


RANDOM_NORM = {
    name: (RANDOM.normal(size=4) if name != "variance" else RANDOM.uniform(0.5, 2, size=4)).astype(np.float32)
    for name in ("scale", "shift", "mean", "variance")
}


def test_a_batch_norm_that_was_folded_wrongly(tmp_path: Path) -> None:
    first = read_model(_normed(tmp_path, folded=False))

    def found(**how: Any) -> list[str]:
        return [reason.code for reason in prove_differences(first, read_model(_normed(tmp_path, folded=True, **how)))]

    assert found() == []
    assert found(bias=0.1) == ["proven_folded_bias"]
    assert found(weight=1.1) == ["proven_folded_weight"]
    assert found(epsilon=0.5) == ["proven_folded_weight", "proven_folded_bias"]


def test_a_batch_norm_that_stands_elsewhere_was_not_folded(tmp_path: Path) -> None:
    """Behind the Relu in place of in front of it, under its own name or another."""
    constants = {"w": WEIGHT, **RANDOM_NORM}

    def made(order: Sequence[str], name: str) -> Any:
        nodes, read = [helper.make_node("Conv", ["x", "w"], ["c"])], "c"
        for kind, output in zip(order, ("n", "r") if order[0] != "Relu" else ("r", "m"), strict=True):
            more = list(RANDOM_NORM) if kind != "Relu" else []
            nodes.append(helper.make_node(kind, [read, *more], [output]))
            read = output
        return read_model(_saved(tmp_path, [*nodes, helper.make_node("Abs", [read], ["y"])], constants, name))

    files = made(["BatchNormalization", "Relu"], "first"), made(["Relu", "BatchNormalization"], "second")
    assert prove_differences(*files) == []
    assert prove_differences(*files[::-1]) == []


def test_a_filter_with_holes_beside_its_cut_input_proves_nothing(tmp_path: Path) -> None:
    """Four small pictures in a batch and a plain filter are the same as one filter with holes."""
    whole = [helper.make_node("Conv", ["x", "w"], ["y"], dilations=[2, 2], pads=[2] * 4)]
    cut = [helper.make_node("Reshape", ["x", "to"], ["cut"]),
           helper.make_node("Conv", ["cut", "w"], ["small"], pads=[1] * 4),
           helper.make_node("Reshape", ["small", "back"], ["y"])]  # fmt: skip
    shapes = {"to": np.array([4, 3, 4, 4]), "back": np.array([1, 4, 8, 8])}
    files = [_saved(tmp_path, nodes, {"w": WEIGHT, **more}, name) for nodes, more, name in
             ((whole, {}, "whole"), (cut, shapes, "cut"))]  # fmt: skip
    assert prove_differences(*map(read_model, files)) == []


def test_an_attribute_or_a_constant_of_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gemm(name: str, value: float, **attributes: Any) -> str:
        constants = {"w": np.full((3, 4), value, np.float32), "b": np.ones(4, np.float32)}
        node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], **attributes)
        return _saved(tmp_path, [node], constants, name, shape=[2, 3])

    first = gemm("first", 1.0, beta=0.5)
    assert main(["check", first, gemm("same", 1.0, beta=0.5)]) == 0
    capsys.readouterr()
    assert main(["check", first, gemm("second", 1.0)]) == 1
    assert holds_approved(capsys.readouterr().out)
    assert main(["check", first, gemm("third", 2.0, beta=0.5), "--lang", "zh"]) == 1
    assert "读取不同的常量（`w`，相对 L2 误差 1）" in capsys.readouterr().out


def test_a_report_begins_with_what_the_file_proves(tmp_path: Path) -> None:
    from precision_debug import compare
    from precision_debug.report.lead import lead_sentences

    x = np.clip(RANDOM.normal(size=(1, 3, 8, 8)), -2, 2).astype(np.float32)
    report = compare(_quantised(tmp_path, scale=0.02), run_mode="ort_opt", inputs={"x": x})
    assert holds_approved([sentence.en for sentence in lead_sentences(report)[:2]])
    assert not any("proves" in sentence.en for sentence in lead_sentences(compare(str(DIGITS), run_mode="ort_opt")))


def _windows(folder: Path, name: str, kind: str, *, pad: bool, pads: int) -> str:
    """A window operator with pads of its own, behind a Pad by 1 or without it."""
    nodes = [helper.make_node("Pad", ["x", "p"], ["a"])] if pad else []
    read = ["a" if pad else "x", *(["w"] if kind == "Conv" else [])]
    nodes.append(helper.make_node(kind, read, ["y"], kernel_shape=[3, 3], pads=[pads] * 4))
    constants = {**({"w": WEIGHT} if kind == "Conv" else {}), **({"p": np.array([0, 0, 1, 1] * 2)} if pad else {})}
    return _saved(folder, nodes, constants, name)


def test_a_pad_that_was_taken_into_the_operator_behind_it(tmp_path: Path) -> None:
    def found(kind: str, pads: int) -> list[str]:
        first = read_model(_windows(tmp_path, "padded", kind, pad=True, pads=1))
        second = read_model(_windows(tmp_path, "taken", kind, pad=False, pads=pads))
        return [reason.code for reason in prove_differences(first, second)]

    assert found("Conv", 2) == []
    assert found("Conv", 1) == ["proven_attribute"]
    assert found("MaxPool", 2) == ["proven_pad_in_pool"]


@pytest.mark.parametrize(
    ("value", "code"), [(np.nan, "proven_nan"), (1e6, "proven_overflow"), (-1e6, "proven_overflow")]
)
def test_a_large_weight_is_looked_at_where_it_lies_in_its_file(value: float, code: str, tmp_path: Path) -> None:
    weight = np.ones((64, 64), np.float32)
    weight[5, 7] = value
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = _saved(tmp_path, nodes, {"w": weight})
    light = read_light(path)
    assert light.proto.graph.initializer[0].external_data
    for model in (light, read_model(path)):
        assert [reason.code for reason in prove_faults(model, to="float16")] == [code]
    assert not Constants(light)["w"].flags.owndata


def test_an_attribute_of_a_file_is_told_as_its_author_wrote_it(tmp_path: Path) -> None:
    """Files hold it in float32: 1e-6 is 9.999999974752427e-07 there."""
    constants = {"s": np.ones(3, np.float32), "b": np.zeros(3, np.float32)}
    files = [
        _saved(tmp_path, [helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=epsilon)],
               constants, name)
        for name, epsilon in (("first", 1e-6), ("second", 1e-5))
    ]  # fmt: skip
    told = [one for one in prove_differences(*map(read_model, files)) if one.code == "proven_attribute"]
    assert [(one.args["base"], one.args["target"]) for one in told] == [("1e-06", "1e-05")]


@pytest.mark.parametrize(
    ("op", "domain", "key", "said", "default"),
    [("LeakyRelu", "", "alpha", 0.2, "0.01"), ("HardSigmoid", "", "beta", 0.25, "0.5"),
     ("QuickGelu", "com.microsoft", "alpha", 1.0, "1.702"),
     ("SkipLayerNormalization", "com.microsoft", "epsilon", 1e-3, "1e-12"), ("Unheard", "of.nobody", "alpha", 0.5, "")],
)  # fmt: skip
def test_what_a_file_leaves_out_is_what_its_operator_says(
    op: str, domain: str, key: str, said: float, default: str, tmp_path: Path
) -> None:
    constants = {"g": np.ones(8, np.float32)} if op.startswith("Skip") else {}
    inputs = ["x", "x", "g"] if constants else ["x"]
    files = [_saved(tmp_path, [helper.make_node(op, inputs, ["y"], domain=domain, **how)], constants, name)
             for name, how in (("first", {key: said}), ("second", {}))]  # fmt: skip
    told = [one.args["target"] for one in prove_differences(*map(read_model, files)) if one.code == "proven_attribute"]
    assert told == ([default] if default else [])


def test_an_axis_from_either_end_may_be_one_and_the_same(tmp_path: Path) -> None:
    def softmax(name: str, axis: int) -> Any:
        return read_model(_saved(tmp_path, [helper.make_node("Softmax", ["x"], ["y"], axis=axis)], {}, name))

    assert prove_differences(softmax("first", 1), softmax("last", -1)) == []
    assert [one.code for one in prove_differences(softmax("first", 1), softmax("third", 2))] == ["proven_attribute"]


def test_weights_in_constant_nodes_that_a_file_holds_in_float16(tmp_path: Path) -> None:
    """As Paddle's converter writes them: they are told by who reads them, rounded ones by nobody, never as lists."""

    def saved(name: str, weight: Any) -> str:
        held = helper.make_node("Constant", [], ["w"], name="weights", value=numpy_helper.from_array(weight))
        nodes = [held, helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT)]
        return _saved(tmp_path, [*nodes, helper.make_node("Conv", ["x", "wide"], ["y"], name="conv")], {}, name)

    first, half = saved("first", WEIGHT), saved("half", WEIGHT.astype(np.float16))
    assert prove_differences(read_model(first), read_model(half)) == []
    other = prove_differences(read_model(first), read_model(saved("other", (1.5 * WEIGHT).astype(np.float16))))
    assert {one.code for one in other} == {"proven_constant"}
    assert all(len(str(one)) < 300 for one in other)
