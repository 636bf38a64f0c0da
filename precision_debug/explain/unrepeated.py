"""NaN and Inf that only the compared run had: neither operators alone nor an engine built again repeat it."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Culprit
from .culprits import non_finite_alone
from .effects import Sink
from .introduced import MASK
from .operator_facts import operators_of
from .subject import Subject
from .units import largest_of

__all__ = ["born_in_this_run", "hidden_overflow"]


def hidden_overflow(subject: Subject, sinks: Sequence[Sink]) -> Culprit | None:
    """Where an output is not finite, the first operator before it whose results the target's type cannot hold.

    An engine that was built again to show its tensors may compute such an operator in float32, and show it finite: then
    nothing but the baseline's own range tells. Only for types that overflow where float32 does not.
    """
    limit = largest_of(subject.narrow_type)
    broken = [sink for sink in sinks if sink.is_output and sink.non_finite]
    if not broken or limit > MASK:
        return None
    before = {sink.name: {sink.name} | subject.ancestors(sink.name) for sink in broken}
    for name in sorted(subject.row_of, key=lambda item: subject.order.get(item, 0)):
        row = subject.row_of[name]
        numbers = row.comparison
        if numbers is None or subject.only_moves(name):
            continue
        largest = max(abs(numbers.base.min or 0.0), abs(numbers.base.max or 0.0))
        at = next((sink for sink, above in before.items() if name in above), "")
        if limit < largest < MASK and at:
            return Culprit(
                name=name,
                node=subject.meta_of[name].node if name in subject.meta_of else "",
                op_types=tuple(meta.op_type for meta in operators_of(subject, name)) or (row.op_type,),
                cause="overflow",
                evidence={"largest": largest, "limit": limit, "count": numbers.fp16_overflow},
                confidence="ranked",
                at=at,
                fails_first=at,
                keep=(name,),
            )
    return None


def born_in_this_run(subject: Subject) -> tuple[Culprit, ...]:
    """The first operator that gave NaN or Inf from finite inputs where the baseline gave none, for want of a culprit.

    Run alone, or again, it may give something else: a kernel that reads memory which nobody wrote.
    """
    for name in sorted(subject.row_of, key=lambda item: subject.order.get(item, 0)):
        row = subject.row_of[name]
        if not non_finite_alone(row):
            continue
        numbers = row.comparison
        fed = [subject.row_of[source] for source in subject.sources(name) if source in subject.row_of]
        if numbers is None or any(non_finite_alone(one) for one in fed):
            return ()
        nan, inf = (max(0, ours - theirs) for ours, theirs in (
            (numbers.target.nan, numbers.base.nan), (numbers.target.inf, numbers.base.inf),
        ))  # fmt: skip
        return (
            Culprit(
                name=name,
                node=subject.meta_of[name].node if name in subject.meta_of else "",
                op_types=tuple(meta.op_type for meta in operators_of(subject, name)) or (row.op_type,),
                cause="born",
                evidence={"what": "NaN" if nan else "Inf", "count": nan + inf},
                confidence="compared",
                at=name,
                fails_first=name,
                keep=(name,),
            ),
        )
    return ()
