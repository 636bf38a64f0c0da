"""The run modes of this backend, and whether each can run on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from precision_debug import registry
from precision_debug.errors import PrecisionDebugError
from precision_debug.records import Availability, RunMode

from .engine.versions import RTX, TENSORRT
from .reasons import say
from .tried import TRIED

__all__ = ["RUN_MODES", "Recipe", "availability", "recipe"]

_BUILT = (".engine", ".plan")
_SOURCES = (".onnx", *_BUILT, ".py")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a mode lets TensorRT choose from.

    precisions: beyond FP32, in our names ("FP16", "BF16", "INT8", "FP8"). tf32: whether FP32 layers may use TF32;
    only ``trt_fp32`` and ``rtx_fp32`` forbid it, the others keep TensorRT's default. edition: see engine.versions.
    """

    mode: RunMode
    precisions: tuple[str, ...] = ()
    tf32: bool = True
    edition: str = TENSORRT


def _mode(name: str, precision: str, summary: str, zh: str, suffixes: tuple[str, ...] = _SOURCES) -> RunMode:
    return RunMode(
        name=name, summary=summary, zh=zh, suffixes=suffixes, baseline="ort_fp32", precision=precision,
        builds=suffixes is not _BUILT,
    )  # fmt: skip


_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(mode=_mode("trt_fp32", "float32", "TensorRT in true FP32: TF32 is off",
                          "TensorRT 真正的 FP32：关闭 TF32"), tf32=False),
        Recipe(mode=_mode("trt_tf32", "tf32", "TensorRT as it builds by default: FP32 layers may compute in TF32",
                          "TensorRT 默认构建：FP32 层可能以 TF32 计算")),
        Recipe(mode=_mode("trt_fp16", "float16", "TensorRT with FP16", "TensorRT，允许 FP16"), precisions=("FP16",)),
        Recipe(mode=_mode("trt_bf16", "bfloat16", "TensorRT with BF16 (9.1 and later)",
                          "TensorRT，允许 BF16（9.1 及以上）"), precisions=("BF16",)),
        Recipe(mode=_mode("trt_int8", "int8", "TensorRT with INT8: the model's QDQ, or calibrated on the inputs",
                          "TensorRT，允许 INT8：模型自带的 QDQ，或用输入校准"),
               precisions=("INT8",)),
        Recipe(mode=_mode("trt_fp8", "float8_e4m3fn", "TensorRT with FP8: the model's own FP8 QDQ (9.1 and later)",
                          "TensorRT，允许 FP8：模型自带的 FP8 QDQ（9.1 及以上）"),
               precisions=("FP8",)),
        Recipe(mode=_mode("trt_best", "mixed", "TensorRT chooses among every precision that it has here",
                          "TensorRT 在此处具备的所有精度中自行选择"),
               precisions=("FP16", "BF16", "INT8", "FP8")),
        Recipe(mode=_mode("trt_engine", "mixed", "a built engine in the precisions that it was built with",
                          "已构建的引擎，精度为构建时所定", _BUILT)),
        Recipe(mode=_mode("rtx_fp32", "float32", "TensorRT for RTX in true FP32: TF32 is off",
                          "TensorRT for RTX，真正的 FP32：关闭 TF32"), tf32=False, edition=RTX),
        Recipe(mode=_mode("rtx_tf32", "tf32",
                          "TensorRT for RTX as it builds by default: FP32 layers may compute in TF32",
                          "TensorRT for RTX 默认构建：FP32 层可能以 TF32 计算"), edition=RTX),
        Recipe(mode=_mode("rtx_fp16", "float16", "TensorRT for RTX with FP16, written into the model",
                          "TensorRT for RTX，FP16 写入模型"), precisions=("FP16",), edition=RTX),
        Recipe(mode=_mode("rtx_bf16", "bfloat16", "TensorRT for RTX with BF16, written into the model",
                          "TensorRT for RTX，BF16 写入模型"), precisions=("BF16",), edition=RTX),
        Recipe(mode=_mode("rtx_int8", "int8",
                          "TensorRT for RTX with INT8: the model's QDQ, or calibrated on the inputs",
                          "TensorRT for RTX，INT8：模型自带的 QDQ，或用输入校准"), precisions=("INT8",), edition=RTX),
        Recipe(mode=_mode("rtx_fp8", "float8_e4m3fn", "TensorRT for RTX with FP8: the model's own FP8 QDQ",
                          "TensorRT for RTX，FP8：模型自带的 FP8 QDQ"), precisions=("FP8",), edition=RTX),
        Recipe(mode=_mode("rtx_engine", "mixed",
                          "an engine of TensorRT for RTX in the precisions that it was built with",
                          "TensorRT for RTX 已构建的引擎，精度为构建时所定", _BUILT), edition=RTX),
    )
}  # fmt: skip

RUN_MODES = tuple(replace(recipe.mode, tried=TRIED.get(recipe.mode.name, "")) for recipe in _RECIPES.values())
_NEEDS = "pip install 'precision_debug[tensorrt]'"


def recipe(mode: str) -> Recipe:
    """Return the recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def availability(mode: str) -> Availability:
    """Return whether ``mode`` can run here; ``needs`` names the package, version or device that is missing. Never
    raises."""
    if mode not in _RECIPES:
        return Availability(ok=False, needs=f"the tensorrt backend has no run mode {mode}")
    from .engine.device_memory import find_device
    from .engine.versions import load_api

    chosen = recipe(mode)
    try:
        api = load_api(chosen.edition)
        missing = [name for name in chosen.precisions if not api.can_hold(name)]
        if missing and mode != "trt_best":
            return Availability(ok=False, needs=say("needs_newer", precision=missing[0], version=api.version))
        if mode == "trt_best" and not api.weakly_typed:
            return Availability(
                ok=False,
                needs=say("chooses_none", version=api.version),
            )
        device = find_device()
        if api.chips and device.capability not in api.chips:
            return Availability(
                ok=False,
                needs=say("other_chip", title=api.title, version=api.version, chips=api.chips, here=device.capability),
            )
    except PrecisionDebugError as error:
        needs = say("needs", what=error.what, hint=error.hint) if error.hint else error.what
        return Availability(ok=False, needs=needs)
    except Exception as error:
        return Availability(ok=False, needs=f"{_NEEDS} ({type(error).__name__}: {error})")
    return Availability(ok=True, slower=registry.explain_host_only("cuda") or "")
