"""Operator types that stay in FP32 in Paddle: the options that a kept set becomes, and a search on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle_models
import pytest

from precision_debug import Report
from precision_debug.cli import main
from precision_debug.records import ModelFiles, SessionSpec, TensorMeta

pytest.importorskip("paddle", reason="paddlepaddle is not installed")


def planted(folder: Path) -> str:
    """An offset of 300 is added and taken away: in bfloat16 nothing is left of what it was added to."""

    def plant(weights: dict[str, Any]) -> None:
        weights["offset_0.w_0"] += 300

    return str(paddle_models.legacy("offset", folder, change=plant))


def keep(mode: str, folder: Path, **options: Any) -> Any:
    from precision_debug_paddle import PaddleBackend

    return PaddleBackend().keep(
        SessionSpec(model=ModelFiles(model_file=planted(folder)), mode=mode, options=options)
    )  # fmt: skip


def test_what_is_kept_is_left_out_of_those_that_may_run_in_bfloat16(tmp_path: Path) -> None:
    found = keep("onednn_bf16", tmp_path)
    assert found.unit == "operator type"
    assert not found.options(())
    left = found.options(["elementwise_add"])["bfloat16_ops"]
    assert "elementwise_add" not in left
    assert "matmul_v2" in left
    assert {"fc", "fused_matmul", "fused_conv2d"} <= set(left)  # what Paddle's pass sees in the program's place
    assert "batch_norm" not in left  # it has no such kernel: named, it makes Paddle fail
    assert not {"matmul_v2", "fc", "fused_matmul"} & set(found.options(["matmul_v2"])["bfloat16_ops"])
    (setting, config) = found.hand_over(["elementwise_add"], (), tmp_path)
    assert setting.mode == "onednn_bf16"
    assert f"elementwise_add: all {found.types['elementwise_add']} of them" in setting.note
    assert "set_bfloat16_op" in config.text


def test_on_a_gpu_types_are_kept_and_in_tensorrt_outputs(tmp_path: Path) -> None:
    mixed = keep("gpu_fp16", tmp_path, disable_mixed_precision_ops=("relu",))
    assert mixed.options(["elementwise_add"]) == {"disable_mixed_precision_ops": ("relu", "elementwise_add")}
    assert "exp_disable_mixed_precision_ops" in mixed.hand_over(["elementwise_add"], (), tmp_path)[1].text
    engine = keep("trt_fp16", tmp_path)
    meta = TensorMeta(name="elementwise_add_0", op_type="elementwise_add")
    assert (engine.unit, engine.key_of(meta)) == ("operator", "elementwise_add_0")
    assert engine.options(["elementwise_add_0"]) == {"disable_tensorrt_half_ops": ("elementwise_add_0",)}
    assert "disable_tensorrt_half_ops(config" in engine.hand_over(["elementwise_add_0"], (), tmp_path)[1].text
    assert keep("onednn_fp32", tmp_path) is None


def test_a_search_on_the_cpu_leaves_the_rest_in_bfloat16(tmp_path: Path) -> None:
    """Two scales add and take away 3000. The list without them that Paddle gets has its fused names too."""
    import numpy as np
    from precision_debug_paddle import modes

    available = modes.availability("onednn_bf16")
    if not available.ok:
        pytest.skip(f"onednn_bf16 {available.needs}")
    model, output = str(paddle_models.legacy("shift_and_back", tmp_path)), tmp_path / "o.json"
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32))
    assert main(["search", "--model_file", model, "--run_mode", "onednn_bf16", "--atol", "0.05", "--rtol", "0.05",
                 "--inputs", str(tmp_path / "x.npz"), "--quiet", "--output", str(output)]) == 0  # fmt: skip
    fix = Report.load(output).fix
    assert fix is not None
    assert (fix.state, [unit.key for unit in fix.kept]) == ("found", ["scale"])
    assert fix.evaluations <= 1 + 5
    assert fix.artefacts[0].verified is True
    assert fix.still is not None
    assert fix.was is not None
    assert 0 < fix.still.low < fix.was.low
