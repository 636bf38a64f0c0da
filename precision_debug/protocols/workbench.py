"""Where and how an explanation handles tensors: by numpy in the host's memory, or on the device that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..records import Comparison
from .tensors import BaselineStore

__all__ = ["Workbench"]


class Workbench(Protocol):
    """What a Replacer whose tensors lie elsewhere has as ``workbench``, so that they stay there.

    Its ``run_replacing`` then shows its own tensors to a ``replace`` that says ``on_device``, True, and takes them from
    it. rate: bytes of tensors a second that can be put back and compared there, about.
    """

    @property
    def on_device(self) -> bool: ...

    @property
    def rate(self) -> float: ...

    def host(self, value: Any) -> Any:
        """Return a tensor as a numpy array."""

    def returned(self, outputs: Mapping[str, Any], name: str) -> Any:
        """One of the outputs that a session's run returned, where its other tensors are."""

    def kept(self, value: Any) -> Any:
        """Return a copy of a tensor where it lies."""

    def is_float(self, value: Any) -> bool:
        """Return whether it holds floats, narrow ones included."""

    def lasting(self, value: Any) -> Any:
        """Return a tensor that a run shows, as ``start`` may have it: a copy where it looks at it later."""

    def compare(self, base: Any, target: Any) -> Comparison:
        """Return the numbers of a pair; quantiles may be left out."""

    def start(self, base: Any, target: Any, then: Callable[[Comparison], None]) -> None:
        """Compare a pair, and tell the numbers to ``then`` at once, or later in the order of the calls."""

    def settle(self) -> None:
        """Every ``then`` was called."""

    def squares(self, base: Any, target: Any, bound: float) -> tuple[float, float, int]:
        """Return the squared L2 of the error and of the baseline, and over how many elements.

        These are finite on both sides, and no larger than ``bound`` in the baseline."""

    def unmoved(self, wanted: Any, got: Any) -> float | None:
        """Return the share, 0 to 1, of the elements that are not 0 in ``wanted`` and are 0 in ``got``.

        None where none is to move, the shapes differ, or ``got`` holds NaN or Inf."""

    def shaken(self, value: Any, noise: Any, unit: float, start: int, step: float | None) -> Any:
        """Return the value with noise added to each float; None where it holds no floats.

        Each is off by its share of the noise (a numpy array, used again and again from ``start`` on) times ``unit``: of
        itself, or of ``step``."""

    def with_error(self, value: Any, exact: Any, wrong: Any) -> Any:
        """The value with what ``wrong`` is off from ``exact``; NaN, Inf and 0 as they are. None: they do not fit."""

    def store(self, folder: Path, budget: int) -> BaselineStore:
        """Return where suspects' tensors are kept. What comes over the budget waits on disk, or is left out."""

    def waiting(self, folder: Path, budget: int) -> BaselineStore:
        """Where tensors wait for their partners: what comes over the budget may wait on disk, but all are kept."""
