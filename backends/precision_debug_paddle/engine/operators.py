"""What a program says of each operator: its attributes, and the constants that it reads. Read without Paddle, but for
the names of numbers among these."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np

from precision_debug.errors import ModelError
from precision_debug.numbers.narrowing import narrow_type, round_values
from precision_debug.records import Operator

from ..model import Model
from ..naming import plain_type
from .framework import import_paddle
from .onnx_export import weights_of
from .pir_program import PirProgram

__all__ = ["Operators"]

Array = np.ndarray[Any, Any]

_SAY_NOTHING = frozenset({
    "dtype", "name", "op_callstack", "op_device", "op_namescope", "op_role", "op_role_var", "persistable", "place",
    "stop_gradient", "struct_name", "with_quant_attr",
})  # fmt: skip
"""Attributes that do not tell what an operator computes."""


class Operators:
    """By the names of the program's values. Nothing is read before the first question."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def get(self, name: str) -> Operator | None:
        """See protocols.Replacer.operator."""
        return self._operators.get(name) or self._operators.get(_name_operator(name))

    def held(self, name: str, value: Any) -> Any:
        """Return what an engine that keeps the program's types holds of an array; None where the program does not
        say."""
        array = np.asarray(value)
        dtype = self._types.get(name, "")
        if array.dtype.kind not in "fV" or dtype == array.dtype.name:
            return array
        known = narrow_type(dtype) if dtype in {"bfloat16", "float16", "float32"} else None
        return None if known is None else round_values(array, known)

    @functools.cached_property
    def _types(self) -> dict[str, str]:
        return {value.name: value.dtype for value in self._model.program.values}

    @functools.cached_property
    def _weights(self) -> dict[str, Array]:
        try:
            return weights_of(self._model)
        except ModelError:
            return {}

    @functools.cached_property
    def _operators(self) -> dict[str, Operator]:
        program: Any = self._model.program
        numbers = program.scalars() if isinstance(program, PirProgram) else {}
        found = {}
        for name, kind, reads, attributes in program.reading():
            parameters = {item: self._weights[item] for item in reads if item in self._weights}
            for place, (values, dtype) in numbers.get(name, {}).items():
                told = self._inputs.get(kind, ())
                which = told[place] if place < len(told) else f"input {place}"
                parameters[f"{name}, {which}"] = np.asarray(values, dtype)
            kept = {key: value for key, value in attributes.items() if key not in _SAY_NOTHING}
            found[name] = Operator(op_type=kind, attributes=kept, parameters=parameters)
        return found

    @functools.cached_property
    def _inputs(self) -> dict[str, list[str]]:
        """Names of what operators read, by type, as Paddle's own definitions have them."""
        paddle, found = import_paddle(), dict[str, list[str]]()
        program = paddle.static.Program()
        with contextlib.suppress(ValueError, RuntimeError):  # another version's file
            paddle.base.core.deserialize_pir_program(str(self._model.file), program)
        for one in program.global_block().ops:
            with contextlib.suppress(ValueError):  # none: a parameter, a branch, an operator of the user's
                found[plain_type(one.name())] = one.get_input_names()
        return found


def _name_operator(name: str) -> str:
    """Return a PIR operator as ``reading`` names it: "topk_0" of "topk_0.1@Net"."""
    return name.partition("@")[0].partition(".")[0]
