"""Whether a side ran in the precision that its mode promises, as its tensors and its engine's layers show it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from ..inspector import list_ran_instead
from ..numbers.number_types import QUANTISED, Precision, find_promise
from ..records import Doubt, Row, Status
from .claim import JudgedReport

__all__ = ["doubt_not_fp32", "doubt_unseen_precision"]

_UNSEEN = 2.0**-6
"""A whole tensor that was rounded to a precision is off by about a third of one rounding; below this part of one no
tensor can have been."""

_NOISE = 2.0**-22
"""What float32 itself may leave. Where only the outputs were seen, which may be rounded away by a softmax, less than
this is asked for before no trace is no trace."""

_NAMES = 3


def doubt_unseen_precision(report: JudgedReport) -> Iterator[Doubt]:
    """Yield a doubt where a mode promises a precision of which no tensor shows a trace, whichever engine it is."""
    mode, precision = report.target.mode, report.target.precision
    promise = find_promise(precision)
    if report.target.simulation and not _has_no_float(report):
        return  # what rounds there is this tool's own: numbers that the type holds as they are leave no trace
    if not (promise.narrow and promise.rounding) or precision == report.baseline.precision:
        return
    if any(_ran_in_precision(promise, row) for row in report.rows):
        return
    instead = list_ran_instead(report.layers, promise.short) if promise.shown_by else None
    if instead:
        yield Doubt(code="precision_not_run", values={"precision": promise.short, "detail": instead})
    if instead is not None:
        return
    errors = {row.index: error for row in report.compared if (error := _error_of_float_row(row)) is not None}
    if report.failure or not (errors or _has_no_float(report)):
        return
    inside = any(row.index in errors and not row.is_output and row.inputs for row in report.compared)
    largest = max(errors.values(), default=0.0)
    if largest < (promise.rounding * _UNSEEN if inside else _NOISE):
        yield Doubt(code="precision_unseen", values={
            "mode": mode, "precision": promise.short, "error": largest, "rounding": promise.rounding,
        })  # fmt: skip


def _has_no_float(report: JudgedReport) -> bool:
    """Return whether the whole model, not only what was marked of it, is of whole numbers, flags and text."""
    spec = report.spec
    if not report.compared or spec.marks or spec.marks_between or spec.marks_from_inspector or spec.fused_only:
        return False
    sides = [(row.comparison.base, row.comparison.target) if row.comparison else (row.base, row.target)
             for row in report.rows]  # fmt: skip
    return not any(side is not None and "float" in side.dtype for pair in sides for side in pair)


def _error_of_float_row(row: Row) -> float | None:
    comparison = row.comparison
    if comparison is None or not comparison.base.elements or "float" not in comparison.base.dtype:
        return None
    error = comparison.relative_l2
    return None if error is None or math.isnan(error) else error


def _ran_in_precision(promise: Precision, row: Row) -> bool:
    """Return whether the engine's own tensor is of the precision, or comes from an operator that quantises."""
    whole = promise.computes == "int8"
    if whole and QUANTISED.search(row.target_op_type or ""):
        return True
    comparison = row.comparison
    target = comparison.target.dtype if comparison is not None else row.target.dtype if row.target is not None else ""
    base = comparison.base.dtype if comparison is not None else ""
    return target.startswith(promise.shown_by) and (not whole or target != base)


_FORMS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def doubt_not_fp32(report: JudgedReport) -> Iterator[Doubt]:
    """Yield a doubt for each side that promises float32 and computes narrower or quantised tensors."""
    for side, of_base in ((report.baseline, True), (report.target, False)):
        if side.precision != "float32":
            continue
        narrow: Counter[str] = Counter()
        quantised: Counter[str] = Counter()
        for row in report.rows:
            comparison = row.comparison
            stats = (row.base if of_base else row.target) if comparison is None else (
                comparison.base if of_base else comparison.target
            )  # fmt: skip
            forms = of_base and row.op_type in _FORMS and row.target_op_type  # of what an operator computed, as it is
            kind = row.target_op_type if forms or not of_base else row.op_type
            if stats is not None and stats.dtype.startswith(("float16", "bfloat16", "float8")):
                narrow[stats.dtype] += 1
            if QUANTISED.search(kind) and (of_base is False or row.status is not Status.UNMATCHED):
                quantised[kind] += 1
        found = [f"{dtype} ({number:,})" for dtype, number in narrow.most_common()]
        found += [f"{kind} ({number:,})" for kind, number in quantised.most_common(_NAMES)]
        if found:
            yield Doubt(code="not_fp32", values={"mode": side.mode, "detail": ", ".join(found)})
