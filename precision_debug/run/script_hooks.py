"""Hooks that compare tensors in scripts of your own.

Both have Paddle's signature, ``hook(op_type, tensor_name, tensor)``::

    base = SaveBaseline()
    predictor_fp32.register_output_hook(base)
    ...                                        # run it
    check = AssertClose(base, atol=1e-3, rtol=1e-3)
    predictor_fp16.register_output_hook(check)
    ...                                        # run it on the same input
    check.report().to_excel("output.xlsx")"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import explain, numbers
from ..observe.hooks import CheckTarget, SaveBaseline
from ..observe.watch import Watched
from ..pairing.align import align
from ..protocols import Feeds
from ..reasons import Reason, say
from ..records import ModelFiles, RunSpec, Side, TensorMeta
from ..report.complete_table import make_complete_table
from ..report.model import Report
from ..report.sections import describe_machine, local_time

__all__ = ["AssertClose", "SaveBaseline"]

_NORM = re.compile(r"batch_?norm", re.IGNORECASE)


class AssertClose(CheckTarget):
    """Compares what it is shown with a SaveBaseline, and makes a report of it; see CheckTarget for the arguments."""

    def report(
        self, *, feeds: Feeds | None = None, baseline: Watched | None = None, target: Watched | None = None
    ) -> Report:
        """Return the table of everything seen so far, ordered and completed by what the target never showed.

        feeds, baseline, target: the inputs of both runs, and the predictors that ``watch`` gave and that are open yet:
        with them each operator is run alone, and the report has what it introduced, who did it and why. Without them
        these cells are blank: hooks alone do not tell what an operator reads.
        """
        found = report_of_hooks(self)
        explainable = feeds is not None and baseline is not None and target is not None
        return _explain_report(found, feeds or {}, baseline, target) if explainable and baseline and target else found


def _explain_report(found: Report, feeds: Feeds, baseline: Watched, target: Watched) -> Report:
    subject = explain.Subject(
        baseline=baseline.session, target=target.session, feeds=feeds, rows=found.rows,
        tensors=baseline.session.tensors, targets={meta.name: meta for meta in target.session.tensors},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        explanation, each = explain.explain(subject, level="full", folder=Path(folder))
    by_name = {item.name: item for item in each}
    rows = tuple(dataclasses.replace(row, introduced=by_name.get(row.name)) for row in found.rows)
    return dataclasses.replace(found, rows=rows, explanation=explanation)


def report_of_hooks(check: CheckTarget) -> Report:
    """Return a report of two hooks that somebody else's script drove."""
    base = check.baseline
    stats = dict(base.stats)
    shown = {row.name for row in check.rows}
    for name in base.store:
        array = base.store.get(name) if name not in shown else None
        if array is not None:
            stats[name] = numbers.describe(array)
    first, second = (
        _list_known_tensors(base.announced, base.tensors),
        _list_known_tensors(check.announced, check.tensors),
    )
    rows = make_complete_table(check.rows, align(first, second), stats=stats)
    spec = RunSpec(model=ModelFiles(), run_mode="hook", baseline="hook", tolerance=check.tolerance)
    notes = list(_warn_of_folded_norms(first, second)) if check.side is None else []
    if base.side is None or check.side is None:
        notes.append(say("hooks_only"))
    return Report(
        rows=rows,
        spec=spec,
        baseline=base.side or Side(mode="hook", backend="", model="", tensors=len(base.tensors)),
        target=check.side or Side(mode="hook", backend="", model="", tensors=len(check.tensors)),
        machine=describe_machine(),
        started=local_time(),
        notes=tuple(notes),
    )


def _list_known_tensors(announced: Sequence[TensorMeta], seen: Sequence[TensorMeta]) -> tuple[TensorMeta, ...]:
    """Return what a run announced, and what its hook was shown beyond that."""
    names = {meta.name for meta in announced}
    return (*announced, *(meta for meta in seen if meta.name not in names))


def _warn_of_folded_norms(first: Sequence[TensorMeta], second: Sequence[TensorMeta]) -> Iterator[Reason]:
    """Yield a warning where batch norms of one side are not operators of the other, as when folded into weights."""
    still = {meta.name for meta in second if _NORM.search(meta.op_type)}
    gone = [meta.name for meta in first if _NORM.search(meta.op_type) and meta.name not in still]
    if gone:
        yield say("norms_folded", count=len(gone), some=[*gone[:3], *("…" for _ in gone[3:4])])
