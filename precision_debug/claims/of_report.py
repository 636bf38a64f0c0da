"""The claims that a pass of one comparison makes, from the report's own rows and sides.

A session tells of itself what did not run as it was asked for (``Side.doubts``); the rest follows from the rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ..explain import bound_of
from ..explain.operators import find_reached
from ..numbers.judge import HIDDEN
from ..reasons import as_reason
from ..records import Doubt, Number, Row, Status, TensorStats
from ..registry import find_wording
from ..settings.options import parse_allowed_drop
from .as_asked import doubt_not_fp32, doubt_unseen_precision
from .claim import ENDED, Claim, JudgedReport, State, hold_claim, leave_claim_open, refute_claim

__all__ = ["ENOUGH", "NEEDED", "claims_of"]

ENOUGH = 0.5
"""Share of the tensors to be expected that must have been compared, or the verdict is inconclusive."""

_UNFELT = 1e-3
"""Share of a metric that it may lose of rounding alone, whatever resampling says: that many digits are reported."""

_NAMES = 3
_DIGITS = 16
"""Of the digest of all inputs, in hexadecimal."""
_OWN_PROGRAM = frozenset({"", "recording"})
"""What a side's backend is called where a script's hooks, or files, show tensors: nothing says which are final."""

_OF_DOUBT = {"iterations_unread": "all_read", "draws_numbers": "repeatable", "differs_from_itself": "repeatable",
             "fails_again": "repeatable", "only_calibrated": "unseen_inputs", "model_changed": "unchanged",
             **dict.fromkeys(("off_on_others", "off_on_others_kept", "off_on_others_anyway", "off_on_others_untried"),
                             "unseen_inputs")}  # fmt: skip
"""Which claim a side's own doubt is about, where it is not that it ran as asked."""


def claims_of(report: JudgedReport) -> tuple[Claim, ...]:
    """Return every claim that a pass of this report makes, the weightiest first; none is there twice.

    A code of ``NEEDED`` that nothing speaks against has one claim, which is held with its evidence.
    """
    kept: list[Claim] = []
    for code, found in _CLAIMS.items():
        own = [claim for claim in found(report) if claim.code == code]
        if any(claim.state is not State.HELD for claim in own):
            own = [claim for claim in own if claim.state is not State.HELD or claim.why is not None]
        for claim in own:  # one after the other: both sides may say the same
            if claim not in kept:
                kept.append(claim)
    others = [claim for claim in report.asserted if claim.code not in {one.code for one in kept}]
    return (*kept, *others)


def _claim_metric_held(report: JudgedReport) -> Iterator[Claim]:
    """The user's metric gets no worse than the bound that was given, or than what resampling the samples explains."""
    code, found = "metric", report.metric
    if found is None:
        return
    values: dict[str, Number | str] = {
        "name": found.name, "baseline": found.baseline, "target": found.target, "samples": found.samples,
    }  # fmt: skip
    if math.isnan(found.worse):
        yield leave_claim_open(code, Doubt(code="metric_no_number", values=values))
        return
    if report.spec.metric_drop:
        most, of_baseline = parse_allowed_drop(report.spec.metric_drop)
        values["bound"] = report.spec.metric_drop
        if (found.share if of_baseline else found.worse) > most:
            yield refute_claim(code, Doubt(code="metric_beyond", values=values))
        else:
            yield hold_claim(code, None, kind="given", **values)
        return
    if found.low is None:  # of so few, what the arithmetic costs is all that there is to go by
        fell = found.share > max(_UNFELT, bound_of(report.explanation, report.target.precision))
        doubt = Doubt(code="metric_fell_alone", values=values)
    else:
        fell = found.low > 0 and found.share > _UNFELT
        values |= {"low": found.low, "high": found.high or 0.0}
        doubt = Doubt(code="metric_fell", values=values)
    yield refute_claim(code, doubt) if fell else hold_claim(code, None, **values)


def metric_decides(report: JudgedReport) -> bool:
    """Return whether a metric with a bound decides in place of a tolerance that nobody gave."""
    return report.metric is not None and bool(report.spec.metric_drop) and not report.spec.tolerance.given


def _claim_ran_as_asked(report: JudgedReport) -> Iterator[Claim]:
    """Both sides ran in the precision, on the provider and with the layers that were asked for."""
    code = "ran_as_asked"
    doubts = [doubt for side in (report.target, report.baseline) for doubt in side.doubts]
    told = [doubt for doubt in doubts if doubt.code not in _OF_DOUBT]
    yield from (_claim_of_doubt(code, doubt) for doubt in told)
    if not any(doubt.code == "precision_not_run" for doubt in report.target.doubts):
        yield from (leave_claim_open(code, doubt) for doubt in doubt_unseen_precision(report))
    baseline, target = report.baseline.mode, report.target.mode
    yield from (hold_claim(code, doubt, baseline=baseline, target=target) for doubt in doubt_not_fp32(report))
    yield hold_claim(code, baseline=baseline, target=target)


def _claim_outputs_compared(report: JudgedReport) -> Iterator[Claim]:
    """Yield the claim that every final output that the model declares was compared, in its own kind."""
    code = "outputs_compared"
    if report.checks:  # a function of the user's has judged the outputs
        left = [] if "" in report.checks else [
            row.name for row in report.outputs if not {row.name, row.target_name} & set(report.checks)
        ]  # fmt: skip
        yield hold_claim(code, kind="function")
        if left:
            yield leave_claim_open(
                code, Doubt(code="outputs_not_judged", values={"names": _list_names(left)}), outputs=tuple(left)
            )
        return
    if report.spec.without_outputs:
        yield leave_claim_open(code, Doubt(code="outputs_left_out"))
        return
    told = [row for row in report.outputs if row.comparison is not None and row.comparison.base.elements]
    steps = report.explanation.steps if report.explanation is not None else {}
    below = {row.name: steps[row.name] for row in told if row.name in steps}
    if told and all(_tells_nothing(row, below) for row in told):
        values = {"names": _list_names([*below]), "step": max(below.values())} if below else {}
        doubt = "outputs_below_a_step" if below else "outputs_tell_nothing"
        yield leave_claim_open(code, Doubt(code=doubt, values=values))
    absent = [row for row in report.outputs if row.comparison is None and row.status is not Status.FAIL]
    frozen = [row.name for row in absent if as_reason(row.reason).code == "step_no_gradient"]
    others = [row.name for row in absent if as_reason(row.reason).code != "step_no_gradient"]
    others += [name for name in _list_undelivered_outputs(report) if name not in others]
    for doubt, missing in (("output_no_gradient", frozen), ("output_not_compared", others)):
        if missing:
            yield leave_claim_open(
                code, Doubt(code=doubt, values={"names": _list_names(missing)}), outputs=tuple(missing)
            )
    if kept_inside := _list_outputs_kept_inside(report):
        names = _list_names(kept_inside)
        yield leave_claim_open(
            code, Doubt(code="output_not_returned", values={"names": names}), outputs=tuple(kept_inside)
        )
    for row in report.outputs:
        numbers = row.comparison
        if numbers is not None and _kind_of_numbers(numbers.base.dtype) != _kind_of_numbers(numbers.target.dtype):
            yield leave_claim_open(code, Doubt(code="output_of_other_kind", values={
                "name": row.name, "base": numbers.base.dtype, "target": numbers.target.dtype,
            }))  # fmt: skip
        if row.status is not Status.INCONCLUSIVE or row.comparison is None:
            continue
        if not row.comparison.base.elements:
            yield leave_claim_open(code, Doubt(code="output_empty", values={"name": row.name}))
            continue
        fits = (row.comparison.base.rms or 0.0) * HIDDEN
        yield leave_claim_open(
            code, Doubt(code="output_hidden", values={"name": row.name, "reason": row.reason, "atol": fits})
        )
    if not report.outputs and not others and report.rows:
        shown_by_hand = {report.baseline.backend, report.target.backend} <= _OWN_PROGRAM
        yield hold_claim(code, kind="hooks") if shown_by_hand else leave_claim_open(code, Doubt(code="no_output_known"))
    elif not (absent or others):
        yield hold_claim(code, outputs=len([row for row in report.outputs if row.comparison is not None]))


def _list_undelivered_outputs(report: JudgedReport) -> list[str]:
    """Return the declared outputs that were not compared.

    A side declares them, by its file or by what a run of the whole of it returns; no row of a final output is about
    them."""
    if report.failure:
        return []
    finals = report.outputs
    of_base = {row.name for row in finals}
    of_target = {name for row in finals for name in (row.target_name or row.name, row.name)}
    missing = [name for name in report.baseline.outputs if name not in of_base]
    return missing + [name for name in report.target.outputs if name not in of_target and name not in missing]


def _list_outputs_kept_inside(report: JudgedReport) -> list[str]:
    """Return outputs that the baseline declares and the target holds as a tensor inside, but does not return."""
    declared, returned = set(report.baseline.outputs), set(report.target.outputs)
    return [
        row.name for row in report.outputs
        if returned and row.name in declared and row.comparison is not None
        and not returned & {row.name, row.target_name or row.name}
    ]  # fmt: skip


def _tells_nothing(row: Row, below: Collection[str]) -> bool:
    """Return whether both sides are 0, NaN or Inf throughout, or the baseline is by the target's own steps. below:
    outputs that agree within half a step."""
    numbers = row.comparison
    assert numbers is not None
    return _holds_nothing(numbers.target) and (row.name in below or _holds_nothing(numbers.base))


def _holds_nothing(numbers: TensorStats) -> bool:
    """Return whether it is 0, NaN or Inf throughout; a whole number or a flag that is 0 is an answer."""
    nothing = numbers.min == numbers.max == 0 or numbers.nan + numbers.inf == numbers.elements
    return "float" in numbers.dtype and nothing


def _kind_of_numbers(dtype: str) -> str:
    """Return what numbers of a type are: a flag, whole, real, complex; within one a mode or an engine chooses the
    width."""
    return next((kind for kind in ("float", "int", "complex") if kind in dtype), dtype)


def _claim_tensors_seen(report: JudgedReport) -> Iterator[Claim]:
    """Enough of the tensors before the outputs was compared."""
    code = "tensors_seen"
    if not report.rows:
        yield leave_claim_open(code, Doubt(code="nothing_seen"))
    elif not report.compared:
        yield leave_claim_open(code, Doubt(code="nothing_compared"))
    covered = report.coverage
    if covered.compared and covered.share < ENOUGH and not report.failure:  # else that is why
        values = {"share": covered.share, "compared": covered.compared, "hidden": covered.hidden}
        whole = bool(report.outputs) and all(row.comparison is not None for row in report.outputs)
        doubt = "few_compared" if covered.lost else "few_seen"
        values |= {"lost": covered.lost} if covered.lost else {}
        if whole:
            yield hold_claim(code, Doubt(code=f"{doubt}_inside", values=values), **values)
        else:
            yield leave_claim_open(code, Doubt(code=doubt, values=values))
    elif report.compared:
        yield hold_claim(code, compared=covered.compared, share=covered.share)


def _claim_all_read(report: JudgedReport) -> Iterator[Claim]:
    """Yield the claim that every sample, iteration and output of the user's was read."""
    code = "all_read"
    yield from _claim_doubts_of_sides(report, code)
    stopped = next((note for note in report.notes if as_reason(note).code in ("fail_fast", "fail_fast_sample")), None)
    if stopped is not None:
        yield leave_claim_open(code, Doubt(code="stopped_early"))
    sets, codes = report.samples, {as_reason(note).code for note in report.notes}
    asked = 0 if sets is None else sets.given if "one_recorded" in codes else sets.asked
    if sets is not None and sets.read < asked and stopped is None and not report.failure:
        yield leave_claim_open(code, Doubt(code="samples_unread", values={"count": asked, "read": sets.read}))
    fed = [one for one in report.inputs if math.prod(one.shape)]
    alone = sets is None or sets.given <= 1
    if fed and alone and all("float" in one.dtype and one.min == one.max == 0 for one in fed):
        yield leave_claim_open(
            code, Doubt(code="inputs_all_zero", values={"names": _list_names([one.name for one in fed])})
        )
    own_program = {report.baseline.backend, report.target.backend} <= _OWN_PROGRAM
    if not report.inputs and not own_program and any(row.op_type == "Input" for row in report.compared):
        yield leave_claim_open(code, Doubt(code="inputs_unknown"))
    for note in (*report.notes, *report.baseline.notes, *report.target.notes):
        reason = as_reason(note)
        if reason.code == "dump_skipped":
            unread = {name: _to_plain_argument(one) for name, one in reason.args.items()}
            yield leave_claim_open(code, Doubt(code="files_unread", values=unread))
    digest = hashlib.sha256("".join(one.sha256 for one in report.inputs).encode()).hexdigest()[:_DIGITS]
    values: dict[str, Number | str] = {"inputs": len(report.inputs), "sha256": digest if report.inputs else ""}
    if sets is not None and sets.given > 1:
        yield hold_claim(code, None, kind="samples", read=sets.read, given=sets.given, **values)
    else:
        yield hold_claim(code, None, **values)


def _claim_sides_unchanged(report: JudgedReport) -> Iterator[Claim]:
    """Both sides are what they were when what was stored of them was made."""
    code = "unchanged"
    yield from _claim_doubts_of_sides(report, code)
    stored = [side.stored for side in (report.baseline, report.target) if side.stored]
    digests = {"baseline": report.baseline.digest, "target": report.target.digest}
    values = {side: digest for side, digest in digests.items() if digest}
    if stored:
        yield hold_claim(code, None, kind="unknown" if "unknown" in stored else "same", **values)
    else:
        yield hold_claim(code, None, **values)


def _claim_unseen_inputs(report: JudgedReport) -> Iterator[Claim]:
    """Yield the claim that what calibrated on the input that it is judged on is as good on others."""
    code = "unseen_inputs"
    yield from _claim_doubts_of_sides(report, code)
    tried = next((one for one in map(as_reason, report.notes) if one.code == "calibrated_here"), None)
    if tried is None:
        yield hold_claim(code)
    else:
        yield hold_claim(
            code,
            None,
            kind="tried",
            **{name: _to_plain_argument(tried.args[name]) for name in ("count", "here", "there")},
        )


def _claim_criterion(report: JudgedReport) -> Iterator[Claim]:
    """Yield the claim that what decides was asked for, or derived from the target's arithmetic, and it could decide."""
    code = "criterion"
    unsure = not report.checks and all(row.status is Status.INCONCLUSIVE for row in report.compared)
    if report.compared and unsure:
        yield leave_claim_open(code, Doubt(code="nothing_decided", values={"compared": len(report.compared)}))
        return
    tolerance, explanation = report.spec.tolerance, report.explanation
    if report.asserted:
        yield hold_claim(code, kind="asserted")
    elif report.checks:
        yield hold_claim(code, kind="function")
    elif metric_decides(report):
        yield hold_claim(code, kind="metric", bound=report.spec.metric_drop)
    elif tolerance.given:
        yield hold_claim(code, kind="given", atol=tolerance.atol, rtol=tolerance.rtol)
    elif explanation is not None and explanation.allowed is not None:
        yield hold_claim(code, kind="derived", allowed=explanation.allowed)
    else:
        yield hold_claim(code, kind="usual", mode=report.target.mode)


def _claim_within_tolerance(report: JudgedReport) -> Iterator[Claim]:
    """Nothing that decides is out of tolerance."""
    code = "within"
    asserted = [claim for claim in report.asserted if claim.code == code]
    if asserted:
        yield from asserted
        return
    if report.checks:
        bad = tuple(name for name, share in report.checks.items() if share < 1)
        yield refute_claim(code, outputs=bad) if bad else hold_claim(code, judgements=len(report.checks))
        return
    if metric_decides(report):
        yield hold_claim(code, kind="metric")  # whether it holds is a claim of its own
        return
    failed = [row for row in report.rows if row.status is Status.FAIL]
    if _fails(report, failed):
        yield refute_claim(code, first=failed[0].name if failed else "", failed=len(failed))
    else:
        worst = max((row.relative_l2 or 0.0 for row in report.outputs), default=0.0)
        yield hold_claim(code, compared=len(report.compared), worst_output=worst)


def _fails(report: JudgedReport, failed: Sequence[Row]) -> bool:
    """Return whether failed rows fail the run: without a tolerance, not if their error was seen to be absorbed, and
    not if nobody was asked whether it is: then the outputs decide, which show what is left of it."""
    explanation, spec = report.explanation, report.spec
    state = explanation.state if explanation is not None else "unknown"
    unasked = explanation is None and spec.explain == "off" and bool(report.target.precision)
    if spec.tolerance.given or spec.validate or not report.outputs or (state == "unknown" and not unasked):
        return bool(failed)
    worthless = unasked or state == "healthy" or (explanation is not None and explanation.passes)
    return not worthless or any(_decides(row) for row in failed)


def _decides(row: Row) -> bool:
    """Return whether a failed row fails a run where no operator stands out.

    An output does, and so do NaN that stand elsewhere than the baseline's, and what no rounding explains: tensors whose
    shapes or types do not compare."""
    numbers = row.comparison
    if row.is_output or numbers is None:
        return row.is_output
    return bool(numbers.base.nan and numbers.apart) or not numbers.shapes_match or numbers.mismatched is None


def _claim_outputs_finite(report: JudgedReport) -> Iterator[Claim]:
    """No output holds NaN or Inf on both sides, which would agree and be worth nothing."""
    code = "outputs_finite"
    allowed, nan_allowed = report.spec.allow_non_finite, report.spec.tolerance.equal_nan
    if allowed or report.checks:
        yield hold_claim(code, kind="allowed" if allowed else "function")
        return
    for row in report.outputs:
        numbers = row.comparison
        if numbers is None:
            continue
        base, target = numbers.base, numbers.target
        both = (0 if nan_allowed else min(base.nan, target.nan)) + min(base.inf, target.inf)
        if both:
            by = _first_non_finite_row(report, row)
            doubt = "output_non_finite_fed" if by.op_type == "Input" else "output_non_finite"
            yield refute_claim(code, Doubt(code=doubt, values={
                "name": row.name, "count": both, "elements": base.elements, "by": by.name, "op_type": by.op_type,
            }))  # fmt: skip
            return
    if any(min(row.comparison.base.nan, row.comparison.target.nan) for row in report.outputs if row.comparison):
        yield hold_claim(code, kind="equal_nan")
        return
    yield hold_claim(code, outputs=len(report.outputs))


def _first_non_finite_row(report: JudgedReport, output: Row) -> Row:
    """Return the first tensor before an output that holds NaN or Inf on both sides, itself where none does.

    Followed along what each row reads, so that a mask's own infinities elsewhere are not taken for it. Where nobody
    knows what the output reads, an input that holds such values is told rather than that the output made them.
    """
    by_name = {row.name: row for row in report.rows}
    made_of = find_reached([output.name], lambda name: by_name[name].inputs if name in by_name else ())
    broken = {name: by_name[name] for name in (output.name, *made_of) if name in by_name and _is_broken(by_name[name])}
    if not output.inputs:
        broken |= {row.name: row for row in report.rows if row.op_type == "Input" and _is_broken(row)}
    return min(broken.values(), key=lambda row: row.index, default=output)


def _is_broken(row: Row) -> bool:
    numbers = row.comparison
    return numbers is not None and all(side.nan + side.inf > 0 for side in (numbers.base, numbers.target))


def _claim_repeatable(report: JudgedReport) -> Iterator[Claim]:
    """Yield the claim that a side gives the same once more, and draws no numbers that another run would not."""
    yield from _claim_doubts_of_sides(report, "repeatable")
    yield hold_claim("repeatable", Doubt(code="run_once")) if report.spec.run_once else hold_claim("repeatable")


def _claim_ended(report: JudgedReport) -> Iterator[Claim]:
    """Yield the claim that the run came to its end."""
    if report.failure:
        yield leave_claim_open(ENDED, Doubt(code="ended_early", values={"why": report.failure}))
    else:
        yield hold_claim(ENDED)


def _claim_doubts_of_sides(report: JudgedReport, code: str) -> Iterator[Claim]:
    for side in (report.target, report.baseline):
        yield from (_claim_of_doubt(code, doubt) for doubt in side.doubts if _OF_DOUBT.get(doubt.code) == code)


def _claim_of_doubt(code: str, doubt: Doubt) -> Claim:
    """Return what a session said of itself leaves a claim open, unless its wording says that it does not; see
    Wording."""
    known = find_wording(doubt.code)
    return leave_claim_open(code, doubt) if known is None or known.decides else hold_claim(code, doubt)


def _to_plain_argument(value: object) -> Number | str:
    """Return a reason's argument, where evidence takes it."""
    return value if isinstance(value, (int, float)) else str(value)


def _list_names(names: Sequence[str]) -> str:
    more = f", … (+{len(names) - _NAMES:,})" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


_METRIC = "metric"

_CLAIMS: Mapping[str, Callable[[JudgedReport], Iterator[Claim]]] = {
    _METRIC: _claim_metric_held,
    "ran_as_asked": _claim_ran_as_asked,
    "outputs_compared": _claim_outputs_compared,
    "outputs_finite": _claim_outputs_finite,
    "tensors_seen": _claim_tensors_seen,
    "all_read": _claim_all_read,
    "unchanged": _claim_sides_unchanged,
    "unseen_inputs": _claim_unseen_inputs,
    "criterion": _claim_criterion,
    "within": _claim_within_tolerance,
    "repeatable": _claim_repeatable,
    ENDED: _claim_ended,
}

NEEDED = tuple(code for code in _CLAIMS if code != _METRIC)
"""What every pass says, with a metric of the user's or without; where one of these has no claim, the verdict is
inconclusive."""
