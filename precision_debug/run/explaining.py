"""Explain a comparison: run both sides once more, each operator alone; then find what mends it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import events, explain
from ..errors import PrecisionDebugError
from ..explain import Subject
from ..feeds import FeedSet
from ..numbers.arrays import as_array
from ..numbers.number_types import BEHIND_FLOAT32, NUMBER_TYPES
from ..observe.store import Store
from ..onnx.file_operators import FileOperators
from ..onnx.model import read_model
from ..onnx.removed_activations import Removed, map_wrongly_removed
from ..protocols import Feeds, Hook, Operators, PutsKnown, Replace, Replacer, Session
from ..reasons import Reason, say
from ..reasons.ways import NO_WAY
from ..records import UNFUSED, Doubt, Explanation, KeptAlone, Operator, Row, Status
from ..search.fix import ToKeep
from ..settings.options import parse_variants
from .configurations import with_configurations
from .faulty_pass import with_faulty_pass
from .fixes import (
    add_repaired_culprit,
    measure_beside_float64,
    prove_by_remedy,
    try_fix,
    with_agreement,
    with_kept_alone,
    withdraw_culprits,
)
from .judging import CompareAgain, find_step_fixes
from .open_pair import Comparing
from .open_pair_run import OpenPair, SampleResult
from .plan import Opening, is_across_frameworks
from .recut import RecutSession
from .repetition import measure_with_other_threads
from .second_opinion import with_second_opinion
from .side import OpenSide
from .unseen_inputs import calibrates_on_compared, tell_unseen

__all__ = ["StandIn", "explain_sample", "judge_unseen"]


# The operators of a baseline that only replays: those of its model, run here and led along what was recorded.
#
# A recording has no operators, so nothing could be said of who introduced an error that it shows. Its model is here,
# though, in the target's own backend. Each operator of that gets the recorded inputs; by what its result differs from
# the recorded one, that result is moved, in every later run too. So an undisturbed run shows the recording, and an
# error that is put in goes on through the model's operators.

_IN_MEMORY = 1 << 28
"""Bytes of what results are moved by that are held in memory; more goes to the disk."""


@contextlib.contextmanager
def open_stand_in(base: OpenSide, target: OpenSide, feed_set: FeedSet, folder: Path) -> Iterator[Session]:
    """The baseline's session, with operators where it is a recording of the target's model and that can be run here.

    The model is open once more as long as the context lasts."""
    session = base.session
    replays = bool(base.opening.recording) and session.replacer is None
    if not replays or target.opening.backend is None or any(meta.phase for meta in session.tensors):
        yield session
        return
    with contextlib.ExitStack() as stack:
        found: Session = session
        with contextlib.suppress(PrecisionDebugError):
            plain = target.opening.in_mode().open(feed_set.calibrating)
            stack.callback(plain.close)
            if isinstance(target.session, RecutSession):
                plain = target.session.like(plain)
            names = {meta.name for meta in plain.tensors}
            known = all(meta.name in names for meta in session.tensors if not meta.unseen)
            if known and plain.replacer is not None and plain.replacer.replaces:
                moved = stack.enter_context(contextlib.closing(Store(memory_budget=_IN_MEMORY, folder=folder)))
                found = StandIn(session, plain.replacer, moved)
        yield found


class StandIn:
    """See protocols.Replacer: the recorded session, with the operators of its model.

    operators: a session of that model. moved: room for what recorded results differ by."""

    replaces = True
    workbench = None

    def __init__(self, recorded: Session, operators: Replacer, moved: Store) -> None:
        self._recorded, self._operators, self._moved = recorded, operators, moved
        self._outputs = frozenset(meta.name for meta in recorded.tensors if meta.is_output)
        self._is_led = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorded, name)

    @property
    def tensors(self) -> Any:
        """The recorded ones."""
        return self._recorded.tensors

    @property
    def replacer(self) -> StandIn:
        """Itself."""
        return self

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """Return what was recorded."""
        return self._recorded.run(feeds, hook, names)

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer. Raises BackendError."""
        self._lead(feeds)
        wanted = None if names is None else frozenset(names)
        outputs: dict[str, Any] = {}

        def put(op_type: str, name: str, value: Any) -> Any:
            found = self._as_recorded(name, value)
            shown = value if found is None else found
            new = replace(op_type, name, shown) if wanted is None or name in wanted else None
            put_back = found if new is None else new
            if name in self._outputs:
                outputs[name] = np.array(shown if put_back is None else put_back)
            return put_back

        shown_names = None if wanted is None else wanted | set(self._moved) | self._outputs
        return {**self._operators.run_replacing(feeds, put, shown_names), **outputs}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        return self._operators.held(name, value)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        return self._operators.operator(name)

    def close(self) -> None:
        """Nothing: both sessions are others'."""

    def _lead(self, feeds: Feeds) -> None:
        """Run the model on what was recorded, once, and keep what each result differs by."""
        if self._is_led:
            return
        for name in self._moved:  # of a run that ended early
            self._moved.drop(name)
        with contextlib.closing(Store(memory_budget=_IN_MEMORY)) as seen:
            several = set[str]()  # of a loop's body, each iteration

            def see(_op_type: str, name: str, value: Any, /) -> None:
                if name in seen:
                    several.add(name)
                else:
                    seen.put(name, np.asarray(value))

            self._recorded.run(feeds, see)

            def lead(_op_type: str, name: str, value: Any) -> Any:
                recorded, own = seen.get(name), np.asarray(value)
                if recorded is None or recorded.shape != own.shape:
                    return None
                if own.dtype.kind == "f" and recorded.dtype.kind in "fV":
                    with np.errstate(all="ignore"):
                        moved = recorded.astype(np.float64) - own.astype(np.float64)
                    if np.isfinite(moved).all():
                        self._moved.put(name, moved.astype(own.dtype))
                        return recorded.astype(own.dtype)
                return None

            self._operators.run_replacing(
                feeds, PutsKnown(lead, lambda name: None if name in several else seen.get(name)),
                frozenset(seen) - several,
            )  # fmt: skip
        self._is_led = True

    def _as_recorded(self, name: str, value: Any) -> Any:
        moved = self._moved.get(name)
        own = np.asarray(value)
        return None if moved is None or moved.shape != own.shape else (own + moved).astype(own.dtype)


# Sums inside one operator: a mean of many numbers may fit a narrow type whose sum on the way does not.

Array = np.ndarray[Any, Any]

_LIMIT = NUMBER_TYPES["float16"].largest
"""The largest float16."""
_LOST = NUMBER_TYPES["float16"].rounding
"""Relative error of rounding to float16 once; adding up n numbers rounds n times at most."""

_SQUARED = frozenset({"ReduceL2", "ReduceSumSquare"})
_ADDED = frozenset({"ReduceSum", "ReduceMean", "ReduceL1", "GlobalAveragePool", "CumSum"}) | _SQUARED
"""What engines sum in the type of its result, where nothing else is known; products accumulate in float32."""

_LARGEST = 1 << 24
"""Elements of a tensor up to which its sums are computed."""


@dataclass(frozen=True, kw_only=True)
class _Sum:
    """row: of the operator's result. source: the tensor that it sums."""

    row: Row
    source: str


def find_inner_sums(subject: Subject, accumulates: str) -> tuple[list[Reason], list[Doubt]]:
    """Notes on sums that may overflow inside, and doubts where they must: the sum itself is beyond float16.

    accumulates: the type in which the target is known to sum; "" not known. Nothing where the target holds no float16,
    or where a sum is known to be done in float32, and of rows that are not finite already.
    """
    if accumulates not in ("", "float16"):
        return [], []
    suspects = {one.source: one for row in subject.row_of.values() if (one := _suspect(subject, row)) is not None}
    if not suspects:
        return [], []
    notes: list[Reason] = []
    doubts: list[Doubt] = []

    def look(_op_type: str, name: str, tensor: Any, /) -> None:
        suspect = suspects.get(name)
        array = as_array(tensor)
        if suspect is None or array.size > _LARGEST:
            return
        total, most, terms = _measure_sums(subject, suspect, array.astype(np.float64))
        kind, made = suspect.row.op_type, suspect.row.name
        if total > _LIMIT:
            values = {"op": kind, "name": made, "terms": str(terms), "total": f"{total:.4g}"}
            doubts.append(Doubt(code="sum_overflows", values=values))
        elif most > _LIMIT:
            notes.append(say("sum_may_overflow", op=kind, name=made, terms=terms, most=most, lost=terms * _LOST))

    subject.baseline.run(subject.feeds, look, list(suspects))
    return notes, doubts


def _suspect(subject: Subject, row: Row) -> _Sum | None:
    """Return a sum whose terms are many and large enough, by what is known of its input already."""
    meta, numbers = subject.meta_of.get(row.name), row.comparison
    if meta is None or numbers is None or row.op_type not in _ADDED or subject.held_as.get(row.name) != "float16":
        return None
    if row.view.endswith(BEHIND_FLOAT32) or _precision_of(subject, row) == "FP32":
        return None  # it is kept: what it hands on is rounded, and its sum is not
    source = next((name for name in meta.inputs if name in subject.row_of), "")
    comparison = subject.row_of[source].comparison if source else None
    if comparison is None or numbers.target.nan + numbers.target.inf > numbers.base.nan + numbers.base.inf:
        return None
    largest = max(abs(comparison.base.min or 0.0), abs(comparison.base.max or 0.0))
    term = largest**2 if row.op_type in _SQUARED else largest
    terms = comparison.base.elements / max(1, numbers.base.elements if row.op_type != "CumSum" else 1)
    return _Sum(row=row, source=source) if terms * term > _LIMIT else None


def _precision_of(subject: Subject, row: Row) -> str:
    """Return the precision in which an engine that tells ran the operator; "" where it does not."""
    running = subject.targets.get(row.target_name)
    return "" if running is None else running.extra.get("Real Precision", "")


def _measure_sums(subject: Subject, suspect: _Sum, array: Array) -> tuple[float, float, int]:
    """Return the largest sum, the largest sum of sizes, and how many terms each has."""
    kind = suspect.row.op_type
    terms = np.square(array) if kind in _SQUARED else np.abs(array) if kind == "ReduceL1" else array
    axes = _find_sum_axes(subject, suspect, array.ndim)
    with np.errstate(all="ignore"):
        if kind == "CumSum":
            total, most = (np.abs(np.cumsum(one, axis=axes[0])) for one in (terms, np.abs(terms)))
        else:
            total, most = (np.abs(one.sum(axis=axes)) for one in (terms, np.abs(terms)))
    count = int(np.prod([array.shape[axis] for axis in axes], dtype=np.int64))
    return float(np.max(total, initial=0.0)), float(np.max(most, initial=0.0)), count


def _find_sum_axes(subject: Subject, suspect: _Sum, ndim: int) -> tuple[int, ...]:
    kind = suspect.row.op_type
    if kind == "GlobalAveragePool":
        return tuple(range(2, ndim))
    operator = subject.operators()[0].operator(suspect.row.name)
    stated: Any = None if operator is None else operator.attributes.get("axes")
    parameters: Mapping[str, Any] = {} if operator is None else operator.parameters
    for value in parameters.values():  # from opset 13 and 18 on the axes are an input
        if stated is None and np.asarray(value).dtype.kind == "i":
            stated = np.asarray(value).reshape(-1).tolist()
    axes = tuple(int(axis) % ndim for axis in stated) if stated else tuple(range(ndim))
    return axes[:1] if kind == "CumSum" else axes


# Both sides once more, each operator alone, and what its error does; then what mends it.

_LARGEST_FILE = 1 << 30
"""Bytes of a model and its weights up to which its operators are computed once more: they are all held in memory."""


def explain_sample(work: Comparing, both: OpenPair, sample: int, ran: SampleResult, again: CompareAgain) -> None:
    """Tell the journal who introduced the error of a sample, and what to keep. ran: what that sample gave."""
    work.journal.write(events.Stage(text=say("stage_explaining")))
    with open_stand_in(both.base, both.target, work.feed_set, work.folder) as baseline:
        subject = _make_subject(work, both, sample, ran)
        if baseline is not both.base.session:
            subject = dataclasses.replace(subject, baseline=baseline, two_frameworks=False)
        _explain(work, both, subject, sample, again)


def _explain(work: Comparing, both: OpenPair, subject: explain.Subject, sample: int, again: CompareAgain) -> None:
    explanation, agreeing = _explain_sample(work, both, subject, sample, again)
    if agreeing is not None:
        work.journal.write(events.KeepFound(to_keep=agreeing))
        return
    if not work.fixes:
        return
    tell_unseen(work, both, subject, explanation)
    for reason in _measure_threads(work, both.target, subject, explanation):
        work.note(reason)
    if explanation.culprits or explain.is_of_many(explanation):
        work.journal.write(events.Stage(text=say("stage_trying_fixes")))
    step = find_step_fixes(subject)
    scaled = None if step is None else step.try_on_step(subject, explanation, both.target)
    if scaled is not None and scaled.state == "mended":
        work.journal.write(events.KeepFound(to_keep=scaled))
        return
    alone, named = dict[str, KeptAlone](), [explanation.culprits]
    kept = try_fix(
        work.spec, both.base, both.target, subject, explanation, work.feed_set, work.folder, sample=sample,
        again=None if both.base.opening.recording else again,
        foreign=subject.two_files or is_across_frameworks(both.base.opening, both.target.opening),
        begun=lambda known: work.journal.write(events.KeepFound(to_keep=known)),
        on_stage=lambda stage: work.journal.write(events.Stage(text=stage)), on_alone=alone.update,
        on_named=named.append,
    )  # fmt: skip
    if alone or named[-1] != explanation.culprits:
        explanation = with_kept_alone(dataclasses.replace(explanation, culprits=named[-1]), alone)
        work.journal.write(events.Explained(explanation=explanation))
    if scaled is not None and (kept is None or kept.state != "mended"):
        kept = scaled  # no module mends it either
    refuted = withdraw_culprits(explanation, kept)
    overruled = add_repaired_culprit(refuted or explanation, kept, subject) or refuted
    if overruled is not None:
        work.journal.write(events.Explained(explanation=overruled))
    if kept is not None:
        work.journal.write(events.KeepFound(to_keep=kept))


def _measure_threads(
    work: Comparing, target: OpenSide, subject: explain.Subject, explanation: Explanation
) -> tuple[Reason, ...]:
    """Tell by how much another number of threads moves what a culprit gave, or what is out of bounds."""
    named = {name for one in explanation.culprits for name in (one.name, *one.keep)}
    off = {row.name for row in subject.rows if row.status is Status.FAIL}
    asked = {name for name, base in subject.partner.items() if off and base in named | off}
    calibrating = work.feed_set.for_target().calibrating
    return measure_with_other_threads(target, subject.feeds_of_target, asked, calibrating, work.folder)


def judge_unseen(work: Comparing, both: OpenPair, sample: int, ran: SampleResult) -> None:
    """Tell of inputs that did not calibrate, where nobody asks who introduced the error."""
    if work.fixes and not work.alone and calibrates_on_compared(both.base, both.target, work.feed_set):
        tell_unseen(work, both, _make_subject(work, both, sample, ran), None)


def _make_subject(work: Comparing, both: OpenPair, sample: int, ran: SampleResult) -> explain.Subject:
    spec, base, target = work.spec, both.base, both.target
    feeds, target_feeds = work.feeds(sample)
    outputs = {meta.name for meta in base.tensors if meta.is_output}
    inner = {meta.name for meta in target.tensors if meta.view == UNFUSED}
    targets = {
        meta.name: dataclasses.replace(meta, unseen=say("not_called"), view=NO_WAY) if meta.name in inner else meta
        for meta in target.tensors
    }
    return explain.Subject(
        baseline=base.session,
        target=target.session,
        feeds=feeds,
        target_feeds=target_feeds,
        rows=[
            dataclasses.replace(row, is_output=row.name in outputs) for row in ran.ends if row.target_name not in inner
        ],
        unfused=[row for row in ran.ends if row.target_name in inner],
        tensors=base.tensors,
        targets=targets,
        together=both.together,
        precision=target.opening.precision,
        simulation=bool(target.opening.mode and target.opening.mode.simulation),
        two_files=base.opening.spec.model != target.opening.spec.model,
        two_frameworks=base.opening.backend is not target.opening.backend,
        in_files=_make_file_operators_reader(base.opening, target.opening),
        removed=_make_removed_reader(base.opening, target.opening),
        operators_alone=_make_operators_reader(base.opening),
        memory_budget=spec.memory_budget,
        iterations=ran.iterations,
        bearers=ran.bearers,
        outputs=ran.base_outputs,
        target_outputs=ran.target_outputs,
        tokens=ran.tokens,
        variant=parse_variants(spec.input_variants)[sample] if spec.input_variants else "",
        fails=spec.tolerance.given and any(row.status is Status.FAIL and row.name in outputs for row in ran.rows),
    )


def _make_operators_reader(base: Opening) -> Callable[[], Operators | None] | None:
    """See explain.Subject. Read when they are first asked for."""
    runner = base.capabilities.operator_runner
    if runner is None:
        return None

    @functools.cache
    def operators() -> Operators | None:
        file = Path(base.spec.model.model_file)
        try:
            beside = [one for one in file.parent.iterdir() if one.name.startswith(file.stem)]  # weights of their own
            if sum(one.stat().st_size for one in beside) > _LARGEST_FILE:
                return None
            return runner.operators(base.spec)
        except (OSError, PrecisionDebugError):
            return None

    return operators


def _make_removed_reader(base: Opening, target: Opening) -> Callable[[], Mapping[str, Removed]]:
    """See explain.Subject: of an ONNX file and one that was quantised from it."""
    first, second = (opening.spec.model.model_file for opening in (base, target))

    @functools.cache
    def removed() -> Mapping[str, Removed]:
        if first == second or not all(one.lower().endswith(".onnx") for one in (first, second)):
            return {}
        try:
            return map_wrongly_removed(read_model(first), read_model(second))
        except (OSError, PrecisionDebugError):
            return {}

    return removed


def _make_file_operators_reader(
    base: Opening, target: Opening
) -> Callable[[str, str], tuple[Operator, Operator] | None] | None:  # fmt: skip
    """See explain.Subject. Of two ONNX files. Where one engine runs both it says it in its own words, except of an
    operator of another kind that reads the same, which it may write in parts."""
    first, second = (opening.spec.model.model_file for opening in (base, target))
    of_onnx = first.lower().endswith(".onnx") and second.lower().endswith(".onnx")
    if not of_onnx or first == second or None in (base.backend, target.backend):
        return None

    @functools.cache
    def files() -> tuple[FileOperators, FileOperators]:
        return FileOperators(read_model(first)), FileOperators(read_model(second))

    def held(name: str, there: str) -> tuple[Operator, Operator] | None:
        try:
            one, other = (file.operator_of(key) for file, key in zip(files(), (name, there), strict=True))
        except PrecisionDebugError:
            return None
        if one is None or other is None:
            return None
        anew = one.op_type != other.op_type and one.reads and one.reads == other.reads
        return (one, other) if anew or base.backend is not target.backend else None

    return held


def _explain_sample(
    work: Comparing, both: OpenPair, subject: explain.Subject, sample: int, again: CompareAgain
) -> tuple[Explanation, ToKeep | None]:  # fmt: skip
    spec, journal = work.spec, work.journal
    feeds, target_feeds = work.feeds(sample)
    decided = None
    try:
        decided = explain.find_changed_decisions(subject, spec.explain)
    except explain.NOT_LOOKED_AT as error:
        detail = str(error) if isinstance(error, PrecisionDebugError) else f"{type(error).__name__}: {error}"
        work.note(say("decisions_not_looked_at", detail=detail))
    explain_one = functools.partial(explain.explain, level=spec.explain, folder=work.folder)
    if work.shown:
        explain_one = functools.partial(
            explain_one, on_portrait=lambda portrait: journal.write(events.PortraitMade(portrait=portrait)),
            on_tokens=lambda effects: journal.write(events.TokenEffectsFound(effects=effects)),
        )  # fmt: skip
    explanation, found = explain_one(subject if decided is None else decided.before)
    if decided is not None and decided.clear and explanation.state == "healthy":
        explanation, found = explain_one(subject)  # of right scores: whoever decides may be who is wrong
    sides = both.base.opening, both.target.opening
    own = {one.name: one.size for one in found if one.size is not None}
    whole = {one.name: one.elements for one in found if one.rel_l2 is None}
    proven = prove_by_remedy(explanation, own, *sides, again, whole) if work.fixes else explanation
    if proven == explanation or spec.find_pass:  # a pass that leads to such kernels is not at fault
        proven = with_faulty_pass(
            proven, subject, both.target.opening, spec.find_pass, target_feeds, work.feed_set.for_target().calibrating
        )
    explanation = proven
    if decided is not None:
        explanation = explain.with_decisions(explanation, decided)
    else:
        explanation, flips = explain.with_choices(explanation, subject)
        for reason in flips:
            work.note(reason)
    explanation = explain.with_moved_constants(explanation, subject)
    mode = both.target.opening.mode
    if both.target.opening.precision == "float16" and mode is not None:
        notes, doubts = find_inner_sums(subject, mode.accumulates)
        for reason in notes:
            work.note(reason)
        both.target.doubt(doubts)
    if spec.second_opinion:
        journal.write(events.Stage(text=say("stage_second_opinion")))
        explanation, notes = with_second_opinion(explanation, both.base, feeds, work.folder)
        for reason in notes:
            work.note(reason)
    agreeing = None
    if work.fixes:
        explanation = with_configurations(explanation, *sides, again, work.folder, subject.order)
        exact, apart = measure_beside_float64(spec, both.base, both.target, subject, explanation)
        explanation, agreeing = with_agreement(
            explanation, spec, both.base, both.target, subject, work.feed_set, work.folder, exact, sample=sample,
            begun=lambda: journal.write(events.Stage(text=say("stage_trying_fixes"))),
        )  # fmt: skip
        if apart is not None and not any("exact_base" in one.evidence for one in explanation.culprits):
            work.note(apart)
    journal.write(events.IntroducedErrors(tensors=tuple(found)))
    journal.write(events.Explained(explanation=explanation))
    return explanation, agreeing
