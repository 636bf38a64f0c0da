"""A report in a notebook's cell: the sentences, then the rows out of tolerance, or those with the largest errors."""

from __future__ import annotations

from html import escape

from ....records import Row, Status
from ....safety.untrusted import make_visible
from ...layout import Column, list_columns
from ...model import Report, Verdict
from ...summary import VERDICT_NAME, name_status, summarise
from ...words import format_figure

__all__ = ["ROWS", "as_html"]

ROWS = 10
"""Rows that are shown; the page (``report.save("r.html")``) has all."""

_COLOURS = {"good": "#12805C", "bad": "#B42318", "warn": "#B7791F"}
_KEYS = ("op_type", "name", "status", "relative_l2", "introduced_rel_l2", "max_abs", "mismatched_elements", "reason")


def as_html(report: Report) -> str:
    """Return a report as one HTML element for a notebook.

    It has styles of its own, so that it looks alike in every notebook and follows a dark theme's colours. All text from
    the model is escaped."""
    content = summarise(report)
    names = VERDICT_NAME[report.verdict]
    about = f"{report.target.mode} against {report.baseline.mode}, {report.spec.model.path or report.target.model}"
    lead = "".join(f"<p style='margin:4px 0'>{_make_text(sentence.en)}</p>" for sentence in content.lead)
    chosen = _choose_rows(report)
    total = len(report.rows)
    said = f"{len(chosen)} of {total} tensors, the worst first" if len(chosen) < total else f"{total} tensors"
    rows = "".join(_make_line(report, row, _choose_columns(report)) for row in chosen)
    head = "".join(
        f"<th style='text-align:left;padding:2px 8px'>{_make_text(one.title)}</th>" for one in _choose_columns(report)
    )
    return (
        f"<div style='border-left:4px solid {_COLOURS[content.tone]};padding:2px 12px'>"
        f"<strong style='color:{_COLOURS[content.tone]}'>{_make_text(names.en)}</strong> {_make_text(about)}{lead}"
        f"<table style='border-collapse:collapse;font-size:90%'><caption style='text-align:left'>{said}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _choose_rows(report: Report) -> list[Row]:
    """Return those out of tolerance in execution order, since the first one is where to look; else the largest
    errors."""
    failed = [row for row in report.rows if row.status is Status.FAIL]
    if failed and report.verdict is not Verdict.EXPECTED:
        return failed[:ROWS]
    compared = [row for row in report.rows if row.relative_l2 is not None]
    return sorted(compared, key=lambda row: -(row.relative_l2 or 0.0))[:ROWS]


def _choose_columns(report: Report) -> list[Column]:
    own = {column.key: column for column in list_columns(report)}
    return [own[key] for key in _KEYS if key in own]


def _make_line(report: Report, row: Row, shown: list[Column]) -> str:
    return f"<tr>{''.join(_make_cell(report, row, column) for column in shown)}</tr>"


def _make_cell(report: Report, row: Row, column: Column) -> str:
    value = name_status(report, row.status).en if column.key == "status" else column.get(row)
    if isinstance(value, float):
        value = format_figure(value)
    right = "right" if column.kind in ("float", "int", "share") else "left"
    return f"<td style='text-align:{right};padding:2px 8px'>{_make_text('' if value is None else str(value))}</td>"


def _make_text(text: str) -> str:
    return escape(make_visible(text))
