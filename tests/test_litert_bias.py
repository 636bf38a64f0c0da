"""LiteRT: a quantised file whose bias is wrong, or has another scale than it is read on, beside the float file, and
beside what the file itself stands for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import litert_files
import numpy as np
import pytest

import precision_debug

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")

WRONG: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "half as large again": lambda codes, scale: (np.round(codes * 1.5), scale),
    "a channel of 0": lambda codes, scale: (np.where(np.abs(codes) == np.abs(codes).max(), 0, codes), scale),
    "the other way": lambda codes, scale: (codes[::-1], scale),
    "one more": lambda codes, scale: (codes + np.round(1 / scale), scale),
}


def other_scale(codes: Any, scale: Any) -> tuple[Any, Any]:
    return np.round(codes / 2), scale * 2


def compare(path: Path, base: Path | None, **inputs: Any) -> Any:
    return precision_debug.compare(path, run_mode="tflite_opt", baseline_model=base and str(base), inputs=inputs)


def digits(tmp_path: Path, change: Callable[[Any, Any], tuple[Any, Any]], two: bool = True) -> Any:
    path = litert_files.changed(tmp_path / "m.tflite", litert_files.change_bias("conv2_conv_bias", change))
    base = litert_files.DATA / "digits_float32.tflite" if two else None
    return compare(path, base, image=litert_files.images(40))


def convolved(tmp_path: Path, kind: str, change: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
    base = litert_files.convolve(tmp_path / "float.tflite", kind, whole=False)
    whole = litert_files.convolve(tmp_path / "whole.tflite", kind, whole=True)
    path = litert_files.changed(tmp_path / "m.tflite", litert_files.change_bias("b", change), str(whole))
    return compare(path, base, x=np.random.default_rng(5).normal(size=(1, 8, 8, 4)).astype(np.float32))


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("kind", ["CONV_2D", "TRANSPOSE_CONV", "digits"])
def test_a_wrong_bias_is_the_constant(tmp_path: Path, kind: str, fault: str) -> None:
    """"Computes something else", a zero point or the weight's own rounding were told before. With the baseline's in its
    place, where the activation cut nothing off, next to nothing is left."""
    report = digits(tmp_path, WRONG[fault]) if kind == "digits" else convolved(tmp_path, kind, WRONG[fault])
    (culprit,) = report.explanation.culprits
    assert (culprit.cause, culprit.evidence["what"]) == ("files_differ", "constant")
    assert culprit.evidence["name"] == ("conv2_conv_bias" if kind == "digits" else "b")
    assert culprit.evidence["left"] < 0.1


@pytest.mark.parametrize("kind", ["CONV_2D", "TRANSPOSE_CONV", "digits", "digits, one file"])
def test_a_bias_on_another_scale_than_it_is_read_on(tmp_path: Path, kind: str) -> None:
    """LiteRT reads it on the scale of input times weight, whatever its own is; in one file the baseline reads it on
    its own."""
    report = (
        digits(tmp_path, other_scale, two=kind == "digits") if "digits" in kind
        else convolved(tmp_path, kind, other_scale)
    )  # fmt: skip
    (culprit,) = report.explanation.culprits
    told = culprit.evidence
    assert (culprit.cause, told["weight"]) == ("scale", "conv2_conv_bias" if "digits" in kind else "b")
    assert told["read_on"] / told["scale"] == pytest.approx(0.5, rel=1e-3)
    assert told["count"] == told["elements"]
    assert told["left"] < 0.1


@pytest.mark.parametrize("kind", ["CONV_2D", "TRANSPOSE_CONV", "digits"])
@pytest.mark.parametrize("scale", ["right", "unused"])
def test_a_right_bias_accuses_nobody(tmp_path: Path, kind: str, scale: str) -> None:
    """Also where its own scale is another one, that nobody reads."""
    def change(codes: Any, step: Any) -> tuple[Any, Any]:
        return codes, step * (1 if scale == "right" else 2)

    report = digits(tmp_path, change) if kind == "digits" else convolved(tmp_path, kind, change)
    assert (report.exit_status, report.explanation.culprits) == (0, ())
