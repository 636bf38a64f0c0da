"""The run modes of this backend, and whether each can run on this machine."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from precision_debug.reasons import say as core
from precision_debug.records import Availability, RunMode

from .reasons import say
from .tried import TRIED

__all__ = ["RUN_MODES", "Recipe", "availability", "recipe"]

_SUFFIXES = (".onnx", ".xml", ".pdmodel", ".pb", ".tflite")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a mode comes about.

    precision: OpenVINO's INFERENCE_PRECISION_HINT, "f32", "bf16", "f16"; "": its own choice for the device.
    fused: OpenVINO's own graph; otherwise every tensor is kept, so that nothing is fused across one.
    quantise: a model that is not quantised yet is, calibrated on the inputs.
    """

    mode: RunMode
    precision: str = "f32"
    fused: bool = True
    quantise: bool = False


def _mode(name: str, precision: str, summary: str, zh: str) -> RunMode:
    return RunMode(
        name=name, summary=summary, zh=zh, suffixes=_SUFFIXES, baseline="ov_fp32", precision=precision, concurrent=True,
        calibrates=name == "ov_int8",
    )


_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(mode=_mode("ov_fp32", "float32", "OpenVINO in float32, no fusion: every tensor is kept",
                          "OpenVINO float32，不融合：保留每个张量"), fused=False),
        Recipe(mode=_mode("ov_opt", "model",
                          "OpenVINO as it ships: every fusion, the precision that it prefers on this CPU",
                          "OpenVINO 默认方式：全部融合，精度由其按此 CPU 选择"),
               precision=""),
        Recipe(mode=_mode("ov_opt_fp32", "float32", "OpenVINO with every fusion, in float32",
                          "OpenVINO 全部融合，float32")),
        Recipe(mode=_mode("ov_bf16", "bfloat16", "OpenVINO with every fusion, in BF16",
                          "OpenVINO 全部融合，BF16"), precision="bf16"),
        Recipe(mode=_mode("ov_fp16", "float16", "OpenVINO with every fusion, in FP16",
                          "OpenVINO 全部融合，FP16"), precision="f16"),
        Recipe(mode=_mode("ov_int8", "int8", "OpenVINO in INT8: the model's own quantisation, or NNCF's on the inputs",
                          "OpenVINO INT8：模型自带的量化，或由 NNCF 用输入量化"),
               quantise=True),
    )
}  # fmt: skip

RUN_MODES = tuple(replace(recipe.mode, tried=TRIED.get(recipe.mode.name, "")) for recipe in _RECIPES.values())
_NEEDS = "pip install 'precision_debug[openvino]'"
_CAPABILITIES = {
    "bf16": ("BF16", say("needs_bf16")),
    "f16": ("FP16", say("needs_fp16")),
}
"""What OPTIMIZATION_CAPABILITIES of the CPU must have: on others OpenVINO takes the hint and computes in float32."""


def recipe(mode: str) -> Recipe:
    """The recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def availability(mode: str) -> Availability:
    """Whether ``mode`` can run here; ``needs`` names what is missing. Never raises.

    It is about the CPU; another device is asked when a session is opened on it.
    """
    if mode not in _RECIPES:
        return Availability(ok=False, needs=core("no_such_mode", backend="openvino", mode=mode))
    try:
        capabilities = _of_cpu()
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return Availability(ok=False, needs=f"{_NEEDS} ({why})")
    word, needs = _CAPABILITIES.get(_RECIPES[mode].precision, ("", ""))
    if word and word not in capabilities:
        return Availability(ok=False, needs=needs)
    return Availability(ok=True)


@functools.cache
def _of_cpu() -> frozenset[str]:
    """What the CPU computes in ("FP32", "BF16", "FP16", "INT8", …). Raises what importing OpenVINO raises."""
    import openvino

    return frozenset(openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
