"""A copy of the baseline's ONNX model for Netron: every node carries its errors as metadata, a culprit also in words.

Weights that lie beside the model are not copied: Netron shows the graph without them, and a copy in the model's own
folder runs as the model does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ....errors import OutputError
from ....onnx.graph import iterate_graphs
from ....onnx.model import map_file, parse_model
from ....report.blame import describe_culprit, named_culprits
from ....report.model import Report
from ....safety.untrusted import make_visible
from .marks import Mark, iterate_marks

__all__ = ["ENDING", "PREFIX", "write"]

ENDING = ".onnx"
PREFIX = "pd."
"""How the keys begin, so that a model's own metadata stay apart. Short: Netron shows 14 characters of a key."""

_SAID = "precision_debug: "
"""How our lines of a node's description begin."""


def write(report: Report, path: Path) -> None:
    """Raises OutputError where the model is not an .onnx file, is gone, or none of its tensors was compared."""
    model = (report.spec.baseline_model or report.spec.model).path or ""
    if not model.lower().endswith(".onnx"):
        raise OutputError(
            f"{model or 'the model'} is not an .onnx file, so Netron gets no copy of it", hint="write .html"
        )
    if not Path(model).is_file():
        raise OutputError("the model is not there any more", where=model, hint="run this where the model lies")
    proto = parse_model(map_file(Path(model)), model)
    found = {mark.row.name: mark for mark in iterate_marks(report)}
    blamed = {one.name: describe_culprit(report, one).en for one in named_culprits(report)}
    placed = 0
    for graph in iterate_graphs(proto.graph):
        for node in graph.node:
            placed += _tell(node, [found[name] for name in node.output if name in found], blamed)
    if not placed:
        raise OutputError("none of its tensors was compared", where=model, hint="write the report as .html")
    _add_report_metadata(proto, report)
    path.write_bytes(proto.SerializeToString())


def _tell(node: Any, its: list[Mark], blamed: dict[str, str]) -> int:
    """Write a node's marks; how many there were. Of several outputs each key ends in the output's name."""
    for mark in its:
        of = "" if len(its) == 1 else f".{mark.row.name}"
        _set(node.metadata_props, {f"{PREFIX}{key}{of}": value for key, value in mark.figures.items()})
    said = [_describe_mark(mark, blamed) for mark in its]
    if its:
        kept = [line for line in node.doc_string.splitlines() if not line.startswith(_SAID)]
        node.doc_string = "\n".join([*kept, *said])
    return len(its)


def _describe_mark(mark: Mark, blamed: dict[str, str]) -> str:
    error = f"Rel L2 {mark.error:.3g}" if math.isfinite(mark.error) else "broken: NaN, Inf or another shape"
    return make_visible(f"{_SAID}{mark.row.name}: {mark.row.status}, {error}. {blamed.get(mark.row.name, '')}".rstrip())


def _add_report_metadata(proto: Any, report: Report) -> None:
    metadata = {"target": report.target.mode, "baseline": report.baseline.mode, "verdict": str(report.verdict)}
    _set(proto.metadata_props, {PREFIX + key: value for key, value in metadata.items()})


def _set(props: Any, values: dict[str, str]) -> None:
    """Replace what an earlier copy left, and keep everything else."""
    kept: Iterable[Any] = [copy.deepcopy(one) for one in props if one.key not in values]
    del props[:]
    props.extend(kept)
    for key, value in values.items():
        props.add(key=key, value=make_visible(value))
