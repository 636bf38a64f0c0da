"""Text that may stand in a page: between tags, and between quotes in one."""

from __future__ import annotations

import html
import re

from ....reasons import Text
from ....safety.visible import visible

__all__ = ["both", "escaped", "said"]


def escaped(text: str) -> str:
    """What every text goes through that is written into the page: no markup, nothing that hides or turns around."""
    return html.escape(visible(text, keep="\n\t"))


def both(text: Text) -> str:
    """Both languages; the page shows one."""
    if text.en == text.zh:
        return escaped(text.en)
    return f'<span class="en">{escaped(text.en)}</span><span class="zh" lang="zh">{escaped(text.zh)}</span>'


def said(text: Text) -> str:
    """A sentence in which names stand between backticks."""
    return re.sub("`([^`<>]+)`", r"<code>\1</code>", both(text))
