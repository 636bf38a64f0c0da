"""Protocols of tensors as they pass by, and of where an explanation handles them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..records import Comparison, TensorStats, Tolerance

__all__ = [
    "BaselineStore",
    "Borrower",
    "Comparer",
    "CudaComparison",
    "Feeds",
    "Hook",
    "Started",
    "Tensor",
    "TorchComparison",
    "Workbench",
]  # fmt: skip


# Tensors as they pass by: what a hook is shown, what compares them, and where a baseline's wait for their partners.

Tensor = Any
"""Anything with ``__array__`` or ``__dlpack__``. A backend decodes bfloat16 that arrives as raw bits itself."""

Feeds = Mapping[str, Any]
"""Input name to numpy array."""


class Hook(Protocol):
    """Paddle's own signature. The tensor lives only during the call: copy or compare inside.

    One that does so may say it with an attribute ``borrows``, True: some backends then lend the engine's own memory
    in place of a copy.
    """

    def __call__(self, op_type: str, tensor_name: str, tensor: Tensor, /) -> None: ...


@runtime_checkable
class Borrower(Hook, Protocol):
    """A hook that can use a tensor while the run goes on; a session that cannot lend so long calls it as any hook."""

    def borrow(self, op_type: str, tensor_name: str, tensor: Tensor, /) -> Callable[[], None]:
        """In place of a call: the tensor stays as it is until what this returns was called, and has returned.

        The session calls that from the thread of the run, in the order in which it lent.
        """


class Comparer(Protocol):
    """Numbers of tensors where they are. Results are given to ``then``, at once or later, in the order of the calls.

    One that says ``keeps_pairs = True`` promises that a pair still holds what was compared when ``then`` is called, so
    that it can be drawn or saved; of any other one no tensor is looked at again.
    Both runs' threads call it. ``then`` is called by the thread that asked, or where results come later by either of
    them, never by two at a time.
    """

    def take(self, tensor: Tensor, name: str) -> Any:
        """Return what a hook got, as the other methods want it: with ``shape``, and without a copy where that is
        possible."""

    def dtype(self, value: Any) -> str:
        """Return the name that numpy has for a tensor's type."""

    def compare(self, base: Any, target: Any, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """The numbers of a pair. Both may be dropped, and overwritten by their own run, as soon as this returns."""

    def describe(self, value: Any, then: Callable[[TensorStats], None]) -> None:
        """Tell ``then`` the numbers of one tensor."""

    def settle(self) -> None:
        """Wait for everything that is under way; every ``then`` was called."""


class BaselineStore(Protocol):
    """What the hooks need of a store: ``Store``, or a ``Meeting`` of two runs side by side.

    Tensors are numpy arrays, or what a backend's own comparer takes.
    """

    def put(self, key: str, array: Any) -> None:
        """Take a tensor; the caller may overwrite it afterwards."""

    def get(self, key: str) -> Any:
        """Return the tensor of a key, None where there is none."""

    def drop(self, key: str) -> None:
        """The tensor of a key is no longer needed."""

    def __iter__(self) -> Iterator[str]:
        """Yield the keys that are kept."""

    def close(self) -> None:
        """Free everything."""


# What the product that compares in a card's memory puts behind the door "comparers".

class CudaComparison(Protocol):
    """As "cuda": of ``numbers.cuda``'s arrays, whatever engine made them."""

    def explain_unavailable(self) -> str:
        """Return why tensors cannot be compared on a CUDA device here; "" where they can. Never raises."""

    def CudaComparer(self) -> Comparer:  # noqa: N802
        """Return what compares them."""

    def CudaStore(self) -> BaselineStore:  # noqa: N802
        """Return what keeps a baseline's on their device."""


class Started(Protocol):
    """Numbers that are under way. keeps: whether ``finish`` may read the tensors again."""

    keeps: bool

    @property
    def ready(self) -> bool:
        """Whether ``finish`` need not wait for the device."""

    def finish(self) -> Any:
        """Return the numbers; waits for the device."""


class TorchComparison(Protocol):
    """As "torch": of torch's tensors on their own device, a card or not."""

    def compare_on_device(self, base: Any, target: Any, tolerance: Tolerance | None = None) -> Comparison:
        """Return the numbers of two tensors of one device."""

    def start_on_device(
        self, base: Any, target: Any, tolerance: Tolerance | None = None, *, totals: bool = False
    ) -> Started:
        """Queue a comparison, without a wait; totals: as Measured, which can be merged."""

    def start_describing(self, tensor: Any) -> Started:
        """Queue the numbers of one tensor, without a wait."""


# Where and how an explanation handles tensors: by numpy in the host's memory, or on the device that has them.

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
        """Return the value with what ``wrong`` is off from ``exact``; NaN, Inf and 0 as they are. None: they do not
        fit."""

    def store(self, folder: Path, budget: int) -> BaselineStore:
        """Return where suspects' tensors are kept. What comes over the budget waits on disk, or is left out."""

    def waiting(self, folder: Path, budget: int) -> BaselineStore:
        """Where tensors wait for their partners: what comes over the budget may wait on disk, but all are kept."""
