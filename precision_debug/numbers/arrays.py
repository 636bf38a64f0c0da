"""Read whatever a framework calls a tensor as a numpy array, and compare it in the host's memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import numbers
from ..errors import BackendError
from ..records import Comparison, TensorStats, Tolerance
from .blocks import Array, with_both_parts

__all__ = ["HostComparer", "MapValues", "as_array", "measure_distance", "measure_span"]


# Whatever a framework calls a tensor, as a numpy array.

_BYTES = {1: "uint8", 2: "uint16"}


class MapValues(np.ndarray[Any, Any]):
    """Values of maps that have the same keys, along the last axis in the order of these."""

    keys: tuple[Any, ...] = ()

    def under(self, known: Sequence[Any]) -> Array:
        """Return the values without those whose keys the other side has not: they are not the others' values, and the
        two have other sizes. Where all of the other's keys are here, as they are."""
        array = np.asarray(self)
        told = not self.keys or set(known) <= set(self.keys)
        return array if told else array[..., [key in known for key in self.keys]]


def as_array(tensor: Any, *, name: str = "") -> Array:
    """Return a numpy array over the tensor's memory where that is possible, a copy where it is not.

    Takes numpy arrays and whatever has ``__array__`` or ``__dlpack__``; sparse tensors become dense, quantised ones
    the numbers that they stand for, and torch's nested ones their parts in a row. Lists lie along a first axis, a map's
    values in the order of its keys (see ``_join_elements``). The raw bytes by which a framework
    hands over a type that numpy has not (Paddle's bfloat16 as uint16, its float8 as int8) come back as that type of
    ml_dtypes; complex numbers of 16-bit parts, which numpy has not, as complex64 with every value kept. Raises
    BackendError on anything else.
    """
    if isinstance(tensor, np.ndarray):
        return with_both_parts(tensor)
    kind = ""
    try:
        kind = str(getattr(tensor, "dtype", "")).lower().rpartition(".")[2]
        if _is_of(tensor, "torch"):
            array = _from_torch(tensor)
        elif isinstance(tensor, (list, tuple, Mapping)):
            array = _join_elements(tensor)
        elif hasattr(tensor, "__array__") or np.isscalar(tensor):
            array = np.asarray(_to_dense_host(tensor))
        else:
            array = np.from_dlpack(tensor)
    except Exception as error:
        of = f" of {tensor.dtype}" if kind else ""
        raise BackendError(
            f"a hook got {type(tensor).__name__}{of}, which cannot be read as an array ({error})", where=name
        ) from error
    return with_both_parts(_view_as_type(array, kind))


def _join_elements(value: Any) -> Array:
    """Return a sequence's elements along a first axis, a map's values in the order of its keys.

    Elements of several shapes lie at the beginning of as much room as the largest takes along each axis, with 0 (or
    "") behind: one after the other, two sequences that are divided at other places would be the same numbers.
    """
    held = [value[key] for key in sorted(value)] if isinstance(value, Mapping) else value
    parts = [as_array(part) for part in held]
    if not parts:
        return np.zeros(0, np.float32)
    if len({part.shape for part in parts}) == 1:
        made, keys = np.stack(parts), {getattr(part, "keys", ()) for part in parts}
        if isinstance(value, Mapping) and made.ndim == 1:
            keys = {tuple(sorted(value))}
        if len(keys) == 1 and (known := keys.pop()):
            under = made.view(MapValues)
            under.keys = known
            return under
        return made
    rank = max(part.ndim for part in parts)
    parts = [part.reshape((1,) * (rank - part.ndim) + part.shape) for part in parts]
    room = np.max([part.shape for part in parts], axis=0)
    made = np.full((len(parts), *room), "" if parts[0].dtype.kind in "OUST" else 0, dtype=np.result_type(*parts))
    for place, part in enumerate(parts):
        made[place][tuple(slice(size) for size in part.shape)] = part
    return made


def _is_of(tensor: Any, package: str) -> bool:
    """Return whether it is a tensor of that package, or of a class that somebody derived from it."""
    return any(one.__module__.partition(".")[0] == package for one in type(tensor).__mro__)


def _to_dense_host(tensor: Any) -> Any:
    """In the host's memory, without the gradient's graph, and not sparse."""
    if hasattr(tensor, "is_sparse") and callable(tensor.is_sparse) and tensor.is_sparse():
        tensor = tensor.to_dense()
    return tensor.detach().cpu() if hasattr(tensor, "detach") and hasattr(tensor, "cpu") else tensor


def _from_torch(tensor: Any) -> Array:
    import torch

    plain = tensor.detach().cpu()
    if plain.is_nested:
        parts = [_from_torch(part) for part in plain.unbind()]
        rows = all(part.ndim and part.shape[1:] == parts[0].shape[1:] for part in parts)
        return np.concatenate(parts if rows else [part.reshape(-1) for part in parts]) if parts else np.empty(0)
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    plain = plain.resolve_conj().resolve_neg()
    if plain.dtype == torch.complex32:
        pairs: Array = np.ascontiguousarray(torch.view_as_real(plain).numpy(), np.float32)
        whole: Array = pairs.view(np.complex64)[..., 0]
        return whole
    if str(plain.dtype) == "torch.float4_e2m1fn_x2":
        return _unpack_four_bits(plain.contiguous().view(torch.uint8).numpy())
    if plain.is_floating_point() and (plain.element_size() == 1 or plain.dtype == torch.bfloat16):
        plain = plain.view(getattr(torch, _BYTES[plain.element_size()]))
    array: Array = plain.numpy()
    return array


def _unpack_four_bits(pairs: Array) -> Array:
    """Two numbers of four bits in a byte, the lower half first, along the last axis (torch.float4_e2m1fn_x2)."""
    import ml_dtypes

    halves = np.stack([pairs & 15, pairs >> 4], axis=-1)
    return halves.reshape(*pairs.shape[:-1], 2 * pairs.shape[-1]).view(ml_dtypes.float4_e2m1fn)


def _view_as_type(array: Array, kind: str) -> Array:
    """Raw bytes as the type that the tensor itself says they are of."""
    if array.dtype.kind not in "iu" or array.dtype.name == kind:
        return array
    import ml_dtypes

    found = getattr(ml_dtypes, "bfloat16" if "bf16" in kind else kind, None)
    if found is None or not kind.startswith(("bf", "float")) or np.dtype(found).itemsize != array.dtype.itemsize:
        return array
    return array.view(found)


# The span of an array's finite values, and how many are not finite.

def measure_span(array: np.ndarray[Any, Any]) -> tuple[float | None, float | None, int]:
    """(smallest, largest, how many are NaN or infinite); None where there is no finite number, or no numbers at all."""
    if array.dtype.kind not in "fiub" and not array.dtype.name.startswith(("bfloat16", "float8", "int4", "uint4")):
        return None, None, 0
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    lost = int(wide.size - finite.size)
    return (float(finite.min()), float(finite.max()), lost) if finite.size else (None, None, lost)


# Numbers of tensors in the host's memory: what the hooks use unless a backend compares where its tensors are.

class HostComparer:
    """A Comparer of numpy arrays; every result is there at once.

    keeps_pairs: a pair is still what was compared when its numbers are told.
    threads: how many share a large tensor; 0: one for a core. totals: give Measured, whose totals can be merged.
    """

    keeps_pairs = True

    def __init__(self, threads: int = 0, *, totals: bool = False) -> None:
        self.threads, self.totals = threads, totals

    def take(self, tensor: Any, name: str) -> Array:
        """Return the tensor as an array, over its own memory where that is possible."""
        return as_array(tensor, name=name)

    def dtype(self, value: Array) -> str:
        """Return numpy's name of the array's type."""
        return str(value.dtype.name)

    def compare(self, base: Array, target: Array, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """Compare, and call ``then`` with the numbers."""
        numbers_of = numbers.measure if self.totals else numbers.compare
        then(numbers_of(base, target, tolerance, threads=self.threads))

    def describe(self, value: Array, then: Callable[[TensorStats], None]) -> None:
        """Call ``then`` with one array's numbers."""
        then(numbers.describe(value, threads=self.threads))

    def settle(self) -> None:
        """Nothing is under way."""


# How far two arrays are apart.

def measure_distance(base: Any, target: Any) -> float:
    """Return relative L2 of the difference; inf where shapes, NaN or Inf do not agree; 0 of what are not numbers."""
    try:
        first, second = (np.asarray(one).astype(np.float64) for one in (base, target))
    except (TypeError, ValueError):  # texts, sequences
        return 0.0
    if first.shape != second.shape:
        return math.inf
    finite = np.isfinite(first)
    if not np.array_equal(finite, np.isfinite(second)):
        return math.inf
    size = float(np.linalg.norm(first[finite]))
    error = float(np.linalg.norm(second[finite] - first[finite]))
    return error / size if size else (math.inf if error else 0.0)
