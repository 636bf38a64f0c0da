"""Measure a training step's updates: who wrote them, and how much of them is noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from ...explain.effects import Sink
from ...explain.operators import MOVE, plain_type
from ...explain.subject import Subject
from ...explain.units import MOST, unit_of
from ...records import Culprit, TensorMeta

__all__ = [
    "A_SIGN",
    "GRADIENT",
    "UPDATE",
    "WHOLE",
    "count_terms",
    "find_author",
    "find_decided_by_rounding",
    "find_lost_updates",
    "is_lost",
]  # fmt: skip


# Whom an error of a training step is put down to, where the tensor that shows it was only moved there.

def find_author(subject: Subject, name: str, *, far: bool) -> TensorMeta:
    """Return the operator that computed a tensor's numbers.

    Of what only moves numbers about, the operator of the target alone that wrote into them before, else the last one of
    the baseline's region that computes; otherwise the tensor's own.

    far: its own error is far above rounding; then it may be that of one that the target alone wrote over what it
    reads."""
    own = subject.meta_of[name]
    if plain_type(own.op_type) not in MOVE:
        return (_find_overwriting(subject, name) if far else None) or own
    writer = _find_written_between(subject, name)
    if writer is not None:
        return writer
    computing = [meta for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) not in MOVE]
    return computing[-1] if computing else own


def _find_overwriting(subject: Subject, name: str) -> TensorMeta | None:
    """Return the last operator of the target alone that wrote into a tensor, or a view of one, that is read after
    it."""
    read = {subject.row_of[one].target_name for one in subject.sources(name)}
    found = None
    for meta in subject.targets.values():
        if meta.name == subject.row_of[name].target_name:
            break
        if meta.name in subject.partner:
            continue
        if plain_type(meta.op_type) in MOVE and not meta.op_type.endswith("_") and ":to[" not in meta.name:
            read |= {meta.name} if read & {*meta.inputs} else set()
        elif meta.op_type.endswith("_") and meta.inputs[:1] and meta.inputs[0] in read:
            found = meta
    return found


def _find_written_between(subject: Subject, name: str) -> TensorMeta | None:
    """Return the last operator in place that the target alone runs between what a tensor is made of and the tensor
    itself."""
    metas = list(subject.targets.values())
    place = {meta.name: number for number, meta in enumerate(metas)}
    row = subject.row_of[name]
    places = [place[subject.row_of[one].target_name] for one in subject.sources(name)
             if subject.row_of[one].target_name in place]  # fmt: skip
    if row.target_name not in place or not places:
        return None
    between = metas[max(places) + 1 : place[row.target_name]]
    writes = [meta for meta in between if meta.op_type.endswith("_") and meta.name not in subject.partner]
    return writes[-1] if writes else None


# Updates that change nothing: the parameter's type has no number so near to it.

_MOST_OF_IT = 0.5
"""Share of an update's elements from which on a parameter stagnates."""

UPDATE = "update/"
"""What the names of outputs that are a parameter's update begin with."""


def find_lost_updates(subject: Subject) -> tuple[Culprit, ...]:
    """Return the worst of the parameters whose update is lost in the target, with how many there are; () where none
    is."""
    if _is_step_left_out(subject):
        return ()
    found: list[tuple[float, str]] = []
    for name in subject.outputs:
        if not name.startswith(UPDATE) or name not in subject.target_outputs:
            continue
        share = subject.bench.unmoved(
            *(subject.bench.returned(side, name) for side in (subject.outputs, subject.target_outputs))
        )
        if (share or 0.0) > _MOST_OF_IT and _is_learning(subject, name.removeprefix(UPDATE)):
            found.append((share or 0.0, name.removeprefix(UPDATE)))
    if not found:
        return ()
    share, parameter = max(found)
    wrote = _find_last_written(subject, parameter)
    dtype = _type_of_update(subject, parameter, wrote)
    meta = subject.meta_of.get(wrote)
    culprit = Culprit(
        name=wrote, node=meta.node if meta is not None else "", op_types=(meta.op_type,) if meta is not None else (),
        cause="update_lost", confidence="compared", share=1.0, at=f"{UPDATE}{parameter}", keep=(wrote,),
        evidence={"parameter": parameter, "parameters": len(found), "share": share, "dtype": dtype},
    )  # fmt: skip
    return (dataclasses.replace(culprit, fails_first=f"{UPDATE}{parameter}"),)


def _type_of_update(subject: Subject, parameter: str, wrote: str) -> str:
    """Return the type that took the update; of an optimiser that rounds by hand, the one that it rounds to."""
    held = subject.held_as.get(wrote, "") or subject.narrow_type
    own = [meta.dtype for name, meta in subject.targets.items() if name.startswith(f"optimiser/{parameter}/")]
    narrow = [one for one in own if one in ("bfloat16", "float16")]
    return narrow[0] if narrow and held in ("float32", "float64") else held


def _is_step_left_out(subject: Subject) -> bool:
    """Return whether the target's gradients hold NaN or Inf.

    GradScaler leaves the whole step out then, and no update is lost by rounding."""
    found = (row.comparison for name, row in subject.row_of.items() if name.startswith("gradient/") and row.is_output)
    return any(one is not None and one.target.nan + one.target.inf for one in found)


def _is_learning(subject: Subject, parameter: str) -> bool:
    """Return whether its gradient is anything but 0."""
    row = subject.row_of.get(f"gradient/{parameter}")
    found = None if row is None or row.comparison is None else row.comparison.target
    return found is not None and bool(found.min or found.max)


def _find_last_written(subject: Subject, parameter: str) -> str:
    """Return the row of the operator that changed a parameter last; its update's own where none was seen."""
    before = f"optimiser/{parameter}/"
    rows = [meta.name for meta in subject.tensors if meta.name.startswith(before) and meta.op_type.endswith("_")]
    return rows[-1] if rows else f"{UPDATE}{parameter}"


# Outputs of a training step that rounding decides on either side, and so say nothing of the target's precision.

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


def find_decided_by_rounding(subject: Subject, sinks: Sequence[Sink], expected: Mapping[str, float]) -> frozenset[str]:
    """Return gradients and updates that nothing but rounding decides.

    Gradients whose exact value is 0, as that of a bias before a norm, so that the baseline's is nothing but its own
    rounding; what the optimiser makes of these; and updates that are signs, some of which turn with any rounding.

    expected: relative L2 error of each output that rounding everywhere to the target's type makes."""
    gradients = [sink for sink in sinks if _own_sink(subject, sink).startswith(GRADIENT)]
    zero = {sink.name for sink in gradients if _is_zero(subject, sink, expected)}
    made = {other for name in zero for other in _iterate_made_of(name, sinks)}
    signs = {
        sink.name for sink in sinks
        if _own_sink(subject, sink).startswith(UPDATE) and expected.get(sink.name, 0.0) > MOST and _is_sign(subject,
        sink)
    }  # fmt: skip
    return frozenset(zero | made | signs)


def is_lost(subject: Subject, sink: Sink, decided: frozenset[str]) -> bool:
    """Return whether a gradient is off by more than all of it, although the baseline's own rounding leaves it alone."""
    return _own_sink(subject, sink).startswith(GRADIENT) and sink.rel_l2 > WHOLE and sink.name not in decided


def _own_sink(subject: Subject, sink: Sink) -> str:
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


def _iterate_made_of(gradient: str, sinks: Sequence[Sink]) -> Iterator[str]:
    """Yield the outputs that the optimiser makes of a gradient."""
    before, _, parameter = gradient.partition(GRADIENT)
    for sink in sinks:
        if sink.name == f"{before}{UPDATE}{parameter}" or sink.name.startswith(f"{before}state/{parameter}/"):
            yield sink.name


def count_terms(subject: Subject, name: str) -> float:
    """Return how many numbers are added up for each one of a gradient, or of that which an update or a state is made
    of.

    Of the nearest operators, going back, that read more than they make; 1 where none is seen.
    """
    rank, own = subject.within_rank(name)
    if not own.startswith(GRADIENT) and own.count("/"):
        own = GRADIENT + own.split("/")[1]
    level = {f"{rank}{own}"}
    for _ in range(_BACK):
        read = [(one, source) for one in level for source in subject.sources(one)]
        terms = max(
            (_count_elements(subject, source) / _count_elements(subject, one) for one, source in read), default=1.0
        )
        if not read or terms > 1:
            return terms
        level = {source for _, source in read}
    return 1.0


def _count_elements(subject: Subject, name: str) -> int:
    row = subject.row_of.get(name)
    return max(1, row.comparison.base.elements) if row is not None and row.comparison is not None else 1
