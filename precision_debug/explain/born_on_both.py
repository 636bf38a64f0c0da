"""NaN and Inf that both runs make: no matter of precision, and all the same what the reader looks for."""

from __future__ import annotations

from ..records import Culprit, Row, TensorMeta
from .subject import Subject

__all__ = ["born_on_both"]


def born_on_both(subject: Subject, *, partly: bool) -> tuple[Culprit, ...]:
    """The operator that makes the NaN, or the Inf, of an output of both runs from numbers that have none; () where no
    output has them on both sides, or its inputs had them already.

    partly: also where some elements of an output are NaN, and the others are numbers that can be compared.
    """
    for output in subject.outputs:
        row = subject.row_of.get(output)
        for what in ("NaN", "Inf"):
            if row is None or not row.is_output or not _on_both(row, what):
                continue
            if not (partly and what == "NaN") and not _whole(row, what):
                continue  # -Inf stands where a mask is
            before = [one for one in {output, *subject.ancestors(output)} & subject.row_of.keys()
                      if _on_both(subject.row_of[one], what)]  # fmt: skip
            name = min(before, key=lambda one: subject.order.get(one, 0))
            meta = subject.meta_of.get(name)
            found = subject.row_of[name].comparison
            if found is None or meta is None or meta.op_type in {"Input", "Constant"} or meta.is_output:
                continue
            evidence = {"kind": what, "count": _count(subject.row_of[name], what), "output": output}
            cause = "born_on_both"
            if what == "NaN" and (slope := _steep(subject, meta)):
                cause, evidence["slope"] = "slope_infinite", slope
            return (
                Culprit(
                    name=name, node=meta.node, op_types=(meta.op_type,), cause=cause, confidence="compared",
                    evidence=evidence, at=output, fails_first=output, keep=(name,),
                ),
            )  # fmt: skip
    return ()


def _steep(subject: Subject, meta: TensorMeta) -> str:
    """The operator of the forward pass whose slope is infinite, where a NaN of the backward pass is that slope times a
    gradient of 0; "" elsewhere.

    A quotient of numbers without NaN or Inf is NaN only as 0 / 0, a product without NaN only as 0 times Inf. That the
    slope is what is infinite the operator's own divisor or factor shows: a smallest or largest value of 0, or an Inf.
    """
    forward = meta.name.partition("/")[2].rpartition("/")[0]
    rows = [subject.row_of[one].comparison for one in meta.inputs if one in subject.row_of]
    sides = [one.base for one in rows if one is not None]
    if meta.phase != "backward" or forward not in subject.meta_of or any(one.nan for one in sides):
        return ""
    kind = meta.op_type.rpartition(".")[2]
    if kind == "mul" and any(one.inf for one in sides):
        return forward
    if kind == "div" and not any(one.inf for one in sides) and any(0.0 in (one.min, one.max) for one in sides):
        return forward
    return ""


def _count(row: Row, what: str) -> int:
    base = row.comparison.base if row.comparison is not None else None
    return 0 if base is None else int(base.nan if what == "NaN" else base.inf)


def _whole(row: Row, what: str) -> bool:
    return row.comparison is not None and _count(row, what) == row.comparison.base.elements


def _on_both(row: Row, what: str) -> bool:
    found = row.comparison
    there = 0 if found is None else int(found.target.nan if what == "NaN" else found.target.inf)
    return bool(there) and _count(row, what) > 0
