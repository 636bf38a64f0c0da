"""LiteRT: a tensor of an INT8 file on a scale of 0, NaN, Inf or below float32's normal numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litert_files
import numpy as np
import pytest

import precision_debug

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")

BROKEN = {"0": 0.0, "NaN": np.nan, "Inf": np.inf, "1.001e-42": 1e-42}
FED = {"x": np.random.default_rng(5).normal(size=(1, 8, 8, 4)).astype(np.float32)}


def compare(tmp_path: Path, kind: str, name: str, scale: float, two: bool, channels: Any = ...) -> Any:
    def change(flat: Any) -> None:
        told = litert_files.tensor(flat, name).quantization
        told.scale = np.array(told.scale, np.float32)
        told.scale[channels] = scale

    base = litert_files.convolve(tmp_path / "float.tflite", kind, whole=False)
    whole = litert_files.convolve(tmp_path / "whole.tflite", kind, whole=True)
    path = litert_files.changed(tmp_path / "m.tflite", change, str(whole))
    return precision_debug.compare(path, run_mode="tflite_ref", baseline_model=str(base) if two else None, inputs=FED)


@pytest.mark.parametrize("scale", BROKEN)
@pytest.mark.parametrize("kind", ["CONV_2D", "TRANSPOSE_CONV"])
@pytest.mark.parametrize(("name", "channels"), [("xq", ...), ("w", ...), ("w", [1, 3]), ("yq", ...)])
def test_beside_the_float_file(tmp_path: Path, name: str, channels: Any, kind: str, scale: str) -> None:
    """Before: "coarse" and constants; of NaN and Inf two of four tensors' own."""
    (culprit,) = compare(tmp_path, kind, name, BROKEN[scale], two=True, channels=channels).explanation.culprits
    told = culprit.evidence
    assert (culprit.cause, told["scale"]) == ("broken_scale", scale)
    assert told.get("weight", "") == ("w" if name == "w" else "")
    assert name == "w" or told["left"] < 0.05


@pytest.mark.parametrize("scale", BROKEN)
@pytest.mark.parametrize("name", ["xq", "yq"])
def test_of_one_file(tmp_path: Path, name: str, scale: str) -> None:
    """A scale of 0 was taken for none: the file that it stands for could not be prepared."""
    found = {one.name: one for one in compare(tmp_path, "CONV_2D", name, BROKEN[scale], two=False).explanation.culprits}
    assert (found[name].cause, found[name].evidence["scale"]) == ("broken_scale", scale)
