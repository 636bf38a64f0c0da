"""Turns a finished ``Report`` into a file, in the format that the file's suffix names."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from ..errors import OutputError
from .atomic_file import replacing
from .model import InputInfo, Report, Side, Verdict

__all__ = ["SUFFIXES", "InputInfo", "Report", "Side", "Verdict", "make_ready", "write"]

_WRITERS = {".xlsx": "excel", ".csv": "csv", ".json": "json", ".html": "html", ".md": "markdown"}

SUFFIXES: tuple[str, ...] = tuple(_WRITERS)
"""The endings that ``write`` knows, with the dot, lower case."""


def make_ready(paths: Iterable[Path]) -> None:
    """Import in a thread what ``write`` will need for these paths; what goes wrong shows when it is needed."""

    def load() -> None:
        for name in sorted({_WRITERS.get(path.suffix.lower(), "") for path in paths} - {""}):
            with contextlib.suppress(Exception):
                import_module(f".{name}", __name__)

    threading.Thread(target=load, name="make_ready").start()


def write(report: Report, path: str | Path, *, scratch: Path | None = None) -> Path:
    """Write ``report`` to ``path`` and return it. The file appears whole or not at all; missing folders are made.

    scratch: an existing folder for what is not finished, in place of the one that the file goes to.

    Raises OutputError where the suffix is unknown or the place cannot be written.
    """
    path = Path(path)
    name = _WRITERS.get(path.suffix.lower())
    if name is None:
        raise OutputError(
            f"no report format has the ending {path.suffix!r}" if path.suffix else "the report's name has no ending",
            where=str(path),
            hint=f"end it in one of {' '.join(SUFFIXES)}",
        )
    writer: Callable[[Report, Path], None] = import_module(f".{name}", __name__).write
    with replacing(path, scratch=scratch) as temporary:
        writer(report, temporary)
    return path
