"""A sweep as one self-contained page, in the report's colours: the sentence, the plot, the table."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from ...report.formats.html.text import escaped
from ...report.words import Text
from .plot import svg
from .result import Mode, Sweep, front
from .sentences import sentences, told, tone
from .table import Head, Line, heads, lines

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
_SCRIPT = """
const root = document.documentElement, by = (id) => document.getElementById(id);
const speak = (language) => { root.dataset.language = root.lang = language; };
const asked = root.dataset.asked || navigator.language || "en";
speak(asked.startsWith("zh") ? "zh" : "en");
root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
by("language").onclick = () => speak(root.lang === "zh" ? "en" : "zh");
by("theme").onclick = () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; };
let screen_ = "";
window.addEventListener("beforeprint", () => { screen_ = root.dataset.theme; root.dataset.theme = "light"; });
window.addEventListener("afterprint", () => { root.dataset.theme = screen_; });
root.dataset.ready = "yes";
"""
_COLOURS = {
    "#ffffff": "card", "#e3e7ee": "line", "#5b6576": "soft", "#1c2430": "ink", "#0a7d5a": "green", "#8a93a5": "grey",
}  # fmt: skip
"""The picture's own colours, and the page's in their place, which are others in the dark."""


def write_page(sweep: Sweep, path: Path, language: str = "") -> None:
    """No script, font or picture from elsewhere. language: "en" or "zh"; "": what the reader's browser prefers."""
    first, *more = sentences(sweep)
    model = next((mode.model for mode in sweep.modes if mode.model), "")
    drawn = _coloured(svg(sweep))
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )
    style = files("precision_debug.report.formats.html").joinpath("page.css").read_text(encoding="utf-8")
    said = "".join(f"<p>{_said(text)}</p>" for text in more)
    path.write_text(
        f'<!doctype html>\n<html lang="{language or "en"}" data-language="{language or "en"}" data-asked="{language}">'
        f'<head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(f'Sweep: {model}')}</title><style>{style}{_STYLE}</style></head><body>"
        '<nav aria-label="precision_debug"><span class="brand">precision_debug sweep</span>'
        '<button id="language" type="button" title="English / 中文"><span class="en" lang="zh">中文</span>'
        '<span class="zh" lang="en">English</span></button>'
        '<button id="theme" type="button" title="light or dark / 浅色或深色">◐</button></nav><main>'
        f'<header class="verdict {tone(sweep)}" id="answer"><p class="about"><strong>'
        f"{_both(Text('Sweep', '模式扫描'))}</strong> {escaped(model)}</p><h1>{_said(first)}</h1></header>"
        f'<div class="details">{said}</div>'
        + (f'<section class="card" id="plotted">{drawn}</section>' if drawn else "")
        + f'<section class="card"><h2>{_both(Text("Every mode", "全部模式"))}</h2><div class="wide">{_table(sweep)}'
        f'</div></section><details class="card"><summary>{_both(Text("Command and machine", "命令与机器"))}</summary>'
        f"<p><code>{escaped(sweep.command)}</code></p>"
        + "".join(f"<p>{escaped(f'{key}: {value}')}</p>" for key, value in sweep.machine.items())
        + f"</details></main><script>{_SCRIPT}</script></body></html>\n",
        encoding="utf-8",
    )


def _table(sweep: Sweep) -> str:
    found = lines(sweep)
    columns = [head for head in heads(sweep) if any(line.get(head.key) not in (None, "") for line in found)]
    best = {mode.name for mode in front(sweep.modes)}
    top = "".join(
        f'<th class="{_kind(head)}">{_both(Text(head.title, head.title_zh))}</th>' for head in columns
    )
    body = []
    for line in found:
        mode = sweep.mode(line["mode"])
        kind = "best" if line["mode"] in best else "refused" if line.get("reason") else ""
        cells = "".join(f'<td class="{_kind(head)}">{_cell(head, line, mode)}</td>' for head in columns)
        body.append(f'<tr class="{kind}">{cells}</tr>')
    return f'<table class="list" id="sweep"><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def _kind(head: Head) -> str:
    if head.key == "reason":
        return "reason"
    return "" if head.kind == "text" else f"right {head.kind}"


def _cell(head: Head, line: Line, mode: Mode | None) -> str:
    text = _both(told(head, line, mode))
    if head.key == "mode" and mode is not None and mode.report:  # its own report, which stands beside the .json
        return f'<a href="{quote(str(PurePosixPath(mode.report).with_suffix(".html")))}">{text}</a>'
    return text


def _coloured(drawn: str) -> str:
    for colour, name in _COLOURS.items():
        drawn = drawn.replace(f'"{colour}"', f'"var(--{name})"')
    return re.sub(r">([^<>]*) · ([^<>]*)<", r'><tspan class="en">\1</tspan><tspan class="zh">\2</tspan><', drawn)


def _both(text: Text) -> str:
    if text.en == text.zh:
        return escaped(text.en)
    return f'<span class="en">{escaped(text.en)}</span><span class="zh" lang="zh">{escaped(text.zh)}</span>'


def _said(text: Text) -> str:
    return re.sub("`([^`<>]+)`", r"<code>\1</code>", _both(text))
