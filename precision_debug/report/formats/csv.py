"""The table as comma-separated values: UTF-8 with a byte-order mark (Excel then reads it right), full precision."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...safety.untrusted import make_visible
from ..doubts import decides, describe_doubt
from ..layout import list_columns
from ..model import Report, Verdict
from ..summary import describe_shares

__all__ = ["write"]


def write(report: Report, path: Path) -> None:
    """One header line of titles, one line a row. None is empty; nan, inf and -inf are those words.

    A report that is partial or inconclusive as a whole has one line more: its Status says so, its Reason says why.
    """
    layout = list_columns(report)
    with path.open("w", encoding="utf-8-sig", errors="backslashreplace", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([_escape_formula(column.title) for column in layout])
        kinds = [(column.get, None if column.key in _FIGURES else _TEXT.get(column.kind)) for column in layout]
        for row in report.rows:
            lines.writerow(
                [value if (value := get(row)) is None or text is None else text(value) for get, text in kinds]
            )
        last = _last_cells(report)
        if last:
            lines.writerow([_escape_formula(last.get(column.key, "")) for column in layout])


def _last_cells(report: Report) -> dict[str, str]:
    verdict = report.verdict
    if verdict is Verdict.PARTIAL:
        return {"status": "partial", "reason": f"the run ended early: {report.failure}"}
    if verdict is not Verdict.INCONCLUSIVE:
        return {}
    said = [describe_doubt(doubt).en for doubt in report.doubts if decides(doubt)]
    return {
        "status": "verdict: inconclusive",
        "reason": " ".join([*said, *([describe_shares(report).en] if report.rows else [])]),
    }


def _escape_formula(text: str) -> str:
    """Return the text that a spreadsheet takes for text. An apostrophe goes before what it would take for a formula.

    Source: OWASP, CSV injection; the wide signs are those of East Asian keyboards.
    """
    text = make_visible(str(text), keep="\n\r\t")
    return f"'{text}" if text.startswith(_FORMULA) else text


def _format_index(value: Any) -> str:
    return str(list(value))


def _format_flag(value: bool) -> str:
    return "yes" if value else "no"


_FIGURES = ("min_val", "max_val")
"""Columns of text that is ours: "-0.5 (-0.6)"."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_TEXT: dict[str, Callable[[Any], str]] = {"text": _escape_formula, "index": _format_index, "flag": _format_flag}
