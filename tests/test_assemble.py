from __future__ import annotations

from precision_debug.align import align
from precision_debug.assemble import complete_table
from precision_debug.records import Status, TensorMeta


def test_a_run_that_ended_early_drops_no_tensor_of_either_side() -> None:
    base = [TensorMeta(name=name, op_type="Op") for name in ("a", "b")]
    target = [TensorMeta(name=name, op_type="Op") for name in ("a", "own", "b")]
    rows = complete_table([], align(base, target), failure="crashed")
    assert [(row.name, row.status) for row in rows] == [
        ("a", Status.NOT_COMPARED),
        ("own", Status.UNMATCHED),
        ("b", Status.NOT_COMPARED),
    ]
    assert {row.reason for row in rows} == {"the run ended before this tensor"}
