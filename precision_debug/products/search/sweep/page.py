"""A sweep as one self-contained page, in the report's colours: the sentence, the plot, the table."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from ....reasons import Text
from ....report.formats.html.text import both_languages, escape_html, make_small_page
from .plot import draw_svg
from .result import Mode, Sweep, find_pareto_front
from .sentences import cell_text, list_sentences, tone_of
from .table import Head, Line, list_heads, list_lines

__all__ = ["write_page"]

_STYLE = """
#sweep td, #sweep th { white-space: nowrap; padding-right: 16px; }
#sweep td.reason { white-space: normal; min-width: 16rem; }
#sweep td:first-child, #sweep th:first-child { position: sticky; left: 0; background: var(--card); }
#sweep .ratio, #sweep .refused td { color: var(--soft); }
#sweep .best td:first-child { font-weight: 600; color: var(--green); }
#plotted svg { width: 100%; max-width: 860px; display: block; }
@media print {
  @page { size: landscape; }
  #sweep { font-size: 8px; } #sweep td, #sweep th { padding-right: 5px; white-space: normal; }
}
"""
_COLOURS = {
    "#ffffff": "card", "#e3e7ee": "line", "#5b6576": "soft", "#1c2430": "ink", "#0a7d5a": "green", "#8a93a5": "grey",
    "#d92d20": "red",
}  # fmt: skip
"""The picture's own colours, and the page's in their place, which are others in the dark."""


def write_page(sweep: Sweep, path: Path, language: str = "") -> None:
    """No script, font or picture from elsewhere. language: "en" or "zh"; "": what the reader's browser prefers."""
    model = next((mode.model for mode in sweep.modes if mode.model), "")
    drawn = _colour_drawing(draw_svg(sweep))
    machine = "".join(f"<p>{escape_html(f'{key}: {value}')}</p>" for key, value in sweep.machine.items())
    body = (
        (f'<section class="card" id="plotted">{drawn}</section>' if drawn else "")
        + f'<section class="card"><h2>{both_languages(Text("Every mode", "全部模式"))}</h2><div'
        f' class="wide">{_make_table(sweep)}'
        f'</div></section><details'
        f' class="card"><summary>{both_languages(Text("Command and machine", "命令与机器"))}</summary>'
        f"<p><code>{escape_html(sweep.command)}</code></p>{machine}</details>"
    )
    chip = Text("Sweep", "模式扫描")
    page = make_small_page(chip, model, list_sentences(sweep), tone_of(sweep), body, style=_STYLE, language=language)
    path.write_text(page, encoding="utf-8")


def _make_table(sweep: Sweep) -> str:
    found = list_lines(sweep)
    columns = [head for head in list_heads(sweep) if any(line.get(head.key) not in (None, "") for line in found)]
    best = {mode.name for mode in find_pareto_front(sweep.modes)}
    top = "".join(
        f'<th class="{_kind_of(head)}">{both_languages(Text(head.title, head.title_zh))}</th>' for head in columns
    )
    body = []
    for line in found:
        mode = sweep.mode(line["mode"])
        kind = "best" if line["mode"] in best else "refused" if line.get("reason") else ""
        cells = "".join(f'<td class="{_kind_of(head)}">{_make_cell(head, line, mode)}</td>' for head in columns)
        body.append(f'<tr class="{kind}">{cells}</tr>')
    return f'<table class="list" id="sweep"><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def _kind_of(head: Head) -> str:
    if head.key == "reason":
        return "reason"
    return "" if head.kind == "text" else f"right {head.kind}"


def _make_cell(head: Head, line: Line, mode: Mode | None) -> str:
    text = both_languages(cell_text(head, line, mode))
    if head.key == "mode" and mode is not None and mode.report:  # its own report, which stands beside the .json
        return f'<a href="{quote(os.fsencode(str(PurePosixPath(mode.report).with_suffix(".html"))))}">{text}</a>'
    return text


def _colour_drawing(drawn: str) -> str:
    for colour, name in _COLOURS.items():
        drawn = drawn.replace(f'"{colour}"', f'"var(--{name})"')
    return re.sub(r">([^<>]*) · ([^<>]*)<", r'><tspan class="en">\1</tspan><tspan class="zh">\2</tspan><', drawn)
