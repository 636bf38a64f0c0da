"""The sheet of Paddle-Inference-Demo's tensorrt_precision_debug, for scripts that read its output.xlsx.

As pandas wrote it there: named Sheet1, an index column, the titles as the first line, all else text.
"""

from __future__ import annotations

from typing import Any

from ....records import Row
from ...model import Report
from ...values import paddle_max_abs, paddle_max_rel, paddle_range
from .table import ROW_LIMIT
from .text import fit

__all__ = ["NAME", "write_demo_sheet"]

NAME = "Sheet1"
_TITLES = ("Operator Type", "Tensor Name", "Shape", "Mismatched Elements", "Max Atol", "Max Rtol", "Min Val(base)",
           "Max Val(base)")  # fmt: skip


def write_demo_sheet(book: Any, report: Report) -> None:
    """One line for each tensor that both runs have, in the baseline's order; the demo knows no others."""
    sheet = book.add_worksheet(NAME)
    lines = [_TITLES, *(_line(row) for row in report.rows if row.comparison is not None)]
    for number, line in enumerate(lines[:ROW_LIMIT]):
        sheet.write_number(number, 0, number)
        for column, text in enumerate(line, 1):
            if text is not None:
                sheet.write_string(number, column, fit(text))


def _line(row: Row) -> tuple[str | None, ...]:
    found = row.comparison
    assert found is not None
    base, target = found.base, found.target
    if not found.shapes_match:
        return row.op_type, row.name, f"expect {base.shape}, but got {target.shape}", None, None, None, None, None
    here, there = paddle_range(row)
    largest, relative = paddle_max_abs(row), paddle_max_rel(row)
    if here is None or there is None or largest is None or relative is None:
        return row.op_type, row.name, f"match, {base.shape}", None, None, None, None, None
    ends = (f"{_rounded(mine)}({_rounded(its)})" for mine, its in zip(here, there, strict=True))
    mismatched = f"{found.mismatched}/{base.elements}"
    errors = f"a:{_rounded(largest)}", f"r:{_rounded(relative)}"
    return row.op_type, row.name, f"match, {base.shape}", mismatched, *errors, *ends


def _rounded(number: float) -> float:
    return round(float(number), 6)
