"""Who spoilt the gradients of a training step: a search over its phases and modules, then their operators.

A step has an output for each parameter, and each is as well conditioned as its own numbers are: the gradient of a bias
that softmax takes away is nothing but rounding, and Adam's first update is a sign. So each output has a bound of its
own: what rounding everywhere makes of it. Where one is beyond it, the errors that a whole phase introduces are put into
the baseline's step, then those of the module in it that makes most of it, down to one operator. The work is counted in
steps that are run, and grows with the depth of the model and not with its operators.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...explain.causes import find_cause
from ...explain.criteria import FAR, HALF, PART
from ...explain.culprits import ALONE, find_largest_growth, is_non_finite_in_target_alone
from ...explain.effects import Carried, Sink, carry_errors_together
from ...explain.expected import predict_errors
from ...explain.introduced import Alone
from ...explain.subject import Subject
from ...explain.units import (
    LEAST,
    LOOK_LEAST,
    LOOK_TIMES,
    MOST,
    TIMES,
    allowed_error,
    error_worth_failing,
    is_suspicious,
)
from ...explain.work import Work
from ...numbers.born import is_broken, make_introduced_infinite
from ...reasons.causes import CAUSES
from ...records import Culprit, Effect, Row
from ...settings.setting import FORWARD, OPTIMISER
from .step_causes import find_cause_in_step
from .step_updates import A_SIGN, UPDATE, WHOLE, count_terms, find_author, find_decided_by_rounding, is_lost

__all__ = [
    "Expectations",
    "blame_outputs",
    "find_allowed_errors",
    "find_wrong_outputs",
    "is_beyond_bound",
    "predict_step_errors",
]

LOSS = "loss"
"""The output that is judged as a model's answer is, whatever rounding everywhere predicts: a gradient may be nothing
but rounding in a healthy step, a loss may not."""

_DRAWS = 3
"""Times that rounding is drawn: the error of a single number, as a loss is, may come out next to nothing by chance."""

_SWING, _SWING_OF_FEW, _FEW = 4.0, 32.0, 16
"""Times that another draw of rounding may expect more of an output than the first did, and of one of few elements: in
1367 outputs of tests/planted/training_faults.py the third was at most 3.5 times as much, and 13.7 of a single number.
"""

_DECIDED_BY_SIGNS = ("update/", "state/")
"""Outputs of which the same was up to 123."""

_FAR_ONES = 8
"""Operators that are tried first, alone: those whose own error is far above rounding."""

_AS_MUCH = 0.9
"""Part of what the best one explains from which on the first in execution order is taken."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expectations:
    """errors: by output. draws: how many they are the largest of. whole: no further draw would change an answer."""

    errors: Mapping[str, float]
    draws: int
    whole: bool


def predict_step_errors(
    subject: Subject, plain: Mapping[str, Any], sinks: Sequence[Sink], drawn: Expectations | None = None
) -> Expectations:
    """Return the relative L2 error of each output that rounding everywhere makes of it; each draw takes a run of the
    baseline.

    One is enough where no output is beyond it: another draw can only expect more of each. It does for a while where
    the same outputs would be wrong if that were many times as much. drawn: one such, to which the others are added.
    """
    found = dict(drawn.errors) if drawn is not None else {}
    for draw in range(drawn.draws if drawn is not None else 0, _DRAWS):
        for name, error in predict_errors(subject, plain, sinks, draw=draw).items():
            found[name] = max(error, found.get(name, 0.0))
        if not find_wrong_outputs(subject, sinks, found) and not is_beyond_bound(
            sinks, find_allowed_errors(subject, sinks, found, blamed=False)
        ):
            break
        if drawn is None and _is_settled(subject, sinks, found):
            return Expectations(errors=found, draws=draw + 1, whole=False)
    return Expectations(errors=found, draws=_DRAWS, whole=True)


def _is_settled(subject: Subject, sinks: Sequence[Sink], found: Mapping[str, float]) -> bool:
    """Return whether another draw would leave each wrong output wrong.

    And beyond the bound that it has where somebody is to blame. Not asked of an optimiser's updates, which are decided
    by signs: one of them may be all of the error."""
    if any(subject.within_rank(sink.name)[1].startswith(_DECIDED_BY_SIGNS) for sink in sinks):
        return False
    more = {
        sink.name: found[sink.name] * (_SWING if sink.elements > _FEW else _SWING_OF_FEW)
        for sink in sinks if sink.name in found
    }  # fmt: skip
    bounds, wider = (find_allowed_errors(subject, sinks, one, blamed=True) for one in (found, more))
    alike = all(is_beyond_bound([sink], bounds) == is_beyond_bound([sink], wider) for sink in sinks)
    return alike and find_wrong_outputs(subject, sinks, found) == find_wrong_outputs(subject, sinks, more)


def is_beyond_bound(sinks: Sequence[Sink], bounds: Mapping[str, float]) -> bool:
    """Return whether an output is off by more than its bound."""
    return any(sink.non_finite or sink.flips or sink.rel_l2 > bounds[sink.name] for sink in sinks)


def find_wrong_outputs(subject: Subject, sinks: Sequence[Sink], expected: Mapping[str, float]) -> frozenset[str]:
    """Return the outputs whose authors are to be looked for."""
    unit, decided = max(subject.typical_unit, LOOK_LEAST), find_decided_by_rounding(subject, sinks, expected)
    return frozenset(
        sink.name for sink in sinks
        if sink.non_finite or sink.flips or is_lost(subject, sink, decided)
        or (sink.squared and sink.rel_l2 > max(_least_error_of_interest(subject, sink, unit),
        _predict_with_spread(subject, sink, expected)))
        or (_is_loss(subject, sink) and is_suspicious(sink.rel_l2, unit, expected.get(LOSS)))
    )  # fmt: skip


def _least_error_of_interest(subject: Subject, sink: Sink, unit: float) -> float:
    """Return the relative L2 error up to which nobody is looked for.

    Of what an optimiser makes it is what is of no account: its own constants are rounded once for all parameters (1 -
    0.999 in float32, as Paddle's AdamW has it, by 1.3e-5)."""
    own = subject.within_rank(sink.name)[1]
    return max(unit, LEAST) if own.startswith(_DECIDED_BY_SIGNS) else unit


def find_allowed_errors(
    subject: Subject, sinks: Sequence[Sink], expected: Mapping[str, float], *, blamed: bool
) -> dict[str, float]:
    """Return the relative L2 error up to which each output is as expected, or fails nothing although somebody is to
    blame."""
    unit, decided = subject.typical_unit, find_decided_by_rounding(subject, sinks, expected)
    if blamed:
        foretold = [(sink, _predict_with_spread(subject, sink, expected)) for sink in sinks]
        bounds = {
            sink.name: max(error_worth_failing(unit), min(MOST, error) if _is_loss(subject, sink) else error)
            for sink, error in foretold
        }
    else:
        bounds = {
            sink.name: allowed_error(unit, expected.get(sink.name)) if _is_loss(subject, sink)
            else max(
                allowed_error(unit, expected.get(sink.name)), TIMES * expected.get(sink.name, 0.0),
                _predict_with_spread(subject, sink, expected),
            ) for sink in sinks
        }  # fmt: skip
    return bounds | {sink.name: min(WHOLE, bounds[sink.name]) for sink in sinks if is_lost(subject, sink, decided)}


def _predict_with_spread(subject: Subject, sink: Sink, expected: Mapping[str, float]) -> float:
    """Return what rounding makes of an output, with what a draw of it differs from another.

    Where it leaves nothing of one, more, however it came about: the gradient of a bias before a batch norm is a sum
    that cancels. What rounding its terms makes is predicted, and a kernel that adds them up one after the other rounds
    each part sum, too. Part sums of terms that cancel grow as a random walk, so that this is about sqrt(n) times that,
    of n terms (the running error bound of Higham, Accuracy and Stability of Numerical Algorithms, 4.2).
    """
    error = expected.get(sink.name, 0.0)
    times = max(TIMES, math.sqrt(count_terms(subject, sink.name))) if error >= 1 else LOOK_TIMES
    row = subject.row_of.get(sink.name)
    base = row.comparison.base if row is not None and row.comparison is not None else None
    peak = max(abs(base.min or 0.0), abs(base.max or 0.0)) if base is not None else 0.0
    is_update = subject.within_rank(sink.name)[1].startswith(UPDATE)
    if not is_update or base is None or not base.rms or base.rms < A_SIGN * peak:
        return times * error
    # each sign that turns is off by twice the learning rate; how many do is a draw of Poisson's, three deviations wide
    one = 4 * peak**2 / (base.rms**2 * base.elements)
    turned = error**2 / one
    return max(times * error, math.sqrt(one * (turned + 3 * math.sqrt(turned) + 3)))


def _error_of_row(row: Row | None) -> float | None:
    """Return the relative L2 of an output; inf where it is NaN or Inf."""
    if row is None or row.comparison is None:
        return None
    return math.inf if is_broken(row.comparison) else row.relative_l2


def _is_loss(subject: Subject, sink: Sink) -> bool:
    return subject.within_rank(sink.name)[1] == LOSS


def blame_outputs(
    subject: Subject, alone: Alone, sinks: Sequence[Sink], looked: Collection[str], expected: Mapping[str, float],
    plain: Mapping[str, Any], names: Sequence[str], work: Work,
) -> tuple[tuple[Culprit, ...], Carried]:  # fmt: skip
    """Whoever makes most of each output that is wrong, the one that spoils most of them first.

    names: operators whose error may be carried. Raises work.Ended.
    """
    search = _Search(subject, alone, sinks, looked, expected, plain, names, work)
    left = set(looked)
    for name in search.born():
        left -= search.explained(name, search.effects_of([name]), left)
    for name in search.far():
        left -= search.explained(name, search.effects_of([name]), left)
    tree = _build_tree(subject, [name for name in names if name not in search.tried])
    while left and tree.names:
        author = search.within(tree, left)
        if author is None:
            break
        done = search.explained(author, search.tried[author], left)
        if not done:
            break
        left -= done
        tree = _build_tree(subject, [one for one in tree.names if one != author])
    untried = tuple(name for name in names if name not in search.tried)
    culprits = search.culprits()
    return culprits, Carried(effects=search.tried, untried=untried, rest=search.most(untried, left) if left else None)


@dataclasses.dataclass
class _Part:
    """A rank, a phase, a module in it, or an operator. names: its operators."""

    names: list[str]
    parts: dict[str, _Part]


def _build_tree(subject: Subject, names: Sequence[str]) -> _Part:
    root = _Part([], {})
    for name in names:
        at = root
        at.names.append(name)
        rank, own = subject.within_rank(name)
        for word in [rank] * bool(rank) + _split_path(own):
            at = at.parts.setdefault(word, _Part([], {}))
            at.names.append(name)
    return root


def _split_path(name: str) -> list[str]:
    """Of "backward/blocks.0.fc/addmm/mm#2": backward, blocks, 0, fc, addmm, mm#2."""
    phase, slash, rest = name.partition("/")
    if phase not in ("backward", "optimiser") or not slash:
        phase, rest = "forward", name
    scope, slash, operator = rest.partition("/")
    return [phase, *scope.split("."), *([operator] if slash else [])]


class _Search:
    """What was tried so far, and what it explains."""

    def __init__(
        self, subject: Subject, alone: Alone, sinks: Sequence[Sink], looked: Collection[str],
        expected: Mapping[str, float], plain: Mapping[str, Any], names: Sequence[str], work: Work,
    ) -> None:  # fmt: skip
        self._subject, self._alone, self._plain, self._work = subject, alone, plain, work
        self._looked = [sink for sink in sinks if sink.name in looked]
        self._names, self._expected = names, expected
        self.tried: dict[str, tuple[Effect, ...]] = {}
        self._explains: dict[str, set[str]] = {}

    def effects_of(self, names: Sequence[str]) -> tuple[Effect, ...]:
        """Return what the errors of some operators together do; takes a run of the baseline."""
        self._work.go_on()
        found = carry_errors_together(self._subject, self._alone, names, self._names, self._looked, self._plain)
        if len(names) == 1:
            self.tried[names[0]] = found
        return found

    def born(self) -> list[str]:
        """Return operators that make NaN or Inf of their own, the first first, as far as an output has some."""
        if not any(sink.non_finite for sink in self._looked):
            return []
        found = [name for name in self._names if self._alone.found[name].born_nan + self._alone.found[name].born_inf]
        return sorted(found, key=self._place)[:_FAR_ONES]

    def far(self) -> list[str]:
        """Return operators whose own error is far above rounding: the first of the step, then the largest first."""
        units = {name: self._alone.found[name].units or 0.0 for name in self._names if name not in self.tried}
        found = [
            name for name in units
            if self._subject.far(self._alone.found[name].rel_l2, units[name], FAR) or self._alone.found[name].flips
        ]  # fmt: skip
        begins = min(found, key=self._place, default="")
        return sorted(found, key=lambda name: (name != begins, -min(units[name], 1e6), self._place(name)))[:_FAR_ONES]

    def within(self, part: _Part, left: Collection[str]) -> str | None:
        """Return the operator of a part that makes most of what is left; None where no part of it makes half."""
        while part.parts or len(part.names) > 1:
            if not part.parts:  # several of one name cannot be: names are unique
                return None
            parts = list(part.parts.values())
            if len(parts) == 1:
                part = parts[0]
                continue
            shares = [self._much(self._of(one.names), left) for one in parts]
            best = max(shares)
            if best < HALF:
                return None
            part = parts[next(place for place, share in enumerate(shares) if share >= _AS_MUCH * best)]
        if not part.names:
            return None
        if part.names[0] not in self.tried:
            self.effects_of(part.names)
        return part.names[0]

    def _of(self, names: Sequence[str]) -> tuple[Effect, ...]:
        return self.tried[names[0]] if len(names) == 1 and names[0] in self.tried else self.effects_of(names)

    def explained(self, name: str, effects: Sequence[Effect], left: Collection[str]) -> set[str]:
        """Return the outputs among those left that an operator by itself is to blame for."""
        own = self._alone.found[name]
        far = self._subject.far(own.rel_l2, own.units, FAR) or bool(own.flips)
        born = own.born_nan + own.born_inf > 0
        by_name = {sink.name: sink for sink in self._looked}
        found = set()
        for effect in effects:
            if effect.at not in left:
                continue
            sink = by_name[effect.at]
            much = sink.non_finite or sink.rel_l2 > TIMES * self._expected.get(effect.at, 0.0)
            enough = PART if far else HALF if much else ALONE
            if (born and effect.non_finite) or effect.share >= enough:
                found.add(effect.at)
        if found:
            self._explains[name] = found
        return found

    def most(self, names: Sequence[str], left: Collection[str]) -> float | None:
        """Return the largest share of what is left that the untried make together."""
        return self._much(self.effects_of(names), left) if len(names) > 1 else None

    @staticmethod
    def _much(effects: Sequence[Effect], left: Collection[str]) -> float:
        return max((effect.share for effect in effects if effect.at in left), default=0.0)

    def _place(self, name: str) -> int:
        return self._subject.order.get(name, 0)

    def culprits(self) -> tuple[Culprit, ...]:
        """Return one culprit for each operator that explains an output, the most telling first.

        What makes NaN or Inf before the loss and spoils it comes first, because no scale mends that. Then come in turn:
        what makes NaN or Inf of an output; what an output's NaN or Inf came of in others' hands; what spoils the loss;
        the one that explains most outputs; the one of the worst output."""
        broken = {sink.name for sink in self._looked if sink.non_finite}
        off = {sink.name: sink.rel_l2 for sink in self._looked}
        losses = {sink.name for sink in self._looked if _is_loss(self._subject, sink)}
        poisons = {name: any(e.non_finite and e.at in self._explains[name] for e in self.tried[name])
                   for name in self._explains}  # fmt: skip
        ranked = sorted(
            self._explains,
            key=lambda name: (
                losses.isdisjoint(self._explains[name]) or not self._breaks_forward(name), not poisons[name],
                broken.isdisjoint(self._explains[name]), losses.isdisjoint(self._explains[name]),
                -len(self._explains[name]), -max(off[at] for at in self._explains[name]), self._place(name),
            ),
        )  # fmt: skip
        found: dict[str, Culprit] = {}
        spoilt: dict[str, set[str]] = {}
        for name in ranked:
            culprit = self._culprit(name)
            key = self._switch_of(name, culprit.cause)
            spoilt.setdefault(key, set()).update(self._explains[name])
            # one switch mends them all, and ranks run the same operators: the first stands for the others
            found.setdefault(key, culprit)
        return tuple(self._with_all(one, spoilt[key]) for key, one in found.items())

    def _breaks_forward(self, name: str) -> bool:
        own, meta = self._alone.found[name], self._subject.meta_of.get(name)
        return meta is not None and meta.phase == FORWARD and own.born_nan + own.born_inf > 0

    def _with_all(self, culprit: Culprit, spoilt: Collection[str]) -> Culprit:
        """Return the culprit that stands for all that spoil these outputs."""
        subject, evidence = self._subject, dict(culprit.evidence)
        parts = [subject.within_rank(one) for one in spoilt]
        for counted, kind in (("gradients", "gradient/"), ("parameters", "update/")):
            if counted in evidence:
                evidence[counted] = len({own for _, own in parts if own.startswith(kind)})
        having = {rank for rank, _ in parts}
        at = subject.within_rank(culprit.at)[1]
        errors = {rank: _error_of_row(subject.row_of.get(f"rank{rank}/{at}")) for rank in subject.ranks}
        return dataclasses.replace(
            culprit, evidence=evidence, ranks=tuple(rank for rank in subject.ranks if f"rank{rank}/" in having),
            errors={str(rank): error for rank, error in errors.items() if error is not None},
        )  # fmt: skip

    def _switch_of(self, name: str, cause: str) -> str:
        """Return what culprits have in common that one stands for: a switch, or an operator of the optimiser or of
        ranks."""
        meta = self._subject.meta_of.get(name)
        if CAUSES[cause].one_switch:
            return cause
        if meta is not None and meta.phase == OPTIMISER:
            return f"{cause} {meta.op_type}"
        return self._subject.within_rank(name)[1]

    def _culprit(self, name: str) -> Culprit:
        subject, own = self._subject, make_introduced_infinite(self._alone.found[name])
        explains = [effect for effect in self.tried[name] if effect.at in self._explains[name]]
        worst = max(explains, key=lambda effect: (effect.non_finite > 0, effect.share))
        far = subject.far(own.rel_l2, own.units, FAR) or own.born_nan + own.born_inf > 0 or bool(own.flips)
        after = () if far else [one for one in subject.descendants(name) if "_amp_" not in subject.row_of[one].op_type]
        amplifier = find_largest_growth(subject, self._alone, after)
        code, evidence, keep = find_cause(subject, self._alone, name, amplifier, poisons=worst.non_finite > 0)
        at = sorted(self._explains[name], key=self._place)
        code, evidence = find_cause_in_step(subject, self._alone.casts.values(), name, code, evidence, at)
        who = find_author(subject, name, far=far and CAUSES[code].unproven)
        alone = who.name not in subject.meta_of  # what the target alone does, and nothing was rounded there
        if alone and code == "coarse":
            code, evidence = "other_arithmetic", {"rel_l2": own.rel_l2}
        return Culprit(
            name=who.name,
            node=who.node,
            op_types=tuple(meta.op_type for meta in subject.region_of.get(name, ())) or (who.op_type,)
            if who.name == name else (who.op_type,),
            cause=code,
            evidence=evidence,
            confidence="simulated" if subject.simulation else self._alone.method,
            introduced=own.rel_l2,
            units=own.units,
            share=worst.share if math.isfinite(worst.share) else 1.0,
            non_finite=worst.non_finite if is_non_finite_in_target_alone(subject.row_of[worst.at]) else 0,
            at=worst.at,
            amplifier=amplifier,
            fails_first=at[0],
            keep=keep,
        )


