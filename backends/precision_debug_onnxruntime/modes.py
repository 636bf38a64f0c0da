"""The run modes of this backend, and whether each can run on this machine.

What was seen of the CUDA and TensorRT modes on a GPU stands in tests/benchmarks/RESULTS.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precision_debug.records import Availability, RunMode

from .settings import setting

__all__ = ["RUN_MODES", "Recipe", "availability", "recipe"]

_CPU = ("CPUExecutionProvider",)
_CUDA = ("CUDAExecutionProvider", *_CPU)
_TENSORRT = ("TensorrtExecutionProvider", *_CUDA)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a mode comes about.

    change: what is done to the model before ONNX Runtime sees it: "", "float16", "int8", "int8_dynamic",
    "float16_sim" or "bfloat16_sim". optimise: all of ONNX Runtime's fusions, otherwise none.
    providers: ONNX Runtime's execution providers in order of preference; empty: onnx.reference runs it.
    """

    mode: RunMode
    change: str = ""
    optimise: bool = False
    providers: tuple[str, ...] = _CPU

    @property
    def engine(self) -> str:
        """The provider that the mode is about: "cpu", "cuda", "tensorrt"; "" for onnx.reference."""
        return self.providers[0].removesuffix("ExecutionProvider").lower() if self.providers else ""

    def provider_options(self, settings: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
        """What each provider is told beyond its defaults. Setting "use_tf32": "0" makes CUDA's float32 true float32."""
        known: dict[str, dict[str, str]] = {"TensorrtExecutionProvider": {"trt_fp16_enable": "1"}}
        use_tf32, card = setting(settings, "use_tf32"), setting(settings, "device")
        if use_tf32 is not None:
            known["CUDAExecutionProvider"] = {"use_tf32": "1" if use_tf32 else "0"}
        for name in ("TensorrtExecutionProvider", "CUDAExecutionProvider") if card else ():
            known.setdefault(name, {})["device_id"] = str(card)
        return tuple(dict(known.get(name, {})) for name in self.providers)


def _mode(name: str, summary: str, simulation: bool = False) -> RunMode:
    return RunMode(
        name=name, summary=summary, suffixes=(".onnx",), baseline="ort_fp32", simulation=simulation, concurrent=True
    )


_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(mode=_mode("ort_fp32", "ONNX Runtime on the CPU, no fusion: the usual baseline")),
        Recipe(mode=_mode("ort_opt", "the graph ONNX Runtime ships: every fusion"), optimise=True),
        Recipe(mode=_mode("ort_fp16", "converted to float16, every fusion"), change="float16", optimise=True),
        Recipe(mode=_mode("ort_int8", "static int8 (QDQ), calibrated on the inputs"), change="int8", optimise=True),
        Recipe(mode=_mode("ort_int8_dynamic", "dynamic int8, every fusion"), change="int8_dynamic", optimise=True),
        Recipe(
            mode=_mode("ort_fp16_sim", "simulated float16: every float tensor rounded to it and back", True),
            change="float16_sim",
        ),
        Recipe(
            mode=_mode("ort_bf16_sim", "simulated bfloat16: every float tensor rounded to it and back", True),
            change="bfloat16_sim",
        ),
        Recipe(mode=_mode("ort_cuda_fp32", "ONNX Runtime on CUDA, every fusion"), optimise=True, providers=_CUDA),
        Recipe(
            mode=_mode("ort_cuda_fp16", "converted to float16, on CUDA, every fusion"),
            change="float16",
            optimise=True,
            providers=_CUDA,
        ),
        Recipe(mode=_mode("ort_tensorrt_fp16", "ONNX Runtime's TensorRT provider with fp16 on"), providers=_TENSORRT),
        Recipe(mode=_mode("onnx_ref", "onnx.reference in float64 where the operators allow it"), providers=()),
    )
}

RUN_MODES = tuple(recipe.mode for recipe in _RECIPES.values())
_NEEDS = "pip install 'precision_debug[onnx]'"
_NO_TAP = (
    "the pure wheel needs onnxruntime-extensions, which has none for Python 3.14: install precision_debug's wheel for"
    " this platform, or from source where there is a C compiler"
)


def recipe(mode: str) -> Recipe:
    """The recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def availability(mode: str) -> Availability:
    """Whether ``mode`` can run here; ``needs`` names the package or device that is missing. Never raises."""
    if mode not in _RECIPES:
        return Availability(ok=False, needs=f"the onnxruntime backend has no run mode {mode}")
    from .engine import light_imports, taps
    from .engine.providers import missing

    providers = _RECIPES[mode].providers
    try:
        import onnx  # noqa: F401

        if not providers:
            return Availability(ok=True)
        import onnxruntime

        if not taps.lent():
            light_imports.extensions()
    except Exception as error:
        if sys.version_info >= (3, 14) and getattr(error, "name", "") == "onnxruntime_extensions":
            return Availability(ok=False, needs=_NO_TAP)
        return Availability(ok=False, needs=f"{_NEEDS} ({type(error).__name__}: {error})")
    if not hasattr(onnxruntime, "ExecutionOrder"):
        return Availability(ok=False, needs=f"a newer onnxruntime than {onnxruntime.__version__} (1.20 or later)")
    if providers[0] not in onnxruntime.get_available_providers():
        extra = " with TensorRT's libraries installed" if providers[0].startswith("Tensorrt") else ""
        return Availability(ok=False, needs=f"needs onnxruntime-gpu{extra} and an NVIDIA GPU")
    if providers != _CPU and (why := missing(providers[0])):
        return Availability(ok=False, needs=why)
    return Availability(ok=True)
