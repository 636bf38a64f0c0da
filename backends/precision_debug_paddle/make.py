"""Paddle's Config for a run mode, and the predictor made of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from .engine.framework import import_inference, register_libraries
from .modes import Recipe
from .settings import setting

__all__ = ["make_config"]


def make_config(
    recipe: Recipe, program: Path, params: Path, options: Mapping[str, Any], *, device: str, quiet: bool = True
) -> Any:
    """Return a paddle.inference.Config, TensorRT not yet switched on. device: "cpu" or "gpu". quiet: without Paddle's
    log."""
    register_libraries(setting(options, "custom_ops_library"))
    inference = import_inference()
    config = inference.Config(str(program), str(params))
    if quiet:
        config.disable_glog_info()
    if device == "gpu":
        precision = {
            "float16": inference.PrecisionType.Half, "bfloat16": inference.PrecisionType.Bfloat16,
        }.get("" if recipe.tensorrt else recipe.precision, inference.PrecisionType.Float32)  # fmt: skip
        config.enable_use_gpu(256, setting(options, "device"), precision)
        blocked = setting(options, "disable_mixed_precision_ops")
        if blocked:
            config.exp_disable_mixed_precision_ops(set(blocked))
    else:
        config.disable_gpu()
        config.set_cpu_math_library_num_threads(setting(options, "threads"))
    _set_onednn(config, recipe, options)
    optimise = recipe.optimise and setting(options, "ir_optim")
    config.switch_ir_optim(optimise)
    if not optimise and hasattr(config, "set_optimization_level"):
        config.set_optimization_level(0)
    config.enable_memory_optim(setting(options, "memory_optim"))
    for name in setting(options, "delete_pass"):
        config.delete_pass(name)
    return config


def _set_onednn(config: Any, recipe: Recipe, options: Mapping[str, Any]) -> None:
    if not recipe.onednn:
        if hasattr(config, "disable_onednn"):
            config.disable_onednn()
        elif hasattr(config, "disable_mkldnn"):
            config.disable_mkldnn()
        return
    known = "onednn" if hasattr(config, "enable_onednn") else "mkldnn"
    getattr(config, f"enable_{known}")()
    if recipe.precision == "bfloat16":
        getattr(config, f"enable_{known}_bfloat16")()
        only: Collection[str] = setting(options, "bfloat16_ops")
        if only:
            config.set_bfloat16_op(set(only))
    elif recipe.precision == "int8":
        getattr(config, f"enable_{known}_int8")()
