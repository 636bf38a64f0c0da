"""The names that a mistyped one may have meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["find_nearest", "list_files_beside"]

_SHORTLIST = 400
"""Names that difflib compares, see ``find_nearest``."""


_ALIKE = 0.7
"""Share of the letters of two files' names that are the same, in order, from which on one may be meant by the other."""


def list_files_beside(path: str | Path) -> list[str]:
    """Return the files that lie where one was looked for, with its ending and nearly its name, as they would be typed.

    Another file of the same ending is no guess: seven of ten letters have to be there in their order."""
    import difflib

    asked = Path(path)
    try:
        there = sorted(one.name for one in asked.parent.iterdir())
    except OSError:
        return []
    alike = difflib.SequenceMatcher(b=asked.stem.casefold())
    found = []
    for one in map(Path, there[:_SHORTLIST]):
        alike.set_seq1(one.stem.casefold())
        if one.suffix == asked.suffix and alike.ratio() >= _ALIKE:
            found.append(str(asked.with_name(one.name)))
    return found


def find_nearest(name: str, names: Sequence[str], count: int = 3) -> list[str]:
    """Up to ``count`` of ``names`` that resemble ``name``, the most similar first.

    Similarity is difflib's ratio. It costs the product of the lengths, so that of many names only the 400 that share
    the most letter pairs (Dice's coefficient) are put to it: 100,000 names take a fraction of a second.
    """
    import difflib  # only a mistyped name needs it

    folded = name.casefold()
    pool: Sequence[str] = list(dict.fromkeys(names))
    if len(pool) > _SHORTLIST:
        wanted = _letter_pairs(folded)
        scored = (
            (_dice_similarity(wanted, _letter_pairs(other.casefold())), -place, other)
            for place, other in enumerate(pool)
        )
        pool = [other for score, _, other in sorted(scored, reverse=True)[:_SHORTLIST] if score > 0]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(folded)
    ratios = []
    for place, other in enumerate(pool):
        matcher.set_seq1(other.casefold())
        if matcher.quick_ratio() >= 0.5 and (ratio := matcher.ratio()) >= 0.5:
            ratios.append((-ratio, place, other))
    return [other for _, _, other in sorted(ratios)[:count]]


def _letter_pairs(text: str) -> frozenset[str]:
    return frozenset(text[i : i + 2] for i in range(len(text) - 1)) or frozenset({text})


def _dice_similarity(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / (len(one) + len(other))
