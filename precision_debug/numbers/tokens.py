"""What is told of a language model's tokens: records alone, so that who only reads them needs no numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..records import Number

__all__ = ["Token", "TokenEffect", "TokenEffects", "TokenSequence", "Tokens"]


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
        """The number of the first prediction whose logits are off by more than this relative L2; None where none is,
        or where there is no such bound."""
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
