"""What a model or engine file holds, as lines in both languages: the same for every format that a backend tells of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from ...protocols.description import Description
from ...reasons import Text, same
from ...records import InputMeta
from ...report.words import explain_reason

__all__ = ["describe_parts", "format_type"]

_LONG = 120


def describe_parts(path: str, description: Description, parts: Collection[str] = ()) -> Iterator[Text]:
    """One line a thing; parts: as ``onnx_description.PARTS``."""
    yield Text(f"{path}: {description.format}", f"{path}：{description.format}")
    yield from map(explain_reason, description.facts)
    for word, metas in ((Text("input ", "输入"), description.inputs), (Text("output", "输出"), description.outputs)):
        for meta in metas:
            kind = format_type(meta)
            yield Text(f"{word.en}  {meta.name}  {kind.en}", f"{word.zh}  {meta.name}  {kind.zh}")
    counts = Counter(layer.op_type for layer in description.layers)
    listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    yield Text(f"{counts.total()} operators: {listed}", f"{counts.total()} 个算子：{listed}")
    precisions = Counter(layer.precision for layer in description.layers if layer.precision)
    if precisions:
        found, unknown = ", ".join(f"{n} {name}" for name, n in precisions.most_common()), counts.total()
        unknown -= precisions.total()
        yield Text(f"real precision: {found}, {unknown} not known", f"真实精度：{found}，{unknown} 个未知")
    weights = None if description.weights is None else list(description.weights)
    if weights is not None:
        types = ", ".join(f"{n} {name}" for name, n in Counter(one.dtype for one in weights).most_common())
        yield Text(f"{len(weights)} weights: {types}", f"{len(weights)} 个权重：{types}")
    if "layers" in parts or "attributes" in parts:
        for layer in description.layers:
            before = "  " * layer.depth
            precision = f"{layer.precision:5s} " if precisions else ""
            begin = f"{before}{layer.op_type:18s} {precision}{layer.name}"
            read, made = ", ".join(layer.inputs), ", ".join(layer.outputs)
            yield Text(f"{begin}: {read or 'nothing'} -> {made or 'nothing'}",
                       f"{begin}：{read or '无'} -> {made or '无'}")  # fmt: skip
            for detail in layer.details:
                yield same(f"{before}    {detail}")
            for name, value in layer.attributes.items() if "attributes" in parts else ():
                yield same(f"{before}    {name} = {value if len(value) <= _LONG else value[:_LONG] + '…'}")
    if "weights" in parts:
        if weights is None:
            yield Text("weights: not available in this format", "权重：该格式无法给出")
        for one in weights or ():
            en = zh = f"{one.name}  {one.dtype} [{', '.join(map(str, one.shape))}]"
            if one.low is not None and one.high is not None:
                en, zh = f"{en}  {one.low:.6g} to {one.high:.6g}", f"{zh}  {one.low:.6g} 至 {one.high:.6g}"
            if one.non_finite:
                en, zh = f"{en}, {one.non_finite} not finite", f"{zh}，{one.non_finite} 个非有限值"
            yield Text(en, zh)


def format_type(meta: InputMeta) -> Text:
    """Return the type and shape as text."""
    known = None if meta.shape is None else f"[{', '.join(map(str, meta.shape))}]"
    return Text(f"{meta.dtype or 'type unknown'} {known or 'shape unknown'}",
                f"{meta.dtype or '类型未知'} {known or '形状未知'}")  # fmt: skip
