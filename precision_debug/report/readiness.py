"""What a report needs is imported while the run is on, which is waited for anyway."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterable
from pathlib import Path

from .formats import format_of

__all__ = ["make_ready"]


def make_ready(paths: Iterable[Path], *more: str) -> None:
    """Import in a thread what ``write`` will need for these paths, and further modules.

    What goes wrong shows when it is needed."""

    def load() -> None:
        for name in sorted({path.suffix.lower()[1:] for path in paths}):
            with contextlib.suppress(Exception):
                format_of(name)
        for module in (f"{__package__}.from_journal", *more):
            with contextlib.suppress(Exception):
                importlib.import_module(module)

    threading.Thread(target=load, name="make_ready").start()
