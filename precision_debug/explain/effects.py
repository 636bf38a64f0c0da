"""Measure what one operator's error does by itself: at the outputs, and to a language model's tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BackendError
from ..numbers.born import compute_finite_rmse
from ..numbers.exact_sum import sum_of_squares
from ..numbers.measure_tokens import log_probability
from ..numbers.told import Token, TokenEffect, TokenEffects
from ..pairing.align import strip_iteration
from ..protocols import Workbench, keeps_own
from ..records import Comparison, Effect, Row
from .criteria import FAR
from .introduced import MASK, Alone
from .packed import list_ruined_before
from .subject import Subject
from .work import Work

__all__ = [
    "NOISE",
    "NOTHING_CARRIED",
    "Carried",
    "Sink",
    "carry_errors",
    "carry_errors_together",
    "carry_given_errors",
    "find_noise",
    "list_sinks",
    "measure_error_at",
    "measure_error_without",
    "measure_growth",
    "measure_token_effects",
    "read_known_sinks",
    "run_plain_sinks",
    "squares_of",
]  # fmt: skip


# What one operator's error does by itself: put into the baseline's run, alone, and carried to where it is judged.

_NEARLY_ALL = 0.95
"""Share of the squared error from which no other operator is tried alone, where there are more than can be tried; one
that makes as much more than all of it interacts with others, which are tried then."""

_WORTH_HALVING = 0.5
"""Share of the squared error of several operators together from which one of them may be a culprit: see HALF of
culprits."""


_HELD = 32 << 20
"""Bytes of what runs of the baseline showed that are held, so that the same run is not made twice."""


@dataclass(frozen=True, kw_only=True)
class Sink:
    """A tensor where effects are judged. squared: the squared error that the comparison found there.

    size: the baseline's squared L2. elements: all of them. non_finite: those that are NaN or Inf in the target alone.
    is_output: of the model. flips: differing elements of a tensor without floats. apart: no numbers were compared,
    since the two sides have other shapes.
    """

    name: str
    squared: float
    size: float
    elements: int = 0
    non_finite: int = 0
    is_output: bool = False
    flips: int | None = None
    apart: bool = False

    @property
    def rel_l2(self) -> float:
        """Relative L2 error that the comparison found; inf where the baseline is 0 everywhere."""
        if self.squared == 0:
            return 0.0
        return math.sqrt(self.squared / self.size) if self.size else math.inf

    @property
    def lost(self) -> float:
        """The squared error with what is not finite: each such element is wrong by its own size, about."""
        return self.squared + (self.size * self.non_finite / self.elements if self.elements else 0.0)


def _make_sink(row: Row, *, is_output: bool, rounded: bool = False) -> Sink:
    numbers = row.comparison
    assert numbers is not None
    # and all of either side's may be NaN
    count, is_float = numbers.base.elements, "float" in numbers.base.dtype or rounded
    return Sink(
        name=row.name,
        squared=sum_of_squares(compute_finite_rmse(numbers), count) if is_float else 0.0,
        size=sum_of_squares(numbers.base.rms or 0.0, count) if is_float else 0.0,
        elements=count,
        non_finite=max(0, numbers.target.nan - numbers.base.nan) + max(0, numbers.target.inf - numbers.base.inf),
        is_output=is_output,
        flips=None if is_float else numbers.mismatched,
    )


def list_sinks(subject: Subject, first_failing: str) -> tuple[Sink, ...]:
    """Return the model's outputs, what they lose in slices, and the first tensor that is out of bounds ("" where none
    is)."""
    found, lost = [], _list_lost_before(subject)
    for row in subject.row_of.values():
        numbers = row.comparison
        is_output = row.is_output or row.name in lost
        if numbers is not None and (is_output or row.name == first_failing):
            found.append(_make_sink(row, is_output=is_output, rounded=row.name in subject.rounded))
    for row in subject.rows:
        numbers = row.comparison
        if row.is_output and numbers is not None and not numbers.shapes_match:
            flips = max(1, size := numbers.base.elements)
            found.append(
                Sink(name=row.name, squared=0.0, size=0.0, elements=size, is_output=True, flips=flips, apart=True)
            )
    return tuple(found)


def _list_lost_before(subject: Subject) -> frozenset[str]:
    """Return what comes to an output already ruined, in slices of which the target tells nothing there: it is judged
    like an output, since the whole, beside which it is small, does not show it."""
    rows = [row for row in subject.row_of.values() if row.is_output and row.comparison and row.comparison.lost]
    return frozenset(source for row in rows for source in list_ruined_before(subject, row))


def read_known_sinks(subject: Subject, sinks: Sequence[Sink]) -> dict[str, Any]:
    """Return the sinks' values where the comparison's own run has returned all of them; else {}."""
    if not all(sink.name in subject.outputs for sink in sinks):
        return {}
    return {sink.name: subject.bench.returned(subject.outputs, sink.name) for sink in sinks}


def run_plain_sinks(subject: Subject, candidates: Sequence[str], sinks: Sequence[Sink]) -> dict[str, Any]:
    """Return the sinks' values in an undisturbed run of the baseline."""
    return _run(subject, {}, candidates, sinks)


@dataclass(frozen=True, kw_only=True)
class Carried:
    """effects: of each operator that was tried alone, at each sink. untried: of the other candidates, in order.

    rest: the largest share of the squared error at an output that all the untried make together; None: not measured.
    part: the largest that one of the parts makes into which they were halved, so that one of them alone may make no
    more; None: all of them together make too little for it.
    """

    effects: Mapping[str, tuple[Effect, ...]]
    untried: tuple[str, ...] = ()
    rest: float | None = None
    part: float | None = None


NOTHING_CARRIED = Carried(effects={})


def carry_errors(
    subject: Subject, alone: Alone, candidates: Sequence[str], sinks: Sequence[Sink], plain: Mapping[str, Any],
    work: Work,
) -> Carried:  # fmt: skip
    """Return what the errors of candidates do at each sink, one after the other, in order.

    plain: the sinks in an undisturbed run. Each costs a run of the baseline. Where there are more candidates than the
    work allows for, the others are tried together, then by halves as long as a half makes as much as a culprit would:
    one among very many is found in a few runs, and of the rest it is known how much they make at most.
    Raises work.Ended.
    """
    able = [name for name in candidates if _fits(alone, name)]
    found: dict[str, tuple[Effect, ...]] = {}

    def effects_of(names: Sequence[str]) -> tuple[Effect, ...]:
        work.go_on()
        try:
            got = _run_with_own(subject, alone, names, candidates, sinks)
        except BackendError:  # sizes that what comes behind cannot have: no result is like its own
            if len(names) > 1 or subject.bench.is_float(alone.exact.get(names[0])):
                raise
            alone.unlike.add(names[0])
            return tuple(Effect(at=sink.name, share=1.0) for sink in sinks)
        return tuple(_measure_effect(subject, sink, plain.get(sink.name), got.get(sink.name)) for sink in sinks)

    def much(effects: Sequence[Effect]) -> float:
        at_outputs = [e.share for e, sink in zip(effects, sinks, strict=True) if sink.is_output] or [0.0]
        return max(at_outputs)

    for name in able[: work.runs]:
        found[name] = effects_of([name])
        if len(able) > work.runs and _is_nearly_all(found[name], sinks) and strip_iteration(name) == name:
            break
    rest = [name for name in able if name not in found]
    if not rest:
        return Carried(effects=found)
    together = much(effects_of(rest))
    group, share = rest, together
    left: list[float] = []
    while len(group) > 1 and share >= _WORTH_HALVING:
        halves = [group[: len(group) // 2], group[len(group) // 2 :]]
        shares = [much(effects_of(half)) for half in halves]
        share = max(shares)
        group = halves[shares.index(share)]
        left.append(min(shares))
    if len(group) == 1 and share >= _WORTH_HALVING:
        found[group[0]] = effects_of(group)
    elif left:
        left.append(share)
    untried = tuple(name for name in rest if name not in found)
    return Carried(effects=found, untried=untried, rest=together, part=max(left, default=None))


def carry_errors_together(
    subject: Subject, alone: Alone, names: Sequence[str], candidates: Sequence[str], sinks: Sequence[Sink],
    plain: Mapping[str, Any],
) -> tuple[Effect, ...]:  # fmt: skip
    """Return what the errors of some operators, all at once, do at each sink; takes a run of the baseline."""
    able = [name for name in names if _fits(alone, name)]
    got = _run_with_own(subject, alone, able, candidates, sinks)
    return tuple(_measure_effect(subject, sink, plain.get(sink.name), got.get(sink.name)) for sink in sinks)


def carry_given_errors(
    subject: Subject, errors: Mapping[str, tuple[Any, Any]], sinks: Sequence[Sink], plain: Mapping[str, Any]
) -> tuple[Effect, ...]:
    """Return the same of errors that are given: what a tensor is exactly and wrongly, by its name."""
    put = _list_put(subject, errors, sinks)
    got = _run(subject, {name: errors[name] for name in put}, list(errors), sinks)
    return tuple(_measure_effect(subject, sink, plain.get(sink.name), got.get(sink.name)) for sink in sinks)


def measure_growth(subject: Subject, alone: Alone, name: str, at: str) -> float | None:
    """Return how many times as large an operator's own error, and it alone, is where it arrives, both beside what it is
    the error of; None where that is no number. Takes two runs of the baseline."""
    if not _fits(alone, name):
        return None
    sinks = [Sink(name=one, squared=0.0, size=0.0) for one in (name, at)]
    plain, got = (_run_with_own(subject, alone, names, [name], sinks) for names in ([], [name]))
    own, arrives = (
        measure_error_at(subject.bench, plain[one], got[one]) if one in plain and one in got else None
        for one in (name, at)
    )  # fmt: skip
    return arrives / own if own and arrives is not None else None


NOISE = 1 << 16
"""Random numbers that are drawn once and used again and again: drawing them anew costs more than the model."""


def find_noise(subject: Subject, alone: Alone, name: str, at: str) -> Mapping[str, float]:
    """Return what the baseline's own result is worth where an error arrives, as evidence: by how much it moves when
    what a tensor holds is rounded once more: off by up to half of its type's spacing there, at random. {} where the
    error there is far more (one operator may round some times). Takes two runs of the baseline."""
    error = subject.row_of[at].relative_l2 if at in subject.row_of else None
    sinks = [Sink(name=one, squared=0.0, size=0.0) for one in (name, at)]
    plain = _run_with_own(subject, alone, [], [name], sinks) if error else {}
    held = subject.meta_of[name].dtype if name in subject.meta_of else ""
    if not plain.keys() >= {name, at} or held not in ("float16", "float32", "float64"):
        return {}
    random = np.random.default_rng(0)
    # the spacing at a number is its type's epsilon over how far the number is above the power of two below it
    shake = (random.uniform(-0.5, 0.5, NOISE) / 2 ** random.uniform(0, 1, NOISE)).astype(np.float32)
    moved = subject.bench.shaken(plain[name], shake, float(np.finfo(held).eps), 0, None)
    if moved is None:
        return {}
    (effect,) = carry_given_errors(subject, {name: (plain[name], moved)}, sinks[1:], plain)
    noise = effect.rel_l2
    return {"noise": noise} if noise is not None and error and min(error, 1.0) <= FAR * noise else {}


def run_with_errors(
    subject: Subject, alone: Alone, names: Collection[str], candidates: Sequence[str], at: str
) -> Any:  # fmt: skip
    """An output of a run of the baseline into which the own errors of some operators are put; None where it has none.
    candidates: all that are put in one time or another."""
    able = [name for name in names if _fits(alone, name)]
    return _run_with_own(subject, alone, able, candidates, [Sink(name=at, squared=0.0, size=0.0)]).get(at)


def _is_nearly_all(effects: Sequence[Effect], sinks: Sequence[Sink]) -> bool:
    """Return whether one operator's error is nearly all that there is at every output, so that another hardly
    matters."""
    judged = [(e, sink) for e, sink in zip(effects, sinks, strict=True) if sink.is_output and sink.lost]
    return bool(judged) and all(
        _NEARLY_ALL < e.share < 1 / _NEARLY_ALL and not sink.non_finite for e, sink in judged
    )  # fmt: skip


def measure_error_without(
    subject: Subject, alone: Alone, names: Sequence[str], without: Collection[str], sink: Sink, plain: Mapping[str, Any]
) -> float | None:
    """Return the relative L2 at a sink where every operator's own error is put into the baseline's run, but not some
    operators'.

    names: whose errors are known. None where it is not a number.
    """
    kept = [name for name in names if name not in without and _fits(alone, name)]
    got = _run_with_own(subject, alone, kept, names, [sink])
    if sink.name not in got or sink.name not in plain:
        return None
    return measure_error_at(subject.bench, plain[sink.name], got[sink.name], rounded=sink.name in subject.rounded)


class _Errors(Mapping[str, tuple[Any, Any]]):
    """Results of operators in the baseline's and in the target's arithmetic, read when they are asked for: on disk,
    maybe."""

    def __init__(self, alone: Alone, names: Collection[str]) -> None:
        self._alone, self._names = alone, dict.fromkeys(names)

    def __getitem__(self, name: str) -> tuple[Any, Any]:
        if name not in self._names:
            raise KeyError(name)
        return self._alone.exact.get(name), self._alone.wrong.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


def _fits(alone: Alone, name: str) -> bool:
    if name in alone.unlike:
        return False
    exact, wrong = alone.exact.get(name), alone.wrong.get(name)
    return exact is not None and wrong is not None and exact.shape == wrong.shape


def _run_with_own(
    subject: Subject, alone: Alone, names: Collection[str], candidates: Iterable[str], sinks: Sequence[Sink]
) -> dict[str, Any]:  # fmt: skip
    """Return the sinks of a baseline run with some operators' own errors: of one that ran before, where it showed them
    and they are held still."""
    key, wanted = _list_put(subject, names, sinks), {sink.name for sink in sinks}
    seen = alone.ran.get(key, {})
    if wanted <= seen.keys():
        return {name: seen[name] for name in wanted}
    found = _run(subject, _Errors(alone, key), candidates, sinks)
    if sum(one.nbytes for held in alone.ran.values() for one in held.values()) < _HELD:
        alone.ran[key] = {**seen, **found}
    return found


def _list_put(subject: Subject, names: Iterable[str], sinks: Sequence[Sink]) -> frozenset[str]:
    """Return whose errors are put into a run that shows these sinks: not those of tensors of which the baseline keeps
    its own value, unless that tensor is shown."""
    wanted = {sink.name for sink in sinks}
    return frozenset(name for name in names if name in wanted or not keeps_own(subject.baseline, name))


def _run(
    subject: Subject, errors: Mapping[str, tuple[Any, Any]], candidates: Iterable[str], sinks: Sequence[Sink]
) -> dict[str, Any]:
    """Return the sinks of a baseline run in which some operators' errors are added to their results."""
    bench = subject.bench
    wanted = {sink.name for sink in sinks}
    seen: dict[str, Any] = {}

    def replace(_op: str, name: str, value: Any) -> Any:
        new = bench.with_error(value, *errors[name]) if name in errors else None
        if name in wanted:
            seen[name] = bench.kept(value if new is None else new)
        return new

    # the same names each time, so that a session that is built for its taps is built once
    names = frozenset(candidates) | wanted
    subject.operators()[0].run_replacing(subject.feeds, subject.showing(replace), names)
    return seen


def _measure_effect(subject: Subject, sink: Sink, plain: Any, got: Any) -> Effect:
    if plain is None or got is None or plain.shape != got.shape:
        return Effect(at=sink.name, share=0.0 if plain is not None and got is None else 1.0)
    found = subject.bench.compare(plain, got)
    if not subject.bench.is_float(plain) and sink.name not in subject.rounded:
        flips = found.mismatched or 0
        return Effect(at=sink.name, share=flips / sink.flips if sink.flips else 0.0, non_finite=0)
    squared, size = squares_of(found)
    born = max(0, found.target.nan + found.target.inf - found.base.nan - found.base.inf)
    if not sink.non_finite:  # what is lost here, and only off in the target, counts as wrong by its own size
        squared += sum_of_squares(found.base.rms or 0.0, born)
    if born and sink.non_finite:
        return Effect(at=sink.name, share=born / sink.non_finite, non_finite=born)
    rel = math.sqrt(squared / size) if size else (0.0 if squared == 0 else math.inf)
    share = squared / sink.lost if sink.lost > 0 else 0.0
    return Effect(at=sink.name, share=share, rel_l2=rel, non_finite=born)


def squares_of(found: Comparison) -> tuple[float, float]:
    """Return the squared error over the finite pairs, and the baseline's squared L2."""
    numbers = found.base.nan + found.base.inf, found.target.nan + found.target.inf
    fair = found.base.elements - max(numbers)
    size = sum_of_squares(found.base.rms or 0.0, found.base.elements - numbers[0])
    return sum_of_squares(found.rmse or 0.0, fair), size


def measure_error_at(bench: Workbench, plain: Any, got: Any, *, rounded: bool = False) -> float | None:
    """Relative L2 error over the elements that are finite on both sides, masks left out; None where there is none.
    rounded: also of whole numbers, which are numbers here (see Subject.rounded)."""
    if plain.shape != got.shape or not (rounded or bench.is_float(plain)):
        return None
    found = bench.compare(plain, got)
    if max(abs(found.base.min or 0.0), abs(found.base.max or 0.0)) < MASK:
        squared, size = squares_of(found)
        nothing = found.base.elements <= found.target.nan + found.target.inf
        return math.sqrt(squared / size) if size and not nothing else None
    squared, size, _ = bench.squares(plain, got, math.nextafter(MASK, 0.0))
    return math.sqrt(squared / size) if size else None


# Who moves a language model's token: the errors of a layer, then of each operator, put into the baseline's run.
#
# An operator's relative error does not say what it does to one token. So each layer's own errors are put into the
# baseline's run alone, and the token's log-probability is read off the logits; then those of each operator of the layer
# that moves it most. What is left with that one repaired, and all others as they are, is measured, too.

_LAYER = re.compile(r"(?:^|[./\-])(\d+)(?=$|[./ @#-])")
"""The number of a layer in a tensor's name: model.layers.3.mlp/mul, /model/layers.3/mlp/Mul, ffn_out-3."""

_LAYERS = 64
"""Layers that are looked at one by one; of more, some that follow each other are taken together."""

_LEFT_OUT = 3
"""Operators of which it is measured what is left without them."""


def measure_token_effects(
    subject: Subject, alone: Alone, work: Work, allowed: float | None = None, *, healthy: bool = False
) -> TokenEffects | None:
    """Measure who moves the first token that is out of bounds, or where none is, the one that moves most.

    None where no token moves, or nothing is known of single operators; where the outputs are healthy and no token is
    out of bounds, too, unless all that can be said was asked for: it takes a run of the baseline for each layer, and
    there is nobody to look for. allowed: relative L2 of the logits. Raises work.Ended.
    """
    tokens = subject.tokens
    if tokens is None or not alone.found or tokens.logits not in subject.outputs:
        return None
    number = tokens.first_beyond(allowed)
    if number is None and healthy and not work.full:
        return None
    if number is None or tokens.tokens[number].difference is None:
        number = tokens.worst
    if number is None or not tokens.tokens[number].difference:
        return None
    names = sorted(alone.found, key=lambda name: subject.order.get(name, 0))
    length = np.shape(subject.feeds[tokens.ids])[-1]
    trial = _Trial(subject, alone, work, names, tokens.logits, tokens.tokens[number], length)
    whole = trial.moved(names)
    if whole is None:
        return None
    layers = _group_by_layer(names, max(1, min(_LAYERS, work.runs // 2)))
    moved = [trial.moved(members) for _, members in layers]
    if all(one is None for one in moved):
        return None
    told = tuple(
        TokenEffect(name=members[0], group=label or _largest_member(alone, members), moved=one, operators=len(members))
        for (label, members), one in zip(layers, moved, strict=True)
        if one is not None
    )
    most = max(range(len(layers)), key=lambda n: _size(moved[n]))
    operators = _measure_operators(trial, layers[most][1], names, work)
    return TokenEffects(token=number, whole=whole, layers=told, operators=operators)


def _measure_operators(
    trial: _Trial, members: Sequence[str], names: Sequence[str], work: Work
) -> tuple[TokenEffect, ...]:
    """Return each of a layer's alone, those that move the token most first."""
    own = trial.alone.found
    likely = sorted(members, key=lambda name: -_size(own[name].rel_l2))[: max(_LEFT_OUT, work.runs // 2)]
    alone = {name: one for name in likely if (one := trial.moved([name])) is not None}
    order = sorted(alone, key=lambda name: -_size(alone[name]))
    left = {name: trial.moved([other for other in names if other != name]) for name in order[:_LEFT_OUT]}
    return tuple(TokenEffect(name=name, moved=alone[name], left=left.get(name)) for name in order if alone[name])


class _Trial:
    """One prediction, and what errors of some operators make of it."""

    def __init__(
        self, subject: Subject, alone: Alone, work: Work, names: Sequence[str], logits: str, token: Token, length: int
    ) -> None:  # fmt: skip
        self.alone = alone
        self._subject, self._work, self._names, self._logits = subject, work, names, logits
        self._line, self._id = token.row * length + token.place - 1, token.id
        self._plain = self._said(subject.bench.host(subject.bench.returned(subject.outputs, logits)))

    def moved(self, names: Collection[str]) -> float | None:
        """By how much the log-probability changes; None where it is not a number."""
        self._work.go_on()
        found = run_with_errors(self._subject, self.alone, names, self._names, self._logits)
        if found is None:
            return None
        value = self._said(self._subject.bench.host(found)) - self._plain
        return value if math.isfinite(value) else None

    def _said(self, logits: Any) -> float:
        assert self._id is not None, "a prediction of a token that is known"
        return log_probability(logits, self._line, self._id)


def _group_by_layer(names: Sequence[str], most: int) -> list[tuple[str, list[str]]]:
    """Return the operators by layer, in order: a label and their names. What lies between layers is a layer of its
    own."""
    found: list[tuple[str, list[str]]] = []
    for name in names:
        at = _LAYER.search(name)
        label = name[: at.end()] if at is not None and at.start(1) > 0 else ""
        if at is not None and not re.search(r"[./]", name[: at.start(1)]):  # ffn_out-3
            label = f"…-{at[1]}"
        if found and found[-1][0] == label:
            found[-1][1].append(name)
        else:
            found.append((label, [name]))
    while len(found) > most:
        found = [(one[0][0], one[0][1] + (one[1][1] if len(one) > 1 else [])) for one in _pair_layers(found)]
    return found


def _largest_member(alone: Alone, members: Sequence[str]) -> str:
    """Of what lies between layers: the operator whose own error is largest."""
    return max(members, key=lambda name: _size(alone.found[name].rel_l2))


def _pair_layers(found: list[tuple[str, list[str]]]) -> list[list[tuple[str, list[str]]]]:
    return [found[n : n + 2] for n in range(0, len(found), 2)]


def _size(value: Any) -> float:
    return 0.0 if value is None or math.isnan(value) else abs(float(value))
