"""Text that may stand in a page: between tags, and between quotes in one."""

from __future__ import annotations

import html

from ....safety.visible import visible

__all__ = ["escaped"]


def escaped(text: str) -> str:
    """What every text goes through that is written into the page: no markup, nothing that hides or turns around."""
    return html.escape(visible(text, keep="\n\t"))
