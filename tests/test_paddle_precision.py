"""onednn_bf16 in which Paddle ran nothing in bfloat16 passes for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from approval import begins_approved

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

import paddle_models
from precision_debug_paddle import modes

from precision_debug import Report, compare
from precision_debug.records import ModelFiles
from precision_debug.report.doubts import describe_doubt
from precision_debug.report.model import Verdict

pytestmark = pytest.mark.skipif(
    not modes.availability("onednn_bf16").ok, reason=f"onednn_bf16 {modes.availability('onednn_bf16').needs}"
)


def in_bf16(name: str, folder: Path, **options: Any) -> Report:
    path = paddle_models.legacy(name, folder)
    files = ModelFiles(model_file=str(path), params_file=str(path.with_suffix(".pdiparams")))
    return compare(
        files, run_mode="onednn_bf16", baseline="cpu_fp32", inputs=paddle_models.feeds(name), atol=0.1, rtol=0.1,
        explain="off", **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [("cnn", {"bfloat16_ops": ["conv2d", "fc"]}), ("loop", {}), ("mlp", {"bfloat16_ops": ["conv3d"]})],
)
def test_a_run_without_bfloat16_is_inconclusive(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    report = in_bf16(name, tmp_path, **options)
    said = {doubt.code: describe_doubt(doubt).en for doubt in report.doubts}
    assert report.verdict is Verdict.INCONCLUSIVE
    assert begins_approved(said["precision_not_run"])
    assert "precision_unseen" not in said


def test_a_run_in_bfloat16_is_not_in_doubt(tmp_path: Path) -> None:
    report = in_bf16("mlp", tmp_path)
    assert report.doubts == ()
    assert report.verdict is Verdict.PASS
