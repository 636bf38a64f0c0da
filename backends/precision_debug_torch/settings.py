"""The settings of this backend; sessions read them with ``setting``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.settings import Setting, value
from precision_debug.settings.setting import mode_setting, step_settings

__all__ = ["SETTINGS", "setting"]



def _pairs(given: Any) -> dict[str, str]:
    words = given if isinstance(given, (list, tuple)) else str(given).split(",")
    pairs = given.items() if isinstance(given, Mapping) else (str(word).split("=", 1) for word in words if word)
    found = {}
    for pair in pairs:
        if len(pair) != 2 or not str(pair[0]).strip():
            raise ValueError(f"expects KEY=VALUE, got {'='.join(map(str, pair))!r}")
        found[str(pair[0]).strip()] = str(pair[1]).strip()
    return found


SETTINGS = (
    Setting(
        name="level", kind="choice", default="op", choices=("op", "module"), flag=True,
        help="every ATen operator, or the modules' outputs", zh="每个 ATen 算子，或各模块的输出",
    ),
    Setting(
        name="device", kind="text", default="", flag=True, by_side=True, metavar="DEVICE",
        help="cpu, cuda, cuda:1; as_built: parameters stay where the factory put them (default: cuda if there is one,"
             " as_built if they are on several devices)",
        zh="cpu、cuda、cuda:1；as_built：参数留在工厂函数放置的设备上（默认：有 GPU 时为 cuda，"
        "参数分布在多个设备上时为 as_built）",
    ),
    Setting(
        name="keep_modules", kind="names", default=(), sides=("target",),
        modes=("torch_fp16", "torch_bf16", "torch_autocast_*", "torch_int8", "torch_fp8*", "torch_int4_weights"),
        help="paths of modules that stay in float32, with what is inside them; under autocast also lines of source"
             " (model.py:57): what they call of torch itself",
        zh="保持 float32 的模块路径（含其内部）；autocast 下也可为源代码的行（model.py:57）：该行所调用的 torch 运算",
    ),
    Setting(
        name="keep_original", kind="names", default=(), sides=("target",),
        modes=("torch_fp32", "torch_fp16", "torch_bf16"),
        help="of a quantised folder: paths of modules whose weights are those of keep_from",
        zh="用于量化的目录：权重取自 keep_from 的模块路径",
    ),
    Setting(
        name="keep_from", kind="text", default="", sides=("target",), metavar="FOLDER",
        modes=("torch_fp32", "torch_fp16", "torch_bf16"),
        help="the folder that was quantised, for keep_original", zh="量化之前的目录，用于 keep_original",
    ),
    Setting(
        name="compile_backend", kind="choice", default="inductor", choices=("inductor", "aot_eager", "eager"),
        modes=("torch_compile",),
        help="the backend that torch.compile passes its graph to; aot_eager: the decomposed operators, one by one;"
             " eager: the captured ones",
        zh="torch.compile 将计算图交给谁；aot_eager：逐个运行分解后的算子；eager：逐个运行捕获的算子",
    ),
    Setting(
        name="inductor", kind="names", default={}, reader=_pairs, modes=("torch_compile",), code=True,
        help="torch.compile's options of inductor, KEY=VALUE: pattern_matcher=False, max_fusion_size=1, cpp.simdlen=1",
        zh="传给 torch.compile 的 inductor 选项，KEY=VALUE：pattern_matcher=False、max_fusion_size=1、cpp.simdlen=1",
    ),
    Setting(
        name="uncompiled", kind="names", default=(), sides=("target",), modes=("torch_compile",),
        help="paths of modules that torch.compile leaves out, with what is inside them: they run eagerly",
        zh="torch.compile 不编译的模块路径（含其内部）：以 eager 运行",
    ),
    *step_settings(scaled="torch_autocast_fp16", module="module"),
    Setting(
        name="from_step", kind="text", default="",
        help="a step that precision_debug.training() kept: parameters, batch and optimiser as they were; of several"
             " ranks DIR/step_<number>, and each rank's gradients are compared, or one update on their mean",
        zh="precision_debug.training() 保存的步：参数、批次与优化器均恢复到当时状态；多个 rank 时为 DIR/step_<编号>，"
        "对比每个 rank 的梯度，或按其平均值的一次更新",
    ),
    mode_setting(),
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
    """Return a session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and
    UsageError."""
    return value(SETTINGS, options, name)
