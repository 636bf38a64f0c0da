"""How few sets a search runs, and how small its answers are: populations of models whose error is known.

Each operator adds an error, a vector that is gone where it and all that read it are kept; what is left is the length of
their sum, so that errors cancel as those of a model do and more kept may be worse. The bounds are what the search took
when they were written: whoever makes it ask for more sees it here.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from precision_debug.records import TensorMeta
from precision_debug.search.offer import JudgedSet, Oracle
from precision_debug.search.ranking import Group
from precision_debug.search.strategy import find_predicted, minimise
from precision_debug.search.units import Units

LIMIT = 1e-2


def a_graph(count: int, kind: str, dice: random.Random) -> Units:
    """A chain, one with residual edges, or a tree in which one tensor is read by several."""
    metas = [TensorMeta(name="x", op_type="Input", dtype="float32")]
    for number in range(count):
        before = len(metas) - 1
        sources = {
            "chain": (before,), "residual": (before, max(0, before - 2)) if number % 3 == 0 else (before,),
            "tree": (dice.randrange(max(1, before - 6), before + 1) if before > 6 else before,),
        }[kind]  # fmt: skip
        inputs = tuple(dict.fromkeys(metas[one].name for one in sources))
        metas.append(
            TensorMeta(name=f"t{number}", op_type="Add", node=f"n{number}", dtype="float32", inputs=inputs)
        )  # fmt: skip
    return Units(metas, lambda meta: meta.node)


class Model:
    """faults: operators that are off by more than the limit. spread: what all of the others come to, of the limit.
    along: directions of their errors; of one, any two cancel or add up."""

    def __init__(self, seed: int, kind: str, count: int, faults: int, spread: float, along: int = 6) -> None:
        dice, random_numbers = random.Random(seed), np.random.default_rng(seed)
        self.count, self.units = count, a_graph(count, kind, dice)
        self.around = [self.units.around(f"t{number}") for number in range(count)]
        size = random_numbers.uniform(0.5, 1.5, count) * spread * LIMIT / math.sqrt(count)
        self.faults = sorted(dice.sample(range(count - 1), faults))
        for fault in self.faults:
            size[fault] = LIMIT * 10 ** dice.uniform(0.2, 1.5)
        vectors = random_numbers.normal(size=(count, along))
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) * size[:, None]
        self.broken: frozenset[int] = frozenset()

    def left(self, kept: frozenset[int]) -> list[int]:
        return [number for number, around in enumerate(self.around) if not around <= kept]

    def error(self, kept: frozenset[int]) -> float:
        if not all(self.around[number] <= kept for number in self.broken):
            return math.inf
        return float(np.linalg.norm(self.vectors[self.left(kept)].sum(0)))

    def ranked(self, kept: frozenset[int]) -> list[Group]:
        """What was measured: the share of each operator in the squared error that is left."""
        left = self.left(kept)
        squares = np.square(self.vectors[left]).sum(1)
        shares = sorted(zip(squares / squares.sum(), left, strict=True), reverse=True) if left else []
        return [
            Group(tensor=f"t{number}", units=self.around[number], makers=frozenset({number}),
                  share=float(share) if share > 1e-4 else 0.0, certain=number in self.broken)
            for share, number in shares
        ]  # fmt: skip

    def barely_ranked(self, kept: frozenset[int]) -> list[Group]:
        """One operator's share was measured, and it is not one that matters."""
        first, *others = self.unranked(kept)
        return [replace(first, share=0.01), *others]

    def unranked(self, _kept: frozenset[int]) -> list[Group]:
        """Nothing was measured."""
        return [Group(tensor=f"t{number}", units=around) for number, around in enumerate(self.around)]

    def oracle(self, *, limit: float | None = LIMIT, runs: int = 1000, error: Any = None) -> Oracle:
        judge = error or self.error
        return Oracle(
            self.count, lambda kept: JudgedSet(judge(kept) <= LIMIT, judge(kept)), limit=limit, runs=runs
        )  # fmt: skip


def within(found: Sequence[int], bounds: Sequence[int]) -> bool:
    """Whether none of these is above what it was."""
    return all(one <= bound for one, bound in zip(found, bounds, strict=True))


def minimal(model: Model, kept: frozenset[int]) -> bool:
    return all(model.error(kept - {unit}) > LIMIT for unit in kept)


def population(*given: Any) -> list[Model]:
    return [Model(seed, *given) for seed in range(8)]


def searched(models: Sequence[Model], rank: Callable[[Model], Any], limit: float | None = LIMIT) -> tuple[int, int]:
    """How many sets were run of all models, and how many units their answers have; each answer is checked."""
    runs = units = 0
    for model in models:
        oracle = model.oracle(limit=limit)
        found = minimise(oracle, model.units, rank(model))
        assert found.state == "found"
        assert found.kept is not None
        assert model.error(found.kept) <= LIMIT
        assert found.minimal is True
        assert minimal(model, found.kept)
        asked = [*oracle.asked]
        assert asked[0] == frozenset(), "what fails with nothing kept is known first"
        runs, units = runs + len(oracle.asked), units + len(found.kept)
    return runs, units


@pytest.mark.parametrize(("given", "runs", "units"), [
    (("chain", 12, 1, 0.3), 32, 16), (("chain", 20, 2, 0.3), 58, 31), (("chain", 60, 4, 0.5), 142, 64),
    (("chain", 100, 8, 0.5), 208, 123), (("residual", 20, 2, 0.3), 63, 36), (("residual", 30, 3, 0.5), 108, 56),
    (("residual", 100, 8, 0.5), 313, 141), (("tree", 12, 1, 0.3), 38, 18), (("tree", 30, 3, 0.5), 87, 43),
    (("tree", 100, 8, 0.5), 253, 119), (("tree", 200, 5, 0.5), 131, 73),
])  # fmt: skip
def test_what_was_measured_leads_to_a_smallest_set(given: Any, runs: int, units: int) -> None:
    found = searched(population(*given), lambda model: model.ranked)
    assert within(found, (runs, units))


@pytest.mark.parametrize(("given", "runs", "units"), [
    (("chain", 12, 1, 0.3), 107, 16), (("chain", 40, 2, 0.3), 225, 31), (("residual", 30, 3, 0.3), 326, 56),
    (("tree", 40, 2, 0.3), 241, 31), (("chain", 150, 2, 0.3), 300, 32), (("tree", 150, 2, 0.3), 321, 32),
    (("chain", 240, 5, 0.3), 757, 80), (("residual", 240, 4, 0.3), 740, 76),
])  # fmt: skip
def test_where_nothing_was_measured_it_takes_more(given: Any, runs: int, units: int) -> None:
    found = searched(population(*given), lambda model: model.unranked)
    assert within(found, (runs, units))


@pytest.mark.parametrize(("given", "runs", "units"), [
    (("chain", 30, 3, 0.3), 96, 48), (("residual", 30, 2, 0.3), 76, 38), (("tree", 60, 3, 0.3), 115, 50),
])  # fmt: skip
def test_what_passes_by_no_number_is_searched_too(given: Any, runs: int, units: int) -> None:
    """A metric of the user's: whether a set passes is all that is known."""
    found = searched(population(*given), lambda model: model.ranked, None)
    assert within(found, (runs, units))


def crowded(models: Sequence[Model], rank: Callable[[Model], Any]) -> tuple[int, int, list[str]]:
    runs = units = 0
    states = []
    for model in models:
        oracle = model.oracle()
        found = minimise(oracle, model.units, rank(model))
        assert found.kept is not None
        assert model.error(found.kept) <= LIMIT
        assert found.minimal is (found.state == "found")
        for unit in found.kept if found.minimal else ():  # it was tried without, with no less kept than in the end
            rest = found.kept - {unit}
            tried = [judged for some, judged in oracle.asked.items() if rest <= some and unit not in some]
            assert tried
            assert not all(judged.passes for judged in tried)
        runs, units = runs + len(oracle.asked), units + len(found.kept)
        states.append(found.state)
    return runs, units, states


@pytest.mark.parametrize(("given", "runs", "units", "diffuse"), [
    (("chain", 60, 2, 3.0), 704, 190, 1), (("residual", 60, 2, 3.0), 819, 195, 1),
    (("tree", 60, 2, 3.0), 779, 184, 1), (("chain", 90, 0, 4.0), 68, 668, 8), (("tree", 40, 1, 2.0), 469, 98, 0),
    (("residual", 30, 1, 1.5), 259, 56, 0),
])  # fmt: skip
def test_where_the_rest_is_too_much_as_well(given: Any, runs: int, units: int, diffuse: int) -> None:
    """Everything together is beyond the limit, whoever stands out of it."""
    found = crowded(population(*given), lambda model: model.ranked)
    assert within(found[:2], (runs, units))
    assert found[2].count("diffuse") == diffuse


@pytest.mark.parametrize(("given", "runs", "units", "diffuse"), [
    (("chain", 40, 2, 0.3), 97, 176, 7), (("residual", 30, 2, 0.3), 79, 205, 8), (("tree", 150, 2, 0.3), 119, 847, 8),
])  # fmt: skip
def test_where_one_share_was_measured_that_does_not_matter(given: Any, runs: int, units: int, diffuse: int) -> None:
    """The order of all others says nothing, and nobody is known to have most of the error."""
    found = crowded(population(*given), lambda model: model.barely_ranked)
    assert within(found[:2], (runs, units))
    assert found[2].count("diffuse") == diffuse


@pytest.mark.parametrize(("given", "runs", "units", "diffuse"), [
    (("chain", 30, 3, 0.5, 1), 87, 48, 0), (("residual", 24, 4, 1.0, 1), 167, 67, 0),
    (("tree", 40, 5, 0.5, 1), 126, 78, 0), (("tree", 60, 8, 1.0, 2), 229, 145, 2),
    (("residual", 90, 6, 1.0, 1), 183, 88, 0),
])  # fmt: skip
def test_where_errors_cancel(given: Any, runs: int, units: int, diffuse: int) -> None:
    """Along one direction what is kept of two may make matters worse, and dropping both may be free."""
    found = crowded(population(*given), lambda model: model.ranked)
    assert within(found[:2], (runs, units))
    assert found[2].count("diffuse") == diffuse


@pytest.mark.parametrize(("kind", "runs"), [("chain", 109), ("residual", 121), ("tree", 112)])
def test_what_is_not_finite_is_kept_first(kind: str, runs: int) -> None:
    total = 0
    for seed in range(8):
        model = Model(seed, kind, 40, 2, 0.3)
        model.broken = frozenset(random.Random(seed).sample(range(39), 2))
        oracle = model.oracle()
        found = minimise(oracle, model.units, model.ranked)
        assert found.state == "found"
        assert found.kept is not None
        assert all(model.around[number] <= found.kept for number in model.broken)
        assert minimal(model, found.kept)
        first = next(kept for kept in oracle.asked if kept)
        assert first == frozenset().union(*(model.around[number] for number in model.broken))
        total += len(oracle.asked)
    assert within([total], [runs])


def test_a_start_that_holds_is_the_answer_and_one_that_does_not_is_gone_on_from() -> None:
    for model in population("residual", 40, 3, 0.3):
        needed = minimise(model.oracle(), model.units, model.ranked).kept
        assert needed is not None
        oracle = model.oracle()
        found = minimise(oracle, model.units, model.ranked, start=needed)
        assert (found.state, found.kept, found.minimal, len(oracle.asked)) == ("found", needed, True, 2)
        part = frozenset(sorted(needed)[1:])
        found = minimise(model.oracle(), model.units, model.ranked, start=part)
        assert found.state == "found"
        assert minimal(model, found.kept or frozenset())


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 8, 13, 21])
def test_of_a_search_that_ends_early_the_smallest_that_held_is_told(runs: int) -> None:
    for model in population("tree", 40, 3, 0.5):
        whole = model.oracle()
        minimise(whole, model.units, model.ranked)
        oracle = model.oracle(runs=runs)
        found = minimise(oracle, model.units, model.ranked)
        assert len(oracle.asked) <= runs
        if len(whole.asked) <= runs:
            assert found.state == "found"
            continue
        held = [kept for kept, judged in oracle.asked.items() if judged.passes]
        assert (found.state, found.minimal) == ("unfinished", False)
        assert (found.kept is None) is not held
        assert found.kept is None or len(found.kept) == min(map(len, held))


def test_a_rough_oracle_saves_runs_of_the_exact_one() -> None:
    """It is off by up to a part in ten; what it chose holds, or is searched anew."""
    exact = alone = 0
    for model in population("residual", 40, 3, 0.5):
        noise = random.Random(1)
        off: dict[frozenset[int], float] = {}

        def rough(kept: frozenset[int], model: Model = model, off: Any = off, noise: Any = noise) -> float:
            return model.error(kept) * off.setdefault(kept, noise.uniform(0.9, 1.1))

        oracle, chooses, plain = model.oracle(), model.oracle(error=rough), model.oracle()
        found = minimise(oracle, model.units, model.ranked, rough=chooses)
        assert found.state == "found"
        assert minimal(model, found.kept or frozenset())
        minimise(plain, model.units, model.ranked)
        exact, alone = exact + len(oracle.asked), alone + len(plain.asked)
    assert within([exact], [71])
    assert exact < 0.7 * alone


def test_what_a_ranking_predicts_holds_without_a_search() -> None:
    """In at most four sets, each larger; where that is not enough, there is none."""
    sets = units = 0
    for kind in ("chain", "residual", "tree"):
        for model in population(kind, 60, 4, 0.5):
            oracle = model.oracle()
            kept, groups = find_predicted(oracle, model.ranked)
            assert [group.tensor for group in groups] == [group.tensor for group in model.ranked(frozenset())]
            asked = [one for one in oracle.asked if one]
            assert 0 < len(asked) <= 4
            assert all(less < more for less, more in itertools.pairwise(asked))
            assert [oracle.asked[one].passes for one in asked] == [False] * (len(asked) - 1) + [kept is not None]
            assert kept is None or kept == asked[-1]
            sets, units = sets + len(asked), units + len(kept or ())
    assert within([sets, units], [24, 180])
    passes = Model(0, "chain", 20, 0, 0.3)
    assert find_predicted(passes.oracle(), passes.ranked)[0] is None, "there is nothing to predict"
    nothing = Model(0, "chain", 20, 2, 0.3)
    assert find_predicted(nothing.oracle(), nothing.unranked)[0] is None
    assert find_predicted(nothing.oracle(error=lambda _kept: 1.0), nothing.ranked)[0] is None
    assert find_predicted(nothing.oracle(runs=0), nothing.ranked)[0] is None
