"""Measure each operator by itself: what it adds to the error, and what it only hands on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from ..numbers.arrays import as_array
from ..numbers.born import is_broken, may_be_mask
from ..observe.lockstep import Meeting, run_both
from ..observe.store import Loans
from ..protocols import BaselineStore, PutsKnown, Workbench, keeps_own
from ..records import Comparison, Introduced, TensorStats
from .casts import CastLoss, Casts
from .subject import Subject
from .units import largest_of
from .workbench import HostWorkbench

__all__ = [
    "MASK",
    "WAITING",
    "Alone",
    "KeptTensors",
    "Passing",
    "is_same_kind",
    "make_empty_alone",
    "may_be_handed_nan",
    "measure_inherited_errors",
    "measure_relative_error",
    "replay_operators",
    "run_alone",
    "start_measuring",
    "to_array",
]  # fmt: skip


# Each operator by itself: both runs once more, with every tensor put back to common values as soon as it was compared.
#
# Where the target's run can go on with other values (protocols.Replacer), it goes on with the baseline's, so that each
# operator or fused region computes from the baseline's inputs: *isolated*. The baseline goes on with its own values as
# the target holds them (rounded, quantised), so that the rounding of an input is charged to whoever made the input.
# Where only the baseline's run can, it goes on with the target's values: *replayed*.

Array = np.ndarray[Any, Any]

MASK = 1e18
"""Beyond this a float32 is not a number but a mask ("minus infinity"), which drowns all other elements in a norm."""

KEPT_IN_MEMORY = 256 << 20
"""Bytes of suspects' tensors that stay in memory; what comes over it waits on disk."""

WAITING = 1 << 30
"""Bytes of tensors that wait for their partners in memory, where the user named no budget."""


_OF_STEPS = frozenset({"int8", "int4"})
_MOST_TAKEN = 0.9
"""Arithmetics of targets that must take back such a share of the compared tensors for their operators to be run one by
one: of real models in OpenVINO's INT8 2 of 13 tensors were taken, and the last operator was blamed for the whole."""

_SMALL = 1 << 20
"""Bytes of an array up to which its copy takes less than waiting for its partner."""

_WHOLE = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})

_LENT = (64 << 20, 1 << 30)
_QUIETLY = (4 << 20, 1 << 62)
"""Bytes of copies that are lent, and that are passed on before the other side is woken: in the host's memory, and on a
device. Waking it for each tensor hands the interpreter's lock over, up to 5 ms at a time."""


class KeptTensors(BaselineStore, Protocol):
    """A store that can be asked whether it has something."""

    def __contains__(self, key: object) -> bool: ...


@dataclass(kw_only=True)
class Alone:
    """What each operator added, in execution order, and the tensors of those that are suspected.

    exact, wrong: the operator's result in the baseline's and in the target's arithmetic, of the same inputs.
    casts: what the target's casts to other types lose that are no rows of both sides, by their names there.
    ran: what runs of the baseline made of the own errors of some operators, by their names; see ``effects``.
    unlike: operators that make sizes with which the baseline does not run: nothing of it is left to measure.
    """

    method: str
    found: dict[str, Introduced] = field(default_factory=dict)
    casts: dict[str, CastLoss] = field(default_factory=dict)
    exact: KeptTensors
    wrong: KeptTensors
    host: Callable[[Any], Array] = np.asarray
    ran: dict[frozenset[str], dict[str, Any]] = field(default_factory=dict)
    unlike: set[str] = field(default_factory=set)

    def exact_of(self, name: str) -> Array | None:
        """In the host's memory; None where it was not kept."""
        return None if (value := self.exact.get(name)) is None else self.host(value)

    def wrong_of(self, name: str) -> Array | None:
        """See ``exact_of``."""
        return None if (value := self.wrong.get(name)) is None else self.host(value)

    def close(self) -> None:
        self.exact.close()
        self.wrong.close()


def make_empty_alone(subject: Subject, folder: Path) -> Alone:
    """Before anything was run."""
    return Alone(
        method="isolated" if subject.target_replaces else "replayed",
        exact=cast("KeptTensors", subject.bench.store(folder, KEPT_IN_MEMORY // 2)),
        wrong=cast("KeptTensors", subject.bench.store(folder, KEPT_IN_MEMORY // 2)),
        host=subject.bench.host,
    )


def run_alone(subject: Subject, suspects: Callable[[str, float | None], bool], folder: Path) -> Alone:
    """Run both sides once more and say what each operator added.

    A target that takes few of its compared tensors back, since putting them there would make another engine of it (in
    INT8 what lies between a product and its quantiser), says of regions what was asked of operators: then the
    baseline's operators are run on the target's values in place of that.

    suspects: asked with a tensor's name and its error in units of rounding; the tensors of those it says yes to are
    kept. Raises BackendError.
    """
    if subject.target_replaces:
        alone = _run_alone(subject, suspects, make_empty_alone(subject, folder), folder)
        taken = subject.row_of.keys() & alone.found.keys()
        if subject.arithmetic not in _OF_STEPS or len(taken) >= _MOST_TAKEN * len(subject.row_of):
            return alone
        alone.close()
    return _run_alone(
        subject, suspects, dataclasses.replace(make_empty_alone(subject, folder), method="replayed"), folder
    )


def _run_alone(
    subject: Subject, suspects: Callable[[str, float | None], bool], alone: Alone, folder: Path
) -> Alone:  # fmt: skip
    noted: dict[str, None] = {}

    def note(name: str, exact: Any, wrong: Any) -> bool:
        if name in noted:
            return False
        noted[name] = None

        def measured(introduced: Introduced) -> None:
            alone.found[name] = introduced
            if suspects(name, introduced.units) or introduced.born_nan or introduced.born_inf or introduced.flips:
                alone.exact.put(name, exact)
                alone.wrong.put(name, wrong)

        start_measuring(subject, name, exact, wrong, alone.method, measured)
        known = alone.found.get(name)  # of a device it comes later
        return known is not None and known.max_abs == 0 and not (known.born_nan + known.born_inf)

    try:
        with contextlib.closing(subject.bench.waiting(folder, subject.budget(WAITING))) as waiting:
            if alone.method == "isolated":
                casts = Casts(subject)
                with _hold_unrounded(subject, folder) as true:
                    _run_isolated(subject, note, cast("KeptTensors", waiting), casts, true)
                alone.casts = casts.found
            else:
                replay_operators(subject, note, cast("KeptTensors", waiting))
            subject.bench.settle()
    except BaseException:
        alone.close()
        raise
    alone.found = {name: alone.found[name] for name in noted}
    return alone


@contextlib.contextmanager
def _hold_unrounded(subject: Subject, folder: Path) -> Iterator[Mapping[str, Any] | KeptTensors]:
    """The baseline's own tensors, of a target of integers; nothing of others.

    What such a target holds of one coarse tensor may be another tensor altogether, and what its readers make of that
    lies beyond ranges that were right: each operator is then given the baseline's values on the target's grid, not what
    was computed of the coarse ones before.
    """
    if subject.arithmetic not in _OF_STEPS or subject.bench.on_device:
        yield {}
        return
    names = frozenset(subject.partner.values())
    with contextlib.closing(cast("KeptTensors", subject.bench.store(folder, KEPT_IN_MEMORY // 2))) as true:

        def keep(_op: str, name: str, value: Any, /) -> None:
            if name in names and name not in true:
                true.put(name, np.array(as_array(value, name=name)))

        subject.baseline.run(subject.feeds, keep, names)
        yield true


def _run_isolated(
    subject: Subject, note: Callable[[str, Any, Any], bool], waiting: KeptTensors, casts: Casts,
    true: Mapping[str, Any] | KeptTensors,
) -> None:  # fmt: skip
    """note: says whether both are the same numbers. true: see ``_hold_unrounded``."""
    bench = subject.bench
    partner = subject.partner  # target name to baseline name
    target_of = {base: target for target, base in partner.items()}
    wanted = frozenset(target_of)
    passing = Passing(subject, waiting)

    def own_of(name: str, value: Any) -> Any:
        """Return the baseline's own tensor in place of one that was computed of held ones; what only moves follows of
        it."""
        own = None if subject.moves_on(name) else true.get(name)
        return own if own is not None and own.shape == value.shape else None

    def of_baseline(_op: str, name: str, value: Any) -> Any:
        target = target_of.get(name)
        if target is None:
            return None
        value = passing.put(name, to_array(value))
        if keeps_own(subject.baseline, name):
            return None
        if (own := own_of(name, value)) is not None:
            held = _as_held(subject, target, own)
            return own if held is None else held
        return None if subject.is_rounded(name) else _as_held(subject, target, value)

    def of_target(_op: str, name: str, value: Any) -> Any:
        base = partner.get(name)
        exact = None if base is None else passing.get(base)
        if base is None or exact is None:
            if name in casts.names:
                casts.see(name, np.array(bench.host(value)))
            return None
        wrong = bench.lasting(to_array(value))
        same = note(base, exact, wrong) and subject.moves_on(base) and not subject.broken(base)
        own = own_of(base, exact)
        same = same or (keeps_own(subject.target, name) and name not in casts.names)
        put = passing.taken(base, exact if own is None else own, wrong, same=same)
        if name in casts.names:
            casts.see(name, np.array(bench.host(wrong if put is None else put)))
        return put

    def baseline() -> Any:
        found = subject.operators()[0].run_replacing(subject.feeds, subject.showing(of_baseline), wanted)
        passing.end()
        return found

    def target() -> Any:
        replacer = subject.operators()[1]
        showing = subject.showing(of_target)
        if replacer is None:
            return None
        return replacer.run_replacing(subject.feeds_of_target, showing, frozenset(partner) | casts.names)

    passing.run(baseline, target)


def _as_held(subject: Subject, target: str, exact: Any) -> Any:
    """Return what the target's readers are given where an exact result is put in its place; None where that is the
    same.

    Of integers, what its narrower ones wrap around to: that is the loss of whoever made them, and no reader's.
    """
    meta = subject.targets.get(target)
    whole = not subject.bench.on_device and exact.dtype.kind in "iu" and meta is not None and meta.dtype in _WHOLE
    if whole and meta is not None and meta.dtype != exact.dtype.name:
        return exact.astype(meta.dtype).astype(exact.dtype)
    return subject.held(target, exact)


def replay_operators(subject: Subject, note: Callable[[str, Any, Any], object], waiting: KeptTensors) -> None:
    """Tell of each operator what the baseline's and the target's arithmetic make of the target's inputs."""
    partner = subject.partner
    lasting: dict[str, Array] = {}  # views of the target's parameters, which no run writes: not copied

    def of_target(_op: str, name: str, value: Any, /) -> None:
        base = partner.get(name)
        if base is not None and base not in waiting and base not in lasting:
            array = as_array(value, name=name)
            if keeps_own(subject.target, name):
                lasting[base] = array
            else:
                waiting.put(base, array)

    def of_baseline(_op: str, name: str, value: Any, /) -> Any:
        held = lasting.pop(name, None)
        wrong = waiting.get(name) if held is None else held
        if wrong is None:
            return None
        exact = np.asarray(value)
        note(name, exact, wrong)
        fits = exact.shape == wrong.shape and is_same_kind(exact, wrong) and not keeps_own(subject.baseline, name)
        put = np.array(wrong) if fits else None
        waiting.drop(name)
        return put

    subject.target.run(subject.feeds_of_target, of_target, frozenset(partner))
    putting = PutsKnown(of_baseline, waiting.get)
    subject.operators()[0].run_replacing(subject.feeds, putting, frozenset(partner.values()))


class Passing:
    """Hands the tensors of one run to the other, which goes on with them: in lockstep where the two may run together,
    else all of the first run's before the second begins.

    ``put`` and ``end`` are for the run that is followed, ``get`` and ``taken`` for the one that follows.
    """

    def __init__(self, subject: Subject, waiting: KeptTensors) -> None:
        self._bench = bench = subject.bench
        self._waiting = waiting
        self._meeting = Meeting(waiting, quietly=_QUIETLY[bench.on_device]) if subject.together else None
        self._lent = Loans()

    def put(self, name: str, value: Any) -> Any:
        """Hand a tensor over; returned as the other run sees it. What it lies in may be overwritten afterwards."""
        bench, meeting = self._bench, self._meeting
        if meeting is not None and (bench.on_device or value.nbytes <= _SMALL):  # a copy is lent, and the run goes on
            value = bench.kept(value)
            self._lent.add(meeting.lend(name, value), value.nbytes, _LENT[bench.on_device])
        else:
            (meeting or self._waiting).put(name, value)  # returns when it may be overwritten, as it is now
        return value

    def get(self, name: str) -> Any:
        """Return the other run's tensor, waited for; None where it has none."""
        return (self._meeting or self._waiting).get(name)

    def taken(self, name: str, theirs: Any, own: Any, *, same: bool = False) -> Any:
        """Return what this run goes on with in place of its own; None where that does not fit, or is the same
        numbers."""
        bench = self._bench
        fits = not same and theirs.shape == own.shape and bench.is_float(theirs) == bench.is_float(own)
        put = (theirs if bench.on_device else bench.kept(theirs)) if fits else None
        (self._meeting or self._waiting).drop(name)
        return put

    def end(self) -> None:
        """Wait for what is lent still."""
        self._lent.end()

    def run(self, first: Callable[[], Any], second: Callable[[], Any]) -> None:
        """Both runs: the one that puts, and the one that gets."""
        if self._meeting is not None:
            run_both(self._meeting, first, second)
        else:
            first()
            second()


def to_array(value: Any) -> Any:
    """Return what a run shows, as an array where it is not a tensor of a device."""
    return value if isinstance(value, np.ndarray) or hasattr(value, "device") else np.asarray(value)


def is_same_kind(first: Array, second: Array) -> bool:
    """Return whether one side's values may stand in the other's place."""
    return _is_float_array(first) == _is_float_array(second)


def _is_float_array(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in {"bfloat16", "float8_e4m3fn", "float8_e5m2"}


def measure(subject: Subject, name: str, exact: Any, wrong: Any, method: str) -> Introduced:
    """Return the numbers of one operator's two results."""
    found: list[Introduced] = []
    start_measuring(subject, name, exact, wrong, method, found.append)
    subject.bench.settle()
    return found[0]


def start_measuring(
    subject: Subject, name: str, exact: Any, wrong: Any, method: str, then: Callable[[Introduced], None]
) -> None:
    """Tell the numbers of one operator's two results, at once or later."""
    if exact.shape != wrong.shape:
        size = math.prod(exact.shape)
        then(Introduced(name=name, method=method, elements=size, flips=size))
        return
    subject.bench.start(
        exact, wrong, lambda found: then(_measure_introduced(subject, name, exact, wrong, method, found))
    )


def _measure_introduced(
    subject: Subject, name: str, exact: Any, wrong: Any, method: str, found: Comparison
) -> Introduced:
    bench = subject.bench
    size = found.base.elements
    if not bench.is_float(exact):
        return Introduced(name=name, method=method, elements=size, flips=found.mismatched)
    held_as = subject.held_as.get(name, "")
    error = measure_relative_error(exact, wrong, found.base, largest_of(held_as), found.sqnr_db, bench)
    unit = subject.unit(name, found.base)
    typical = max(unit, subject.unit_behind(name))
    non_finite = found.target.nan > found.base.nan or found.target.inf > found.base.inf
    if method == "replayed" and any(map(subject.broken, subject.sources(name))):
        non_finite = False  # it was given NaN or Inf: what an operator makes of those is not a loss of its own
    if method == "replayed" and non_finite and may_be_handed_nan(subject, name):
        non_finite, error = False, None  # it may have been: nobody saw what it read
    return Introduced(
        name=name,
        method=method,
        elements=size,
        rel_l2=error,
        max_abs=found.max_abs,
        unit=unit,
        units=None if error is None or not typical else error / typical,
        born_nan=max(0, found.target.nan - found.base.nan) if non_finite else 0,
        born_inf=max(0, found.target.inf - found.base.inf) if non_finite else 0,
    )


def may_be_handed_nan(subject: Subject, name: str) -> bool:
    """Return whether finite inputs of a target's operator are another engine's, and what lies before them has NaN or
    Inf.

    Engines that are built once for each few tensors may overflow in one of them alone: what an operator made of NaN in
    its own is then no loss of its own, though the inputs that were seen are finite.
    """
    own, sources = (
        _engine_seen_in(subject, name),
        [_engine_seen_in(subject, source) for source in subject.sources(name)],
    )
    return any(one not in {"", own} for one in sources) and any(
        _is_lost(subject, one) for one in subject.ancestors(name)
    )


def _engine_seen_in(subject: Subject, name: str) -> str:
    """Return the engine whose run showed a tensor, where several did."""
    running = subject.targets.get(subject.row_of[name].target_name)
    return "" if running is None else running.extra.get("Seen In", "")


def _is_lost(subject: Subject, name: str) -> bool:
    """See ``Subject.broken``; of a mask that overflows to -inf nothing is lost."""
    numbers = subject.row_of[name].comparison
    if numbers is None or not subject.broken(name):
        return False
    return numbers.target.nan > numbers.base.nan or not may_be_mask(numbers.base)


def measure_relative_error(
    exact: Any,
    wrong: Any,
    stats: TensorStats,
    largest: float,
    sqnr_db: float | None,
    bench: Workbench | None = None,
) -> float | None:
    """L2 of the error over L2 of the exact result, where neither a mask nor an overflow stands; None where nothing is.

    stats: of ``exact``. largest: beyond it the target's type has no number. sqnr_db: of all finite pairs.
    """
    bound = min(largest, MASK)
    extreme = max(abs(stats.min or 0.0), abs(stats.max or 0.0))
    if extreme <= bound and not stats.inf and sqnr_db is not None:
        return math.inf if sqnr_db < -6165 else float(10 ** (-sqnr_db / 20))
    error, size, count = (bench or HostWorkbench()).squares(exact, wrong, bound)
    if not count:
        return None
    if size == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return math.sqrt(error / size)


# Inherited error: what the baseline's operators make of the target's inputs, against the baseline's own results.

_NO_OPERATOR = frozenset({"Input", "Constant", "Output"})


def run_plain(subject: Subject, folder: Path) -> KeptTensors:
    """Return what an undisturbed run of the baseline computes, of all that was compared; the caller closes it.

    folder: for what waits on disk. Raises BackendError.
    """
    found = cast("KeptTensors", subject.bench.waiting(folder, subject.budget(WAITING)))

    def keep(_op: str, name: str, value: Any) -> None:
        if name in wanted and name not in found:
            found.put(name, to_array(value))

    wanted = frozenset(subject.row_of)
    try:
        subject.operators()[0].run_replacing(subject.feeds, subject.showing(keep), wanted)
    except BaseException:
        found.close()
        raise
    return found


def _start(subject: Subject, name: str, plain: Any, made: Any, then: Callable[[float], Any]) -> None:
    """Tell the relative L2 of what the baseline's operator made of the target's inputs, at once or later.

    It is inf where that is NaN or Inf, and nothing is told where it is not an error of floats.

    plain: what it makes of its own.
    """
    row, bench = subject.row_of.get(name), subject.bench
    if plain is None or row is None or row.op_type in _NO_OPERATOR or plain.shape != made.shape:
        return
    if not (bench.is_float(plain) and bench.is_float(made)):
        return

    def compared(found: Comparison) -> None:
        error = math.inf
        if not is_broken(found):
            measured = measure_relative_error(plain, made, found.base, math.inf, found.sqnr_db, bench)
            if measured is None:
                return
            error = measured
        then(error)

    bench.start(plain, made, compared)


def measure_inherited_errors(subject: Subject, folder: Path) -> dict[str, float]:
    """Of every compared tensor for which it can be measured, by the baseline's name.

    The target runs as ever, and the baseline beside it on the target's values. Raises BackendError.
    """
    partner = subject.partner
    target_of = {base: target for target, base in partner.items()}
    bench = subject.bench
    found: dict[str, float] = {}
    with (
        contextlib.closing(run_plain(subject, folder)) as plain,
        contextlib.closing(cast("KeptTensors", bench.waiting(folder, subject.budget(WAITING)))) as waiting,
    ):
        passing = Passing(subject, waiting)
        shown: set[str] = set()

        def of_target(_op: str, name: str, value: Any) -> None:
            base = partner.get(name)
            if base is not None and base not in shown:
                shown.add(base)
                passing.put(base, value if bench.on_device else as_array(value, name=name))

        def of_baseline(_op: str, name: str, value: Any) -> Any:
            stored = passing.get(name) if name in target_of else None
            if stored is None:
                return None
            made = bench.lasting(to_array(value))
            _start(subject, name, plain.get(name), made, functools.partial(found.setdefault, name))
            return passing.taken(name, stored, made, same=keeps_own(subject.baseline, name))

        def target() -> Any:
            outputs = subject.target.run(subject.feeds_of_target, of_target, frozenset(partner))
            passing.end()
            return outputs

        def baseline() -> Any:
            return subject.operators()[0].run_replacing(
                subject.feeds, subject.showing(of_baseline), frozenset(target_of)
            )

        passing.run(target, baseline)  # here the target is whom the other one waits for
        bench.settle()
    return {name: found[name] for name in target_of if name in found}
