"""A language model's tokens as rows: found among feeds and outputs, proved to be causal, measured on both sides."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from .. import events
from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array
from ..numbers.measure_tokens import Roles, ids_among, measure_tokens, otherwise, roles_of
from ..numbers.tokens import Tokens
from ..observe.token_errors import TokenErrors
from ..protocols import Feeds
from .comparing import Comparing
from .open_pair_run import OpenPair, SampleResult
from .searching.trials import outputs_of

__all__ = ["tell_tokens", "watching_tokens"]

_SAME = 1e-2
"""Relative L2 distance up to which logits count as unmoved by a later token: other tokens move them by about 1."""


def watching_tokens(feeds: Feeds) -> list[TokenErrors]:
    """What keeps the error of each tensor at each token, where the feeds look like token ids."""
    name = ids_among(feeds)
    if name is None or np.shape(feeds[name])[-1] < 2:
        return []
    rows, length = np.atleast_2d(np.asarray(feeds[name])).shape
    return [TokenErrors(rows, length)]


def tell_tokens(
    work: Comparing, both: OpenPair, number: int | None, ran: SampleResult, feeds: Feeds,
    watched: list[TokenErrors],
) -> Tokens | None:  # fmt: skip
    """Measure the tokens of a sample, and tell the journal; None where this is no causal language model.

    number: of the sample, where there are several. watched: what was kept of each tensor.
    """
    if both.base is both.target or any(meta.phase for meta in both.base.announced):
        return None  # of a training step the outputs are gradients, which stay on their device
    names = {pair.base.name: name for name, pair in both.alignment.pairs.items() if not pair.target.view}
    roles = roles_of(feeds, ran.base_outputs, ran.target_outputs, names)
    if roles is None:
        return None
    try:
        base = as_array(ran.base_outputs[roles.logits])
        target = as_array(ran.target_outputs[roles.target_logits])
        order = tuple(meta.name for meta in both.base.announced)
        errors = watched[0].found(order) if watched else None
        if not _is_causal(both, feeds, roles, base):
            return None
        tokens = measure_tokens(feeds, base, target, roles, profiles=errors, sample=number)
    except PrecisionDebugError:
        return None
    work.journal.write(events.TokensFound(tokens=tokens))
    return tokens


def _is_causal(both: OpenPair, feeds: Feeds, roles: Roles, base: Any) -> bool:
    """Return whether another token in the middle leaves what the model says before it.

    One more run of the baseline tells. Where that is a recording, the names decide."""
    changed = otherwise(feeds, roles, base.shape[-1])
    if changed is None:
        return True
    fed, early = changed
    late = ~early
    lines = np.array(base).reshape(*early.shape, base.shape[-1])
    if not both.base.opening.recording:
        with contextlib.suppress(PrecisionDebugError):
            after = outputs_of(both.base.session, fed, both.base.opening.label)[roles.logits].reshape(lines.shape)
            return _moved(lines[early], after[early]) <= _SAME < _moved(lines[late], after[late])
    return "logits" in roles.logits.lower() and roles.ids.lower().endswith("ids")


def _moved(before: Any, after: Any) -> float:
    """Relative L2 distance of what is finite."""
    one, other = np.asarray(before, np.float64), np.asarray(after, np.float64)
    fair = np.isfinite(one) & np.isfinite(other)
    size = float(np.sum(np.square(one[fair])))
    return float(np.sqrt(np.sum(np.square((other - one)[fair])) / size)) if size else 0.0
