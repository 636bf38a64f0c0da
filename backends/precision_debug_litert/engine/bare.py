"""A file in LiteRT alone, with nothing of this tool in its way: for whose crash it was (see protocols.BareRunner)."""

from __future__ import annotations

from typing import Any

import numpy as np

from precision_debug.protocols import Feeds

from ..modes import Recipe
from .flat import Flat

__all__ = ["run_bare"]


def run_bare(path: str, recipe: Recipe, feeds: Feeds) -> bool:
    """Return whether it could be tried: not of the float file that is made of a quantised one. Quantised inputs get the
    integers that the real numbers stand for."""
    if recipe.widened:
        return False
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_REF if recipe.reference else OpResolverType.AUTO
    interpreter = Interpreter(path, experimental_op_resolver_type=kind)
    inputs = {one["name"]: one for one in interpreter.get_input_details()}
    if set(inputs) != set(feeds):
        return False
    fed = {name: _as_the_file_has_it(one, feeds[name], path) for name, one in inputs.items()}
    if any(fed[name].dtype != one["dtype"] for name, one in inputs.items()):
        return False
    for name, one in inputs.items():
        interpreter.resize_tensor_input(one["index"], fed[name].shape)
    interpreter.allocate_tensors()
    for name, one in inputs.items():
        interpreter.set_tensor(one["index"], fed[name])
    interpreter.invoke()
    return True


def _as_the_file_has_it(one: Any, value: Any, path: str) -> Any:
    if value.dtype == one["dtype"] or not one["quantization_parameters"]["scales"].size:
        return value
    return Flat.read(path).real_numbers().codes(one["name"], value, np.zeros(value.shape, one["dtype"]))
