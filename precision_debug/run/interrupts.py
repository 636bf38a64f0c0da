"""Ctrl-C, SIGTERM and SIGHUP while a run is on: asked for, then acted on where nothing can be lost."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

__all__ = ["Stopping", "stopped", "watching"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """asked: whether one of the signals came.

    While something must be finished (``finishing``), the first one only says so, and the second raises
    KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.asked = False
        self._finishing = ""

    def __call__(self, *_: object) -> None:
        if self._finishing and self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._finishing:
            with contextlib.suppress(OSError):
                os.write(2, f"precision_debug: {self._finishing}; once more leaves it\n".encode())

    @contextlib.contextmanager
    def finishing(self, what: str) -> Iterator[None]:
        """While this lasts, the first signal does not end it. what: one line that says what is going on."""
        before, self.asked, self._finishing = self.asked, False, what
        try:
            yield
        finally:
            self.asked, self._finishing = self.asked or before, ""


_now: Stopping | None = None


@contextlib.contextmanager
def watching() -> Iterator[Stopping]:
    """The signals as a flag, except those that are ignored already (nohup), and outside the main thread.

    Inside another one it is the same flag: a verb that runs engines one after the other ends with the one that was
    stopped.
    """
    global _now  # noqa: PLW0603
    if _now is not None and threading.current_thread() is threading.main_thread():
        yield _now
        return
    stopping = Stopping()
    before = {}
    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stopping)
    except ValueError:  # not in the main thread
        yield stopping
        return
    _now = stopping
    try:
        yield stopping
    finally:
        _now = None
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped() -> bool:
    """Whether one of the signals came while ``watching``."""
    return _now is not None and _now.asked
