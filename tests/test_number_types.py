"""The table of number types against numpy, ml_dtypes and onnx, each of which knows them too."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from precision_debug.numbers.number_types import NUMBER_TYPES, NumberType, number_type

FLOATS = [one for one in NUMBER_TYPES.values() if one.bits and one.name != "tf32"]
INTEGERS = [one for one in NUMBER_TYPES.values() if not one.bits]


def _ids(types: list[NumberType]) -> list[str]:
    return [one.name for one in types]


@pytest.mark.parametrize("one", FLOATS, ids=_ids(FLOATS))
def test_floats_are_those_of_ml_dtypes(one: NumberType) -> None:
    known = ml_dtypes.finfo(np.dtype(getattr(ml_dtypes, one.name, one.name)))
    assert one.bits == known.nmant + 1
    assert one.largest == float(known.max)
    assert one.smallest_normal == float(known.smallest_normal)
    assert one.smallest == float(known.smallest_subnormal)
    assert one.rounding == float(known.eps) / 2
    assert one.steps == 0


@pytest.mark.parametrize("one", INTEGERS, ids=_ids(INTEGERS))
def test_integers_are_those_of_numpy(one: NumberType) -> None:
    known = ml_dtypes.iinfo(np.dtype(getattr(ml_dtypes, one.name, one.name)))
    assert one.largest == known.max
    assert one.steps == int(known.max) - int(known.min)
    assert one.rounding == one.smallest == one.smallest_normal == 0.0


@pytest.mark.parametrize("one", [one for one in NUMBER_TYPES.values() if one.onnx], ids=lambda one: one.name)
def test_onnx_numbers_are_those_of_onnx(one: NumberType) -> None:
    assert helper.tensor_dtype_to_np_dtype(one.onnx) == np.dtype(getattr(ml_dtypes, one.name, one.name))


def test_a_type_that_nobody_knows_has_no_entry() -> None:
    assert number_type("float7") is None
