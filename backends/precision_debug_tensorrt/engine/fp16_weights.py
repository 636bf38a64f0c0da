"""What happens to a model's weights in FP16: which become subnormal, zero or infinite, per node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.numbers.number_types import NUMBER_TYPES
from precision_debug.reasons import Reason, list_some

from ..reasons import say
from .messages import WeightIssue

__all__ = ["WeightCount", "builder_lines", "count_weights"]

_FLOAT16 = NUMBER_TYPES["float16"]


@dataclass(frozen=True, kw_only=True)
class WeightCount:
    """Elements of a node's FP32 weights. subnormal: 2^-24 <= |w| < 2^-14. lost: 0 < |w| < 2^-24. over: |w| > 65504."""

    node: str
    elements: int
    subnormal: int
    lost: int
    over: int

    @property
    def text(self) -> str:
        """For the report; "" where every element is normal in FP16."""
        parts = [(self.over, "above 65504"), (self.lost, "below 2^-24"), (self.subnormal, "subnormal")]
        said = ", ".join(f"{count} {what}" for count, what in parts if count)
        return f"{said} of {self.elements}" if said else ""


def count_weights(graph: Any, folder: Path) -> dict[str, WeightCount]:
    """Node name to the count over its weights, for nodes where some element is not normal in FP16.

    graph: ONNX graph whose external weights lie in ``folder``.
    """
    from onnx import TensorProto, numpy_helper

    counts: dict[str, tuple[int, int, int, int]] = {}
    for item in graph.initializer:
        if item.data_type == TensorProto.FLOAT:
            counts[item.name] = _count(numpy_helper.to_array(item, base_dir=str(folder)))
    found = {}
    for node in graph.node:
        own = [counts[name] for name in node.input if name in counts]
        if own and any(sum(count[1:]) for count in own):
            elements, subnormal, lost, over = (sum(part) for part in zip(*own, strict=True))
            found[node.name] = WeightCount(node=node.name, elements=elements, subnormal=subnormal, lost=lost, over=over)
    return found


def builder_lines(issues: Sequence[WeightIssue], counts: Mapping[str, WeightCount]) -> list[Reason]:
    """Notes for the report: what the builder said, and which nodes have such weights in the model itself."""
    lines = []
    for issue in issues:
        what = issue.what if issue.weights else issue.what.rstrip(".")
        lines.append(
            say("weights_affected_named", count=issue.count, what=what, names=list_some(issue.weights, 8))
            if issue.weights
            else say("weights_affected", count=issue.count, what=what)
        )
    if counts:
        worst = sorted(counts.values(), key=lambda item: (item.over, item.lost, item.subnormal), reverse=True)
        nodes = list_some([f"{item.node} ({item.text})" for item in worst], 8)
        lines.append(say("weights_do_not_fit", count=len(counts), nodes=nodes))
    return lines


def _count(array: np.ndarray[Any, Any]) -> tuple[int, int, int, int]:
    size = np.abs(array)
    with np.errstate(invalid="ignore"):
        lost = int(np.count_nonzero((size > 0) & (size < _FLOAT16.smallest)))
        subnormal = int(np.count_nonzero((size >= _FLOAT16.smallest) & (size < _FLOAT16.smallest_normal)))
        over = int(np.count_nonzero(size > _FLOAT16.largest))
    return array.size, subnormal, lost, over
