"""The C libraries beside their sources: which version of the sources lies here, and whether a library is of it.

The build hook asks too, where nothing is installed: this imports the standard library only.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["fingerprint_sources", "load"]


def fingerprint_sources(folder: Path, sources: Sequence[str]) -> str:
    """Return a fingerprint that is the same for the same sources, whatever their line ends."""
    digest = hashlib.sha256()
    for name in sources:
        digest.update((folder / name).read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:16]


def load(library: Path, sources: Sequence[str]) -> tuple[Any, str]:
    """Return the library of these sources, or None, and why, where it is missing, does not load or is of others."""
    if not library.exists():
        return None, "is not compiled; install the wheel of this platform, or reinstall where a C compiler is on PATH"
    try:
        found = ctypes.CDLL(str(library))
        found.pd_source.restype = ctypes.c_char_p
        built_from = found.pd_source().decode()
    except (OSError, AttributeError) as error:
        return None, f"does not load ({error}); reinstall to rebuild it"
    if built_from != fingerprint_sources(library.parent, sources):
        return None, "belongs to other sources; reinstall to rebuild it"
    return found, ""
