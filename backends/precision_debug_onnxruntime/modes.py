"""The run modes of this backend, and whether each can run on this machine.

What was seen of the CUDA and TensorRT modes on a GPU stands in tests/benchmarks/RESULTS.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from precision_debug import registry
from precision_debug.errors import BackendUnavailable
from precision_debug.reasons import say as core
from precision_debug.records import Availability, RunMode

from .reasons import say
from .settings import setting
from .tried import TRIED

__all__ = ["RUN_MODES", "Recipe", "availability", "recipe"]

_CPU = ("CPUExecutionProvider",)
_CUDA = ("CUDAExecutionProvider", *_CPU)
_TENSORRT = ("TensorrtExecutionProvider", *_CUDA)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a mode comes about.

    change: what is done to the model before ONNX Runtime sees it: "", "float16", "int8", "int8_dynamic",
    "int4", "float16_sim" or "bfloat16_sim". optimise: all of ONNX Runtime's fusions, otherwise none.
    providers: ONNX Runtime's execution providers in order of preference; empty: onnx.reference runs it. plugin: a
    provider that is registered at run time: a key of engine.plugin_providers.KNOWN, or "any" where options name it.
    """

    mode: RunMode
    change: str = ""
    optimise: bool = False
    providers: tuple[str, ...] = _CPU
    plugin: str = ""

    @property
    def quantises(self) -> bool:
        """Whether onnxruntime.quantization makes the graph."""
        return self.change in ("int8", "int8_dynamic", "int4")

    @property
    def engine(self) -> str:
        """The provider that the mode is about: "cpu", "cuda", "tensorrt"; "" for onnx.reference."""
        return self.providers[0].removesuffix("ExecutionProvider").lower() if self.providers else ""

    def provider_options(self, settings: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
        """Return what each provider is told beyond its defaults. Setting "use_tf32": "0" makes CUDA's float32 true
        float32."""
        known: dict[str, dict[str, str]] = {"TensorrtExecutionProvider": {"trt_fp16_enable": "1"}}
        use_tf32, card = setting(settings, "use_tf32"), setting(settings, "device")
        if use_tf32 is not None:
            known["CUDAExecutionProvider"] = {"use_tf32": "1" if use_tf32 else "0"}
        for name in ("TensorrtExecutionProvider", "CUDAExecutionProvider") if card else ():
            known.setdefault(name, {})["device_id"] = str(card)
        given = setting(settings, "provider_options") if self.engine in ("cuda", "tensorrt") else {}
        if given:
            known.setdefault(self.providers[0], {}).update(given)
        return tuple(dict(known.get(name, {})) for name in self.providers)


_SUMS_IN_FLOAT32 = frozenset({"ort_fp16", "ort_cuda_fp16"})
"""Kernels of the CPU compute in float32 between casts; those of CUDA reduce float16 in float32."""


def _mode(name: str, precision: str, summary: str, zh: str, simulation: bool = False) -> RunMode:
    return RunMode(
        name=name, summary=summary, zh=zh, builds="tensorrt" in name, calibrates=name == "ort_int8",
        suffixes=(".onnx",), baseline="ort_fp32", precision=precision,
        simulation=simulation, concurrent=True, accumulates="float32" if name in _SUMS_IN_FLOAT32 else "",
    )


_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(mode=_mode("ort_fp32", "float32", "ONNX Runtime on the CPU, no fusion: the usual baseline",
                          "CPU 上的 ONNX Runtime，不融合：通常的基线")),
        Recipe(mode=_mode("ort_opt", "model", "the graph ONNX Runtime ships: every fusion",
                          "ONNX Runtime 实际运行的图：全部融合"), optimise=True),
        Recipe(mode=_mode("ort_fp16", "float16", "converted to float16, every fusion",
                          "转换为 float16，全部融合"), change="float16", optimise=True),
        Recipe(mode=_mode("ort_int8", "int8", "static int8 (QDQ), calibrated on the inputs",
                          "静态 int8（QDQ），用输入校准"), change="int8", optimise=True),
        Recipe(mode=_mode("ort_int8_dynamic", "int8", "dynamic int8, every fusion",
                          "动态 int8，全部融合"), change="int8_dynamic", optimise=True),
        Recipe(mode=_mode("ort_int4", "int4", "weights of 4 bits (MatMulNBits), by ONNX Runtime's own quantiser",
                          "4 位权重（MatMulNBits），由 ONNX Runtime 自带的量化器生成"), change="int4", optimise=True),
        Recipe(
            mode=_mode("ort_fp16_sim", "float16", "simulated float16: every float tensor rounded to it and back",
                       "模拟 float16：每个浮点张量舍入到 float16 再转回", True),
            change="float16_sim",
        ),
        Recipe(
            mode=_mode("ort_bf16_sim", "bfloat16", "simulated bfloat16: every float tensor rounded to it and back",
                       "模拟 bfloat16：每个浮点张量舍入到 bfloat16 再转回", True),
            change="bfloat16_sim",
        ),
        Recipe(mode=_mode("ort_cuda_fp32", "float32", "ONNX Runtime on CUDA, every fusion",
                          "CUDA 上的 ONNX Runtime，全部融合"), optimise=True, providers=_CUDA),
        Recipe(
            mode=_mode("ort_cuda_fp16", "float16", "converted to float16, on CUDA, every fusion",
                       "转换为 float16，在 CUDA 上，全部融合"),
            change="float16",
            optimise=True,
            providers=_CUDA,
        ),
        Recipe(mode=_mode("ort_tensorrt_fp16", "float16", "ONNX Runtime's TensorRT provider with fp16 on",
                          "ONNX Runtime 的 TensorRT 执行提供程序，开启 fp16"), providers=_TENSORRT),
        Recipe(mode=_mode("ort_ep_qnn", "float16", "Qualcomm's HTP through ONNX Runtime's plugin; emulated on a PC",
                          "经 ONNX Runtime 插件运行 Qualcomm HTP；在 PC 上为模拟器"), plugin="qnn"),
        Recipe(mode=_mode("ort_ep_openvino", "model", "OpenVINO as a plugin provider of ONNX Runtime (Intel devices)",
                          "OpenVINO 作为 ONNX Runtime 的插件提供程序（Intel 设备）"), plugin="openvino"),
        Recipe(mode=_mode("ort_ep_nv_tensorrt_rtx", "model", "TensorRT for RTX as a plugin provider of ONNX Runtime",
                          "TensorRT for RTX 作为 ONNX Runtime 的插件提供程序"), plugin="nv_tensorrt_rtx"),
        Recipe(mode=_mode("ort_ep", "model", "any plugin provider of ONNX Runtime: ep_library=LIB.so, ep_name=NAME",
                          "任意 ONNX Runtime 插件提供程序：ep_library=LIB.so，ep_name=NAME"), plugin="any"),
        Recipe(mode=_mode("onnx_ref", "float64", "onnx.reference in float64 where the operators allow it",
                          "onnx.reference，算子允许时以 float64 计算"), providers=()),
    )
}

RUN_MODES = tuple(replace(recipe.mode, tried=TRIED.get(recipe.mode.name, "")) for recipe in _RECIPES.values())
_NEEDS = "pip install 'precision_debug[onnx]'"
_OLDEST = (1, 16)
"""1.15 takes no operator of ours whose inputs differ in type, which is what a tap is; it would blame the model."""


def recipe(mode: str) -> Recipe:
    """Return the recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; of one that has none, such as a build of one's own, no old one."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else _OLDEST


def availability(mode: str) -> Availability:
    """Return whether ``mode`` can run here; ``needs`` names the package or device that is missing. Never raises."""
    if mode not in _RECIPES:
        return Availability(ok=False, needs=core("no_such_mode", backend="onnxruntime", mode=mode))
    from .engine import light_imports, taps
    from .engine.providers import missing
    from .engine.remedies import EXACT_SUMS, adds_in_16_bits

    providers = _RECIPES[mode].providers
    try:
        import onnx  # noqa: F401

        if not providers:
            return Availability(ok=True)
        import onnxruntime

        slower = ""
        if not taps.borrows_memory():
            light_imports.import_extensions()
            slower = say("python_taps")
    except Exception as error:
        if sys.version_info >= (3, 14) and getattr(error, "name", "") == "onnxruntime_extensions":
            return Availability(ok=False, needs=say("needs_wheel_with_tap"))
        return Availability(ok=False, needs=f"{_NEEDS} ({type(error).__name__}: {error})")
    if not hasattr(onnxruntime, "ExecutionOrder") or _release(onnxruntime.__version__) < _OLDEST:
        return Availability(ok=False, needs=say("needs_onnxruntime", version=onnxruntime.__version__))
    if _RECIPES[mode].plugin:
        return _plugin_availability(_RECIPES[mode].plugin)
    if providers[0] not in onnxruntime.get_available_providers():
        needs = say("needs_tensorrt") if providers[0].startswith("Tensorrt") else say("needs_cuda")
        return Availability(ok=False, needs=needs)
    if providers != _CPU and (why := missing(providers[0])):
        return Availability(ok=False, needs=why)
    if not slower and _RECIPES[mode].engine == "cuda":
        slower = registry.explain_host_only("cuda") or ""
    inexact = ""
    if _RECIPES[mode].quantises and _RECIPES[mode].change != "int4" and adds_in_16_bits():
        inexact = say("sums_saturate", switch=f"--option config={EXACT_SUMS}=1")
    return Availability(ok=True, slower=slower, inexact=inexact)


def _plugin_availability(plugin: str) -> Availability:
    from .engine.plugin_providers import KNOWN, devices_of

    if plugin == "any":
        return Availability(ok=True)  # its library is an option's
    try:
        devices_of(KNOWN[plugin])
    except BackendUnavailable as error:
        return Availability(ok=False, needs=error.what)
    return Availability(ok=True)
