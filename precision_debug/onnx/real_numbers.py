"""A model's own quantised tensors in real numbers: engines show the whole ones, and are compared in real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..records import Grid
from .model import Model
from .scales import find_scales

__all__ = ["RealNumbers"]

Array = np.ndarray[Any, Any]

_DYNAMIC = "DynamicQuantizeLinear"
_CODES = frozenset({"int8", "uint8", "int16", "uint16"})


@dataclass(frozen=True, kw_only=True)
class _Line:
    """real = (code - zero) * scale, both shaped so that they broadcast over the tensor."""

    scale: Array
    zero: Array


@dataclass(frozen=True, kw_only=True)
class RealNumbers:
    """The tensors of a model's main graph that QuantizeLinear makes or DequantizeLinear reads, by constant scales.

    by_name: of each tensor its scale, zero point and axis (None: one scale for the whole tensor). of_run: names of
    those whose scale a DynamicQuantizeLinear makes, by the scale's name: see ``after``.
    """

    by_name: Mapping[str, tuple[Array, Array, int | None]] = field(default_factory=dict)
    of_run: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, *, running: bool = False) -> RealNumbers:
        """Read the quantised tensors of a model; those by blocks are left out, and those of scales that are not
        constant but, of a side that tells them while it runs, DynamicQuantizeLinear's."""
        from onnx import numpy_helper

        graph = model.proto.graph
        constants = {item.name: item for item in graph.initializer if not item.external_data}
        for node in graph.node:
            for item in node.attribute if node.op_type == "Constant" else ():
                if item.name == "value":
                    constants[node.output[0]] = item.t
        found: dict[str, tuple[Array, Array, int | None]] = {}
        of_run = {node.output[1]: list[str]() for node in graph.node if running and node.op_type == _DYNAMIC}
        for name, scale in find_scales(graph).items():
            if scale.scale in of_run:
                of_run[scale.scale].append(name)
            if scale.block or scale.scale not in constants or (scale.zero_point and scale.zero_point not in constants):
                continue
            factor = numpy_helper.to_array(constants[scale.scale]).astype(np.float32)
            zero = numpy_helper.to_array(constants[scale.zero_point]) if scale.zero_point else np.zeros(1, np.int32)
            found[name] = factor, zero.astype(np.int32), scale.axis if factor.size > 1 else None
        return cls(by_name={name: one for name, one in found.items() if name not in constants}, of_run=of_run)

    def after(self, op_type: str, outputs: Sequence[str], values: Sequence[Any]) -> RealNumbers:
        """Return the same after a node of a run, with the scale that it has made, if it has made one."""
        if op_type != _DYNAMIC or outputs[1] not in self.of_run:
            return self
        one = np.asarray(values[1], np.float32), np.asarray(values[2], np.int32), None
        return replace(self, by_name={**self.by_name, **dict.fromkeys(self.of_run[outputs[1]], one)})

    def __contains__(self, name: object) -> bool:
        return name in self.by_name or any(name in names for names in self.of_run.values())

    def shown(self, name: str, value: Any) -> Any:
        """Return a tensor in real numbers, float32; as it is where it is not quantised."""
        line = self._line(name, value)
        if line is None:
            return value
        with np.errstate(all="ignore"):  # a scale may be anything
            return ((np.asarray(value).astype(np.int32) - line.zero) * line.scale).astype(np.float32)

    def codes(self, name: str, real: Any, like: Any) -> Any:
        """Return real numbers as the whole ones of ``like``, rounded half to even and held at the ends of its type."""
        line = self._line(name, like)
        if line is None or real is None:
            return real
        ends, held = np.iinfo(np.asarray(like).dtype), np.asarray(real, np.float64)
        with np.errstate(all="ignore"):
            found = np.rint(np.nan_to_num(held) / line.scale) + line.zero
            return np.clip(found, ends.min, ends.max).astype(np.asarray(like).dtype)

    def grid(self, name: str, dtype: str) -> Grid | None:
        """Return the ends of what a tensor of that type can hold, and how many numbers; None where one scale is not for
        all of it."""
        scale, zero, axis = self.by_name.get(name, (np.zeros(0), np.zeros(0), None))
        if axis is not None or scale.size != 1 or dtype not in _CODES:
            return None
        ends, factor, origin = np.iinfo(dtype), float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])
        return (ends.min - origin) * factor, (ends.max - origin) * factor, int(ends.max) - int(ends.min) + 1

    def held(self, name: str, real: Any, dtype: str) -> Any:
        """Return real numbers as a tensor of that type of whole numbers holds them, as float32."""
        return self.shown(name, self.codes(name, real, np.zeros(np.shape(real), dtype)))

    def _line(self, name: str, value: Any) -> _Line | None:
        one = self.by_name.get(name)
        dtype = getattr(value, "dtype", None)
        if one is None or dtype is None or str(dtype) not in _CODES:
            return None
        scale, zero, axis = one
        if axis is None:
            return _Line(scale=scale.reshape(()), zero=zero.reshape(-1)[:1].reshape(()))
        shape = [1] * np.ndim(value)
        if not -len(shape) <= axis < len(shape) or np.shape(value)[axis] != scale.size:
            return None
        shape[axis] = scale.size
        return _Line(scale=scale.reshape(shape), zero=np.broadcast_to(zero, scale.shape).reshape(shape))
