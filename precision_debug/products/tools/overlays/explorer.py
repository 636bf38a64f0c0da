"""Node data for Google's Model Explorer: the relative L2 error of every node, coloured by its logarithm.

The file is one ``GraphNodeData`` of ai-edge-model-explorer (node_data_builder.py): "results" by node id and by name of
an output tensor, which is how its adapters name nodes. It is loaded with "Upload node data", onto the graph in view.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ....errors import OutputError
from ....report.model import Report
from .marks import choose_colour, iterate_marks

__all__ = ["BROKEN", "ENDING", "write"]

ENDING = ".json"
BROKEN = 3.4e38
"""Stands for what has no number: NaN or Inf in the target alone, shapes that differ. JSON holds no infinity."""


def write(report: Report, path: Path) -> None:
    """A node that gives several tensors shows the worst of them."""
    worst: dict[str, float] = {}
    for mark in iterate_marks(report):
        for key in filter(None, (mark.row.node, mark.row.name)):
            worst[key] = max(worst.get(key, 0.0), mark.error)
    if not worst:
        raise OutputError("no tensor was compared, so there is nothing to colour", hint="write it as .html or .xlsx")
    results: dict[str, Any] = {
        key: {"value": error if math.isfinite(error) else BROKEN, "bgColor": choose_colour(error)}
        for key, error in worst.items()
    }
    title = f"Rel L2, {report.target.mode} against {report.baseline.mode}"
    path.write_text(json.dumps({"results": results, "name": title}, indent=1, allow_nan=False), encoding="utf-8")
