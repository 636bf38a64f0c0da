"""A model's operators, run one by one on values that the caller chooses; and numbers as the engine would have them in
its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.numbers import narrowing
from precision_debug.numbers.narrowing import narrow_type, narrow_values
from precision_debug.protocols import Operator

from .engine.graph import key_of, read_graph
from .engine.stored import has_bytes_alone, read_numbers

__all__ = ["OpenVinoOperators", "fit_to_memory", "round_as_held"]

_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})


def round_as_held(value: Any, dtype: str) -> Any:
    """Return floats rounded to the type in which the engine holds them, in their own type; None where that is not
    known."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return array
    if dtype not in _FLOATS:
        return None
    narrow = narrow_type(dtype)
    return array if narrow == array.dtype else narrowing.round_values(array, narrow)


def fit_to_memory(new: Any, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return a value in the type and shape of the engine's own memory; None where it does not fit."""
    array = np.asarray(new)
    if array.shape != memory.shape:
        return None
    if array.dtype == memory.dtype:
        return array
    return narrow_values(array, memory.dtype) if memory.dtype.kind == "f" else array.astype(memory.dtype)


class OpenVinoOperators:
    """See protocols.Operators. By OpenVINO's own reference implementations, in its Python."""

    def __init__(self, model: Any) -> None:
        graph = read_graph(model)
        names = {key: value.name for key, value in graph.values.items()}
        self._ops: dict[str, Any] = {}
        constants, found = {}, []
        for op in model.get_ordered_ops():
            name, kind = str(op.get_friendly_name()), str(op.get_type_name())
            if kind == "Constant":
                constants[name] = read_numbers(op)
            if kind in ("Constant", "Parameter", "Result"):
                continue
            self._ops[name] = op
            read, made = (
                tuple(names.get(key_of(port), key_of(port)[0]) for port in ports)
                for ports in ([port.get_source_output() for port in op.inputs()], op.outputs())
            )
            found.append(Operator(name=name, op_type=kind, inputs=read, outputs=made))
        self.operators: Sequence[Operator] = tuple(found)
        self.constants: Mapping[str, Any] = constants

    def run(
        self, operator: Operator, values: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        import openvino

        op = self._ops[operator.name]
        if attributes or any(port.get_partial_shape().is_dynamic for port in op.outputs()):
            return None
        if op.get_type_name() == "Convert" and has_bytes_alone(op.input_value(0)):  # it takes none of these from numpy
            held = np.asarray(values[operator.inputs[0]])
            return {operator.outputs[0]: held.astype(op.get_element_type().to_dtype())}
        made = [openvino.Tensor(port.get_element_type(), port.get_shape()) for port in op.outputs()]
        try:
            ran = op.evaluate(made, [openvino.Tensor(np.asarray(values[name], order="C")) for name in operator.inputs])
        except Exception:
            return None  # what this operator does not take; the caller has other ways
        return {name: one.data for name, one in zip(operator.outputs, made, strict=True)} if ran else None
