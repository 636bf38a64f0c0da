"""Names: stable ones for PIR values, and what the names in Paddle's hooks mean.

A PIR value has no name of its own; a predictor makes one up that differs from process to process. Ours is
``operator_index@layer/path``: the index counts the operators of that type in program order, ".1" marks a second output.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator

__all__ = [
    "FETCH", "ONE_OUTPUT", "Namer", "carries", "fetch_name", "instruction", "kernel", "layer_names", "plain_type",
    "works_in_place",
]  # fmt: skip

FETCH = "precision_debug/"
"""What the names of our own fetches in a PIR program begin with."""

ONE_OUTPUT = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "dropout", "sync_batch_norm"})
"""Operators whose outputs beyond the first are statistics, or only training reads them."""

_DIALECT = re.compile(r"^(?:\w+_op|\d+|builtin|cf)\.")
_CARRIERS = frozenset({
    "combine", "data", "dequantize", "feed", "fetch", "full", "full_int_array", "memcpy", "memcpy_d2h", "memcpy_h2d",
    "onednn_to_paddle_layout", "quantize", "shadow_feed", "shadow_output", "share_data", "transfer_layout",
})  # fmt: skip


class Namer:
    """Gives each operator of a PIR program the next name of its type."""

    def __init__(self) -> None:
        self._count: collections.Counter[str] = collections.Counter()

    def name(self, op_type: str, layer: str) -> str:
        """op_type: plain. layer: the layer path of the operator, "" where it has none."""
        number = self._count[op_type]
        self._count[op_type] += 1
        return f"{op_type}_{number}" + (f"@{layer}" if layer else "")


def layer_names(paths: Iterable[str]) -> dict[str, str]:
    """Layer paths to those that the same layers have in the first export of a process.

    Paddle counts layers for as long as the process lives ("Linear", "Linear_1", …), so a model that is exported twice
    has two sets of paths. Of each class under one parent the lowest number becomes the first.
    """
    known = list(dict.fromkeys(paths))
    lowest: dict[tuple[str, str], int] = {}
    for path in known:
        for parent, kind, number in _parts(path):
            lowest[parent, kind] = min(number, lowest.get((parent, kind), number))

    def counted(parent: str, kind: str, number: int) -> str:
        left = number - lowest[parent, kind]
        return f"{kind}_{left}" if left else kind

    return {path: "/".join(counted(*part) for part in _parts(path)) for path in known}


def _parts(path: str) -> Iterator[tuple[str, str, int]]:
    """Yield each layer of a path: the path of its parent, its class, and its number, 0 for the first."""
    parent = ""
    for part in path.split("/"):
        match = re.fullmatch(r"(.+?)_([1-9]\d*)", part)
        yield (parent, match[1], int(match[2])) if match else (parent, part, 0)
        parent = f"{parent}/{part}"


def fetch_name(name: str) -> str:
    """Return the name under which a PIR predictor hands out a value that was fetched for us."""
    return FETCH + name


def plain_type(op_type: str) -> str:
    """Return "pd_op.relu_:5" is "relu": without dialect, instruction number and the mark of an in-place operator."""
    text = _DIALECT.sub("", op_type.rpartition(":")[0] if re.search(r":\d+$", op_type) else op_type)
    return text.rstrip("_") or text


def kernel(op_type: str) -> str:
    """Return what is compared to see whether marks changed the graph: the type without number and in-place mark."""
    text = op_type.rpartition(":")[0] if re.search(r":\d+$", op_type) else op_type
    return text.rstrip("_")


def instruction(op_type: str) -> str:
    """Return "pd_op.relu_:5" is "pd_op.relu:5": type and number, the same whether it works in place or not."""
    kind, _, number = op_type.rpartition(":")
    return f"{kind.rstrip('_')}:{number}" if kind else op_type


def carries(op_type: str) -> bool:
    """Return whether an operator only moves a tensor into another place, layout or type."""
    return plain_type(op_type) in _CARRIERS


def works_in_place(op_type: str) -> bool:
    """Return whether a PIR operator writes over its input: "pd_op.relu_:5" does."""
    return (op_type.rpartition(":")[0] or op_type).endswith("_")
