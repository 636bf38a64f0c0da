"""Text, scalars and histograms for TensorBoard: the sentence, the error along execution order, values of culprits.

A step is a row's place in the execution order, so that each error is one curve; what is drawn of a tensor (culprits,
the worst) has histograms of both sides' values and of the error's size. Needs the package tensorboard, not tensorflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from ....errors import OutputError
from ....numbers.told import Bins
from ....report.columns import COLUMNS
from ....report.lead import lead_sentences
from ....report.model import Report
from ....safety.untrusted import make_visible
from .marks import iterate_marks

__all__ = ["ENDING", "write"]

ENDING = ".tfevents"
"""TensorBoard reads the files of a folder in whose names this stands."""


def write(report: Report, path: Path) -> None:
    """Raises OutputError where tensorboard is not installed, or no tensor was compared."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise OutputError(f"tensorboard cannot be loaded: {error}", hint="pip install tensorboard") from error
    scalars = [*_encode_scalars(report)]
    if not scalars:
        raise OutputError("no tensor was compared, so there is no curve", hint="write it as .html or .xlsx")
    when = _to_seconds(report.started)
    with path.open("wb") as file:
        records = RecordWriter(file)
        records.write(Event(wall_time=when, file_version="brain.Event:2").SerializeToString())
        for step, summary in [_encode_sentences(report), *scalars, *_encode_histograms(report)]:
            records.write(Event(wall_time=when, step=step, summary=summary).SerializeToString())
        records.flush()


def _to_seconds(started: str) -> float:
    """Since 1970, of a report's ISO date; 0 where it has none."""
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError:
        return 0.0


def _encode_sentences(report: Report) -> tuple[int, Any]:
    """Return what every format begins with."""
    from tensorboard.plugins.text.summary_v2 import text_pb

    head = f"**{report.verdict}**: {report.target.mode} against {report.baseline.mode}"
    text = "\n\n".join([*(str(text) for text in lead_sentences(report)), head])
    return 0, text_pb("precision_debug", make_visible(text, keep="\n"))


def _encode_scalars(report: Report) -> Iterator[tuple[int, Any]]:
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb

    helps = {column.title: f"{column.help} A step is a place in the execution order." for column in COLUMNS}
    for mark in iterate_marks(report):
        row, introduced = mark.row, mark.row.introduced
        found = {
            "Rel L2": mark.error,
            "Introduced Rel L2": introduced.rel_l2 if introduced is not None else None,
            "Rounding Units": introduced.units if introduced is not None else None,
            "Error Growth": row.error_growth,
        }
        for title, value in found.items():
            if value is not None:
                yield row.index, scalar_pb(f"error/{title}", float(value), helps[title])


def _encode_histograms(report: Report) -> Iterator[tuple[int, Any]]:
    steps = {row.name: row.index for row in report.rows}
    for portrait in report.portraits:
        for side, bins in (("baseline", portrait.base), ("target", portrait.target), ("error, log10", portrait.errors)):
            if bins is not None and any(bins.counts):  # all of a side may be NaN
                yield steps.get(portrait.name, 0), _encode_histogram(make_visible(f"{portrait.name}/{side}"), bins)


def _encode_histogram(tag: str, bins: Bins) -> Any:
    """TensorBoard's own form: left, right and count of each bucket, finite numbers."""
    import numpy as np
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.histogram.metadata import create_summary_metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    buckets = [
        (left, right, count)
        for left, right, count in zip(bins.edges, bins.edges[1:], bins.counts, strict=False)
        if math.isfinite(left) and math.isfinite(right)
    ]
    summary = Summary()
    tensor = make_tensor_proto(np.asarray(buckets, dtype=np.float64).reshape(-1, 3))
    summary.value.add(tag=tag, metadata=create_summary_metadata(None, None), tensor=tensor)
    return summary
