"""Write the further sheets: the demo's table, the engine's layers, a language model's tokens."""

from __future__ import annotations

import math
from typing import Any

from ....records import Row
from ...model import Report
from ...tokens import TOKEN_COLUMNS, iterate_token_values
from ...values import paddle_max_abs, paddle_max_rel, paddle_range
from .formats import fit_cell_text
from .table import ROW_LIMIT

__all__ = ["NAME", "write_demo_sheet", "write_layers", "write_tokens"]


# The sheet of Paddle-Inference-Demo's tensorrt_precision_debug, for scripts that read its output.xlsx.
#
# As pandas wrote it there: named Sheet1, an index column, the titles as the first line, all else text.

NAME = "Sheet1"
_DEMO_TITLES = ("Operator Type", "Tensor Name", "Shape", "Mismatched Elements", "Max Atol", "Max Rtol", "Min Val(base)",
           "Max Val(base)")  # fmt: skip


def write_demo_sheet(book: Any, report: Report) -> None:
    """One line for each tensor that both runs have, in the baseline's order; the demo knows no others."""
    sheet = book.add_worksheet(NAME)
    lines = [_DEMO_TITLES, *(_format_line(row) for row in report.rows if row.comparison is not None)]
    for number, line in enumerate(lines[:ROW_LIMIT]):
        sheet.write_number(number, 0, number)
        for column, text in enumerate(line, 1):
            if text is not None:
                sheet.write_string(number, column, fit_cell_text(text))


def _format_line(row: Row) -> tuple[str | None, ...]:
    found = row.comparison
    assert found is not None
    base, target = found.base, found.target
    if not found.shapes_match:
        return row.op_type, row.name, f"expect {base.shape}, but got {target.shape}", None, None, None, None, None
    here, there = paddle_range(row)
    largest, relative = paddle_max_abs(row), paddle_max_rel(row)
    if here is None or there is None or largest is None or relative is None:
        return row.op_type, row.name, f"match, {base.shape}", None, None, None, None, None
    ends = (f"{_round_number(mine)}({_round_number(its)})" for mine, its in zip(here, there, strict=True))
    mismatched = f"{found.mismatched}/{base.elements}"
    errors = f"a:{_round_number(largest)}", f"r:{_round_number(relative)}"
    return row.op_type, row.name, f"match, {base.shape}", mismatched, *errors, *ends


def _round_number(number: float) -> float:
    return round(float(number), 6)


# The real engine's layers as a sheet, where its inspector told them.

_LAYER_TITLES = (
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
    from ....inspector import find_real_precision

    sheet = book.add_worksheet("Layers")
    header = book.add_format({"bold": True, "bg_color": "#1D3557", "font_color": "#FFFFFF", "valign": "vcenter"})
    for column, (title, title_zh, width) in enumerate(_LAYER_TITLES):
        sheet.set_column(column, column, width)
        sheet.write_string(0, column, f"{title} / {title_zh}", header)
    for line, layer in enumerate(report.layers, 1):
        precision, source = find_real_precision(layer)
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
                sheet.write_string(line, column, fit_cell_text(value))
    sheet.freeze_panes(1, 1)
    sheet.autofilter(0, 0, len(report.layers), len(_LAYER_TITLES) - 1)


# A language model's tokens as a sheet: one line a prediction, and what each was on its way.

_DIFFERENCE = 5
_LAYERS = 200
"""Tensors whose error at each token is written: of more, those where it grows most."""


def write_tokens(book: Any, report: Report) -> None:
    """No sheet where the model is no language model. On its way: "Token Layers", a line a tensor, a column a token."""
    if report.tokens is None:
        return
    sheet = book.add_worksheet("Tokens")
    header = book.add_format({
        "bold": True, "bg_color": "#1D3557", "font_color": "#FFFFFF", "valign": "vcenter", "text_wrap": True,
    })  # fmt: skip
    short = book.add_format({"num_format": "0.0000E+00"})
    for column, title in enumerate(TOKEN_COLUMNS):
        sheet.set_column(column, column, 12)
        sheet.write_string(0, column, str(title), header)
    line = 0
    for line, values in enumerate(iterate_token_values(report), 1):
        for column, value in enumerate(values):
            if value is not None:
                _write(sheet, line, column, value, short)
    scale = {"type": "3_color_scale", "mid_type": "num", "mid_value": 0, "mid_color": "#FFFFFF", "min_color": "#6AA9EC",
             "max_color": "#EF958C"}  # fmt: skip
    sheet.conditional_format(1, _DIFFERENCE, max(1, line), _DIFFERENCE, scale)
    sheet.freeze_panes(1, 3)
    sheet.autofilter(0, 0, max(1, line), len(TOKEN_COLUMNS) - 1)
    _write_layers(book, report, header, short)


def _write_layers(book: Any, report: Report, header: Any, short: Any) -> None:
    tokens = report.tokens
    if tokens is None or not tokens.profiles:
        return
    sheet = book.add_worksheet("Token Layers")
    numbers = sorted(map(int, tokens.profiles))
    named = [tokens.tokens[n] for n in numbers]
    sheet.set_column(0, 0, 50)
    sheet.write_string(0, 0, "Tensor / 张量", header)
    for column, one in enumerate(named, 1):
        sheet.write_string(0, column, f"{one.row}:{one.place}" + ("" if one.id is None else f" ({one.id})"), header)
    for line, name in enumerate(tokens.tensors[:_LAYERS], 1):
        sheet.write_string(line, 0, fit_cell_text(name))
        for column, number in enumerate(numbers, 1):
            value = tokens.profiles[str(number)][line - 1]
            if value is not None:
                _write(sheet, line, column, value, short)
    sheet.freeze_panes(1, 1)


def _write(sheet: Any, line: int, column: int, value: Any, short: Any) -> None:
    """A number, or the word for one that is none."""
    if isinstance(value, int):
        sheet.write_number(line, column, value)
    elif math.isfinite(value):
        sheet.write_number(line, column, value, short)
    else:
        sheet.write_string(line, column, str(float(value)))
