"""Write pages without a table that sorts: text that may stand in one, and the page around it."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from importlib.resources import files

from ....reasons import Text
from ....safety.untrusted import make_visible

__all__ = ["both_languages", "escape_html", "format_sentence", "make_small_page"]


# Text that may stand in a page: between tags, and between quotes in one.

def escape_html(text: str) -> str:
    """Return what every text goes through that is written into the page: no markup, nothing that hides or turns
    around."""
    return html.escape(make_visible(text, keep="\n\t"))


def both_languages(text: Text) -> str:
    """Return both languages; the page shows one."""
    if text.en == text.zh:
        return escape_html(text.en)
    return f'<span class="en">{escape_html(text.en)}</span><span class="zh" lang="zh">{escape_html(text.zh)}</span>'


def format_sentence(text: Text) -> str:
    """Return a sentence in which names stand between backticks."""
    return re.sub("`([^`<>]+)`", r"<code>\1</code>", both_languages(text))


# A self-contained page without a table that sorts: a sweep's, a difference's; in the report's colours.

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


def make_small_page(
    chip: Text, about: str, sentences: Sequence[Text], tone: str, body: str, *, style: str = "", language: str = ""
) -> str:
    """Return the whole page. chip, about, sentences, tone: its banner, whose first sentence stands out. body: markup.

    language: "en" or "zh", which it opens in; "": what the reader's browser prefers.
    """
    first, *more = sentences
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )
    own = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    rest = "".join(f"<p>{format_sentence(text)}</p>" for text in more)
    rest = f'<div class="details">{rest}</div>' if rest else ""
    return (
        f'<!doctype html>\n<html lang="{language or "en"}" data-language="{language or "en"}" data-asked="{language}">'
        '<head><meta charset="utf-8"><meta name="generator" content="precision_debug">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape_html(f'{chip.en}: {about}')}</title><style>{own}{style}</style></head><body>"
        '<nav aria-label="precision_debug"><span class="brand">precision_debug</span>'
        '<button id="language" type="button" title="English / 中文"><span class="en" lang="zh">中文</span>'
        '<span class="zh" lang="en">English</span></button>'
        '<button id="theme" type="button" title="light or dark / 浅色或深色">◐</button></nav><main>'
        f'<header class="verdict {tone}" id="answer"><p class="about"><strong>{both_languages(chip)}</strong>'
        f' {escape_html(about)}'
        f"</p><h1>{format_sentence(first)}</h1></header>{rest}{body}</main><script>{_SCRIPT}</script></body></html>\n"
    )
