"""The settings of this backend; sessions read them with ``setting``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.settings import Setting, value

__all__ = ["FLAGS", "SETTINGS", "setting"]

FLAGS = (
    "experimental_default_delegate_latest_features", "experimental_disable_delegate_clustering",
    "experimental_disable_delegate_node_fusion", "experimental_compress_quantization_zero_points",
)  # fmt: skip
"""Switches of ai_edge_litert's Interpreter that a user may set; the others are the run mode's."""

SETTINGS = (
    Setting(
        name="litert_threads", kind="whole", default=0, low=0, high=256,
        help="threads of each run; 0: half of the cores where two runs advance side by side, otherwise all",
        zh="每次运行的线程数；0：两次运行并行推进时各用一半核心，否则用全部核心",
    ),
    Setting(
        name="quantised_inputs", kind="choice", default="real", choices=("real", "raw"),
        help="how inputs that the file quantises are fed: as real numbers, which its scale rounds, or as its integers",
        zh="文件中量化的输入如何给出：实数（按其 scale 取整），或其整数本身",
    ),
    Setting(
        name="config", kind="pairs", default={}, target_unless_said=True, modes=("tflite_opt",), metavar="KEY=VALUE,…",
        native="|".join(FLAGS),
        help="switches of LiteRT's Interpreter for XNNPACK (1 or 0), each also by its own name:"
             " --option experimental_disable_delegate_node_fusion=1",
        zh="LiteRT Interpreter 关于 XNNPACK 的开关（1 或 0），也可逐个用其自身名称给出："
        "--option experimental_disable_delegate_node_fusion=1",
    ),
    Setting(
        name="keep_fp32", kind="names", default=(), sides=("target",), modes=("tflite_ref", "tflite_opt"),
        help="names of tensors whose operators compute in float32 in a quantised file",
        zh="量化文件中以 float32 计算的算子（以其产生的张量名给出）",
    ),
    Setting(
        name="save_tflite", kind="text", default="", sides=("target",), modes=("tflite_ref", "tflite_opt"),
        metavar="FILE.tflite", help="keep the file that was compared, with what keep_fp32 changed in it",
        zh="保存参与对比的文件，包含 keep_fp32 所作的改动",
    ),
)  # fmt: skip


def setting(options: Mapping[str, Any], name: str) -> Any:
    """Return a session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and
    UsageError."""
    return value(SETTINGS, options, name)
