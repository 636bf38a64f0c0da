"""The settings of this backend; sessions read them with ``setting``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.settings import Setting, value

__all__ = ["SETTINGS", "setting"]

SETTINGS = (
    Setting(
        name="llama_threads", kind="whole", default=0, low=0, high=256,
        help="threads of each run; 0: half of the cores where two runs advance side by side, otherwise all",
        zh="每次运行的线程数；0：两次运行并行推进时各用一半核心，否则用全部核心",
    ),
    Setting(
        name="flash_attention", kind="choice", default="auto", choices=("auto", "on", "off"), modes=("gguf_cpu",),
        help="whether attention is one fused operator, which rounds keys and values to F16; auto: llama.cpp decides",
        zh="注意力是否为一个融合算子（会把 K、V 舍入到 F16）；auto 由 llama.cpp 决定",
    ),
    Setting(
        name="kv_cache", kind="choice", default="f16", choices=("f32", "f16", "bf16", "q8_0"), modes=("gguf_cpu",),
        help="type in which keys and values are kept (llama.cpp's own default is f16); q8_0 needs flash attention",
        zh="K、V 缓存的类型（llama.cpp 默认 f16）；q8_0 需要 flash attention",
    ),
    Setting(
        name="repack", kind="choice", default="on", choices=("on", "off"), modes=("gguf_cpu",),
        help="whether weights may be laid out anew for faster kernels, which add up in another order",
        zh="是否允许为更快的内核重排权重（求和顺序随之不同）",
    ),
    Setting(
        name="keep_fp32", kind="names", default=(), sides=("target",), modes=("gguf_cpu",),
        help="names of weights that are held in float32 (blk.0.ffn_down.weight, token_embd.weight)",
        zh="以 float32 保存的权重名（blk.0.ffn_down.weight、token_embd.weight）",
    ),
    Setting(
        name="keep_from", kind="text", default="", sides=("target",), modes=("gguf_cpu",), metavar="FILE.gguf",
        help="the file whose weights take the place of those that keep_fp32 names, the F32 one that was quantised;"
        " without it they are dequantised, which leaves their rounding and takes away the activations'",
        zh="keep_fp32 所列权重取自此文件（量化前的 F32 文件）；不给则将其反量化：权重的舍入仍在，激活的舍入消失",
    ),
    Setting(
        name="save_gguf", kind="text", default="", sides=("target",), modes=("gguf_cpu",), metavar="FILE.gguf",
        help="keep the file that was compared, with what keep_fp32 changed in it",
        zh="保存参与对比的文件，包含 keep_fp32 所作的改动",
    ),
)  # fmt: skip


def setting(options: Mapping[str, Any], name: str) -> Any:
    """Return a session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and
    UsageError."""
    return value(SETTINGS, options, name)
