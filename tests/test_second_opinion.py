"""A second opinion: operators in other implementations, and who is outvoted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import TensorProto, helper

from precision_debug import compare
from precision_debug.cli import main
from precision_debug.run.second_opinion import _Opinion, _weigh_opinions, list_same_kernels

DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def pooled(tmp_path: Path) -> str:
    nodes = [
        helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1),
        helper.make_node("Softmax", ["p"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "pooled", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    path = tmp_path / "pooled.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return str(path)


def _notes(report: Any) -> dict[str, str]:
    return {note.code: str(note) for note in report.notes}


def test_a_report_says_which_kernels_met_nothing_but_themselves(pooled: str) -> None:
    assert "AveragePool" in _notes(compare(pooled, run_mode="ort_opt"))["same_kernels"]
    assert "same_kernels" not in _notes(compare(str(DIGITS), run_mode="ort_opt"))


def test_a_second_opinion_of_a_good_kernel_alarms_nobody(pooled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model_file", pooled, "--run_mode", "ort_opt", "--second_opinion"]) == 0
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert holds_approved(said, 2)
    assert "same engine's kernels" not in said


def test_a_kernel_that_is_wrong_on_both_sides_is_a_culprit(pooled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline's values of the pool are replaced by what a wrong kernel would have given."""
    from precision_debug.run import second_opinion

    real = second_opinion._read_values

    def wrong(*given: Any) -> dict[str, Any]:
        values = real(*given)
        return {**values, "p": values["p"] * np.float32(1.5)}

    monkeypatch.setattr(second_opinion, "_read_values", wrong)
    from precision_debug.run import worker

    assert worker  # in this process: a child would not have the wrong kernel
    report = _in_process(pooled)
    differ = {str(note.args["name"]): note.args for note in report.notes if note.code == "opinions_differ"}
    if differ:  # one other implementation is installed here: either may be wrong, of each operator that differs
        assert not report.explanation.culprits
        assert (differ["p"]["op"], differ["p"]["error"]) == ("AveragePool", pytest.approx(1 / 3, rel=1e-3))
        assert "y" in differ, "the Softmax reads what the wrong kernel gave, and its own result is of the right one"
        return
    first = report.explanation.culprits[0]
    assert (first.name, first.op_types) == ("p", ("AveragePool",))
    assert first.cause == "wrong_kernel"
    assert first.evidence["error"] == pytest.approx(1 / 3, rel=1e-3)
    assert report.exit_status == 1


def _in_process(model: str) -> Any:
    from precision_debug.records import ModelFiles, RunSpec
    from precision_debug.report.from_journal import report_of_events
    from precision_debug.run.pipeline import execute

    told: list[Any] = []
    spec = RunSpec(
        model=ModelFiles(model_file=model), run_mode="ort_opt", second_opinion=True,
        tolerance=compare(model, run_mode="ort_opt").spec.tolerance,
    )  # fmt: skip
    execute(spec, SimpleNamespace(write=told.append), folder=Path(model).parent)  # type: ignore[arg-type]
    return report_of_events(told)


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ((1.0, 1.0, 1.0), None),
        ((1.0, 1.0, 2.0), None),  # it agrees with one
        ((2.0, 1.0, 1.0), "wrong_kernel"),
        ((3.0, 1.0, 2.0), "kernels_disagree"),
        ((2.0, 1.0), "kernels_disagree"),
        ((np.nan, 1.0, 1.0), "wrong_kernel"),
    ],
)
def test_who_is_outvoted(values: tuple[float, ...], cause: str | None) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="n")
    own, *others = (_Opinion(mode=f"m{i}", outputs={"y": np.full(3, one)}) for i, one in enumerate(values))
    found = _weigh_opinions(node, own, others)
    assert (found.cause if found else None) == cause


def test_pools_and_pads_only_in_the_forms_that_were_wrong_before() -> None:
    def kernels(*nodes: Any) -> tuple[str, ...]:
        return list_same_kernels(SimpleNamespace(proto=SimpleNamespace(graph=SimpleNamespace(node=nodes))))

    plain = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[1, 1])
    assert kernels(plain, helper.make_node("Pad", ["x", "p"], ["y"]), helper.make_node("Conv", ["x", "w"], ["y"])) == ()
    dilated = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 1])
    assert kernels(dilated, helper.make_node("Pad", ["x", "p"], ["y"], mode="wrap")) == ("MaxPool", "Pad")


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_a_healthy_quantised_file_accuses_nobody(tmp_path: Path, form: str) -> None:
    """Scales other than 1: integers were compared with the numbers that they stand for."""
    r = np.random.default_rng(0)
    scalars = {"sx": np.float32(0.05), "zx": np.uint8(120), "sy": np.float32(0.2), "zy": np.uint8(90)}
    weight = r.integers(-90, 90, (16, 8)).astype(np.int8)
    constants = {**scalars, "w": weight, "sw": np.float32(0.01), "zw": np.int8(0)}
    ends = [helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"], name="q"),
            helper.make_node("DequantizeLinear", ["p", "sy", "zy"], ["y"], name="y")]  # fmt: skip
    if form == "qoperator":
        middle = [helper.make_node("QLinearMatMul", ["q", "sx", "zx", "w", "sw", "zw", "sy", "zy"], ["p"], name="p")]
    else:
        middle = [helper.make_node("DequantizeLinear", ["q", "sx", "zx"], ["d"], name="d"),
                  helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["v"], name="v"),
                  helper.make_node("MatMul", ["d", "v"], ["m"], name="m"),
                  helper.make_node("QuantizeLinear", ["m", "sy", "zy"], ["p"], name="p")]  # fmt: skip
    graph = helper.make_graph(
        [ends[0], *middle, ends[1]], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    feeds = {"x": r.standard_normal((4, 16)).astype(np.float32)}
    report = compare(str(tmp_path / "m.onnx"), run_mode="ort_opt", inputs=feeds, second_opinion=True)
    assert not report.explanation.culprits
    assert "QuantizeLinear" in _notes(report)["second_opinion"]
    assert report.exit_status == 0
