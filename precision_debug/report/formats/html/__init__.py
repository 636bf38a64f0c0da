"""The report as one self-contained page: the sentence, the error along execution order, and every tensor's numbers.

The table is Tabulator's, the plot uPlot's and the graph's layout dagre's: all three are in the page, which asks nothing
of a network and says so in its own Content-Security-Policy.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from ....safety.untrusted import make_visible
from ...blame import named_culprits
from ...model import Report
from ...summary import summarise
from .blocks import ABOVE, FOUND, IN_ANSWER, UNEXPLAINED, make_answer, make_block, make_budget, make_folded_block
from .data import iterate_json
from .notebook import as_html
from .text import escape_html

__all__ = ["LANGUAGES", "as_html", "write"]

LANGUAGES = ("en", "zh")
"""What ``write`` can be told to open the page in."""

_LIBRARIES = ("tabulator.min.js", "uPlot.iife.min.js", "dagre.min.js")
_STYLES = ("tabulator.min.css", "uPlot.min.css")
_PARTS = ("words", "table", "plot", "graph", "detail", "tokens", "main")


def write(report: Report, path: Path, *, language: str = "") -> None:
    """No script, font or picture from elsewhere. Numbers to seven digits; .json and .csv have all of them.

    language: "en" or "zh", which the page opens in; "": what the reader's browser prefers.
    """
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for part in _fill_template(template, report, language):
            file.write(part)


def _fill_template(template: str, report: Report, language: str) -> Iterator[str]:
    content = summarise(report)
    places = {row.index: place for place, row in enumerate(report.rows)}
    model = report.spec.model.path or report.target.model
    above = ABOVE if named_culprits(report) else (*ABOVE, *UNEXPLAINED)
    found = "".join(make_block(section, places) for section in content.sections if section.key in FOUND)
    script = _read_script()
    digest = base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode()
    blocks = {
        "asked": language,
        "lang": language or "en",
        "policy": f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'",
        "title": escape_html(f"{content.headline.en}: {model} {report.target.mode}"),
        "style": _read_style(),
        "script": script,
        "answer": make_answer(report, content, places),
        "found": f'<div class="cards">{found}</div>' if found else "",
        "budget": make_budget(report, places),
        "above": "".join(make_block(section, places) for section in content.sections if section.key in above),
        "below": "".join(
            make_folded_block(section, places)
            for section in content.sections
            if section.key not in (*above, *IN_ANSWER, *FOUND)
        ),
    }
    for number, piece in enumerate(template.split("{{")):
        if number == 0:
            yield piece
            continue
        name, _, rest = piece.partition("}}")
        if name == "data":
            yield from iterate_json(report)
        else:
            yield blocks[name]
        yield rest


@cache
def _read_script() -> str:
    """Return the libraries as they are, but for characters that nobody sees, and then our own parts in one scope."""
    own = "\n".join(_read("script", f"{name}.js") for name in _PARTS)
    libraries = "\n".join(_strip_source_map(_read("vendor", name)) for name in _LIBRARIES)
    return f'{libraries}\n(() => {{\n"use strict";\n{own}}})();'


@cache
def _read_style() -> str:
    return "\n".join([*(_strip_source_map(_read("vendor", name)) for name in _STYLES), _read("page.css")])


def _read(*path: str) -> str:
    return files(__package__).joinpath(*path).read_text(encoding="utf-8")


def _strip_source_map(text: str) -> str:
    """Remove the remark that names a source map, which a browser would look for.

    Control characters stand in its strings only, where ``visible`` writes what JavaScript reads as the same."""
    return make_visible(re.sub(r"\s*(//|/\*)# sourceMappingURL=.*\s*$", "", text), keep="\n\t")
