"""A .tflite beside the ONNX model that a converter made it of: paired by values, its layouts turned back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import litert_files
import numpy as np
import pytest

import precision_debug
from precision_debug.cli import main

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

ONNX = litert_files.DIGITS / "digits.onnx"
IMAGES = np.load(litert_files.DIGITS / "test_images.npz")["image"]


def compare(path: Path, mode: str = "tflite_opt", **options: Any) -> Any:
    return precision_debug.compare(
        path, run_mode=mode, baseline="ort_fp32", baseline_model=ONNX, inputs={"image": IMAGES}, **options
    )  # fmt: skip


def told_by_the_converter() -> dict[str, str]:
    """The .tflite's tensor to the last of ONNX's that it holds, as onnx2tf itself wrote down."""
    found = {}
    for record in json.loads((litert_files.DATA / "correspondence.json").read_text(encoding="utf-8"))["records"]:
        if record["exists_in_final_model"]:
            found[record["resolved_tflite_tensor_name"]] = record["onnx_output_name"]
    return found


@pytest.mark.parametrize("name", ["digits_float32", "digits_int8", "outlier_int8"])
def test_every_pair_is_the_converters_own(name: str) -> None:
    """Also of a file that computes other values from its second block on."""
    report = compare(litert_files.DATA / f"{name}.tflite", explain="off")
    pairs = {row.target_name: row.name for row in report.rows if row.comparison is not None}
    assert pairs == {**told_by_the_converter(), "image": "image", "pool_output_nhwc": "pool_out"}
    assert all(row.comparison.shapes_match for row in report.rows if row.comparison is not None)


def test_a_healthy_conversion_is_as_expected() -> None:
    report = compare(litert_files.DATA / "digits_float32.tflite")
    assert str(report.verdict) == "as expected"
    assert report.outputs[0].relative_l2 < 1e-6
    assert any("9 of the 9 tensors" in note for note in report.notes)
    assert str(compare(litert_files.DATA / "digits_int8.tflite").verdict) == "as expected"


@pytest.mark.parametrize("names", ["its own", "none"])
def test_a_wrong_weight_is_named(tmp_path: Path, names: str) -> None:
    """Without names too: the model goes on from what was found, and finds the rest again behind the fault."""

    def wrong(flat: Any) -> None:
        bias = litert_files.tensor(flat, "conv2_conv_bias")
        value = flat.array(bias).copy()
        value[5] += 3
        flat.model.buffers[bias.buffer].data = value.view(np.uint8)
        if names == "none":
            for number, one in enumerate(flat.main.tensors):
                one.name = f"t{number}".encode()

    path = litert_files.changed(tmp_path / "m.tflite", wrong, "digits_float32.tflite")
    report = compare(path)
    assert str(report.verdict) == "out of tolerance"
    assert [one.name for one in report.explanation.culprits] == ["relu2_out"]
    assert sum(row.comparison is not None for row in report.rows) == 9


def test_a_recorded_model_serves_as_well(tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", image=IMAGES[:4])
    command = ["--model_file", str(ONNX), "--run_mode", "ort_fp32", "--inputs", str(tmp_path / "few.npz")]
    assert main([*command, "--sample", "0", "--record", str(tmp_path / "rec")]) == 0
    report = precision_debug.compare(
        litert_files.DATA / "digits_int8.tflite", run_mode="tflite_ref", baseline=str(tmp_path / "rec")
    )  # fmt: skip
    assert str(report.verdict) == "as expected"
    assert sum(row.comparison is not None for row in report.rows) == 9
