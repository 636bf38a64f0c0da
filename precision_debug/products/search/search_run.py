"""The story of a search: compare, rank, find the smallest kept set, hold it against other inputs, hand it over."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ... import events
from ...errors import BackendError, BackendUnavailable, PrecisionDebugError, UsageError
from ...feeds import FeedSet
from ...ownership import choose_free_folder, is_ours, list_foreign_names, remember
from ...protocols import Executed, Handed, InRegions, Keep
from ...reasons import Reason, say
from ...records import RunSpec
from ...report.model import Report
from ...run.content import digest_feeds, digest_weights, list_unknown_reads
from ...run.criterion import Criterion, Sample, choose_save_setting, list_lost, with_drop
from ...run.inputs import load_feeds
from ...run.journal import Journal, read_events
from ...run.plan import Opening, make_plan, make_stage_spec
from ...run.to_keep import format_settings
from ...run.trials import Trials
from ...search.fix import Artefact, Evaluation, Fix, SearchRequest, TradePoint
from ...search.offer import FixRule, JudgedSet, Oracle, Spent, list_unbettered
from ...search.ranking import Group, describe_kept_units, rank_groups
from ...search.strategy import ENGINES, FoundSet, Rank, find_predicted, minimise, search_along_data
from ...search.units import Units
from .evaluations import (
    HELD_OUT,
    ROUGH,
    TRADE,
    Evaluations,
    compare_once,
    describe_evaluation,
    is_counted,
    is_rough,
    make_search_key,
)
from .unseen import Unseen

__all__ = ["EVALUATIONS", "search"]

EVALUATIONS = "evaluations.jsonl"
_WHOLE = 500
"""Tensors up to which the effect of every operator is measured for the ranking."""
_UNLIKE = 30.0
"""Times that a simulation's error with nothing kept may be apart from the engine's: beyond, it is of something else."""

_ROUGHLY = 0.5
"""Of the sets and seconds that a search may take, what those may that are only chosen among."""

_POINTS = 6
"""Set sizes that are run between nothing kept and everything kept, for the curve of error against the number kept."""


def search(spec: RunSpec, asked: SearchRequest, journal: Journal, folder: Path) -> None:
    """Run the comparison and the search, and tell the journal of both; the last event is "fix".

    folder: an existing one for temporary files. Raises PrecisionDebugError.
    """
    begun = time.monotonic()
    plan = make_plan(spec, work_dir=str(folder))
    keep = _keep(plan.target, asked.save)
    if keep is None or plan.baseline is None:
        raise UsageError(
            say("nothing_to_keep", mode=spec.run_mode), where="search", hint=say("lower_mode"),
        )  # fmt: skip
    if asked.check and not choose_save_setting(plan.target.settings, spec.run_mode):
        raise UsageError(
            f"run mode {spec.run_mode} saves no model that a command could check", where="--check",
            hint="name one that does: ort_fp16, ort_int8, trt_fp16, ov_bf16, …",
        )  # fmt: skip
    cached = next((one for one in plan.target.settings if one.name == "timing_cache"), None)
    if cached is not None and cached.matters("target", spec.run_mode) and "timing_cache" not in spec.options:
        # tactics that were timed once are not timed again for each set
        Path(asked.folder).mkdir(parents=True, exist_ok=True)
        cache = str(Path(asked.folder, "timing.cache"))
        spec = dataclasses.replace(spec, options={**spec.options, "target.timing_cache": cache})
        plan = make_plan(spec, work_dir=str(folder))
    assert plan.baseline is not None
    feed_set = load_feeds(spec, plan, ())
    digests = [digest_feeds([feeds]) for feeds in feed_set.feeds]
    digests.append(digest_weights([plan.baseline, plan.target]))
    with Evaluations(Path(asked.folder, EVALUATIONS), make_search_key(spec, asked, digests)) as known:
        _Search(spec, asked, plan.baseline, plan.target, keep, feed_set, journal, folder, known, begun).run()


def _keep(target: Opening, save: Mapping[str, str]) -> Keep | None:
    """Return what can be kept of the target; with where the user wants what is handed over. Raises
    PrecisionDebugError."""
    keep = target.keep()
    if keep is None or not save:
        return keep
    unknown = [name for name in save if name not in keep.saves]
    if unknown:
        named = {one.name: one.option for one in target.settings}
        taken = [named[name] for name in keep.saves]
        hint = say("search_saves", names=taken) if taken else say("search_artefacts")
        where = named.get(unknown[0], f"--{unknown[0]}")
        raise UsageError(say("search_saves_no", mode=target.spec.mode), where=where, hint=hint)
    spec = dataclasses.replace(target.spec, options={**target.spec.options, **save})
    return dataclasses.replace(target, spec=spec).keep()


class _Search:
    def __init__(
        self, spec: RunSpec, asked: SearchRequest, baseline: Opening, target: Opening, keep: Keep, feed_set: FeedSet,
        journal: Journal, folder: Path, known: Evaluations, begun: float,
    ) -> None:  # fmt: skip
        self.spec, self.asked, self.baseline, self.target, self.keep = spec, asked, baseline, target, keep
        self.feed_set, self.journal, self.folder, self.known, self.begun = feed_set, journal, folder, known, begun
        self.marks = spec.marks
        self.level = spec.explain
        self.tried = self.on_engine = self.rankings = 0
        self.told: set[tuple[str, tuple[str, ...], str]] = set()
        self.notes: list[Reason] = []
        self.oracles: dict[str, Oracle] = {}
        self.was: Executed | None = None
        self.alone = False

    def run(self) -> None:
        self.journal.write(events.Stage(text=say("stage_running", side=say("baseline"), mode=self.baseline.label)))
        if unknown := list_unknown_reads(self.spec, self.asked.check):
            self.notes.append(say("not_gone_on_from", why=unknown[0]))
        self.unseen = Unseen(self.spec, self.asked, self.baseline, self.target, self.feed_set)
        if self.unseen.note:
            self.notes.append(self.unseen.note)
        tensors = self.unseen.tensors
        self.units = Units(tensors, self.keep.key_of, self.keep.switches if isinstance(self.keep, InRegions) else ())
        if not self.units.operators:
            raise UsageError("the model has no operator that can be kept", where=self.spec.model.path)
        if self.keep.simulation and not (self.spec.marks or self.spec.marks_between):
            names = tuple(meta.name for meta in tensors if meta.is_output)
            self.spec = dataclasses.replace(self.spec, marks=names, explain="off")
            self.notes.append(say("only_outputs"))
        whole = len(tensors) <= _WHOLE
        self.level = "full" if whole or self.spec.explain == "full" else "fast"
        if not self.keep.simulation:
            self.spec = dataclasses.replace(self.spec, explain=self.level)
        report = self._compared()
        self.asked, self.criterion = _make_criterion(
            self.spec, self.asked, report, self.target.precision, self.unseen.seen
        )  # fmt: skip
        trials = self._trials(self.target, self.keep)
        low = self._evaluate(trials, (), self.unseen.seen)
        self.was = low.executed
        seen = self.unseen.seen  # of a run that failed there is no error, and the search goes on with what is kept
        self.unseen.seen = _with_errors(seen, low)
        self.samples = self.unseen.seen
        self.unseen.now = self._with_low(trials, self.unseen.now)
        self.journal.write(events.FixFound(fix=self._fix(trials, self._found(trials, report), low)))

    def _compared(self) -> Report:
        """Return the comparison with nothing kept; of an earlier search its journal."""
        kept = Path(self.asked.folder, f"comparison-{self.known.key}.jsonl")
        if kept.exists():
            self.notes.append(say("comparison_known"))
        report = compare_once(self.spec, kept, self._room("comparison"))
        for event in read_events(kept):
            self.journal.write(event)
        inputs = self._room("comparison") / "inputs.npz"
        if inputs.exists():
            shutil.move(inputs, self.folder / "inputs.npz")
        return report

    def _trials(self, opening: Opening, keep: Keep) -> Trials:
        calibrating = self.feed_set.for_target().calibrating
        return Trials(opening, keep.options, self.criterion, calibrating, self._room("trials"))

    def _room(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _with_low(self, trials: Trials, held_out: Sequence[Sample]) -> list[Sample]:
        if not held_out or not self.asked.limit.endswith("%"):
            return list(held_out)
        low = self._evaluate(trials, (), held_out, f"{HELD_OUT} {self.unseen.portion}, {len(held_out)}")
        return _with_errors(held_out, low)

    # evaluations ------------------------------------------------------------------------------------------------

    def _evaluate(
        self, trials: Trials, kept: Sequence[int] | frozenset[int], samples: Sequence[Sample], what: str = ""
    ) -> Evaluation:
        """One set, run or known; told to the journals."""
        keys = self.units.keys(kept)
        found = self.known.find(trials.mode, keys, what)
        if found is None:
            names = [self.units.units[unit].key for unit in sorted(kept)[:3]] + ["…"] * (len(kept) > 3)
            number, count, every, mode = self.tried + 1, len(kept), len(self.units), trials.mode
            text = say("stage_set", number=number, count=count, all=every, names=names, mode=mode)
            if what:
                text = say("stage_for", stage=text, what=describe_evaluation(what, len(samples)))
            self.journal.write(events.Stage(text=text))
            self.known.begin(trials.mode, keys, what)
            rough = is_rough(what)
            costly = bool(self.keep.simulation) and mode == self.spec.run_mode and is_counted(what)
            found = trials.run(keys, samples, rough=rough, timed=not rough, weighed=what == TRADE,
                               unseen=self.unseen.now if costly else ())  # fmt: skip
            self.known.end(found, what)
            if trials.unseen is not None:
                self.known.end(trials.unseen, self._checking)
        if (trials.mode, keys, what) not in self.told:
            self.told.add((trials.mode, keys, what))
            self.tried += is_counted(what)
            self.on_engine += is_counted(what) and trials.mode == self.spec.run_mode
            self.journal.write(events.Tried(kept=len(kept), evaluation=found.told, what=what))
        return found

    def _oracle(
        self, trials: Trials, samples: Sequence[Sample], what: str = "", exact: Oracle | None = None
    ) -> Oracle:  # fmt: skip
        rule = FixRule(
            before=(math.inf,), allowed=self.criterion.allowed if self.criterion.metric is None else 0.0, asked=True,
            was=self.was if trials.mode == self.spec.run_mode else None, alone=self.alone,
            metric="" if self.criterion.metric is None else self.asked.on,
        )  # fmt: skip

        def evaluate(kept: frozenset[int]) -> JudgedSet:
            nonlocal rule
            out_of_time = self.asked.seconds and time.monotonic() - self.begun > share * self.asked.seconds
            if (self.asked.runs and self.tried >= share * self.asked.runs) or (kept and out_of_time):
                raise Spent
            every = len(kept) == count  # where the precision is switched off, which is not an answer
            found = self._evaluate(trials, kept, samples, what if kept and not every else anew)
            if not kept:
                rule = dataclasses.replace(rule, before=found.sizes)
            return rule.judged(self.units, kept, found, every=every, silent=isinstance(self.keep, InRegions))

        count = len(self.units) if trials.mode == self.spec.run_mode else self.units.operators
        anew, share = what.removeprefix(ROUGH).strip(), _ROUGHLY if is_rough(what) else 1.0
        limits = [self.criterion.limit(sample) for sample in samples]
        known = [limit for limit in limits if limit is not None]
        limit = min(known) if len(known) == len(limits) else None
        oracle = Oracle(count, evaluate, limit=limit, exact=exact)
        if not is_rough(what):
            self.oracles[trials.mode] = oracle
        return oracle

    # the search -------------------------------------------------------------------------------------------------

    def _found(self, trials: Trials, report: Report) -> FoundSet:
        """Return the answer, checked on held-out samples."""
        as_it_is = self._evaluate(trials, (), self.samples).passes  # known since the beginning
        samples, start = self.samples, None if as_it_is else self._simulated()
        larger, first = list[frozenset[int]](), None if self.keep.simulation else report
        for turn in range(3):
            what = f"with {turn} held-out samples" if turn else ""
            while True:
                oracle, rough = self._oracle(trials, samples, what), None
                if trials.calibrates and not self.asked.check:  # a command knows what it wants of what is saved
                    rough = self._oracle(trials, samples, f"{ROUGH} {what}".strip(), oracle)
                rank = functools.partial(_rank, self, self.spec.run_mode, self.keep, first)
                if isinstance(self.keep, InRegions) and not self.asked.check:
                    found = _search_regions(oracle, self.units, self.groups or rank, start)
                else:
                    found = minimise(oracle, self.units, rank, start=start, rough=rough, first=larger)
                if self.alone or len(found.kept or ()) < len(self.units) or not (self.was and self.was.names):
                    break
                self.alone = True  # what takes none but itself out of the low precision is more than everything
            if not self.unseen.checks(found.state):
                return found
            assert found.kept is not None
            missed = self._missed(trials, found.kept)
            if found.state == "diffuse" or not missed:
                return found
            if turn == 2:
                break
            self.unseen.learn(missed[0])  # which is searched for too, once or twice
            self.unseen.now = self._with_low(trials, self.unseen.now)
            samples, start, larger = self.unseen.seen, found.kept or None, oracle.list_larger(found.kept)
        return dataclasses.replace(found, state="diffuse")

    def _missed(self, trials: Trials, kept: frozenset[int]) -> list[Sample]:
        """Return the samples that the search did not see on which a set does not hold; of one that did not run all."""
        held = self._evaluate(trials, kept, self.unseen.now, self._checking).held
        return [sample for sample, holds in itertools.zip_longest(self.unseen.now, held) if not holds]

    def _simulated(self) -> frozenset[int] | None:
        """Return what holds in the simulation, to be verified on the engine; None where there is none, or it says
        nothing."""
        mode = self.keep.simulation
        if not mode or self.asked.check:  # a command knows what it wants of the engine, not of a simulation
            return None
        with contextlib.suppress(PrecisionDebugError):
            opening = make_plan(make_stage_spec(self.spec, mode, {}), work_dir=str(self._room("simulation"))).target
            keep = opening.keep()
            if keep is None:
                return None
            trials = self._trials(opening, keep)
            oracle = self._oracle(trials, self.samples)
            if oracle.holds(()):
                self.notes.append(say("simulation_blind", mode=mode))
                return None
            real, simulated = self._error(self.spec.run_mode), self._error(mode)
            if real and simulated and not 1 / _UNLIKE <= real / simulated <= _UNLIKE:
                self.notes.append(say("simulation_unlike", mode=mode, simulated=simulated, real=real))
                return None
            self.simulation = mode
            rank = functools.partial(_rank, self, mode, keep, None)
            if isinstance(self.keep, InRegions):  # the engine makes it smaller: what holds here may not hold there
                kept, self.groups = find_predicted(oracle, rank)
                return kept
            found = minimise(oracle, self.units, rank, start=None)
            return found.kept if found.state in ("found", "unfinished") else None
        return None

    simulation, groups = "", tuple[Group, ...]()

    def _error(self, mode: str) -> float | None:
        """With nothing kept, as far as that is known by now; None where it is not a positive number."""
        known = self.known.find(mode, ())
        return known.error if known is not None and known.error and math.isfinite(known.error) else None

    @property
    def _checking(self) -> str:
        """What a run on the unseen samples is called; they are others where some came to be searched for."""
        return f"{HELD_OUT} {self.unseen.portion}, {len(self.unseen.now)}"

    # the answer -------------------------------------------------------------------------------------------------

    def _best_trade(self, trials: Trials, found: FoundSet) -> frozenset[int]:
        """Where nothing reaches the aim: the set that brings most for what it costs; empty where something does."""
        if found.state not in ("unfinished", "diffuse", "not possible") or trials.mode not in self.oracles:
            return frozenset()
        oracle = self.oracles[trials.mode]
        if found.state == "diffuse":  # the ranking's prefixes are its curve
            with contextlib.suppress(Spent):
                for some in _list_prefixes(found):
                    oracle.judge(some)
                    self._held(trials, some, run=True)
        allowed = self.criterion.allowed if self.criterion.metric is None else 0.0
        return oracle.best_trade(allowed)

    def _fix(self, trials: Trials, found: FoundSet, low: Evaluation) -> Fix:
        kept = found.kept or frozenset()
        whole = self._known(trials, range(len(self.units)))
        ran = whole.executed if whole is not None else None
        if whole is not None and not whole.errors and found.state != "found":
            self.notes.append(say("whole_did_not_run", why=whole.text))
        lost = self.was is not None and self.was.low and ran is not None and not ran.low
        if found.state == "found" and len(kept) == len(self.units) and lost:  # that switches the precision off
            found, kept = dataclasses.replace(found, state="not possible"), frozenset()
        best = self._best_trade(trials, found)
        after, first = self._error_of(trials, kept), self._error_of(trials, frozenset())  # of the same inputs
        artefacts: tuple[Artefact, ...] = ()
        obeyed: tuple[str, ...] = ()
        if found.state == "found":
            keys = self.units.keys(kept)
            every = [*self.unseen.seen, *self.unseen.now]
            artefacts = _hand_over(trials, self.keep, self.units, keys, every, Path(self.asked.artefacts), self.journal)
            obeyed = self._evaluate(trials, kept, self.samples).obeyed
        elif best:
            keys, goal = self.units.keys(best), self._error_of(trials, best)
            home = Path(self.asked.artefacts)
            artefacts = _hand_over(trials, self.keep, self.units, keys, self.samples, home, self.journal, goal)
        for path in self.asked.save.values() if not artefacts else ():
            self.notes.append(say("search_wrote_nothing", path=path))
        trade = self._traded(trials, found, best) if found.state != "not needed" else ()
        learnt = len(self.unseen.seen) - len(self.samples)
        if learnt:
            self.notes.append(say("held_out_used", count=learnt))
        known = self._known(trials, kept) if kept else None
        return Fix(
            state=found.state, kept=describe_kept_units(self.units, kept, found.groups),
            units=self.units.operators, unit=self.keep.unit,
            evaluations=self.tried, on_engine=self.on_engine, again=self.known.again,
            rankings=self.rankings, builds=1 + trials.opened, simulation=self.simulation,
            before=low.error if first is None else first, after=after, slices=self.criterion.in_slices,
            limit=self.criterion.words, minimal=found.minimal, samples=len(self.unseen.seen),
            held=self._held(trials, kept) or 0, held_out=len(self.unseen.now), trade=trade, artefacts=artefacts,
            obeyed=obeyed, was=self.was and self.was.counts, still=None if known is None else known.told.executed,
            whole=None if whole is None else whole.error, whole_passes=whole is not None and whole.passes,
            whole_still=ran and ran.counts, best=describe_kept_units(self.units, best, found.groups),
            best_error=self._error_of(trials, best) if best else None,
            best_option=format_settings(self.target.settings, self.keep.options(self.units.keys(best))) if best else "",
            settings={name: list(value) if isinstance(value, tuple) else value
                      for name, value in self.keep.options(self.units.keys(kept)).items()} if kept else {},
            notes=tuple(self.notes), seconds=time.monotonic() - self.begun,
        )  # fmt: skip

    def _known(self, trials: Trials, kept: Collection[int], what: str = "") -> Evaluation | None:
        return self.known.find(trials.mode, self.units.keys(kept), what)

    def _traded(self, trials: Trials, found: FoundSet, best: frozenset[int]) -> tuple[TradePoint, ...]:
        """Return what each set costs, in the order of how many are kept."""
        oracle = self.oracles[trials.mode]
        if oracle.all not in oracle.asked:  # what everything in high precision costs; no set of the search
            high = self._evaluate(trials, oracle.all, self.samples, TRADE)
            oracle.asked[oracle.all] = JudgedSet(high.passes, high.size)
        points = []
        for kept, what in sorted(_choose_points(oracle, found, best).items(), key=lambda pair: len(pair[0])):
            speed, size = None, None
            if what != "curve" or found.state == "diffuse":
                speed, size = self._cost(trials, kept)
            points.append(
                TradePoint(
                    what=what, kept=len(kept), passes=kept in oracle.asked and oracle.asked[kept].passes,
                    error=self._error_of(trials, kept), held_out=self._held(trials, kept), milliseconds=speed,
                    bytes=size,
                )
            )  # fmt: skip
        return tuple(points)

    def _cost(self, trials: Trials, kept: frozenset[int]) -> tuple[float | None, int | None]:
        """Return milliseconds and bytes of a set."""
        known = self._known(trials, kept)
        if known is None or known.milliseconds is None or (trials.saves and not self.keep.simulation):
            known = self._evaluate(trials, kept, self.samples, TRADE)  # there is a size to be had by opening it again
        return known.milliseconds, known.bytes

    def _held(self, trials: Trials, kept: frozenset[int], *, run: bool = False) -> int | None:
        """Return how many unseen samples hold with a set; None where that is not known, and it is not to be run for
        that."""
        known = self._known(trials, kept, self._checking)
        if known is None and run and self.unseen.now:
            known = self._evaluate(trials, kept, self.unseen.now, self._checking)
        return None if known is None or len(known.held) != len(self.unseen.now) else sum(known.held)

    def _error_of(self, trials: Trials, kept: frozenset[int]) -> float | None:
        judged = self.oracles[trials.mode].asked.get(kept) if trials.mode in self.oracles else None
        return judged.error if judged is not None and math.isfinite(judged.error) else None


def _rank(search: _Search, mode: str, keep: Keep, first: Report | None, kept: frozenset[int]) -> Sequence[Group]:
    """Rank the units while some are kept, by a comparison that is explained. Raises PrecisionDebugError.

    mode, keep: the target's, or a simulation's. first: the comparison with nothing kept, where that was explained."""
    units, report = search.units, first if not kept else None
    try:
        report = report or _explained(search, mode, keep, units.keys(kept))
    except (BackendError, BackendUnavailable, UsageError):
        if not kept:
            raise
        return _rank(search, mode, keep, first, frozenset())  # that it does not run so says nothing of the others
    return rank_groups(units, report.rows, report.explanation, kept, follows=True)


def _explained(search: _Search, mode: str, keep: Keep, keys: Sequence[str]) -> Report:
    options = {f"target.{name}": value for name, value in keep.options(keys).items()}
    there = search.spec if mode == search.spec.run_mode else make_stage_spec(search.spec, mode, {})
    there = dataclasses.replace(
        there, options={**there.options, **options}, top1=False, labels="", marks=search.marks, explain=search.level
    )
    path = search.known.path_of_comparison(mode, keys)
    search.rankings += not path.exists()
    room = search.folder / f"ranking-{mode}-{search.rankings}"
    try:
        return compare_once(there, path, room, shown=False)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _make_criterion(
    spec: RunSpec, asked: SearchRequest, report: Report, precision: str, seen: Sequence[Sample]
) -> tuple[SearchRequest, Criterion]:
    rows = [row for row in report.rows if row.comparison is not None and (row.is_output or asked.on == "all")]
    asked = with_drop(asked, [row.name for row in rows], seen)
    pairs = {row.name: row.target_name or row.name for row in rows}
    if not pairs or any(row.is_output and row.comparison is None for row in report.rows):
        raise UsageError("not every output could be compared, so nothing can be judged",
                         where=spec.model.path, hint="run the comparison alone to see why")  # fmt: skip
    from ...explain import bound_of

    allowed = bound_of(report.explanation, precision)
    return asked, Criterion.of(asked, spec.tolerance, pairs, allowed, lost=list_lost(rows))


def _search_regions(
    oracle: Oracle, units: Units, ranked: Rank | Sequence[Group], start: frozenset[int] | None
) -> FoundSet:  # fmt: skip
    """Return what holds of an engine of regions. start: what holds in a simulation; None: the ranking's first."""
    groups: Sequence[Group] = () if oracle.holds(()) else ranked(frozenset()) if callable(ranked) else ranked
    first = start or (groups[0].units if groups else frozenset())
    makers = (units.of(group.tensor) for group in groups if group.units <= first)
    oracle.end_after(ENGINES)
    return search_along_data(oracle, units, first, {unit for unit in makers if unit is not None}, groups)


def _choose_points(oracle: Oracle, found: FoundSet, best: frozenset[int]) -> Mapping[frozenset[int], str]:
    """The ends, the answer or the best trade, and some of the sets between that nothing smaller betters."""
    between = list_unbettered({kept: judged.error for kept, judged in oracle.asked.items()})
    chosen = dict.fromkeys(between[:: max(1, math.ceil(len(between) / _POINTS))], "curve")
    if found.kept is not None:
        chosen[found.kept] = "answer" if found.state == "found" else "curve"
    chosen |= {best: "best trade"} if best else {}
    return chosen | {frozenset(): "all low"} | ({oracle.all: "all high"} if oracle.all in oracle.asked else {})


def _list_prefixes(found: FoundSet) -> list[frozenset[int]]:
    """1, 2, 4, … groups of the ranking."""
    prefixes = list(itertools.accumulate((group.units for group in found.groups), operator.or_))
    return [prefixes[2**power - 1] for power in range(len(prefixes).bit_length())]


def _with_errors(samples: Sequence[Sample], low: Evaluation) -> list[Sample]:
    """Samples with the error of each where nothing is kept; inf where that did not run."""
    errors = low.sizes if len(low.sizes) == len(samples) else [math.inf] * len(samples)
    return [dataclasses.replace(sample, low=error) for sample, error in zip(samples, errors, strict=True)]


# What a search gives away, each made, loaded and run again as its user would.

_AGAIN = 1.5
"""Times the error that a trade had when it was searched for, which may have been in a simulation, up to which it is the
same again."""


def _hand_over(
    trials: Trials, keep: Keep, units: Units, keys: Sequence[str], samples: Sequence[Sample], home: Path,
    journal: Journal, goal: float | None = None,
) -> tuple[Artefact, ...]:  # fmt: skip
    """Return the backend's artefacts for kept units, in ``home``, verified on every sample. Raises PrecisionDebugError.

    goal: the error that they must come to, where they are a trade that misses what was asked for.

    Where files of their names there are not ours, the next free folder is taken, and a note says so.
    """
    tensors = [meta for unit in units.units for meta in unit.metas]
    place = home
    if list_foreign_names(home):
        with tempfile.TemporaryDirectory(dir=trials.folder) as trial:
            paths = [Path(handed.path) for handed in keep.hand_over(keys, tensors, Path(trial)) if handed.path]
            names = [path.name for path in paths if path.parent == Path(trial)]
        beside = [f"{name}.data" for name in names] + [str(Path(name).with_suffix(".bin")) for name in names]
        place = choose_free_folder(home, [*names, *beside])
    place.mkdir(parents=True, exist_ok=True)
    before, made = {path for path in place.rglob("*") if not is_ours(path)}, []
    for handed in keep.hand_over(keys, tensors, place):
        journal.write(events.Stage(text=say("stage_handing_over", title=handed.title)))
        made.append(_verify_artefact(trials, handed, samples, goal))
    for path in place.rglob("*"):
        if path.is_file() and path not in before:
            remember(path)
    if place != home:
        journal.write(events.Note(text=say("other_name", name=str(place))))
    return tuple(made)


def _verify_artefact(trials: Trials, handed: Handed, samples: Sequence[Sample], goal: float | None) -> Artefact:
    """Return what cannot be run on this machine is not verified; what does not load or hold is said to fail."""
    plain = Artefact(kind=handed.kind, title=handed.title, path=handed.path, text=handed.text, note=handed.note)
    try:
        if handed.maker:
            trials.made(handed)
        elsewhere = handed.mode != trials.mode and not handed.model  # which may write no file for the user's own check
        if handed.mode and not (elsewhere and trials.criterion.check is not None):
            used, milliseconds = trials.used(handed, samples)
            good, text = used.passes, used.text
            if goal is not None:
                good = good or (used.error is not None and used.error <= _AGAIN * goal)
                text = "" if good else text
            plain = dataclasses.replace(
                plain, verified=good, error=used.error, milliseconds=milliseconds, note=_join_notes(handed.note, text)
            )
        if handed.path:
            beside = Path(f"{handed.path}.data")
            size = Path(handed.path).stat().st_size + (beside.stat().st_size if beside.exists() else 0)
            plain = dataclasses.replace(plain, bytes=size)
    except BackendUnavailable as error:
        return dataclasses.replace(plain, note=_join_notes(handed.note, str(error)))
    except (PrecisionDebugError, OSError) as error:
        return dataclasses.replace(plain, verified=False, note=_join_notes(handed.note, str(error)))
    return plain


def _join_notes(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
