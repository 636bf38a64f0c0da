"""Rows that say nothing of an error: constants, copies, quantiser helpers, what was fused away. Pages fold them."""

from __future__ import annotations

from collections.abc import Mapping

from ..explain.operators import MOVE, plain_type
from ..numbers.precisions import QUANTISED
from ..reasons import Text
from ..records import Row, Status
from .words import inner, is_whole

__all__ = ["KINDS", "noise_of"]

KINDS: Mapping[str, Text] = {
    "fused": Text("fused away", "被融合"),
    "constant": Text("constants and the like", "常量等"),
    "copy": Text("copies", "副本"),
    "quantiser": Text("quantiser helpers", "量化辅助张量"),
}
"""What is folded, in words that follow a number."""

_COPIES = frozenset({"same_as", "repeats", "taken", "dropped"})
"""What a reason is called whose tensor has its numbers in another row."""

_SAME = 1e-3
"""How far the error of a tensor that is only moved may be from its source's."""


def noise_of(row: Row) -> str:
    """A key of ``KINDS``, or "" where the row is worth a look; a final output, a failure and a NaN always are."""
    if row.is_output or row.status in (Status.FAIL, Status.INCONCLUSIVE):
        return ""
    if row.comparison is not None:
        growth = row.error_growth
        return "copy" if plain_type(row.op_type) in MOVE and (growth is None or abs(growth - 1) < _SAME) else ""
    if row.status is Status.FUSED_AWAY:
        return "fused"
    if is_whole(row.reason):
        return "copy" if inner(row.reason).code.rpartition(".")[2] in _COPIES else "constant"
    return "quantiser" if QUANTISED.search(row.op_type) or QUANTISED.search(row.target_op_type) else ""
