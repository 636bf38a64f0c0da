"""How results that are something else are made of the baseline's: each relation that holds is told, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from precision_debug.explain.relations import find_relation
from precision_debug.reasons import say

LEFT = 1e-5  # of the error's norm that rounding makes
RANDOM = np.random.default_rng(5)
EXACT, GIVEN = RANDOM.normal(size=(3, 6, 8)), RANDOM.normal(size=(3, 6, 8))
EDGE = RANDOM.uniform(0.5, 2, size=(1, 6, 8))
MOVED = [2, 0, 1, 3, 4, 5]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda x: 0.75 * x, say("times_the_baseline", factor=0.75)),
        (lambda x: x + 0.5, say("more_than_the_baseline", more=0.5)),
        (lambda x: np.clip(x, -0.25, 0.5), say("cut_at", low=-0.25, high=0.5)),
        (lambda x: np.maximum(x, 0.125), say("raised_to", low=0.125)),
        (lambda x: x[:, MOVED], say("in_order_along", axis=1, order="2, 0, 1, 3, 4, 5")),
        (lambda x: x.transpose(0, 2, 1).reshape(x.shape), say("at_other_places")),
        (lambda _: GIVEN, say("what_it_reads", name="x")),
        (lambda x: x - 2 * GIVEN, say("and_times_an_input", factor=-2.0, name="x")),
        (lambda x: x + EDGE, say("more_along_an_axis", axis=0)),
        (lambda x: x * EDGE,
         say("times_along_an_axis", axis=0, least=float(EDGE.min()), most=float(EDGE.max()))),
    ],
)  # fmt: skip
def test_a_relation_is_found_beside_rounding(make: Callable[[Any], Any], word: object) -> None:
    wrong = make(EXACT)
    moved = word in (say("at_other_places"), say("in_order_along", axis=1, order="2, 0, 1, 3, 4, 5"))
    rounded = wrong if moved else wrong * (1 + 1e-8 * RANDOM.normal(size=wrong.shape))
    found = find_relation(EXACT, rounded, {"x": GIVEN}, LEFT)
    assert _numbers_of(found["relation"]) == pytest.approx(_numbers_of(word), abs=1e-5)
    assert _words_of(found["relation"]) == _words_of(word)
    assert found["left"] <= LEFT


def _words_of(text: object) -> list[str]:
    return [one for one in str(text).replace(",", " ").split() if not _is_number(one)]


def _numbers_of(text: object) -> list[float]:
    return [float(one) for one in str(text).replace(",", " ").split() if _is_number(one)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_what_the_baseline_cuts_and_the_target_does_not() -> None:
    cut = np.clip(EXACT, -0.5, 0.5)
    assert find_relation(cut, EXACT, {}, LEFT)["relation"] == say("not_cut_at", low=-0.5, high=0.5)
    assert find_relation(np.maximum(EXACT, 0), EXACT, {}, LEFT)["relation"] == say("not_raised_to", low=0.0)


def test_another_part_of_what_is_read() -> None:
    long = RANDOM.normal(size=(3, 20, 8))
    for ours, theirs, base, target in (
        (np.s_[:, -1:], np.s_[:, :1], "[:, 19, :]", "[:, 0, :]"),
        (np.s_[:, :6], np.s_[:, 2:8], "[:, 0:6, :]", "[:, 2:8, :]"),
        (np.s_[:, ::4], np.s_[:, 1::4], "[:, 0:17:4, :]", "[:, 1:18:4, :]"),
    ):
        found = find_relation(long[ours], long[theirs], {"x": long}, LEFT)
        assert found["relation"] == say("another_part_of", name="x", base=base, target=target)


def test_nothing_is_told_of_other_numbers_or_of_none() -> None:
    broken = EXACT.copy()
    broken[0, 0, 0] = np.nan
    for wrong in (GIVEN, EXACT, broken, np.tanh(EXACT)):
        assert not find_relation(EXACT, wrong, {}, LEFT)
    assert not find_relation(np.array([1.0]), np.array([2.0]), {}, LEFT)
