"""Sets that grow along the data, for engines that fuse regions."""

from __future__ import annotations

import math
from collections.abc import Callable

from precision_debug.protocols import TF32_OFF
from precision_debug.records import TensorMeta
from precision_debug.search.offer import JudgedSet, Spent
from precision_debug.search.strategy import find_smallest_along, grow_along_data
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
    rounding = range(units.operators, len(units))
    everything = frozenset(range(units.operators))
    steps = grow_along_data(units, {place}, units.around(culprit))
    found = find_smallest_along(judge, steps, everything, (), tuple(rounding))
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
