"""What an explanation says that follows from what was measured, of a run and of a training step alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..reasons import NOTHING, as_reason, say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation
from .bounds import LEAST
from .criteria import HALF
from .effects import Carried, Sink

__all__ = ["concluded", "hidden_share", "is_of_many"]

_TOLD = 0.001
"""Share of the squared error above which an operator is named in the budget."""


def concluded(
    culprits: tuple[Culprit, ...], tried: Carried, sinks: Sequence[Sink], at: str, expected: Mapping[str, float], *,
    beyond: bool, **rest: Any,
) -> Explanation:  # fmt: skip
    """sinks: where errors are judged; ``at`` is the worst of them. beyond: one is off by more than it may be.
    rest: further fields of the explanation.

    Nobody is found, and something is off: that is the error of everybody ("diffuse") only where enough was tried to
    know it.
    """
    left = len(tried.untried)
    state, reason = "culprits" if culprits else "diffuse" if beyond else "healthy", NOTHING
    hidden = hidden_share(tried)
    if state == "diffuse" and left and (hidden is None or hidden >= HALF):
        state, reason = "unknown", say("not_tried", tried=len(tried.effects), left=left)
    counts = {"always", "least"} if any(sink.rel_l2 > LEAST for sink in sinks) else {"always"}
    fails = any(CAUSES[one.cause].fails in counts for one in culprits)
    budget = {name: e.share for name, found in tried.effects.items() for e in found if e.at == at and e.share > _TOLD}
    return Explanation(
        state=state,
        reason=reason,
        culprits=culprits,
        at=at,
        budget=dict(sorted(budget.items(), key=lambda pair: -pair[1])),
        actual=next((sink.rel_l2 for sink in sinks if sink.name == at and not sink.non_finite), None),
        expected=expected.get(at),
        tried=len(tried.effects),
        rest=tried.rest,
        part=tried.part,
        passes=bool(culprits) and not beyond and not fails,
        **rest,
    )


def is_of_many(explanation: Explanation) -> bool:
    """Whether the error is that of many operators, or may be, since not all were tried: then a set that mends it can be
    looked for without anybody's name."""
    left = explanation.state == "unknown" and as_reason(explanation.reason).code == "not_tried"
    return explanation.state == "diffuse" or left


def hidden_share(tried: Carried | Explanation) -> float | None:
    """The most of the squared error that one operator of those that were not tried alone may make; None where nobody
    knows."""
    found = tried.rest if tried.part is None else tried.part
    return None if found is None else float(found)
