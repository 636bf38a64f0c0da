"""Timing caches: with one, a second build chooses the tactics of the first."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendError, OutputError

__all__ = ["BUILDING", "TimingCache"]


BUILDING = threading.Lock()
"""Held while an engine is built: kernels are timed then, and a second build would disturb that."""

_of_this_process: list[Any] = []


class TimingCache:
    """The measurements of all builds in this process, or of a file where one is named.

    path: read before the first build where it exists, written after each one; "" keeps them in memory only. The
    cache itself goes from build to build, so that only a file is ever read back from bytes. anew: begin with no
    measurement, and leave none: of an engine that is to be what another build might be.
    """

    def __init__(self, path: str = "", *, anew: bool = False) -> None:
        self.path, self._anew = "" if anew else path, anew
        self._cache: Any = None
        self._data = _read(Path(self.path)) if self.path and Path(self.path).exists() else b""

    @property
    def loaded(self) -> int:
        """Bytes that were read from the file."""
        return len(self._data)

    def attach(self, config: Any) -> None:
        """Give a builder configuration what is known so far. Raises BackendError where TensorRT does not take it."""
        if not self.path and not self._anew and _of_this_process:
            self._cache = _of_this_process[-1]
        if self._cache is None:
            self._cache = config.create_timing_cache(self._data)
        if self._cache is None or not config.set_timing_cache(self._cache, False):
            raise BackendError(
                "TensorRT does not take this timing cache: another version or another GPU made it", where=self.path,
                hint="delete it, or name another file",
            )  # fmt: skip

    def collect(self, config: Any) -> None:
        """Keep what a finished build measured. Raises OutputError."""
        cache = config.get_timing_cache()
        if self._anew:
            return
        if not self.path:
            _of_this_process[:] = [self._cache]
        elif cache is not None:
            _write(Path(self.path), bytes(cache.serialize()))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BackendError(f"the timing cache cannot be read: {error.strerror}", where=str(path)) from error


def _write(path: Path, data: bytes) -> None:
    """Replace the file in one step, so that another process never reads half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError as error:
        raise OutputError(f"the timing cache cannot be written: {error.strerror}", where=str(path)) from error
