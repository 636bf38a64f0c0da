"""Why a report in which nothing is out of tolerance may still prove little, as codes, and in two languages.

A session tells of itself what did not run as it was asked for (``doubts``); the rest follows from the rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from ..inspector import ran_instead
from ..numbers.judge import HIDDEN
from ..numbers.precisions import QUANTISED, Precision, promised
from ..reasons import Plain, Text, as_reason, same
from ..records import Doubt, Row, Status
from .coverage import ENOUGH, coverage
from .figures import count, figure, percent, sufficient
from .judged import Judged
from .words import sentence, wording

__all__ = ["decides", "doubts", "worded"]

_UNSEEN = 2.0**-6
"""A whole tensor that was rounded to a precision is off by about a third of one rounding; below this part of one no
tensor can have been."""

_NOISE = 2.0**-22
"""What float32 itself may leave. Where only the outputs were seen, which may be rounded away by a softmax, less than
this is asked for before no trace is no trace."""

_NAMES = 3


def doubts(report: Judged) -> tuple[Doubt, ...]:
    """Everything that weakens the report, the weightiest first; none is there twice."""
    kept: list[Doubt] = []
    for doubt in _found(report):
        if doubt not in kept:
            kept.append(doubt)
    return tuple(kept)


def decides(doubt: Doubt) -> bool:
    """Whether nothing is proven where this is so: the verdict is then inconclusive."""
    known = wording(doubt.code)
    return known is None or known.decides


def worded(doubt: Doubt) -> Text:
    """In words; a code that nobody here knows is shown with its values."""
    values = _Values(doubt.values)
    en, zh = sentence(doubt.code, values, "en"), sentence(doubt.code, values, "zh")
    if en is None or zh is None:
        said = ", ".join(f"{key} {value}" for key, value in doubt.values.items())
        return same(f"{doubt.code}: {said}" if said else doubt.code)
    return Text(en, zh)


class _Values(dict[str, Plain]):
    """What fills the words; a value that a backend left out does not break the report."""

    def __missing__(self, key: str) -> str:
        return "?"


def _found(report: Judged) -> Iterator[Doubt]:
    yield from report.target.doubts
    yield from report.baseline.doubts
    if not report.checks:  # else a function of the user's has judged the outputs
        yield from _of_outputs(report)
    if not report.rows:
        yield Doubt(code="nothing_seen")
    elif not report.compared:
        yield Doubt(code="nothing_compared")
    elif not report.checks and all(row.status is Status.INCONCLUSIVE for row in report.compared):
        yield Doubt(code="nothing_decided", values={"compared": count(len(report.compared))})
    covered = coverage(report.rows)
    if covered.compared and covered.share < ENOUGH and not report.failure:  # else that is why
        values = {
            "share": percent(covered.share), "compared": count(covered.compared), "hidden": count(covered.hidden),
        }  # fmt: skip
        whole = bool(report.outputs) and all(row.comparison is not None for row in report.outputs)
        if covered.lost:
            code = "few_compared_inside" if whole else "few_compared"
            yield Doubt(code=code, values={**values, "lost": count(covered.lost)})
        else:
            yield Doubt(code="few_seen_inside" if whole else "few_seen", values=values)
    if not any(doubt.code == "precision_not_run" for doubt in report.target.doubts):
        yield from _of_precision(report)
    yield from _not_fp32(report)


def _of_outputs(report: Judged) -> Iterator[Doubt]:
    absent = [row for row in report.outputs if row.comparison is None and row.status is not Status.FAIL]
    frozen = [row.name for row in absent if as_reason(row.reason).code == "step_no_gradient"]
    others = [row.name for row in absent if as_reason(row.reason).code != "step_no_gradient"]
    for code, missing in (("output_no_gradient", frozen), ("output_not_compared", others)):
        if missing:
            more = f", … (+{count(len(missing) - _NAMES)})" if len(missing) > _NAMES else ""
            yield Doubt(code=code, values={"names": ", ".join(missing[:_NAMES]) + more})
    for row in report.outputs:
        if row.status is not Status.INCONCLUSIVE or row.comparison is None:
            continue
        if not row.comparison.base.elements:
            yield Doubt(code="output_empty", values={"name": row.name})
            continue
        fits = sufficient((row.comparison.base.rms or 0.0) * HIDDEN)
        yield Doubt(code="output_hidden", values={"name": row.name, "reason": row.reason, "atol": fits})


def _of_precision(report: Judged) -> Iterator[Doubt]:
    """A mode that promises a precision of which no tensor shows a trace, whichever engine it is."""
    mode, precision = report.target.mode, report.target.precision
    promise = promised(precision)
    if report.target.simulation and not _has_no_float(report):
        return  # what rounds there is this tool's own: numbers that the type holds as they are leave no trace
    if not (promise.narrow and promise.rounding) or precision == report.baseline.precision:
        return
    if any(_ran_in(promise, row) for row in report.rows):
        return
    instead = ran_instead(report.layers, promise.short) if promise.shown_by else None
    if instead:
        yield Doubt(code="precision_not_run", values={"precision": promise.short, "detail": instead})
    if instead is not None:
        return
    errors = {row.index: error for row in report.compared if (error := _error_of_floats(row)) is not None}
    if report.failure or not (errors or _has_no_float(report)):
        return
    inside = any(row.index in errors and not row.is_output and row.inputs for row in report.compared)
    largest = max(errors.values(), default=0.0)
    if largest < (promise.rounding * _UNSEEN if inside else _NOISE):
        values = {"mode": mode, "precision": promise.short, "error": figure(largest)}
        yield Doubt(code="precision_unseen", values={**values, "rounding": figure(promise.rounding)})


def _has_no_float(report: Judged) -> bool:
    """Whether the whole model, not only what was marked of it, is of whole numbers, flags and text."""
    spec = report.spec
    if not report.compared or spec.marks or spec.marks_between or spec.marks_from_inspector or spec.fused_only:
        return False
    sides = [(row.comparison.base, row.comparison.target) if row.comparison else (row.base, row.target)
             for row in report.rows]  # fmt: skip
    return not any(side is not None and "float" in side.dtype for pair in sides for side in pair)


def _error_of_floats(row: Row) -> float | None:
    comparison = row.comparison
    if comparison is None or not comparison.base.elements or "float" not in comparison.base.dtype:
        return None
    error = comparison.relative_l2
    return None if error is None or math.isnan(error) else error


def _ran_in(promise: Precision, row: Row) -> bool:
    """Whether the engine's own tensor is of the precision, or comes from an operator that quantises."""
    whole = promise.computes == "int8"
    if whole and QUANTISED.search(row.target_op_type or ""):
        return True
    comparison = row.comparison
    target = comparison.target.dtype if comparison is not None else row.target.dtype if row.target is not None else ""
    base = comparison.base.dtype if comparison is not None else ""
    return target.startswith(promise.shown_by) and (not whole or target != base)


def _not_fp32(report: Judged) -> Iterator[Doubt]:
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
            kind = row.op_type if of_base else row.target_op_type
            if stats is not None and stats.dtype.startswith(("float16", "bfloat16", "float8")):
                narrow[stats.dtype] += 1
            if QUANTISED.search(kind) and (of_base is False or row.status is not Status.UNMATCHED):
                quantised[kind] += 1
        found = [f"{dtype} ({count(number)})" for dtype, number in narrow.most_common()]
        found += [f"{kind} ({count(number)})" for kind, number in quantised.most_common(_NAMES)]
        if found:
            yield Doubt(code="not_fp32", values={"mode": side.mode, "detail": ", ".join(found)})
