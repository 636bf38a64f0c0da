"""The run modes of this backend, and whether each can run on this machine."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from precision_debug.reasons import say as core
from precision_debug.records import Availability, RunMode

from .reasons import say
from .tried import TRIED

__all__ = ["RUN_MODES", "SUFFIXES", "Recipe", "availability", "find_lacking", "recipe"]

SUFFIXES = (".onnx", ".xml", ".pdmodel", ".pb", ".tflite")


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
        name=name, summary=summary, zh=zh, suffixes=SUFFIXES, baseline="ov_fp32", precision=precision, concurrent=True,
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
"""What OPTIMIZATION_CAPABILITIES of a device must have: on others OpenVINO takes the hint and computes in float32."""


def recipe(mode: str) -> Recipe:
    """Return the recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def availability(mode: str) -> Availability:
    """Return whether ``mode`` can run here, on the CPU or another device of OpenVINO's; ``needs`` names what is
    missing. Never raises. The device that a run asks for is looked at by ``find_lacking`` when a session is
    opened on it."""
    if mode not in _RECIPES:
        return Availability(ok=False, needs=core("no_such_mode", backend="openvino", mode=mode))
    try:
        able = any(not find_lacking(_RECIPES[mode], words) for words in _capabilities())
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return Availability(ok=False, needs=f"{_NEEDS} ({why})")
    if able and _RECIPES[mode].quantise and importlib.util.find_spec("nncf") is None:
        return Availability(ok=True, partly=say("without_nncf"))
    return Availability(ok=True) if able else Availability(ok=False, needs=_CAPABILITIES[_RECIPES[mode].precision][1])


def find_lacking(chosen: Recipe, capabilities: Collection[str]) -> str:
    """Return what a recipe needs ("FP16") of a device that is not among its OPTIMIZATION_CAPABILITIES ("FP32", "INT8",
    …)."""
    word = _CAPABILITIES.get(chosen.precision, ("", ""))[0]
    return "" if word in capabilities else word


def _capabilities() -> Iterator[frozenset[str]]:
    """Of each device, the CPU first: others take time to be asked. Raises what importing OpenVINO raises."""
    yield _capabilities_of("CPU")
    for name in _other_devices():
        with contextlib.suppress(RuntimeError):  # a driver that does not answer
            yield _capabilities_of(name)


@functools.cache
def _other_devices() -> tuple[str, ...]:
    import openvino

    return tuple(str(name) for name in openvino.Core().available_devices if name != "CPU")


@functools.cache
def _capabilities_of(device: str) -> frozenset[str]:
    import openvino

    return frozenset(openvino.Core().get_property(device, "OPTIMIZATION_CAPABILITIES"))
