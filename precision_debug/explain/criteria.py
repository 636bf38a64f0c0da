"""The numbers that decide who is a culprit: all of them, each with what it means for whoever is accused.

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
those who are named together are repaired; of a measured error, what a replay must come to at least to say anything."""

DROP = 3.0
"""A third: what is left at most of an error that by its size accuses nobody, without the one who is blamed for it; and
of the error at an output, about what whoever is out of bounds before it makes there."""

SEVERAL = 4.0
"""Several times: an error that grows by more behind an operator is enlarged by it; one that grows by a fourth as much
as the most is enlarged as well; and a channel that makes several times what any other tensor does is to blame."""

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
"""Smaller: times by which an error shrinks at least without its author's rounding; a little: without the errors of
those who do far more than round, all of them left out, or they are not the ones, and how much less is left without one
of them than without another that is told before it no more."""

FEW, FIFTH = 3, 5
"""A few: at most so many operators, or one in so many of those that were tried; an error that none of these halve, when
they are repaired together, is that of many."""
