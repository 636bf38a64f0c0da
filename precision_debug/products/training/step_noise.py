"""Outputs of a training step that rounding decides on either side, and so say nothing of the target's precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...explain.bounds import MOST
from ...explain.effects import Sink
from ...explain.subject import Subject
from ...explain.units import unit_of
from .step_updates import UPDATE

__all__ = ["A_SIGN", "GRADIENT", "WHOLE", "decided_by_rounding", "is_lost", "terms_of"]

GRADIENT = "gradient/"
"""What the names of outputs that are a parameter's gradient begin with."""

WHOLE = 1.0
"""Relative L2 error from which on a gradient is more error than gradient: however much of it rounding everywhere
predicts, what is left of the model then does not learn by it."""

A_SIGN = 0.9
"""Root mean square over the largest element from which on a tensor is a sign times a number: Adam's first update."""

_BACK = 8
"""Operators that are followed back from a gradient to the sum that it is: casts, unscaling, clipping, reshapes."""

_OF_THE_BASELINE = 0.005
"""Relative error that rounding to the baseline's own type makes of an output from which on its exact value is as good
as 0. Biases before a norm reach 0.04 to 0.3 in tests/planted/training_*.py, gradients that are lost 0.0001."""


def decided_by_rounding(subject: Subject, sinks: Sequence[Sink], expected: Mapping[str, float]) -> frozenset[str]:
    """Return gradients and updates that nothing but rounding decides.

    Gradients whose exact value is 0, as that of a bias before a norm, so that the baseline's is nothing but its own
    rounding; what the optimiser makes of these; and updates that are signs, some of which turn with any rounding.

    expected: relative L2 error of each output that rounding everywhere to the target's type makes."""
    gradients = [sink for sink in sinks if _own(subject, sink).startswith(GRADIENT)]
    zero = {sink.name for sink in gradients if _is_zero(subject, sink, expected)}
    made = {other for name in zero for other in _made_of(name, sinks)}
    signs = {
        sink.name for sink in sinks
        if _own(subject, sink).startswith(UPDATE) and expected.get(sink.name, 0.0) > MOST and _is_sign(subject, sink)
    }  # fmt: skip
    return frozenset(zero | made | signs)


def is_lost(subject: Subject, sink: Sink, decided: frozenset[str]) -> bool:
    """Whether a gradient is off by more than all of it, although the baseline's own rounding leaves it alone."""
    return _own(subject, sink).startswith(GRADIENT) and sink.rel_l2 > WHOLE and sink.name not in decided


def _own(subject: Subject, sink: Sink) -> str:
    return subject.within_rank(sink.name)[1]


def _is_zero(subject: Subject, sink: Sink, expected: Mapping[str, float]) -> bool:
    row = subject.row_of.get(sink.name)
    held = unit_of(row.comparison.base.dtype, None) if row is not None and row.comparison is not None else 0.0
    there = expected.get(sink.name, 0.0) * held / subject.typical_unit if subject.typical_unit else 0.0
    return there >= _OF_THE_BASELINE


def _is_sign(subject: Subject, sink: Sink) -> bool:
    row = subject.row_of.get(sink.name)
    base = row.comparison.base if row is not None and row.comparison is not None else None
    if base is None or not base.rms:
        return False
    return base.rms >= A_SIGN * max(abs(base.min or 0.0), abs(base.max or 0.0))


def _made_of(gradient: str, sinks: Sequence[Sink]) -> Iterator[str]:
    """The outputs that the optimiser makes of a gradient."""
    before, _, parameter = gradient.partition(GRADIENT)
    for sink in sinks:
        if sink.name == f"{before}{UPDATE}{parameter}" or sink.name.startswith(f"{before}state/{parameter}/"):
            yield sink.name


def terms_of(subject: Subject, name: str) -> float:
    """How many numbers are added up for each one of a gradient, or of that which an update or a state is made of.

    Of the nearest operators, going back, that read more than they make; 1 where none is seen.
    """
    rank, own = subject.within_rank(name)
    if not own.startswith(GRADIENT) and own.count("/"):
        own = GRADIENT + own.split("/")[1]
    level = {f"{rank}{own}"}
    for _ in range(_BACK):
        read = [(one, source) for one in level for source in subject.sources(one)]
        terms = max((_elements(subject, source) / _elements(subject, one) for one, source in read), default=1.0)
        if not read or terms > 1:
            return terms
        level = {source for _, source in read}
    return 1.0


def _elements(subject: Subject, name: str) -> int:
    row = subject.row_of.get(name)
    return max(1, row.comparison.base.elements) if row is not None and row.comparison is not None else 1
