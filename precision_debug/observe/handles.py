"""A predictor's inputs and outputs by handles, as Paddle's own predictor gives them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UsageError
from ..numbers.arrays import as_array

__all__ = ["InputHandle", "OutputHandle", "Shown"]

Array = np.ndarray[Any, Any]


class InputHandle:
    """Holds an input until ``run()``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shape: tuple[int, ...] | None = None
        self._array: Array | None = None

    def name(self) -> str:
        return self._name

    def reshape(self, shape: Sequence[int]) -> None:
        """Set the shape of what is copied next."""
        self._shape = tuple(int(size) for size in shape)

    def copy_from_cpu(self, data: Any) -> None:
        """Take a copy of an array, or of a tensor. Raises UsageError where it has not the shape that was set."""
        array = np.array(as_array(data, name=self._name), order="C")
        if self._shape is not None and array.size != int(np.prod(self._shape)):
            raise UsageError(
                f"input {self._name} has the shape {list(array.shape)}, and {list(self._shape)} was set", where="watch",
                hint="reshape() to the array's own shape",
            )  # fmt: skip
        self._array = array if self._shape is None else array.reshape(self._shape)

    share_external_data = copy_from_cpu

    def shape(self) -> list[int]:
        return list(self._array.shape if self._array is not None else self._shape or ())

    def type(self) -> np.dtype[Any] | None:
        return None if self._array is None else self._array.dtype

    @property
    def value(self) -> Array:
        """Raises UsageError where nothing was given."""
        if self._array is None:
            what = f"input {self._name} has no value"
            raise UsageError(what, where="watch", hint="copy_from_cpu() it, or run(feeds)")
        return self._array


class OutputHandle:
    """What the last run gave; source: its outputs by name, {} before one."""

    def __init__(self, name: str, source: dict[str, Any]) -> None:
        self._name, self._source = name, source

    def name(self) -> str:
        return self._name

    def copy_to_cpu(self) -> Array:
        """Return a copy. Raises UsageError before the first run."""
        if self._name not in self._source:
            raise UsageError(f"output {self._name} has no value yet", where="watch", hint="run() first")
        return np.array(self._source[self._name])

    def shape(self) -> list[int]:
        return list(self.copy_to_cpu().shape)

    def type(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self.copy_to_cpu().dtype
        return found


class Shown(np.ndarray[Any, Any]):
    """A tensor as a hook of Paddle's gets one: an array that has ``numpy()`` too."""

    def numpy(self) -> Array:
        return np.asarray(self)
