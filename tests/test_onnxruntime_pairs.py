"""The user's own converted and quantised files against the float32 model that they were made from."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import holds_approved, raises_approved
from onnx import helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16

import precision_debug
from precision_debug.errors import InputError, ModelError
from precision_debug.records import Status
from precision_debug.report.model import Report

RANDOM = np.random.default_rng(8)


def small(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * 0.3).astype(np.float32)


class Reader(CalibrationDataReader):
    def __init__(self, feeds: dict[str, Any]) -> None:
        self.left = [feeds]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def residual() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Conv, BatchNormalization and Relu, an Add and its Relu, twice; then a Gemm."""
    nodes, weights, value, width = [], {}, "x", 3
    for i in range(2):
        weights |= {f"w{i}": small(8, width, 3, 3), f"v{i}": small(8, 8, 3, 3)}
        weights |= {f"{k}{i}": abs(small(8)) + np.float32(0.5) for k in ("scale", "bias", "mean", "var")}
        nodes += [
            helper.make_node("Conv", [value, f"w{i}"], [f"conv{i}"], name=f"Conv{i}", pads=[1, 1, 1, 1]),
            helper.make_node(
                "BatchNormalization", [f"conv{i}", f"scale{i}", f"bias{i}", f"mean{i}", f"var{i}"], [f"norm{i}"],
                name=f"Norm{i}",
            ),
            helper.make_node("Relu", [f"norm{i}"], [f"relu{i}"], name=f"Relu{i}"),
            helper.make_node("Conv", [f"relu{i}", f"v{i}"], [f"second{i}"], name=f"Second{i}", pads=[1, 1, 1, 1]),
            helper.make_node("Add", [f"second{i}", f"relu{i}"], [f"add{i}"], name=f"Add{i}"),
            helper.make_node("Relu", [f"add{i}"], [f"out{i}"], name=f"Out{i}"),
        ]  # fmt: skip
        value, width = f"out{i}", 8
    weights |= {"fc": small(8, 4)}
    nodes += [
        helper.make_node("GlobalAveragePool", [value], ["pool"], name="Pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], name="Flat"),
        helper.make_node("Gemm", ["flat", "fc"], ["y"], name="Fc"),
    ]
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [1, 3, 12, 12])], [onnx_models.value("y", [1, 4])], weights
    )
    return model, {"x": small(1, 3, 12, 12)}


def quantised(folder: Path, form: Any, prepared: bool, activation: Any) -> tuple[Path, Path, dict[str, Any]]:
    model, feeds = residual()
    plain, ready, done = folder / "plain.onnx", folder / "ready.onnx", folder / "int8.onnx"
    onnx.save(model, plain)
    if prepared:
        quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
    quantize_static(
        str(ready if prepared else plain), str(done), Reader(feeds), quant_format=form, activation_type=activation
    )
    return plain, done, feeds


def against(target: Path, baseline: Path, feeds: dict[str, Any], mode: str) -> Report:
    return precision_debug.compare(target, run_mode=mode, baseline="ort_fp32", baseline_model=baseline, inputs=feeds)


CASES = [
    (form, prepared, activation, mode)
    for form in (QuantFormat.QDQ, QuantFormat.QOperator) for prepared in (False, True)
    for activation in (QuantType.QInt8, QuantType.QUInt8) for mode in ("ort_fp32", "ort_opt")
]  # fmt: skip


@pytest.mark.parametrize(("form", "prepared", "activation", "mode"), CASES)
def test_a_users_own_int8_file_pairs_with_its_float32_model(
    form: Any, prepared: bool, activation: Any, mode: str, tmp_path: Path
) -> None:
    plain, done, feeds = quantised(tmp_path, form, prepared, activation)
    report = against(done, plain, feeds, mode)
    compared = {row.name: row for row in report.rows if row.comparison is not None}
    for name, row in compared.items():
        assert row.relative_l2 is not None, name
        assert row.relative_l2 < 0.12, (name, row.target_name, row.relative_l2)
    for name in ("relu0", "relu1", "out0", "out1", "pool", "y"):
        assert name in compared, (name, next(row.reason for row in report.rows if row.name == name))


def test_a_name_whose_producer_does_not_fit_is_not_paired_and_both_rows_say_so(tmp_path: Path) -> None:
    plain, done, feeds = quantised(tmp_path, QuantFormat.QDQ, False, QuantType.QUInt8)
    target = onnx.load(done)
    kinds = {name: node.op_type for node in target.graph.node for name in node.output}
    assert kinds["relu0"] == "BatchNormalization"  # what the quantiser does
    report = against(done, plain, feeds, "ort_fp32")
    rows = {row.name: row for row in report.rows}
    assert rows["norm0"].target_name == "relu0"
    assert rows["relu0"].target_name == "relu0_DequantizeLinear_Output"
    for name in ("norm0", "relu0", "add0", "out0"):
        assert rows[name].comparison is not None
        assert rows[name].relative_l2 is not None
        assert rows[name].relative_l2 < 0.05, (name, rows[name].target_name)


def test_a_float16_file_is_fed_as_a_deployment_would(tmp_path: Path) -> None:
    model, feeds = residual()
    onnx.save(model, tmp_path / "plain.onnx")
    onnx.save(convert_float_to_float16(copy.deepcopy(model)), tmp_path / "half.onnx")
    report = against(tmp_path / "half.onnx", tmp_path / "plain.onnx", feeds, "ort_fp32")
    rows = {row.name: row for row in report.rows}
    for name in ("x", "conv0", "relu0", "y"):
        assert rows[name].comparison is not None, name
        assert 0 < (rows[name].relative_l2 or 0) < 0.01, name
    assert rows["x"].comparison is not None
    assert rows["x"].comparison.base.dtype == "float32"
    assert holds_approved(report.notes)
    assert not [row for row in report.rows if row.status is Status.FUSED_AWAY]


# ---- inputs that are not tensors


def of_a_sequence() -> onnx.ModelProto:
    value = helper.make_tensor_sequence_value_info("s", 1, None)
    nodes = [
        helper.make_node("ConcatFromSequence", ["s"], ["joined"], axis=0),
        helper.make_node("Softmax", ["joined"], ["y"], axis=1),
    ]
    return onnx_models.model(nodes, [value], [onnx_models.value("y")])


@pytest.mark.parametrize("mode", ["ort_opt", "ort_fp16", "ort_fp16_sim", "ort_bf16_sim", "onnx_ref"])
def test_a_sequence_that_is_given_is_fed(mode: str, tmp_path: Path) -> None:
    onnx.save(of_a_sequence(), tmp_path / "m.onnx")
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode=mode, inputs={"s": [small(2, 3), small(1, 3)]}, atol=1e-2, rtol=1e-2
    )
    rows = {row.name: row for row in report.rows}
    assert rows["joined"].status is rows["y"].status is Status.PASS
    assert (report.inputs[0].dtype, report.inputs[0].shape) == ("sequence", (2,))


def test_a_sequence_of_parts_of_unlike_sizes_calibrates(tmp_path: Path) -> None:
    value = helper.make_tensor_sequence_value_info("s", 1, None)
    nodes = [
        helper.make_node("ConcatFromSequence", ["s"], ["joined"], axis=0),
        helper.make_node("MatMul", ["joined", "w"], ["y"]),
    ]
    onnx.save(onnx_models.model(nodes, [value], [onnx_models.value("y")], {"w": small(3, 4)}), tmp_path / "m.onnx")
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode="ort_int8", inputs={"s": [small(2, 3), small(1, 3)]}
    )
    assert 0 < report.outputs[0].relative_l2 < 0.05


def test_a_sequence_is_not_made_up(tmp_path: Path) -> None:
    onnx.save(of_a_sequence(), tmp_path / "m.onnx")
    with raises_approved(InputError) as raised:
        precision_debug.compare(tmp_path / "m.onnx", run_mode="ort_opt")
    assert "--inputs SCRIPT.py:FUNCTION" in str(raised.value)


@pytest.mark.parametrize("mode", ["ort_opt", "onnx_ref"])
def test_an_optional_input_is_refused_with_what_to_do(mode: str, tmp_path: Path) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2]))
    node = helper.make_node("OptionalGetElement", ["o"], ["y"])
    model = onnx_models.model([node], [helper.make_value_info("o", kind)], [onnx_models.value("y")], opset=18)
    onnx.save(model, tmp_path / "m.onnx")
    with raises_approved(ModelError):
        precision_debug.compare(tmp_path / "m.onnx", run_mode=mode, inputs={"o": small(2)})


# ---- outputs that are not tensors


def with_parts(last: list[Any], kind: Any, *, weight: float = 1.0, sizes: tuple[int, ...] = (1, 3)) -> onnx.ModelProto:
    """x [4, 6] to p, the probabilities of three classes, and what ``last`` makes of them."""
    random = np.random.default_rng(0)
    weights = {"w": random.normal(size=(6, 3)).astype(np.float32), "sizes": np.array(sizes, np.int64)}
    weights["w"][2, 1] *= weight
    nodes = [helper.make_node("MatMul", ["x", "w"], ["l"]), helper.make_node("Softmax", ["l"], ["p"]), *last]
    made = onnx_models.model(nodes, [onnx_models.value("x", [4, 6])], [helper.make_value_info("out", kind)], weights)
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return made


SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
SPLIT = helper.make_node("SplitToSequence", ["p", "sizes"], ["out"], axis=0)
PARTS = {
    "split": ([SPLIT], SEQUENCE),
    "of two shapes": ([helper.make_node("ReduceMax", ["p"], ["m"], keepdims=0, axes=[0]),
                       helper.make_node("SequenceConstruct", ["p", "m"], ["out"])], SEQUENCE),
    **{
        f"map of {name}": (
            [helper.make_node("ZipMap", ["p"], ["out"], domain="ai.onnx.ml", **{f"classlabels_{name}": labels})],
            helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(1, []))),
        )
        for name, labels, key in [("int64s", [3, 1, 2], 7), ("strings", ["b", "c", "a"], 8)]
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "status"),
    [(["b", "c", "a"], Status.PASS), (["b", "c", "d"], Status.FAIL), (["b", "a", "c"], Status.FAIL)],
)
def test_a_value_under_another_key_is_not_its_value(labels: list[str], status: Status, tmp_path: Path) -> None:
    kind = PARTS["map of strings"][1]
    for name, own in (("base", ["b", "c", "a"]), ("m", labels)):
        node = helper.make_node("ZipMap", ["p"], ["out"], domain="ai.onnx.ml", classlabels_strings=own)
        onnx.save(with_parts([node], kind), tmp_path / f"{name}.onnx")
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode="ort_fp32", baseline="ort_fp32", baseline_model=tmp_path / "base.onnx"
    )
    assert [row.status for row in report.outputs] == [status]


@pytest.mark.parametrize(
    ("labels", "alone"),
    [([3, 1, 4], ("2", "4")), ([3, 1], ("2", "-")), ([3, 1, 2, 7], ("-", "7"))],
)
def test_a_missing_key_is_its_own_answer(labels: list[int], alone: tuple[str, str], tmp_path: Path) -> None:
    """No numbers were compared, so that nothing is said of rounding."""
    for name, own in (("base", [3, 1, 2]), ("m", labels)):
        weights = {"w": np.random.default_rng(0).normal(size=(6, len(own))).astype(np.float32)}
        zipped = helper.make_node("ZipMap", ["p"], ["out"], domain="ai.onnx.ml", classlabels_int64s=own)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["l"]), helper.make_node("Softmax", ["l"], ["p"]), zipped]
        outputs = [helper.make_value_info("out", PARTS["map of int64s"][1])]
        made = onnx_models.model(nodes, [onnx_models.value("x", [4, 6])], outputs, weights)
        made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
        onnx.save(made, tmp_path / f"{name}.onnx")
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode="ort_fp32", baseline="ort_fp32", baseline_model=tmp_path / "base.onnx"
    )
    (row,) = report.outputs
    assert (row.status, row.reason.code) == (Status.FAIL, "map_keys")
    assert (row.reason.args["baseline"], row.reason.args["target"]) == alone
    assert report.explanation is None or report.explanation.state != "diffuse"


@pytest.mark.parametrize("mode", ["ort_opt", "ort_int8_dynamic", "onnx_ref"])
@pytest.mark.parametrize("case", PARTS)
def test_sequences_and_maps_are_compared_by_element(case: str, mode: str, tmp_path: Path) -> None:
    onnx.save(with_parts(*PARTS[case]), tmp_path / "m.onnx")
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode=mode)
    (row,) = report.outputs
    if mode == "onnx_ref" and "map" in case:
        assert row.status is Status.NOT_COMPARED  # onnx.reference's own ZipMap gives no opinion
        return
    assert row.status is Status.PASS
    assert row.comparison is not None
    assert row.comparison.base.shape == ((2, 3, 3) if case == "split" else (2, 4, 3) if "two" in case else (4, 3))


@pytest.mark.parametrize("case", PARTS)
def test_an_element_that_differs_is_found(case: str, tmp_path: Path) -> None:
    onnx.save(with_parts(*PARTS[case]), tmp_path / "base.onnx")
    onnx.save(with_parts(*PARTS[case], weight=1.5), tmp_path / "m.onnx")
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode="ort_fp32", baseline="ort_fp32", baseline_model=tmp_path / "base.onnx"
    )
    assert [row.status for row in report.outputs] == [Status.FAIL]


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1), (1, 2, 1)])
def test_a_sequence_that_is_divided_elsewhere_differs(sizes: tuple[int, ...], tmp_path: Path) -> None:
    onnx.save(with_parts(*PARTS["split"]), tmp_path / "base.onnx")
    onnx.save(with_parts(*PARTS["split"], sizes=sizes), tmp_path / "m.onnx")
    report = precision_debug.compare(
        tmp_path / "m.onnx", run_mode="ort_fp32", baseline="ort_fp32", baseline_model=tmp_path / "base.onnx"
    )
    assert [row.status for row in report.outputs] != [Status.PASS]
