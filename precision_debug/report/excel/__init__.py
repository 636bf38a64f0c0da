"""The report as an Excel workbook: the table first, then the summary, then the chart."""

from __future__ import annotations

from pathlib import Path

from ..layout import columns
from ..model import Report
from .formats import Formats
from .table import write_tables

__all__ = ["write"]


def write(report: Report, path: Path) -> None:
    """Rows stream to disk: memory does not grow with their number."""
    import xlsxwriter

    book = xlsxwriter.Workbook(str(path), {"constant_memory": True})
    formats = Formats(book)
    write_tables(book, formats, columns(report), report)
    book.close()
