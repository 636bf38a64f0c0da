"""OpenVINO: an INT8 .tflite beside its float file, on an engine that computes in BF16 where the machine has it."""

from __future__ import annotations

from pathlib import Path

import litert_files
import numpy as np
import pytest

import precision_debug

pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")
pytest.importorskip("openvino", reason="needs openvino")


@pytest.mark.parametrize("kind", ["CONV_2D", "TRANSPOSE_CONV"])
def test_what_the_files_8_bits_lose_is_expected(tmp_path: Path, kind: str) -> None:
    """They lose more than BF16: before, a sum of six terms in a narrow type was to blame, and the file failed."""
    base, whole = (litert_files.convolve(tmp_path / f"{one}.tflite", kind, whole=one) for one in (False, True))
    fed = {"x": np.random.default_rng(5).normal(size=(1, 8, 8, 4)).astype(np.float32)}
    report = precision_debug.compare(
        str(whole), run_mode="ov_opt", baseline="ov_fp32", baseline_model=str(base), inputs=fed
    )
    assert (report.exit_status, report.explanation.culprits) == (0, ())
