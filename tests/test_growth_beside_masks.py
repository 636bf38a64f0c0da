"""An error beside a mask is next to none by any relative measure, and its reader makes it no larger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from report_factory import make_comparison, make_row, make_stats

from precision_debug.explain.growth import find_amplifying
from precision_debug.records import Introduced


@pytest.mark.parametrize("masked", [True, False])
def test_a_softmax_behind_a_mask_is_no_amplifier(masked: bool) -> None:
    """minilm in 4 bits: a Softmax "makes that 4.053e+37 x larger", which adds nothing, and whose repair takes nothing
    off."""
    scores = make_stats(min=-3.4e38, max=4.0, mean=-1.9e37, rms=8e37) if masked else make_stats()
    rows = {
        "scores": make_row(0, name="scores", comparison=make_comparison(1e-6, base=scores), op_type="Add"),
        "y": make_row(1, 0.3, name="y", op_type="Softmax", is_output=True),
    }
    subject: Any = SimpleNamespace(
        row_of=rows, order={"scores": 0, "y": 1}, ancestors=lambda _name: {"scores", "y"}, meta_of={}, region_of={},
        sources=lambda name: ["scores"] if name == "y" else [], far=lambda *_: False, error_units=lambda _row: 0.1,
        descendants=lambda name: {"y"} if name == "scores" else set(), readers={},
    )  # fmt: skip
    own = Introduced(name="y", method="isolated", elements=4, rel_l2=0.0, units=0.0)
    alone: Any = SimpleNamespace(found={"y": own, "scores": own})
    assert [one.name for one in find_amplifying(subject, alone, ["y"])] == ([] if masked else ["y"])
