"""Sets that grow along the data, for engines that fuse regions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from precision_debug.protocols import TF32_OFF
from precision_debug.records import TensorMeta
from precision_debug.search.offer import JudgedSet, Oracle, Spent
from precision_debug.search.strategy import grow_along_data, search_along_data, try_along_data
from precision_debug.search.units import Units


def meta(name: str, op_type: str, *inputs: str) -> TensorMeta:
    return TensorMeta(name=name, op_type=op_type, node=name, dtype="float32", shape=(4,), inputs=inputs)


def encoder(layers: int) -> list[TensorMeta]:
    """A pre-norm residual stream with one product in each block."""
    found, stream = [meta("x", "Input")], "x"
    for number in range(layers):
        found += [
            meta(f"norm{number}", "LayerNormalization", stream), meta(f"up{number}", "MatMul", f"norm{number}"),
            meta(f"act{number}", "Gelu", f"up{number}"), meta(f"down{number}", "MatMul", f"act{number}"),
            meta(f"add{number}", "Add", stream, f"down{number}"),
        ]  # fmt: skip
        stream = f"add{number}"
    return [*found, meta("y", "LayerNormalization", stream)]


def units_of(layers: int, *switches: str) -> Units:
    return Units(encoder(layers), lambda one: one.node, switches)


def names(units: Units, kept: frozenset[int]) -> set[str]:
    return {units.units[unit].key for unit in kept}


def test_the_stream_with_its_norms_is_one_step() -> None:
    units = units_of(4)
    culprit = units.of("down1")
    assert culprit is not None
    start, stream, blocks, onward = grow_along_data(units, {culprit}, units.around("down1"))
    assert names(units, start) == {"down1", "add1"}
    assert names(units, stream) == {"down1", "add1", "norm2", "add2", "norm3", "add3", "y"}
    assert {"act1", "up2", "down3"} <= names(units, blocks)
    assert names(units, onward) >= names(units, blocks) | {"act3"}
    assert "norm0" not in names(units, onward)


def run(
    holds: Callable[[frozenset[int]], float], units: Units, culprit: str, *, most: int = 12, low: float = 1.0
) -> tuple[set[str] | None, int]:  # fmt: skip
    """What is found where ``holds`` gives the error of a set, 0.1 is allowed, and how many engines it took."""
    engines: list[frozenset[int]] = []

    def judge(kept: frozenset[int]) -> JudgedSet:
        if not kept:
            return JudgedSet(False, low)
        if kept not in engines:
            engines.append(kept)
        if len(engines) > most:
            raise Spent
        return JudgedSet(holds(kept) <= 0.1, holds(kept))

    place = units.of(culprit)
    assert place is not None
    found = search_along_data(Oracle(len(units), judge), units, units.around(culprit), {place}).kept
    return None if found is None else names(units, found), len(engines)


def test_an_overflow_in_a_stream_of_sixty_blocks_takes_few_engines() -> None:
    units = units_of(60, TF32_OFF)
    needed = {f"add{number}" for number in range(30, 60)} | {f"norm{number}" for number in range(31, 60)} | {"y"}
    found, engines = run(
        lambda kept: 0.01 if needed <= names(units, kept) else math.inf, units, "down30", low=math.inf
    )
    assert found is not None
    assert needed <= found
    assert len(found) < len(units) / 2
    assert engines <= 12


def test_an_error_that_tf32_makes_goes_with_tf32_alone() -> None:
    units = units_of(3, TF32_OFF)
    found, engines = run(lambda kept: 0.01 if TF32_OFF in names(units, kept) else 1.0, units, "down0")
    assert (found, engines) == ({TF32_OFF}, 1)


def test_tf32_goes_with_a_set_where_neither_helps_alone() -> None:
    """As seen of a tower on TensorRT 8.6: with TF32 off it took FP16, and gave NaN; with all kept it took TF32."""
    units = units_of(3, TF32_OFF)

    def error(kept: frozenset[int]) -> float:
        off = TF32_OFF in names(units, kept)
        return (0.01 if "add0" in names(units, kept) else math.inf) if off else 1.0

    found, engines = run(error, units, "down0")
    assert found is not None
    assert {TF32_OFF, "add0"} <= found
    assert engines <= 4


def test_what_is_not_all_needed_is_halved_along_the_data() -> None:
    units = units_of(12)
    needed = {"down2", "add2", "norm3", "add3"}
    found, engines = run(lambda kept: 0.01 if needed <= names(units, kept) else 1.0, units, "down2")
    whole = grow_along_data(units, {units.of("down2") or 0}, units.around("down2"))[1]
    assert found is not None
    assert needed <= found < names(units, whole)
    assert engines <= 6


def test_where_builds_end_what_was_seen_to_hold_is_told() -> None:
    units = units_of(12)
    needed = {"down2", "add2", "norm3", "add3"}
    found, _ = run(lambda kept: 0.01 if needed <= names(units, kept) else 1.0, units, "down2", most=2)
    assert found is not None
    assert needed <= found
    assert run(lambda _kept: 1.0, units, "down2", most=2)[0] is None


def asked_for(
    error: Callable[[frozenset[int]], float], steps: Sequence[set[int]], count: int = 10, *,
    always: Sequence[int] = (), rounding: Sequence[int] = (),
) -> tuple[set[int] | None, list[set[int]]]:  # fmt: skip
    """What is found of units 0 to count - 1 where 0.1 is allowed, and the sets that were asked for, in order."""
    asked: list[set[int]] = []

    def judge(kept: frozenset[int]) -> JudgedSet:
        if kept and kept not in asked:
            asked.append(set(kept))
        return JudgedSet(error(kept) <= 0.1, error(kept))

    oracle, everything = Oracle(count, judge), frozenset(range(count))
    try_along_data(oracle, [frozenset(step) for step in steps], everything, always, rounding)
    found = oracle.smallest()
    return None if found is None else set(found), asked


@pytest.mark.parametrize(
    ("first", "second", "step"),
    [(0.5, 0.25, {1, 20, 21}), (0.5, 0.26, {1, 20}), (0.51, 0.51, {1}), (0.51, 0.5, {1, 21})],
)
def test_a_switch_stays_on_where_it_takes_off_half(first: float, second: float, step: set[int]) -> None:
    """20 and 21 are switches of the engine: the second is tried with the first where that stays on."""
    on = {20} if first <= 0.5 else set()

    def error(kept: frozenset[int]) -> float:
        return {frozenset({20}): first, frozenset({21}): second, frozenset({20, 21}): second}.get(kept, 1.0)

    found, asked = asked_for(error, [{1}], always=(20, 21))
    assert found is None
    assert asked[:3] == [{20}, {21, *on}, step]
    assert asked[-1] == set(range(10)) | (step - {1})


def test_a_switch_that_is_enough_is_all_that_is_tried() -> None:
    assert asked_for(lambda kept: 0.1 if kept == {20} else 1.0, [{1}], always=(20, 21)) == ({20}, [{20}])
    both = asked_for(lambda kept: 0.1 if {20, 21} <= kept else 0.4 if 20 in kept else 1.0, [{1}], always=(20, 21))
    assert both == ({20, 21}, [{20}, {20, 21}])


@pytest.mark.parametrize("before", [1.0, math.inf])
def test_what_can_only_lessen_a_finite_error_is_tried_alone_where_it_is_one(before: float) -> None:
    _, asked = asked_for(lambda kept: 1.0 if kept else before, [{1}], rounding=(20,))
    assert asked == ([{20}, {1}, {1, 20}] if before == 1.0 else [{1}]) + [{*range(10)}, {*range(10), 20}]


@pytest.mark.parametrize(
    ("left", "together", "next_asked"),
    [
        (0.9, 0.05, None), (0.9, 0.8, {1, 2, 20}), (0.9, 0.9, {1, 2}),  # it changes nothing: then with the switch too
        (0.89, 0.05, {1, 2}),
    ],
)
def test_a_set_that_changes_nothing_is_tried_with_the_switch(
    left: float, together: float, next_asked: set[int] | None
) -> None:
    def error(kept: frozenset[int]) -> float:
        return {frozenset({1}): left, frozenset({1, 20}): together}.get(kept, 1.0)

    found, asked = asked_for(error, [{1}, {1, 2}], rounding=(20,))
    tried = [{20}, {1}] + ([{1, 20}] if left >= 0.9 else [])
    assert asked[: len(tried)] == tried
    assert asked[len(tried) :][:1] == ([] if next_asked is None else [next_asked])
    assert found == ({1, 20} if next_asked is None else None)


def test_everything_is_tried_with_the_switch_whatever_it_changes() -> None:
    """NaN before: no share of it is anything."""
    found, asked = asked_for(
        lambda kept: 0.01 if {*range(10), 20} <= kept else 0.5 if len(kept) == 10 else math.inf, [{1}], rounding=(20,)
    )  # fmt: skip
    assert (found, asked[:3]) == ({*range(10), 20}, [{1}, set(range(10)), {*range(10), 20}])


@pytest.mark.parametrize(
    ("count", "needed", "found", "halves"),
    [
        (6, {0}, set(range(6)), []),  # few enough
        (7, {0}, {0}, [{0, 1, 2}, {0}]), (7, {6}, set(range(7)), [{0, 1, 2}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}]),
        (32, {0}, {0, 1, 2, 3}, [set(range(16)), set(range(8)), set(range(4))]),  # three builds
        (16, {4}, {0, 1, 2, 3, 4, 5}, [set(range(8)), set(range(4)), set(range(6))]),
    ],
)
def test_what_holds_is_halved_along_the_data_three_times(
    count: int, needed: set[int], found: set[int], halves: list[set[int]]
) -> None:
    whole = set(range(count))
    assert asked_for(lambda kept: 0.1 if needed <= kept else 1.0, [whole], 40) == (found, [whole, *halves])


def test_halves_keep_what_did_not_hold_and_what_is_on() -> None:
    first, second = {0, 1, 2, 3}, set(range(12))

    def error(kept: frozenset[int]) -> float:
        return 0.1 if {2, 5} <= kept and 20 in kept else 0.5 if kept == {20} else 1.0

    found, asked = asked_for(error, [first, second], 40, always=(20,))
    assert asked == [{20}, {*first, 20}, {*second, 20}, {*range(8), 20}, {*range(6), 20}, {*range(5), 20}]
    assert found == {*range(6), 20}
    found, asked = asked_for(error, [first, second], 40, rounding=(20,))
    assert asked[-3:] == [{*range(8), 20}, {*range(6), 20}, {*range(5), 20}]


def searched(error: Callable[[set[str]], float], *switches: str, runs: int = 99) -> tuple[str, set[str], Oracle]:
    """A search in an encoder of two blocks in which ``down0`` is wrong."""
    units = units_of(2, *switches)

    def judge(kept: frozenset[int]) -> JudgedSet:
        return JudgedSet(error(names(units, kept)) <= 0.1, error(names(units, kept)))

    oracle = Oracle(len(units), judge, runs=runs)
    place = units.of("down0")
    assert place is not None
    found = search_along_data(oracle, units, units.around("down0"), {place})
    assert found.kept is None or found.state in {"found", "not needed"}
    return found.state, names(units, found.kept or frozenset()), oracle


def test_what_ends_a_search_along_the_data() -> None:
    state, kept, oracle = searched(lambda _kept: 0.01)
    assert (state, kept, len(oracle.asked)) == ("not needed", set(), 1)
    state, kept, oracle = searched(lambda kept: 0.01 if "down0" in kept else 1.0)
    assert (state, kept, len(oracle.asked)) == ("found", {"down0", "add0"}, 2)
    state, kept, oracle = searched(lambda _kept: 1.0)
    assert (state, kept) == ("not possible", set())
    assert oracle.all in oracle.asked
    assert searched(lambda _kept: 1.0, runs=3)[0] == "unfinished"


def test_of_switches_those_of_rounding_are_tried_with_everything_and_the_others_alone() -> None:
    """What the user's command asks for is left out by a switch that is tried first."""
    state, kept, oracle = searched(lambda kept: 0.01 if "other" in kept else 1.0, TF32_OFF, "other")
    assert (state, kept, len(oracle.asked)) == ("found", {"other"}, 2)
    whole = {one.node for one in encoder(2) if one.node != "x"} | {TF32_OFF}
    nan = searched(lambda kept: 0.01 if whole <= kept else math.inf, TF32_OFF)
    assert nan[:2] == ("found", whole)


def test_where_nobody_is_named_sets_grow_from_what_is_predicted() -> None:
    units = units_of(4)
    assert grow_along_data(units, (), units.around("down1"))[0] == units.around("down1")
    product = units.of("up1")
    assert product is not None
    steps = grow_along_data(units, {product}, frozenset())
    assert names(units, steps[0]) == {"up1", "act1"}, "a product's sums are its own: what reads them ends with the next"
    assert all(steps)
    assert len(set(steps)) == len(steps)
