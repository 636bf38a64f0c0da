"""Blame errors that grow: behind an operator that amplifies, or over a loop's iterations."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.born import compute_finite_l2, may_be_mask
from ..numbers.narrowing import narrow_type, round_values
from ..pairing.align import strip_iteration
from ..protocols import keeps_own
from ..records import Comparison, Culprit, TensorMeta
from .casts import list_tensors_on_the_way
from .criteria import FAR, HALF, SEVERAL, STRONG
from .effects import Sink, squares_of
from .introduced import WAITING, Alone, KeptTensors, replay_operators
from .operator_facts import find_acting_type, name_types, types_of
from .operators import BODIES, CANCEL, CASTS, MOVE, plain_type
from .regions import measure_distance, run_rounded
from .subject import Subject
from .units import BEYOND, MOST, bits_of

__all__ = ["find_amplifying", "find_drifting", "find_merged_operand"]


# The operator behind which ordinary rounding is fatal: blamed where no single rounding makes most of the error.
#
# Two nearly equal numbers, each of which many operators have rounded, are the example: whose rounding it was is a
# matter of chance, and that they are subtracted is not.

def find_amplifying(subject: Subject, alone: Alone, outputs: Collection[str]) -> tuple[Culprit, ...]:
    """Return the first operator before failing outputs that amplifies ordinary rounding beyond any bound. It adds no
    such error itself; () where there is none."""
    before: set[str] = set().union(*(subject.ancestors(name) for name in outputs)) if outputs else set()
    for name in sorted(before & subject.row_of.keys(), key=lambda one: subject.order.get(one, 0)):
        own, factor = alone.found.get(name), _measure_growth_factor(subject, name)
        if own is None or subject.far(own.rel_l2, own.units, FAR) or own.flips or factor < STRONG:
            continue
        code, evidence = _cause_of_growth(subject, alone, name, factor)
        meta = subject.meta_of.get(name)
        reached = [one for one in outputs if one in subject.descendants(name)]
        return (
            Culprit(
                name=name,
                node=meta.node if meta is not None else "",
                op_types=name_types(subject, name),
                cause=code,
                evidence=evidence,
                confidence="compared",
                introduced=own.rel_l2,
                units=own.units,
                at=max(reached, key=lambda one: compute_finite_l2(subject.row_of[one]) or 0.0, default=""),
                fails_first=name,
                keep=(name, *(one for one in subject.sources(name) if one in subject.row_of)),
            ),
        )
    return ()


def _measure_growth_factor(subject: Subject, name: str) -> float:
    """Return how many times an error that is beyond any bound is the largest one of what is read, where that is
    ordinary; 0 where it is not so, and where a mask is read, beside which any error of the others is next to none."""
    error, sources = compute_finite_l2(subject.row_of[name]) or 0.0, [*subject.sources(name)]
    rows = [subject.row_of[one] for one in sources if one in subject.row_of]
    if any(row.comparison is not None and may_be_mask(row.comparison.base) for row in rows):
        return 0.0
    errors = [compute_finite_l2(row) or 0.0 for row in rows]
    if not math.isfinite(error) or error <= MOST or not any(errors):
        return 0.0
    if any(subject.far(one, subject.error_units(row), BEYOND) for one, row in zip(errors, rows, strict=True)):
        return 0.0
    return error / max(errors)


def _cause_of_growth(subject: Subject, alone: Alone, name: str, factor: float) -> tuple[str, dict[str, Any]]:
    row = subject.row_of[name]
    read = [subject.row_of[one].comparison for one in subject.sources(name) if one in subject.row_of]
    largest = max((numbers.base.rms or 0.0 for numbers in read if numbers is not None), default=0.0)
    own = (row.comparison.base.rms or 0.0) if row.comparison is not None else 0.0
    evidence: dict[str, Any] = {"factor": factor, "input_size": largest}
    if types_of(subject, name) & CANCEL and largest > SEVERAL * own:
        return "cancels", {**evidence, "output_size": own, **_measure_gathered(subject, alone, name)}
    evidence |= {"operator": find_acting_type(subject, name)}
    between = _measure_steps_between(subject, name)
    return "amplifies", {**evidence, **(between or _measure_gathered(subject, alone, name))}


def _measure_gathered(subject: Subject, alone: Alone, name: str) -> dict[str, Any]:
    """Return what an operator reads that is off by far more than its own rounding, of which it has gathered many; {}
    where all of it is rounded as one operator rounds."""
    read = [one for one in subject.sources(name) if one in subject.row_of]
    errors = {one: compute_finite_l2(subject.row_of[one]) or 0.0 for one in read}
    source = max(errors, key=lambda one: errors[one], default="")
    own = alone.found.get(source)
    times = errors[source] / own.rel_l2 if own is not None and own.rel_l2 else 0.0
    return {"gathered": errors[source], "times": times, "source": source} if times > FAR else {}


def _measure_steps_between(subject: Subject, name: str) -> dict[str, Any]:
    """Return how far apart the target's type lets the largest numbers be that an operator reads. Only where this is 1
    or more, so that neighbouring positions or times become one number; {} elsewhere."""
    for source in subject.sources(name):
        numbers = subject.row_of[source].comparison if source in subject.row_of else None
        if numbers is None or numbers.base.max is None or numbers.base.min is None or may_be_mask(numbers.base):
            continue
        apart, largest = _measure_spacing(numbers, numbers.target.dtype)
        if apart >= 1:
            return {"apart": apart, "largest": largest, "source": source, "held_as": numbers.target.dtype}
    return {}


def _measure_spacing(numbers: Comparison, dtype: str) -> tuple[float, float]:
    """Return how far apart the largest numbers of a tensor are in a type, and the largest; 0 where that is not
    known."""
    largest, bits = max(abs(numbers.base.max or 0.0), abs(numbers.base.min or 0.0)), bits_of(dtype)
    apart = 2.0 ** (math.floor(math.log2(largest)) + 1 - bits) if bits and 0 < largest < math.inf else 0.0
    return apart, largest


def _merges(numbers: Comparison, dtype: str) -> bool:
    """Return whether numbers that a tensor has can become one in a type: whole ones, or ones that differ by little."""
    apart, _ = _measure_spacing(numbers, dtype)
    base = numbers.base
    spread = math.sqrt(max(0.0, (base.rms or 0.0) ** 2 - (base.mean or 0.0) ** 2))
    return apart >= 1 or SEVERAL * apart > spread


def find_merged_operand(subject: Subject, alone: Alone, name: str) -> dict[str, Any]:
    """Return the operand in which the target's cast to a narrower type makes several numbers one. Rounding it alone, in
    a run of the baseline, must make most of the error that the operator adds; {} where there is none."""
    own = alone.found[name].rel_l2
    if not own or subject.is_step:
        return {}
    way = {one: subject.targets[one] for one in list_tensors_on_the_way(subject, name)}
    for source in subject.sources(name):
        there = subject.row_of[source]
        numbers = there.comparison
        if numbers is None:
            continue
        casts = [meta for meta in way.values() if _find_what_is_cast(way, meta) == there.target_name]
        cast = next((meta for meta in casts if numbers.target.dtype != meta.dtype), None)
        if cast is None or not _merges(numbers, cast.dtype):
            continue
        counts: list[int] = []

        def narrow(values: Any, _name: str, counts: list[int] = counts, dtype: str = cast.dtype) -> Any:
            there = round_values(np.ascontiguousarray(values), narrow_type(dtype))
            counts[:] = [int(np.unique(one).size) for one in (values, there)]
            return there

        try:
            exact = run_rounded(subject, name, "", narrow).get(name)
            got = run_rounded(subject, name, source, narrow).get(name)
        except PrecisionDebugError:
            return {}
        if exact is None or got is None or measure_distance(exact, got, flips=False) < HALF * own:
            continue
        if counts and 2 * counts[1] <= counts[0]:
            return {"source": source, "cast": cast.dtype, "before": counts[0], "after": counts[1]}
    return {}


def _find_what_is_cast(way: Mapping[str, TensorMeta], cast: TensorMeta) -> str:
    """Return the compared tensor of which an operator that only the target does is the cast, moved about or not; ""
    where it is none's."""
    found, meta = "", cast if plain_type(cast.op_type) in CASTS else None
    while meta is not None and len(meta.inputs) == 1:
        found = meta.inputs[0]
        meta = way.get(found)
        if meta is not None and plain_type(meta.op_type) not in MOVE:
            return ""
    return found if meta is None else ""


# A loop whose rounding is ordinary in each iteration, and always to one side: of its own state, not of the baseline's.
#
# A sum that a narrow type stops is the example: of the baseline's state an iteration's rounding is off to either side,
# of the target's own, which no longer moves, each is off by the whole step. So each operator of the body is replayed on
# what the target gave it, and what all of its iterations add is carried through the baseline together.

_ITERATIONS = 16
"""Iterations below which ordinary roundings do not add up to more than rounding everywhere does. Set on the loops of
tests/planted/third_onnx.py."""

_APART = 3
"""Operators from one state of a loop that is written out to the next."""

_SIDED = 0.25
"""Part of the squared sum that errors of one side would have; of random ones it is one over their number."""

_MOST_BYTES = 64 << 20
"""Of all tensors of bodies, up to which they are looked at: two of each are held in memory."""

_OPERATORS = 6
"""Of bodies that are tried, those off the most first: each costs a run of the baseline."""


def find_drifting(subject: Subject, sinks: Sequence[Sink], plain: dict[str, Any], folder: Path) -> tuple[Culprit, ...]:
    """Return the operator of a body that makes over half of the squared error at an output, all its iterations
    together; none where there is no such one. plain: the sinks in an undisturbed run of the baseline. Raises
    BackendError."""
    groups = _group_by_iteration(subject)
    size = sum(row.comparison.base.elements * 8 for names in groups.values() for name in names
               if (row := subject.row_of[name]).comparison is not None)  # fmt: skip
    outputs = [sink for sink in sinks if sink.is_output and sink.squared and not sink.non_finite]
    if not groups or not outputs or size > _MOST_BYTES or subject.bench.on_device:
        return ()
    worst = max(outputs, key=lambda sink: sink.rel_l2)
    kept: dict[str, tuple[Any, Any]] = {}
    wanted = {name for names in groups.values() for name in names}

    def note(name: str, exact: Any, wrong: Any) -> None:
        if name in wanted and exact.shape == wrong.shape:
            kept[name] = np.array(exact), np.array(wrong)

    with contextlib.closing(subject.bench.waiting(folder, subject.budget(WAITING))) as waiting:
        replay_operators(subject, note, cast("KeptTensors", waiting))
    worst_first = sorted(
        groups.values(), key=lambda names: -sum(_measure_offset(*kept[name]) for name in names if name in kept)
    )
    for names in worst_first[:_OPERATORS]:
        errors = {name: kept[name] for name in names if name in kept}
        lost, moved = _count_lost_updates(list(errors.values()))
        stays = lost >= HALF * moved > 0
        if strip_iteration(names[0]) == names[0] and not stays and not _is_one_sided(list(errors.values())):
            continue
        share = _measure_share(subject, errors, worst, plain.get(worst.name))
        if share >= HALF:
            return (_make_drift_culprit(subject, names, share, worst.name, lost / moved if stays else 0.0),)
    return ()


def _group_by_iteration(subject: Subject) -> dict[str, list[str]]:
    """Return tensors of floats that a body gives in many iterations, by the name that they share, and those of a chain,
    by that of its last."""
    found: dict[str, list[str]] = {}
    chains: dict[str, list[str]] = {}
    for name in sorted(subject.row_of, key=lambda one: subject.order.get(one, 0)):
        numbers = subject.row_of[name].comparison
        if numbers is None or "float" not in numbers.base.dtype or subject.only_moves(name):
            continue
        if strip_iteration(name) != name:
            found.setdefault(strip_iteration(name), []).append(name)
        else:
            before = _find_state_before(subject, name)
            chains[name] = [*chains.pop(before, [before]), name] if before else [name]
    return {key: names for key, names in {**found, **chains}.items() if len(names) >= _ITERATIONS}


def _find_state_before(subject: Subject, name: str) -> str:
    """Return the tensor of the same kind and shape that one is made of, in a few operators at most; "" where there is
    none."""
    def kind(one: str) -> tuple[Any, ...]:
        row = subject.row_of[one]
        return row.op_type, row.comparison.base.shape if row.comparison is not None else ()

    near = [name]
    for _ in range(_APART):
        near = [source for one in near for source in subject.sources(one)]
        if found := [one for one in near if kind(one) == kind(name)]:
            return max(found, key=lambda one: subject.order.get(one, 0))
    return ""


def _is_one_sided(errors: Sequence[tuple[Any, Any]]) -> bool:
    """Return whether most iterations are off to the same side, element by element; what only rounds is so by chance."""
    with np.errstate(all="ignore"):
        off = [np.asarray(wrong, np.float64) - np.asarray(exact, np.float64) for exact, wrong in errors]
        together = float(np.sum(np.square(np.sum(off, axis=0))))
        apart = sum(float(np.sum(np.square(one))) for one in off)
    return bool(apart) and together >= _SIDED * len(off) * apart


def _count_lost_updates(states: Sequence[tuple[Any, Any]]) -> tuple[int, int]:
    """Return how many elements of a state stay as they were in the target where they are to move, and how many are.

    What is less than half of the spacing at a number is lost when it is added to that. states: of each iteration, in
    order, what the baseline's operator makes of the target's numbers, and what the target's makes."""
    lost = moved = 0
    for (_, before), (exact, wrong) in itertools.pairwise(states):
        if before.shape == wrong.shape:
            moves = np.asarray(exact, np.float64) != np.asarray(before, np.float64)
            lost, moved = lost + int(np.sum(moves & (before == wrong))), moved + int(np.sum(moves))
    return lost, moved


def _measure_offset(exact: Any, wrong: Any) -> float:
    with np.errstate(all="ignore"):
        error = np.square(wrong.astype(np.float64) - exact)
    return float(error[np.isfinite(error)].sum())


def _measure_share(subject: Subject, errors: dict[str, tuple[Any, Any]], sink: Sink, plain: Any) -> float:
    bench = subject.bench
    seen: list[Any] = []

    def replace(_op: str, name: str, value: Any) -> Any:
        off = name in errors and (name == sink.name or not keeps_own(subject.baseline, name))
        new = bench.with_error(value, *errors[name]) if off else None
        if name == sink.name:
            seen.append(bench.kept(value if new is None else new))
        return new

    subject.operators()[0].run_replacing(subject.feeds, replace, frozenset(errors) | {sink.name})
    if not seen or plain is None or seen[0].shape != plain.shape:
        return 0.0
    return squares_of(bench.compare(plain, seen[0]))[0] / sink.squared


def _make_drift_culprit(subject: Subject, names: Sequence[str], share: float, at: str, lost: float) -> Culprit:
    """lost: the share of all updates that leave the number as it was; 0 where that is not what it is."""
    ordered = sorted(names, key=lambda name: subject.order.get(name, 0))
    out = [
        name for name in ordered if subject.far(_error_of_tensor(subject, name), _error_in_units(subject, name), BEYOND)
    ]
    first = out[0] if out else ordered[-1]
    place = ordered.index(first)
    before, after = (ordered[place - 1], first) if place else (first, ordered[1])
    state = subject.descendants(before) & subject.ancestors(after)
    turn = first.rpartition("@")[2]
    meta = subject.meta_of.get(first)
    return Culprit(
        name=first,
        node=meta.node if meta is not None else "",
        op_types=(subject.row_of[first].op_type,),
        cause="drift",
        evidence={
            "depth": len(names), "share": share,
            **({"lost": lost, "type": subject.held_as.get(first, subject.arithmetic)} if lost else {}),
        },
        confidence="simulated" if subject.simulation else "replayed",
        share=share,
        at=at,
        fails_first=first,
        keep=(
            first,
            *sorted({f"{strip_iteration(name)}@{turn}" for name in state} - {first}),
            *_list_handed_on(subject, ordered[-1]),
        ),
    )


def _list_handed_on(subject: Subject, last: str) -> list[str]:
    """Return what the loop gives of its state: rounded there, the sum would still be what it should be, and coarse."""
    after = subject.descendants(last)
    bodies = [name for name in after if plain_type(subject.row_of[name].op_type) in BODIES]
    return sorted(bodies, key=lambda name: subject.order.get(name, 0))[:1]


def _error_of_tensor(subject: Subject, name: str) -> float | None:
    return subject.row_of[name].relative_l2


def _error_in_units(subject: Subject, name: str) -> float | None:
    return subject.error_units(subject.row_of[name])
