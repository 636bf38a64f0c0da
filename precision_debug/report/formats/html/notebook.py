"""A report in a notebook's cell: the sentences, then the rows out of tolerance, or those with the largest errors."""

from __future__ import annotations

from html import escape

from ....records import Row, Status
from ....safety.untrusted import visible
from ...layout import Column, columns
from ...model import Report, Verdict
from ...summary import VERDICT_NAME, status_name, summary
from ...words import figure

__all__ = ["ROWS", "as_html"]

ROWS = 10
"""Rows that are shown; the page (``report.save("r.html")``) has all."""

_COLOURS = {"good": "#12805C", "bad": "#B42318", "warn": "#B7791F"}
_KEYS = ("op_type", "name", "status", "relative_l2", "introduced_rel_l2", "max_abs", "mismatched_elements", "reason")


def as_html(report: Report) -> str:
    """Return a report as one HTML element for a notebook.

    It has styles of its own, so that it looks alike in every notebook and follows a dark theme's colours. All text from
    the model is escaped."""
    content = summary(report)
    names = VERDICT_NAME[report.verdict]
    about = f"{report.target.mode} against {report.baseline.mode}, {report.spec.model.path or report.target.model}"
    lead = "".join(f"<p style='margin:4px 0'>{_text(sentence.en)}</p>" for sentence in content.lead)
    chosen = _worst(report)
    total = len(report.rows)
    said = f"{len(chosen)} of {total} tensors, the worst first" if len(chosen) < total else f"{total} tensors"
    rows = "".join(_line(report, row, _shown(report)) for row in chosen)
    head = "".join(f"<th style='text-align:left;padding:2px 8px'>{_text(one.title)}</th>" for one in _shown(report))
    return (
        f"<div style='border-left:4px solid {_COLOURS[content.tone]};padding:2px 12px'>"
        f"<strong style='color:{_COLOURS[content.tone]}'>{_text(names.en)}</strong> {_text(about)}{lead}"
        f"<table style='border-collapse:collapse;font-size:90%'><caption style='text-align:left'>{said}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _worst(report: Report) -> list[Row]:
    """Return those out of tolerance in execution order, since the first one is where to look; else the largest
    errors."""
    failed = [row for row in report.rows if row.status is Status.FAIL]
    if failed and report.verdict is not Verdict.EXPECTED:
        return failed[:ROWS]
    compared = [row for row in report.rows if row.relative_l2 is not None]
    return sorted(compared, key=lambda row: -(row.relative_l2 or 0.0))[:ROWS]


def _shown(report: Report) -> list[Column]:
    own = {column.key: column for column in columns(report)}
    return [own[key] for key in _KEYS if key in own]


def _line(report: Report, row: Row, shown: list[Column]) -> str:
    return f"<tr>{''.join(_cell(report, row, column) for column in shown)}</tr>"


def _cell(report: Report, row: Row, column: Column) -> str:
    value = status_name(report, row.status).en if column.key == "status" else column.get(row)
    if isinstance(value, float):
        value = figure(value)
    right = "right" if column.kind in ("float", "int", "share") else "left"
    return f"<td style='text-align:{right};padding:2px 8px'>{_text('' if value is None else str(value))}</td>"


def _text(text: str) -> str:
    return escape(visible(text))
