"""What onnxruntime.quantization imports and an environment lacks is one line, not an internal error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import precision_debug
from precision_debug.errors import BackendUnavailable

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"


@pytest.mark.parametrize("mode", ["ort_int8", "ort_int8_dynamic"])
def test_a_missing_package_of_the_quantiser_is_named(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases up to 1.23 import sympy, which an environment that was made with --no-deps lacks."""
    for name in [name for name in sys.modules if name.startswith("onnxruntime.quantization")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization", None)
    with pytest.raises(BackendUnavailable, match=r"onnxruntime\.quantization cannot be imported") as told:
        precision_debug.compare(DIGITS / "digits.onnx", run_mode=mode, inputs=str(DIGITS / "test_images.npz"))
    assert told.value.hint == "pip install onnxruntime"
