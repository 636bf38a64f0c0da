"""Whole numbers that are floats, rounded: pixels of a picture, say.

What they are off by is the error of a number. A class, an index or a truth value that is another one is another answer,
however near: what compares, chooses or counts makes no rounded numbers, and nor does what is computed of these alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..records import TensorMeta
from .operators import MOVE, plain_type, words

__all__ = ["rounded_numbers"]

_ROUND = words("""
    Round Floor Ceil Ceiling Clip Min Max Relu round floor ceil trunc clamp clip relu minimum maximum Minimum Maximum
    Clamp
""")
"""They make whole numbers of floats, or keep numbers within limits."""

_PART_BY_PART = words("""
    Mul Add Sub Div Neg Abs mul add sub div rsub neg abs multiply subtract divide elementwise_mul elementwise_add
    elementwise_sub elementwise_div scale Multiply Subtract Divide
""")
"""Arithmetic that leaves a class what it is: twice a class is a class."""


def rounded_numbers(tensors: Mapping[str, TensorMeta]) -> frozenset[str]:
    """The names of those, of a graph's tensors by name; a tensor whose type is not known is none."""
    return frozenset(name for name, meta in tensors.items() if _whole(meta) and _is_rounded(name, tensors))


def _whole(meta: TensorMeta) -> bool:
    return meta.dtype.startswith(("int", "uint"))


def _is_rounded(name: str, tensors: Mapping[str, TensorMeta]) -> bool:
    waiting, seen, made = [name], {name}, False
    while waiting:
        meta = tensors.get(waiting.pop())
        if meta is None or meta.op_type == "Constant":
            continue  # a limit, a factor
        is_float, kind = "float" in meta.dtype, plain_type(meta.op_type)
        if kind in MOVE or kind in _ROUND or (is_float and kind in _PART_BY_PART):
            waiting += [one for one in meta.inputs if one not in seen]
            seen |= {*meta.inputs}
        elif not is_float:
            return False
        else:
            made = True
    return made
