"""The table as comma-separated values: UTF-8 with a byte-order mark (Excel then reads it right), full precision."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from .layout import Column, columns
from .model import Report

__all__ = ["write"]


def write(report: Report, path: Path) -> None:
    """One header line of titles, one line a row. None is empty; nan, inf and -inf are those words.

    A report of a run that ended early has one line more, whose Status is "partial" and whose Reason says why.
    """
    layout = columns(report)
    with path.open("w", encoding="utf-8-sig", errors="backslashreplace", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([column.title for column in layout])
        kinds = [(column.get, _TEXT.get(column.kind)) for column in layout]
        for row in report.rows:
            lines.writerow(
                [value if (value := get(row)) is None or text is None else text(value) for get, text in kinds]
            )
        if report.failure:
            lines.writerow([_last(column, report.failure) for column in layout])


def _last(column: Column, failure: str) -> str:
    return {"status": "partial", "reason": f"the run ended early: {failure}"}.get(column.key, "")


def _index(value: Any) -> str:
    return str(list(value))


def _flag(value: bool) -> str:
    return "yes" if value else "no"


_TEXT = {"index": _index, "flag": _flag}
