"""Find the tensors and plain values among what an operator was given and what it made."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from precision_debug.reasons import NOTHING, Reason
from precision_debug.reasons.ways import NO_WAY, Way, way

from ..reasons import say

__all__ = [
    "ByTensor",
    "WrittenConstants",
    "fill_tensor",
    "find_held",
    "held_type",
    "leaf_tensors",
    "list_targets",
    "make_like",
    "pack_parts",
    "put_back",
    "settings_in",
    "start_of",
    "tensors_in",
    "values_of",
    "visible_part",
]  # fmt: skip


# Tensors whose parts have lengths of their own (torch's nested tensors, strided or jagged): the parts in a row.

def pack_parts(tensor: Any) -> Any:
    """Return all elements and no padding: parts of shapes [n, *rest] as [sum of n, *rest], parts of other shapes flat.
    A copy of a strided one."""
    parts = [part.detach() for part in tensor.unbind()]
    if not parts:
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    rows = all(part.dim() and part.shape[1:] == parts[0].shape[1:] for part in parts)
    return torch.cat(parts if rows else [part.reshape(-1) for part in parts])


def make_like(tensor: Any, values: Any) -> Any:
    """A new one with the parts of ``tensor``, made of ``values`` as ``pack_parts`` gives them."""
    shapes = [part.shape for part in tensor.unbind()]
    parts = [part.reshape(shape) for part, shape in zip(_split(values, shapes), shapes, strict=True)]
    return torch.nested.nested_tensor(parts, dtype=values.dtype, device=values.device, layout=tensor.layout)


def fill_tensor(tensor: Any, values: Any) -> None:
    """Write ``values``, as ``pack_parts`` gives them, into a tensor's own memory."""
    parts = tensor.unbind()
    for part, new in zip(parts, _split(values, [part.shape for part in parts]), strict=True):
        part.copy_(new.reshape(part.shape))


def _split(values: Any, shapes: Any) -> Any:
    flat = values.reshape(-1)
    return flat.split([shape.numel() for shape in shapes])


# Where a tensor's memory lies.

def start_of(tensor: Any) -> int | None:
    """Return the address at which a tensor's storage begins; None of one without memory of its own (sparse, a library's
    own kind), which torch refuses with a RuntimeError or its subclass NotImplementedError."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except RuntimeError:
        return None


# A mapping by tensors themselves, not by their values, that forgets those that nobody else holds.
#
# torch's WeakIdKeyDictionary makes a weak reference for each look; every operator takes a dozen of them.

T = TypeVar("T")


class ByTensor(Generic[T]):
    """Used by the thread of one run; a tensor may be freed in any thread."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, T]] = {}

    def __contains__(self, tensor: Any) -> bool:
        return id(tensor) in self._held

    def __getitem__(self, tensor: Any) -> T:
        return self._held[id(tensor)][1]

    def __setitem__(self, tensor: Any, value: T) -> None:
        key, held = id(tensor), self._held
        known = held.get(key)
        # the reference goes with its entry, so that a tensor that gets a freed one's id starts afresh
        held[key] = known[0] if known is not None else weakref.ref(tensor, lambda _: held.pop(key, None)), value

    def get(self, tensor: Any, otherwise: Any = None) -> Any:
        """Return its value."""
        known = self._held.get(id(tensor))
        return otherwise if known is None else known[1]

    def pop(self, tensor: Any, otherwise: Any = None) -> Any:
        """Return its value, which is forgotten."""
        known = self._held.pop(id(tensor), None)
        return otherwise if known is None else known[1]

    def copy(self, tensor: Any, same: Any) -> None:
        """Give another tensor the same value, if there is one."""
        if tensor in self:
            self[same] = self[tensor]

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()


# Parameters that a forward writes into (an optimiser's step): put aside before, and put back when the run has ended.
#
# A run's twin shares the memory of its parameters with the model and so with every other run of the process.

class WrittenConstants:
    """For one run. constants: (name, tensor) of what it shares with others. refuse: called with a name before it is
    written into, and raises; None: what is written is put aside. ``written``: names of what it wrote into, in order."""

    def __init__(self, constants: Iterable[tuple[str, Any]], refuse: Callable[[str], None] | None = None) -> None:
        self._refuse = refuse
        self._at: dict[int, list[tuple[str, Any, int]]] = {}  # start of memory to whose it is, and its version then
        for name, tensor in constants:
            start = start_of(tensor)
            if start:
                self._at.setdefault(start, []).append((name, tensor, tensor._version))
        self._aside: list[tuple[Any, Any]] = []
        self._there: set[int] = set()
        self.written: dict[str, None] = {}

    def before(self, func: Any, args: Any, kwargs: Any) -> None:
        """An operator is about to run that writes."""
        for tensor in list_targets(func, args, kwargs):
            start = start_of(tensor)
            if start is None or start in self._there or start not in self._at:
                continue
            if self._refuse is not None:
                self._refuse(self._at[start][0][0])
            self._there.add(start)
            with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
                for name, constant, _ in self._at[start]:
                    held = constant.data
                    self.written[name] = None
                    self._aside.append((held, held.clone()))

    def restore(self) -> None:
        """The run has ended."""
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            for held, before in reversed(self._aside):
                held.copy_(before)
        self._aside.clear()

    def unseen(self) -> str:
        """Return a constant that was written without an operator that was seen; "" where there is none."""
        there = (one for start, found in self._at.items() if start not in self._there for one in found)
        return next((name for name, tensor, version in there if tensor._version != version), "")


@contextlib.contextmanager
def put_back(module: Any, original: Any, names: Collection[str]) -> Iterator[None]:
    """Around a run whose operators nobody sees: the parameters of these names, whose memory ``module`` shares with
    ``original``, and every gradient of ``module`` are afterwards what they were before."""
    with torch.no_grad():
        held = [one.data for name, one in original.named_parameters() if name in names]
        before = [one.clone() for one in held]
        grads = [(one, None if one.grad is None else one.grad.clone()) for one in module.parameters()]
    try:
        yield
    finally:
        with torch.no_grad():
            for one, values in zip(held, before, strict=True):
                one.copy_(values)
            for one, grad in grads:
                one.grad = grad


@functools.lru_cache(maxsize=1024)
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    schema = getattr(func, "_schema", None)
    return () if schema is None else tuple(
        (place, argument.name) for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )  # fmt: skip


def list_targets(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors that an ATen operator writes into."""
    found: list[Any] = []
    for place, name in _written_arguments(func):
        value = args[place] if place < len(args) else kwargs.get(name)
        found += value if isinstance(value, (list, tuple)) else [value]
    return [value for value in found if isinstance(value, torch.Tensor)]


# The tensors and plain values among what an operator was given and what it made.

def values_of(func: Any, args: Any, kwargs: Any, result: Any, writes: bool) -> tuple[list[Any], bool]:
    """Return what an operator made, and whether that is several: what it wrote into, where it returns nothing."""
    if writes and (result is None or (isinstance(result, tuple) and not result)):
        written = list_targets(func, args, kwargs)
        return written or [result], len(written) > 1
    several = isinstance(result, (tuple, list))
    return (list(result) if several else [result]), several


def tensors_in(values: Any) -> list[Any]:
    """Of an operator's arguments or results, which are nested in plain containers only."""
    if isinstance(values, torch.Tensor):
        return [values]
    found: list[Any] = []
    if isinstance(values, (tuple, list)):
        for value in values:
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif isinstance(value, (tuple, list)):
                found += tensors_in(value)
    elif isinstance(values, dict):
        found += tensors_in(list(values.values()))
    return found


_PLAIN = (bool, int, float, str, type(None))


def settings_in(args: Any, kwargs: Any) -> str:
    """Numbers, flags and their lists among an operator's arguments, without types and devices, which a mode chooses."""
    found = [*args, *sorted(kwargs.items())] if kwargs else args
    return " ".join(
        [str(value) for value in found if isinstance(value, _PLAIN)
         or (isinstance(value, (list, tuple)) and all(isinstance(item, _PLAIN) for item in value))]
    )  # fmt: skip


def leaf_tensors(values: Any) -> list[Any]:
    """Return the tensors in nested containers."""
    return [value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]


def _is_scaled(tensor: Any) -> bool:
    """Return whether it is a library's own (torchao's Float8TrainingTensor): narrow numbers that stand for others."""
    return type(tensor) is not torch.Tensor and hasattr(tensor, "_scale") and hasattr(tensor, "_orig_dtype")


def held_type(tensor: Any) -> torch.dtype:
    """Return the type of the numbers in a tensor's memory."""
    kind: torch.dtype = find_held(tensor).dtype
    return kind


def find_held(tensor: Any) -> Any:
    """Return the tensor in whose memory a tensor's numbers are: its own, but for a library's own kind."""
    return tensor._data if _is_scaled(tensor) else tensor


def visible_part(tensor: Any) -> tuple[Any, Way, Reason]:
    """Return the values as a plain strided tensor that numpy can hold, and how they were taken from what the run has;
    None, "" and why there are none."""
    try:
        if _is_scaled(tensor):
            return tensor._data.to(tensor._orig_dtype) / tensor._scale, way("dequantised"), NOTHING
        value = tensor.detach()
        if value.is_nested:
            return pack_parts(value), way("packed"), NOTHING
        if value.is_quantized:
            return value.dequantize(), way("dequantised"), NOTHING
        if value.layout is not torch.strided:
            return value.to_dense(), way("dense"), NOTHING
        if value.is_conj() or value.is_neg():
            return value.resolve_conj().resolve_neg(), NO_WAY, NOTHING
        if value.dtype.is_floating_point and value.dtype.itemsize == 1:
            return value.float(), way("cast"), NOTHING
    except (RuntimeError, TypeError) as error:
        return None, NO_WAY, say("not_readable", kind=type(tensor).__name__, detail=str(error).partition("\n")[0][:120])
    return value, NO_WAY, NOTHING
