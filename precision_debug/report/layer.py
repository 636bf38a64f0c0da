"""Which layer of the model a row belongs to, from the names that its exporter left."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..records import Row

__all__ = ["grouped", "layer_of"]

_NUMBERED = re.compile(r"^(?:[A-Za-z]+_?\d+[._])+")
_FEW = 8
"""Groups that a short table may have whatever the size of the groups."""

_MEMBERS = 5
"""Rows of a group, on average, at least."""


def layer_of(row: Row) -> tuple[str, ...]:
    """Return the path of modules around an operator, outermost first; () where the names tell of none.

    "/encoder/layer.0/fc/MatMul" is ("encoder", "layer.0", "fc")."""
    name = (row.node or row.name).strip("/")
    if "/" in name:
        return tuple(part for part in name.split("/")[:-1] if part)
    if "." in name:
        return tuple(part for part in name.split(".")[:-1] if part)
    numbered = _NUMBERED.match(name)
    return tuple(part for part in re.split(r"[._]", numbered[0]) if part) if numbered else ()


def grouped(rows: Sequence[Row]) -> list[str]:
    """One group a row: its path, cut so short that a group has several rows; "" for rows without a path."""
    paths = [layer_of(row) for row in rows]
    deepest = max(map(len, paths), default=0)
    most = max(_FEW, len(rows) // _MEMBERS)
    depth = next((d for d in range(deepest, 1, -1) if len({path[:d] for path in paths}) <= most), 1)
    return ["/".join(path[:depth]) for path in paths]
