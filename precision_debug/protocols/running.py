"""What a session's runs share: one at a time, on feeds that are what its engine takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import BackendError

__all__ = ["OneRun"]


class OneRun:
    """Around each run of a session: one at a time, and none once it is closed.

    Engines' requests and interpreters hold their inputs, so a second thread's run would change the first one's.

        with self._one_run:             # raises BackendError where another run goes on, or the session is closed
            ...
        with self._one_run.closing():   # waits for a run that goes on
            ...
    """

    def __init__(self, path: str) -> None:
        """path: of the model, for the error."""
        self._path = path
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise BackendError("this session is running already", where=self._path, hint="open another session")
        if self._closed:
            self._lock.release()
            raise BackendError("this session is closed", where=self._path)

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Around letting go of what a run needs."""
        with self._lock:
            self._closed = True
            yield
