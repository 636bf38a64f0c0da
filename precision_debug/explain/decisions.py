"""Judge decisions that rounding took otherwise: a choice, and what is off only because of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array
from ..numbers.blocks import widen
from ..numbers.number_types import QUANTISED
from ..pairing.align import strip_iteration
from ..reasons import Reason, say
from ..reasons.causes import CAUSES
from ..records import Culprit, Decision, Explanation, TensorMeta
from .choices import compare_choices, find_choice_axis, read_order
from .criteria import FAR, HALF
from .effects import Sink, list_sinks, measure_error_at
from .expected import run_shaken
from .operator_facts import find_acting_type
from .operators import BODIES, MOVE, SELECT, find_reached, plain_type, split_words
from .subject import Subject, replaces
from .units import LOOK_LEAST, MOST, TIMES, allowed_error
from .whole_numbers import count_moved, find_moved
from .work import Work
from .workbench import HostWorkbench

__all__ = ["NOT_LOOKED_AT", "find_changed_decisions", "with_choices", "with_decisions"]


# Choices that rounding flips: which operator chose otherwise, in how many places, and how far its scores were apart.
#
# A top-k, an argmax, a sort or a threshold makes whole numbers of floats: a rounding error that is nothing to any of
# them makes it take another expert or another branch, whose numbers have nothing to do with those of the first. What is
# told of it is measured: the scores of both sides, in the places where the choices differ.

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]

_LARGEST = 1 << 24
"""Elements of scores up to which they are looked at: 128 MiB as float64."""


def with_choices(explanation: Explanation, subject: Subject) -> tuple[Explanation, tuple[Reason, ...]]:
    """Return the explanation, whose culprits that flip a choice say so, and what else to say: where none does and the
    error is of rounding, the first choice that differs. Takes a run of both sides for each such operator."""
    flipped = _list_flipped(subject)
    if not flipped or explanation.state not in ("culprits", "diffuse"):
        return explanation, ()
    measured: dict[str, Evidence] = {}

    def told(name: str) -> Evidence:
        if name not in measured:
            measured[name] = _measure_choice(subject, name)
        return measured[name]

    culprits = []
    for culprit in explanation.culprits:
        decides = _find_deciding_choice(subject, culprit, flipped) if _rounds(subject, culprit) else ""
        evidence = told(decides) if decides else {}
        culprits.append(
            dataclasses.replace(culprit, cause="flips", evidence=evidence, amplifier=decides) if evidence else culprit
        )
    notes: tuple[Reason, ...] = ()
    rounding = all(CAUSES[one.cause].unproven or CAUSES[one.cause].enlarged for one in culprits[:1])
    if rounding and not any(one.cause == "flips" for one in culprits):
        before = subject.ancestors(explanation.at) | {explanation.at}
        first = next((name for name in flipped if name in before), "")
        notes = (_note(told(first)),) if first else ()
    return dataclasses.replace(explanation, culprits=tuple(culprits)), notes


def _rounds(subject: Subject, culprit: Culprit) -> bool:
    """Return whether nothing better is known of a culprit than that it rounds as others do."""
    ordinary = culprit.introduced is not None and not subject.far(culprit.introduced, culprit.units, FAR)
    return ordinary and CAUSES[culprit.cause].unproven


def _note(evidence: Evidence) -> Reason:
    name, op, count, places = (evidence[key] for key in ("amplifier", "amplifier_type", "count", "elements"))
    if "margin" in evidence:
        margin, off = evidence["margin"], evidence["off"]
        return say("choices_flip_apart", op=op, name=name, count=count, places=places, margin=margin, off=off)
    return say("choices_flip", op=op, name=name, count=count, places=places)


def _list_flipped(subject: Subject) -> list[str]:
    """Tensors of whole numbers or booleans, made of floats, in which the sides differ; in execution order."""
    found = []
    for name, row in subject.row_of.items():
        differs = row.comparison is not None and not _is_float(subject, name) and row.comparison.mismatched
        if differs and any(_is_float(subject, source) for source in subject.sources(name)):
            found.append(name)
    return sorted(found, key=lambda name: subject.order.get(name, 0))


def _is_float(subject: Subject, name: str) -> bool:
    row = subject.row_of[name]
    held = row.comparison.base.dtype if row.comparison is not None else ""
    return "float" in held or "complex" in held or subject.whole_steps(name)


def _find_deciding_choice(subject: Subject, culprit: Culprit, flipped: Sequence[str]) -> str:
    """The choice behind a culprit by way of which its error became large; "" where it did so by itself. Of several, the
    first: what is counted of choices, and read as a place, flips because they did."""
    after = subject.descendants(culprit.name)
    seen: set[str] = set()
    found: set[str] = set()
    waiting = [name for name in (culprit.amplifier, culprit.fails_first) if name in subject.row_of]
    while waiting:
        name = waiting.pop(0)
        if name in flipped and name in after:
            found.add(name)
        elif name not in seen:
            waiting += [source for source in subject.sources(name) if not _is_float(subject, source)]
        seen.add(name)
    return next((name for name in flipped if name in found), "")


def _measure_choice(subject: Subject, name: str) -> Evidence:
    """Return what differs there, and of which scores; as much as can be read of both sides."""
    row = subject.row_of[name]
    assert row.comparison is not None
    evidence: Evidence = {
        "amplifier": name, "amplifier_type": find_acting_type(subject, name), "count": row.comparison.mismatched,
        "elements": row.comparison.base.elements,
    }  # fmt: skip
    scores = [source for source in subject.sources(name) if _is_float(subject, source)]
    sizes = [subject.row_of[one].comparison for one in scores]
    if not scores or any(one is None or one.base.elements > _LARGEST for one in sizes):
        return evidence
    wanted = {one: subject.row_of[one].target_name or one for one in (name, *scores)}
    try:
        base = _values_of(subject.baseline, subject.feeds, {one: one for one in wanted})
        target = _values_of(subject.target, subject.feeds_of_target, {there: one for one, there in wanted.items()})
    except PrecisionDebugError:
        return evidence
    if not wanted.keys() <= base.keys() & target.keys():
        return evidence
    return {**evidence, **compare_choices([base[one] for one in scores], [target[one] for one in scores],
                                         base[name], target[name])}  # fmt: skip


def _values_of(session: Any, feeds: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Array]:
    """Return tensors of one more run, under other names."""
    found: dict[str, Array] = {}

    def hook(_op: str, name: str, tensor: Any, /) -> None:
        if name in names and names[name] not in found:
            found[names[name]] = np.array(as_array(tensor, name=name))

    session.run(feeds, hook, frozenset(names))
    return found


# Outputs that are off because decisions before them went otherwise: the decisions are judged, and not what is behind.
#
# A maximum kept by Equal, a top-k, an argmax, a threshold, a rounding to whole numbers: a rounding error that is
# nothing to a score turns the decision, and what is behind it is off by its own size. So the baseline runs with the
# target's decisions. Where the outputs are right then, it is asked how many decisions may turn (the baseline with every
# tensor off by its rounding turns some itself) and how far their scores may be apart; and operators are asked for at
# the scores.

_ROUND = split_words("""
    Round Floor Ceil Ceiling Sign round floor ceil trunc sign heaviside bernoulli ROUND FLOOR CEIL SIGN
""")
"""What they make of floats are whole numbers, whatever the type that these are held in."""

_STEPS = _ROUND | split_words("Cast Convert CAST to _to_copy")
"""What is decided there is to which whole number it is nearer."""

_PICKS = split_words("NonMaxSuppression")
"""What picks rows of what it reads, as many as there are."""

_FOLLOWS = split_words("Shape Size ShapeOf shape NonZero nonzero ConstantOfShape Constant Input Dropout")
"""What they say does not hang on the values of a float, or says once more what a decision says."""

NOT_LOOKED_AT = (PrecisionDebugError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""What may be raised while decisions are looked at, without the finished comparison being lost for it."""

_DRAWS = 3
"""Runs of the baseline with roundings of their own, to see how many decisions turn: more than one, since they are
counted, and few, since each is a run."""

_MOST = 64
"""Decisions of one model that are looked at."""

_HELD = 512 << 20
"""Bytes of one run's decisions, scores and what is behind them up to which they are looked at."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """decisions: that turned, first ones first. behind: tensors whose difference is theirs alone. before: the model as
    it is explained then, judged at the scores."""

    decisions: tuple[Decision, ...]
    behind: tuple[str, ...]
    before: Subject

    @property
    def clear(self) -> bool:
        """Whether some turned that no rounding turns: their scores are too far apart."""
        return any(one.margin is not None and one.reach and one.margin > one.reach for one in self.decisions)


def with_decisions(explanation: Explanation, decided: Decided) -> Explanation:
    """Return what was found of the scores, with the decisions. What they turn is as expected where they are, and the
    scores too; else it is everybody's where the scores have nobody."""
    fine = all(one.expected for one in decided.decisions)
    state = explanation.state
    if state == "healthy" and not fine:
        state = "diffuse"
    passes = explanation.passes and fine
    behind = decided.behind if fine and (state == "healthy" or passes) else ()
    return dataclasses.replace(
        explanation, state=state, passes=passes, decisions=decided.decisions, turned=behind, unfelt=""
    )


def find_changed_decisions(subject: Subject, level: str) -> Decided | None:
    """Return the decisions that the outputs are off by; None where there are none, where they are off by more, or where
    it cannot be told. Takes two runs of the baseline and one of the target, and five more where there are some. Raises
    what an engine raises that does not run so, and what a model's odd values do: see ``NOT_LOOKED_AT``."""
    if subject.is_step or subject.iterations or subject.same_integers or not replaces(subject.baseline):
        return None
    sinks = [
        sink
        for sink in list_sinks(subject, "")
        if sink.is_output and (sink.flips or sink.rel_l2 > max(LOOK_LEAST, subject.typical_unit))
    ]
    if not sinks or any(sink.non_finite for sink in sinks):
        return None
    names = _list_decisions(subject, [sink.name for sink in sinks], _list_bodies(subject))
    if not names or len(names) > _MOST:
        return None
    return None if Work(subject, level).too_large else _Turned(subject, sinks, names).judged()


def _list_decisions(subject: Subject, before: Sequence[str], bodies: Mapping[str, Sequence[str]]) -> list[str]:
    """Return tensors that decide before others, of floats; those of the target that are equal there are left out, but
    not beside another iteration of the same operator that is not."""
    reached = {*before, *find_reached(before, lambda one: _read(subject, one, bodies))}
    reached |= {name for name, values in _find_unordered(subject).items() if values in reached}
    decide = [
        name for name in sorted(reached, key=lambda name: subject.order.get(name, 0))
        if name in subject.meta_of and not bodies.get(name) and _decides(subject, subject.meta_of[name])
    ]  # fmt: skip
    found = {name: row.comparison for name in decide if (row := subject.row_of.get(name)) is not None}
    differ = {strip_iteration(name) for name in decide if (one := found.get(name)) is None or not one.identical}
    return [name for name in decide if strip_iteration(name) in differ]


def _find_unordered(subject: Subject) -> dict[str, str]:
    """Return the indices of each top-k whose file asks for no order, to its values, "" where nobody reads them."""
    found: dict[str, str] = {}
    for meta in subject.tensors:
        if plain_type(meta.op_type).lower() != "topk" or "float" in meta.dtype:
            continue
        operator = subject.operators()[0].operator(meta.name)
        if operator is not None and not operator.attributes.get("sorted", True):
            beside = (one for one in subject.tensors if one.node == meta.node and one.inputs == meta.inputs)
            found[meta.name] = next((one.name for one in beside if "float" in one.dtype), "")
    return found


def _list_bodies(subject: Subject) -> dict[str, Sequence[str]]:
    """Return for each result of a loop whose iterations are listed all tensors of these: no session lists which of them
    it is made of."""
    found: dict[str, Sequence[str]] = {}
    inside: dict[int, list[str]] = {}
    ended: set[int] = set()
    for meta in subject.tensors:  # in execution order: a loop's results stand behind its iterations
        depth = _loop_depth(meta.name)
        for one in range(depth):
            if one in ended:
                inside[one] = []
            ended.discard(one)
            inside.setdefault(one, []).append(meta.name)
        if plain_type(meta.op_type) in BODIES:
            found[meta.name] = inside.get(depth, ())
            ended.add(depth)
    return found


def _loop_depth(name: str) -> int:
    """Return how many loops a tensor is inside of: "x" 0, "x@3" 1, "x@3.0" 2."""
    return 0 if strip_iteration(name) == name else 1 + name.rpartition("@")[2].count(".")


def _read(subject: Subject, name: str, bodies: Mapping[str, Sequence[str]]) -> Sequence[str]:
    meta = subject.meta_of.get(name)
    return (*meta.inputs, *bodies.get(name, ())) if meta is not None else ()


def _decides(subject: Subject, meta: TensorMeta) -> bool:
    kind = plain_type(meta.op_type)
    if kind in _FOLLOWS or QUANTISED.search(meta.op_type) or subject.whole_steps(meta.name):
        return False
    if meta.name in subject.rounded or meta.name in subject.rounded_unseen:
        return False
    whole = bool(meta.dtype) and "float" not in meta.dtype and "complex" not in meta.dtype
    of_floats = any("float" in subject.meta_of[one].dtype for one in meta.inputs if one in subject.meta_of)
    return of_floats and (kind in _ROUND or (whole and (kind not in MOVE or kind in {"Cast", "Convert", "CAST"})))


class _Runs:
    """What is before and behind decisions, and their values in further runs of both sides."""

    def __init__(self, subject: Subject, names: Sequence[str]) -> None:
        """Collect the readers, rows and scores of the decisions called ``names``."""
        self.subject, self.names = subject, names
        self.bodies = _list_bodies(subject)
        readers: dict[str, list[str]] = {}
        for meta in subject.tensors:
            for one in _read(subject, meta.name, self.bodies):
                readers.setdefault(one, []).append(meta.name)
        self.readers = readers
        self.rows = {row.name: row for row in subject.rows if row.comparison is not None}
        """Of other shapes too: a decision may choose how many rows of a tensor go on, as an expert's tokens."""
        self.scores = {name: [one for one in self.read(name) if self._is_float(one)] for name in names}
        self.unordered = {name: values for name, values in _find_unordered(subject).items() if name in names}
        """Of a top-k in no order its values, by the name of its indices."""

    def read(self, name: str) -> Sequence[str]:
        """Return what a tensor is made of, as far as it is known."""
        return _read(self.subject, name, self.bodies)

    def _is_float(self, name: str) -> bool:
        meta = self.subject.meta_of.get(name)
        return meta is not None and "float" in meta.dtype

    def behind(self, names: Iterable[str]) -> set[str]:
        """Return what depends on these, themselves among it, and the values of a top-k in no order."""
        known, read = [*names], lambda one: (*self.readers.get(one, ()), *filter(None, [self.unordered.get(one)]))
        return {*known, *find_reached(known, read)}

    def nearest(self, name: str) -> set[str]:
        """Return the nearest compared tensors before one that the target does not show."""
        met = find_reached([name], self.read, lambda one: one not in self.subject.row_of)
        return {one for one in met if one in self.subject.row_of}

    def few(self, names: Iterable[str]) -> list[str]:
        """Return those of these tensors whose values can be held."""
        found, held = [], 0
        for name in names:
            numbers = self.rows[name].comparison
            held += 8 * numbers.base.elements if numbers is not None else 0
            if held > _HELD:
                break
            found.append(name)
        return found

    def unseen(self) -> frozenset[str]:
        """Scores that the target computes and does not show, or what they are chosen from."""
        found: set[str] = set()
        waiting = [one for scores in self.scores.values() for one in scores]
        while waiting:
            meta = self.subject.meta_of.get(waiting.pop())
            if meta is None or meta.name in self.subject.row_of or meta.op_type in {"Input", "Constant"}:
                continue
            if plain_type(meta.op_type) in SELECT | MOVE:
                waiting += meta.inputs
            else:
                found.add(meta.name)
        return frozenset(found)

    def list_telling(self, name: str) -> list[str]:
        """Return what tells the order of a top-k in no order; nothing of other decisions."""
        return [self.unordered[name], *self.readers.get(name, ())] if name in self.unordered else []

    def as_ordered(self, name: str, seen: Mapping[str, Array], there: Mapping[str, Array]) -> Array:
        """Return a decision of the baseline's in the target's order, where that says nothing and something tells it."""
        scores = [there[one] for one in self.scores[name] if one in there]
        pairs = [(seen[one], there[one]) for one in self.list_telling(name) if one in seen and one in there]
        orders = (read_order(scores[0], seen[name], *pair) for pair in pairs if scores)
        return next((order for order in orders if order is not None), seen[name])

    def limits(self, name: str) -> list[Array]:
        """Return the constant that a score is held against, where there is one."""
        operator = self.subject.operators()[0].operator(name)
        values = [np.asarray(one) for one in (operator.parameters if operator is not None else {}).values()]
        return [one for one in values if one.dtype.kind == "f"][:1]

    def of_target(self, names: Collection[str]) -> dict[str, Array]:
        subject = self.subject
        there = {self.rows[name].target_name or name: name for name in names}
        found: dict[str, Array] = {}

        def hook(_op: str, name: str, tensor: Any, /) -> None:
            if name in there and there[name] not in found:
                found[there[name]] = np.array(as_array(tensor, name=name))

        outputs = {name: subject.target_outputs[name] for name in there if name in subject.target_outputs}
        subject.target.run(subject.feeds_of_target, hook, frozenset(there))
        # an engine that is built to show its tensors may not be the one that is judged
        found |= {there[name]: np.array(as_array(value, name=name)) for name, value in outputs.items()}
        return found

    def of_baseline(
        self, values: Mapping[str, Array], wanted: Collection[str], *, own: bool = False
    ) -> dict[str, Array]:  # fmt: skip
        """Return tensors of a run of the baseline in which some have other values. own: of these what the baseline
        itself makes there, of all that was replaced before."""
        found: dict[str, Array] = {}

        def replace(_op: str, name: str, value: Any) -> Any:
            new = values.get(name)
            if new is not None and new.shape != value.shape:
                new = None
            if new is not None:
                new = np.ascontiguousarray(new.astype(value.dtype, copy=False))
            if name in wanted and name not in found:
                found[name] = np.array(as_array(value if new is None or own else new, name=name))
            return new

        names = frozenset({*wanted, *values})
        self.subject.operators()[0].run_replacing(self.subject.feeds, replace, names)
        return found

    def put(
        self, turned: Iterable[str], taken: Mapping[str, Array], plain: Mapping[str, Array],
        there: Mapping[str, Array],
    ) -> dict[str, Array]:  # fmt: skip
        """Return what makes the baseline decide as the target did: its decisions, or, of another number, which no
        engine takes in place of its own, the scores that they were taken by. The scores are judged by themselves."""
        found: dict[str, Array] = {}
        for name in turned:
            if taken[name].shape == plain[name].shape:
                found[name] = taken[name]
                scores = [plain[one] for one in self.scores[name] if one in plain]
                axis = find_choice_axis(scores[0], taken[name]) if self.unordered.get(name) and scores else None
                if axis is not None:
                    values = np.take_along_axis(scores[0], taken[name].astype(np.int64), axis)
                    found[self.unordered[name]] = values
            else:
                found |= {one: there[one] for one in self.scores[name] if one in there}
        return found

    def follow_scores(self, name: str, there: Mapping[str, Array], taken: Array) -> bool:
        """Return whether the baseline's operator picks what the target picked where it reads what the target reads: of
        boxes nothing says how near a choice was, and one that lost some by itself has not rounded."""
        read = {one: there[one] for one in self.scores[name] if one in there}
        if plain_type(self.subject.meta_of[name].op_type) not in _PICKS or len(read) < len(self.scores[name]):
            return True
        got = self.of_baseline(read, [name]).get(name)
        return got is not None and np.array_equal(got, taken)


class _Turned:
    """One model's decisions, as both sides took them."""

    def __init__(self, subject: Subject, sinks: Sequence[Sink], names: Sequence[str]) -> None:
        self.subject, self.sinks, self.names = subject, sinks, names
        self.runs, self.bench = _Runs(subject, names), HostWorkbench()

    def judged(self) -> Decided | None:
        subject = self.subject
        behind = self.runs.behind(self.names)
        numbers = {name: row.comparison for name, row in self.runs.rows.items() if name in behind}
        shown = [name for name, one in numbers.items() if one is not None and not one.identical]
        nearest = {one for name in self.names if name not in subject.row_of for one in self.runs.nearest(name)}
        wanted = {*self.names, *(one for scores in self.runs.scores.values() for one in scores)}
        wanted |= {sink.name for sink in self.sinks} | {*self.runs.few(shown)}
        there = self.runs.of_target((wanted | nearest) & self.runs.rows.keys())
        plain = self.runs.of_baseline({}, wanted)
        values = {name: plain[name] for name in self.names if name in plain}
        fixed = run_shaken(subject, wanted, draw=0, fixed=values)
        tried = None
        for taken in (self._taken(there, nearest), *self._read_back(plain, there)):
            turned = [
                name for name in self.names if name in taken and name in plain
                and _are_rows(taken[name], plain[name]) and count_moved(plain[name], taken[name])
            ]  # fmt: skip
            got = self.runs.of_baseline(self.runs.put(turned, taken, plain, there), wanted) if turned else {}
            tried = self._explained(plain, there, got, fixed) if turned else None
            if tried is not None:
                break
        put = self.runs.put(turned, taken, plain, there)
        scores = {one for name in turned for one in self.runs.scores[name]} - put.keys()
        # what is behind another decision is looked at in the run that took all of these as the target did
        followed = {**plain, **{one: got[one] for one in scores & got.keys()}}
        if tried is None or any(_is_drowned(self.runs, name, followed, there) for name in turned):
            return None
        if any(_is_another(self.runs, name, plain, there, taken[name]) for name in turned):
            return None
        draws = [
            run_shaken(subject, wanted, draw=draw, also=self.runs.unseen(), fixed=values, own=True)
            for draw in range(1, _DRAWS + 1)
        ]
        in_loop = any(strip_iteration(one) != one for one in turned)
        own = self.runs.of_baseline(put, wanted, own=True) if in_loop else plain
        decisions = self._of_first(turned, plain, own, there, taken, draws, tried)
        if any(max(one.count, one.predicted) > max(1.0, MOST * one.elements) for one in decisions):
            return None  # so many that no answer is left: whoever rounds there is to blame for it
        of_them = tuple(name for name in shown if self._rest(name, plain, there, got, fixed))
        decisions = tuple(dataclasses.replace(one, rest=self._left_at(one.at, there, got)) for one in decisions)
        return Decided(decisions=decisions, behind=of_them, before=self._before(turned, of_them))

    def _taken(self, there: Mapping[str, Array], nearest: Collection[str]) -> dict[str, Array]:
        """Return the target's decisions: as it shows them, or as the baseline's operators make them of its scores, of
        a top-k in no order in that which its values have in the target, or else what reads it."""
        taken = {name: there[name] for name in self.names if name in there}
        implied = [name for name in self.names if name not in there]
        if implied and nearest and {*nearest} <= there.keys():
            telling = {one for name in implied for one in self.runs.list_telling(name)} & there.keys()
            seen = self.runs.of_baseline({name: there[name] for name in nearest}, {*implied, *telling})
            taken |= {name: self.runs.as_ordered(name, seen, there) for name in implied if name in seen}
        return taken

    def _read_back(self, plain: Mapping[str, Array], there: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Decisions as an output of their own shape tells them: those that rounding may turn, and with which the
        baseline comes nearer to it. An engine that is built to show its scores may take others than the one that is
        judged, and one that shows none takes them all the same. A run of the baseline for each."""
        allowed = allowed_error(self.subject.typical_unit, None)
        for name in self.names:
            scores = [plain[one] for one in self.runs.scores[name] if one in plain]
            pair = [*scores, *([] if len(scores) != 1 else self.runs.limits(name))]
            if name not in plain or plain[name].dtype.kind != "b" or len(pair) != 2:
                continue
            reach = allowed * max(float(np.abs(widen(one)).max(initial=0.0)) for one in scores)
            near = np.broadcast_to(np.abs(widen(pair[0]) - widen(pair[1])) <= reach, plain[name].shape)
            outputs = [sink.name for sink in self.sinks if sink.name in there and sink.name in plain]
            fitting = [one for one in outputs if plain[one].shape == plain[name].shape == there[one].shape]
            got = self.runs.of_baseline({name: plain[name] ^ near}, fitting) if fitting else {}
            for one in fitting:
                wide = [widen(array[one]) for array in (there, got, plain)]
                nearer = near & (np.abs(wide[0] - wide[1]) < np.abs(wide[0] - wide[2]))
                yield {name: plain[name] ^ nearer}

    def _explained(
        self, plain: Mapping[str, Array], there: Mapping[str, Array], got: Mapping[str, Array],
        fixed: Mapping[str, Array],
    ) -> dict[str, float] | None:  # fmt: skip
        """Return how far the decisions alone put each output behind them; None where that is not what it is off by."""
        effect: dict[str, float] = {}
        matters = False
        for sink in self.sinks:
            name = sink.name
            if not {name} <= plain.keys() & there.keys() & got.keys():
                return None
            if np.array_equal(plain[name], got[name]):  # nothing of theirs: it is judged by itself
                continue
            if not self._rest(name, plain, there, got, fixed):
                return None
            off = measure_error_at(self.bench, plain[name], got[name], rounded=name in self.subject.rounded)
            effect[name] = off if off is not None else count_moved(plain[name], got[name]) / max(1, got[name].size)
            matters = matters or bool(sink.flips) or effect[name] ** 2 >= HALF * sink.rel_l2**2
        return effect if matters else None

    def _rest(
        self, name: str, plain: Mapping[str, Array], there: Mapping[str, Array], got: Mapping[str, Array],
        fixed: Mapping[str, Array],
    ) -> bool:  # fmt: skip
        """Return whether a tensor is the target's where the baseline takes the target's decisions, but for rounding."""
        if not {name} <= plain.keys() & there.keys() & got.keys() or got[name].shape != there[name].shape:
            return False
        rounded = name in self.subject.rounded
        rest = measure_error_at(self.bench, got[name], there[name], rounded=rounded)
        if rest is None:
            return not find_moved(got[name], there[name]).any()
        usual = measure_error_at(self.bench, plain[name], fixed[name], rounded=rounded) if name in fixed else None
        return rest <= allowed_error(self.subject.typical_unit, usual)

    def _left_at(self, name: str, there: Mapping[str, Array], got: Mapping[str, Array]) -> float | None:
        """Return what is left of an output's error where the baseline takes the target's decisions."""
        if not {name} <= there.keys() & got.keys() or there[name].dtype.kind not in "fV":
            return None
        return measure_error_at(self.bench, got[name], there[name], rounded=name in self.subject.rounded)

    def _of_first(
        self, turned: Sequence[str], plain: Mapping[str, Array], own: Mapping[str, Array], there: Mapping[str, Array],
        taken: Mapping[str, Array], draws: Sequence[Mapping[str, Array]], effect: Mapping[str, float],
    ) -> tuple[Decision, ...]:  # fmt: skip
        """Return the decisions that turned behind no other one; all iterations of a loop's operator as one, each
        beside what the baseline decides where those before it were the target's. own: that, and its scores."""
        after: set[str] = set()
        found = []
        for name in turned:
            if name in after:
                continue
            after |= self.runs.behind([name])
            whole = strip_iteration(name)
            same = [one for one in self.names if strip_iteration(one) == whole and one in taken and one in own]
            each = [self._decision(one, own, there, taken[one], draws, effect, plain) for one in same]
            found.append(each[0] if whole == name else _decide_of_all(whole, each))
        return tuple(found)

    def _decision(
        self, name: str, own: Mapping[str, Array], there: Mapping[str, Array], taken: Array,
        draws: Sequence[Mapping[str, Array]], effect: Mapping[str, float], plain: Mapping[str, Array],
    ) -> Decision:  # fmt: skip
        """own: the baseline's decision and its scores, as they are to be held against the target's; plain: as they are
        to be held against the draws'."""
        scores = [own[one] for one in self.runs.scores[name] if one in own]
        limits = [] if len(scores) != 1 else self.runs.limits(name)
        other = [there.get(one, own[one]) for one in self.runs.scores[name] if one in own]
        as_sets = name in self.runs.unordered
        pair = [*scores, *limits], [*other, *limits]
        told = compare_choices(*pair, own[name], taken, as_sets=as_sets) if scores else {}
        count = int(told.get("count", count_moved(own[name], taken)))
        elements = int(told.get("elements", taken.size))
        known = [plain[one] for one in self.runs.scores[name] if one in plain]
        drawn = [
            compare_choices(
                [*known, *limits], [*(draw[one] for one in self.runs.scores[name]), *limits], plain[name], draw[name],
                as_sets=as_sets,
            ).get("count", float(count_moved(plain[name], draw[name])))
            for draw in draws
            if name in draw and all(one in draw for one in self.runs.scores[name]) and _are_rows(draw[name], taken)
        ]
        predicted = float(np.mean(drawn)) if drawn else 0.0
        usual = [
            measure_error_at(self.bench, plain[one], draw[one]) or 0.0
            for one in self.runs.scores[name] for draw in draws if one in plain and one in draw
        ]  # fmt: skip
        allowed = allowed_error(self.subject.typical_unit, max(usual, default=None))
        margin = told.get("margin")
        reach = allowed * max((float(np.abs(widen(one)).max(initial=0.0)) for one in scores), default=0.0)
        near = margin <= reach or not reach if margin is not None else self.runs.follow_scores(name, there, taken)
        first = max(effect, key=lambda one: effect[one], default="")
        return Decision(
            name=name, op_type=self.subject.meta_of[name].op_type, count=count, elements=elements, margin=margin,
            off=told.get("off"), predicted=predicted, reach=reach, at=first, effect=effect.get(first, 0.0),
            expected=near and count <= TIMES * max(1.0, predicted),
        )  # fmt: skip

    def _before(self, turned: Sequence[str], behind: Sequence[str]) -> Subject:
        """Return the model as it is explained: scores are its outputs, and what is behind a decision has no author."""
        subject = self.subject
        after = self.runs.behind(turned)
        judged: set[str] = set()
        for name in turned:
            if not any(name in self.runs.behind([one]) for one in turned if one != name):
                judged |= self.runs.nearest(name)
        judged -= after
        rows = [
            dataclasses.replace(row, is_output=(row.is_output and row.name not in after) or row.name in judged)
            for row in subject.rows
        ]
        failing = {row.name for row in subject.rows if row.is_output and row.name not in behind}
        return dataclasses.replace(
            subject, rows=rows, bearers=subject.bearers | after, fails=subject.fails and bool(failing)
        )


def _is_drowned(runs: _Runs, name: str, plain: Mapping[str, Array], there: Mapping[str, Array]) -> bool:
    """Return whether an operator's scores are off by much of what tells them apart. That is their spread, or the
    step that they are rounded to, however small it is beside their size: whoever made the scores wrong has then
    made the decisions, near ones or not."""
    for one in runs.scores[name]:
        if one in plain and one in there and there[one].shape == plain[one].shape:
            base = widen(plain[one])
            apart = 1.0 if plain_type(runs.subject.meta_of[name].op_type) in _STEPS else float(np.std(base))
            if float(np.std(widen(there[one]) - base)) > MOST * apart:
                return True
    return False


def _is_another(runs: _Runs, name: str, plain: Mapping[str, Array], there: Mapping[str, Array], taken: Array) -> bool:
    """Return whether an operator that has one right answer gave another for the same numbers: no rounding does
    that. Not where an output is the judged engine's, and its scores are those of one that is built to show them."""
    scores, subject = runs.scores[name], runs.subject
    shown_apart = name in subject.target_outputs and not {*scores} <= subject.target_outputs.keys()
    if shown_apart or not {*scores} <= plain.keys() & there.keys():
        return False
    limits = [] if len(scores) != 1 else runs.limits(name)
    told = compare_choices([*(plain[one] for one in scores), *limits], [*(there[one] for one in scores), *limits],
                           plain[name], taken)  # fmt: skip
    step = plain_type(subject.meta_of[name].op_type) in _STEPS
    return told.get("off") == 0 and (step or (taken.dtype.kind == "b" and told.get("margin") == 0))


def _decide_of_all(name: str, each: Sequence[Decision]) -> Decision:
    """Return the decisions of all iterations of a loop's operator: a clear one in any of them is no rounding's."""
    turned = [one for one in each if one.count and one.margin is not None]
    clearest = max(turned, key=lambda one: float(one.margin or 0.0) / (float(one.reach) or 1.0), default=each[0])
    count, predicted = sum(one.count for one in each), sum(float(one.predicted) for one in each)
    near = clearest.margin is None or not clearest.reach or clearest.margin <= clearest.reach
    return dataclasses.replace(
        clearest, name=name, count=count, elements=sum(one.elements for one in each), predicted=predicted,
        off=max((one.off for one in turned if one.off is not None), default=None),
        expected=near and count <= TIMES * max(1.0, predicted),
    )  # fmt: skip


def _are_rows(one: Array, other: Array) -> bool:
    """Return whether two decisions are of one shape but for how many rows they pick."""
    return one.ndim == other.ndim and (one.shape == other.shape or (one.ndim > 0 and one.shape[1:] == other.shape[1:]))
