"""Names that ONNX Runtime's quantiser would give a second time: h_scale, h_QuantizeLinear … of a tensor h."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from onnx_models import model, value
from onnxruntime.quantization import CalibrationDataReader, quantize_static

import precision_debug
from precision_debug.errors import ModelError

X = np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32)


class Calibration(CalibrationDataReader):
    def __init__(self) -> None:
        self.left = [{"x": X}]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def save(path: Path, *, gamma: str = "gamma", node: str = "times", made: str = "m") -> str:
    """A product, a factor for each channel and a product."""
    draw = np.random.default_rng(4)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "first"), helper.make_node("Mul", ["h", gamma], [made], node),
        helper.make_node("MatMul", [made, "v"], ["y"], "last"),
    ]  # fmt: skip
    weights = {"w": draw.normal(size=(8, 8)), "v": draw.normal(size=(8, 8)), gamma: 1 + 0.1 * draw.normal(size=8)}
    constants = {name: held.astype(np.float32) for name, held in weights.items()}
    onnx.save(model(nodes, [value("x", [4, 8])], [value("y", [4, 8])], constants), str(path))
    return str(path)


def compare(path: str, mode: str = "ort_int8", **more: str) -> dict[str, float]:
    """Return the relative L2 of what the file's operators make."""
    made = {name for node in onnx.load(path).graph.node for name in node.output}
    rows = precision_debug.compare(path, run_mode=mode, inputs={"x": X}, explain="off", **more).rows
    return {row.name: row.comparison.relative_l2 for row in rows if row.comparison is not None and row.name in made}


@pytest.mark.parametrize("mode", ["ort_int8", "ort_int8_dynamic"])
@pytest.mark.parametrize(
    "names",
    [{"gamma": "h_scale"}, {"gamma": "h_zero_point"}, {"gamma": "w_quantized"}, {"gamma": "w_scale"},
     {"node": "h_DequantizeLinear"}, {"node": "h_QuantizeLinear"}, {"made": "h_QuantizeLinear_Output"}],
    ids=str,
)  # fmt: skip
def test_a_name_of_the_file_that_the_quantiser_gives_too_changes_nothing(
    tmp_path: Path, mode: str, names: dict[str, str]
) -> None:
    plain = compare(save(tmp_path / "plain.onnx"), mode)
    named = compare(save(tmp_path / "named.onnx", **names), mode)
    made = {"m": names.get("made", "m")}
    assert {made.get(name, name): error for name, error in plain.items()} == named


@pytest.mark.parametrize(("name", "told"), [("h_scale", True), ("first_scale", False), ("h_scaled", False)])
def test_only_names_that_it_gave_are_told(tmp_path: Path, name: str, told: bool) -> None:
    path = save(tmp_path / "named.onnx", gamma=name)
    notes = precision_debug.compare(path, run_mode="ort_int8", inputs={"x": X}, explain="off").target.notes
    assert ("onnxruntime.names_twice" in {note.code for note in notes}) == told


def test_a_file_that_it_has_quantised_is_quantised_again(tmp_path: Path) -> None:
    """Two nodes of one name, and the hint was to correct the export."""
    once = tmp_path / "once.onnx"
    quantize_static(save(tmp_path / "plain.onnx"), str(once), Calibration(), op_types_to_quantize=["Mul"])
    errors = compare(str(once))
    assert {"h", "h_DequantizeLinear_Output", "m", "m_DequantizeLinear_Output", "y"} <= {*errors}
    assert max(errors.values()) < 0.1


def test_what_the_quantiser_made_is_no_fault_of_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_debug_onnxruntime.make import quantise

    def refuse(*_arguments: object) -> None:
        raise ModelError("ONNX Runtime refuses the model: this is an invalid model", hint="correct its export")

    monkeypatch.setattr(quantise, "infer_types", refuse)
    with pytest.raises(ModelError) as caught:
        compare(save(tmp_path / "plain.onnx"))
    assert "export" not in f"{caught.value} {caught.value.hint}"
