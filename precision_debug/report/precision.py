"""In which precision the target really ran: what the engine's inspector told, else the types that its tensors have."""

from __future__ import annotations

from collections import Counter

from ..explain.operators import plain_type
from ..explain.units import INTEGERS
from ..inspector import real_precision
from ..numbers.number_types import number_type
from ..numbers.precisions import CONVERTS, PRECISIONS, QUANTISED, promised
from ..reasons import Text, same
from ..records import Row, Status
from .figures import count, percent
from .model import Report
from .section import Cell, Section, plain

__all__ = ["precision", "unit_of"]

_TOLD = "Real Precision"


def _held(row: Row) -> str:
    """What the operator that made it computes in, as far as its own tensor tells; "" for the carriers between."""
    side = row.comparison.target if row.comparison is not None else None
    if side is None:
        return ""
    if row.view == "dequantised" or QUANTISED.search(row.target_op_type):
        return "INT8"
    for known in PRECISIONS.values():  # a quantised layer's result is in the type that its readers take
        if known.narrow and row.target_op_type.startswith(tuple(f"{name}." for name in known.shown_by)):
            return known.short
    held = number_type(side.dtype)
    return held.short if held is not None and (held.bits or held.name in INTEGERS) else side.dtype


def _multiplies_integers(row: Row) -> bool:
    """Return whether a row is a product of integers that the target alone has.

    Of such a one the rows of the baseline's tensors have the result that another operator scales back to floats."""
    kind = plain_type(row.target_op_type or row.op_type)
    return row.status is Status.UNMATCHED and bool(QUANTISED.search(kind)) and not CONVERTS.fullmatch(kind)


def precision(report: Report) -> Section:
    """Layers by real precision where an engine told them; else tensors by the type in which the target holds them."""
    if report.layers:
        found = Counter(real_precision(layer)[0] or "?" for layer in report.layers if not layer.is_reformat)
        what, source = Text("Layers", "层数"), Text("reported by the engine's inspector", "由引擎 inspector 给出")
    elif any(_TOLD in row.extra for row in report.rows):
        found = Counter(row.extra[_TOLD] for row in report.rows if _TOLD in row.extra)
        what, source = Text("Tensors", "张量数"), Text("reported by the engine", "由引擎给出")
    else:
        found = Counter(filter(None, map(_held, report.rows)))
        if whole := len({row.node or row.name for row in report.rows if _multiplies_integers(row)}):
            found["INT8"] += whole
        what = Text("Tensors", "张量数")
        source = Text("the type of the target operator's result", "目标算子给出张量的类型")
    if report.target.simulation:
        source = Text(
            "a simulation: rounded to the mode's type, computed in this type",
            "模拟：舍入到该模式的类型，但以此类型计算",
        )
    total = sum(found.values())
    return Section(
        key="precision",
        title=Text("Precision that really ran", "实际运行精度"),
        head=(Text("Precision", "精度"), what, Text("Share", "占比"), Text("Told by", "依据")),
        lines=tuple(
            (
                plain(same(name)),
                Cell(text=same(count(number)), right=True),
                Cell(text=same(percent(number / total)), right=True),
                plain(source),
            )
            for name, number in found.most_common(8)
        ),
    )


def unit_of(report: Report) -> float:
    """The relative error of rounding once to the target's type: measured, else of what the mode promises."""
    explanation = report.explanation
    if explanation is not None and explanation.unit:
        return explanation.unit
    promise = promised(report.target.precision)
    return promise.rounding if promise.narrow and promise.rounding else promised("float32").rounding
