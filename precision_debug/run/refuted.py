"""An accusation that the engine refutes: with all who are named kept in FP32, the error is what it was.

In the baseline's run one operator's error may do what all errors do, and where the replay is not the error that was
measured nothing refutes it there (see ``explain.confirm``). What was run on the engine for a fix does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..explain import Subject, bound_of_many
from ..explain.criteria import DROP, FEW, FIFTH, HALF, LITTLE, SMALLER
from ..protocols import Executed
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, Overlap
from ..search.fix import Evaluation, ToKeep, TradePoint
from .fix_finder import Kept

__all__ = ["add_repaired_culprit", "note_kept_in_vain", "withdraw_culprits"]


def note_kept_in_vain(
    found: ToKeep, seen: Mapping[Kept, Evaluation], culprits: Kept, before: float, was: Executed | None,
    point: Callable[[Evaluation], TradePoint],
) -> ToKeep:  # fmt: skip
    """With what came of keeping all of the culprits, where that did nothing although keeping more did something.

    seen: the sets that were run. culprits: who is named, with what reads them. before: the error with nothing kept.
    was: in which precision the operators ran then. point: a set as it is told of, run as it would be pasted.
    """
    named = culprits
    if not named or not math.isfinite(before) or not before:
        return found
    works = found.state in ("mended", "lessened") or (found.whole is not None and found.whole <= HALF * before)
    most = len(named) / HALF  # more than twice as many are no longer theirs
    sets = [(kept, one) for kept, one in seen.items() if named <= kept and len(kept) <= most]
    errors = [one.error for _, one in sets if one.error is not None]
    if not works or not errors or len(errors) < len(sets) or LITTLE * min(errors) < before:
        return found
    if was is None or any(one.executed is None or one.executed.low >= was.low for _, one in sets):
        return found  # the engine did not keep them, or does not tell
    told = point(min((one for _, one in sets), key=lambda one: one.error or 0.0))
    if told.error is None or LITTLE * told.error < before:
        return found
    return replace(found, in_vain=told)


def withdraw_culprits(explanation: Explanation, kept: ToKeep | None) -> Explanation | None:
    """Return the explanation without its culprits; None where nothing refutes them."""
    point = kept.in_vain if kept is not None else None
    if point is None or point.error is None or explanation.state != "culprits":
        return None
    first = explanation.culprits[0]
    if any(one.non_finite or CAUSES[one.cause].fails for one in explanation.culprits):
        return None
    if first.without is not None and first.with_all and SMALLER * first.without <= first.with_all:
        return None
    if first.name not in explanation.budget:  # what its error makes alone was not measured
        return None
    overlap = Overlap(name=first.name, alone=None, without=point.error, tried=explanation.tried, kept=point.kept)
    return replace(
        explanation, state="diffuse", culprits=(), overlap=overlap, passes=False, allowed=bound_of_many(explanation)
    )


def add_repaired_culprit(explanation: Explanation, kept: ToKeep | None, subject: Subject) -> Explanation | None:
    """Return the explanation with a culprit that was found by its repair, or None.

    Where nobody was named although keeping a few operators on the engine brings the error within bounds, or one alone
    takes two thirds of it; or what the user's metric loses. None elsewhere.

    One coarse tensor may ruin the inputs of all that comes after it, so that no error measured there adds up."""
    if kept is None or (explanation.state != "diffuse" and not kept.metric):
        return None
    one = kept.state == "lessened" and len(kept.keys) == 1
    if kept.before is None or kept.after is None or not (kept.state == "mended" or one):
        return None
    few = kept.unit == "operator" and 0 < len(kept.keys) <= max(FEW, kept.of // FIFTH)
    if not few or kept.after > HALF * kept.before or (one and DROP * kept.after > kept.before):
        return None
    made = [meta.name for meta in subject.tensors if meta.node in kept.keys]
    names = [name for name in made if name in subject.row_of] or made  # what is fused is no row of both sides
    if not names:
        return None
    name = max(names, key=lambda one: explanation.budget.get(one, 0.0))  # the first of those that make as much
    own = subject.meta_of[name]
    told = {"kept": ", ".join(f"`{one}`" for one in names), "before": kept.before, "after": kept.after}
    evidence = {**told, "metric": kept.metric} if kept.metric else told
    cause = "metric_lost" if kept.metric else "found_by_repair"
    culprit = Culprit(
        name=name, node=own.node, op_types=(own.op_type,), cause=cause, evidence=evidence,
        confidence="repaired", at=explanation.at, keep=tuple(names),
    )  # fmt: skip
    return replace(explanation, state="culprits", culprits=(culprit,), overlap=None, passes=False)
