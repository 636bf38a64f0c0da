"""The settings of this backend; ``options.read_options`` reads them for a session."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from precision_debug.errors import UsageError
from precision_debug.settings import MEMORY_BUDGET, Setting, value

__all__ = ["SETTINGS", "setting"]

_TARGET = ("target",)
_PRECISIONS = {
    "float32": "FP32", "fp32": "FP32", "float": "FP32", "float16": "FP16", "fp16": "FP16", "half": "FP16",
    "bfloat16": "BF16", "bf16": "BF16", "int8": "INT8", "fp8": "FP8", "float8": "FP8", "float8_e4m3fn": "FP8",
    "int32": "INT32",
}  # fmt: skip


def _words(typed: Any) -> tuple[str, ...]:
    if isinstance(typed, str):
        return tuple(word for part in shlex.split(typed) for word in part.strip("[]()").split(",") if word)
    if not isinstance(typed, (list, tuple)):
        raise ValueError(f"{typed!r} is not a list of names")
    return tuple(str(word) for word in typed)


def _precisions(typed: Any) -> dict[str, str]:
    if isinstance(typed, Mapping):
        pairs = [(str(name), str(kind)) for name, kind in typed.items()]
    elif isinstance(typed, (str, list, tuple)):
        pairs = [_pair(word) for word in (shlex.split(typed) if isinstance(typed, str) else typed)]
    else:
        raise UsageError(f"{typed!r} names no layers", hint="write LAYER:float16")
    found = {}
    for name, kind in pairs:
        if kind.lower() not in _PRECISIONS:
            known = "float32, float16, bfloat16, int8, fp8"
            raise UsageError(f"'{kind}' of layer '{name}' is not a precision", hint=f"write one of {known}")
        found[name] = _PRECISIONS[kind.lower()]
    return found


def _pair(word: Any) -> tuple[str, str]:
    name, colon, kind = str(word).rpartition(":")
    if not colon or not name or not kind:
        raise UsageError(f"'{word}' is not a layer with a precision", hint="write LAYER:float16")
    return name, kind


def _sources(typed: Any) -> tuple[str, ...]:
    words = [part for word in _words(typed) for part in word.split(",") if part]
    return () if [word.lower() for word in words] == ["none"] else tuple(word.upper() for word in words)


SETTINGS = (
    Setting(
        name="layer_precisions", kind="layers", default={}, sides=_TARGET, flag=True, metavar="LAYER:TYPE", nargs="+",
        reader=_precisions, help="e.g. Add:float16 Sub:float32", zh="各层的精度，例如 Add:float16 Sub:float32",
    ),
    Setting(
        name="layer_output_types", kind="layers", default={}, sides=_TARGET, flag=True, metavar="LAYER:TYPE", nargs="+",
        reader=_precisions, help="types of layers' outputs, likewise", zh="各层输出的类型，写法相同",
    ),
    Setting(
        name="keep_layers", kind="names", default=(), sides=_TARGET, flag=True, metavar="NODE", nargs="+",
        reader=_words, help="nodes of the model that stay in FP32: precision, output types, and obey",
        zh="保持 FP32 的模型节点：同时设置精度、输出类型，并强制遵守",
    ),
    Setting(
        name="precision_constraints", kind="choice", choices=("none", "prefer", "obey"), sides=_TARGET, flag=True,
        help="how strictly layer precisions are followed (default: obey if some are given)",
        zh="层精度的约束力（默认：给出层精度时为 obey）",
    ),
    Setting(
        name="tf32", kind="flag", flag=True, metavar="0|1",
        help="whether FP32 layers may compute in TF32 (default: as the run mode says; TensorRT's own default is 1)",
        zh="FP32 层是否可以用 TF32 计算（默认由运行模式决定；TensorRT 自身默认为 1）",
    ),
    Setting(
        name="typing", kind="choice", choices=("weak", "strong"), flag=True,
        help="precision by builder flags, or written into the graph (default: weak where TensorRT has it)",
        zh="由构建标志决定精度，或写入图中（默认：TensorRT 支持时为 weak）",
    ),
    Setting(
        name="network_script", kind="text", default="", flag=True, metavar="FILE.py", code=True,
        help="a function that changes the network before it is built", zh="构建前修改网络的函数",
    ),
    Setting(
        name="workspace", kind="size", flag=True, metavar="SIZE",
        help="memory for the builder, e.g. 4G (default: TensorRT's)",
        zh="构建器可用的显存，例如 4G（默认随 TensorRT）",
    ),
    Setting(
        name="optimization_level", kind="whole", low=0, high=5, flag=True, metavar="0..5",
        help="the builder's effort (default: TensorRT's)", zh="构建器的优化力度（默认随 TensorRT）",
    ),
    Setting(
        name="tactic_sources", kind="names", flag=True, metavar="NAME", nargs="+", reader=_sources,
        help="e.g. EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS, or none (default: TensorRT's)",
        zh="例如 EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS，或 none（默认随 TensorRT）",
    ),
    Setting(
        name="timing_cache", kind="text", default="", flag=True, metavar="FILE",
        help="read and written: makes builds repeatable", zh="读取并写入：使构建可重复",
    ),
    Setting(
        name="save_tactics", kind="text", default="", sides=_TARGET, flag=True, metavar="FILE",
        help="save the chosen tactics (TensorRT 8.6 to 10)", zh="保存所选的 tactic（TensorRT 8.6 至 10）",
    ),
    Setting(
        name="load_tactics", kind="text", default="", sides=_TARGET, flag=True, metavar="FILE",
        help="build with these tactics", zh="用这些 tactic 构建",
    ),
    Setting(
        name="plugins", kind="names", default=(), flag=True, metavar="LIB.so", nargs="+", reader=_words, code=True,
        help="plugin libraries to load first", zh="先加载的插件库",
    ),
    Setting(
        name="save_engine", kind="text", default="", sides=_TARGET, flag=True, metavar="FILE",
        help="save the engine that was compared", zh="保存参与对比的引擎",
    ),
    Setting(
        name="save_model", kind="text", default="", sides=_TARGET, flag=True, metavar="FILE.onnx",
        help="save the ONNX that a strongly typed engine was built from, with the precisions written into it",
        zh="保存构建强类型引擎所用的 ONNX（精度已写入其中）",
    ),
    Setting(
        name="save_inspector", kind="text", default="", sides=_TARGET, flag=True, metavar="FILE",
        help="save the engine inspector's JSON", zh="保存 engine inspector 的 JSON",
    ),
    Setting(
        name="use_dynamic_shape", kind="flag", flag=True, metavar="0|1",
        help="build for a range of shapes (default: if a range is given)",
        zh="为一个形状范围构建（默认：给出范围时）",
    ),
    Setting(
        name="min_shapes", kind="shapes", default={}, flag=True, metavar="NAME:SHAPE", nargs="+",
        help="the smallest shape of each input", zh="每个输入的最小形状",
    ),
    Setting(
        name="opt_shapes", kind="shapes", default={}, flag=True, metavar="NAME:SHAPE", nargs="+",
        help="the shape to tune for", zh="用于调优的形状",
    ),
    Setting(
        name="max_shapes", kind="shapes", default={}, flag=True, metavar="NAME:SHAPE", nargs="+",
        help="the largest shape of each input", zh="每个输入的最大形状",
    ),
    Setting(
        name="observe", kind="choice", choices=("marks", "listener"),
        help="see tensors as marked outputs, or by a debug listener (default: the listener where TensorRT has one)",
        zh="以标记输出或调试监听器观察张量（默认：TensorRT 支持时用监听器）",
    ),
    Setting(
        name="marked_builds", kind="whole", low=0, sides=_TARGET,
        help="builds after one whose marks TensorRT refused (default: 3 of a large network, up to 12 of a small one)",
        zh="标记被 TensorRT 拒绝后再构建的次数（默认：大网络 3 次，小网络最多 12 次）",
    ),
    Setting(
        name="fused_only", kind="flag", default=False, flag=True, sides=_TARGET,
        help="mark only the outputs of fused layers", zh="只标记融合层的输出",
    ),
    MEMORY_BUDGET,
)  # fmt: skip


def setting(options: Mapping[str, Any], name: str) -> Any:
    """Return a session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and
    UsageError."""
    return value(SETTINGS, options, name)
