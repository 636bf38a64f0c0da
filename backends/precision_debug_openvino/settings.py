"""The settings of this backend; sessions read them with ``setting``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.settings import Setting, value

__all__ = ["SETTINGS", "setting"]

_NARROW = ("ov_opt", "ov_bf16", "ov_fp16")


SETTINGS = (
    Setting(
        name="device", kind="text", default="CPU", flag=True, by_side=True, metavar="DEVICE",
        help="CPU, GPU, NPU: a device of OpenVINO (default: CPU)", zh="CPU、GPU、NPU：OpenVINO 的设备（默认 CPU）",
    ),
    Setting(
        name="inference_num_threads", kind="whole", default=0, low=0, high=256,
        help="threads of each run; 0: half of the cores where two runs advance side by side, otherwise all",
        zh="每次运行的线程数；0：两次运行并行推进时各用一半核心，否则用全部核心",
    ),
    Setting(
        name="observe", kind="choice", choices=("taps", "results"),
        help="see tensors by operators of ours inside, or as further results (default: the former on the CPU)",
        zh="以内部的自定义算子或以额外的输出观察张量（默认：在 CPU 上用前者）",
    ),
    Setting(
        name="config", kind="pairs", default={}, target_unless_said=True, native="[A-Z][A-Z0-9]*(_[A-Z0-9]+)+",
        metavar="KEY=VALUE,…",
        help="properties of OpenVINO as they are, each also by its own name: --option EXECUTION_MODE_HINT=ACCURACY",
        zh="原样传给 OpenVINO 的属性，也可逐个用其自身名称给出：--option EXECUTION_MODE_HINT=ACCURACY",
    ),
    Setting(
        name="keep_fp32", kind="names", default=(), sides=("target",), modes=_NARROW,
        help="names of operators or tensors that stay in float32, each with the layer that it is fused into",
        zh="保持 float32 的算子名或张量名（连同其所融合进的层）",
    ),
    Setting(
        name="uncompressed_from", kind="text", default="", sides=("target",), metavar="FILE",
        help="the model that an IR was saved from: its numbers in place of those that compress_to_fp16 rounded",
        zh="IR 的来源模型：用其数值替换被 compress_to_fp16 舍入的权重",
    ),
    Setting(
        name="save_ir", kind="text", default="", sides=("target",), modes=("ov_opt*", "ov_bf16", "ov_fp16", "ov_int8"),
        metavar="FILE.xml", help="keep the model that was compared as OpenVINO IR, with what keep_fp32 marks in it",
        zh="将参与对比的模型保存为 OpenVINO IR，包含 keep_fp32 的标记",
    ),
    Setting(
        name="preset", kind="choice", default="performance", choices=("performance", "mixed"), modes=("ov_int8",),
        help="NNCF's: symmetric activations, or asymmetric ones", zh="NNCF 的预设：对称或非对称的激活值",
    ),
    Setting(
        name="overflow_fix", kind="choice", default="", choices=("", "enable", "first_layer_only", "disable"),
        modes=("ov_int8",),
        help="NNCF's: weights in 7 of their 8 bits, whose sums saturate on no processor (default: as NNCF chooses)",
        zh="NNCF 的选项：权重只用 8 位中的 7 位，其累加在任何处理器上都不会饱和（默认由 NNCF 决定）",
    ),
    Setting(
        name="nodes_to_exclude", kind="names", default=(), modes=("ov_int8",),
        help="names of operators or tensors whose operators NNCF does not quantise",
        zh="NNCF 不量化的算子名，或其产生的张量名",
    ),
)  # fmt: skip


def setting(options: Mapping[str, Any], name: str) -> Any:
    """Return a session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and
    UsageError."""
    return value(SETTINGS, options, name)
