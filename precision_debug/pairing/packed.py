"""What a tensor was put together from: the sizes along an axis, read from the graph that a session lists.

Boxes and scores that one Concat packs are two quantities to whoever reads the output, and are judged apart; so are the
few columns of a layer that gives metres, angles and speeds, each by weights of its own. Between the Concat, or the
layer, and the output only operators may stand that keep quantities apart: that move elements, or work on each alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..records import Shape, TensorMeta

__all__ = ["find_packed_parts", "iterate_joins_before"]

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
_LAYERS = frozenset({
    "addmm", "fc", "fully_connected", "fullyconnected", "fusedmatmul", "gemm", "linear", "matmul", "matmul_v2", "mm",
})  # fmt: skip
"""Layers whose columns, the last axis, have weights of their own."""
_CONVOLUTIONS = frozenset({"conv", "conv1d", "conv2d", "conv3d", "convolution", "fusedconv"})
"""The same along axis 1."""
FEW = 16
"""Columns of a layer up to which each is a quantity: more are features, or classes, of one kind. Boxes in space have 7
to 10, what moves a robot up to some more."""


def find_packed_parts(
    name: str, metas: Mapping[str, TensorMeta], shape_of: Callable[[str], Shape | None]
) -> dict[int, tuple[int, ...]]:
    """Return the sizes of what was joined, by the length of the joined axis; {} where none was, or no shapes are known.

    metas: of one session, by name. shape_of: a tensor's shape as it was seen. Joined axes are known by their length:
    a Transpose moves them, a Reshape of others leaves it.
    """
    found: dict[int, tuple[int, ...]] = {}
    for join in iterate_joins_before(name, metas):
        sizes = _sizes_along(shape_of(join), [shape_of(one) for one in metas[join].inputs])
        if sizes and sum(sizes) not in found:
            found[sum(sizes)] = sizes
    return found or _find_columns(name, metas, shape_of)


def _find_columns(
    name: str, metas: Mapping[str, TensorMeta], shape_of: Callable[[str], Shape | None]
) -> dict[int, tuple[int, ...]]:
    """Return the few columns of the layer that a tensor comes from; {} where it has many, or none of its own."""
    layer = next(
        (one for one in _walk_back(name, metas) if _kind_of(metas[one].op_type) in _LAYERS | _CONVOLUTIONS), ""
    )
    shape, kind = shape_of(layer) if layer else None, _kind_of(metas[layer].op_type) if layer else ""
    if shape is None or len(shape) < 2 or len(metas[layer].inputs) != 1:
        return {}
    many = shape[1 if kind in _CONVOLUTIONS else -1]
    return {many: (1,) * many} if 1 < many <= FEW else {}


def iterate_joins_before(name: str, metas: Mapping[str, TensorMeta]) -> Iterator[str]:
    """Yield the joined tensors (of a concatenation, say) that a tensor comes from, the nearest first.

    Where those that are joined are themselves joined along another axis, all are alike, and the first is followed."""
    return (one for one in _walk_back(name, metas) if _kind_of(metas[one].op_type) in _JOINS)


def _walk_back(name: str, metas: Mapping[str, TensorMeta]) -> Iterator[str]:
    """Yield a tensor and what it comes from by operators that keep quantities apart, and then the one that does not."""
    for _ in range(_FAR):
        meta = metas.get(name)
        if meta is None or not meta.inputs:
            return
        yield name
        kind = _kind_of(meta.op_type)
        if kind not in _JOINS and (kind not in _KEEPS or len(meta.inputs) != 1):
            return
        name = meta.inputs[0]


def _kind_of(op_type: str) -> str:
    last = re.split(r"::|[.]", op_type.lower())
    return next((part for part in reversed(last) if part not in _OVERLOADS), "").strip("_")


def _sizes_along(whole: Shape | None, parts: Sequence[Shape | None]) -> tuple[int, ...]:
    known = [part for part in parts if part is not None]
    if whole is None or len(known) < len(parts) or len(parts) < 2:
        return ()
    if all(len(part) == len(whole) - 1 for part in known):  # a Stack
        return (1,) * len(parts)
    for axis, size in enumerate(whole):
        if all(len(part) == len(whole) and _without_axis(part, axis) == _without_axis(whole, axis) for part in known):
            sizes = tuple(part[axis] for part in known)
            if sum(sizes) == size:
                return sizes
    return ()


def _without_axis(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]
