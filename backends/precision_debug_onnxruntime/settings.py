"""The settings of this backend; sessions read them with ``setting``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from precision_debug.settings import Setting, value

__all__ = ["ATTRIBUTES", "SETTINGS", "setting"]

ATTRIBUTES = (
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "graph_optimization_level",
    "inter_op_num_threads", "use_deterministic_compute",
)  # fmt: skip
"""Attributes of onnxruntime.SessionOptions that a user may set; the others are config entries, or the run mode's."""

_ENGINE = ("ort_*",)
_FLOAT16 = ("ort_fp16", "ort_cuda_fp16", "ort_fp16_sim", "ort_bf16_sim")
_INT8 = ("ort_int8", "ort_int8_dynamic")
_INT4 = ("ort_int4",)
_CHANGED = (*_FLOAT16[:2], *_INT8, *_INT4)
_OPTIMISED = ("ort_opt", "ort_fp16", "ort_int8", "ort_int8_dynamic", "ort_int4", "ort_cuda_*")
_TYPES = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "float8")


def _card(typed: Any) -> int:
    """Return the number of a card: "cuda:1", "cuda" or 1."""
    found = re.fullmatch(r"(?:(?:cuda|gpu):?)?(\d*)", str(typed).strip().lower())
    if found is None:
        raise ValueError(f"{typed!r} is not a card such as cuda:1")
    return int(found.group(1) or 0)


SETTINGS = (
    Setting(
        name="intra_op_num_threads", kind="whole", default=0, low=0, high=256, modes=_ENGINE,
        help="threads of each run; 0: half of the cores where two runs advance side by side, otherwise all",
        zh="每次运行的线程数；0：两次运行并行推进时各用一半核心，否则用全部核心",
    ),
    Setting(
        name="config", kind="pairs", default={}, target_unless_said=True, modes=_ENGINE, metavar="KEY=VALUE,…",
        native=r"(session|ep|optimization|memory|mlas|kernel)\.[\w.]+|" + "|".join(ATTRIBUTES),
        help="session options of ONNX Runtime as they are (config entries, graph_optimization_level,"
        " enable_mem_pattern, …), each also by its own name: --option session.use_env_allocators=1",
        zh="原样传给 ONNX Runtime 的会话选项（config entry、graph_optimization_level、enable_mem_pattern 等），"
        "也可逐个用其自身名称给出：--option session.use_env_allocators=1",
    ),
    Setting(
        name="provider_options", kind="pairs", default={}, target_unless_said=True, metavar="KEY=VALUE,…",
        modes=("ort_cuda_*", "ort_tensorrt_*"), native="trt_[a-z0-9_]+|cudnn_[a-z0-9_]+|gpu_[a-z0-9_]+",
        help="options of the CUDA or TensorRT provider as they are, each also by its own name",
        zh="原样传给 CUDA 或 TensorRT 执行提供程序的选项，也可逐个用其自身名称给出",
    ),
    Setting(
        name="custom_ops_library", kind="names", default=(), modes=_ENGINE, code=True,
        help="libraries (.so) with custom operators that the model needs", zh="模型所需自定义算子的动态库（.so）",
    ),
    Setting(
        name="verbose", kind="flag", default=False, modes=_ENGINE,
        help="let ONNX Runtime log its warnings", zh="允许 ONNX Runtime 输出警告日志",
    ),
    Setting(
        name="disabled_optimizers", kind="names", default=(), modes=_OPTIMISED,
        help="ONNX Runtime's optimisers that stay off, by its own names: ConvBNFusion, NchwcTransformer, …",
        zh="关闭的 ONNX Runtime 优化器（用其自身的名称）：ConvBNFusion、NchwcTransformer 等",
    ),
    Setting(
        name="op_block_list", kind="names", default=(), modes=_FLOAT16,
        help="operator types that stay in float32", zh="保持 float32 的算子类型",
    ),
    Setting(
        name="node_block_list", kind="names", default=(), modes=_FLOAT16,
        help="names of nodes that stay in float32, or of the tensors that they make",
        zh="保持 float32 的节点名，或其产生的张量名",
    ),
    Setting(
        name="raise_constants", kind="pairs", default={}, target_unless_said=True, modes=_FLOAT16,
        metavar="NAME=VALUE,…",
        help="numbers of these constants that are nearer to 0 than VALUE, and not 0, become VALUE: an epsilon that the"
        " type can hold",
        zh="将这些常量中绝对值小于 VALUE 且不为 0 的数提高到 VALUE：使 epsilon 能被该类型表示",
    ),
    Setting(
        name="calibration", kind="choice", default="minmax", modes=("ort_int8",),
        choices=("minmax", "entropy", "percentile", "distribution"),
        help="how activations' ranges are found; of float8 by distribution alone",
        zh="激活值范围的校准方法；float8 只能用 distribution",
    ),
    Setting(
        name="activation_type", kind="choice", default="int8", choices=_TYPES, modes=("ort_int8",),
        help="type of quantised activations", zh="量化激活值的类型",
    ),
    Setting(
        name="weight_type", kind="choice", default="int8", choices=_TYPES, modes=_INT8,
        help="type of quantised weights", zh="量化权重的类型",
    ),
    Setting(
        name="per_channel", kind="flag", default=False, modes=_INT8,
        help="a scale for each channel of a weight; static from opset 13 on",
        zh="权重每个通道一个缩放因子；静态量化需 opset 13 及以上",
    ),
    Setting(
        name="pre_process", kind="flag", default=False, modes=("ort_int8",),
        help="fold constants and what hangs on them before quantisation, as quant_pre_process does",
        zh="量化前先折叠常量及相关算子，如 quant_pre_process 所做",
    ),
    Setting(
        name="raise_opset", kind="whole", default=0, low=0, high=30, modes=("ort_int8",), target_unless_said=True,
        help="bring the model to this opset first, by onnx's converter: from 13 on weights can have a scale a channel",
        zh="先用 onnx 的转换器将模型升至该 opset：13 起权重每个通道可有一个缩放因子",
    ),
    Setting(
        name="reduce_range", kind="flag", default=False, modes=_INT8,
        help="7 bits for weights, for processors whose int8 products overflow",
        zh="权重用 7 位，适用于 int8 乘积会溢出的处理器",
    ),
    Setting(
        name="block_size", kind="whole", default=128, low=16, high=256, modes=_INT4,
        help="elements of a weight that share a scale", zh="权重中共用一个缩放因子的元素数",
    ),
    Setting(
        name="symmetric", kind="flag", default=True, modes=_INT4,
        help="no zero point: 0 is held exactly", zh="不用零点：0 可精确表示",
    ),
    Setting(
        name="accuracy_level", kind="whole", default=0, low=0, high=4, modes=_INT4,
        help="what MatMulNBits may multiply in: 4 is int8, 0 leaves it to ONNX Runtime",
        zh="MatMulNBits 相乘时可用的类型：4 为 int8，0 由 ONNX Runtime 决定",
    ),
    Setting(
        name="nodes_to_exclude", kind="names", default=(), modes=(*_INT8, *_INT4),
        help="names of nodes that are not quantised, or of the tensors that they make",
        zh="不量化的节点名，或其产生的张量名",
    ),
    Setting(
        name="op_types", kind="names", default=(), modes=_INT8,
        help="the only operator types that are quantised (default: all that can be)",
        zh="仅量化这些算子类型（默认：所有可量化的类型）",
    ),
    Setting(
        name="save_model", kind="text", default="", flag=True, metavar="FILE.onnx", modes=_CHANGED, sides=("target",),
        help="keep the converted or quantised model that was judged", zh="保存实际参与对比的（转换或量化后的）模型",
    ),
    Setting(
        name="use_tf32", kind="flag", modes=("ort_cuda_*", "ort_tensorrt_*"),
        help="whether CUDA's float32 products may use TF32 (default: ONNX Runtime's own, yes)",
        zh="CUDA 的 float32 乘积可否使用 TF32（默认随 ONNX Runtime，即可以）",
    ),
    Setting(
        name="ep_library", kind="text", default="", modes=("ort_ep",), code=True,
        help="the plugin provider's library (.so)", zh="插件提供程序的动态库（.so）",
    ),
    Setting(
        name="ep_name", kind="text", default="", modes=("ort_ep",),
        help="the provider's name, such as QNNExecutionProvider", zh="提供程序的名称，例如 QNNExecutionProvider",
    ),
    Setting(
        name="ep_options", kind="names", default=(), modes=("ort_ep*",),
        help="the provider's own options, KEY=VALUE,…; of ort_ep_qnn over those of its chip (KEY= leaves one out)",
        zh="提供程序自身的选项 KEY=VALUE,…；在 ort_ep_qnn 中覆盖所模拟芯片的选项（KEY= 表示去掉）",
    ),
    Setting(
        name="device", kind="text", default=0, flag=True, by_side=True, metavar="DEVICE", reader=_card,
        modes=("ort_cuda_*", "ort_tensorrt_*"), help="the card that the provider runs on: cuda, cuda:1",
        zh="执行提供程序所用的显卡：cuda、cuda:1",
    ),
)  # fmt: skip


def setting(options: Mapping[str, Any], name: str) -> Any:
    """Return a session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and
    UsageError."""
    return value(SETTINGS, options, name)
