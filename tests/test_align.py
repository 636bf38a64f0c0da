from __future__ import annotations

import pytest

from precision_debug.align import align
from precision_debug.errors import MarkError
from precision_debug.records import TensorMeta


def meta(name: str, **values: object) -> TensorMeta:
    return TensorMeta(name=name, op_type="Op", **values)  # type: ignore[arg-type]


def pairs(result: object) -> dict[str, tuple[str, str]]:
    return {name: (pair.base.name, pair.how) for name, pair in result.pairs.items()}  # type: ignore[attr-defined]


def test_equal_names_pair_exactly() -> None:
    assert pairs(align([meta("a"), meta("b")], [meta("b"), meta("c")])) == {"b": ("b", "exact")}


def test_origin_beats_an_equal_name_and_the_loser_is_told() -> None:
    result = align([meta("x")], [meta("x"), meta("x_dq", origin="x")])
    assert pairs(result) == {"x_dq": ("x", "graph metadata")}
    assert result.rivals == {"x": "x_dq"}


def test_the_users_rename_beats_both() -> None:
    result = align([meta("x")], [meta("x_dq", origin="x"), meta("y")], {"y": "x"})
    assert pairs(result) == {"y": ("x", "rename map")}


def test_a_baseline_that_was_fused_pairs_by_its_origin() -> None:
    result = align([meta("fused_7", origin="relu_1")], [meta("relu_1")])
    assert pairs(result) == {"relu_1": ("fused_7", "graph metadata")}


def test_nothing_pairs_by_position() -> None:
    assert not align([meta("a")], [meta("b")]).pairs


@pytest.mark.parametrize("renames", [{"nowhere": "a"}, {"b": "nowhere"}])
def test_a_rename_of_an_unknown_name_is_refused(renames: dict[str, str]) -> None:
    with pytest.raises(MarkError, match="nowhere"):
        align([meta("a")], [meta("b")], renames)
