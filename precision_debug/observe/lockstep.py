"""Both runs side by side: each tensor of the baseline waits, inside its hook, for its partner.

Nothing is copied as long as both sides produce their tensors in the same order. Where the orders differ, the side
that waits tells the other one what it waits for, and what stands in the way is put into the store.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ..errors import BackendError
from ..protocols import BaselineStore

__all__ = ["Meeting", "run_both"]

B = TypeVar("B")
T = TypeVar("T")


PATIENCE = 300.0
"""Seconds that one side waits while the whole process computes nothing, before both are given up."""

_LEAVING = 30.0
"""Seconds that a baseline gets to end after the target has failed; it may be blocked for good."""

_COMPUTES = 0.01
"""Seconds of a processor, of each second, that count as computing; a thread that only waits takes less."""

_GLANCE = 0.05
"""Seconds after which a side that waits looks whether the other one, which passed something on quietly, stands still:
it may wait in the engine for what this side holds."""


class OtherSideEnded(Exception):
    """The other side failed; raised inside a hook to end this side's run too."""


class Meeting:
    """A store whose ``put`` blocks until the tensor was taken, and whose ``get`` blocks until it is there.

    ``put`` and ``lend`` are for the baseline's thread; ``get`` and ``drop`` are for the target's. A tensor that was got
    is held until it is dropped. Of the two threads at most one is blocked here at any time, so they cannot wait for
    each other. One of them may be blocked in the engine, though, by what the other one holds: see ``PATIENCE``.

    quietly: bytes that a side passes on before it wakes the other one, where it need not wait itself. Two threads that
    both run Python contend for the interpreter's lock, which changes hands every 5 ms: of small tensors, and of those
    that a device computes, each side does better to run for a while alone.
    """

    def __init__(self, store: BaselineStore, *, patience: float = PATIENCE, quietly: int = 0) -> None:
        self.store = store
        self._patience = patience
        self._quietly = quietly
        self._untold = 0  # bytes passed on since the other side was last woken
        self._passed = 0  # tensors lent and dropped so far
        self._woken = 0  # times: a wait that was just over would miss it
        self._last = ""
        self._changed = threading.Condition()
        self._offers: dict[str, Any] = {}
        self._wanted: str | None = None
        self._held = ""
        self._baseline_done = False
        self._target_done = False
        self._failed = False

    def put(self, key: str, array: Any) -> None:
        """Offer a tensor; returns when it may be overwritten: it was compared, or copied into the store."""
        self.lend(key, array)()

    def lend(self, key: str, array: Any) -> Callable[[], None]:
        """Offer a tensor and return at once; what this returns blocks as ``put`` does."""
        with self._changed:
            self._check()
            self._last = key
            self._offers[key] = array
            self._pass_on(array)
        return functools.partial(self._take_back, key)

    def _take_back(self, key: str) -> None:
        with self._changed:
            self._check()
            while key in self._offers and not self._in_the_way(key):
                self._wait(f"the baseline waits for the target to come for {key}")
                self._check()
            if key in self._offers:
                self.store.put(key, self._offers.pop(key))
                self._wake()

    def _in_the_way(self, key: str) -> bool:
        waits_for_another = self._wanted is not None and self._wanted not in self._offers
        return self._held != key and (waits_for_another or self._target_done)

    def get(self, key: str) -> Any:
        """Return the tensor of a key, waited for; None where the baseline ended without it."""
        with self._changed:
            while True:
                self._check()
                if key in self._offers:
                    self._wanted, self._held = None, key
                    return self._offers[key]
                stored = self.store.get(key)
                if stored is not None or self._baseline_done:
                    self._wanted = None
                    return stored
                self._wanted = key
                last = f"showed {self._last} last" if self._last else "has shown nothing yet"
                self._wait(f"the target waits for {key} of the baseline, which {last}")

    def drop(self, key: str) -> None:
        """Forget the tensor of a key: it is no longer needed."""
        with self._changed:
            if self._held == key:
                self._held = ""
                given_back = self._offers.pop(key, None)
                if given_back is not None:
                    self._pass_on(given_back, at_once=not self._offers)
            else:
                self.store.drop(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.store)

    def close(self) -> None:
        """Free what is stored."""
        self.store.close()

    def baseline_ends(self) -> None:
        """No tensor will come any more."""
        with self._changed:
            self._baseline_done = True
            self._wake()

    def target_ends(self) -> None:
        """No tensor will be asked for any more."""
        with self._changed:
            self._target_done = True
            self._wake()

    def fail(self) -> None:
        """Wake both sides and end them."""
        with self._changed:
            self._failed = True
            self._wake()

    def _pass_on(self, array: Any, *, at_once: bool = False) -> None:
        """A tensor is there for the other side, or back."""
        self._passed += 1
        self._untold += max(1, int(getattr(array, "nbytes", 0)))
        if at_once or self._untold >= self._quietly:
            self._wake()

    def _wake(self) -> None:
        self._untold = 0
        self._woken += 1
        self._changed.notify_all()

    def _wait(self, state: str) -> None:
        """Until something changes. Raises BackendError where nothing in the process moves any more."""
        begun, until = time.process_time(), time.monotonic() + self._patience
        self._wake()
        while time.monotonic() < until:
            passed, woken = self._passed, self._woken
            if self._changed.wait(min(_GLANCE, self._patience)) or self._woken != woken:
                return
            if self._passed == passed and self._untold:
                self._untold = 0
                return
        if time.process_time() - begun > self._patience * _COMPUTES:
            return
        raise BackendError(
            f"both runs have stood still for {self._patience:.0f} s: {state}", where="lockstep",
            hint="run one after the other: --lockstep off",
        )  # fmt: skip

    def _check(self) -> None:
        if self._failed:
            raise OtherSideEnded


def run_both(meeting: Meeting, baseline: Callable[[], B], target: Callable[[], T]) -> tuple[B, T]:
    """Run the baseline in a thread of its own and the target in this one; returns both results.

    The first failure ends both sides and is raised as itself.
    """
    results: list[B] = []
    failures: list[BaseException] = []

    def run_baseline() -> None:
        try:
            results.append(baseline())
        except BaseException as error:
            if not _is_echo(error):
                failures.append(error)
            meeting.fail()
        finally:
            meeting.baseline_ends()

    thread = threading.Thread(target=run_baseline, name="baseline", daemon=True)
    thread.start()
    try:
        result = target()
    except BaseException as error:
        if not _is_echo(error):
            failures.insert(0, error)
        meeting.fail()
    finally:
        meeting.target_ends()
        with contextlib.suppress(KeyboardInterrupt):
            thread.join(_LEAVING if any(isinstance(error, BackendError) for error in failures) else None)
    if failures:
        raise failures[0]
    return results[0], result


def _is_echo(error: BaseException | None) -> bool:
    """Return whether an error only says that the other side failed."""
    while error is not None:
        if isinstance(error, OtherSideEnded):
            return True
        error = error.__cause__ or error.__context__
    return False
