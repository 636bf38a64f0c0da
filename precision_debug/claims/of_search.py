"""The claims of a search's answer, and of one stage of an engine: what of a comparison still counts, and their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from ..records import Doubt, Status
from ..search.fix import Fix
from .claim import ENDED, Claim, JudgedReport, State, Verdict, fold_claims, hold_claim, leave_claim_open, refute_claim

__all__ = ["Judge", "claim_stage", "claims_of_search", "fold_stage_verdicts", "verdict_of_search"]

_OF_COMPARISON = ("ran_as_asked", "outputs_compared", "outputs_finite", "all_read", "unchanged", "unseen_inputs",
                  "repeatable", ENDED)
"""What is claimed of the comparison with nothing kept, and without which no set proves anything either."""

_LEFT_TO: Mapping[str, Collection[str]] = {
    "tolerance": (), "limit": (), "metric": ("outputs_compared", "outputs_finite"),
    "command": [code for code in _OF_COMPARISON if code != ENDED],
}  # fmt: skip
"""Of those, what is left to whom: a metric of the user's judges the outputs in its own way, and a command saved models,
wherever and however it runs them."""

_NEEDED = ("set_found", "held_out", "handed_over", ENDED)
_NEEDED_BESIDE = ("ran_as_asked", "all_read", "unchanged", "unseen_inputs", "repeatable")
"""Where no command judges."""

_CAN_TELL = frozenset({"output_hidden"})
"""Doubts of the comparison's own tolerance, which a limit of the search's does not have."""


Judge = Literal["tolerance", "limit", "metric", "command"]
"""What decides of a set: the comparison's own tolerance, a limit of the search's, or something of the user's."""


def claims_of_search(report: JudgedReport, fix: Fix | None, judge: Judge) -> tuple[Claim, ...]:
    """Return every claim of a search that ends well."""
    return tuple(_claim_on_search(report, fix, judge))


def verdict_of_search(claims: Sequence[Claim], judge: Judge) -> Verdict:
    """Return the answer of a search: a pass where a set was found and verified, or none is needed."""
    return fold_claims(claims, _NEEDED if judge == "command" else (*_NEEDED, *_NEEDED_BESIDE), asked=True)


def _claim_on_search(report: JudgedReport, fix: Fix | None, judge: Judge) -> Iterator[Claim]:
    for claim in report.claims:
        if claim.code not in _OF_COMPARISON or claim.code in _LEFT_TO[judge]:
            continue
        why = claim.why.code if claim.why is not None and claim.state is State.OPEN else ""
        if why and ((judge == "limit" and why in _CAN_TELL) or _is_answered(claim, fix)):
            yield hold_claim(claim.code, claim.why)
        else:
            yield claim
    if fix is None:
        yield leave_claim_open("set_found", Doubt(code="search_unfinished", values={"sets": 0}))
        return
    yield _set_found(fix)
    yield _claim_held_out(fix)
    yield _claim_handed_over(fix)


def _is_answered(claim: Claim, fix: Fix | None) -> bool:
    """Return whether the fix that was found settles an open claim of the run with nothing kept.

    It does where the operator that is doubted is kept, or the set was run on other inputs than those that
    calibrated."""
    if fix is None or fix.state != "found" or claim.why is None:
        return False
    if claim.code == "unseen_inputs":
        return 0 < fix.held_out == fix.held
    if claim.why.code == "sum_overflows":
        kept = {name for unit in fix.kept for name in (*unit.nodes, *unit.tensors)}
        return claim.why.values.get("name") in kept
    return False


def _set_found(fix: Fix) -> Claim:
    code = "set_found"
    if fix.state in ("found", "not needed"):
        return hold_claim(code, state=fix.state, kept=len(fix.kept), sets=fix.evaluations)
    if fix.state == "unfinished":
        return leave_claim_open(
            code, Doubt(code="search_unfinished", values={"sets": fix.evaluations}), state=fix.state
        )
    return refute_claim(code, state=fix.state, sets=fix.evaluations)


def _claim_held_out(fix: Fix) -> Claim:
    """Return the claim that the kept set holds on every input that the search did not see, where there are some."""
    if fix.held < fix.held_out and fix.state == "found":
        return refute_claim("held_out", held=fix.held, held_out=fix.held_out)
    return hold_claim("held_out", held=fix.held, held_out=fix.held_out)


def _claim_handed_over(fix: Fix) -> Claim:
    """Return the claim that what is handed over was run again as its user would, and holds."""
    code = "handed_over"
    failed = tuple(str(item.title) for item in fix.artefacts if item.verified is False)
    good = sum(item.verified is True for item in fix.artefacts)
    if failed:
        return refute_claim(code, artefacts=failed)
    if fix.artefacts and not good:
        return leave_claim_open(code, Doubt(code="handed_over_unrun", values={"count": len(fix.artefacts)}))
    return hold_claim(code, artefacts=good)


def claim_stage(report: JudgedReport, *, outputs_only: bool) -> tuple[Claim, ...]:
    """Return what a pass of one stage of an engine says: that of a comparison, whose tensors between decide only where
    asked.

    outputs_only: an error of a tensor before the outputs refutes nothing.
    """
    if not outputs_only:
        return report.claims
    wrong = [row for row in report.outputs if row.status is Status.FAIL]
    first = refute_claim("within", first=wrong[0].name, failed=len(wrong)) if wrong else hold_claim("within")
    return (first, *(claim for claim in report.claims if claim.code != "within"))


def fold_stage_verdicts(failing: str, left: Sequence[str], target: bool | None) -> Verdict:
    """Fold a climb to its answer.

    failing: the first stage that fails; "" where none does. left: stages of which nothing is known, which an answer
    about the target does not rest on. target: whether the last one, the target itself, passes; None: not known.
    """
    found = [refute_claim("within", first=failing) if failing else hold_claim("within", left=tuple(left))]
    found.append(hold_claim("target_judged") if target is not None else
                 leave_claim_open("target_judged", Doubt(code="nothing_compared")))  # fmt: skip
    return fold_claims(found, ("within", "target_judged"), asked=True)
