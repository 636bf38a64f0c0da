"""The mode onnx_ref is right, or it says that it has no second opinion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import begins_approved, holds_approved
from onnx import TensorProto, helper
from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_onnxruntime.engine.reference_operators import corrected
from test_onnxruntime_saturating import integers

import precision_debug
from precision_debug.errors import ModelError
from precision_debug.records import ModelFiles, SessionSpec, Status
from precision_debug.testing.backend_contract import CopyingHook

RANDOM = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


X = normal(2, 4, 7, 6)
SEQUENCE = normal(3, 2, 4)
STATISTICS = [normal(4), normal(4), normal(4), abs(normal(4)) + np.float32(0.1)]


def lstm(**more: Any) -> tuple[list[Any], dict[str, Any]]:
    return [SEQUENCE, normal(1, 20, 4), normal(1, 20, 5), normal(1, 40)], {"hidden_size": 5, **more}


# operator, inputs (parameters after the first), attributes, opsets; whether onnx.reference has an opinion
RIGHT: list[tuple[str, list[Any], dict[str, Any], list[int]]] = [
    ("BatchNormalization", [X, *STATISTICS], {"epsilon": 1e-3, "momentum": 0.5}, [7, 8, 9, 13, 14, 17]),
    ("BatchNormalization", [normal(3, 4), *STATISTICS], {}, [7, 9, 15]),
    ("BatchNormalization", [normal(2, 4, 5), *STATISTICS], {}, [8, 9, 15]),
    ("Conv", [normal(2, 4, 40), normal(6, 2, 3), normal(6)], {"dilations": [8], "group": 2, "pads": [3, 1]}, [11, 22]),
    ("Conv", [X, normal(3, 4, 2, 3)], {"dilations": [2, 1], "strides": [1, 2], "pads": [1, 0, 2, 1]}, [11]),
    ("Conv", [normal(1, 2, 9, 9, 9), normal(2, 2, 2, 2, 2)], {"dilations": [2, 1, 3]}, [11]),
    ("GlobalMaxPool", [normal(2, 3, 5)], {}, [7, 22]),
    ("GlobalMaxPool", [X], {}, [7, 22]),
    ("GlobalMaxPool", [normal(2, 3, 4, 5, 6)], {}, [11, 22]),
    ("GlobalAveragePool", [normal(2, 3, 4, 5, 6)], {}, [7, 22]),
    *(
        (op, [X], {"axis": axis}, [7, 11, 12, 13])
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for axis in (0, 1, 2, 3)
    ),
    *((op, [X], {}, [9, 11, 13]) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    ("Softmax", [X], {"axis": -2}, [11, 13]),
    ("LRN", [X], {"size": 3, "alpha": 0.1, "beta": 0.5, "bias": 1.5}, [7, 13]),
    ("LRN", [X], {"size": 5, "alpha": 0.1}, [7, 13]),
    ("LpNormalization", [X], {"axis": -1, "p": 1}, [7]),
    ("LpNormalization", [X], {"axis": 1, "p": 2}, [7]),
    ("LSTM", *lstm(), [7, 14]),  # type: ignore[list-item]
]


def test_a_dilated_convolution_takes_memory_by_its_own_size() -> None:
    """Filled with zeros and unfolded, this one would take 128 GB."""
    x, weight = normal(1, 64, 40000), normal(32, 64, 3)
    node = helper.make_node("Conv", ["x", "w"], ["y"], dilations=[12000], pads=[12000, 12000])
    made = corrected(node, 17)
    assert made is not None
    (found,) = made.run(x, weight)
    middle = sum(weight[:, :, k].astype(np.float64) @ x[0, :, 8000 + 12000 * k].astype(np.float64) for k in range(3))
    np.testing.assert_allclose(found[0, :, 20000], middle, rtol=1e-3, atol=1e-3)


NONE: list[tuple[str, list[Any], dict[str, Any], list[int]]] = [
    ("LSTM", *lstm(clip=0.5), [14]),  # type: ignore[list-item]
    ("LSTM", *lstm(activations=["Sigmoid", "Relu", "Tanh"]), [14]),  # type: ignore[list-item]
    ("LSTM", [*lstm()[0], np.int32([3, 1])], {"hidden_size": 5}, [14]),
    ("RNN", [SEQUENCE, normal(1, 5, 4), normal(1, 5, 5)], {"hidden_size": 5, "activations": ["Relu"]}, [14]),
    ("GlobalLpPool", [X], {}, [7]),
    ("MaxRoiPool", [X, np.float32([[0, 0, 0, 4, 4]])], {"pooled_shape": [2, 2]}, [7]),
    ("LpPool", [X], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, [18]),
    ("ConvTranspose", [X, normal(4, 2, 2, 2)], {"group": 2, "strides": [2, 2]}, [11]),
    ("Upsample", [X], {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 2.0]}, [7]),
    ("Resize", [X, np.float32([1, 1, 2, 3])], {"mode": "linear"}, [10]),
    ("com.microsoft.QuickGelu", [X], {}, [17]),
    ("com.microsoft.FusedMatMul", [normal(3, 4), normal(5, 4)], {"transB": 1}, [17]),
]


def cases(found: list[tuple[str, list[Any], dict[str, Any], list[int]]]) -> list[Any]:
    return [
        pytest.param(op, inputs, attributes, opset, id=f"{op}-{opset}-{place}")
        for place, (op, inputs, attributes, opsets) in enumerate(found)
        for opset in opsets
    ]


def around(op: str, inputs: list[Any], attributes: dict[str, Any], opset: int) -> onnx.ModelProto:
    """x, doubled, through the operator, and halved again."""
    domain, _, name = op.rpartition(".")
    weights = {f"p{place}": array for place, array in enumerate(inputs[1:])}
    nodes = [
        helper.make_node("Add", ["x", "x"], ["before"], name="before"),
        helper.make_node(name, ["before", *weights], ["it"], name="it", domain=domain, **attributes),
        helper.make_node("Mul", ["it", "half"], ["after"], name="after"),
    ]
    return onnx_models.model(
        nodes, [onnx_models.value("x", inputs[0].shape)], [onnx_models.value("after")],
        {**weights, "half": np.float32(0.5)}, opset=opset, domains=[domain] if domain else [], ir=8,
    )  # fmt: skip


def both(model: onnx.ModelProto, feeds: dict[str, Any], folder: Path) -> dict[str, precision_debug.records.Row]:
    path = folder / "model.onnx"
    onnx.save(model, path)
    report = precision_debug.compare(path, run_mode="onnx_ref", inputs=feeds, atol=1e-5, rtol=1e-4)
    return {row.name: row for row in report.rows}


@pytest.mark.parametrize(("op", "inputs", "attributes", "opset"), cases(RIGHT))
def test_it_is_right_for(op: str, inputs: list[Any], attributes: Any, opset: int, tmp_path: Path) -> None:
    rows = both(around(op, inputs, attributes, opset), {"x": inputs[0]}, tmp_path)
    assert {name: row.status for name, row in rows.items()} == dict.fromkeys(
        ["x", "before", "it", "after"], Status.PASS
    )


@pytest.mark.parametrize(("opset", "channels"), [(10, None), (13, None), (13, 1), (17, -2), (19, 1)])
def test_a_quantised_file_has_a_second_opinion_to_its_end(opset: int, channels: int | None, tmp_path: Path) -> None:
    """onnx.reference has no DequantizeLinear before opset 19: whatever read one was not compared."""
    x, weight = normal(3, 6), np.random.default_rng(3).integers(-127, 128, (6, 4)).astype(np.int8)
    count = () if channels is None else (weight.shape[channels],)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["held"]),
        helper.make_node("DequantizeLinear", ["held", "sx", "zx"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["weight"], **({"axis": channels} if count else {})),
        helper.make_node("MatMul", ["real", "weight"], ["y"]),
    ]
    constants = {
        "sx": np.float32(0.02), "zx": np.uint8(120), "w": weight, "zw": np.zeros(count, np.int8),
        "sw": np.random.default_rng(4).uniform(0.01, 0.1, count).astype(np.float32),
    }  # fmt: skip
    model = onnx_models.model(
        nodes, [onnx_models.value("x", x.shape)], [onnx_models.value("y")], constants, opset=opset, ir=8
    )
    rows = both(model, {"x": x}, tmp_path)
    assert {name: rows[name].status.value for name in ("real", "y")} == {"real": "pass", "y": "pass"}


@pytest.mark.parametrize(("op", "inputs", "attributes", "opset"), cases(NONE))
def test_it_has_none_for(op: str, inputs: list[Any], attributes: Any, opset: int, tmp_path: Path) -> None:
    rows = both(around(op, inputs, attributes, opset), {"x": inputs[0]}, tmp_path)
    assert rows["it"].status is Status.NOT_COMPARED
    assert begins_approved(rows["it"].reason)
    assert rows["before"].status is rows["after"].status is Status.PASS


def test_notes_count_the_nodes_without_a_second_opinion(tmp_path: Path) -> None:
    model, feeds = around("com.microsoft.QuickGelu", [X], {}, 17), {"x": X}
    onnx.save(model, tmp_path / "m.onnx")
    session = OnnxRuntimeBackend().open(
        SessionSpec(model=ModelFiles(model_file=str(tmp_path / "m.onnx")), mode="onnx_ref"), [feeds]
    )
    session.run(feeds, CopyingHook())
    assert holds_approved(session.notes[1])
    assert "it (QuickGelu)" in session.notes[1]


def test_what_onnx_reference_has_no_code_for_is_refused(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "v"], ["h_out"]), helper.make_node("Identity", ["h_out"], ["s"])], "body",
        [onnx_models.value("h", [2]), onnx_models.value("v", [2])],
        [onnx_models.value("h_out", [2]), onnx_models.value("s", [2])],
    )  # fmt: skip
    scan = helper.make_node("Scan", ["h0", "x"], ["y", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1])
    model = onnx_models.model(
        [scan], [onnx_models.value("x", [2, 3])], [onnx_models.value("y", [2])], {"h0": np.zeros(2, np.float32)}
    )
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"onnx\.reference does not run it"):
        precision_debug.compare(str(tmp_path / "m.onnx"), run_mode="onnx_ref", inputs={"x": normal(2, 3)})


def test_operators_without_a_second_opinion_run_in_loops_and_branches_too(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c_out"]),
         helper.make_node("QuickGelu", ["v"], ["g"], domain="com.microsoft"),
         helper.make_node("Add", ["g", "x"], ["v_out"])],
        "body", [onnx_models.value("i", [], 7), onnx_models.value("c", [], 9), onnx_models.value("v", [2, 3])],
        [onnx_models.value("c_out", [], 9), onnx_models.value("v_out", [2, 3])],
    )  # fmt: skip
    then = helper.make_graph(
        [helper.make_node("QuickGelu", ["y"], ["t"], domain="com.microsoft")], "then", [], [onnx_models.value("t")]
    )
    other = helper.make_graph([helper.make_node("Neg", ["y"], ["e"])], "else", [], [onnx_models.value("e")])
    nodes = [
        helper.make_node("Loop", ["times", "", "x"], ["y"], body=body),
        helper.make_node("If", ["go"], ["z"], then_branch=then, else_branch=other),
    ]
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [2, 3]), onnx_models.value("go", [], TensorProto.BOOL)],
        [onnx_models.value("z")], {"times": np.array(3)}, domains=["com.microsoft"],
    )  # fmt: skip
    rows = both(model, {"x": normal(2, 3), "go": np.array(True)}, tmp_path)
    for name in ("v_out@0", "v_out@2", "y", "z"):
        assert rows[name].status is Status.PASS, name
    for name in ("g@0", "g@2", "t"):
        assert "no second opinion" in rows[name].reason, (name, rows[name])


def test_what_is_borrowed_runs_on_as_many_cores_as_the_baseline(tmp_path: Path) -> None:
    """ONNX Runtime's DynamicQuantizeLSTM gives each thread some rows of the batch, with a scale of their own for the
    state: 0.008 apart on one core and on two, of which a channel of its input was accused."""
    drawn = np.random.default_rng(5)
    held = {
        "w": drawn.integers(0, 255, (1, 32, 256)).astype(np.uint8), "ws": np.array([0.002], np.float32),
        "r": drawn.integers(0, 255, (1, 64, 256)).astype(np.uint8), "z": np.array([128], np.uint8),
    }  # fmt: skip
    inputs = ["x", "w", "r", "", "", "", "", "", "ws", "z", "ws", "z"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["states"], name="lstm", domain="com.microsoft", hidden_size=64
    )
    graph = helper.make_graph(
        [node, helper.make_node("Neg", ["states"], ["y"])], "g",
        [onnx_models.value("x", [24, 2, 32])], [onnx_models.value("y")],
        [onnx.numpy_helper.from_array(value, name) for name, value in held.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    x = drawn.normal(size=(24, 2, 32)).astype(np.float32) * np.array([1, 30], np.float32)[:, None]
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="onnx_ref", inputs={"x": x})
    assert (report.exit_status, report.rows[-1].relative_l2) == (0, 0.0)


def test_what_is_quantised_by_a_scale_of_the_run_is_shown_in_real_numbers(tmp_path: Path) -> None:
    """ONNX Runtime's side is: codes beside them were off by 448 times their size."""
    path = integers(tmp_path, "MatMulInteger")
    x = np.random.default_rng(1).uniform(0.5, 2, (8, 64)).astype(np.float32)
    report = precision_debug.compare(path, run_mode="onnx_ref", inputs={"x": x})
    assert {row.name: row.status for row in report.rows if row.status is not Status.PASS} == {}
    assert next(row.relative_l2 for row in report.rows if row.name == "xq") == pytest.approx(0.0, abs=1e-6)
