"""What the engine prints while a call of it goes on, as news for those who wait: see ``protocols.ProgressReader``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import registry
from ..events import EngineProgress, written
from ..protocols import ProgressReader

__all__ = ["EngineOutput"]

_EVERY = 0.5  # seconds between two looks
_MOST = 1 << 16  # bytes of one look: only the newest news counts


class EngineOutput:
    """Reads a log that another process writes. tellers: who understands a line; None: the backends that are here."""

    def __init__(self, log: Path, tellers: Sequence[ProgressReader] | None = None) -> None:
        found = [backend.capabilities.teller for backend in registry.backends()] if tellers is None else tellers
        self._tellers = [teller for teller in found if teller is not None]
        self._log = log
        self._place = log.stat().st_size if log.exists() else 0
        self._next = time.monotonic() + _EVERY

    def heard(self) -> Mapping[str, Any] | None:
        """The newest news since the last look, as an event; None: nothing new, or it is too early to look."""
        now = time.monotonic()
        if not self._tellers or now < self._next:
            return None
        self._next = now + _EVERY
        return self.news()

    def news(self) -> Mapping[str, Any] | None:
        """The same at once."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(self._place, self._log.stat().st_size - _MOST))
                text, whole, rest = file.read(_MOST).rpartition(b"\n")
                self._place = file.tell() - len(rest)
        except OSError:
            return None
        for line in reversed(text.decode(errors="replace").splitlines() if whole else ()):
            for teller in self._tellers:
                said = teller.heard(line)
                if said is not None:
                    return written(EngineProgress(text=said))
        return None
