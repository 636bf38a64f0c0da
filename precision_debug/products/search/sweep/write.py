"""The files of a sweep: .json, .md, .html and .xlsx, by suffix; the picture lies beside a .md as .svg. And its text."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ....codec import encode, json_text
from ....errors import UsageError
from ....reasons import Text, say
from ....report.atomic_file import replace_atomically
from ....report.formats.md import escape_text, inline_code
from ....report.words import measure_text_width
from .book import write_book
from .page import write_page
from .plot import draw_svg
from .result import Sweep, find_pareto_front
from .sentences import cell_text, list_sentences
from .table import Head, list_heads, list_lines

__all__ = ["SUFFIXES", "as_table", "as_text", "write"]

_DECIDING = ("mode", "verdict", "rel_l2", "median", "median ratio", "score", "culprit", "size", "build", "p99")
"""Columns in the order in which a narrow terminal has room for them."""


def write(sweep: Sweep, path: Path, *, language: str = "") -> None:
    """Write one file. language: of a page and of Markdown, "en" or "zh"; "": the reader's browser's, and English.

    Raises UsageError for an unknown suffix, and OutputError.
    """
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        what = say("no_sweep_format", ending=path.suffix)
        raise UsageError(what, where=str(path), hint=say("known", known=" ".join(SUFFIXES)))
    with replace_atomically(path) as temporary:
        writer(sweep, temporary, path.stem, language)
    if path.suffix.lower() == ".md" and (drawn := draw_svg(sweep)):
        with replace_atomically(path.with_suffix(".svg")) as temporary:
            temporary.write_text(drawn, encoding="utf-8")


def as_text(sweep: Sweep, language: str = "en") -> list[str]:
    """Return the sentences."""
    return [text.of(language).replace("`", "") for text in list_sentences(sweep)]


def as_table(sweep: Sweep, language: str = "en", width: int = 0) -> list[str]:
    """Return the table for a terminal, aligned: columns that hold something, those that decide where not all have room.

    width: characters of a line; 0: no end.
    """
    found = list_lines(sweep)
    columns = [
        head for head in list_heads(sweep)
        if head.key != "reason" and any(line.get(head.key) not in (None, "") for line in found)
    ]  # fmt: skip
    cells = {
        head.key: [
            Text(head.title, head.title_zh).of(language),
            *(cell_text(head, line, sweep.mode(line["mode"])).of(language) for line in found),
        ]
        for head in columns
    }
    widths = {key: max(map(measure_text_width, column)) for key, column in cells.items()}
    columns = _choose_fitting_columns(columns, widths, width) if width else columns
    return [
        "  ".join(_align_cell(cells[head.key][place], widths[head.key], head) for head in columns).rstrip()
        for place in range(len(found) + 1)
    ]


def _choose_fitting_columns(columns: Sequence[Head], widths: dict[str, int], width: int) -> list[Head]:
    left, kept = width, set[str]()
    for wanted in _DECIDING:
        for head in columns:
            own = head.key == wanted or (wanted == "score" and head.key.startswith("score ") and head.kind != "ratio")
            if own and widths[head.key] + 2 * bool(kept) <= left:
                left -= widths[head.key] + 2 * bool(kept)
                kept.add(head.key)
    return [head for head in columns if head.key in kept]


def _align_cell(cell: str, width: int, head: Head) -> str:
    space = " " * (width - measure_text_width(cell))
    return cell + space if head.kind == "text" else space + cell


def _write_json(sweep: Sweep, path: Path) -> None:
    told_: dict[str, Any] = {**encode(sweep), "front": [mode.name for mode in find_pareto_front(sweep.modes)]}
    told_["sentences"] = [text.en for text in list_sentences(sweep)]
    told_["table"] = [{key: encode(value) for key, value in line.items()} for line in list_lines(sweep)]
    path.write_text(json_text(told_, indent=1) + "\n", encoding="utf-8")


def _write_markdown(sweep: Sweep, path: Path, stem: str, language: str) -> None:
    found = list_lines(sweep)
    columns = [head for head in list_heads(sweep) if any(line.get(head.key) not in (None, "") for line in found)]
    first, *more = (escape_text(text) for text in as_text(sweep, language))
    text = ["# Sweep" if language != "zh" else "# 模式扫描", "", f"**{first}**", ""]
    text += [f"- {sentence}" for sentence in more]
    text += [""] * bool(more)
    text.append("| " + " | ".join(escape_text(Text(head.title, head.title_zh).of(language)) for head in columns) + " |")
    text.append("|" + "|".join("---" if head.kind == "text" else "---:" for head in columns) + "|")
    for line in found:
        mode = sweep.mode(line["mode"])
        text.append("| " + " | ".join(escape_text(cell_text(head, line, mode).of(language)) for head in columns) + " |")
    text += ["", f"![error against latency]({quote(os.fsencode(stem))}.svg)"] if draw_svg(sweep) else []
    text += ["", inline_code(sweep.command)] if sweep.command else []
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


_WRITERS: dict[str, Callable[[Sweep, Path, str, str], None]] = {
    ".json": lambda sweep, path, _stem, _language: _write_json(sweep, path),
    ".md": _write_markdown,
    ".html": lambda sweep, path, _stem, language: write_page(sweep, path, language),
    ".xlsx": lambda sweep, path, _stem, _language: write_book(sweep, path),
}
SUFFIXES = tuple(_WRITERS)
