"""Where baseline tensors wait for their partners: in memory up to a budget, on disk beyond it.

Where both sides advance in lockstep nothing waits here. Otherwise a whole baseline may have to wait for the target
to be built, and a large model's may not fit into memory.
"""

from __future__ import annotations

import collections
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OutputError

__all__ = ["Loans", "Store"]


_AT_ONCE = 1 << 22
"""Bytes that are brought into order at a time, to be written."""


class Store:
    """Owns a copy of every array put into it, by key, in the order of arrival.

    memory_budget: bytes to hold in memory; None: no limit. What comes over it is written as raw bytes into a private
    folder under ``folder`` (default: the system's temporary folder) and memory-mapped when it is asked for again.
    The folder goes with ``close``. Safe to use from several threads.
    """

    def __init__(self, *, memory_budget: int | None = None, folder: str | Path | None = None) -> None:
        self._budget = memory_budget
        self._parent = folder
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self._arrays: dict[str, np.ndarray[Any, Any] | _Spilled] = {}
        self._held = 0
        self._files = 0
        self.spilled_bytes = 0

    def put(self, key: str, array: np.ndarray[Any, Any]) -> None:
        """Copy an array in. The key must be new. Raises OutputError where the disk is full."""
        with self._lock:
            if key in self._arrays:
                raise KeyError(key)
            fits = self._budget is None or self._held + array.nbytes <= self._budget
            if fits or array.dtype.hasobject or array.nbytes == 0:
                self._arrays[key] = np.array(array, copy=True, order="C")
                self._held += array.nbytes
            else:
                self._arrays[key] = self._spill(array)

    def get(self, key: str) -> np.ndarray[Any, Any] | None:
        """Return the array of a key, None where there is none; a spilled one comes memory-mapped, read-only."""
        with self._lock:
            held = self._arrays.get(key)
        return held.open() if isinstance(held, _Spilled) else held

    def drop(self, key: str) -> None:
        """Forget a key and free what it held. An unknown key is ignored."""
        with self._lock:
            held = self._arrays.pop(key, None)
            if isinstance(held, _Spilled):
                held.path.unlink(missing_ok=True)
            elif held is not None:
                self._held -= held.nbytes

    def __contains__(self, key: object) -> bool:
        return key in self._arrays

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._arrays))

    def close(self) -> None:
        """Forget everything and remove the files."""
        with self._lock:
            self._arrays.clear()
            self._held = 0
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _spill(self, array: np.ndarray[Any, Any]) -> _Spilled:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="precision_debug-", dir=self._parent))
        self._files += 1
        path = self._folder / f"{self._files:06d}.raw"
        try:
            with path.open("wb") as file:
                rows = np.atleast_1d(array)
                some = max(1, _AT_ONCE * len(rows) // array.nbytes)
                for first in range(0, len(rows), some):  # a view in another order is not copied whole
                    part = np.ascontiguousarray(rows[first : first + some])
                    file.write(part.view(np.uint8).reshape(-1).data)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OutputError(
                f"cannot keep a baseline tensor of {array.nbytes / 1e6:.0f} MB on disk: {error.strerror}",
                where=str(self._folder),
                hint="free space there, set TMPDIR to a larger disk, raise --memory_budget, or mark fewer tensors",
            ) from error
        self.spilled_bytes += array.nbytes
        return _Spilled(path, array.dtype, array.shape)


class _Spilled:
    __slots__ = ("dtype", "path", "shape")

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.shape = path, dtype, shape

    def open(self) -> np.ndarray[Any, Any]:
        raw = np.memmap(self.path, dtype=np.uint8, mode="r")
        return raw.view(self.dtype).reshape(self.shape)


# What a run has lent, oldest first: it goes on meanwhile, up to so many bytes.

class Loans:
    """Buffers that a run has lent; used by the thread of that run."""

    def __init__(self) -> None:
        self._lent: collections.deque[tuple[Callable[[], None], int]] = collections.deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._lent)

    def add(self, give_back: Callable[[], None], size: int, most: int) -> None:
        """Add a buffer that is lent.

        Where that makes more than ``most`` bytes, half of them are waited for, so that two runs that take turns take
        long ones.

        give_back: waits until it may be overwritten.
        """
        self._lent.append((give_back, size))
        self.bytes += size
        if self.bytes > most:
            self.end(most // 2)

    def end(self, down_to: int = 0) -> None:
        """Wait until no more than so many bytes are lent, and with 0 nothing at all."""
        while self._lent and (not down_to or self.bytes > down_to):
            give_back, size = self._lent.popleft()
            self.bytes -= size
            give_back()
