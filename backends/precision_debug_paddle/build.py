"""Paddle's Config for a run mode, and the predictor made of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from precision_debug.errors import UsageError

from .framework import inference_module
from .modes import Recipe

__all__ = ["OPTIONS", "check_options", "make_config", "names_in"]

OPTIONS: Mapping[str, str] = {
    "threads": "CPU threads of Paddle's math library",
    "delete_pass": "passes to leave out",
    "memory_optim": "let Paddle reuse the memory of tensors",
    "ir_optim": "run Paddle's passes (the ladder switches them off)",
    "bfloat16_ops": "the only operator types that oneDNN may run in bfloat16",
    "disable_mixed_precision_ops": "operator types that stay in FP32 in gpu_fp16 and gpu_bf16",
    "device": "number of the GPU",
    "mark_builds": "how many predictors the search for marks may build (default: what fits into 5 minutes, 12 to 60)",
    "fetch_bytes": "how many bytes of tensors one predictor may hold for us (default 1 GiB)",
    "use_dynamic_shape": "TensorRT: build for a range of shapes",
    "min_shapes": "TensorRT: the smallest shape of each input",
    "opt_shapes": "TensorRT: the shape to tune for",
    "max_shapes": "TensorRT: the largest shape of each input",
    "collect_shape_range": "TensorRT: find every tensor's range by running the feeds on the CPU (default); off: give "
    "only the inputs' shapes",
    "shape_range_file": "TensorRT: a shape range file that was collected before",
    "tf32": "TensorRT fp32 and GPU FP32: leave TF32 on (default: off)",
    "workspace": "TensorRT: workspace in bytes (default 1 GiB)",
    "max_batch_size": "TensorRT: largest batch of a static engine (default: the feed's)",
    "min_subgraph_size": "TensorRT: fewest operators of a subgraph (default 3)",
    "use_static": "TensorRT: keep the built engine in cache_dir and load it from there",
    "calibration": "TensorRT int8: calibrate on the feeds",
    "cache_dir": "TensorRT: folder of engines, calibration tables and shape ranges (default: one of the run)",
    "disable_tensorrt_ops": "TensorRT: operator types (3.x: also names) that Paddle runs itself",
    "fused_only": "TensorRT: mark only the outputs of fused layers",
    "mark_all": "TensorRT: mark every tensor (default); off: only the engine's outputs",
    "fp16_subgraphs": "TensorRT: subgraph parameters to run in FP16 (exp_specify_tensorrt_subgraph_precision)",
    "memory_budget": "of the core",
    "seed": "of the core",
    "side": "of the core",
}


def check_options(options: Mapping[str, Any]) -> None:
    """Raises UsageError on a setting that no mode of this backend has."""
    import difflib

    for name in options:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, n=1)
            raise UsageError(
                f"the paddle backend has no setting '{name}'", where="--option",
                hint=f"did you mean {near[0]}?" if near else f"known: {' '.join(sorted(OPTIONS))}",
            )  # fmt: skip


def names_in(value: Any) -> tuple[str, ...]:
    """A list of names as an option gives it: a list, or text with commas."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(str(item) for item in value)


def make_config(
    recipe: Recipe, program: Path, params: Path, options: Mapping[str, Any], *, device: str, quiet: bool = True
) -> Any:
    """A paddle.inference.Config, TensorRT not yet switched on. device: "cpu" or "gpu". quiet: without Paddle's log."""
    inference = inference_module()
    config = inference.Config(str(program), str(params))
    if quiet:
        config.disable_glog_info()
    if device == "gpu":
        precision = {
            "float16": inference.PrecisionType.Half, "bfloat16": inference.PrecisionType.Bfloat16,
        }.get("" if recipe.tensorrt else recipe.precision, inference.PrecisionType.Float32)  # fmt: skip
        config.enable_use_gpu(256, int(options.get("device", 0)), precision)
        blocked = names_in(options.get("disable_mixed_precision_ops"))
        if blocked:
            config.exp_disable_mixed_precision_ops(set(blocked))
    else:
        config.disable_gpu()
        config.set_cpu_math_library_num_threads(int(options.get("threads", 1)))
    _set_onednn(config, recipe, options)
    optimise = recipe.optimise and bool(options.get("ir_optim", True))
    config.switch_ir_optim(optimise)
    if not optimise and hasattr(config, "set_optimization_level"):
        config.set_optimization_level(0)
    config.enable_memory_optim(bool(options.get("memory_optim", False)))
    for name in names_in(options.get("delete_pass")):
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
        only: Collection[str] = names_in(options.get("bfloat16_ops"))
        if only:
            config.set_bfloat16_op(set(only))
    elif recipe.precision == "int8":
        getattr(config, f"enable_{known}_int8")()
