"""The settings of this backend; sessions read them with ``setting``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.settings import Setting, value

__all__ = ["SETTINGS", "setting"]

SETTINGS = (
    Setting(
        name="head_fp32", kind="choice", default="off", choices=("on", "off"), modes=("vllm_bf16",),
        help="whether lm_head is computed in float32 (vLLM's head_dtype, what --hf-overrides sets there)",
        zh="lm_head 是否以 float32 计算（vLLM 的 head_dtype，由其 --hf-overrides 设置）",
    ),
)  # fmt: skip


def setting(options: Mapping[str, Any], name: str) -> Any:
    """Return a session's setting in its declared type. Raises KeyError where SETTINGS has no such one, and
    UsageError."""
    return value(SETTINGS, options, name)
