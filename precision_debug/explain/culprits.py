"""Rank operators by measured effect and decide which are culprits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..numbers.born import compute_finite_l2, make_introduced_infinite, may_be_mask
from ..pairing.align import strip_iteration
from ..reasons.causes import CAUSES
from ..records import Culprit, Effect, Introduced, Row
from .casts import is_within_one_cast
from .causes import find_cause
from .criteria import DROP, FAR, HALF, LEAST_PART, MATTERS, PART, SEVERAL, STRONG
from .effects import Sink
from .files import find_file_difference
from .grid import find_outlier, holds_another_scale
from .introduced import MASK, Alone, may_be_handed_nan
from .operator_facts import find_inherited_error, is_quantised, name_types, narrow_type
from .operators import BODIES, MOVE, SELECT, find_reached, plain_type
from .subject import Subject, find_narrowed_constants
from .units import BEYOND, LOOK, MOST, NARROW, is_suspicious, largest_of, smallest_of

__all__ = [
    "find_first_failing",
    "find_largest_growth",
    "find_suspicious_sinks",
    "is_far_off",
    "is_non_finite_in_target_alone",
    "list_candidates",
    "list_early_suspects",
    "list_felt",
    "list_kept_through",
    "rank",
]  # fmt: skip


# What to keep in higher precision with a culprit, so that what it gives gets to where it fits.

_MOST = 64
"""Tensors that the search for what to keep goes through; a bound on its work, not measured."""

_CARRIED = 4
"""Tensors between an author and its amplifier up to which each is named."""

_REGION = 8
"""Operators of a fused region up to which each is named."""


def list_kept_through(subject: Subject, keep: Sequence[str], cause: str, amplifier: str) -> tuple[str, ...]:
    """Return the tensors to keep in higher precision so that a fix of ``keep`` holds.

    These are the tensors themselves, what is fused into them, and what lies between a culprit and its amplifier. Behind
    them come the operators that only move their numbers, that are beyond the type as well, or that choose among them
    for another amplifier. Who follows the advice also keeps what reads the last of them, because that brings the
    numbers back.
    """
    between = _list_carriers_between(subject, keep[0], amplifier) if amplifier else []
    whole = (keep[0], *between, *keep[1:])
    where = CAUSES[cause].out_of_range
    found = dict.fromkeys(part for name in whole for part in (*_list_fused_operators(subject, name), name))
    waiting = list(keep)
    while waiting and len(found) < _MOST:
        for reader in subject.readers.get(waiting.pop(0), ()):
            beyond = (where == "above" and _is_beyond_type(subject, reader)) or (
                where == "below" and _is_below_normal(subject, reader)
            )
            again = amplifier and reader != amplifier and _chooses(subject, reader) and _grows(subject, reader)
            if reader not in found and (beyond or again or subject.only_moves(reader)):
                found[reader] = None
                waiting.append(reader)
    return tuple(found)


def _list_carriers_between(subject: Subject, author: str, amplifier: str) -> list[str]:
    """Return what carries an author's numbers to the amplifier, in order: rounded there, they would be as coarse
    again."""
    carry = (subject.descendants(author) - {amplifier}) & subject.ancestors(amplifier)
    return sorted(carry, key=lambda name: subject.order.get(name, 0)) if len(carry) <= _CARRIED else []


def _list_fused_operators(subject: Subject, name: str) -> list[str]:
    """Return the operators of a region that was seen as one, in order, where they are few: none of them has a tensor of
    its own in the target, and each has a name that can be given."""
    inside = [meta.name for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) not in MOVE]
    return inside if len(inside) <= _REGION else []


def _chooses(subject: Subject, name: str) -> bool:
    """Return whether a tensor's operators leave numbers as they are, whichever they choose."""
    types = {plain_type(meta.op_type) for meta in subject.region_of.get(name, ())}
    return bool(types) and types <= SELECT | MOVE | BODIES


def _grows(subject: Subject, name: str) -> bool:
    """Return whether what reads a tensor, or what is chosen of it, makes its error much larger."""
    seen, waiting = {name}, [name]
    while waiting:
        current = waiting.pop()
        error = compute_finite_l2(subject.row_of[current]) or 0.0
        for reader in subject.readers.get(current, ()):
            if error and (compute_finite_l2(subject.row_of[reader]) or 0.0) > SEVERAL * error:
                return True
            if reader not in seen and _chooses(subject, reader):
                seen.add(reader)
                waiting.append(reader)
    return False


def _is_beyond_type(subject: Subject, name: str) -> bool:
    """Return whether the baseline's numbers are beyond the target's type; masks are not."""
    numbers = subject.row_of[name].comparison
    if numbers is None or numbers.base.min is None or numbers.base.max is None:
        return False
    return largest_of(subject.narrow_type) < max(abs(numbers.base.min), abs(numbers.base.max)) < MASK


def _is_below_normal(subject: Subject, name: str) -> bool:
    """Return whether most of the baseline's numbers are below the target's normal ones, where each loses digits."""
    numbers = subject.row_of[name].comparison
    return numbers is not None and 0 < (numbers.base.rms or 0.0) < smallest_of(subject.narrow_type) * 2**10


ALONE = 1 - 1 / DROP**2
"""The share of the squared error without which a third of the error is left: 89 %."""


def find_first_failing(subject: Subject) -> str:
    """Return the first tensor, in execution order, whose error is beyond what rounding everywhere makes; "" where none
    is."""
    for row in sorted(subject.row_of.values(), key=lambda row: subject.order.get(row.name, 0)):
        if (row.op_type in {"Input", "Constant"} and not row.non_finite) or row.name in subject.bearers:
            continue
        if is_non_finite_in_target_alone(row) or subject.far(row.relative_l2, subject.error_units(row), BEYOND):
            return row.name
    return ""


def is_non_finite_in_target_alone(row: Row) -> bool:
    """Return whether the target has NaN or Inf where the baseline has numbers; a mask that overflows to -inf is
    none."""
    numbers = row.comparison
    if numbers is None:
        return False
    more = numbers.target.inf > numbers.base.inf and not may_be_mask(numbers.base)
    return numbers.target.nan > numbers.base.nan or more


def list_early_suspects(subject: Subject, most: int = 24) -> list[str]:
    """Return tensors whose operators are worth a look before anything is measured: those whose readers amplify their
    error."""
    scores: dict[str, float] = {}
    for name, row in subject.row_of.items():
        error = compute_finite_l2(row)
        sources = [source for source in subject.sources(name) if source in subject.row_of]
        inherited = max((compute_finite_l2(subject.row_of[source]) or 0.0 for source in sources), default=0.0)
        floor = max(inherited, subject.unit_behind(name))
        growth = (math.inf if error == math.inf else error / floor) if error is not None and floor else 0.0
        if row.non_finite and not any(is_non_finite_in_target_alone(subject.row_of[one]) for one in sources):
            growth = max(growth, 1e6)
        for suspect in (name, *_list_makers(subject, sources)):
            scores[suspect] = max(scores.get(suspect, 0.0), growth)
    ranked = sorted(scores, key=lambda name: (-scores[name], subject.order.get(name, 0)))
    return ranked[:most]


def _list_makers(subject: Subject, names: Sequence[str]) -> list[str]:
    """These tensors; of what was only moved about, the ones that it was made of, too."""
    made = find_reached(names, lambda name: subject.sources(name) if subject.only_moves(name) else ())
    return [*dict.fromkeys((*names, *made))]


def find_suspicious_sinks(subject: Subject, sinks: Sequence[Sink], expected: Mapping[str, float]) -> frozenset[str]:
    """Return the sinks whose authors are to be looked for: see bounds.is_suspicious. expected: as far as it is
    known."""
    at = {sink.name: subject.unit_at(expected.get(sink.name), sink.name) for sink in sinks}
    # what few bits lose hides a wrong weight or setting, which the two files show whatever its size
    rows = subject.row_of
    other = any(_differs_beside_rounding(subject, name) or holds_another_scale(subject, name) for name in rows)
    return frozenset(
        sink.name for sink in sinks
        if other or sink.non_finite or sink.flips or (subject.fails and sink.is_output and sink.squared)
        or (sink.squared and is_suspicious(sink.rel_l2, at[sink.name], expected.get(sink.name)))
    )  # fmt: skip


def _differs_beside_rounding(subject: Subject, name: str) -> bool:
    """Return whether the files show that an operator is another one, whatever it comes to beside what the target's
    fewer bits lose: of weights in few bits all that they differ by otherwise, of constants stored in a narrower float a
    number that is neither of the two of that type about the baseline's."""
    if subject.weights_alone:
        return bool(find_file_difference(subject, name))
    return find_narrowed_constants(subject, name)[1]


def list_candidates(subject: Subject, alone: Alone, before: Sequence[str]) -> list[str]:
    """Return those whose effect is to be measured, most suspicious first."""

    def score(name: str) -> tuple[float, float, int]:
        found = alone.found[name]
        born = float(found.born_nan + found.born_inf > 0)
        units = found.units if found.units is not None else 0.0
        place = before.index(name) if name in before else len(before) + 1
        return -born, -min(units, 1e9) if units > FAR else 0.0, place

    kept = [
        name for name in alone.found
        if name in alone.exact and name not in subject.bearers and not _is_innocent(subject, alone, name)
        and not _is_undone(subject, name)
    ]  # fmt: skip
    return sorted(kept, key=score)


def _is_innocent(subject: Subject, alone: Alone, name: str) -> bool:
    """Return whether an operator gave what the baseline's gives, or only moves numbers about.

    Not where it did more to the same inputs: that of another file may move others, or elsewhere, and an engine may
    quantise what it moves. What moves a constant is the first to show what the type made of that.
    """
    row, own = subject.row_of.get(name), alone.found[name]
    if row is not None and row.comparison is not None and row.comparison.identical:
        return True  # whatever it does with other inputs: here nothing of it is wrong
    if _makes_up(subject, alone, name):
        return True
    if own.method == "replayed" and subject.broken(name) and may_be_handed_nan(subject, name):
        return True  # of which nobody saw what it was given
    turned = bool(own.flips) and (subject.two_files or _turns_into_whole_numbers(subject, name, own))
    more = turned or subject.far(own.rel_l2, own.units, FAR)
    born = own.born_nan + own.born_inf > 0  # by a cast of the target alone, on the way to it
    return subject.moves_on(name) and not more and not born


def _makes_up(subject: Subject, alone: Alone, name: str) -> bool:
    """Return whether an operator of another file gives what the baseline's gives only because its inputs differ, too:
    nothing behind it reads an error from it."""
    own = alone.found.get(name)
    if own is None:
        return False
    return _agrees(subject, name) and subject.far(own.rel_l2, own.units, FAR)


def _agrees(subject: Subject, name: str) -> bool:
    """Return whether a tensor of another file is the baseline's, but for float32's last digits."""
    row = subject.row_of.get(name)
    if row is None or not subject.two_files or row.relative_l2 is None or row.non_finite:
        return False
    if subject.quantised_file or subject.few_narrow or subject.typical_unit > NARROW:
        return False  # within a step of few bits much agrees that is not the same
    return not subject.far(row.relative_l2, subject.error_units(row), BEYOND)


def _is_undone(subject: Subject, name: str) -> bool:
    """Return whether all that reads a difference of two files, at once or behind others, ends in tensors that agree, so
    that no output has anything of it: a sign that the next layer takes back, say. Not where no output is off. Each
    element has to agree: beside the huge numbers of a mask any error of the others is small."""
    outputs = [one for one in subject.outputs if not _agrees(subject, one)] if subject.two_files else []
    waiting, seen = [name], {name}
    while waiting and outputs:
        reached = waiting.pop()
        readers = subject.readers.get(reached, ())
        numbers = subject.row_of[reached].comparison if reached in subject.row_of else None
        if reached != name and numbers is not None and numbers.mismatched == 0 and _agrees(subject, reached):
            continue  # not its own tensor: what is small there may be all that a logarithm behind it shows
        if reached in outputs or not readers:
            return False
        waiting += [one for one in readers if one not in seen]
        seen.update(readers)
    return bool(outputs)


def list_felt(subject: Subject, alone: Alone) -> list[str]:
    """Return the operators that ran alone; of two files without those whose difference nothing behind them reads: it is
    no error, and put into a run of the baseline it would be one."""
    if not subject.two_files:
        return list(alone.found)
    return [one for one in alone.found if not _makes_up(subject, alone, one) and not _is_undone(subject, one)]


def _without_taken_back(
    subject: Subject, effects: Mapping[str, Sequence[Effect]], sinks: Sequence[Sink]
) -> Mapping[str, Sequence[Effect]]:
    """Leave out whose difference of two files would by itself make far more than all that is there, where every output
    agrees: what is behind it takes it back, and an output that agrees has nothing of it."""
    outputs = {sink.name for sink in sinks if sink.is_output}
    if not subject.two_files or not outputs or not all(_agrees(subject, name) for name in outputs):
        return effects
    return {
        name: carried for name, carried in effects.items()
        if not any(effect.at in outputs and effect.share > FAR for effect in carried)
    }  # fmt: skip


def _tell_who_makes_up(subject: Subject, alone: Alone, culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """With the readers of a difference of two files that make up for it, and those that do not, where both are."""
    told = []
    for one in culprits:
        readers = [name for name in subject.readers.get(one.name, ()) if name in alone.found]
        undone = [name for name in readers if _makes_up(subject, alone, name)]
        sides = {"undone": undone, "kept": [name for name in readers if name not in undone]}
        both = one.cause == "files_differ" and all(sides.values())
        names = {key: ", ".join(f"`{name}`" for name in found) for key, found in sides.items() if both}
        told.append(dataclasses.replace(one, evidence={**one.evidence, **names}))
    return tuple(told)


def _turns_into_whole_numbers(subject: Subject, name: str, own: Introduced) -> bool:
    """Return whether an operator casts floats to whole numbers, given the same floats on both sides: others of them are
    its own doing. Where floats are narrow, what is cast was rounded on the way to it."""
    if own.method != "isolated" or subject.typical_unit > NARROW:
        return False
    metas = [subject.meta_of[one] for one in (name, *subject.sources(name)) if one in subject.meta_of]
    return len(metas) == 2 and "int" in metas[0].dtype and "float" in metas[1].dtype


def rank(
    subject: Subject, alone: Alone, effects: Mapping[str, Sequence[Effect]], sinks: Sequence[Sink], first: str,
    looked: Collection[str], few: Collection[str] = (),
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the culprits, worst first; none where no operator stands out. looked: sinks whose error is anybody's: see
    ``find_suspicious_sinks``. few: who is to blame together, whatever the share of each: see
    ``confirm.find_few_that_halve``.

    Where none does at an output that is out of bounds, those of the first failing tensor before it: what becomes of one
    error behind a division or a root depends on all the others there.
    """
    effects = _without_taken_back(subject, effects, sinks)
    found = _tell_who_makes_up(
        subject, alone, _rank_culprits(subject, alone, effects, sinks, first, looked, few)
    )
    wrong = [sink.name for sink in sinks if sink.is_output and sink.name in looked]
    if found or first not in subject.row_of or not subject.descendants(first) & set(wrong):
        return found
    there = [sink for sink in sinks if sink.name == first and not sink.is_output]
    at_first = {name: [effect for effect in carried if effect.at == first] for name, carried in effects.items()}
    before = _rank_culprits(subject, alone, at_first, there, first, {*looked, first}) if there else found
    if any(is_far_off(subject, sink) for sink in sinks if sink.is_output):
        return before
    felt = {name for name, carried in effects.items() for e in carried if e.at in wrong and e.share >= 1 / DROP}
    return tuple(culprit for culprit in before if culprit.name in felt)


def _rank_culprits(
    subject: Subject, alone: Alone, effects: Mapping[str, Sequence[Effect]], sinks: Sequence[Sink], first: str,
    looked: Collection[str], few: Collection[str] = (),
) -> tuple[Culprit, ...]:  # fmt: skip
    by_name = {sink.name: sink for sink in sinks}
    together = {
        **_group_by_outlier(subject, alone, effects, by_name), **_group_amplified_together(subject, alone, effects,
        by_name),
    }  # fmt: skip
    iterations = _merge_iterations(subject, effects, by_name)
    found: list[tuple[bool, Culprit]] = []
    for name, carried in effects.items():
        introduced = alone.found[name]
        effect = _find_deciding_effect(carried, by_name, looked)
        if effect is None or iterations.get(name) == (0.0, 0.0) or name not in subject.row_of:
            continue  # the last: of other shapes than the baseline's, because another one before it chose otherwise
        share, measured = iterations.get(name, (effect.share, effect.share))
        effect = dataclasses.replace(effect, share=share)
        born = introduced.born_nan + introduced.born_inf > 0
        # what another one takes back by itself makes far more than there is
        scaled = share <= FAR and holds_another_scale(subject, name)
        far = born or scaled or subject.far(introduced.rel_l2, introduced.units, FAR) or bool(introduced.flips)
        sink = by_name[effect.at]
        poisons = born and effect.non_finite > 0 and (sink.is_output or not any(one.is_output for one in sinks))
        far_off = is_far_off(subject, sink)
        usual = HALF if far_off or far or _outweighs(subject, sink, name, effects) else ALONE
        some = name in together or (far and _leads(sink, name, effects))
        enough = MATTERS if far and sink.is_output and far_off else PART if some else usual
        certain = _differs_beside_rounding(subject, name)  # told by the files, whatever its share
        stands_out = poisons or certain or share >= enough or name in few
        if sink.name not in looked or not (stands_out or scaled):
            continue
        if subject.same_steps and not far and not poisons:
            continue  # a step that fell to the other side, and what that becomes
        usual_size = sink.rel_l2 <= LOOK * subject.unit_behind(sink.name)
        if not far and not poisons and not certain and usual_size and _is_all(subject, name, effects):
            continue  # all of the error is that of all of the model, and no more than it may be
        if not sink.is_output and any(one.is_output for one in sinks):
            continue  # absorbed on its way to the outputs, as a mask is in a softmax
        amplifier = "" if far else _breaks(subject, name, effect) or _find_amplifier(subject, alone, name, effect.at)
        shown = "" if far or amplifier else _find_first_shown(subject, name, effect)
        amplifier = amplifier or shown
        cause, evidence, keep = find_cause(subject, alone, name, amplifier, poisons=effect.non_finite > 0)
        if shown and CAUSES[cause].enlarged and (before := _find_largest_enlarger(subject, name, shown)) != shown:
            amplifier = before
            cause, evidence, keep = find_cause(subject, alone, name, amplifier, poisons=effect.non_finite > 0)
        if "broken" in evidence and (other := _find_amplifier(subject, alone, name, effect.at)) not in ("", amplifier):
            found_before = find_cause(subject, alone, name, other, poisons=False)
            if found_before[0] == "cancellation":  # of which nothing is left, as a logarithm behind it shows
                amplifier, (cause, evidence, keep) = other, found_before
        if cause == "overflow" and not _is_own_range_beyond(subject, name, evidence["limit"]):
            continue  # of what another operator's overflow left of its inputs
        if not stands_out and CAUSES[cause].fails_for(evidence) != "least":
            continue  # few of its numbers have the wrong scale, beside what all others are rounded by
        culprit = Culprit(
            name=name,
            node=subject.meta_of[name].node if name in subject.meta_of else "",
            op_types=name_types(subject, name),
            cause=cause,
            evidence=evidence,
            confidence="simulated" if subject.simulation else alone.method,
            introduced=make_introduced_infinite(introduced).rel_l2,
            units=make_introduced_infinite(introduced).units,
            share=None if name in alone.unlike else measured,
            non_finite=effect.non_finite if sink.non_finite else 0,
            at=effect.at,
            amplifier=amplifier,
            fails_first=_fails_first(subject, name, first),
            keep=_list_kept_together(subject, keep, cause, amplifier, together.get(name, ()) if share < HALF else ()),
        )
        found.append((poisons, culprit))
    most = max((one.share or 0.0 for poisons, one in found if poisons), default=0.0)

    def place(pair: tuple[bool, Culprit]) -> tuple[float, ...]:
        poisons, one = pair
        share = one.share or 0.0
        comparable = poisons and share >= HALF * most
        usual = is_within_one_cast(subject, one.name, one.introduced)  # a difference, and no surprise
        # of about as much, the first in execution order; of those that make more than all there is, too
        part = 0.0 if comparable else -round(min(1.0, share), 1)
        return -poisons, -comparable, usual, part, subject.order.get(one.name, 0)

    found.sort(key=place)
    # what is given numbers that its engine cannot hold decides otherwise, whoever it is
    wrapped = {one.name for _, one in found if one.cause == "wrapped"}
    behind = frozenset[str]().union(*(subject.descendants(name) for name in wrapped))
    told = [one for _, one in found if not CAUSES[one.cause].of_whole_numbers or one.name not in behind]
    return _keep_one_of_a_switch(_without_usual(subject, told, by_name))


def _without_usual(
    subject: Subject, found: Sequence[Culprit], by_name: Mapping[str, Sink]
) -> Sequence[Culprit]:
    """Leave out whose size alone speaks against it at a sink that is as expected, where an output is looked at for what
    the files prove of somebody."""
    proven = [one for one in found if CAUSES[one.cause].fails_for(one.evidence) == "least"]
    return [
        one for one in found
        if not proven or one in proven or not CAUSES[one.cause].is_open(one.evidence) or one.non_finite
        or is_far_off(subject, by_name[one.at])
    ]  # fmt: skip


def _is_all(subject: Subject, name: str, effects: Collection[str]) -> bool:
    """Return whether a tensor ends a stretch of all but a few of the operators of which any was tried: what is measured
    as one makes as much of the error as there is, and that it does tells nobody apart."""
    count = {
        one: sum(plain_type(meta.op_type) not in MOVE for meta in subject.region_of.get(one, ())) for one in effects
    }  # fmt: skip
    return count[name] > 1 and count[name] >= ALONE * sum(count.values())


def _outweighs(subject: Subject, sink: Sink, name: str, effects: Mapping[str, Sequence[Effect]]) -> bool:
    """Return whether one operator's share at a sink, where more than a few roundings are lost, is far above any
    other's."""
    return sink.rel_l2 > LOOK * subject.unit_behind(sink.name) and _leads(sink, name, effects)


def _leads(sink: Sink, name: str, effects: Mapping[str, Sequence[Effect]]) -> bool:
    """Return whether one operator's share at a sink is far above any other's."""
    return _share_at(sink, (name,), effects) >= FAR * _most_besides(sink, (name,), effects)


def _share_at(sink: Sink, names: Collection[str], effects: Mapping[str, Sequence[Effect]]) -> float:
    return sum(e.share for name in names for e in effects[name] if e.at == sink.name)


def _most_besides(sink: Sink, names: Collection[str], effects: Mapping[str, Sequence[Effect]]) -> float:
    """Return the largest share at a sink of an operator that is none of these."""
    return max((_share_at(sink, (one,), effects) for one in effects if one not in names), default=0.0)


def _list_kept_together(
    subject: Subject, keep: Sequence[str], cause: str, amplifier: str, others: Sequence[str]
) -> tuple[str, ...]:
    """Return what to keep with a culprit. others: what the same operators amplify with it, each too little to be
    accused."""
    found = dict.fromkeys(list_kept_through(subject, keep, cause, amplifier))
    for other in others:
        found |= dict.fromkeys(list_kept_through(subject, (other, *keep[1:]), cause, amplifier))
    return tuple(found)


def _is_own_range_beyond(subject: Subject, name: str, limit: float) -> bool:
    """Return whether the baseline's own numbers, of its own inputs, are beyond a type's largest."""
    numbers = subject.row_of[name].comparison
    return numbers is None or max(abs(numbers.base.min or 0.0), abs(numbers.base.max or 0.0)) > limit


def _keep_one_of_a_switch(found: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """TF32 is one switch for every product: the worst of them stands for all."""
    products = [culprit for culprit in found if CAUSES[culprit.cause].one_switch]
    if len(products) < 2:
        return tuple(found)
    worst = dataclasses.replace(products[0], evidence={**products[0].evidence, "count": len(products)})
    return tuple(worst if culprit is products[0] else culprit for culprit in found if culprit not in products[1:])


def _merge_iterations(
    subject: Subject, effects: Mapping[str, Sequence[Effect]], sinks: Mapping[str, Sink]
) -> dict[str, tuple[float, float]]:
    """Return what one operator of a loop's body does in all its iterations is its own: the first of them that matters
    to the share of all, the others to 0. Names of other operators are not in it. Of a loop of which some iterations
    alone were tried, what nothing else explains belongs to the others: the first number; the second is what was
    measured."""
    bodies: dict[str, list[tuple[str, Effect]]] = {}
    for name, carried in effects.items():
        effect = _find_largest_effect(carried, sinks)
        if effect is not None and strip_iteration(name) != name:
            bodies.setdefault(strip_iteration(name), []).append((name, effect))
    found: dict[str, tuple[float, float]] = {}
    for name, group in bodies.items():
        reach = [pair for pair in group if sinks[pair[1].at].is_output and pair[1].share >= MATTERS]
        if reach:  # what an iteration does to a tensor before the outputs is not a measure of what others do to these
            found |= {one: (0.0, 0.0) for one, _ in group}
            bodies[name] = reach
    shared = {name: sum(effect.share for _, effect in group) for name, group in bodies.items()}
    tried = sum(shared.values())
    unseen = max(
        0.0, 1.0 - tried - sum(e.share for n, e in _list_largest_effects(effects, sinks) if strip_iteration(n) == n)
    )
    for stemmed, group in bodies.items():
        most = max((effect.non_finite > 0, effect.share) for _, effect in group)
        group.sort(key=lambda pair: subject.order.get(pair[0], 0))
        kept = next(
            name for name, e in group if ((e.non_finite > 0) == most[0] and e.share > 0.1 * most[1]) or not most[1]
        )
        share = shared[stemmed]
        if subject.times(kept) > 1 and tried:  # of the iterations that were not tried, each has its part
            share *= min(subject.times(kept), 1.0 + unseen / tried)
        found |= {name: (0.0, 0.0) for name, _ in group} | {kept: (share, shared[stemmed])}
    return found


def _list_largest_effects(
    effects: Mapping[str, Sequence[Effect]], sinks: Mapping[str, Sink]
) -> Iterator[tuple[str, Effect]]:  # fmt: skip
    for name, carried in effects.items():
        effect = _find_largest_effect(carried, sinks)
        if effect is not None:
            yield name, effect


def _group_amplified_together(
    subject: Subject, alone: Alone, effects: Mapping[str, Sequence[Effect]], sinks: Mapping[str, Sink]
) -> Mapping[str, Sequence[str]]:
    """Return operators whose ordinary rounding is amplified to over half of the error together: by one and the same
    later operator, or by several that amplify strongly (two faults in a row). Each with those that are too little for
    that by themselves."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for name, carried in effects.items():
        effect, own = _find_largest_effect(carried, sinks), alone.found[name]
        if effect is None or effect.share < LEAST_PART or subject.far(own.rel_l2, own.units, FAR):
            continue
        amplifier = _find_amplifier(subject, alone, name, effect.at)
        if amplifier:
            groups.setdefault(amplifier, []).append((name, effect.share))
    strong = [one for name, group in groups.items() if _growth_of(subject, name) >= STRONG for one in group]
    bar = {name: HALF if is_far_off(subject, sink) else ALONE for name, sink in sinks.items()}
    at = {
        name: effect.at
        for name, carried in effects.items()
        if (effect := _find_largest_effect(carried, sinks)) is not None
    }
    kept = [
        group for group in (*groups.values(), strong)
        if group and sum(share for _, share in group) >= max(bar[at[name]] for name, _ in group)
        # of a small error, two nearly equal numbers have an author each; three and more are rounding everywhere
        and (all(bar[at[name]] == HALF for name, _ in group) or sum(share >= PART for _, share in group) <= 2)
    ]  # fmt: skip
    return {
        name: [other for other, part in group if part < PART]
        for group in kept for name, share in group if share >= PART
    }  # fmt: skip


def _group_by_outlier(
    subject: Subject, alone: Alone, effects: Mapping[str, Sequence[Effect]], sinks: Mapping[str, Sink]
) -> Mapping[str, Sequence[str]]:
    """Quantised tensors whose range one and the same channel takes, as it goes through a residual stream, and that make
    a culprit's share together, or of a large error far more than any other. Each with those that are too little for
    that by themselves."""
    groups: dict[tuple[int, int], list[tuple[str, float, Sink]]] = {}
    for name, carried in effects.items():
        effect = _find_largest_effect(carried, sinks)
        exact, wrong = alone.exact_of(name), alone.wrong_of(name)
        if effect is None or effect.share < LEAST_PART or exact is None or wrong is None or exact.shape != wrong.shape:
            continue
        found = find_outlier(exact) if is_quantised(narrow_type(subject, name)) else None
        if found is not None:
            place = found["channel"], exact.ndim - found["axis"]
            groups.setdefault(place, []).append((name, effect.share, sinks[effect.at]))

    def enough(group: Sequence[tuple[str, float, Sink]]) -> bool:
        names, whole = [name for name, _, _ in group], sum(share for _, share, _ in group)
        far_off = all(is_far_off(subject, sink) for _, _, sink in group)
        besides = max(_most_besides(sink, names, effects) for _, _, sink in group)
        return whole >= (HALF if far_off else ALONE) or (whole >= SEVERAL * besides and (far_off or whole >= HALF))

    return {
        name: [other for other, part, _ in group if part < PART]
        for group in groups.values() if enough(group) for name, share, _ in group if share >= PART
    }  # fmt: skip


def _find_largest_effect(carried: Sequence[Effect], sinks: Mapping[str, Sink]) -> Effect | None:
    """Return the effect that says most: at an output before the first failing tensor, where it reaches one."""
    at_outputs = [effect for effect in carried if sinks[effect.at].is_output and (effect.share or effect.non_finite)]
    pool = at_outputs or list(carried)
    if at_outputs and max(effect.share for effect in at_outputs) < MATTERS:
        pool = list(carried)
    return max(pool, key=lambda effect: (effect.non_finite > 0, effect.share), default=None)


def _find_deciding_effect(
    carried: Sequence[Effect], sinks: Mapping[str, Sink], looked: Collection[str]
) -> Effect | None:
    """Return the same, at the sinks whose error is anybody's: at another output it may make all of what is of no
    account."""
    return _find_largest_effect([effect for effect in carried if effect.at in looked] or carried, sinks)


def is_far_off(subject: Subject, sink: Sink) -> bool:
    """Return whether an error is more than a healthy model has, by its size alone."""
    return bool(sink.non_finite or sink.flips or sink.rel_l2 > min(MOST, BEYOND * subject.unit_behind(sink.name)))


def _find_amplifier(subject: Subject, alone: Alone, author: str, at: str) -> str:
    """Return the operator, after an author of ordinary rounding, that makes the most of it; "" where none makes
    more."""
    after = subject.descendants(author)
    # what a loop's body hands to the loop's output is not an edge that is listed: then any operator behind the author
    on_the_way = after & ({at} | subject.ancestors(at))
    first = find_largest_growth(subject, alone, on_the_way, author)
    return first or find_largest_growth(subject, alone, after, author)


def _breaks(subject: Subject, author: str, effect: Effect) -> str:
    """Return the first operator behind an author of ordinary rounding that makes NaN or Inf of it; "" where none
    does."""
    after = subject.descendants(author) if effect.non_finite else ()
    broken = [name for name in after if name in subject.row_of and is_non_finite_in_target_alone(subject.row_of[name])]
    return min(broken, key=lambda name: subject.order.get(name, 0), default="")


def _find_first_shown(subject: Subject, author: str, effect: Effect) -> str:
    """Where no operator makes much more of it than the others: the tensor that is out of bounds first because of it."""
    shown = _fails_first(subject, author, "") or effect.at
    while shown in subject.row_of and subject.moves_on(shown):  # what only moves numbers makes no more of any
        behind = {author} | subject.descendants(author)
        shown = max(behind & {*subject.sources(shown)}, key=lambda name: subject.order.get(name, 0), default=author)
    return "" if shown == author or shown not in subject.row_of else shown


def _find_largest_enlarger(subject: Subject, author: str, shown: str) -> str:
    """Return who makes most of an error between its author and where it shows, passed over for that before; else
    that."""
    between = subject.descendants(author) & subject.ancestors(shown)
    grown = {name: _growth_of(subject, name, author) for name in between if not subject.moves_on(name)}
    most = max((one for one in grown.values() if math.isfinite(one)), default=0.0)
    return next((name for name, one in grown.items() if one == most > _growth_of(subject, shown, author)), shown)


def find_largest_growth(subject: Subject, alone: Alone, among: Collection[str], author: str = "") -> str:
    """Return the first operator, in execution order, that makes nearly as much of it as any: what comes behind
    amplifies what another author has added."""
    grown: dict[str, float] = {}
    for name in among:
        error = compute_finite_l2(subject.row_of[name]) if not subject.moves_on(name) else None
        own: Introduced | None = alone.found.get(name)
        lost_itself = own is not None and own.rel_l2 is not None and error is not None and own.rel_l2 > 0.3 * error
        if not error or lost_itself:
            continue
        grown[name] = _growth_of(subject, name, author)
    most = max(grown.values(), default=0.0)
    near = [name for name, growth in grown.items() if growth > SEVERAL and growth >= most / SEVERAL]
    return min(near, key=lambda name: subject.order[name], default="")


def _growth_of(subject: Subject, name: str, author: str = "") -> float:
    """Return how many times a tensor's error is the largest one of what it is made of."""
    inherited = find_inherited_error(subject, name, author)
    error = compute_finite_l2(subject.row_of[name]) or 0.0
    return math.inf if inherited == 0 else error / inherited


def _fails_first(subject: Subject, name: str, first: str) -> str:
    """Return the first tensor out of bounds at or after an operator."""
    after = {name} | subject.descendants(name)
    if first in after:
        return first
    for candidate in sorted(after, key=lambda item: subject.order.get(item, 0)):
        row = subject.row_of[candidate]
        if is_non_finite_in_target_alone(row) or subject.far(row.relative_l2, subject.error_units(row), BEYOND):
            return candidate
    return ""
