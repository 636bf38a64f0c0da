"""Names that a package offers and that are imported when they are first asked for (PEP 562).

``from .numbers.judge import judge`` runs ``numbers/__init__.py`` first: what that imported would be paid for by every
command, ``--help`` among them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

__all__ = ["make_lazy_exports"]


def make_lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's ``__getattr__``. homes: each module of it, and the names that it has, separated by blanks."""
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f".{home_of[name]}", package), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
