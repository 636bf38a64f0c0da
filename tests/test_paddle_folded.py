"""What an optimised Paddle program folds is said to be fused into the operator that has it; an int8 pass that computes
something else is not called too coarse a type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle_models
import pytest

import precision_debug
from precision_debug.records import Status

pytest.importorskip("paddle")


def compared(file: Path, mode: str, name: str, **options: Any) -> Any:
    return precision_debug.compare(file, run_mode=mode, inputs=paddle_models.feeds(name), **options)


@pytest.mark.parametrize("mode", ["cpu_opt", "onednn_fp32"])
def test_a_folded_tensor_is_told_by_what_has_it(mode: str, tmp_path: Path) -> None:
    """Under conv2d_0.tmp_0 the optimised graph of a legacy program holds what the batch norm gives: it has the name."""
    found = paddle_models.legacy("resnet18", tmp_path)
    file = found[0] if isinstance(found, tuple) else found
    report = compared(file, mode, "resnet18", explain="off")
    fused = [row for row in report.rows if row.status is Status.FUSED_AWAY]
    assert len(fused) > 20
    assert [row.name for row in fused if row.reason.code != "fused_into"] == []
    seen = {row.name for row in report.rows if row.comparison is not None}
    assert {row.reason.args["node"] for row in fused} <= seen


def test_an_int8_pass_that_computes_something_else(tmp_path: Path) -> None:
    """Paddle 3.3.1 on this network: -3 dB at the output, where both sides quantise by the same scales."""
    report = compared(paddle_models.quantised("conv_norm", tmp_path), "onednn_int8", "conv_norm")
    if report.verdict == "as expected":
        pytest.skip("this Paddle's int8 kernels give what the model says")
    assert report.explanation.culprits[0].cause == "other_arithmetic"
