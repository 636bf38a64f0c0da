"""How a row's two tensors were paired, and how a value was taken from the engine's: worded once in two languages.

A file keeps the English, so that texts are made of the templates below, and are known again by them: whoever makes one
has to ask ``way``, since nothing else is a ``Way``, and a template that is not here is a KeyError.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .reason import Text, same

__all__ = ["NO_WAY", "WAYS", "Way", "explain_way", "read_way", "way"]

if TYPE_CHECKING:

    class Way(str):
        """English that ``way`` made; "" where there is nothing to say."""

else:
    Way = str

NO_WAY = Way()

WAYS: Mapping[str, str] = {
    # how two tensors were paired
    "exact": "名称一致",
    "rename map": "重命名表",
    "graph metadata": "图元数据",
    "before quantisation": "量化之前",
    "before rounding": "舍入之前",
    "fingerprint and module": "数值指纹与模块",
    "fingerprint, and both are outputs of the model": "数值指纹，且两者都是模型的输出",
    "fingerprint, and both are the model's output": "数值指纹，且两者都是模型的输出",
    "fingerprint": "数值指纹",
    "the same values": "数值相同",
    "graph neighbours": "图中相邻张量",
    "graph neighbours, and nearer than what has its name": "图中相邻张量，且比同名张量更接近",
    "graph neighbours, and the same values": "图中相邻张量，且数值相同",
    "graph neighbours, and the same values in most places": "图中相邻张量，且大多数位置数值相同",
    "graph neighbours: with the baseline's value in its place what follows agrees":
        "图中相邻张量：代入基线的值后，其后的张量一致",
    "graph neighbours: the same family of operator, inputs and shape": "图中相邻张量：同类算子，输入与形状相同",
    "graph neighbours: what the layer of the same name hands on": "图中相邻张量：同名层所传出的张量",
    "graph neighbours: the only one of its family and shape in the layer of the same name":
        "图中相邻张量：同名层中同类同形状的唯一张量",
    "outputs of the model, by name": "模型的输出，按名称",
    "outputs of the model, by position ({place} of {count}), shape and type":
        "模型的输出，按位置（{count} 个中的第 {place} 个）、形状与类型",
    "outputs of the model, the only ones of this shape and type": "模型的输出，且只有它们是该形状与类型",
    "without the padding of {shape}": "去掉填充后（{shape}）",
    "in another order of channels along axis {axis}": "第 {axis} 轴的通道次序不同",
    "{count} chunks along axis {axis}": "沿第 {axis} 轴的 {count} 块",
    "{count} chunks along axis {axis}, of each sample": "每个样本沿第 {axis} 轴的 {count} 块",
    "part {number} of {count} of {name}: axis {axis}, in another order":
        "{name} 的 {count} 部分中的第 {number} 部分：第 {axis} 轴，次序不同",
    "part {number} of {count} of {name}: axis {axis}, {first} to {last}":
        "{name} 的 {count} 部分中的第 {number} 部分：第 {axis} 轴，{first} 至 {last}",
    # how another tool's tensor was
    "name": "名称", "value": "数值", "name and value": "名称与数值", "position and value": "位置与数值",
    "one of equal copies": "相同副本之一",
    "the output, the only one left of its size": "输出，仅剩的同样大小的一个",
    "value, as others that are equal": "数值，另有相同者",
    "value, from what comes before it": "数值，由其之前的张量算得",
    "name and value, from what comes before it": "名称与数值，由其之前的张量算得",
    "the same on {ranks} ranks": "{ranks} 个 rank 上相同",
    "{ranks} ranks joined along axis {axis}": "{ranks} 个 rank 沿第 {axis} 轴拼接",
    "{ranks} ranks added up": "{ranks} 个 rank 相加",
    "part {number} of {count}": "{count} 部分中的第 {number} 部分",
    # how a value was taken from the engine's
    "dequantised": "反量化", "unblocked": "还原布局", "dequantised, unblocked": "反量化，还原布局",
    "transposed": "转置", "cast": "类型转换", "unfused": "融合层内", "packed": "各部分并置", "dense": "转为稠密",
    "rounded to {type}": "舍入到 {type}",
    "rounded to {type} behind float32": "舍入到 {type}（其后为 float32）",
    # what is said behind another one
    "{how}; among copies by the order that both graphs force": "{how}；相同副本之间按两侧图所决定的次序",
    "{how}; inputs agree, the output does not": "{how}；输入一致，输出不一致",
    "{how}, confidence {number}": "{how}，置信度 {number}",
    "{how}, axes turned by {shape}": "{how}，轴按 {shape} 转置",
    "{how}, relative distance {number}": "{how}，相对距离 {number}",
    "{how}, {more}": "{how}，{more}",
}
"""English template to Chinese. ``how`` and ``more`` are others of these."""

_NESTED = frozenset({"how", "more"})
_NUMBER, _NAME = r"[0-9.e+-]+", ".+"
_NAMES = frozenset({"name"})
_WORDS = {"type": "[a-z0-9_]+", "shape": r"\[[0-9, ]*\]"}


def way(template: str, /, **args: Any) -> Way:
    """Return a text in English. Raises KeyError for a template that has no Chinese, or an argument that is missing."""
    if template not in WAYS:
        raise KeyError(template)
    return Way(template.format(**args))


def read_way(text: str) -> Way:
    """Return what a file of ours has of one."""
    return Way(text)


@functools.lru_cache(maxsize=4096)
def explain_way(text: str) -> Text:
    """Return such a text in both languages; in English what nobody knows, as of a backend that is not ours."""
    zh = _translate(text)
    return same(text) if zh is None else Text(text, zh)


def _translate(text: str) -> str | None:
    for pattern, zh in _list_patterns():
        if (found := pattern.fullmatch(text)) is None:
            continue
        args = found.groupdict()
        inner = {name: _translate(args[name]) for name in args.keys() & _NESTED}
        if None not in inner.values():
            return zh.format(**{**args, **inner})
    return None


@functools.cache
def _list_patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """What is whole before what is said behind another one, and the longer before the shorter."""
    ordered = sorted(WAYS.items(), key=lambda one: ("{how}" in one[0], "{" in one[0], -len(one[0])))
    return tuple((re.compile(_as_pattern(template)), zh) for template, zh in ordered)


def _as_pattern(template: str) -> str:
    pieces = re.split(r"\{([a-z]+)\}", template)
    found = []
    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            found.append(re.escape(piece))
        else:
            form = _NAME if piece in _NAMES | _NESTED else _WORDS.get(piece, _NUMBER)
            found.append(f"(?P<{piece}>{form})")
    return "".join(found)
