"""A language model's answer token by token: how likely each token is on both sides, and what it would choose next.

The log-probability of a token is that of the prediction one place before it: log softmax(logits[t - 1])[ids[t]], in
nats. What trainers of rollouts print is taken over a sequence: the mean and the largest |difference| of the tokens'
log-probabilities and probabilities, and the importance ratio exp(sum(baseline - target)); the trainer is the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..records import Number
from .arrays import as_array
from .told import Token, Tokens, TokenSequence

__all__ = [
    "MOST",
    "Roles",
    "change_middle_token",
    "compute_mean_kl",
    "find_ids",
    "find_roles",
    "log_probability",
    "measure_tokens",
]

Array = np.ndarray[Any, Any]

MOST = 4096
"""Predictions of a run that are told one by one; numbers over sequences are of all."""

_LEAST_CLASSES = 8
"""Classes from which on scores may be those of a vocabulary."""

_NO_TOKENS = ("mask", "position", "type", "segment", "label", "length", "cache")
"""Words in the names of whole numbers that are no tokens."""

_AT_ONCE = 1 << 20
"""Logits that are made float64 at a time."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which input has the token ids, and which output (by the baseline's name, and by the target's) the logits.
    mask: the input that says which tokens count, "" where none does."""

    ids: str
    logits: str
    target_logits: str
    mask: str = ""


def find_roles(
    feeds: Mapping[str, Any], base: Mapping[str, Any], target: Mapping[str, Any], target_names: Mapping[str, str]
) -> Roles | None:
    """Return what looks like token ids, and like logits of a next token; None where nothing does.

    Ids are whole numbers of shape [rows, tokens] or [tokens], logits floats with one more axis, or with the two first
    as one. target_names: the target's name of an output, by the baseline's. Whether the model is causal is for its run
    to say: see ``change_middle_token``.
    """
    for name in sorted(base, key=lambda one: ("logits" not in one.lower(), list(base).index(one))):
        there = target_names.get(name, name)
        if there not in target:
            continue
        shape = tuple(getattr(base[name], "shape", ()))
        if len(shape) < 2 or shape[-1] < _LEAST_CLASSES or not _is_float(base[name]):
            continue
        found = find_ids(feeds, math.prod(shape[:-1]), shape[-1])
        if found is not None and math.prod(getattr(target[there], "shape", ())) == math.prod(shape):
            return Roles(ids=found, logits=name, target_logits=there, mask=_find_mask(feeds, found))
    return None


def _is_float(value: Any) -> bool:
    return "float" in str(getattr(value, "dtype", ""))


def find_ids(feeds: Mapping[str, Any], count: int = 0, classes: int = 0) -> str | None:
    """Return the input that looks like token ids, [rows, tokens] or [tokens]. count: how many there must be, classes:
    above all of them; 0: any."""
    for name in sorted(feeds, key=lambda one: not one.lower().endswith(("ids", "tokens"))):
        if any(word in name.lower() for word in _NO_TOKENS) or isinstance(feeds[name], (list, tuple)):
            continue  # a sequence of tensors is none
        value = np.asarray(feeds[name])
        if value.dtype.kind not in "iu" or value.ndim not in (1, 2) or not value.size:
            continue
        if (not count or value.size == count) and value.min() >= 0 and (not classes or value.max() < classes):
            return name
    return None


def _find_mask(feeds: Mapping[str, Any], ids: str) -> str:
    shape = np.shape(feeds[ids])
    masks = [name for name in feeds if "attention_mask" in name.lower() and np.shape(feeds[name]) == shape]
    return masks[0] if masks else ""


def change_middle_token(feeds: Mapping[str, Any], roles: Roles, classes: int) -> tuple[dict[str, Any], Array] | None:
    """Return the feeds with another token in the middle of each row, and which places come before it, [rows, tokens]: a
    causal model answers those as it did. None where no row has two tokens that count."""
    ids = np.array(feeds[roles.ids])
    rows = ids.reshape(-1, ids.shape[-1])
    counts = _find_counted_tokens(feeds, roles, rows.shape)
    before = np.zeros(rows.shape, bool)
    for row in range(len(rows)):
        places = np.flatnonzero(counts[row])
        if len(places) > 1:
            place = int(places[len(places) // 2])
            rows[row, place] = (rows[row, place] + 1 + classes // 2) % classes
            before[row, places[: len(places) // 2]] = True
    return ({**feeds, roles.ids: ids}, before) if before.any() else None


def _find_counted_tokens(feeds: Mapping[str, Any], roles: Roles, shape: tuple[int, ...]) -> Array:
    """Return which tokens count, by the mask."""
    if not roles.mask:
        return np.ones(shape, bool)
    found: Array = np.asarray(feeds[roles.mask]).reshape(shape) != 0
    return found


def log_probability(logits: Any, line: int, token: int) -> float:
    """Of one token in one line of the logits, [rows * tokens, classes] in any shape."""
    return float(_log_softmax(_flatten_logits(logits)[line : line + 1].astype(np.float64))[0, token])


def measure_tokens(
    feeds: Mapping[str, Any], base: Any, target: Any, roles: Roles, *,
    profiles: tuple[Sequence[str], Array] | None = None, sample: int | None = None,
) -> Tokens:  # fmt: skip
    """Return every prediction on both sides. base, target: the logits. profiles: names of tensors, and their relative
    L2 error at each token, [tensors, rows * tokens], NaN where it was not seen."""
    ids = np.atleast_2d(np.asarray(feeds[roles.ids]))
    rows, length = ids.shape
    counts = _find_counted_tokens(feeds, roles, ids.shape)
    ours, theirs = _flatten_logits(base), _flatten_logits(target)
    tokens: list[Token] = []
    places: list[int] = []
    sequences = []
    for row in range(rows):
        said: list[Token] = []
        lines = slice(row * length, (row + 1) * length)
        last = int(np.flatnonzero(counts[row])[-1]) if counts[row].any() else -1
        for first, one in _iterate_blocks(ours[lines]):
            other = np.asarray(theirs[lines][first : first + len(one)], np.float64)
            for offset, token in enumerate(_compare_predictions(row, first, one, other, ids[row], last)):
                if counts[row, first + offset] and (first + offset == last or counts[row, first + offset + 1]):
                    said.append(token)
                    places.append(row * length + first + offset)
        tokens += said
        sequences.append(_summarise_sequence(row, said))
    kept = tokens[:MOST]
    names, errors = profiles if profiles is not None else ((), np.empty((0, 0)))
    return Tokens(
        ids=roles.ids, logits=roles.logits, vocabulary=ours.shape[-1], predictions=len(tokens), tokens=tuple(kept),
        sequences=tuple(sequences), tensors=tuple(names), profiles=_profile_errors(kept, places, errors),
        sample=sample,
    )  # fmt: skip


_PROFILED = 200_000
"""Numbers of profiles that a report holds: of more, the predictions that differ most have theirs."""


def _profile_errors(
    tokens: Sequence[Token], places: Sequence[int], errors: Array
) -> dict[str, tuple[Number | None, ...]]:
    if not len(errors):
        return {}
    most = max(1, _PROFILED // len(errors))
    far = sorted(range(len(tokens)), key=lambda n: -_size_of_token(tokens[n]))[:most]
    return {
        str(n): tuple(None if math.isnan(value) else float(f"{value:.3g}") for value in errors[:, places[n]].tolist())
        for n in sorted(far)
    }


def _size_of_token(token: Token) -> float:
    value = abs(token.difference) if token.difference is not None else float(token.kl)
    return math.inf if math.isnan(value) else value


def _compare_predictions(row: int, first: int, ours: Array, theirs: Array, ids: Array, last: int) -> list[Token]:
    """Return the predictions of some places that follow each other."""
    with np.errstate(all="ignore"):
        logs, others = _log_softmax(ours), _log_softmax(theirs)
        there = np.exp(logs)
        kl = np.sum(np.where(there > 0, there * (logs - others), 0), axis=1)
        best, other_best = np.argmax(ours, axis=1), np.argmax(theirs, axis=1)
        two = np.partition(ours, -2, axis=1)[:, -2:]
        error = np.sqrt(np.sum(np.square(theirs - ours), axis=1) / np.sum(np.square(ours), axis=1))
        error = np.where(np.all(theirs == ours, axis=1), 0.0, error)
    found = []
    for n in range(len(ours)):
        place = first + n + 1
        told: dict[str, Any] = {}
        if first + n != last and place < len(ids):
            token = int(ids[place])
            told = {
                "id": token, "base": float(logs[n, token]), "target": float(others[n, token]),
                "rank": int(np.sum(ours[n] > ours[n, token])) + 1,
                "target_rank": int(np.sum(theirs[n] > theirs[n, token])) + 1,
            }  # fmt: skip
        found.append(
            Token(
                row=row, place=place, kl=max(0.0, float(kl[n])) if kl[n] == kl[n] else math.nan, chosen=int(best[n]),
                target_chosen=int(other_best[n]), margin=float(two[n, 1] - two[n, 0]), error=float(error[n]), **told,
            )
        )  # fmt: skip
    return found


def _summarise_sequence(row: int, tokens: Sequence[Token]) -> TokenSequence:
    """Of one row of the batch."""
    known = [one for one in tokens if one.base is not None and one.target is not None]
    ours, theirs = (np.array([getattr(one, side) for one in known], np.float64) for side in ("base", "target"))
    kl = [float(one.kl) for one in tokens]
    more: dict[str, Any] = {}
    if known:
        with np.errstate(all="ignore"):
            apart, chances = np.abs(theirs - ours), np.abs(np.exp(theirs) - np.exp(ours))
            more = {
                "mean_abs": float(apart.mean()), "max_abs": float(apart.max()),
                "mean_probability": float(chances.mean()), "max_probability": float(chances.max()),
                "mean_ratio": float(np.exp(apart).mean()), "ratio": float(np.exp(np.sum(ours - theirs))),
            }  # fmt: skip
    return TokenSequence(
        row=row, tokens=len(known), predictions=len(tokens), mean_kl=float(np.mean(kl)) if kl else 0.0,
        flips=sum(one.flips for one in tokens), **more,
    )  # fmt: skip


def _flatten_logits(logits: Any) -> Array:
    """[rows * tokens, classes]."""
    array = as_array(logits)
    return array.reshape(-1, array.shape[-1])


def _iterate_blocks(lines: Array) -> Iterator[tuple[int, Array]]:
    """In float64, some lines at a time."""
    step = max(1, _AT_ONCE // max(1, lines.shape[-1]))
    for n in range(0, len(lines), step):
        yield n, lines[n : n + step].astype(np.float64)


def _log_softmax(logits: Array) -> Array:
    with np.errstate(all="ignore"):
        shifted = logits - np.max(logits, axis=1, keepdims=True)
        found: Array = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
        return found


def compute_mean_kl(base: Mapping[str, Any], target: Mapping[str, Any]) -> float:
    """Return KL(baseline || target) of a language model's predictions, in nats, the mean of all places.

    base, target: outputs by name; the logits are the floats with most classes. Raises ValueError where there are none.
    """
    shapes = {name: np.shape(value) for name, value in base.items() if name in target and _is_float(value)}
    scores = {name: shape for name, shape in shapes.items() if len(shape) > 1 and shape[-1] >= _LEAST_CLASSES}
    if not scores:
        raise ValueError("no output holds scores of tokens")
    name = max(scores, key=lambda one: scores[one][-1])
    classes = scores[name][-1]
    mine, theirs = (_flatten_logits(as_array(side[name], name=name)) for side in (base, target))
    total, step = 0.0, max(1, _AT_ONCE // classes)
    for begin in range(0, len(mine), step):
        ours, other = (_log_softmax(np.asarray(one[begin : begin + step], np.float64)) for one in (mine, theirs))
        there = np.exp(ours)
        total += float(np.sum(np.where(there > 0, there * (ours - other), 0)))
    return total / len(mine)
