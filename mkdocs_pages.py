"""The site's pages that are written from tables of the code: settings, columns, reasons. mkdocs.yml names this hook.

In ``docs/`` each is a pointer, for those who read the repository; the build puts the page in its place.
"""

from __future__ import annotations

from typing import Any

from precision_debug.cli.doctor import PAGES


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Give the text of a page: written from the code where it has one there."""
    name, _, language = page.file.src_uri.removesuffix(".md").partition(".")
    return PAGES[name]() if name in PAGES and not language else markdown
