"""A scale that is recommended holds every number, around the zero point that the file has, as it is printed."""

from __future__ import annotations

import numpy as np
import pytest

from precision_debug.explain.file_scales import _fit_scale, find_least_scales, round_up


@pytest.mark.parametrize(
    ("dtype", "zero", "values", "with_zero"),
    [
        ("int16", 0, (-1.98, 2.0173), None), ("int8", 0, (-2.0, 1.0), None), ("uint8", 128, (-0.5, 3.0), None),
        ("uint8", 200, (-0.5, 3.0), None), ("uint8", 0, (-1.0, 3.0), "64"), ("uint8", 250, (0.0, 3.0), "0"),
    ],
)  # fmt: skip
def test_a_recommended_scale_holds_all_values(
    dtype: str, zero: int, values: tuple[float, ...], with_zero: str | None
) -> None:
    step = 0.5
    found = _fit_scale(np.array(values), np.array([step]), np.array([zero], dtype))
    assert found is not None
    evidence, limits = found[0], np.iinfo(dtype)
    assert evidence.get("with_zero") == with_zero
    told, at = float(f"{evidence['fits']:.4g}"), int(evidence.get("with_zero", zero))
    for value in values:
        assert limits.min <= np.rint(value / told) + at <= limits.max
    assert (limits.min - at) * told <= min(values)
    assert max(values) <= (limits.max - at) * told


def test_a_least_scale_is_of_each_number() -> None:
    found = find_least_scales(np.array([-1.28, 1.27, 0.0, 2.0]), np.dtype("int8"), np.array([0, 0, 0, 127]))
    assert found[:3] == pytest.approx([0.01, 0.01, 0.0])
    assert np.isinf(found[3])
    rounded = round_up(np.array([6.1564e-05, 0.25, 0.0, 1234.51]))
    assert rounded == pytest.approx([6.157e-05, 0.25, 0.0, 1235], rel=1e-12)
