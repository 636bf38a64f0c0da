"""Keep what is told of tensors as records alone: who only reads them needs no numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..records import Number

__all__ = [
    "Bins", "Density", "Element", "ErrorMap", "Portrait", "Repeats", "Token", "TokenEffect", "TokenEffects",
    "TokenSequence", "Tokens",
]  # fmt: skip


# A tensor pair in little: histograms of values and errors, where the errors lie, and the worst elements.

@dataclass(frozen=True, kw_only=True)
class Bins:
    """A histogram. edges: one more than counts; of errors log10 of the edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Density:
    """How many elements have which error at which magnitude, both as log10.

    magnitudes, errors: edges of the bins of |base| and of |target - base|, one more than there are; of neither 0 is
    among them. counts: a line a bin of errors, the smallest first.
    """

    magnitudes: tuple[float, ...]
    errors: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ErrorMap:
    """RMS of |target - base| over everything that falls into a cell, row by row; None where NaN or Inf is in it.

    size: elements along the two axes (or the one of channels, after 1) that the cells stand for.
    """

    size: tuple[int, int]
    cells: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Element:
    """One element of the pair: its index, and both sides' values."""

    index: tuple[int, ...]
    base: float
    target: float


@dataclass(frozen=True, kw_only=True)
class Portrait:
    """What a page draws of one tensor.

    introduced: of what the operator itself added, both sides having been given the same inputs; else of the comparison.
    base, target: values of both sides on the same edges. errors: of |target - base| that is not 0, over decades.
    against: errors against magnitudes. map: over the last two axes. channels: over the second axis, where there are
    three or more.
    worst: elements with the largest errors, NaN and Inf first. sampled: elements that the histograms were made of.
    """

    name: str
    introduced: bool = False
    base: Bins | None = None
    target: Bins | None = None
    errors: Bins | None = None
    against: Density | None = None
    map: ErrorMap | None = None
    channels: ErrorMap | None = None
    worst: tuple[Element, ...] = ()
    sampled: int = 0


# Several builds of the target: what each one's error is, and where their differences begin.

@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Several builds of the target on one sample.

    count: how many, the compared one among them where its tensors were in the host's memory. seconds: that each took
    to run, and to be opened beyond the first. errors: relative L2 of each build against the baseline, by output.
    first: tensors where the randomness begins. tactics: layers that some build ran with another tactic; of
    ``tactics_changed`` the first few. not_in_all: tensors that not every build has: it was fused in another way.
    """

    count: int
    sample: int | None = None
    seconds: tuple[Number, ...] = ()
    errors: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    tactics: tuple[str, ...] = ()
    tactics_changed: int = 0
    not_in_all: tuple[str, ...] = ()


# What is told of a language model's tokens: records alone, so that who only reads them needs no numpy.

@dataclass(frozen=True, kw_only=True)
class Token:
    """One prediction. row: of the batch. place: where the token stands that is predicted, from 1 (the first one is
    given); behind the last one for what comes next. id: that token, None behind the last.

    base, target: its log-probability on both sides. rank, target_rank: how many tokens are likelier, and one. kl: of
    the target's whole distribution from the baseline's, in nats. chosen, target_chosen: the likeliest token on both
    sides. margin: how far the baseline's likeliest is ahead of its second, in logits. error: relative L2 of the logits.
    """

    row: int
    place: int
    id: int | None = None
    base: Number | None = None
    target: Number | None = None
    rank: int | None = None
    target_rank: int | None = None
    kl: Number = 0.0
    chosen: int = 0
    target_chosen: int = 0
    margin: Number = 0.0
    error: Number = 0.0

    @property
    def difference(self) -> float | None:
        """Of the log-probabilities, target - baseline; None behind the last token."""
        return None if self.base is None or self.target is None else float(self.target) - float(self.base)

    @property
    def flips(self) -> bool:
        """Whether a greedy choice would be another one."""
        return self.chosen != self.target_chosen


@dataclass(frozen=True, kw_only=True)
class TokenSequence:
    """One row of the batch: over its predicted tokens that count.

    ratio: importance ratio exp(sum(baseline - target)). mean_abs, max_abs: of the log-probabilities' differences.
    mean_probability, max_probability: of the probabilities'. mean_ratio: mean of exp(|difference|). mean_kl, flips: of
    all predictions, that of the next token included.
    """

    row: int
    tokens: int
    mean_abs: Number = 0.0
    max_abs: Number = 0.0
    mean_probability: Number = 0.0
    max_probability: Number = 0.0
    mean_ratio: Number = 1.0
    ratio: Number = 1.0
    mean_kl: Number = 0.0
    predictions: int = 0
    flips: int = 0


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """ids, logits: names of the input and of the output. predictions: all there are; ``tokens`` holds up to MOST, in
    order. tensors: what was seen of each token on its way, in execution order, and profiles: by the number of a
    prediction in ``tokens``, the relative L2 error of each of these tensors at the position that predicts it. sample:
    which one was measured, where there are several."""

    ids: str
    logits: str
    vocabulary: int
    predictions: int
    tokens: tuple[Token, ...] = ()
    sequences: tuple[TokenSequence, ...] = ()
    tensors: tuple[str, ...] = ()
    profiles: Mapping[str, tuple[Number | None, ...]] = field(default_factory=dict)
    sample: int | None = None

    def first_beyond(self, allowed: Number | None) -> int | None:
        """Return the number of the first prediction whose logits are off by more than this relative L2; None where none
        is, or where there is no such bound."""
        if allowed is None:
            return None
        return next((n for n, one in enumerate(self.tokens) if not float(one.error) <= float(allowed)), None)

    @property
    def worst(self) -> int | None:
        """The number of the prediction whose log-probability differs most; None where no token is predicted."""
        known = ((one.difference, n) for n, one in enumerate(self.tokens))
        sizes = [(abs(apart), -n) for apart, n in known if apart is not None and not math.isnan(apart)]
        return -max(sizes)[1] if sizes else None


@dataclass(frozen=True, kw_only=True)
class TokenEffect:
    """What the errors of some operators alone, put into the baseline's run, do to a token's log-probability (moved),
    and what is left of the whole difference where theirs alone are left out (left; None: not measured). name: of the
    tensor, or of the first of a layer's. group: of a layer, "" of one operator."""

    name: str
    moved: Number
    left: Number | None = None
    group: str = ""
    operators: int = 1


@dataclass(frozen=True, kw_only=True)
class TokenEffects:
    """Who moves one prediction (its number in Tokens.tokens). whole: with the errors of all operators put into the
    baseline's run. layers: every layer alone, in order. operators: those of the layer that moves it most, the largest
    first."""

    token: int
    whole: Number
    layers: tuple[TokenEffect, ...] = ()
    operators: tuple[TokenEffect, ...] = ()
