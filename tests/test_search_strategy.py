"""The search for the smallest kept set by itself: synthetic oracles, none of them monotone, no model."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from precision_debug import numbers
from precision_debug.records import Explanation, Introduced, Row, Status, TensorMeta, Tolerance
from precision_debug.search import Found, Group, Judged, Oracle, Units, minimise, rank_groups

LIMIT = 1e-2
Error = Callable[[frozenset[int]], float]


def chain(count: int) -> Units:
    """A chain of operators, each reading the one before."""
    metas = [TensorMeta(name="x", op_type="Input", dtype="float32")]
    for number in range(count):
        metas.append(
            TensorMeta(
                name=f"t{number}", op_type="Add", node=f"n{number}", dtype="float32", inputs=(metas[-1].name,)
            )
        )  # fmt: skip
    return Units(metas, lambda meta: meta.node)


def searched(units: Units, error: Error, groups: Sequence[Group], runs: int = 1000) -> tuple[Found, Oracle]:
    oracle = Oracle(
        len(units), lambda kept: Judged(error(kept) <= LIMIT, error(kept)), runs=runs, limit=LIMIT
    )  # fmt: skip
    return minimise(oracle, units, lambda _kept: groups), oracle


def groups_of(units: Units, tensors: Sequence[int], *, certain: bool = False, share: float = 0.5) -> list[Group]:
    return [
        Group(tensor=f"t{t}", units=units.around(f"t{t}"), share=share / (1 + place), certain=certain)
        for place, t in enumerate(tensors)
    ]


@pytest.mark.parametrize("places", [(3,), (3, 20), (5, 18, 30), (2, 9, 16, 23, 31)])
def test_what_is_born_non_finite_is_kept_with_its_readers_in_few_runs(places: tuple[int, ...]) -> None:
    units = chain(40)
    needed = frozenset(unit for place in places for unit in (place, place + 1))

    def error(kept: frozenset[int]) -> float:
        return 1e-3 if needed <= kept else math.inf

    found, oracle = searched(units, error, groups_of(units, places, certain=True))
    assert (found.state, found.kept, found.minimal) == ("found", needed, True)
    assert oracle.evaluations <= len(needed) + 5


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_cancelling_pairs_need_both_ends(count: int) -> None:
    units = chain(60)
    pairs = [(11 * k + 4, 11 * k + 5) for k in range(count)]

    def error(kept: frozenset[int]) -> float:
        whole = sum(first in kept and second in kept for first, second in pairs)
        return 1e-3 if whole == count else 0.704

    found, oracle = searched(units, error, groups_of(units, [first for first, _ in pairs]))
    assert found.kept == frozenset(itertools.chain(*pairs))
    assert oracle.evaluations <= 2 * count + 5


def test_two_that_only_go_together_are_dropped_together() -> None:
    """Dropping 10 or 11 alone raises the error, dropping both does not; only 4 and 5 are needed."""
    units = chain(20)

    def error(kept: frozenset[int]) -> float:
        if not {4, 5} <= kept:
            return 0.7
        return 0.05 if len({10, 11} & kept) == 1 else 1.5e-3

    kept = groups_of(units, [10, 4])  # the wrong one is ranked first
    found, _ = searched(units, error, kept)
    assert found.kept == {4, 5}


def test_more_kept_may_be_worse() -> None:
    units = chain(24)

    def error(kept: frozenset[int]) -> float:
        if kept == frozenset(range(24)):
            return 0.0
        if not {7, 8} <= kept:
            return 0.5
        return 0.2 if 15 in kept and 16 not in kept else 1e-3

    found, _ = searched(units, error, groups_of(units, [15, 7]))
    assert found.kept == {7, 8}


def test_whatever_the_ranking_says_the_answer_holds_and_nothing_can_be_dropped() -> None:
    dice = random.Random(0)
    for _ in range(40):
        units = chain(30)
        needed = frozenset(dice.sample(range(30), dice.randint(1, 5)))
        order = dice.sample(range(30), 30)

        def error(kept: frozenset[int], needed: frozenset[int] = needed) -> float:
            return 0.5 * len(needed - kept) / len(needed)

        found, oracle = searched(units, error, groups_of(units, order, share=0.0))
        assert found.state == "found"
        assert found.kept == needed
        assert oracle.asked[found.kept].passes


def test_ends_are_checked_first() -> None:
    units = chain(9)
    found, oracle = searched(units, lambda _: 1e-4, [])
    assert (found.state, found.kept, found.minimal, oracle.evaluations) == ("not needed", frozenset(), True, 1)
    found, oracle = searched(units, lambda _: 0.5, [])
    assert (found.state, oracle.evaluations) == ("not possible", 2)
    found, oracle = searched(units, lambda _: 0.5, groups_of(units, [3, 5, 1]))
    assert (found.state, found.kept, oracle.evaluations) == ("not possible", None, 3), "one prediction, then everything"


def test_a_budget_ends_with_the_smallest_set_that_was_seen_to_hold() -> None:
    units = chain(40)
    found, oracle = searched(
        units, lambda kept: 1e-3 if {3, 30} <= kept else 0.5, groups_of(units, range(40), share=0.0), runs=6
    )
    assert (found.state, oracle.evaluations) == ("unfinished", 6)
    assert found.kept is not None
    assert {3, 30} <= found.kept


def test_what_is_idle_goes_by_twos_and_fours() -> None:
    """An engine that fuses keeps a whole layer for one of its operators: the others change nothing."""
    units = chain(30)
    group = Group(tensor="t4", units=frozenset(range(3, 12)), makers=frozenset(range(3, 12)), share=1.0)
    found, oracle = searched(units, lambda kept: 1e-3 if {3, 11} <= kept else 0.5, [group])
    assert found.kept == {3, 11}
    assert oracle.evaluations <= 2 + 5


def test_of_readers_that_are_not_needed_all_go_at_once() -> None:
    units = chain(30)
    groups = [Group(tensor=f"t{t}", units=frozenset(range(t, t + 4)), share=0.3) for t in (2, 12, 22)]
    found, oracle = searched(units, lambda kept: 1e-3 if {2, 12, 22} <= kept else 0.5, groups)
    assert found.kept == {2, 12, 22}
    assert oracle.evaluations <= 3 + 5


def test_a_set_that_switches_the_precision_off_is_searched_for_a_part() -> None:
    """Its error is small and it is not an answer: with unit 9 kept nothing else stays in the low precision."""
    units = chain(20)

    def judged(kept: frozenset[int]) -> Judged:
        error = 1e-3 if 8 in kept or 9 in kept else 0.5
        return Judged(error <= LIMIT and (9 not in kept or len(kept) == 20), error)

    oracle = Oracle(20, judged, limit=LIMIT)
    found = minimise(oracle, units, lambda _kept: groups_of(units, [8]))
    assert (found.state, found.kept) == ("found", {8})
    assert oracle.evaluations <= 1 + 5


def test_what_begins_with_a_mover_and_computes_later_on_is_a_unit_of_its_own() -> None:
    """A module that first reshapes what another gave is not kept with that one."""
    metas = [
        TensorMeta(name="a", op_type="MatMul", node="first", dtype="float32", inputs=("x",)),
        TensorMeta(name="b", op_type="Reshape", node="second", dtype="float32", inputs=("a",)),
        TensorMeta(name="c", op_type="MatMul", node="second", dtype="float32", inputs=("b",)),
    ]
    units = Units(metas, lambda meta: meta.node)
    assert [unit.keys for unit in units.units] == [("first",), ("second",)]
    assert units.around("a") == {0, 1}


def test_what_only_moves_numbers_goes_with_what_made_them() -> None:
    metas = [
        TensorMeta(name="a", op_type="MatMul", node="a", dtype="float32", inputs=("x",)),
        TensorMeta(name="b", op_type="Transpose", node="b", dtype="float32", inputs=("a",)),
        TensorMeta(name="c", op_type="Softmax", node="c", dtype="float32", inputs=("b",)),
        TensorMeta(name="i", op_type="ArgMax", node="i", dtype="int64", inputs=("c",)),
        TensorMeta(name="d", op_type="Add", node="d", dtype="float32", inputs=("a", "c")),
    ]
    units = Units(metas, lambda meta: meta.node)
    assert [unit.keys for unit in units.units] == [("a", "b"), ("c",), ("d",)]
    assert units.around("a") == {0, 1, 2}
    assert units.around("c") == {1, 2}
    assert units.keys({0}) == ("a", "b")
    assert units.islands({0, 2}) == {1}
    assert units.casts({0, 2}) > units.casts({0, 1, 2})


@pytest.mark.parametrize(("count", "most"), [(1, 30), (2, 60)])
def test_among_thousands_without_a_ranking_blocks_are_halved(count: int, most: int) -> None:
    """Chunk by chunk it took 48 and 75 sets for one pair and for two."""
    units = chain(4000)
    pairs = [(1000 + 2100 * k, 1001 + 2100 * k) for k in range(count)]

    def error(kept: frozenset[int]) -> float:
        return 1e-3 if all(first in kept and second in kept for first, second in pairs) else 0.704

    found, oracle = searched(units, error, groups_of(units, range(3999), share=0.0), runs=5000)
    assert found.kept == frozenset(itertools.chain(*pairs))
    assert found.minimal
    assert oracle.evaluations <= most


def test_what_takes_off_most_for_each_unit_comes_first() -> None:
    """Nobody has most of the error: of two that take off the same, the one that takes fewer units."""
    units = chain(60)
    wide = Group(tensor="t10", units=frozenset(range(10, 22)), share=0.3)
    narrow = [Group(tensor=f"t{n}", units=frozenset({n}), share=0.28) for n in (40, 50)]
    rest = Group(tensor="t0", units=frozenset({0}), share=0.02)

    def error(kept: frozenset[int]) -> float:
        left = 1.0 - sum(group.share for group in (wide, *narrow, rest) if group.units <= kept)
        return 0.0145 * math.sqrt(left)

    found, oracle = searched(units, error, [wide, *narrow, rest])
    assert found.kept == {40, 50}
    assert oracle.evaluations <= 8


def test_many_small_errors_are_called_diffuse_after_few_sets() -> None:
    """44 of 241 units took 3 sets and the next 57 sets made 24 of them, by what happened to cancel on one input."""
    units = chain(240)
    dice = random.Random(3)
    groups = [Group(tensor=f"t{n}", units=units.around(f"t{n}"), share=1 / 239) for n in range(239)]

    def error(kept: frozenset[int]) -> float:
        held = sum(n in kept and n + 1 in kept for n in range(239)) / 239
        return 2e-2 * math.sqrt(1 - held) * (1 + 0.02 * dice.random())

    found, oracle = searched(units, error, groups)
    assert found.state == "diffuse"
    assert oracle.evaluations <= 16


def test_an_output_that_no_unit_makes_belongs_to_what_it_was_made_from() -> None:
    """A Softmax that an Identity names as the output: all of the error was there, and nobody was asked to keep it."""
    metas = [
        TensorMeta(name="a", op_type="MatMul", node="a", dtype="float32", inputs=("x",)),
        TensorMeta(name="s", op_type="Softmax", node="s", dtype="float32", inputs=("a",)),
        TensorMeta(name="y", op_type="Scale", node="y", dtype="float32", inputs=("s",), is_output=True),
    ]
    units = Units(metas, lambda meta: "" if meta.op_type == "Scale" else meta.node)
    assert units.around("y") == {1}
    assert units.around("s") == {1}


def test_what_stays_out_of_range_is_kept_up_to_where_it_is_divided() -> None:
    """An encoder's norm behind an overflow: a chain of ten; one group after the other it took 24 sets, now 13."""
    units = chain(20)
    wide = range(5, 14)  # t5 to t13 are beyond 65504, and t14 divides them
    rows = []
    for number in range(20):
        base = np.full(4, 1e5 if number in wide else 1.0, np.float32)
        with np.errstate(over="ignore"):
            got = base.astype(np.float16).astype(np.float32) * np.float32(np.nan if number > 13 else 1)
        born = Introduced(name=f"t{number}", method="isolated", elements=4, born_inf=4) if number == 5 else None
        rows.append(
            Row(index=number, op_type="Add", name=f"t{number}", status=Status.FAIL, introduced=born,
                comparison=numbers.compare(base, got, Tolerance()), is_output=number == 19)
        )  # fmt: skip
    groups = rank_groups(units, rows, Explanation(state="culprits", budget={"t5": 1.0}))
    assert groups[0].certain
    assert groups[0].units == frozenset(range(5, 15))
    assert groups[0].makers == frozenset(wide)

    def error(kept: frozenset[int]) -> float:
        return 1e-3 if set(range(5, 15)) <= kept else math.inf

    found, oracle = searched(units, error, groups)
    assert found.kept == frozenset(range(5, 15))
    assert oracle.evaluations <= 10 + 5


def test_the_best_trade_gives_most_for_what_it_keeps() -> None:
    from precision_debug.products.search.trade import best_trade

    curve = {0: 0.066, 7: 0.034, 17: 0.0075, 19: 0.00747, 58: 0.00089, 64: 1e-5}
    oracle = Oracle(64, lambda kept: Judged(False, curve[len(kept)]), limit=1e-4)
    for count in curve:
        oracle.judge(range(count))
    assert len(best_trade(oracle, lambda _: True, 0.00147)) == 17
    assert len(best_trade(oracle, lambda kept: len(kept) != 17, 0.00147)) == 19
    assert best_trade(oracle, lambda _: False) == frozenset()


def by_two(
    units: Units, rough: Error, anew: Error, groups: Sequence[Group], runs: int = 1000
) -> tuple[Found, Oracle, Oracle]:
    """Chosen by one error, judged by another."""

    def oracle(error: Error) -> Oracle:
        return Oracle(len(units), lambda kept: Judged(error(kept) <= LIMIT, error(kept)), runs=runs, limit=LIMIT)

    chooses, judges = oracle(rough), oracle(anew)
    return minimise(judges, units, lambda _kept: groups, rough=chooses), judges, chooses


def needing(*needed: int, otherwise: float = 0.7, noise: float = 0.0) -> Error:
    """The error where these are kept, a little less for each further one, and otherwise."""
    return lambda kept: 1e-3 * (1 + noise * len(kept)) if set(needed) <= kept else otherwise


def test_what_a_rough_oracle_chose_is_judged_once_where_both_agree() -> None:
    units = chain(20)
    found, judges, chooses = by_two(units, needing(4, 5), needing(4, 5), groups_of(units, [9, 4]))
    assert (found.state, found.kept, found.minimal) == ("found", frozenset({4, 5}), True)
    assert set(judges.asked) == {frozenset(), frozenset({4, 5})}
    assert chooses.evaluations > judges.evaluations


def test_each_unit_of_a_rough_choice_is_dropped_anew_where_both_differ() -> None:
    """By the rough one 6 is needed as well."""
    units = chain(20)
    found, judges, _ = by_two(units, needing(4, 5, 6), needing(4, 5, noise=0.1), groups_of(units, [9, 5, 4]))
    assert (found.state, found.kept, found.minimal) == ("found", frozenset({4, 5}), True)
    assert judges.evaluations <= 6


@pytest.mark.parametrize("rough", [
    needing(15, 16), needing(*range(20)), needing(21), needing(4), lambda _kept: math.inf, lambda _kept: 1e-3,
])  # fmt: skip
def test_where_a_rough_oracle_misled_no_set_is_judged_by_it(rough: Error) -> None:
    units = chain(20)
    found, judges, _ = by_two(units, rough, needing(4, 5, noise=0.1), groups_of(units, [15, 9, 4]))
    assert (found.state, found.kept, found.minimal) == ("found", frozenset({4, 5}), True)
    assert judges.asked[frozenset({4, 5})].passes


def test_a_rough_choice_is_nothing_where_nothing_is_needed_or_helps() -> None:
    units = chain(6)
    found, _, chooses = by_two(units, needing(4), lambda _kept: 1e-3, groups_of(units, [4]))
    assert (found.state, found.kept, chooses.evaluations) == ("not needed", frozenset(), 0)
    found, judges, _ = by_two(units, needing(4), lambda _kept: 0.7, groups_of(units, [4]))
    assert (found.state, found.kept) == ("not possible", None)
    assert judges.all in judges.asked


@pytest.mark.parametrize("runs", range(1, 14))
def test_an_answer_was_judged_by_the_exact_oracle_however_few_runs(runs: int) -> None:
    units = chain(20)
    found, judges, _ = by_two(units, needing(4, 5, 6), needing(4, 5, noise=0.1), groups_of(units, [9, 5, 4]), runs)
    assert found.kept is None or judges.asked[found.kept].passes
    assert found.state in ("found", "unfinished")
    assert found.state == "unfinished" or found.kept is not None


def test_a_prediction_that_switches_the_low_precision_off_is_made_shorter() -> None:
    """Half of it is enough, and beyond 11 units nothing is left in the low precision."""
    units = chain(20)
    order = [3, 16, 9, 12, 6, 19, 1]

    def judged(kept: frozenset[int]) -> Judged:
        left = sum(1.0 / (1 + place) ** 2 for place, unit in enumerate(order) if unit not in kept)
        error = 0.02 * math.sqrt(left / 1.6)
        return Judged(error <= LIMIT and len(kept) <= 11, error)

    oracle = Oracle(20, judged, limit=LIMIT)
    shares = [0.3 / (1 + place) for place in range(len(order))]
    groups = [
        Group(tensor=f"t{t}", units=units.around(f"t{t}"), share=share, certain=False)
        for t, share in zip(order, shares, strict=True)
    ]
    found = minimise(oracle, units, lambda _kept: groups)
    assert found.state == "found"
    assert found.kept is not None
    assert oracle.asked[found.kept].passes
    assert len(found.kept) <= 4


def test_one_that_misleads_at_its_first_set_is_asked_for_no_more() -> None:
    """An engine computes something else with some quantisers removed: all that it says of sets is wrong."""
    units, groups = chain(40), groups_of(chain(40), [15, 9, 4])

    def oracle(error: Error, exact: Oracle | None = None) -> Oracle:
        return Oracle(40, lambda kept: Judged(error(kept) <= LIMIT, error(kept)), limit=LIMIT, exact=exact)

    judges = oracle(needing(4, 5))
    chooses = oracle(lambda kept: 1e-3 if len(kept) > 30 else 0.7 * (3 if kept else 1), judges)
    found = minimise(judges, units, lambda _kept: groups, rough=chooses)
    assert (found.state, found.kept) == ("found", frozenset({4, 5}))
    assert len([kept for kept in chooses.asked if 0 < len(kept) < 40]) == 0
    agreeing = oracle(needing(4, 5), judges)
    assert minimise(judges, units, lambda _kept: groups, rough=agreeing).kept == frozenset({4, 5})
    assert len([kept for kept in agreeing.asked if 0 < len(kept) < 40]) > 2


def test_one_that_misleads_at_the_first_set_that_holds_is_asked_for_no_more() -> None:
    """As seen of plcmos in ov_int8: of 2 kept both said 0.5 and 0.9 of the error, of 17 that they hold and that not;
    14 more sets were chosen among by the rough one, and half of those that the search may run were gone."""
    units, groups = chain(40), groups_of(chain(40), [15, 9, 4])

    def oracle(error: Error, exact: Oracle | None = None) -> Oracle:
        return Oracle(40, lambda kept: Judged(error(kept) <= LIMIT, error(kept)), limit=LIMIT, exact=exact)

    def anew(kept: frozenset[int]) -> float:
        return LIMIT * (0.5 if {4, 30} <= kept else 1.5)

    judges = oracle(anew)
    chooses = oracle(lambda kept: anew(kept) * (0.6 if len(kept) > 1 else 1), judges)
    found = minimise(judges, units, lambda _kept: groups, rough=chooses)
    assert (found.state, found.kept) == ("found", frozenset({4, 30}))
    assert not any(judged.passes for kept, judged in chooses.asked.items() if 0 < len(kept) < 40)
    agreeing = oracle(anew, oracle(anew))
    assert minimise(oracle(anew), units, lambda _kept: groups, rough=agreeing).kept == frozenset({4, 30})
    assert any(judged.passes for kept, judged in agreeing.asked.items() if 0 < len(kept) < 40)


@pytest.mark.parametrize("needed", [1, 6])
def test_a_neighbour_takes_the_place_of_two_that_are_hardly_missed(needed: int) -> None:
    """Nobody has most of the error. Without 4 the limit is missed by a tenth, without 3 as well by a fifth; with a
    neighbour of what is left in their place it holds."""
    units = chain(12)
    groups = [Group(tensor=f"t{t}", units=frozenset({t}), share=0.2) for t in (2, 3, 4, 5)]

    def error(kept: frozenset[int]) -> float:
        if not {2, 5} <= kept:
            return 0.7
        missing = {3, 4} - kept
        if needed in kept or not missing:
            return 0.9 * LIMIT
        return LIMIT * (1.2 if len(missing) == 2 else 1.1 if missing == {4} else 1.15)

    found, oracle = searched(units, error, groups)
    assert (found.state, found.kept) == ("found", frozenset({2, 5, needed}))
    assert oracle.evaluations <= 14


def test_what_is_missed_by_more_has_no_neighbour_in_its_place() -> None:
    units = chain(12)
    groups = [Group(tensor=f"t{t}", units=frozenset({t}), share=0.2) for t in (2, 3, 4, 5)]

    def error(kept: frozenset[int]) -> float:
        if not {2, 5} <= kept:
            return 0.7
        return LIMIT * (0.9 if {3, 4} <= kept or 6 in kept else 1.3)

    found, oracle = searched(units, error, groups)
    assert (found.state, found.kept) == ("found", frozenset({2, 3, 4, 5}))
    assert not any(6 in kept for kept in oracle.asked if 0 < len(kept) < 12)
