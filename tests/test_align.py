from __future__ import annotations

import pytest

from precision_debug.errors import MarkError
from precision_debug.pairing.align import align
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


def test_an_exact_name_needs_a_producer_that_fits_and_both_sides_say_so() -> None:
    def op(name: str, op_type: str, *inputs: str) -> TensorMeta:
        return TensorMeta(name=name, op_type=op_type, inputs=inputs)

    baseline = [op("c", "Conv", "x"), op("n", "BatchNormalization", "c"), op("r", "Relu", "n"), op("t", "Tanh", "r")]
    target = [op("c", "Conv"), op("r", "BatchNormalization"), op("r_DequantizeLinear_Output", "DequantizeLinear")]
    target.append(op("t", "Conv"))
    result = align(baseline, target)
    assert pairs(result) == {
        "c": ("c", "exact"), "r": ("n", "graph metadata"), "r_DequantizeLinear_Output": ("r", "graph metadata"),
    }  # fmt: skip
    assert result.refused == {"t": "the baseline's tensor of this name is made by Tanh, this one by Conv"}
    assert result.missing == {"t": "the target's tensor of this name is made by Conv, this one by Tanh"}


@pytest.mark.parametrize(
    ("base_op", "target_op"),
    [("Relu", "FusedConv"), ("Relu", "QLinearConv"), ("BatchNormalization", "Conv"), ("Mul", "HardSwish"),
     ("HardSwish", "Mul"), ("Clip", "Relu"), ("relu", "kCONVOLUTION"), ("Relu", "DequantizeLinear"),
     ("Div", "Softmax")],
)  # fmt: skip
def test_a_fusion_may_have_made_it(base_op: str, target_op: str) -> None:
    result = align([TensorMeta(name="a", op_type=base_op)], [TensorMeta(name="a", op_type=target_op)])
    assert pairs(result) == {"a": ("a", "exact")}
