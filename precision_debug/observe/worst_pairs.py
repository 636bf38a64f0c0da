"""The worst pairs of a run on disk, each written while its tensors live, so that memory holds none of them."""

from __future__ import annotations

import contextlib
import heapq
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OutputError, PrecisionDebugError
from ..numbers.arrays import as_array
from ..records import Row

__all__ = ["PAIR", "WorstPairs"]

PAIR = "worst-{}.npz"
"""Name of the file of the pair of that number; it holds "baseline" and "target"."""


class WorstPairs:
    """An observer that keeps the ``most`` worst pairs as files of ``folder``, one each.

    Worst are tensors whose shapes differ, then those with a NaN or an infinity that the baseline has not, then those
    with the largest relative L2 error; of equal ones the earlier. A pair without any error is not kept.
    on_kept: called with (name, number) once a pair is on disk; one that is no longer among the worst has no file.
    Raises OutputError where the disk is full.
    """

    def __init__(self, most: int, folder: Path, on_kept: Callable[[str, int], None]) -> None:
        self._most, self._folder, self._tell = most, folder, on_kept
        self._worst: list[tuple[tuple[int, float], int]] = []
        """Badness, and the pair's number below zero: of equal ones the last to come is the smallest of the heap."""
        self._count = 0
        for path in folder.glob(PAIR.format("*")):  # of a run that was void
            path.unlink()

    def look(self, row: Row, base: Any, target: Any, /) -> None:
        """Keep the pair if it is worth it."""
        badness = _rank_badness(row)
        if badness == (0, 0.0) or (len(self._worst) == self._most and badness <= self._worst[0][0]):
            return
        self._count += 1
        if not self._written(self._count, base, target):
            return
        self._tell(row.name, self._count)
        heapq.heappush(self._worst, (badness, -self._count))
        if len(self._worst) > self._most:
            _, number = heapq.heappop(self._worst)
            self._path(-number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / PAIR.format(number)

    def _written(self, number: int, base: Any, target: Any) -> bool:
        """Return whether both sides could be written; text and what is not an array cannot."""
        path = self._path(number)
        try:
            sides = {"baseline": _to_npy_type(as_array(base)), "target": _to_npy_type(as_array(target))}
            with path.open("wb") as file:
                np.savez(file, **sides)  # type: ignore[arg-type]  # its stubs take them for allow_pickle
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise OutputError(
                f"a tensor cannot be saved ({error.strerror or error})", where="--save_tensors",
                hint="free space beside the report, or ask for fewer",
            ) from error  # fmt: skip
        except (PrecisionDebugError, TypeError, ValueError):
            path.unlink(missing_ok=True)
            return False
        return True


def _to_npy_type(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In a type that .npy knows: bfloat16 and the 8-bit floats are exact in float32, 4-bit integers in int8."""
    if array.dtype.kind == "O":
        raise TypeError("no array of numbers")
    if array.dtype.isbuiltin != 2:
        return array
    return array.astype(np.float32 if "float" in array.dtype.name else np.int8)


def _rank_badness(row: Row) -> tuple[int, float]:
    numbers = row.comparison
    if numbers is None:
        return 0, 0.0
    if not numbers.shapes_match:
        return 3, 0.0
    if numbers.target.nan > numbers.base.nan or numbers.target.inf > numbers.base.inf:
        return 2, 0.0
    error = numbers.relative_l2
    if error is None:  # not to be told of tensors that hold NaN on both sides
        return (1, 0.0) if row.non_finite else (0, 0.0)
    return (2, 0.0) if math.isnan(error) else (0, error)
