"""Who moves a language model's token: the errors of a layer, then of each operator, put into the baseline's run.

An operator's relative error does not say what it does to one token. So each layer's own errors are put into the
baseline's run alone, and the token's log-probability is read off the logits; then those of each operator of the layer
that moves it most. What is left with that one repaired, and all others as they are, is measured, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..numbers.measure_tokens import log_probability
from ..numbers.tokens import Token, TokenEffect, TokenEffects
from .effects import output_with_errors
from .introduced import Alone
from .subject import Subject
from .work import Work

__all__ = ["token_effects"]

_LAYER = re.compile(r"(?:^|[./\-])(\d+)(?=$|[./ @#-])")
"""The number of a layer in a tensor's name: model.layers.3.mlp/mul, /model/layers.3/mlp/Mul, ffn_out-3."""

_LAYERS = 64
"""Layers that are looked at one by one; of more, some that follow each other are taken together."""

_LEFT_OUT = 3
"""Operators of which it is measured what is left without them."""


def token_effects(
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
    layers = _layers(names, max(1, min(_LAYERS, work.runs // 2)))
    moved = [trial.moved(members) for _, members in layers]
    if all(one is None for one in moved):
        return None
    told = tuple(
        TokenEffect(name=members[0], group=label or _largest(alone, members), moved=one, operators=len(members))
        for (label, members), one in zip(layers, moved, strict=True)
        if one is not None
    )
    most = max(range(len(layers)), key=lambda n: _size(moved[n]))
    operators = _operators(trial, layers[most][1], names, work)
    return TokenEffects(token=number, whole=whole, layers=told, operators=operators)


def _operators(trial: _Trial, members: Sequence[str], names: Sequence[str], work: Work) -> tuple[TokenEffect, ...]:
    """Each of a layer's alone, those that move the token most first."""
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
        found = output_with_errors(self._subject, self.alone, names, self._names, self._logits)
        if found is None:
            return None
        value = self._said(self._subject.bench.host(found)) - self._plain
        return value if math.isfinite(value) else None

    def _said(self, logits: Any) -> float:
        assert self._id is not None, "a prediction of a token that is known"
        return log_probability(logits, self._line, self._id)


def _layers(names: Sequence[str], most: int) -> list[tuple[str, list[str]]]:
    """The operators by layer, in order: a label and their names. What lies between layers is a layer of its own."""
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
        found = [(one[0][0], one[0][1] + (one[1][1] if len(one) > 1 else [])) for one in _pairs(found)]
    return found


def _largest(alone: Alone, members: Sequence[str]) -> str:
    """Of what lies between layers: the operator whose own error is largest."""
    return max(members, key=lambda name: _size(alone.found[name].rel_l2))


def _pairs(found: list[tuple[str, list[str]]]) -> list[list[tuple[str, list[str]]]]:
    return [found[n : n + 2] for n in range(0, len(found), 2)]


def _size(value: Any) -> float:
    return 0.0 if value is None or math.isnan(value) else abs(float(value))
