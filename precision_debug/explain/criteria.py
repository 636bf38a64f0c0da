"""The numbers that decide who is a culprit and what is offered: all of them, each with what it means for the user.

None of them judges the run: what an error may be is in ``bounds``. They were set on tests/planted, whose tables
(tests/benchmarks/RESULTS.md) say how often they are right on cases that came later.
"""

from __future__ import annotations

__all__ = [
    "DROP", "FAR", "FEW", "FIFTH", "HALF", "LEAST_PART", "LITTLE", "MATTERS", "PART", "SEVERAL", "SMALLER", "STRONG",
]  # fmt: skip

FAR = 8.0
"""Far: times rounding once, from which an operator's own error is more than rounding; and times any other's share of
the error, from which one operator stands alone. The operators of healthy models round 1 to 4 times at once."""

HALF = 0.5
"""Half: of the squared error, what one operator makes whom nothing outweighs; of the error, what is left at most when
those who are named together are repaired, and by what is offered; of the operators that ran in the low precision and
were not kept, what must still run in it, and of all that did, what a fix leaves unless it gives up most of them; of a
measured error, what a replay must come to at least to say anything; of a growth, what one subtraction must make."""

DROP = 3.0
"""A third: what is left at most of an error that by its size accuses nobody, without the one who is blamed for it; and
of the error at an output, about what whoever is out of bounds before it makes there."""

SEVERAL = 4.0
"""Several times: an error that grows by more behind an operator is enlarged by it; one that grows by a fourth as much
as the most is enlarged as well, and what is given to one in which it grows so is kept too; numbers several times as
large as what is left when one is subtracted from the other are nearly equal, and those that differ by less than several
spacings of a type may become one; a channel that makes several times what any other tensor does is to blame; and a set
that keeps several times fewer operators than what is offered is told beside it."""

STRONG = SEVERAL * FAR
"""Far, several times over: an operator that enlarges an error so much makes its author one by itself."""

PART = 0.15
"""A part: of the squared error, what each of several authors makes at least who are named together."""

LEAST_PART = PART / DROP
"""A third of a part: a share of the squared error below it belongs to nobody of a group."""

MATTERS = 0.02
"""What matters: of an error that is large where it arises, a smaller share of the squared error is absorbed on its
way."""

SMALLER, LITTLE = 1.5, 1.25
"""Smaller: times by which an error shrinks at least without its author's rounding. A little: without the errors of
those who do far more than round, all of them left out, or they are not the ones; how much less is left without one of
them than without another that is told before it no more; what two runs of the same may differ by; what keeping those
who are named takes off where it did nothing; what a part of a set may leave more than the whole to be as good."""

FEW, FIFTH = 3, 5
"""A few: at most so many operators, or one in so many of those that were tried; an error that none of these halve, when
they are repaired together, is that of many; kept, they are named where the error goes with them; and a kept set that is
twice as many is a large one."""
