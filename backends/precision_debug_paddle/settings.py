"""The settings of this backend; sessions read them with ``setting``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.settings import Setting, value
from precision_debug.settings.setting import mode_setting, step_settings

__all__ = ["SETTINGS", "setting"]

_TARGET = ("target",)
_CPU = ("paddle_fp32", "cpu_*", "onednn_*")
_GPU = ("paddle_fp32", "gpu_*", "trt_*")
_PASSES = ("cpu_opt", "onednn_*", "gpu_opt", "gpu_fp16", "gpu_bf16", "trt_*")
_TRT = ("trt_*",)
_PREDICTOR = ("paddle_fp32", "cpu_*", "onednn_*", "gpu_*", "trt_*")

SETTINGS = (
    Setting(
        name="threads", kind="whole", default=1, low=1, high=256, modes=_CPU,
        help="CPU threads of Paddle's math library", zh="Paddle 数学库的 CPU 线程数",
    ),
    Setting(
        name="delete_pass", kind="names", default=(), modes=_PASSES, help="passes to leave out", zh="要去掉的 pass",
    ),
    Setting(
        name="custom_ops_library", kind="names", default=(), modes=_PREDICTOR, code=True,
        help="libraries (.so) with custom operators that the model needs, as paddle.utils.cpp_extension builds them",
        zh="模型所需自定义算子的动态库（.so），由 paddle.utils.cpp_extension 构建",
    ),
    Setting(
        name="memory_optim", kind="flag", default=False, modes=_PREDICTOR,
        help="let Paddle reuse the memory of tensors", zh="允许 Paddle 复用张量内存",
    ),
    Setting(
        name="ir_optim", kind="flag", default=True, modes=_PASSES,
        help="run Paddle's passes (the ladder switches them off)", zh="运行 Paddle 的 pass（ladder 会逐个关闭）",
    ),
    Setting(
        name="keep_operators", kind="names", default=(), modes=("onednn_bf16",),
        help="values of a PIR program (.json) whose operators stay in float32: the program is rewritten for that",
        zh="PIR 程序（.json）中保留为 float32 的算子的输出名：为此改写程序",
    ),
    Setting(
        name="bfloat16_ops", kind="names", default=(), modes=("onednn_bf16",),
        help="the only operator types that oneDNN may run in bfloat16 (default: all)",
        zh="oneDNN 只能以 bfloat16 运行这些算子类型（默认全部）",
    ),
    Setting(
        name="disable_mixed_precision_ops", kind="names", default=(), modes=("gpu_fp16", "gpu_bf16", "trt_*"),
        help="operator types that stay in FP32", zh="保持 FP32 的算子类型",
    ),
    *step_settings(scaled="dygraph_amp_o1_fp16 or dygraph_amp_o2_fp16", module="nn.Layer", modes=("dygraph_*",)),
    mode_setting(("dygraph_*",)),
    Setting(
        name="device", kind="whole", default=0, low=0, high=1023, modes=_GPU,
        help="number of the GPU", zh="GPU 编号",
    ),
    Setting(
        name="mark_builds", kind="whole", default=0, low=0, high=10_000, modes=_PREDICTOR,
        help="how many predictors the search for marks may build (0: what fits into 5 minutes, 12 to 60)",
        zh="搜索标记时最多构建的 predictor 个数（0：5 分钟内能完成的数量，12 至 60）",
    ),
    Setting(
        name="fetch_bytes", kind="size", default=1 << 30, modes=_PREDICTOR,
        help="how many bytes of tensors one predictor may hold for us", zh="一个 predictor 最多为我们保留的张量字节数",
    ),
    Setting(
        name="use_dynamic_shape", kind="flag", flag=True, metavar="0|1", modes=_TRT,
        help="build for a range of shapes", zh="为一个形状范围构建引擎",
    ),
    Setting(
        name="min_shapes", kind="shapes", default={}, flag=True, metavar="NAME:SHAPE", nargs="+", modes=_TRT,
        help="the smallest shape of each input", zh="每个输入的最小形状",
    ),
    Setting(
        name="opt_shapes", kind="shapes", default={}, flag=True, metavar="NAME:SHAPE", nargs="+", modes=_TRT,
        help="the shape to tune for", zh="用于调优的形状",
    ),
    Setting(
        name="max_shapes", kind="shapes", default={}, flag=True, metavar="NAME:SHAPE", nargs="+", modes=_TRT,
        help="the largest shape of each input", zh="每个输入的最大形状",
    ),
    Setting(
        name="collect_shape_range", kind="flag", modes=_TRT,
        help="find every tensor's range by running the feeds on the CPU (default); off: give only the inputs' shapes",
        zh="在 CPU 上运行输入以收集每个张量的形状范围（默认）；关闭：只给出输入的形状",
    ),
    Setting(
        name="shape_range_file", kind="text", default="", modes=_TRT,
        help="a shape range file that was collected before", zh="之前收集的形状范围文件",
    ),
    Setting(
        name="tf32", kind="flag", default=False, modes=("paddle_fp32", "gpu_fp32", "gpu_opt", "trt_*"),
        help="leave TF32 on in FP32 on a GPU", zh="GPU 上的 FP32 保留 TF32",
    ),
    Setting(
        name="workspace", kind="size", default=1 << 30, flag=True, metavar="SIZE", modes=_TRT,
        help="memory for the builder, e.g. 4G", zh="构建器可用的显存，例如 4G",
    ),
    Setting(
        name="max_batch_size", kind="whole", low=1, high=2**31 - 1, modes=_TRT,
        help="largest batch of a static engine (default: the feed's)", zh="静态引擎的最大 batch（默认随输入）",
    ),
    Setting(
        name="min_subgraph_size", kind="whole", default=3, low=1, high=2**31 - 1, modes=_TRT,
        help="fewest operators of a subgraph", zh="子图的最少算子数",
    ),
    Setting(
        name="use_static", kind="flag", default=False, modes=_TRT,
        help="keep the built engine in cache_dir and load it from there", zh="把引擎保存在 cache_dir 并从中加载",
    ),
    Setting(
        name="calibration", kind="flag", modes=("trt_int8",),
        help="calibrate on the feeds (default: unless the model is quantised)", zh="用输入校准（默认：模型未量化时）",
    ),
    Setting(
        name="cache_dir", kind="text", default="", modes=_TRT,
        help="folder of engines, calibration tables and shape ranges (default: one of the run)",
        zh="存放引擎、校准表和形状范围的目录（默认为本次运行的目录）",
    ),
    Setting(
        name="disable_tensorrt_ops", kind="names", default=(), modes=_TRT,
        help="operator types (3.x: also names) that Paddle runs itself",
        zh="由 Paddle 自己运行的算子类型（3.x 也可用名字）",
    ),
    Setting(
        name="fused_only", kind="flag", default=False, flag=True, sides=_TARGET, modes=_TRT,
        help="mark only the outputs of fused layers", zh="只标记融合层的输出",
    ),
    Setting(
        name="mark_all", kind="flag", default=True, sides=_TARGET, modes=_TRT,
        help="mark every tensor; off: only the engine's outputs", zh="标记每个张量；关闭：只有引擎的输出",
    ),
    Setting(
        name="disable_tensorrt_half_ops", kind="names", default=(), modes=("trt_fp16", "trt_bf16"),
        help="outputs (or types) of operators that TensorRT keeps in FP32",
        zh="TensorRT 中保持 FP32 的算子输出名（或类型）",
    ),
    Setting(
        name="fp16_subgraphs", kind="names", default=(), modes=_TRT,
        help="subgraph parameters to run in FP16 (exp_specify_tensorrt_subgraph_precision)",
        zh="以 FP16 运行的子图参数（exp_specify_tensorrt_subgraph_precision）",
    ),
)  # fmt: skip


def setting(options: Mapping[str, Any], name: str) -> Any:
    """Return a session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and
    UsageError."""
    return value(SETTINGS, options, name)
