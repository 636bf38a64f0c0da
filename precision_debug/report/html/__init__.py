"""The report as one self-contained page: summary, curve, and a table that sorts and filters 20,000 rows and more."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...records import Status
from ...safety.visible import visible
from ..column import Column
from ..curve import curve
from ..layout import columns
from ..model import Report
from ..reasons import explained
from ..section import Cell, Section
from ..summary import STATUS_TEXT, STATUS_TONE, Summary, summary
from ..widths import fitted_width, text_width
from ..words import Text
from .drawing import drawing
from .text import escaped

__all__ = ["write"]

_FIRST_SEEN = (
    "op_type", "name", "shape", "mismatched_elements", "max_abs", "max_rel", "min_val", "max_val", "status", "reason",
    "relative_l2", "introduced_rel_l2", "inherited_rel_l2", "rounding_units", "sqnr_db", "error_growth",
    "mismatched_share",
)  # fmt: skip
"""Columns shown before the reader asks for all; a backend's own ones too."""

_ABOVE = ("culprits", "first", "worst", "outputs", "scores")
"""Sections above the table; the others follow it, folded."""


def write(report: Report, path: Path) -> None:
    """No script, font or picture from elsewhere. Numbers to seven digits; .json and .csv have all of them."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for part in _filled(template, report):
            file.write(part)


def _filled(template: str, report: Report) -> Iterator[str]:
    content = summary(report)
    target, baseline = report.target, report.baseline
    model = report.spec.model.path or target.model
    blocks = {
        "title": escaped(f"{content.headline.en}: {model} {target.mode}"),
        "style": files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        "script": files(__package__).joinpath("page.js").read_text(encoding="utf-8"),
        "banner": _banner(content, f"{model}    {target.mode} vs. {baseline.mode}".strip()),
        "above": "".join(_block(section) for section in content.sections if section.key in _ABOVE),
        "below": "".join(_folded(section) for section in content.sections if section.key not in _ABOVE),
        "curve": drawing(curve(report), report.first_mismatch),
    }
    for number, piece in enumerate(template.split("{{")):
        if number == 0:
            yield piece
            continue
        name, _, rest = piece.partition("}}")
        if name == "data":
            yield from _data(report)
        else:
            yield blocks[name]
        yield rest


def _data(report: Report) -> Iterator[str]:
    """What the script reads: columns, statuses, and the rows as arrays in the columns' order."""
    layout = columns(report)
    head = {
        "columns": [_described(column, report) for column in layout],
        "statuses": [
            {"value": status.value, "tone": STATUS_TONE[status], "count": number, "help": list(STATUS_TEXT[status])}
            for status, number in report.counts.items()
        ],
        "fail": Status.FAIL.value,
    }
    yield _json(head)[:-1]
    yield ', "rows": ['
    encode = [(column.get, _reason if column.key == "reason" else _ENCODE[column.kind]) for column in layout]
    separator = "\n"
    for row in report.rows:
        values = [None if (value := get(row)) is None else convert(value) for get, convert in encode]
        yield separator + _json(values)
        separator = ",\n"
    yield "\n]}"


def _described(column: Column, report: Report) -> dict[str, Any]:
    least = max(text_width(column.title), text_width(column.title_zh)) + 3
    return {
        "key": visible(column.key), "title": [visible(column.title), visible(column.title_zh)],
        "help": [column.help, column.help_zh],
        "kind": column.kind, "style": column.style, "width": fitted_width(column, report.rows, least),
        "first": column.key in _FIRST_SEEN or column.key.startswith("extra."),
    }  # fmt: skip


def _json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _number(value: Any) -> float | str:
    value = float(value)
    return float(f"{value:.7g}") if math.isfinite(value) else str(value)


def _reason(value: str) -> str | list[str]:
    """Both languages where there are two; the page shows one, and looks for words in both."""
    text = explained(visible(value))
    return text.en if text.en == text.zh else list(text)


_ENCODE: dict[str, Any] = {
    "text": lambda value: visible(str(value), keep="\n\t"), "int": int, "float": _number, "share": _number,
    "index": lambda value: str(list(value)), "flag": bool,
}  # fmt: skip


def _both(text: Text) -> str:
    """Both languages; the page shows one."""
    if text.en == text.zh:
        return escaped(text.en)
    return f'<span class="en">{escaped(text.en)}</span><span class="zh" lang="zh">{escaped(text.zh)}</span>'


def _banner(content: Summary, names: str) -> str:
    details = "".join(f"<p>{_both(text)}</p>" for text in content.details)
    return (
        f'<header class="verdict {content.tone}"><h1>{_both(content.headline)}</h1><div>{escaped(names)}</div></header>'
        + (f'<div class="details">{details}</div>' if details else "")
    )


def _block(section: Section) -> str:
    return f'<section class="card" id="{section.key}"><h2>{_both(section.title)}</h2>{_content(section)}</section>'


def _folded(section: Section) -> str:
    opened = " open" if section.key in ("counts", "uncompared") else ""
    title = f"<summary>{_both(section.title)}</summary>"
    return f'<details class="card" id="{section.key}"{opened}>{title}{_content(section)}</details>'


def _content(section: Section) -> str:
    kind = "list" if section.head else "pairs"
    head = "".join(
        f"<th{_right(any(line[number].right for line in section.lines))}>{_both(title)}</th>"
        for number, title in enumerate(section.head)
    )
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in section.lines)
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<div class="wide"><table class="{kind}">{head}{body}</table></div>'


def _right(right: bool) -> str:
    return ' class="right"' if right else ""


def _cell(cell: Cell) -> str:
    text = _both(cell.text)
    if cell.row is not None:
        text = f'<a href="#table" data-row="{cell.row}">{text}</a>'
    elif cell.tone == "code":
        text = f"<code>{text}</code>"
    elif cell.tone:
        text = f'<span class="chip {cell.tone}">{text}</span>'
    return f"<td{_right(cell.right)}>{text}</td>"
