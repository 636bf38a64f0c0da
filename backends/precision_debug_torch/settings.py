"""The settings of this backend; sessions read them with ``setting``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.settings import Setting, value

__all__ = ["SETTINGS", "setting"]

SETTINGS = (
    Setting(
        name="level", kind="choice", default="op", choices=("op", "module"), flag=True,
        help="every ATen operator, or the modules' outputs", zh="每个 ATen 算子，或各模块的输出",
    ),
    Setting(
        name="device", kind="text", default="", flag=True, by_side=True, metavar="DEVICE",
        help="cpu, cuda, cuda:1; as_built: parameters stay where the factory has put them (default: cuda where there is"
        " one, as_built where they lie on several devices)",
        zh="cpu、cuda、cuda:1；as_built：参数留在工厂函数放置的设备上（默认：有 GPU 时为 cuda，"
        "参数分布在多个设备上时为 as_built）",
    ),
    Setting(
        name="keep_modules", kind="names", default=(), sides=("target",),
        modes=("torch_fp16", "torch_bf16", "torch_autocast_*", "torch_int8", "torch_fp8*", "torch_int4_weights"),
        help="paths of modules that stay in float32, with what is inside them",
        zh="保持 float32 的模块路径（含其内部）",
    ),
    Setting(
        name="training", kind="flag", default=False,
        help="leave the module in training mode as the factory made it", zh="模块保持工厂函数给出的训练模式",
    ),
    Setting(
        name="device_tensors", kind="flag", default=False,
        help="hooks get torch tensors where they are, not arrays", zh="hook 得到原设备上的 torch 张量，而不是数组",
    ),
    Setting(
        name="compare_on", kind="choice", choices=("device", "host"), sides=("target",),
        help="where two runs on GPUs are compared (default: there, on the one that has the larger tensor)",
        zh="GPU 上的两次运行在哪里比较（默认在 GPU 上：较大张量所在的那一个）",
    ),
)  # fmt: skip


def setting(options: Mapping[str, Any], name: str) -> Any:
    """A session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and UsageError."""
    return value(SETTINGS, options, name)
