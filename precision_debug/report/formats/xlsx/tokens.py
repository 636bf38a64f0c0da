"""A language model's tokens as a sheet: one line a prediction, and what each was on its way."""

from __future__ import annotations

import math
from typing import Any

from ...model import Report
from ...tokens import TOKEN_COLUMNS, token_values
from .text import fit

__all__ = ["write_tokens"]

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
    for line, values in enumerate(token_values(report), 1):
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
        sheet.write_string(line, 0, fit(name))
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
