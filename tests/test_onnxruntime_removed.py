"""A Relu or Clip that onnxruntime.quantization removes into the next quantiser, where that does not do what it did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import precision_debug
from precision_debug.report.lead import lead_sentences

SHAPE = (1, 8, 6, 6)
FEEDS = {"x": np.random.default_rng(3).normal(size=SHAPE).astype(np.float32), "yes": np.array(True)}


def model(
    folder: Path, activation: str, *, body: str = "", of: str = "", bounds: Sequence[float | str] = (),
    bias: float = 0.0, more: bool = True, name: str = "act",
) -> str:  # fmt: skip
    """A convolution, an activation, another convolution, and a body that reads ``of``.

    body: "If", "Loop", "Scan" or "nested", an If in an If. bounds: of a Clip, "" left out, a name: an input. bias: of
    the first convolution. more: whether the second one is there.
    """
    random = np.random.default_rng(1)
    weights = {
        "w1": random.normal(size=(8, 8, 3, 3)) / 8, "b1": np.full(8, bias), "w2": random.normal(size=(8, 8, 3, 3)) / 8,
    }  # fmt: skip
    value = helper.make_tensor_value_info
    inputs, names = [value("x", TensorProto.FLOAT, SHAPE)], ["conv"]
    for place, bound in enumerate(bounds):
        if isinstance(bound, str):
            names.append(bound)
            inputs += [value(bound, TensorProto.FLOAT, [])] if bound else []
        else:
            weights[f"bound{place}"] = np.array(bound)
            names.append(f"bound{place}")
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["conv"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node(activation, names, ["act"], name=name),
    ]
    outputs = []
    if more:
        nodes.append(helper.make_node("Conv", ["act", "w2"], ["y"], name="conv2", pads=[1, 1, 1, 1]))
        outputs.append(value("y", TensorProto.FLOAT, SHAPE))
    if body:
        nodes += _body(body, of)
        inputs.append(value("yes", TensorProto.BOOL, []))
        outputs.append(value("z", TensorProto.FLOAT, SHAPE))
        weights |= {"trips": np.array(2)}
    if not outputs:
        outputs.append(value("act", TensorProto.FLOAT, SHAPE))
    held = [
        numpy_helper.from_array(np.asarray(array, np.int64 if key == "trips" else np.float32), key)
        for key, array in weights.items()
    ]
    graph = helper.make_graph(nodes, "removed", inputs, outputs, held)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path)


def _body(kind: str, of: str) -> list[Any]:
    value, none = helper.make_tensor_value_info, TensorProto.FLOAT

    def branch(name: str, op_type: str, given: str) -> Any:
        node = helper.make_node(op_type, [given], [name], name=f"in_{name}")
        return helper.make_graph([node], name, [], [value(name, none, SHAPE)])

    if kind == "If":
        then = branch("inside", "Neg", of)
        return [helper.make_node("If", ["yes"], ["z"], name="if",
                                 then_branch=then, else_branch=branch("other", "Neg", "x"))]  # fmt: skip
    if kind == "nested":
        inner = helper.make_node("If", ["yes"], ["deep"], name="if_in", then_branch=branch("inside", "Neg", of),
                                 else_branch=branch("other", "Neg", "x"))  # fmt: skip
        then = helper.make_graph([inner], "outer", [], [value("deep", none, SHAPE)])
        return [helper.make_node("If", ["yes"], ["z"], name="if",
                                 then_branch=then, else_branch=branch("third", "Neg", "x"))]  # fmt: skip
    added = helper.make_node("Add", ["carried", of], ["next"], name="in_next")
    carried, following = value("carried", none, SHAPE), value("next", none, SHAPE)
    if kind == "Scan":
        each = helper.make_node("Identity", ["slice"], ["each"], name="in_each")
        body = helper.make_graph(
            [added, each], "scan", [carried, value("slice", none, SHAPE[1:])],
            [following, value("each", none, SHAPE[1:])],
        )  # fmt: skip
        return [helper.make_node("Scan", ["x", "x"], ["z", "spare"], name="scan", body=body, num_scan_inputs=1)]
    go = helper.make_node("Identity", ["going"], ["goes"], name="in_goes")
    body = helper.make_graph(
        [added, go], "loop", [value("turn", TensorProto.INT64, []), value("going", TensorProto.BOOL, []), carried],
        [value("goes", TensorProto.BOOL, []), following],
    )  # fmt: skip
    return [helper.make_node("Loop", ["trips", "yes", "x"], ["z"], name="loop", body=body)]


def compared(path: str, mode: str, **more: Any) -> precision_debug.Report:
    feeds = {item.name: FEEDS.get(item.name, np.float32(0.7)) for item in onnx.load(path).graph.input}
    return precision_debug.compare(path, run_mode=mode, inputs=feeds, explain="off", **more)


def notes(report: precision_debug.Report) -> str:
    return "\n".join(str(note) for note in report.target.notes)


def errors(report: precision_debug.Report) -> list[float]:
    return [np.inf if row.relative_l2 is None else row.relative_l2 for row in report.outputs]


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan", "nested"])
@pytest.mark.parametrize(("activation", "bounds"), [("Relu", ()), ("Clip", (0.0, 0.4))])
def test_what_a_body_reads_is_what_it_was(activation: str, bounds: Sequence[float], kind: str, tmp_path: Path) -> None:
    report = compared(model(tmp_path, activation, bounds=bounds, body=kind, of="act"), "ort_int8")
    assert max(errors(report)) < 0.05
    assert holds_approved(notes(report))


@pytest.mark.parametrize("kind", ["If", "Loop"])
def test_a_body_reads_what_the_activation_reads(kind: str, tmp_path: Path) -> None:
    """It would lose the name of what it reads, and the model would not load."""
    report = compared(model(tmp_path, "Relu", body=kind, of="conv"), "ort_int8")
    assert max(errors(report)) < 0.05
    assert "act stays in float" in notes(report)


@pytest.mark.parametrize("bounds", [(0.3, 1.0), (-1.0, -0.3), (0.3, ""), ("low", 2.0), ("", "low")])
def test_bounds_that_a_quantiser_does_not_have_are_not_left_to_it(
    bounds: Sequence[float | str], tmp_path: Path
) -> None:
    """Its range holds zero, whatever the bounds are; and what is fed says itself where the bounds are."""
    path = model(tmp_path, "Clip", bounds=bounds)
    report = compared(path, "ort_int8")
    assert max(errors(report)) < 0.05
    assert "act stays in float" in notes(report)


@pytest.mark.parametrize("types", ["int8", "uint8", "int16"])
def test_an_activation_that_gives_nothing_but_zeros(types: str, tmp_path: Path) -> None:
    """Its range is a point, for which int8 gets the scale 1 and the zero point 0: negative numbers pass."""
    path = model(tmp_path, "Relu", bias=-30.0)
    report = compared(path, "ort_int8", activation_type=types)
    found = next(row.comparison for row in report.rows if row.name == "act" and row.comparison is not None)
    assert (found.target.min, found.target.max) == (0, 0)
    assert ("act stays in float" in notes(report)) == (types != "uint8")


@pytest.mark.parametrize(("activation", "bounds"), [("Relu", ()), ("Clip", (0.0, 6.0)), ("Clip", (-0.2, 0.3))])
def test_what_the_quantiser_does_itself_is_left_to_it(activation: str, bounds: Sequence[float], tmp_path: Path) -> None:
    report = compared(model(tmp_path, activation, bounds=bounds), "ort_int8")
    assert max(errors(report)) < 0.05
    assert "stays in float" not in notes(report)


def test_an_output_of_the_model_is_what_it_was(tmp_path: Path) -> None:
    report = compared(model(tmp_path, "Relu", more=False), "ort_int8")
    assert max(errors(report)) < 0.05


@pytest.mark.parametrize("mode", ["ort_int8_dynamic", "ov_int8"])
@pytest.mark.parametrize("of", ["act", "conv"])
def test_others_remove_nothing(mode: str, of: str, tmp_path: Path) -> None:
    if mode == "ov_int8":
        pytest.importorskip("nncf", reason="it quantises")
    report = compared(model(tmp_path, "Relu", body="If", of=of), mode)
    assert max(errors(report)) < 0.1


@pytest.mark.parametrize(("kind", "of"), [("If", "act"), ("Loop", "act"), ("", "")])
def test_a_workaround_is_told_before_everything_else(kind: str, of: str, tmp_path: Path) -> None:
    """With the error of the file that the quantiser makes by itself: none of the report's numbers is about that one."""
    bounds = () if kind else (0.3, 1.0)
    report = compared(model(tmp_path, "Relu" if kind else "Clip", bounds=bounds, body=kind, of=of), "ort_int8")
    note = next(one for one in report.target.notes if one.code.startswith("onnxruntime.left_in_float"))
    assert str(note) in lead_sentences(report)[0].en
    assert note.args["ours"] < 0.05
    assert note.args["stock"] > (5 * note.args["ours"] if kind == "If" else note.args["ours"])
    again = precision_debug.compare(
        model(tmp_path, "Relu"), run_mode="ort_int8", inputs={"x": FEEDS["x"]}, explain="off"
    )
    assert "tool's own file" not in "".join(text.en for text in lead_sentences(again))


def test_of_what_fails_who_did_it_is_told_before_the_workaround(tmp_path: Path) -> None:
    """One channel of the input is a thousand times the others: that is the file's fault, whatever its Clip is."""
    path = Path(model(tmp_path, "Clip", bounds=(0.25, 9.0)))
    whole = onnx.load(path)
    held = next(one for one in whole.graph.initializer if one.name == "w1")
    weight = np.array(numpy_helper.to_array(held))
    weight[:, 3] /= 1000
    held.CopyFrom(numpy_helper.from_array(weight, "w1"))
    onnx.save(whole, path)
    x = FEEDS["x"].copy()
    x[:, 3] *= 1000
    report = precision_debug.compare(str(path), run_mode="ort_int8", inputs={"x": x})
    assert any(note.code == "onnxruntime.left_in_float_measured" for note in report.target.notes)
    assert report.exit_status == 1
    said = [text.en for text in lead_sentences(report)]
    assert "lost the precision" in said[0]
    assert said[1].startswith("What ran is not the tool's own file")


def test_nodes_without_names_are_kept_too(tmp_path: Path) -> None:
    report = compared(model(tmp_path, "Relu", body="If", of="act", name=""), "ort_int8")
    assert max(errors(report)) < 0.05


@pytest.mark.parametrize(("of", "bias", "why"), [
    ("act", 0.0, "the body of an If, Loop or Scan reads its result"),
    ("x", -30.0, "the quantiser would let pass -128 to 127"),
])  # fmt: skip
def test_a_file_that_somebody_quantised_so_is_proven_to_be_wrong(
    of: str, bias: float, why: str, tmp_path: Path
) -> None:
    """onnxruntime.quantization as a user calls it; an activation that it may remove is not reported."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Once(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter([FEEDS])

        def get_next(self) -> Any:
            return next(self.left, None)

    path, made = model(tmp_path, "Relu", body="If", of=of, bias=bias), str(tmp_path / "int8.onnx")
    types = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(path, made, Once(), quant_format=QuantFormat.QDQ, **types)
    report = precision_debug.compare(made, baseline_model=path, run_mode="ort_opt", inputs=FEEDS, explain="off")
    said = [str(note) for note in report.notes if note.code == "proven_removed" and note.args["name"] == "act"]
    assert len(said) == 1
    assert why in said[0]
    path = model(tmp_path, "Relu", body="If", of="x")
    quantize_static(path, made, Once(), quant_format=QuantFormat.QDQ, **types)
    report = precision_debug.compare(made, baseline_model=path, run_mode="ort_opt", inputs=FEEDS, explain="off")
    assert "proven_removed" not in {note.code for note in report.notes}


def test_the_script_that_a_search_hands_over_leaves_it_too(tmp_path: Path) -> None:
    from precision_debug_onnxruntime import OnnxRuntimeBackend

    from precision_debug.records import ModelFiles, SessionSpec

    path = model(tmp_path, "Relu", body="If", of="act")
    spec = SessionSpec(model=ModelFiles(model_file=path), mode="ort_int8", options={})
    keep = OnnxRuntimeBackend().keep(spec)
    assert keep is not None
    script = next(one for one in keep.hand_over(("conv2",), (), tmp_path) if one.kind == "config")
    assert "nodes_to_exclude=['conv2', 'conv2_MatMul', 'conv2_Add', 'act', " in script.text


@pytest.mark.parametrize("bounds", [(0.3, 1.0), (0.0, 6.0)])
def test_what_an_optimiser_fuses_is_not_called_gone(bounds: Sequence[float], tmp_path: Path) -> None:
    import onnxruntime

    path, made = model(tmp_path, "Clip", bounds=bounds, body="If", of="x"), tmp_path / "optimised.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(made), 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert "FusedConv" in {node.op_type for node in onnx.load(str(made)).graph.node}
    report = precision_debug.compare(str(made), baseline_model=path, run_mode="ort_opt", inputs=FEEDS, explain="off")
    assert "proven_removed" not in {note.code for note in report.notes}


@pytest.mark.parametrize(("zero", "kind", "lets"), [
    ("float8_e4m3fn", None, "-448 to 448"), ("float8_e5m2", None, "-5.734e+04 to 5.734e+04"),
    ("absent", TensorProto.INT8, "-128 to 127"), ("absent", TensorProto.UINT8, ""), ("absent", None, ""),
    ("int4", None, "-8 to 7"), ("uint4", None, ""),
])  # fmt: skip
def test_a_zero_point_of_every_type_and_none(zero: str, kind: int | None, lets: str, tmp_path: Path) -> None:
    """A float8 has no end at 0 whatever its scale; a quantiser without a zero point ends where its type does."""
    import ml_dtypes

    from precision_debug.onnx.model import read_model
    from precision_debug.onnx.removed_activations import find_wrongly_removed

    before = read_model(model(tmp_path, "Relu"))
    made = onnx.load(str(tmp_path / "model.onnx"))
    graph, held = made.graph, [numpy_helper.from_array(np.float32(1.0), "scale")]
    relu = next(node for node in graph.node if node.op_type == "Relu")
    graph.node.remove(relu)
    graph.node[0].output[0] = "act"
    read = ["act", "scale"]
    if zero != "absent":
        held.append(numpy_helper.from_array(np.zeros((), getattr(ml_dtypes, zero)), "zero"))
        read.append("zero")
    more = {} if kind is None else {"output_dtype": kind}
    graph.node.insert(1, helper.make_node("QuantizeLinear", read, ["codes"], **more))
    graph.node.insert(2, helper.make_node("DequantizeLinear", ["codes", *read[1:]], ["real"]))
    graph.node[3].input[0] = "real"
    graph.initializer.extend(held)
    made.opset_import[0].version, made.ir_version = 21, 10
    onnx.save(made, str(tmp_path / "quantised.onnx"))
    found = find_wrongly_removed(before, read_model(str(tmp_path / "quantised.onnx")))
    assert [f"{why.args['least']:.4g} to {why.args['most']:.4g}" for why in found.values()] == ([lets] if lets else [])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.INT8])
def test_a_removed_activation_is_the_cause(kind: int, tmp_path: Path) -> None:
    """And not the type, however coarse it is: clipped as the operator did, next to nothing of the error is left."""
    weights = {f"w{n}": np.random.default_rng(n).normal(size=(32, 32)).astype(np.float32) / 6 for n in range(2)}
    x = np.random.default_rng(5).normal(size=(16, 32)).astype(np.float32)
    value, node = helper.make_tensor_value_info, helper.make_node
    ends = [value("x", TensorProto.FLOAT, x.shape)], [value("y", TensorProto.FLOAT, x.shape)]
    first = node("MatMul", ["x", "w0"], ["h"], name="first")
    step = float(np.abs(x @ weights["w0"]).max()) / (448 if kind == TensorProto.FLOAT8E4M3FN else 127)
    quantised = [
        node("MatMul", ["x", "w0"], ["r"], name="first"),
        node("QuantizeLinear", ["r", "step", "zero"], ["r_q"], name="q"),
        node("DequantizeLinear", ["r_q", "step", "zero"], ["r_d"], name="dq"),
        node("MatMul", ["r_d", "w1"], ["y"], name="last"),
    ]
    plain = [first, node("Relu", ["h"], ["r"], name="act"), node("MatMul", ["r", "w1"], ["y"], name="last")]
    paths = [tmp_path / "float.onnx", tmp_path / "quantised.onnx"]
    for path, nodes in zip(paths, (plain, quantised), strict=True):
        held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
        if nodes is quantised:
            held.append(numpy_helper.from_array(np.array(step, np.float32), "step"))
            held.append(helper.make_tensor("zero", kind, [], [0]))
        graph = helper.make_graph(nodes, "g", *ends, held)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    report = precision_debug.compare(
        str(paths[1]), baseline_model=str(paths[0]), run_mode="ort_opt", baseline="ort_fp32", inputs={"x": x}
    )
    assert report.explanation is not None
    culprit = report.explanation.culprits[0]
    assert (culprit.cause, culprit.evidence["name"]) == ("files_differ", "act")
    if kind != TensorProto.INT8:  # there ONNX Runtime fuses what comes behind it
        assert culprit.name == "r"
        assert culprit.evidence["left"] < 0.2


def test_a_file_whose_numbers_become_infinite_is_not_called_right(tmp_path: Path) -> None:
    """Log-mel features: without its Clip, the logarithm of what became 0 is -Inf in the quantiser's own file, beside
    an output that is right."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["power"], name="mel"),
        helper.make_node("Clip", ["power", "low"], ["clipped"], name="clip"),
        helper.make_node("Log", ["clipped"], ["y"], name="log"),
        helper.make_node("Shape", ["x"], ["length"], name="length"),
    ]
    held = [
        numpy_helper.from_array(np.abs(np.random.default_rng(1).normal(size=(8, 8))).astype(np.float32), "w"),
        numpy_helper.from_array(np.float32(1e-5), "low"),
    ]
    graph = helper.make_graph(
        nodes, "features", [value("x", TensorProto.FLOAT, [4, 8])],
        [value("y", TensorProto.FLOAT, [4, 8]), value("length", TensorProto.INT64, [2])], held,
    )  # fmt: skip
    path = tmp_path / "features.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    feeds = {"x": np.logspace(-6, 2, 32, dtype=np.float32).reshape(4, 8)}
    report = precision_debug.compare(str(path), run_mode="ort_int8", inputs=feeds, explain="off")
    note = next(one for one in report.target.notes if one.code == "onnxruntime.left_in_float_measured")
    assert note.args["stock"] == np.inf
    assert np.isfinite(note.args["ours"])
