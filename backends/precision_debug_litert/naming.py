"""What a .tflite file's tensors, types and operators are called here."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["dtype_of", "operator_type", "tensor_names"]


def tensor_names(tensors: Sequence[Any]) -> list[str]:
    """Return a name of each tensor that no other has: the file's own, with its number where it has none or shares
    one."""
    own = [bytes(tensor.name or b"").decode("utf-8", "replace") for tensor in tensors]
    taken: set[str] = set()
    found = []
    for number, name in enumerate(own):
        unique = name or f"tensor_{number}"
        while unique in taken or (unique != name and unique in own):
            unique = f"{unique}#{number}"
        taken.add(unique)
        found.append(unique)
    return found


@functools.cache
def _types() -> Mapping[int, str]:
    from ai_edge_litert import schema_py_generated as schema

    found = {code: name.lower() for name, code in vars(schema.TensorType).items() if isinstance(code, int)}
    return {code: {"string": "str"}.get(name, name) for code, name in found.items()}


def dtype_of(code: int) -> str:
    """Return numpy's name of a TensorType ("float32"); of those that numpy does not have, the file's."""
    return _types().get(code, f"type {code}")


@functools.cache
def _operators() -> Mapping[int, str]:
    from ai_edge_litert import schema_py_generated as schema

    return {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}


def operator_type(code: Any) -> str:
    """Return "CONV_2D": the schema's name of an operator code; the own name of a custom one."""
    number = max(int(code.builtinCode), int(code.deprecatedBuiltinCode))  # files before 2020 have the second alone
    if code.customCode:
        return bytes(code.customCode).decode("utf-8", "replace")
    return _operators().get(number, f"operator {number}")
