"""The difference between two reports as a workbook: the table first, for programs; it opens on the sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ...reasons import Text
from ...records import Row, Status
from ...report.difference import Change, Difference, Tensor
from ...report.formats.xlsx.formats import TONES, Formats
from ...report.formats.xlsx.sentences import on_paper, write_sentences
from ...report.formats.xlsx.text import fit
from ...report.summary import STATUS_NAME, STATUS_TONE
from ...report.widths import text_width
from .difference_sentences import CHANGES, TONE_OF, ordered, sentences

__all__ = ["difference_book"]

_HEAD = (
    Text("Change", "变化"), Text("Operator Type", "算子类型"), Text("Tensor Name", "张量名"),
    Text("Rel L2 before", "之前的相对 L2"), Text("Rel L2 after", "之后的相对 L2"), Text("Ratio", "比值"),
    Text("Status before", "之前的状态"), Text("Status after", "之后的状态"),
)  # fmt: skip
_WIDTHS = (26, 20, 60, 15, 15, 11, 22, 22)
_LIMIT = 1_048_575
"""Rows of a sheet below its head."""


def difference_book(found: Difference, path: Path) -> None:
    """Every tensor, what got worse first; numbers as numbers. Raises OSError."""
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    written = sentences(found)
    book = xlsxwriter.Workbook(str(path), {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    try:
        book.set_properties({"title": "precision_debug diff", "comments": fit(written[0].en)})
        formats = Formats(book)
        _table(book.add_worksheet("Difference"), formats, [*ordered(found), *found.of(Change.SAME)][:_LIMIT])
        summary = book.add_worksheet("Summary")
        write_sentences(summary, formats, [*written, *_sides(found)], "bad" if found.regressed else "good")
        summary.activate()
        book.close()
    except FileCreateError as error:
        cause = error.args[0] if error.args else error
        raise cause if isinstance(cause, OSError) else OSError(str(error)) from error


def _sides(found: Difference) -> list[Text]:
    """What was compared with what."""
    said = []
    for one, name in ((found.before, Text("Before", "之前")), (found.after, Text("After", "之后"))):
        model = one.spec.model.path or one.target.model
        title = f"{model} {one.target.mode} ({one.baseline.mode}) {one.started}".strip()
        said.append(Text(f"{name.en}: {title}", f"{name.zh}：{title}"))
    return said


def _table(sheet: Any, formats: Formats, tensors: list[Tensor]) -> None:
    for place, (title, width) in enumerate(zip(_HEAD, _WIDTHS, strict=True)):
        look = formats.get(
            bold=True, font_color="#FFFFFF", bg_color="#1D3557", text_wrap=True, border=1, border_color="#FFFFFF",
            align="center" if place in (3, 4, 5) else "left", indent=int(place not in (3, 4, 5)),
        )  # fmt: skip
        sheet.write_string(0, place, f"{title.en}\n{title.zh}", look)
        names = [tensor.name for tensor in tensors] if place == 2 else []
        sheet.set_column(place, place, min(width, max([20, *map(text_width, names)]) + 4) if names else width)
    for line, tensor in enumerate(tensors, 1):
        _line(sheet, formats, line, tensor)
    sheet.set_row(0, 34)
    sheet.freeze_panes(1, 3)
    sheet.autofilter(0, 0, max(1, len(tensors)), len(_HEAD) - 1)
    on_paper(sheet, 9)
    sheet.repeat_rows(0)


def _line(sheet: Any, formats: Formats, line: int, tensor: Tensor) -> None:
    _text(sheet, formats, line, 0, str(CHANGES[tensor.change]), TONE_OF[tensor.change])
    _text(sheet, formats, line, 1, tensor.op_type, "")
    _text(sheet, formats, line, 2, tensor.name, "")
    for place, value, form in (
        (3, _error(tensor.before), "error"), (4, _error(tensor.after), "error"), (5, _ratio(tensor), "ratio"),
    ):  # fmt: skip
        if value is not None and math.isfinite(value):
            sheet.write_number(line, place, value, formats.get(form))
        elif value is not None:
            sheet.write_string(line, place, "NaN" if math.isnan(value) else "Inf", formats.get("text", align="right"))
    for place, row in ((6, tensor.before), (7, tensor.after)):
        status: Status | None = None if row is None else row.status
        if status is not None:
            _text(sheet, formats, line, place, str(STATUS_NAME[status]), STATUS_TONE[status])


def _error(row: Row | None) -> float | None:
    return None if row is None or row.relative_l2 is None else float(row.relative_l2)


def _ratio(tensor: Tensor) -> float | None:
    """None where it says nothing: after no error at all any is infinitely more."""
    return tensor.ratio if tensor.ratio is not None and math.isfinite(tensor.ratio) else None


def _text(sheet: Any, formats: Formats, line: int, place: int, text: str, tone: str) -> None:
    sheet.write_string(line, place, fit(text), formats.get("text", indent=1, **TONES.get(tone, {})))
