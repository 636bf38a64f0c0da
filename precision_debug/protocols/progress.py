"""What a session says of itself during a call that takes long: what it is doing now, for whoever waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from ..reasons import Reason

__all__ = ["ProgressReader", "progress_to", "tell"]

_LISTENER: ContextVar[Callable[[Reason], None] | None] = ContextVar("listener", default=None)


def tell(text: Reason) -> None:
    """Say what is done from now on ("building engine 2, with 50 marks"). Where nobody listens, nothing happens."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(text)


@contextmanager
def progress_to(listener: Callable[[Reason], None]) -> Iterator[None]:
    """Send what this thread's sessions tell to the listener."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


class ProgressReader(Protocol):
    """A backend whose engine prints how far it is while a call holds the interpreter, so that ``tell`` cannot."""

    def heard(self, line: str) -> Reason | None:
        """Return what one line that the session's process printed says of that; None: nothing. Reads the line alone."""
