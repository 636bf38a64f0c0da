"""Tensors that the optimiser keeps in another layout or under another name are compared, not called fused away."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from onnx import TensorProto, helper
from precision_debug_onnxruntime.engine.same_tensor import find_edges
from precision_debug_onnxruntime.engine.types import Types

import precision_debug
from precision_debug.onnx.graph import iterate_scopes
from precision_debug.records import Row, Status

RANDOM = np.random.default_rng(5)


def small(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * 0.3).astype(np.float32)


def rows_of(model: onnx.ModelProto, feeds: dict[str, Any], folder: Path, mode: str = "ort_opt") -> dict[str, Row]:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return {row.name: row for row in precision_debug.compare(path, run_mode=mode, inputs=feeds).rows}


def silu_net(channels: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Convolutions followed by x * sigmoid(x) and residual sums, as YOLO has them: they stay in blocks of channels."""
    nodes, weights, value, width = [], {}, "x", 3
    for i in range(3):
        weights |= {f"w{i}": small(channels, width, 3, 3), f"b{i}": small(channels)}
        nodes += [
            helper.make_node("Conv", [value, f"w{i}", f"b{i}"], [f"conv{i}"], name=f"/m{i}/conv", pads=[1, 1, 1, 1]),
            helper.make_node("Sigmoid", [f"conv{i}"], [f"gate{i}"], name=f"/m{i}/Sigmoid"),
            helper.make_node("Mul", [f"conv{i}", f"gate{i}"], [f"silu{i}"], name=f"/m{i}/Mul"),
        ]
        value, width = f"silu{i}", channels
        if i:
            nodes.append(helper.make_node("Add", [f"silu{i - 1}", f"silu{i}"], [f"sum{i}"], name=f"/m{i}/Add"))
            value = f"sum{i}"
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["y"], name="pool"))
    inputs, outputs = [onnx_models.value("x", ["n", 3, 12, 10])], [onnx_models.value("y")]
    return onnx_models.model(nodes, inputs, outputs, weights), {"x": small(1, 3, 12, 10)}


@pytest.mark.parametrize("channels", [16, 20])
def test_what_stays_in_blocks_is_unblocked(channels: int, tmp_path: Path) -> None:
    rows = rows_of(*silu_net(channels), tmp_path)
    for name in ("conv0", "silu0", "conv1", "silu1", "sum1", "conv2", "silu2", "y"):
        assert rows[name].status is Status.PASS, (name, rows[name].reason)
    assert {rows[name].view for name in ("silu0", "conv0")} == {"unblocked"}
    gone = {name: row.reason.args for name, row in rows.items() if row.status is Status.FUSED_AWAY}
    assert gone == {
        f"gate{i}": {"operator": "QuickGelu", "node": f"/m{i}/Mul/QuickGeluFusion/"} for i in range(3)
    }  # fmt: skip


def tensorflows(activation: str, size: int, channels: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """As tf2onnx writes: an NHWC trunk with transpositions around each convolution, which the optimiser takes out."""
    nodes, weights, value, width = [], {}, "x", 3
    for i in range(3):
        weights |= {f"w{i}": small(channels, width, 3, 3), f"bias{i}": small(channels)}
        nodes += [
            helper.make_node("Transpose", [value], [f"t{i}"], name=f"T{i}", perm=[0, 3, 1, 2]),
            helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"c{i}"], name=f"C{i}", pads=[1, 1, 1, 1]),
            helper.make_node("Transpose", [f"c{i}"], [f"b{i}"], name=f"B{i}", perm=[0, 2, 3, 1]),
            helper.make_node("Add", [f"b{i}", f"bias{i}"], [f"a{i}"], name=f"A{i}"),
        ]
        slope = [f"s{i}"] if activation == "PRelu" else []
        weights |= {name: abs(small(1, 1, channels)) for name in slope}
        nodes.append(helper.make_node(activation, [f"a{i}", *slope], [f"p{i}"], name=f"P{i}"))
        value, width = f"p{i}", channels
    nodes += [
        helper.make_node("Add", ["p1", "p2"], ["sum"], name="S"),
        helper.make_node("ReduceMean", ["sum"], ["y"], name="M", axes=[1, 2], keepdims=0),
    ]
    inputs, outputs = [onnx_models.value("x", [1, size, size, 3])], [onnx_models.value("y")]
    return onnx_models.model(nodes, inputs, outputs, weights, opset=13), {"x": small(1, size, size, 3)}


@pytest.mark.parametrize("activation", ["PRelu", "LeakyRelu", "Sigmoid", "HardSwish", "Elu"])
def test_an_nhwc_trunk_is_turned_back(activation: str, tmp_path: Path) -> None:
    model, feeds = tensorflows(activation, 12, 8)
    if activation == "HardSwish":
        model.opset_import[0].version = 14
    rows = rows_of(model, feeds, tmp_path)
    for name in ("x", "t0", "p0", "p1", "p2", "sum", "y"):
        assert rows[name].status is Status.PASS, (name, rows[name].reason)
    assert rows["p0"].view == "transposed"


@pytest.mark.parametrize("activation", ["PRelu", "LeakyRelu"])
def test_where_the_shapes_cannot_tell_how_it_was_turned_nothing_is_compared_wrongly(
    activation: str, tmp_path: Path
) -> None:
    rows = rows_of(*tensorflows(activation, 8, 8), tmp_path)
    assert not [name for name, row in rows.items() if row.status is Status.FAIL]
    assert rows["p0"].status is not Status.PASS
    assert rows["y"].status is Status.PASS


@pytest.mark.parametrize("size", [12, 8])
def test_axes_whose_size_both_graphs_know_tell_how_it_was_turned(size: int, tmp_path: Path) -> None:
    """A padding that is computed leaves all sizes open but the channels, which a weight tells: 362 of 414 tensors of a
    real model of NHWC had no partner. Also where the picture is as large as the channels are many."""
    model, feeds = tensorflows("Sigmoid", size, 8)
    model.graph.input.append(helper.make_tensor_value_info("pads", TensorProto.INT64, [8]))
    model.graph.node.insert(0, helper.make_node("Pad", ["x", "pads"], ["padded"], name="pad"))
    model.graph.node[1].input[0] = "padded"
    rows = rows_of(model, {**feeds, "pads": np.zeros(8, np.int64)}, tmp_path)
    for name in ("x", "padded", "p0", "p1", "p2", "sum", "y"):
        assert rows[name].status is Status.PASS, (name, rows[name].reason)


@pytest.mark.parametrize("mode", ["ort_opt", "ort_fp16", "ort_fp16_sim", "onnx_ref"])
def test_constants_in_branches_are_not_called_fused_away(mode: str, tmp_path: Path) -> None:
    def branch(side: str) -> onnx.GraphProto:
        constant = onnx.numpy_helper.from_array(np.float32([1.5, 2.5, 3.5]))
        nodes = [
            helper.make_node("Constant", [], [f"{side}_k"], value=constant),
            helper.make_node("Mul", ["x", f"{side}_k"], [f"{side}_m"]),
            helper.make_node("Softmax", [f"{side}_m"], [f"{side}_y"]),
        ]
        return helper.make_graph(nodes, side, [], [onnx_models.value(f"{side}_y")])

    node = helper.make_node("If", ["go"], ["y"], then_branch=branch("then"), else_branch=branch("else"))
    inputs = [onnx_models.value("x", [3]), onnx_models.value("go", [], TensorProto.BOOL)]
    model = onnx_models.model([node], inputs, [onnx_models.value("y")])
    rows = rows_of(model, {"x": small(3), "go": np.array(True)}, tmp_path, mode)
    assert not [name for name, row in rows.items() if row.status is Status.FUSED_AWAY]
    assert {rows[name].comparison is not None for name in ("then_m", "then_y", "y")} == {True}


def test_a_row_says_into_which_operator_its_tensor_was_fused(tmp_path: Path) -> None:
    weights = {"w": small(16, 3, 3, 3), "k": small(16), "fc": small(16, 4), "b": small(4)}
    weights |= {f"n{i}": abs(small(16)) + np.float32(0.5) for i in range(4)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "k"], ["conv"], name="conv"),
        helper.make_node("BatchNormalization", ["conv", "n0", "n1", "n2", "n3"], ["norm"], name="norm"),
        helper.make_node("Relu", ["norm"], ["relu"], name="relu"),
        helper.make_node("GlobalAveragePool", ["relu"], ["pool"], name="pool"),
        helper.make_node("Shape", ["pool"], ["shape"], name="shape"),
        helper.make_node("Slice", ["shape", "from", "to"], ["head"], name="head"),
        helper.make_node("Concat", ["head", "rest"], ["target"], name="target", axis=0),
        helper.make_node("Reshape", ["pool", "target"], ["flat"], name="flat"),
        helper.make_node("MatMul", ["flat", "fc"], ["product"], name="product"),
        helper.make_node("Add", ["product", "b"], ["y"], name="sum"),
    ]
    weights |= {"from": np.array([0]), "to": np.array([1]), "rest": np.array([16])}
    model = onnx_models.model(nodes, [onnx_models.value("x", ["n", 3, 8, 8])], [onnx_models.value("y")], weights)
    rows = rows_of(model, {"x": small(2, 3, 8, 8)}, tmp_path)
    for name in ("conv", "norm"):
        assert rows[name].status is Status.FUSED_AWAY
        assert rows[name].reason.startswith("fused into FusedConv node "), rows[name].reason
    assert rows["product"].reason.startswith("fused into Gemm node "), rows["product"].reason
    for name, row in rows.items():
        assert "conv" not in row.reason or name in {"conv", "norm"}, (name, row.reason)


def test_a_transposition_of_the_sources_own_between_quantised_values_is_no_change_of_layout() -> None:
    """The patches of a vision transformer. ONNX Runtime gives the transposition and what it makes names of its own,
    where it turns int8 into uint8; only behind the next DequantizeLinear stands a name that tells the tensor."""
    scale, weights = ["s", "z"], {"s": np.float32(0.1), "z": np.uint8(128)}
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["patches"], name="reshape"),
        helper.make_node("QuantizeLinear", ["patches", *scale], ["qdq_s8_to_u8_quant"], name="q"),
        helper.make_node(
            "Transpose", ["qdq_s8_to_u8_quant"], ["qdq_s8_to_u8_quant_token_2"], name="Transpose_token_1",
            perm=[0, 2, 1],
        ),
        helper.make_node("DequantizeLinear", ["qdq_s8_to_u8_quant_token_2", *scale], ["tokens"], name="dq"),
    ]
    ends = [onnx_models.value("x", [2, 24, 4, 4])], [onnx_models.value("tokens")]
    graph = onnx_models.model(nodes, *ends, {**weights, "flat": np.int64([0, 24, -1])}).graph

    class Named:
        def layout(self, name: str) -> tuple[int, ...] | None:
            return () if name in {"x", "patches", "tokens"} else None

        def guessed(self, name: str) -> bool:
            return False

        def made(self, node: Any, index: int) -> tuple[int, ...]:
            return ()

    scope = next(iter(iterate_scopes(graph)))
    edges = find_edges(scope, graph.node, Types(known={}), {"reshape", "turn"}, Named())
    forms = {name: form.perm for edge in edges for name, form in edge.forms.items()}
    assert forms["patches"] == forms["qdq_s8_to_u8_quant"] == ()
    assert forms["qdq_s8_to_u8_quant_token_2"] == forms["tokens"] == ()
    assert [edge.root for edge in edges if "tokens" in edge.forms] == ["qdq_s8_to_u8_quant_token_2"]


def named_as_their_outputs(kind: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Convolutions whose nodes are called as what they give, with as many channels as lines and columns."""
    nodes, weights, width = [], {}, 3

    def conv(read: str, name: str, width: int, size: int = 3) -> str:
        weights[f"{name}_w"], weights[f"{name}_b"] = small(8, width, size, size), small(8)
        pads = [size // 2] * 4
        nodes.append(helper.make_node("Conv", [read, f"{name}_w", f"{name}_b"], [name], name=name, pads=pads))
        return name

    def after(op_type: str, read: list[str], name: str, **settings: Any) -> str:
        nodes.append(helper.make_node(op_type, read, [name], name=name, **settings))
        return name

    value = "x"
    for place in range(3):
        value = after("Relu", [conv(value, f"c{place}", width)], f"r{place}")
        width = 8
    if kind == "gate":
        gate = after("Sigmoid", [conv(value, "psi", 8, 1)], "gate")
        value = conv(after("Mul", [value, gate], "gated"), "last", 8)
    elif kind == "u":
        down = after("MaxPool", [value], "pool", kernel_shape=[2, 2], strides=[2, 2])
        deep = after("Relu", [conv(down, "deep", 8)], "rdeep")
        weights["scales"] = np.float32([1, 1, 2, 2])
        up = after("Resize", [deep, "", "scales"], "up", mode="nearest")
        value = conv(after("Concat", [up, value], "joined", axis=1), "last", 16)
    inputs, outputs = [onnx_models.value("x", [1, 3, 8, 8])], [onnx_models.value(value)]
    return onnx_models.model(nodes, inputs, outputs, weights), {"x": small(1, 3, 8, 8)}


@pytest.mark.parametrize("kind", ["chain", "gate", "u"])
@pytest.mark.parametrize("mode", ["ort_int8", "ort_opt"])
def test_equal_sides_hide_no_transposition(kind: str, mode: str, tmp_path: Path) -> None:
    """Quantised convolutions run in NHWC, and ONNX Runtime calls their results after their nodes."""
    rows = rows_of(*named_as_their_outputs(kind), tmp_path, mode)
    wrong = {name: row.relative_l2 for name, row in rows.items() if row.status is Status.FAIL}
    assert not wrong, "a healthy model"
    for name in ("r0", "r1", "r2"):
        assert rows[name].comparison is not None, rows[name].reason
        assert rows[name].relative_l2 < 0.1  # type: ignore[operator]
    shown = rows["c0"].comparison  # in a run that is not optimised, if at all: what bears its name holds r0
    assert rows["c0"].status is Status.FUSED_AWAY or (shown is not None and shown.target.min < 0 < shown.target.max)


def test_what_was_lost_in_nhwc_is_named(tmp_path: Path) -> None:
    """One large channel sets the range: the others vanish in int8, behind convolutions whose layout was changed."""
    model, feeds = named_as_their_outputs("gate")
    factor = np.ones((1, 8, 1, 1), np.float32)
    factor[0, 0] = 3000.0
    model.graph.initializer.append(onnx.numpy_helper.from_array(factor, "factor"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(1 / factor, "back"))
    place = next(number for number, node in enumerate(model.graph.node) if node.name == "psi")
    model.graph.node.insert(place, helper.make_node("Mul", ["grown", "back"], ["shrunk"], name="shrunk"))
    model.graph.node.insert(place, helper.make_node("Mul", ["r2", "factor"], ["grown"], name="grown"))
    for node in model.graph.node:
        if node.name in ("psi", "gated"):
            node.input[0] = "shrunk"
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=feeds)
    assert report.explanation is not None
    assert [culprit.name for culprit in report.explanation.culprits][:1] == ["grown"]


def test_an_activation_that_the_quantisation_stands_in_for_is_not_its_input(tmp_path: Path) -> None:
    """Between casts a Relu is no part of a convolution: ONNX Runtime leaves it to the zero point, and quantises what it
    read under its scale. What is quantised is the Relu's result, and what it read is still there."""
    nodes, weights = [], {}

    def conv(read: str, name: str, width: int) -> str:
        weights[f"{name}_w"], weights[f"{name}_b"] = small(16, width, 3, 3), small(16)
        nodes.append(helper.make_node("Conv", [read, f"{name}_w", f"{name}_b"], [name], name=f"n_{name}", pads=[1] * 4))
        nodes.append(helper.make_node("Cast", [name], [f"{name}_16"], name=f"n_{name}_16", to=TensorProto.FLOAT16))
        nodes.append(helper.make_node("Cast", [f"{name}_16"], [f"{name}_32"], name=f"n_{name}_32", to=1))
        return f"{name}_32"

    value = "x"
    for place in range(3):
        value = conv(value, f"c{place}", 16 if place else 3)
        nodes.append(helper.make_node("Relu", [value], [f"r{place}"], name=f"n_r{place}"))
        value = f"r{place}"
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["y"], name="pool"))
    inputs, outputs = [onnx_models.value("x", [1, 3, 16, 16])], [onnx_models.value("y")]
    model = onnx_models.model(nodes, inputs, outputs, weights)
    rows = rows_of(model, {"x": small(1, 3, 16, 16)}, tmp_path, "ort_int8")
    for name in ("c0_32", "r0", "c1_32", "r1", "r2"):
        assert rows[name].comparison is not None, (name, rows[name].reason)
        assert rows[name].relative_l2 < 0.1, name  # type: ignore[operator]


def test_whole_convolutions_of_one_scale_are_told_apart(tmp_path: Path) -> None:
    """A file whose tensors share a scale, in NHWC: what bears a convolution's name is quantised behind its Relu."""
    from planted.fifth_onnx import CASES

    case = next(one for one in CASES if (one.name, one.mode) == ("residual_net_in_integers", "ort_opt"))
    model, base, feeds = case.make(tmp_path)
    report = precision_debug.compare(
        model, run_mode="ort_opt", baseline="ort_fp32", baseline_model=base, inputs=feeds, explain="off"
    )
    rows = {row.name: row for row in report.rows}
    for name in ("q0", "aq1", "q1", "aq2", "q2", "aq3"):
        assert rows[name].comparison is not None, (name, rows[name].reason)
        assert rows[name].relative_l2 < 0.1, name  # type: ignore[operator]
    assert {rows[name].status for name in ("c0", "a1", "s1")} == {Status.FUSED_AWAY}


def shape_of_a_turned(perm: tuple[int, ...], named: str, open_sizes: bool) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """An output behind a convolution that is also transposed, and whose transposition's shape is read."""
    rank, channels = len(perm), 16
    sizes = [1, channels, *(5, 8, 1)[: rank - 2]]
    weights = {"w": small(channels, channels, *[1] * (rank - 2)), "b": small(channels)}
    weights |= {"from": np.int64([0]), "to": np.int64([rank - 1]), "rest": np.int64([-1])}
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Conv", ["x", "w", "b"], "c", {}), ("Relu", ["c"], "e", {}), ("Transpose", ["e"], "t", {"perm": perm}),
        ("Shape", ["t"], "s", {}), ("Slice", ["s", "from", "to", "from"], "head", {}),
        ("Concat", ["head", "rest"], "target", {"axis": 0}), ("Reshape", ["t", "target"], "y", {}),
    ]  # fmt: skip
    nodes = [
        helper.make_node(op, read, [to], name={"own": f"n_{to}", "output": to, "none": ""}[named], **settings)
        for op, read, to, settings in steps
    ]
    declared = ["n", channels, *(f"s{place}" for place in range(rank - 2))] if open_sizes else sizes
    outputs = [onnx_models.value("e"), onnx_models.value("y")]
    return onnx_models.model(nodes, [onnx_models.value("x", declared)], outputs, weights), {"x": small(*sizes)}


@pytest.mark.parametrize(("named", "open_sizes"), [("own", True), ("output", False), ("none", True)])
@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 3, 2), (0, 2, 1), (0, 2, 3, 4, 1)])
def test_an_output_never_changes_its_layout(
    perm: tuple[int, ...], named: str, open_sizes: bool, tmp_path: Path
) -> None:
    """ONNX Runtime makes one ReorderOutput of the transposition, and a Gather of the shape of what is not turned."""
    rows = rows_of(*shape_of_a_turned(perm, named, open_sizes), tmp_path)
    assert {rows[name].status for name in ("e", "y")} == {Status.PASS}, (rows["e"].reason, rows["y"].reason)
    assert {rows[name].status for name in ("t", "s", "head", "target")} <= {Status.PASS, Status.FUSED_AWAY}
    assert not [name for name, row in rows.items() if row.status is Status.FAIL]


def turned_casts(
    perm: tuple[int, ...], sizes: tuple[int, ...], operator: str, named: str
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Transpositions around operators that float16 leaves in float32: casts are put around each, and ONNX Runtime moves
    the transpositions past some."""
    back = tuple(perm.index(axis) for axis in range(len(perm)))
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Unsqueeze", ["x", "one"], "u", {}), ("Transpose", ["u"], "t", {"perm": perm}), (operator, ["t"], "r", {}),
        ("Add", ["t", "r"], "a", {}), ("Transpose", ["a"], "b", {"perm": back}), ("Squeeze", ["b", "one"], "q", {}),
        ("Softmax", ["q"], "y", {"axis": -1}), ("Concat", ["r", "r"], "k", {"axis": 1}),
    ]  # fmt: skip
    nodes = [
        helper.make_node(op, read, [to], name={"own": f"n_{to}", "output": to, "none": ""}[named], **settings)
        for op, read, to, settings in steps
    ]
    declared = [sizes[0], "L", *sizes[2:]]
    outputs = [onnx_models.value("y"), onnx_models.value("k")]
    model = onnx_models.model(nodes, [onnx_models.value("x", declared)], outputs, {"one": np.int64([1])})
    return model, {"x": small(*sizes)}


@pytest.mark.parametrize(
    ("perm", "sizes"),
    [((0, 3, 2, 1), (1, 40, 16)), ((0, 2, 3, 1), (2, 8, 8)), ((3, 1, 0, 2), (1, 1, 16)),
     ((0, 2, 1, 4, 3), (1, 7, 5, 6)), ((1, 5, 2, 4, 3, 0), (1, 8, 2, 8, 6))],
)  # fmt: skip
@pytest.mark.parametrize(("named", "operator"), [("own", "Relu"), ("output", "Sigmoid")])
def test_a_transposed_copy_is_not_the_tensor(
    perm: tuple[int, ...], sizes: tuple[int, ...], named: str, operator: str, tmp_path: Path
) -> None:
    rows = rows_of(*turned_casts(perm, sizes, operator, named), tmp_path, "ort_fp16")
    assert not [name for name, row in rows.items() if row.status is Status.FAIL]
    assert {rows[name].status for name in ("y", "k")} == {Status.PASS}


def test_the_tensor_itself_wins_over_a_transposed_cast_of_its_name(tmp_path: Path) -> None:
    """A block of a voice detector: the cast of `t` stands before the transposition that makes `t`."""
    weights = {"w": small(16, 1, 6, 1), "m": small(16, 16), "one": np.int64([1])}
    nodes = [
        helper.make_node("MatMul", ["x", "m"], ["p"], name="p_n"),
        helper.make_node("Unsqueeze", ["p", "one"], ["u"], name="u_n"),
        helper.make_node("Transpose", ["u"], ["t"], name="t_n", perm=[0, 3, 2, 1]),
        helper.make_node("Concat", ["cache", "t"], ["cat"], name="cat_n", axis=2),
        helper.make_node("Conv", ["cat", "w"], ["c"], name="c_n", group=16),
        helper.make_node("Add", ["t", "c"], ["a"], name="a_n"),
        helper.make_node("Transpose", ["a"], ["b"], name="b_n", perm=[0, 3, 2, 1]),
        helper.make_node("Squeeze", ["b", "one"], ["y"], name="y_n"),
    ]
    inputs = [onnx_models.value("x", [1, "L", 16]), onnx_models.value("cache", [1, 16, 5, 1])]
    model = onnx_models.model(nodes, inputs, [onnx_models.value("y")], weights)
    rows = rows_of(model, {"x": small(1, 40, 16), "cache": small(1, 16, 5, 1)}, tmp_path, "ort_fp16")
    assert {rows[name].status for name in ("u", "t", "cat", "c", "a", "b", "y")} == {Status.PASS}
    assert rows["t"].target_name == "t"


def test_axes_of_size_1_make_no_two_transpositions_of_one() -> None:
    from precision_debug_onnxruntime.engine.rewritten import _only

    last, second = (0, 2, 3, 1), (0, 3, 1, 2)
    own = together = {last, second, (0, 1, 2, 3)}
    assert _only((1, 12, 1, 8), (1, 8, 12, 1), own, together) == last
    assert _only((1, 1, 1, 8), (1, 8, 1, 1), own, together) in (last, second)
    assert _only((1, 8, 8, 8), (1, 8, 8, 8), own, together) is None, "several differ"
    assert _only(("n", "h", "w", 8), ("n", 8, "h", "w"), own, together) == last
    assert _only(("n", "w", "h", 8), ("n", 8, "w", "h"), own, together) == last
    assert _only((2, 3), (3, 2), own, together) is None


def test_a_permuted_shape_of_a_tensor_that_is_called_otherwise_is_no_verdict() -> None:
    from precision_debug.numbers import compare
    from precision_debug.numbers.judge import judge_row
    from precision_debug.records import Tolerance

    def of(target_name: str, shape: tuple[int, ...], is_output: bool = False) -> Status:
        numbers = compare(np.ones((1, 16, 40), np.float32), np.ones(shape, np.float32), Tolerance())
        row = Row(index=0, op_type="Relu", name="r", status=Status.PASS, comparison=numbers, target_name=target_name,
                  is_output=is_output)  # fmt: skip
        return judge_row(row, Tolerance()).status

    assert of("other", (1, 40, 16)) is of("other", (1, 1, 40, 16)) is Status.INCONCLUSIVE
    assert of("other", (1, 40, 8)) is of("r", (1, 40, 16)) is of("other", (1, 40, 16), True) is Status.FAIL


def one_axis(length: int, dtype: type) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Convolutions along one axis as tf2onnx writes them: a second axis comes before each, and goes behind it."""
    channels, nodes, weights = 12, [], {"one": np.int64([1]), "two": np.int64([2])}
    nodes += [
        helper.make_node("Cast", ["x"], ["narrow"], name="narrow", to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype))),
        helper.make_node("Unsqueeze", ["narrow", "one"], ["u0"], name="u0"),
        helper.make_node("Transpose", ["u0"], ["t0"], name="t0", perm=[0, 3, 1, 2]),
    ]
    value = "t0"
    for i in range(3):
        weights[f"w{i}"], weights[f"b{i}"] = small(channels, channels, 1, 3), small(1, channels, 1)
        if i:
            nodes.append(helper.make_node("Unsqueeze", [value, "two"], [f"u{i}"], name=f"u{i}"))
            value = f"u{i}"
        nodes += [
            helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], name=f"c{i}", pads=[0, 1, 0, 1]),
            helper.make_node("Squeeze", [f"c{i}", "two"], [f"q{i}:0"], name=f"q{i}"),
            helper.make_node("Add", [f"q{i}:0", f"b{i}"], [f"a{i}:0"], name=f"a{i}"),
            helper.make_node("Relu", [f"a{i}:0"], [f"r{i}:0"], name=f"r{i}"),
        ]
        value = f"r{i}:0"
    nodes += [
        helper.make_node("ReduceMean", [value], ["m:0"], name="m", axes=[2], keepdims=0),
        helper.make_node("Cast", ["m:0"], ["y"], name="wide", to=TensorProto.FLOAT),
    ]
    weights = {name: array.astype(dtype) if array.dtype == np.float32 else array for name, array in weights.items()}
    inputs, outputs = [onnx_models.value("x", [2, length, channels])], [onnx_models.value("y")]
    return onnx_models.model(nodes, inputs, outputs, weights, opset=17), {"x": small(2, length, channels)}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("length", [20, 12])
def test_a_layout_goes_through_what_drops_and_inserts_axes(length: int, dtype: type, tmp_path: Path) -> None:
    """Convolutions of whole numbers run in NHWC, and the transpositions are moved past Squeeze and Unsqueeze."""
    rows = rows_of(*one_axis(length, dtype), tmp_path, "ort_int8")
    for name in ("u1", "c1", "q1:0", "r1:0", "u2", "r2:0", "y"):  # ONNX Runtime computes float16 in float32
        row = rows.get(f"InsertedPrecisionFreeCast_{name}") or rows[name]
        assert row.status is Status.PASS, (name, row.reason)
    assert not [name for name, row in rows.items() if row.status is Status.FAIL or "layout" in (row.reason or "")]


def test_a_layout_of_other_axes_than_a_value_has_ends_no_run() -> None:
    """As seen of a YOLO of open shapes in ort_int8: the run ended with "axes don't match array"."""
    from precision_debug_onnxruntime.engine.model_layout import _fits, _transpose

    turn = _transpose((0, 2, 3, 1))
    assert turn is not None
    assert turn(np.zeros((1, 4, 5, 3))).shape == (1, 3, 4, 5)
    assert turn(np.zeros((1, 3))).shape == (1, 3)
    unknown: Any = SimpleNamespace(shape=None)
    assert _fits(unknown, (0, 2, 3, 1), None)
    assert not _fits(unknown, (0, 2, 3, 1), ("n", 8400))
