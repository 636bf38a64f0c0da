"""The real engine's layers as a sheet, where its inspector told them."""

from __future__ import annotations

from typing import Any

from ...model import Report
from .text import fit

__all__ = ["write_layers"]

_TITLES = (
    ("Layer", "层", 46),
    ("Type", "类型", 18),
    ("Real Precision", "实际精度", 14),
    ("Read From", "依据", 16),
    ("Tactic", "Tactic（内核）", 60),
    ("Fused Nodes", "融合的节点", 60),
    ("Inputs", "输入", 40),
    ("Outputs", "输出", 40),
    ("Weights", "权重类型", 12),
    ("Origin", "来源", 14),
)


def write_layers(book: Any, report: Report) -> None:
    """One line a layer, in the engine's order; no sheet where there are none."""
    if not report.layers:
        return
    from ....inspector import real_precision

    sheet = book.add_worksheet("Layers")
    header = book.add_format({"bold": True, "bg_color": "#1D3557", "font_color": "#FFFFFF", "valign": "vcenter"})
    for column, (title, title_zh, width) in enumerate(_TITLES):
        sheet.set_column(column, column, width)
        sheet.write_string(0, column, f"{title} / {title_zh}", header)
    for line, layer in enumerate(report.layers, 1):
        precision, source = real_precision(layer)
        values = (
            layer.name,
            layer.layer_type,
            precision or "unknown",
            source,
            layer.tactic_name,
            ", ".join(layer.onnx_nodes) + (" …" if layer.nodes_cut else ""),
            ", ".join(tensor.name for tensor in layer.inputs),
            ", ".join(tensor.name for tensor in layer.outputs),
            layer.weights_type,
            layer.origin,
        )
        for column, value in enumerate(values):
            if value:
                sheet.write_string(line, column, fit(value))
    sheet.freeze_panes(1, 1)
    sheet.autofilter(0, 0, len(report.layers), len(_TITLES) - 1)
