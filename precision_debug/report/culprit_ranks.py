"""On which ranks of a training run an operator is at fault, in words."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ..reasons import Text
from ..records import Culprit
from .figures import figure

__all__ = ["culprit_ranks", "ranks_named"]


def ranks_named(ranks: Sequence[int]) -> Text:
    """As "rank 1", or "ranks 0, 1"."""
    listed = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return Text(f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}", f"rank {listed}")


def culprit_ranks(culprit: Culprit) -> Text | None:
    """Say which ranks an operator spoils the gradients of, and how far off the worst of them is on each side.

    None where there is one rank."""
    if not culprit.ranks:
        return None
    who = ranks_named(culprit.ranks)
    there, others = ({}, {})  # type: tuple[dict[int, float], dict[int, float]]
    for rank, error in culprit.errors.items():
        (there if int(rank) in culprit.ranks else others)[int(rank)] = error
    if not others:
        return Text(f"All ranks have it ({', '.join(map(str, culprit.ranks))}).", f"所有 rank 均如此（{who.zh}）。")
    at = f"`{culprit.at.partition('/')[2]}`"
    own, other = _off(there.values()), _off(others.values())
    elsewhere = ranks_named([*others])
    begins = f"{who.en[0].upper()}{who.en[1:]} alone {'has' if len(culprit.ranks) == 1 else 'have'} it"
    return Text(
        f"{begins}: {at} is {own.en} there, and {other.en} on {elsewhere.en}.",
        f"仅 {who.zh} 如此：其 {at} {own.zh}，而 {elsewhere.zh} 上{other.zh}。",
    )


def _off(errors: Collection[float]) -> Text:
    worst = max(errors, default=0.0)
    if worst == math.inf:
        return Text("NaN or Inf", "为 NaN 或 Inf")
    most, most_zh = (" up to", "最多") if len(errors) > 1 else ("", "")
    return Text(f"off by{most} {figure(worst)} (Rel L2)", f"相对 L2 误差{most_zh}为 {figure(worst)}")
