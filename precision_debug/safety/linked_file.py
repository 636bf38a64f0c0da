"""Whether a report may lead its reader to a file: reports come from elsewhere too, and a link is followed unread."""

from __future__ import annotations

import re

from .visible import visible

__all__ = ["linked_file"]

_ELSEWHERE = re.compile(r"[/\\]|[A-Za-z][A-Za-z0-9+.-]*:")
"""How an address, a path from the root, or a share of another machine begins."""


def linked_file(name: str) -> str:
    """Return a path relative to the report as it is; "" of anything else, which is then shown as text alone."""
    return "" if _ELSEWHERE.match(name) or visible(name) != name or "#" in name else name
