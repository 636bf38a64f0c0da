"""Other values in place of what a run computed, and what each of its operators reads.

Values are written into the tensor's own memory, so that views of it, in-place operators on it and whoever else holds it
see them too. Memory that the run did not make (parameters, buffers, tensors that a module keeps) is never written,
unless an operator of the run has just written there itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from precision_debug.errors import BackendError
from precision_debug.numbers import narrowing
from precision_debug.numbers.arrays import as_array
from precision_debug.numbers.narrowing import narrow_type
from precision_debug.records import Operator

from .engine.call_values import fill_tensor, start_of
from .naming import op_type
from .on_device import move_to_device

__all__ = ["Made", "Replacing", "ToldModules", "module_operator", "round_as_held"]

_PLAIN = (bool, int, float, str, type(None))
_CHOSEN_BY_THE_MODE = {"device", "dtype", "generator", "layout", "memory_format", "non_blocking", "pin_memory"}


@dataclass(frozen=True, kw_only=True)
class Made:
    """How a row was made. arguments: plain ones by the schema's names; defaults: the schema's own. numbers: of those,
    what stands in a tensor's or a scalar's place. constants: parameters and buffers that it reads, by name."""

    op_type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    constants: tuple[str, ...] = ()

    def operator(self, arrays: Mapping[str, Any]) -> Operator:
        """With the constants' values; arrays: the model's tensors by name."""
        read = {name: _values(arrays[name]) for name in self.constants if name in arrays}
        found = {name: array for name, array in read.items() if array is not None}
        numbers = {name: np.float64(number) for name, number in self.numbers.items()}
        return Operator(
            op_type=self.op_type, attributes=self.arguments, parameters={**found, **numbers}, defaults=self.defaults
        )


class Replacing:
    """What one run may write, and what it has noted. constants: parameters and buffers. made: what was noted before,
    which holds. fixed: takes the names of rows that only move constants about, of which nothing is written. told:
    arguments of operators in place of their own, see protocols.TellsOtherwise."""

    def __init__(
        self, constants: Iterable[Any], made: Mapping[str, Made], fixed: set[str],
        told: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.made: dict[str, Made] = dict(made)
        self._told = told
        self._fixed = fixed
        self._kept: dict[int, Any] = {}  # start of memory that is not the run's to the tensor that holds it
        for tensor in constants:
            self.protect(tensor)

    def protect(self, tensor: Any) -> None:
        """A tensor is there that the run did not make."""
        start = _start(tensor)
        if start is not None:
            self._kept.setdefault(start, tensor)

    def note(
        self, name: str, func: Any, args: Any, kwargs: Any, constants: Iterable[str], *, moved: bool,
        made: tuple[int, Any] | None = None,
    ) -> None:  # fmt: skip
        """A row's operator ran. moved: it computed nothing, of nothing but constants. made: the tensor, and its place
        among the operator's results."""
        if made is not None and name in self._told and not func._schema.is_mutable:
            self._compute_as_told(name, func, args, kwargs, *made)
        if moved:
            self._fixed.add(name)
        if name in self.made:
            return
        arguments, numbers = _plain_arguments(func, args, kwargs)
        known = func._schema.arguments if hasattr(func, "_schema") else ()
        self.made[name] = Made(
            op_type=op_type(func), arguments=arguments, numbers=numbers, constants=tuple(dict.fromkeys(constants)),
            defaults={one.name: one.default_value for one in known if one.has_default_value()},
        )  # fmt: skip

    def finish(self) -> dict[str, Made]:
        """Return what was noted. Raises BackendError where an operator did not compute by what it is told."""
        if self._told:
            raise BackendError("is not computed by other arguments", where=next(iter(self._told)))
        return self.made

    def _compute_as_told(self, name: str, func: Any, args: Any, kwargs: Any, place: int, value: Any) -> None:
        """Put what an operator makes by the arguments that it is told in place of the tensor that it made: the one at
        this place of its results."""
        args, kwargs, told = [*args], {**kwargs}, {**self._told[name]}
        for at, argument in enumerate(func._schema.arguments):
            if argument.name in told and at < len(args):
                args[at] = told.pop(argument.name)
        with contextlib.suppress(RuntimeError, TypeError), torch.no_grad(), _disable_current_modes():
            found = func(*args, **{**kwargs, **told})
            found = found[place] if isinstance(found, (tuple, list)) else found
            if found.shape == value.shape:
                self.put(value, found.detach(), written=False)
                self._told = {key: told for key, told in self._told.items() if key != name}

    def put(self, tensor: Any, new: Any, *, written: bool) -> None:
        """Write an array, or a tensor of the same device, in place of a tensor's values; the tensor keeps its own where
        it cannot be written.

        written: an operator has just written there itself.
        """
        if tensor.is_nested:
            _put_parts(tensor, new)
            return
        start = _start(tensor)
        if start is None or (start in self._kept and not written) or tuple(new.shape) != tuple(tensor.shape):
            return
        with contextlib.suppress(RuntimeError, TypeError), torch._C.DisableTorchFunction(), _disable_current_modes():
            memory = tensor.data  # does not count as a change for autograd, which a model may use inside
            for dim, (size, stride) in enumerate(zip(memory.shape, memory.stride(), strict=True)):
                if size > 1 and stride == 0:  # one number stands for all of them
                    there = isinstance(new, torch.Tensor)
                    memory = memory.narrow(dim, 0, 1)
                    new = new.narrow(dim, 0, 1) if there else np.take(new, [0], axis=dim)
            fresh = new if isinstance(new, torch.Tensor) else move_to_device(new, memory.device)
            if fresh is not None:
                memory.copy_(_clamp_to_type(fresh, memory.dtype))


def _put_parts(tensor: Any, new: Any) -> None:
    """``Replacing.put`` of a nested tensor, which is not a parameter's memory."""
    fresh = new if isinstance(new, torch.Tensor) else move_to_device(new, tensor.device)
    with contextlib.suppress(RuntimeError, TypeError), torch._C.DisableTorchFunction(), _disable_current_modes():
        if fresh is not None and fresh.numel() == tensor.numel():
            fill_tensor(tensor.detach(), _clamp_to_type(fresh, tensor.dtype))


def _clamp_to_type(values: Any, dtype: Any) -> Any:
    """Finite numbers stay finite in a narrower type."""
    if not (dtype.is_floating_point and values.dtype.is_floating_point) or dtype.itemsize >= values.dtype.itemsize:
        return values
    if values.device.type == "cpu" and dtype in (torch.bfloat16, torch.float16):  # on a device it would wait for it
        low = values.to(dtype)
        if bool(low.isfinite().all()):  # as nearly always: half of the work
            return low
    limit = torch.finfo(dtype).max
    return torch.where(values.isfinite(), values.clamp(-limit, limit), values)


def _start(tensor: Any) -> int | None:
    """Where a plain tensor's memory begins; None where there is none to write to."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    if not plain or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        return None
    return start_of(tensor)


def _plain_arguments(func: Any, args: Any, kwargs: Any) -> tuple[dict[str, Any], dict[str, float]]:
    schema = getattr(func, "_schema", None)
    if schema is None:
        return {}, {}
    plain: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for place, argument in enumerate(schema.arguments):
        said = place < len(args) or argument.name in kwargs
        if argument.name in _CHOSEN_BY_THE_MODE or not (said or argument.has_default_value()):
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
        listed = isinstance(value, (list, tuple)) and all(isinstance(item, _PLAIN) for item in value)
        if isinstance(value, _PLAIN) or listed:
            plain[argument.name] = list(value) if isinstance(value, (list, tuple)) else value
        if said and type(value) is float and argument.name != "alpha" and str(argument.type) in ("Tensor", "number"):
            numbers[argument.name] = value
    return plain, numbers


def module_operator(module: Any, path: str) -> Operator:
    """Return a module as one operator: its own parameters, buffers and plain attributes."""
    attributes = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, _PLAIN) and not key.startswith("_") and key != "training"
    }
    own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    arrays = {f"{path}.{name}" if path else name: _values(tensor) for name, tensor in own}
    return Operator(
        op_type=type(module).__name__, attributes=attributes,
        parameters={name: array for name, array in arrays.items() if array is not None},
    )  # fmt: skip


class ToldModules:
    """Modules of a run with other attributes than their own, arrays as parameters, until they are restored. told: by
    path, see protocols.TellsOtherwise; those of operators that were made are left out."""

    def __init__(self, module: Any, told: Mapping[str, Mapping[str, Any]], made: Mapping[str, Made]) -> None:
        parts = dict(module.named_modules()) if told else {}
        self.told = {path: more for path, more in told.items() if path in parts and path not in made}
        self._own: list[tuple[Any, str, Any]] = []
        for path, more in self.told.items():
            for key, value in more.items():
                self._own.append((parts[path], key, getattr(parts[path], key, None)))
                array = isinstance(value, np.ndarray)
                setattr(parts[path], key, torch.nn.Parameter(torch.from_numpy(value)) if array else value)

    def restore(self) -> None:
        """Give them their own attributes back."""
        for part, key, value in self._own:
            setattr(part, key, value)


def _values(tensor: Any) -> Any:
    """Return a constant as numpy knows it; narrow floats as float32. None where it cannot be read."""
    with contextlib.suppress(Exception):
        plain = tensor.detach()
        return as_array(plain.float() if plain.is_floating_point() and plain.dtype.itemsize < 4 else plain)
    return None


def round_as_held(values: Any, dtype: str) -> Any:
    """Return an array as a tensor of torch's type holds it, in the array's own type; None where rounding is no
    question."""
    if isinstance(values, torch.Tensor):
        return _round_on_device(values, getattr(torch, dtype, None))
    kind = narrow_type(dtype)
    if kind is None or not _is_float(np.dtype(kind)) or not _is_float(values.dtype):
        return None
    return values if kind.itemsize >= values.dtype.itemsize else narrowing.round_values(values, kind)


def _round_on_device(values: Any, dtype: Any) -> Any:
    """Return the same of a tensor, where it is."""
    if not isinstance(dtype, torch.dtype) or not (dtype.is_floating_point and values.dtype.is_floating_point):
        return None
    return (
        values if dtype.itemsize >= values.dtype.itemsize else _clamp_to_type(values, dtype).to(dtype).to(values.dtype)
    )


def _is_float(dtype: Any) -> bool:
    return bool(dtype.kind == "f" or dtype.name == "bfloat16" or dtype.name.startswith("float8"))
