"""The claims that a training log makes in which nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...claims.claim import Claim, Verdict, held, opened, refuted, verdict_of
from ...recording.rank_log import RankedStep
from ...recording.training_log import StepNumbers
from ...records import Doubt
from .rank_faults import RankFault
from .training_faults import Departure, steps_with_a_band

__all__ = ["claims_of_training", "verdict_of_training"]

_NEEDED = ("gradients_logged", "steps_enough", "within_band", "ranks_right")


def claims_of_training(
    steps: Sequence[StepNumbers], ranks: Sequence[RankedStep], found: Departure | None, off: RankFault | None
) -> tuple[Claim, ...]:
    """Return the claims that a training log holds, refutes or leaves open.

    steps: of the run, or of all its ranks together. ranks: () of a run of one process. found: the first step out of its
    band. off: what is wrong with the ranks."""
    return tuple(_claims(steps, ranks, found, off))


def verdict_of_training(claims: Sequence[Claim]) -> Verdict:
    """The answer of a log."""
    return verdict_of(claims, _NEEDED, asked=True)


def _claims(
    steps: Sequence[StepNumbers], ranks: Sequence[RankedStep], found: Departure | None, off: RankFault | None
) -> Iterator[Claim]:
    numbers = [one for step in steps for one in step.parameters.values()]
    alive = sum(one.norm > 0 or one.broken > 0 for one in numbers)
    if steps and not alive:
        yield opened("gradients_logged", Doubt(code="training_no_gradient", values={"steps": len(steps)}))
    elif steps:
        yield held("gradients_logged", gradients=alive)
    known = steps_with_a_band(steps)
    if known:
        yield held("steps_enough", steps=len(steps), with_a_band=known)
    else:
        yield opened("steps_enough", Doubt(code="training_few_steps", values={"steps": len(steps)}))
    if found is not None:
        yield refuted("within_band", step=found.step, parameter=found.parameter, what=found.what)
    else:
        yield held("within_band", steps=known)
    here = {rank for step in ranks for rank in step.ranks}
    whole = max((step.of for step in ranks), default=0)
    if off is not None:
        yield refuted("ranks_right", step=off.step, parameter=off.parameter, what=off.what)
    elif len(here) < whole:
        yield opened("ranks_right", Doubt(code="training_ranks_missing", values={"here": len(here), "ranks": whole}))
    else:
        yield held("ranks_right", ranks=whole)
