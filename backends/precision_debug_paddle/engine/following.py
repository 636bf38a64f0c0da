"""Follows somebody's own training loop in Paddle's dynamic graph: numbers of its gradients at some steps.

Paddle's optimisers have no hooks of their own, so ``step`` and ``minimize`` of this one optimiser are wrapped while it
is followed. GradScaler calls ``step`` itself, when the gradients are unscaled.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import OutputError
from precision_debug.recording.training_log import (
    LOG,
    SMALLEST,
    ParameterNumbers,
    StepNumbers,
    begin_log,
    compare_left,
    encode_step,
)

from .framework import sparse_values

__all__ = ["following"]

Array = np.ndarray[Any, Any]

_WRAPPED = ("step", "minimize")

_FOLLOWED = 4096
"""Elements of a parameter of which it is known whether they ever change."""


@contextlib.contextmanager
def following(model: Any, optimiser: Any, scaler: Any, folder: str, every: int) -> Iterator[_Follower]:
    """See ``precision_debug.training``."""
    follower = _Follower(model, optimiser, scaler, Path(folder, LOG), every)
    for name in _WRAPPED:
        setattr(optimiser, name, functools.partial(follower.stepped, getattr(optimiser, name)))
    try:
        yield follower
    finally:
        for name in _WRAPPED:
            delattr(optimiser, name)  # the class's own is there again
        follower.end()


class _Follower:
    """``step``: how many steps the optimiser was asked for."""

    def __init__(self, model: Any, optimiser: Any, scaler: Any, log: Path, every: int) -> None:
        self.step = 0
        self._optimiser = optimiser
        self._samples: dict[str, tuple[Array, Array]] = {}
        self._scaler, self._log, self._every = scaler, log, every
        self._named = [(name, one) for name, one in model.named_parameters() if not one.stop_gradient]
        self._inside = self._arrived = self._empty = False
        self._left: dict[tuple[str, str], Array] = {}
        try:
            begin_log(log)
        except OSError as error:
            raise OutputError(f"cannot be written: {error.strerror}", where=str(log)) from error
        here = self._moved_here()
        given = (one for _, one in self._named if one.name in here)  # others are set back by nobody
        some = min(given, key=lambda one: int(one.size), default=None)
        self._hook = some.register_hook(lambda _: self._look_at_left(some)) if some is not None else None

    def end(self) -> None:
        """Take the hook away."""
        if self._hook is not None:
            self._hook.remove()

    def _look_at_left(self, parameter: Any) -> None:
        """A gradient arrives, to be added to what the parameter has."""
        if self.step % self._every == 0:
            left = parameter.grad
            self._arrived = True
            self._empty |= left is None or left.is_selected_rows() or not bool(left.any())

    def stepped(self, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the optimiser's step, with what it reads and what it changes."""
        if self._inside:  # of another step of this optimiser's, which is told as one
            return own(*args, **kwargs)
        if self.step % self._every:
            result = self._own(own, args, kwargs)
            self._end_step()
            return result
        now = dict(self._iterate_samples()) if self._left else {}
        scale, (changed, state) = self._scale(), compare_left(self._left, now, _measure_change)
        learned = [(name, one) for name, one in self._named if one.grad is not None]
        before = {name: np.array(_to_host(one)) for name, one in learned}
        gradients = {name: _numbers(_gradient(one), scale) for name, one in learned}
        rate, moved_here = float(self._optimiser.get_lr()), self._moved_here()
        for name, one in self._named:
            self._sample(name, one)
        result = self._own(own, args, kwargs)
        rows = {}
        for name, one in learned:
            norm, zeros, below, broken = gradients[name]
            size = _norm(before[name])
            moved = _norm(_to_host(one).astype(np.float64) - before[name]) / size if size else None
            rows[name] = ParameterNumbers(
                norm=norm, zeros=zeros, below=below, broken=broken, size=size, moved=moved,
                rate=rate if one.name in moved_here else None, still=self._still(name, _to_host(one)),
            )  # fmt: skip
        without = frozenset(
            name for name, one in self._named
            if name not in rows and not one.stop_gradient and one.name in moved_here
        )  # fmt: skip
        kept = self._arrived and not self._empty
        self._arrived = self._empty = False
        numbers = StepNumbers(step=self.step, scale=scale, parameters=rows, without=without, kept=kept,
                              changed=changed, state=state)  # fmt: skip
        with self._log.open("a", encoding="utf-8") as log:
            log.write(encode_step(numbers))
        self._end_step()
        return result

    def _end_step(self) -> None:
        self.step += 1
        self._left = dict(self._iterate_samples()) if self.step % self._every == 0 else {}

    def _iterate_samples(self) -> Iterator[tuple[tuple[str, str], Array]]:
        """Yield some elements of each parameter that the optimiser moves, and of what it keeps of it."""
        moved, kept = self._moved_here(), self._optimiser.state_dict()
        for name, one in self._named:
            if one.name not in moved:
                continue
            yield (name, ""), _sample_spread(_to_host(one)).copy()
            for what, value in kept.items():
                if what.startswith(f"{one.name}_") and hasattr(value, "numpy"):
                    yield (name, what), _sample_spread(_to_host(value)).copy()

    def _moved_here(self) -> frozenset[str]:
        """Paddle's names of the parameters that this optimiser moves."""
        given = getattr(self._optimiser, "_parameter_list", None) or ()
        groups = [one["params"] if isinstance(one, dict) else [one] for one in given]
        return frozenset(one.name for group in groups for one in group)

    def _sample(self, name: str, parameter: Any) -> None:
        if name not in self._samples:  # also without a gradient, which a closure makes only inside of the step
            values = _sample_spread(_to_host(parameter)).copy()
            self._samples[name] = values, np.zeros(values.shape, dtype=bool)
        if parameter.grad is not None and not parameter.grad.is_selected_rows():
            first, touched = self._samples[name]
            self._samples[name] = first, touched | (_sample_spread(_to_host(parameter.grad)) != 0)

    def _still(self, name: str, now: Array) -> float | None:
        """Return the share of the elements that ever had a gradient, and are what they were at first."""
        first, touched = self._samples.get(name, (None, None))
        if first is None or touched is None or not touched.any():
            return None
        return float((touched & (_sample_spread(now) == first)).sum() / touched.sum())

    def _own(self, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._inside = True
        try:
            return own(*args, **kwargs)
        finally:
            self._inside = False

    def _scale(self) -> float:
        return float(self._scaler.state_dict().get("scale", 1.0)) if self._scaler is not None else 1.0


def _to_host(tensor: Any) -> Array:
    """Return a tensor's values; float32 of what numpy has no type for."""
    narrow = "bfloat16" in str(tensor.dtype)
    found: Array = (tensor.detach().astype("float32") if narrow else tensor.detach()).numpy()
    return found


def _sample_spread(values: Array) -> Array:
    """Some of an array's elements, from all over it."""
    flat = values.reshape(-1)
    return flat[:: max(1, flat.size // _FOLLOWED)][:_FOLLOWED]


def _gradient(parameter: Any) -> Array:
    return sparse_values(parameter) if parameter.grad.is_selected_rows() else _to_host(parameter.grad)


def _numbers(values: Array, scale: float) -> tuple[float, float, float, int]:
    """Norm, share of zeros, share below float16's smallest at the scale, and how many are no number."""
    finite = np.isfinite(values)
    fair = values[finite]
    some = int(np.count_nonzero(fair))
    below = int(np.count_nonzero(np.abs(fair) < SMALLEST / 2 / scale)) - (fair.size - some)
    many = max(1, values.size)
    return _norm(fair), (fair.size - some) / many, below / max(1, some), int(values.size - fair.size)


def _measure_change(before: Array, now: Array) -> tuple[float, float] | None:
    """Return the L2 of what was there, and of its change; None where nothing changed."""
    if np.array_equal(before, now, equal_nan=True):
        return None
    return _norm(before), _norm(now.astype(np.float64) - before)


def _norm(values: Array) -> float:
    return math.sqrt(float(np.sum(np.square(values, dtype=np.float64))))
