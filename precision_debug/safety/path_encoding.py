"""Paths that no framework can be told of: their names are in another encoding than UTF-8 (GBK, Latin-1)."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_utf8"]


def is_utf8(path: str | Path) -> bool:
    """Return whether a path, with the folders above it, is UTF-8, as C++ libraries are given it."""
    try:
        os.path.abspath(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    except OSError:
        return True  # the current folder is gone, which others say
    return True
