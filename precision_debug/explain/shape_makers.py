"""Tensors that decide other tensors' shapes: rounded like the rest, they would make another model of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..records import Row, TensorMeta
from .operators import plain_type, words

__all__ = ["shape_makers"]

_BY_SHAPE = words("""
    Range arange range RANGE Resize Upsample Interpolate interpolate Expand expand expand_v2 Tile tile Reshape reshape
    reshape2 Slice slice StridedSlice strided_slice Pad pad pad3d ConstantOfShape full Broadcast TopK topk OneHot
    one_hot Split split BROADCAST_TO FILL TILE RESHAPE SLICE STRIDED_SLICE PAD PADV2 RESIZE_BILINEAR
    RESIZE_NEAREST_NEIGHBOR linspace eye EyeLike
""")
"""Operators whose results' shapes follow from values that they read."""

_FEW = 16
"""Elements up to which a tensor may be such values: dimensions, scales, limits."""


def shape_makers(tensors: Sequence[TensorMeta], row_of: Mapping[str, Row]) -> Collection[str]:
    """Names of small tensors that such operators read, and of small ones that these are made from."""
    meta_of = {meta.name: meta for meta in tensors}

    def small(name: str) -> bool:
        row = row_of.get(name)
        if row is not None and row.comparison is not None:
            return row.comparison.base.elements <= _FEW
        count = 1
        for size in meta_of[name].shape or ():
            count *= size if isinstance(size, int) else _FEW + 1
        return count <= _FEW

    waiting = [
        name for meta in tensors if plain_type(meta.op_type) in _BY_SHAPE for name in meta.inputs if name in meta_of
    ]  # fmt: skip
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found and small(name):
            found.add(name)
            waiting += [source for source in meta_of[name].inputs if source in meta_of]
    return found
