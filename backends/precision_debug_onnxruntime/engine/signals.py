"""Holds signals back while ONNX Runtime is between two hooks.

A Python signal handler runs at the next Python instruction of the main thread. During a run that is inside
onnxruntime-extensions' wrapper around a tap, where an exception (KeyboardInterrupt, say) ends the process. So a signal
that comes there is kept, the run is told to stop, and the handler is called once the run is over.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Interrupts"]

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """options: the run's onnxruntime.RunOptions; a signal that is kept makes ONNX Runtime give up at the next node."""

    def __init__(self, options: Any) -> None:
        self._options = options
        self._inside = False
        self._kept: list[tuple[int, Any]] = []
        self._handlers: dict[int, Callable[[int, Any], Any]] = {}

    @contextmanager
    def around_run(self) -> Iterator[None]:
        """Keep signals that come inside; their handlers are called at the end, in place of what the run raised."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self.deliver()

    @contextmanager
    def inside_hook(self) -> Iterator[None]:
        """Inside, exceptions are caught by the caller, so signals are handled as ever; kept ones first."""
        self._inside = True
        try:
            self.deliver()
            yield
        finally:
            self._inside = False

    def deliver(self) -> None:
        """Call the handlers of kept signals; they may raise."""
        while self._kept:
            number, frame = self._kept.pop(0)
            self._handlers[number](number, frame)

    def _receive(self, number: int, frame: Any) -> None:
        if self._inside:
            self._handlers[number](number, frame)
        else:
            self._kept.append((number, frame))
            self._options.terminate = True
