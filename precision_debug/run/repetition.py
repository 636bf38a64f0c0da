"""Run the same once more: several builds of the target, and each side on the same inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import numbers
from ..errors import PrecisionDebugError
from ..events import RepeatsFound, Stage
from ..explain import bound_of
from ..explain.introduced import WAITING
from ..explain.operators import find_reached
from ..feeds import FeedSet
from ..inspector import EngineLayer, compare_engines
from ..numbers import compare
from ..numbers.arrays import as_array
from ..numbers.cores import count_available_cores
from ..numbers.told import Repeats
from ..observe.hooks import CheckTarget, SaveBaseline
from ..observe.store import Store
from ..onnx.without_weights import list_random_operators
from ..protocols import Feeds, Hook, Session
from ..reasons import Reason, say
from ..records import Comparison, Doubt, Repeated, Row, RunSpec, TensorMeta, Tolerance
from ..settings import without_saving
from .journal import Journal
from .open_pair_run import OpenPair, SampleResult
from .plan import Opening
from .side import DRAWS, OpenSide, guard_call
from .trials import run_outputs

__all__ = ["Repetition", "measure_distance", "measure_with_other_threads", "run_again"]


# The target built and run anew, several times: how far its builds are apart, beside its error against the baseline.
#
# Engines choose kernels by timing them, sums may be taken in another order each time, and operators may be random: two
# builds of one model then give two answers. The first build's tensors wait (in memory up to a budget, on disk beyond
# it), and those of each further one are held against them.

_NAMED = 5
"""Tensors and layers that are named, at most."""


class Repetition:
    """A check whether runs and builds of the target repeat each other.

    Of the first build the second run is held, of the others the first one: generators of random numbers that begin anew
    with each build would otherwise hide that its runs differ.

    opening: the target. folder: an existing one, for what waits and what the builds write.

    Call ``hold`` while both sides are open and compared, ``finish`` when they are closed: one build is there at a
    time."""

    def __init__(self, spec: RunSpec, opening: Opening, feed_set: FeedSet, journal: Journal, folder: Path) -> None:
        self.count: int = spec.repeat or 0
        self._opening = dataclasses.replace(opening, comparer=None)  # all in the host's memory
        self._feed_set = feed_set.for_target()
        self._journal, self._folder = journal, folder
        budget = spec.memory_budget
        store = Store(folder=folder, memory_budget=WAITING if budget is None else budget)
        self._first = SaveBaseline(store=store)
        self._builds = 0
        self._layers: Sequence[EngineLayer] = ()
        self._sample: int | None = None
        self._seconds: list[float] = []
        self._errors: dict[str, list[float]] = {}
        self._found: dict[str, _Apart] = {}
        self._lost: set[str] = set()
        self._tactics: dict[str, None] = {}

    def hold(self, both: OpenPair, ran: SampleResult, feeds: Feeds, sample: int | None = None) -> None:
        """The open build is the first one. feeds: the target's. sample: its number, where there are many.

        A build whose tensors are on their own device is not: the first one is then made by ``finish``, too.
        """
        self._feeds, self._sample, self._names = feeds, sample, both.of_target
        self._tensors: Sequence[TensorMeta] = tuple(both.base.tensors)
        self._rows = ran.rows
        outputs = {meta.name for meta in both.base.tensors if meta.is_output}
        self._target_of = {row.name: row.target_name for row in ran.rows if row.name in outputs and row.target_name}
        self._truth = {
            name: np.array(as_array(ran.base_outputs[name], name=name))
            for name in self._target_of if name in ran.base_outputs
        }  # fmt: skip
        if both.target.opening.comparer is None:
            self._run(both.target.session, 0.0)

    def finish(self) -> None:
        """Make the further builds, and tell the journal. Raises PrecisionDebugError."""
        while self._builds < self.count:
            number = self._builds + 1
            self._journal.write(Stage(text=say("stage_repeating", number=number, count=self.count)))
            folder = Path(tempfile.mkdtemp(prefix="repeat-", dir=self._folder))
            begun = time.monotonic()
            try:
                spec = dataclasses.replace(self._opening.spec, work_dir=str(folder), options=self._options())
                opening = dataclasses.replace(self._opening, spec=spec)
                session: Session = guard_call(opening.label, partial(opening.open, self._feed_set.calibrating))
                try:
                    self._run(session, time.monotonic() - begun)
                finally:
                    session.close()
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        self._first.close()
        tensors = self._repeated()
        self._journal.write(
            RepeatsFound(
                repeats=Repeats(
                    count=self._builds, sample=self._sample, seconds=tuple(self._seconds),
                    errors={name: tuple(errors) for name, errors in self._errors.items()},
                    first=tuple(one.name for one in tensors if one.first)[:_NAMED],
                    tactics=tuple(self._tactics)[:_NAMED], tactics_changed=len(self._tactics),
                    not_in_all=tuple(sorted(self._lost))[:_NAMED],
                ),
                tensors=tensors,
            )
        )  # fmt: skip

    def _options(self) -> dict[str, Any]:
        """Return what a further build is told: it is one, and what the user keeps is the compared one."""
        options = self._opening.spec.options
        return {name: one for name, one in options.items() if not name.startswith("save_")} | {"anew": True}

    def _run(self, session: Session, opened: float) -> None:
        if not self._builds and opened:
            guard_call(self._opening.label, partial(session.run, self._feeds, _ignore_tensor, self._names))
        begun = time.monotonic()
        check = CheckTarget(self._first, tolerance=Tolerance(atol=0.0, rtol=0.0))
        hook: Hook = check if self._builds else self._first
        outputs: Mapping[str, Any] = guard_call(
            self._opening.label, lambda: session.run(self._feeds, hook, self._names)
        )
        if not self._builds:
            self._layers = tuple(session.layers)
        else:
            self._hold_against(check.rows)
            if self._layers and session.layers:
                changed = compare_engines(self._layers, session.layers).tactics_changed
                self._tactics |= dict.fromkeys(name for name, _, _ in changed)
        self._builds += 1
        self._seconds.append(opened + time.monotonic() - begun)
        for name, truth in self._truth.items():
            found = numbers.compare(truth, as_array(outputs[self._target_of[name]], name=name), Tolerance())
            self._errors.setdefault(name, []).append(measure_distance(found))

    def _hold_against(self, rows: Sequence[Row]) -> None:
        seen = set()
        for row in rows:
            if row.comparison is None:  # the first build has no such tensor
                self._lost.add(row.target_name)
                continue
            seen.add(row.target_name)
            self._found.setdefault(row.target_name, _Apart()).add(row.comparison)
        self._lost |= {meta.name for meta in self._first.tensors} - seen

    def _repeated(self) -> tuple[Repeated, ...]:
        """Of every tensor that was held against itself, in the table's order, by the baseline's names."""
        names = {row.target_name: row.name for row in self._rows if row.comparison is not None}
        apart = {names[key]: found for key, found in self._found.items() if key in names}
        reads = {meta.name: meta.inputs for meta in self._tensors}
        return tuple(
            Repeated(
                name=name, rel_l2=found.rel_l2, max_abs=found.max_abs, times=found.times,
                first=bool(found.times) and not _differs_before(name, reads, apart),
            )
            for name, found in apart.items()
        )  # fmt: skip


class _Apart:
    """The largest distances from the first build, and how many builds are not the same as it."""

    def __init__(self) -> None:
        self.rel_l2, self.max_abs, self.times = 0.0, 0.0, 0

    def add(self, found: Comparison) -> None:
        if found.identical or not found.base.elements:
            return
        far = measure_distance(found)
        if not far and not found.max_abs and not found.mismatched:
            return  # 0 and -0
        self.times += 1
        self.rel_l2 = max(self.rel_l2, far)
        self.max_abs = max(self.max_abs, math.inf if found.max_abs is None else float(found.max_abs))


def measure_distance(found: Comparison) -> float:
    """Measure how far two answers are apart, as relative L2.

    inf where NaN, Inf or shapes differ; of what has no such error the share of elements that differ.
    """
    if not found.shapes_match or found.apart:
        return math.inf
    error = found.relative_l2
    if error is None or math.isnan(error):
        return (found.mismatched or 0) / max(1, found.base.elements)
    return error


# What an engine computes otherwise with another number of threads.


def measure_with_other_threads(
    target: OpenSide, feeds: Feeds, asked: Collection[str], calibrating: Sequence[Feeds], folder: Path
) -> tuple[Reason, ...]:
    """Tell by how much the first tensor that depends on the number of threads moves with another one, and the output
    that moves most with it; nothing where none does.

    The target's session tells such tensors in ``by_threads``. asked: its tensors that somebody reads of: a culprit's,
    or out of bounds. One on which nothing of the error hangs is nobody's business, and costs a session."""
    found = [name for name in getattr(target.session, "by_threads", ()) if name in asked]
    if not found:
        return ()
    here = target.opening.spec.cores or count_available_cores()
    there, names = 1 if here > 1 else 2, frozenset(found)
    with tempfile.TemporaryDirectory(prefix="threads-", dir=folder) as room:
        options = without_saving(target.opening.spec.options)
        spec = dataclasses.replace(target.opening.spec, cores=there, work_dir=room, options=options)
        try:
            plain = run_outputs(target.session, feeds, target.opening.label, names)
            session = dataclasses.replace(target.opening, spec=spec).open(calibrating)
            with contextlib.closing(session):
                other = run_outputs(session, feeds, target.opening.label, names)
        except PrecisionDebugError:
            return ()  # then it is not known
    apart = {name: measure_distance(compare(plain[name], other[name])) for name in plain if name in other}
    moved = next((name for name in found if apart.get(name)), "")
    ends = [name for name in apart if name not in names and apart[name]]
    if not moved:
        return ()
    if not ends:
        return (say("by_threads", name=moved, here=here, there=there, error=apart[moved]),)
    worst = max(ends, key=lambda name: apart[name])
    return (
        say(
            "by_threads_to_output", name=moved, here=here, there=there, error=apart[moved], at=worst,
            moved=apart[worst],
        ),
    )  # fmt: skip


def _ignore_tensor(_op_type: str, _name: str, _tensor: Any, /) -> None:
    """A hook, so that the run goes where one with a hook goes."""


def _differs_before(name: str, reads: Mapping[str, Sequence[str]], apart: Mapping[str, _Apart]) -> bool:
    """Return whether something that a tensor was made of differs too; what was not seen is looked through."""
    made_of = find_reached([name], lambda one: reads.get(one, ()), lambda one: one not in apart)
    return any(apart[one].times for one in made_of if one in apart and one != name)


# Each side once more on the same inputs: what gives something else then is known by one of its answers alone.
#
# The sessions are those that were compared, still open, and show their tensors to nobody: it costs at most one run of
# each. Two outputs that are equal bit for bit say that the run repeats; of others the size counts.

_MOST = 1 << 30
"""Elements of all compared tensors up to which a side is run again; beyond, one run is most of the work."""


def run_again(spec: RunSpec, both: OpenPair, ran: SampleResult, feeds: Feeds, target_feeds: Feeds) -> None:
    """Doubt a side whose outputs differ from those that it gave, by more than the verdict allows.

    ran: what the sides gave, and still hold. Where both sides agreed to the bit, any difference is too much.
    """
    work = sum(row.comparison.base.elements for row in ran.rows if row.comparison is not None)
    if spec.run_once or work > _MOST:
        return
    finals = [row.comparison for row in ran.rows if row.is_output and row.comparison is not None]
    judge = _Judge(spec, both.target.opening.precision, exact=bool(finals) and all(one.identical for one in finals))
    alone = both.base is both.target
    sides: list[tuple[OpenSide, Mapping[str, Any], Feeds, Collection[str] | None, Hook]] = []
    if not alone:
        hook: Hook = _Lent() if both.together else _Unseen()
        sides.append((both.base, ran.base_outputs, feeds, both.names, hook))
    sides.append((both.target, ran.target_outputs, feeds if alone else target_feeds,
                  both.names if alone else both.of_target, _Unseen()))  # fmt: skip
    asked = [one for one in sides if _may(one[0])]
    # those that ran beside each other have a share of the cores each, and do so again
    with ThreadPoolExecutor(1) as beside:
        first = [beside.submit(_doubt_differing, *one, judge) for one in asked[:-1] if both.together]
        rest = [_doubt_differing(*one, judge) for one in asked[len(first) :]]
        found = [*(one.result() for one in first), *rest]
    for (side, *_), doubts in zip(asked, found, strict=True):
        side.doubt(doubts)


def _may(side: OpenSide) -> bool:
    """Return whether a second run says anything.

    Not of a recording, of a step, which goes on from the one before, or of what draws numbers, which is known."""
    if side.opening.backend is None or side.draws or any(meta.phase for meta in side.tensors):
        return False
    file = side.opening.spec.model.model_file
    if not file.lower().endswith(".onnx"):
        return not any(DRAWS.match(meta.op_type) for meta in side.tensors)
    try:
        return not list_random_operators(file, seeded=True)  # whose generator goes on in a second run of one session
    except PrecisionDebugError:
        return True


def _doubt_differing(
    side: OpenSide, outputs: Mapping[str, Any], feeds: Feeds, names: Collection[str] | None, unseen: Hook,
    judge: _Judge,
) -> list[Doubt]:  # fmt: skip
    label = side.opening.label
    before = {name: _copy_value(value, name) for name, value in outputs.items()}  # an engine may use its memory again
    try:
        after = guard_call(label, lambda: side.session.run(feeds, unseen, names))
    except PrecisionDebugError as error:
        return [Doubt(code="fails_again", values={"mode": label, "detail": str(error)})]
    worst, size = "", 0.0
    for name, one in before.items():
        if one is None or name not in after:
            continue
        found = compare(one, as_array(after[name], name=name), judge.tolerance)
        if not judge.allows(found) and measure_distance(found) >= size:
            worst, size = name, measure_distance(found)
    return [Doubt(code="differs_from_itself", values={"mode": label, "name": worst, "between": size})] if worst else []


class _Judge:
    """What the verdict allows between two answers. exact: nothing."""

    def __init__(self, spec: RunSpec, precision: str, *, exact: bool) -> None:
        self.tolerance, self._exact = spec.tolerance, exact
        self._allowed = None if spec.tolerance.given else bound_of(None, precision)

    def allows(self, found: Comparison) -> bool:
        if found.identical or not found.base.elements:
            return True
        if not found.shapes_match or found.apart:
            return False
        if self._exact:
            return not measure_distance(found) and not found.max_abs  # 0 and -0
        return not found.mismatched if self._allowed is None else measure_distance(found) <= self._allowed


def _copy_value(value: Any, name: str) -> Any:
    """None of what is no array."""
    array = as_array(value, name=name)
    return np.array(array) if array.dtype != object else None


class _Unseen:
    """A hook that looks at nothing, so that the run goes where the compared one went."""

    borrows = True

    def __call__(self, _op_type: str, _name: str, _tensor: Any, /) -> None:
        pass


class _Lent(_Unseen):
    """The same for a session that lends its tensors until another run has compared them."""

    def borrow(self, _op_type: str, _name: str, _tensor: Any, /) -> Callable[[], None]:
        return _do_nothing


def _do_nothing() -> None:
    pass
