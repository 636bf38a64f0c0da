"""The report as an Excel workbook: the table first, then the summary, then the charts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import xlsxwriter  # at the top: formats are imported while the run is on
from xlsxwriter.exceptions import FileCreateError

from ....records import Status
from ...blame import named_culprits
from ...layout import list_columns_for_people
from ...model import Report
from ...sections import unit_of
from ...summary import name_status, summarise
from .chart import write_charts
from .formats import Formats, fit_cell_text
from .page import write_summary
from .sheets import write_demo_sheet, write_layers, write_tokens
from .table import ROW_LIMIT, write_table

__all__ = ["LANGUAGES", "write"]

LANGUAGES = ("en", "zh")


def write(report: Report, path: Path, *, language: str = "en") -> None:
    """Rows stream to disk, beside the file: memory does not grow with their number. Raises OSError.

    The table is the first sheet, for programs; the workbook opens on the summary, whose first line is the sentence.
    language: of reasons and statuses in the table; a reason's other wording is its cell's comment.
    """
    with tempfile.TemporaryDirectory(prefix=".precision_debug-", dir=path.parent) as scratch:
        options = {
            "constant_memory": True, "tmpdir": scratch, "use_zip64": len(report.rows) > ROW_LIMIT // 2,
            "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False,
        }  # fmt: skip
        book = xlsxwriter.Workbook(str(path), options)
        try:
            _fill(book, report, language)
            book.close()
        except FileCreateError as error:
            cause = error.args[0] if error.args else error
            raise cause if isinstance(cause, OSError) else OSError(str(error)) from error
        finally:
            for sheet in book.worksheets():
                sheet._opt_close()
            book.fileclosed = True


_OTHER = {"en": "zh", "zh": "en"}


def _fill(book: Any, report: Report, language: str) -> None:
    book.set_properties(
        {"title": fit_cell_text(f"precision_debug: {report.spec.model.path}"), "comments": str(report.verdict)}
    )
    formats = Formats(book)
    layout = list_columns_for_people(report, language, {status: name_status(report, status) for status in Status})
    named = {culprit.name: number for number, culprit in enumerate(named_culprits(report), 1)}
    sheets = write_table(book, formats, layout, report.rows, named, other=_OTHER[language], unit=unit_of(report))
    write_summary(book, formats, report, summarise(report), sheets).activate()
    write_tokens(book, report)
    write_layers(book, report)
    write_charts(book, formats, report)
    if report.spec.demo_sheet:
        write_demo_sheet(book, report)
