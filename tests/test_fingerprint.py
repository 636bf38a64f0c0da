from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_debug.products.dumps.pairing.fingerprint import Pairing, pair_by_value, take
from precision_debug.records import TensorMeta

Side = list[tuple[TensorMeta, object]]


def side(*tensors: tuple[str, np.ndarray, tuple[str, ...]]) -> Side:
    return [
        (TensorMeta(name=name, op_type="aten.x", node=name, inputs=inputs), take(array))
        for name, array, inputs in tensors
    ]


def names(pairing: Pairing) -> dict[str, str]:
    return {target: match.baseline for target, match in pairing.matches.items()}


def values(seed: int, shape: tuple[int, ...] = (4, 6, 5)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def noisy(array: np.ndarray, size: float = 1e-6) -> np.ndarray:
    return array * (1 + size * np.random.default_rng(9).standard_normal(array.shape).astype(np.float32))


@settings(deadline=None, max_examples=60)
@given(st.permutations(range(7)), st.integers(0, 2**31))
def test_any_order_of_the_target_is_paired_alike(order: list[int], seed: int) -> None:
    arrays = [values(seed + number) for number in range(7)]
    base = side(*((f"b{n}", array, ()) for n, array in enumerate(arrays)))
    target = side(*((f"t{n}", noisy(arrays[n], 1e-3), ()) for n in order))
    pairing = pair_by_value(base, target)
    assert names(pairing) == {f"t{n}": f"b{n}" for n in range(7)}
    assert all(match.confidence > 0.99 for match in pairing.matches.values())


def test_parallel_copies_are_refused_and_named() -> None:
    one = values(1)
    base = side(("x", values(0), ()), ("left", one, ("x",)), ("right", one, ("x",)))
    target = side(("in", values(0), ()), ("l", noisy(one), ("in",)), ("r", noisy(one), ("in",)))
    pairing = pair_by_value(base, target)
    assert names(pairing) == {"in": "x"}
    assert "left" in pairing.refused["l"]
    assert "right" in pairing.refused["r"]


def test_one_copy_too_few_is_refused_too() -> None:
    one = values(1)
    base = side(("left", one, ()), ("right", one, ()))
    assert names(pair_by_value(base, side(("l", noisy(one), ())))) == {}


def test_the_module_tells_parallel_copies_apart() -> None:
    one = values(1)
    base = side(("left/mm", one, ()), ("right/mm", one, ()))
    target = side(("r", noisy(one), ()), ("l", noisy(one), ()))
    pairing = pair_by_value(base, target, modules={"l": "left", "r": "right"})
    assert names(pairing) == {"l": "left/mm", "r": "right/mm"}
    assert pairing.matches["l"].how == "fingerprint and module"


def test_a_chain_of_equal_values_is_paired_in_the_order_that_both_force_and_says_so() -> None:
    one = values(1)
    base = side(("a", one, ()), ("b", one, ("a",)))
    target = side(("s", noisy(one), ()), ("mid", values(5, (2, 2)), ("s",)), ("t", noisy(one), ("mid",)))
    pairing = pair_by_value(base, target)
    assert names(pairing) == {"s": "a", "t": "b"}
    assert "order" in pairing.matches["t"].how


def test_a_shorter_chain_is_paired_only_where_the_baseline_is_equal_bit_for_bit() -> None:
    one = values(1)
    target = side(("s", noisy(one), ()))
    equal = side(("a", one, ()), ("b", one, ("a",)))
    assert names(pair_by_value(equal, target)) == {"s": "a"}
    near = side(("a", one, ()), ("b", noisy(one, 1e-7), ("a",)))
    assert names(pair_by_value(near, target)) == {}


@pytest.mark.parametrize("array", [np.zeros((3, 40)), np.ones((3, 40)), np.arange(120).reshape(3, 40) % 2, np.eye(9)])
def test_masks_and_constants_are_refused(array: np.ndarray) -> None:
    pairing = pair_by_value(side(("b", array, ())), side(("t", array, ())))
    assert names(pairing) == {}


def test_other_values_of_the_same_shape_and_moments_are_not_paired() -> None:
    one = values(1, (50, 40))
    shuffled = np.random.default_rng(2).permutation(one.ravel()).reshape(one.shape)
    pairing = pair_by_value(side(("b", one, ())), side(("t", shuffled, ())))
    assert names(pairing) == {}
    assert pairing.refused == {}


def test_another_shape_is_not_paired() -> None:
    one = values(1, (2, 3, 5, 7))
    assert names(pair_by_value(side(("b", one, ())), side(("t", one.transpose(0, 2, 3, 1), ())))) == {}


def test_a_sample_of_a_large_tensor_reads_every_channel() -> None:
    one = values(1, (1, 64, 32, 32))
    other = one.copy()
    other[0, 17] = 0
    assert names(pair_by_value(side(("b", one, ())), side(("t", other, ())))) == {}


def test_text_has_no_fingerprint_and_infinities_do_no_harm() -> None:
    assert take(np.array(["a", "b"])) is None
    one = values(1)
    bad = one.copy()
    bad[0, 0, 0] = np.inf
    assert names(pair_by_value(side(("b", bad, ())), side(("t", bad, ())))) == {"t": "b"}


def test_each_baseline_tensor_is_paired_once() -> None:
    one = values(1)
    base = side(("a", one, ()))
    target = side(("s", one, ()), ("t", one, ("s",)))
    pairing = pair_by_value(base, target)
    assert list(names(pairing).values()) == ["a"]
    assert pairing.refused


def test_among_equal_tensors_the_outputs_belong_together() -> None:
    one = values(1)
    base = side(("mm", one, ()), ("output", one, ("mm",)))
    base[1] = (dataclasses.replace(base[1][0], is_output=True), base[1][1])
    target = side(("y", noisy(one), ()))
    target[0] = (dataclasses.replace(target[0][0], is_output=True), target[0][1])
    pairing = pair_by_value(base, target)
    assert names(pairing) == {"y": "output"}
    assert "output" in pairing.matches["y"].how


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "uint4"])
def test_a_type_that_numpy_has_no_kind_for_has_a_fingerprint(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="which has the types")
    value = np.arange(8, dtype=np.float32)
    taken, plain = take(value.astype(getattr(ml_dtypes, name))), take(value)
    assert taken is not None
    assert plain is not None
    if name in ("bfloat16", "uint4"):
        assert np.array_equal(taken.own, plain.own)
    assert take(np.array(["a"])) is None
