"""What a tensor was put together from: the sizes along an axis, read from the graph that a session lists.

Boxes and scores that one Concat packs are two quantities to whoever reads the output, and are judged apart. Between the
Concat and the output only operators may stand that keep quantities apart: that move elements, or work on each alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..records import Shape, TensorMeta

__all__ = ["joins_before", "packed_parts"]

_JOINS = frozenset({"concat", "cat", "concatenate", "concatenation", "concatv2", "stack", "pack", "hstack"})
_KEEPS = frozenset({
    "add", "assign", "cast", "clip", "clone", "contiguous", "convert", "dequantize", "dequantizelinear",
    "dequantize_linear", "div", "divide", "expand", "fakequantize", "flatten", "identity", "mul", "multiply", "permute",
    "quantize", "quantizelinear", "quantize_linear", "relu", "reshape", "reshape2", "scale", "sigmoid", "squeeze",
    "squeeze2", "sub", "subtract", "t", "to", "transpose", "transpose2", "unsqueeze", "unsqueeze2", "view",
})  # fmt: skip
_OVERLOADS = frozenset({"default", "int", "tensor", "self", "scalar", "dim"})
"""What torch appends to an operator's name."""
_FAR = 24
"""Operators that are walked back, at most."""


def packed_parts(
    name: str, metas: Mapping[str, TensorMeta], shape_of: Callable[[str], Shape | None]
) -> dict[int, tuple[int, ...]]:
    """Return the sizes of what was joined, by the length of the joined axis; {} where none was, or no shapes are known.

    metas: of one session, by name. shape_of: a tensor's shape as it was seen. Joined axes are known by their length:
    a Transpose moves them, a Reshape of others leaves it.
    """
    found: dict[int, tuple[int, ...]] = {}
    for join in joins_before(name, metas):
        sizes = _sizes(shape_of(join), [shape_of(one) for one in metas[join].inputs])
        if sizes and sum(sizes) not in found:
            found[sum(sizes)] = sizes
    return found


def joins_before(name: str, metas: Mapping[str, TensorMeta]) -> Iterator[str]:
    """Yield the joined tensors (of a concatenation, say) that a tensor comes from, the nearest first.

    Where those that are joined are themselves joined along another axis, all are alike, and the first is followed."""
    for _ in range(_FAR):
        meta = metas.get(name)
        if meta is None or not meta.inputs:
            return
        kind = _kind(meta.op_type)
        if kind in _JOINS:
            yield name
        elif kind not in _KEEPS or len(meta.inputs) != 1:
            return
        name = meta.inputs[0]


def _kind(op_type: str) -> str:
    last = re.split(r"::|[.]", op_type.lower())
    return next((part for part in reversed(last) if part not in _OVERLOADS), "").strip("_")


def _sizes(whole: Shape | None, parts: Sequence[Shape | None]) -> tuple[int, ...]:
    known = [part for part in parts if part is not None]
    if whole is None or len(known) < len(parts) or len(parts) < 2:
        return ()
    if all(len(part) == len(whole) - 1 for part in known):  # a Stack
        return (1,) * len(parts)
    for axis, size in enumerate(whole):
        if all(len(part) == len(whole) and _rest(part, axis) == _rest(whole, axis) for part in known):
            sizes = tuple(part[axis] for part in known)
            if sum(sizes) == size:
                return sizes
    return ()


def _rest(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]
