"""The form of an operator of one tensor and constants, as what it gave shows it: a lookup, a product, a
norm, arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["find_form"]

Array = np.ndarray[Any, Any]
Compute = Callable[[Mapping[str, Array]], Array | None]

_MUCH_WORK = 1 << 31
"""Multiplications of one product in numpy up to which it is computed once more."""


def find_form(exact: Array, source: str, given: Array, constants: Mapping[str, Array]) -> Compute | None:
    """Return a way to compute a result once more with others in the place of what it is made of, by name; None where no
    form reproduces it. source: the tensor that is read, and given, what it holds."""
    if given.dtype.kind in "iu" and len(constants) == 1:
        return _make_lookup(exact, source, given, constants)
    if len(constants) == _STATISTICS and given.dtype.kind == "f":
        return _make_norm(exact, source, given, constants)
    if not 1 <= len(constants) <= 2 or given.dtype.kind != "f":
        return None
    weight: str
    value: Array
    (weight, value), *more = sorted(constants.items(), key=lambda pair: -pair[1].ndim)
    if value.ndim == 2 and given.size * max(value.shape) > _MUCH_WORK:
        return None
    forms: list[Callable[[Array, Array], Array]] = [
        lambda x, w: x @ w, lambda x, w: x @ w.T, lambda x, w: x * w, lambda x, w: x + w, lambda x, w: x - w,
        lambda x, w: w - x, lambda x, w: x / w, lambda x, w: w / x, lambda x, w: x**w, lambda x, w: w**x,
    ]  # fmt: skip

    def by(form: Callable[[Array, Array], Array], changed: Mapping[str, Array]) -> Array | None:
        if not changed.keys() <= {source, *constants}:
            return None
        try:
            with np.errstate(all="ignore"):
                x = np.asarray(changed.get(source, given)).astype(np.float64)
                got = form(x, np.asarray(changed.get(weight, value)).astype(np.float64))
                for key, term in more:
                    got = got + np.asarray(changed.get(key, term)).astype(np.float64)
        except ValueError:
            return None
        return np.asarray(got) if np.shape(got) == exact.shape else None

    for form in forms:
        plain = by(form, {})
        with np.errstate(all="ignore"):  # a power may be beyond every type
            fits = plain is not None and _measure(plain - exact) <= 1e-3 * _measure(exact)
        if fits:
            return functools.partial(by, form)
    return None


def _make_lookup(exact: Array, source: str, given: Array, constants: Mapping[str, Array]) -> Compute:
    """Of rows of a table that integers choose, of which only those are brought to float64."""
    ((weight, table),) = constants.items()

    def look_up(changed: Mapping[str, Array]) -> Array | None:
        places, rows = np.asarray(changed.get(source, given)), np.asarray(changed.get(weight, table))
        if not rows.ndim or not ((places >= 0) & (places < len(rows))).all():
            return None
        got = rows[places].astype(np.float64)
        return got.reshape(exact.shape) if got.size == exact.size else None

    return look_up


_STATISTICS = 4
"""Constants of a norm of held statistics: gain, shift, mean and variance."""


def _make_norm(exact: Array, source: str, given: Array, constants: Mapping[str, Array]) -> Compute | None:
    """Of a batch norm with the statistics that it holds, whose epsilon its own results tell."""
    names, sizes = [*constants], {np.shape(one) for one in constants.values()}
    fits = (axis for axis in (1, -1) if given.ndim > 1 and sizes == {given.shape[axis : axis % given.ndim + 1]})
    axis = next(fits, 0)
    if not axis or given.shape != exact.shape:
        return None
    along = [-1] + [1] * (given.ndim - 1 - axis % given.ndim)

    def read(changed: Mapping[str, Array], order: list[str]) -> list[Array]:
        held = (np.asarray(changed.get(name, constants[name])).astype(np.float64) for name in order)
        return [np.asarray(changed.get(source, given)).astype(np.float64), *(one.reshape(along) for one in held)]

    def normalise(order: list[str], epsilon: float, changed: Mapping[str, Array]) -> Array | None:
        if not changed.keys() <= {source, *constants}:
            return None
        with np.errstate(all="ignore"):
            x, gain, shift, mean, variance = read(changed, order)
            return np.asarray((x - mean) / np.sqrt(variance + epsilon) * gain + shift)

    for order in (names, names[2:] + names[:2]):  # the statistics last, or first
        x, gain, shift, mean, variance = read({}, order)
        with np.errstate(all="ignore"):
            epsilon = float(np.nanmedian(((x - mean) * gain / (exact - shift)) ** 2 - variance))
        plain = normalise(order, max(epsilon, 0.0), {})
        if plain is not None and _measure(plain - exact) <= 1e-3 * _measure(exact):
            return functools.partial(normalise, order, max(epsilon, 0.0))
    return None


def _measure(error: Array) -> float:
    return float(np.linalg.norm(error[np.isfinite(error)]))
