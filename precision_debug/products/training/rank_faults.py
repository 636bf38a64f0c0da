"""What is wrong with the ranks of a step: a gradient that one of them alone spoilt, or a reduction that is no mean.

A reduction is linear, and so is a sketch: the sketch behind it is told as a sum of the ranks' sketches before it, and
the factors say what it is: 1/n each is the mean, 1 each is the sum, 1 and 0 is a rank that took no part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...recording.rank_log import BINS, GradientNumbers, RankedStep, join_sketches

__all__ = ["RankFault", "TokenWeights", "find_first_rank_fault", "find_token_weights"]

_OFF = 0.02
"""Distance of a reduction from the mean, in norms of the ranks' gradients, up to which it is one: types of 8 bits of
mantissa, as DDP's hooks that compress to bfloat16, make 0.004 of it."""

_AGAIN, _LARGER = 3, 10.0
"""Steps that show that ranks share a batch, or that one has inputs of another scale, and how many times larger."""

_TELLS = 0.1
"""Smallest singular value of the ranks' gradients, beside the largest, from which on each one's factor is told."""

_FEW = 16
"""Ranks up to which each one's factor can be told: no more than a sketch has numbers."""


@dataclass(frozen=True, kw_only=True)
class RankFault:
    """The first step at which the ranks are wrong.

    what: one of
        "broken"            some ranks alone have NaN or Inf before the reduction
        "reduction_broken"  no rank has before it, and the result of the reduction does
        "unused"            some ranks have no gradient
        "weights"           the ranks' parameters differ
        "sum", "factor"     the reduction gives the sum, or ``value`` times the mean, in place of the mean
        "left_out"          the reduction lacks these ranks
        "apart"             the ranks' gradients differ behind the reduction
        "reduction"         what the reduction gives is no sum of the ranks' gradients
        "narrow"            these ranks alone hold rounded gradients
        "rounded"           gradients are rounded behind the reduction only
        "same_batch"        these ranks read what the first of them reads, in ``value`` steps
        "scale"             an input is ``value`` times the others'
    parameter: the first in the backward pass, or an input; parameters: how many. ranks: which, of ``of``.
    value: elements, or a factor. type: of the narrow gradients. skipped: GradScaler left the optimiser's step out.
    """

    step: int
    what: str
    parameter: str
    parameters: int
    ranks: tuple[int, ...]
    of: int
    value: float = 0.0
    type: str = ""
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class TokenWeights:
    """How a reduction weighs ranks that have other numbers of tokens than each other.

    tokens, weights: by rank; the weights add up to 1. what: "alike" (each counts as much), "by_tokens" (as its share of
    them), "other"."""

    step: int
    what: str
    tokens: tuple[int, ...]
    weights: tuple[float, ...]


_Look = Callable[[RankedStep, str], RankFault | None]


def find_first_rank_fault(steps: Sequence[RankedStep]) -> RankFault | None:
    """Of the first step that has one, the gravest; a reduction that rounds only where there is nothing else."""
    whole = [step for step in steps if len(step.ranks) == step.of > 1]
    found = [
        _find_first(whole, (_find_broken, _find_unused, _find_other_weights, _check_reduction, _narrow)),
        _find_same_batch(whole),
        _find_scaled_input(whole),
    ]
    gravest = min((one for one in found if one is not None), key=lambda one: one.step, default=None)
    return gravest or _find_first(whole, (_find_rounding_reduction,))


def _find_first(steps: Sequence[RankedStep], looks: Sequence[_Look]) -> RankFault | None:
    return next((fault for step in steps if (fault := _find_fault_of_step(step, looks)) is not None), None)


def _find_same_batch(steps: Sequence[RankedStep]) -> RankFault | None:
    """Ranks that read the same values in every step."""
    seen = [step for step in steps if all(one.inputs for one in step.ranks.values())]
    if len(seen) < _AGAIN:
        return None
    read = {rank: [_prints(step, rank) for step in seen] for rank in seen[0].ranks}
    for rank, own in read.items():
        alike = [other for other, theirs in read.items() if other >= rank and theirs == own]
        if len(alike) > 1:
            name = next(iter(seen[0].ranks[rank].inputs))
            return _make_fault(seen[0], "same_batch", name, alike, len(seen))
    return None


def _prints(step: RankedStep, rank: int) -> dict[str, str]:
    return {name: one.print for name, one in step.ranks[rank].inputs.items()}


def _find_scaled_input(steps: Sequence[RankedStep]) -> RankFault | None:
    """Return an input whose values are many times those of the other ranks, or, beside two that agree, a small part of
    them, from a step to the end."""
    for name in dict.fromkeys(name for step in steps for one in step.ranks.values() for name in one.inputs):
        sizes = [
            {rank: one.inputs[name].rms for rank, one in step.ranks.items() if name in one.inputs} for step in steps
        ]
        for rank in sorted(steps[0].ranks, reverse=True):
            times = [_ratio_to_others(size, rank) for size in sizes]
            begin = len(times)
            while begin and _is_other_scale(times[begin - 1] or 1.0, steps[begin - 1]):
                begin -= 1
            if len(times) - begin >= _AGAIN:
                usual = float(np.median([one or 1.0 for one in times[begin:]]))
                return _make_fault(steps[begin], "scale", name, [rank], usual)
    return None


def _is_other_scale(times: float, step: RankedStep) -> bool:
    return times >= _LARGER or (step.of > 2 and times * _LARGER <= 1)


def _ratio_to_others(sizes: Mapping[int, float | None], rank: int) -> float | None:
    """Return how many times the size of the others'; None where it is not known."""
    own, others = sizes.get(rank), [one for other, one in sizes.items() if other != rank and one]
    return own / float(np.median(others)) if own and others else None


def _find_fault_of_step(step: RankedStep, looks: Sequence[_Look]) -> RankFault | None:
    names = list(dict.fromkeys(name for one in step.ranks.values() for name in one.gradients))
    for look in looks:
        told: dict[str, RankFault] = {}
        for name in names:
            if (found := look(step, name)) is not None:
                told[name] = found
        if told:
            # of a parameter whose gradients are alike on all ranks, a sum without one of them is one with a factor
            counts = Counter(one.what for one in told.values())
            first = max(told.values(), key=lambda one: counts[one.what])
            alike = counts[first.what]
            return RankFault(
                **{**first.__dict__, "parameters": alike, "skipped": any(one.skipped for one in step.ranks.values())}
            )
    return None


def _make_fault(
    step: RankedStep, what: str, name: str, ranks: Sequence[int], value: float = 0.0, type: str = ""
) -> RankFault:
    return RankFault(
        step=step.step, what=what, parameter=name, parameters=1, ranks=tuple(ranks), of=step.of, value=value, type=type
    )


def _side_of_reduction(step: RankedStep, name: str, side: str) -> dict[int, GradientNumbers]:
    """Return a side of the reduction, by rank; only of ranks that have it."""
    found = {rank: getattr(one.gradients[name], side) for rank, one in step.ranks.items() if name in one.gradients}
    return {rank: numbers for rank, numbers in found.items() if numbers is not None}


def _find_broken(step: RankedStep, name: str) -> RankFault | None:
    local, reduced = _side_of_reduction(step, name, "local"), _side_of_reduction(step, name, "reduced")
    who = [rank for rank, one in local.items() if one.broken]
    if who and len(who) < len(step.ranks):
        return _make_fault(step, "broken", name, who, max(local[rank].broken for rank in who))
    behind = sum(one.broken for one in reduced.values())
    if not who and behind and len(local) == len(step.ranks):
        return _make_fault(step, "reduction_broken", name, [*reduced], max(one.broken for one in reduced.values()))
    return None


def _find_unused(step: RankedStep, name: str) -> RankFault | None:
    """Return a parameter that a rank has, and whose gradient nothing made there, although something did elsewhere."""
    local = _side_of_reduction(step, name, "local")
    without = [rank for rank, one in step.ranks.items() if name in one.gradients and rank not in local]
    return _make_fault(step, "unused", name, without) if local and without else None


def _find_other_weights(step: RankedStep, name: str) -> RankFault | None:
    """Return parameters that each rank holds whole, and that are not the same."""
    sizes = {
        rank: one.numbers.parameters[name].size
        for rank, one in step.ranks.items()
        if name in one.numbers.parameters and name not in one.shards
    }
    off = [rank for rank, size in sizes.items() if not math.isclose(size, sizes[min(sizes)], rel_tol=1e-6)]
    return _make_fault(step, "weights", name, off) if off else None


def _check_reduction(step: RankedStep, name: str) -> RankFault | None:
    """Return what is behind the reduction, by the factors of what was before it."""
    local = _side_of_reduction(step, name, "local")
    if len(local) < len(step.ranks) or any(name in one.unseen for one in step.ranks.values()):
        return None
    sides = {side: _side_of_reduction(step, name, side) for side in ("reduced", "final")}
    alone = {rank: np.asarray(one.sketch) for rank, one in local.items()}
    if any(one.broken for side in (local, *sides.values()) for one in side.values()):
        return None
    if any(value.size != BINS for value in alone.values()):
        return None
    size = max(one.norm for one in local.values())
    if not size or not math.isfinite(size):
        return None
    wrapped = not _is_same_as_alone(
        sides["reduced"], alone
    )  # else the loop reduces by itself, between backward and optimiser
    behind = sides["reduced"] if wrapped or not sides["final"] else sides["final"]
    if not wrapped and not sides["final"]:
        return None
    if apart := _list_ranks_apart(step, name, behind):
        return _make_fault(step, "apart", name, apart)
    whole = join_sketches(step, name, behind)
    if whole is None:
        return None
    scales = [1.0] if wrapped else [1.0, *{1 / one.numbers.scale for one in step.ranks.values()}]
    return _find_wrong_factor(step, name, alone, whole, size, scales)


def _is_same_as_alone(reduced: Mapping[int, GradientNumbers], alone: Mapping[int, np.ndarray[Any, Any]]) -> bool:
    """Return whether backward left each rank with what its own batch gave."""
    return all(np.array_equal(np.asarray(one.sketch), alone[rank]) for rank, one in reduced.items() if rank in alone)


def _list_ranks_apart(step: RankedStep, name: str, behind: Mapping[int, GradientNumbers]) -> list[int]:
    """Ranks that have another gradient behind the reduction than the first of those who hold the same part."""
    first: dict[int, tuple[float, ...]] = {}
    off = []
    for rank, one in behind.items():
        shard = step.ranks[rank].shards.get(name)
        kept = first.setdefault(shard.start if shard is not None else -1, one.sketch)
        if kept != one.sketch:
            off.append(rank)
    return off


def _find_wrong_factor(
    step: RankedStep, name: str, alone: Mapping[int, np.ndarray[Any, Any]], whole: np.ndarray[Any, Any], size: float,
    scales: Sequence[float],
) -> RankFault | None:  # fmt: skip
    mean = np.mean([*alone.values()], axis=0)
    for scale in scales:
        if np.linalg.norm(whole - mean * scale) <= _OFF * size * scale:
            return None
    many = len(alone)
    if float(mean @ mean) > (_OFF * size) ** 2:
        factor = float(whole @ mean) / float(mean @ mean)
        if np.linalg.norm(whole - factor * mean) <= _OFF * size * abs(factor):
            for scale in scales:
                if math.isclose(factor, many * scale, rel_tol=_OFF):
                    return _make_fault(step, "sum", name, [*alone], many)
            if len(scales) > 1:
                return None  # the loop's own: clipped, perhaps
            return _make_fault(step, "factor", name, [*alone], factor)
    if many > _FEW:
        return _make_fault(step, "reduction", name, [*alone])
    columns = np.stack([*alone.values()], axis=1)
    found, *_ = np.linalg.lstsq(columns, whole, rcond=None)
    if np.linalg.norm(whole - columns @ found) > _OFF * size * max(1.0, float(np.abs(found).max())):
        return _make_fault(step, "reduction", name, [*alone])
    largest = float(np.abs(found).max())
    absent = [rank for rank, factor in zip(alone, found, strict=True) if abs(factor) < _OFF * largest]
    total = float(found.sum())
    if not absent and min(found) > 0 and any(math.isclose(total, one, rel_tol=_OFF) for one in scales):
        return None  # a weighted mean: of ranks with other numbers of tokens
    return _make_fault(step, "left_out" if absent else "reduction", name, absent or [*alone])


def _narrow(step: RankedStep, name: str) -> RankFault | None:
    local = _side_of_reduction(step, name, "local")
    who = {rank: one.narrow for rank, one in local.items() if one.narrow}
    wide = [rank for rank, one in local.items() if one.narrow == ""]
    if not who or len(who) > len(wide) or len(local) < len(step.ranks):
        return None
    return _make_fault(step, "narrow", name, [*who], type=next(iter(who.values())))


def _find_rounding_reduction(step: RankedStep, name: str) -> RankFault | None:
    """Gradients that have more digits before the reduction than behind it."""
    local, reduced = _side_of_reduction(step, name, "local"), _side_of_reduction(step, name, "reduced")
    if len(local) < len(step.ranks) or any(one.narrow != "" for one in local.values()):
        return None
    final = _side_of_reduction(step, name, "final")
    for behind in (reduced, final):
        kinds = {one.narrow for one in behind.values()}
        if len(kinds) == 1 and (kind := kinds.pop()):
            return _make_fault(step, "rounded", name, [*local], type=kind)
    return None


def find_token_weights(steps: Sequence[RankedStep]) -> TokenWeights | None:
    """Return how the reduction weighs the ranks in the first step in which their numbers of tokens tell; None where
    none does. A log does not say by what each rank divides its loss: of that, equal weights may be right."""
    for step in steps:
        tokens = _count_tokens(step) if len(step.ranks) == step.of > 1 else ()
        if not tokens:
            continue
        shares, alike = np.asarray(tokens) / sum(tokens), 1 / len(tokens)
        if float(np.abs(shares - alike).max()) <= 2 * _OFF:
            continue  # the two cannot be told apart
        names = dict.fromkeys(name for one in step.ranks.values() for name in one.gradients)
        for name in names:
            weights = _measure_weights(step, name)
            if weights is None:
                continue
            fits = {"alike": np.full(len(tokens), alike), "by_tokens": shares}
            what = next((key for key, one in fits.items() if float(np.abs(weights - one).max()) <= _OFF), "other")
            return TokenWeights(step=step.step, what=what, tokens=tokens, weights=tuple(map(float, weights)))
    return None


def _count_tokens(step: RankedStep) -> tuple[int, ...]:
    """Return each rank's tokens, of labels before masks; () where no input of all ranks counts them."""
    common = set.intersection(
        *({name for name, one in rank.inputs.items() if one.tokens} for rank in step.ranks.values())
    )
    name = min(common, key=lambda one: ("mask" in one, one), default="")
    return tuple(rank.inputs[name].tokens or 0 for rank in step.ranks.values()) if name else ()


def _measure_weights(step: RankedStep, name: str) -> np.ndarray[Any, Any] | None:
    """Return the factors, made to add up to 1, by which the ranks' gradients make what is behind the reduction; None
    where they do not, or where the ranks' gradients are too alike to tell."""
    local = _side_of_reduction(step, name, "local")
    alone = {rank: np.asarray(one.sketch) for rank, one in local.items()}
    if not len(step.ranks) == len(alone) <= _FEW or any(one.size != BINS for one in alone.values()):
        return None
    reduced = _side_of_reduction(step, name, "reduced")
    behind = _side_of_reduction(step, name, "final") if _is_same_as_alone(reduced, alone) else reduced
    whole = join_sketches(step, name, behind) if behind else None
    columns = np.stack([*alone.values()], axis=1)
    if whole is None or whole.size != BINS or not (np.isfinite(columns).all() and np.isfinite(whole).all()):
        return None
    sizes = np.linalg.svd(columns, compute_uv=False)
    found, *_ = np.linalg.lstsq(columns, whole, rcond=None)
    off = float(np.linalg.norm(whole - columns @ found))
    if sizes[-1] < _TELLS * sizes[0] or off > _OFF * float(np.linalg.norm(whole)) or found.min() <= 0:
        return None
    return np.asarray(found / found.sum())
