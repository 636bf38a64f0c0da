"""The run modes of this backend, and whether each can run on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from precision_debug.numbers.number_types import MODEL
from precision_debug.reasons import say as core
from precision_debug.records import Availability, RunMode

from .reasons import say
from .tried import TRIED

__all__ = ["DYGRAPH", "RUN_MODES", "SCALED", "Recipe", "availability", "mixed_precision", "recipe"]

_BASELINE = "paddle_fp32"
_SUFFIXES = (".pdmodel", ".json", "")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a mode comes about.

    device: "cpu", "gpu", or "best": the GPU where this Paddle has code for it, else the CPU.
    dygraph: the model is an nn.Layer that Python runs. amp: "O1" or "O2" of paddle.amp.auto_cast, to ``precision``.
    optimise: Paddle's passes run.
    """

    mode: RunMode
    device: str = "cpu"
    optimise: bool = True
    onednn: bool = False
    tensorrt: bool = False
    dygraph: bool = False
    amp: str = ""

    @property
    def precision(self) -> str:
        """What is asked of Paddle: "float64", "float32", "float16", "bfloat16" or "int8"."""
        return "float32" if self.mode.precision == MODEL else self.mode.precision


def _mode(name: str, precision: str, summary: str, zh: str) -> RunMode:
    baseline = name if name in {"cpu_fp32", "gpu_fp32"} else _BASELINE
    return RunMode(
        name=name, summary=summary, zh=zh, suffixes=_SUFFIXES, baseline=baseline, precision=precision,
        builds=name.startswith("trt"),
        accumulates="" if name.startswith("trt") else "float32",  # Paddle's own kernels: MPTypeTrait
    )  # fmt: skip


def _layer(name: str, precision: str, summary: str, zh: str) -> RunMode:
    return RunMode(
        name=name, summary=f"nn.Layer in dynamic graph: {summary}", zh=f"动态图 nn.Layer：{zh}", suffixes=(".py",),
        baseline=DYGRAPH, precision=precision,
    )  # fmt: skip


DYGRAPH = "dygraph_fp32"
_PIR_TENSORRT = "; PIR models through paddle.tensorrt, a path that was not run on hardware"
_PIR_TENSORRT_ZH = "；PIR 模型经 paddle.tensorrt，该路径未在硬件上运行过"
_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(
            mode=_mode(_BASELINE, "float32", "unfused FP32, on the GPU where Paddle has code for it, else on the CPU",
                       "不融合的 FP32；Paddle 支持此 GPU 时在 GPU 上，否则在 CPU 上"),
            device="best",
            optimise=False,
        ),
        Recipe(mode=_mode("cpu_fp32", "float32", "Paddle on the CPU, no pass, no oneDNN",
                          "CPU 上的 Paddle，不运行 pass，不用 oneDNN"), optimise=False),
        Recipe(mode=_mode("cpu_opt", "model", "Paddle's own CPU kernels after every pass, no oneDNN",
                          "运行全部 pass 后的 Paddle 自有 CPU kernel，不用 oneDNN")),
        Recipe(mode=_mode("onednn_fp32", "float32", "oneDNN with every fusion", "oneDNN，全部融合"), onednn=True),
        Recipe(mode=_mode("onednn_bf16", "bfloat16", "oneDNN in bfloat16", "oneDNN，bfloat16"), onednn=True),
        Recipe(mode=_mode("onednn_int8", "int8", "oneDNN in int8, for a quantised model",
                          "oneDNN，int8，用于已量化的模型"), onednn=True),
        Recipe(mode=_mode("gpu_fp32", "float32", "Paddle on the GPU, no pass",
                          "GPU 上的 Paddle，不运行 pass"), device="gpu", optimise=False),
        Recipe(mode=_mode("gpu_opt", "model", "Paddle on the GPU in FP32 after every pass",
                          "GPU 上的 Paddle，FP32，运行全部 pass"), device="gpu"),
        Recipe(mode=_mode("gpu_fp16", "float16", "mixed precision float16 on the GPU",
                          "GPU 上的 float16 混合精度"), device="gpu"),
        Recipe(mode=_mode("gpu_bf16", "bfloat16", "mixed precision bfloat16 on the GPU",
                          "GPU 上的 bfloat16 混合精度"), device="gpu"),
        Recipe(mode=_layer(DYGRAPH, "float32", "float32", "float32"), device="best", dygraph=True),
        Recipe(mode=_layer("dygraph_fp64", "float64", "float64, the truth",
                           "float64，作为真值"), device="best", dygraph=True),
        Recipe(mode=_layer("dygraph_bf16", "bfloat16", "all in bfloat16",
                           "全部为 bfloat16"), device="gpu", dygraph=True),
        Recipe(mode=_layer("dygraph_fp16", "float16", "all in float16",
                           "全部为 float16"), device="gpu", dygraph=True),
        *(
            Recipe(
                mode=_layer(f"dygraph_amp_{level.lower()}_{short}", precision, f"paddle.amp {level} to {precision}",
                            f"paddle.amp {level}，{precision}"),
                device="gpu", dygraph=True, amp=level,
            )
            for level in ("O1", "O2")
            for short, precision in (("bf16", "bfloat16"), ("fp16", "float16"))
        ),
        *(
            Recipe(
                mode=_mode(f"trt_{short}", precision, f"Paddle-TRT, precision {about}{_PIR_TENSORRT}",
                           f"Paddle-TRT，精度 {zh}{_PIR_TENSORRT_ZH}"),
                device="gpu", tensorrt=True,
            )
            for short, precision, about, zh in (
                ("fp32", "float32", "fp32 (TF32 off)", "fp32（关闭 TF32）"), ("fp16", "float16", "fp16", "fp16"),
                ("bf16", "bfloat16", "bf16", "bf16"), ("int8", "int8", "int8", "int8"),
            )
        ),
    )
}  # fmt: skip

SCALED = tuple(mode for mode, one in _RECIPES.items() if one.amp and one.precision == "float16")
"""Targets whose training loop has a GradScaler."""

RUN_MODES = tuple(replace(recipe.mode, tried=TRIED.get(recipe.mode.name, "")) for recipe in _RECIPES.values())


def mixed_precision(precision: str) -> str:
    """Return the mode of Paddle's own GPU kernels that mixes in a precision."""
    return next(
        mode for mode, recipe in _RECIPES.items()
        if recipe.device == "gpu" and recipe.precision == precision and not recipe.tensorrt and not recipe.dygraph
    )  # fmt: skip


def recipe(mode: str) -> Recipe:
    """Return the recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def availability(mode: str) -> Availability:
    """Return whether ``mode`` can run here; ``needs`` names what is missing. Never raises."""
    if mode not in _RECIPES:
        return Availability(ok=False, needs=core("no_such_mode", backend="paddle", mode=mode))
    from .engine import capability

    wanted = _RECIPES[mode]
    try:
        needs = capability.missing(
            gpu=wanted.device == "gpu", own_kernels=not wanted.tensorrt, onednn=wanted.onednn,
            tensorrt=wanted.tensorrt, precision=wanted.precision,
        )  # fmt: skip
    except Exception as error:
        needs = f"pip install 'precision_debug[paddle]' ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        return Availability(ok=False, needs=needs)
    return Availability(ok=not needs, needs=say("needs", what=needs) if needs else "")
