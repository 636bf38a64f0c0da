from __future__ import annotations

from precision_debug.pairing.align import align
from precision_debug.records import Row, Status, TensorMeta
from precision_debug.report.complete_table import make_complete_table


def test_a_run_that_ended_early_drops_no_tensor_of_either_side() -> None:
    base = [TensorMeta(name=name, op_type="Op") for name in ("a", "b")]
    target = [TensorMeta(name=name, op_type="Op") for name in ("a", "own", "b")]
    rows = make_complete_table([], align(base, target), failure="crashed")
    assert [(row.name, row.status) for row in rows] == [
        ("a", Status.NOT_COMPARED),
        ("own", Status.UNMATCHED),
        ("b", Status.NOT_COMPARED),
    ]
    assert {row.reason.code for row in rows} == {"ended"}


def metas(*names: str) -> list[TensorMeta]:
    return [TensorMeta(name=name, op_type="Op") for name in names]


def reasons(ran: bool, *compared: str) -> dict[str, str]:
    base, target = metas("a", "fused", "b", "c", "late"), metas("a", "own", "b", "late own", "c")
    rows = [
        Row(index=0, op_type="Op", name=name, target_name=name, status=Status.NOT_COMPARED, reason="compared")
        for name in compared
    ]
    table = make_complete_table(rows, align(base, target), failure="broke", ran=ran)
    return {row.name: getattr(row.reason, "code", row.reason) for row in table}


def test_only_what_a_run_had_not_reached_says_so() -> None:
    assert reasons(False, "b") == {
        "a": "ended_first",
        "own": "not_called",
        "fused": "gone",
        "b": "compared",
        "late own": "ended",
        "c": "ended",
        "late": "ended",
    }
    assert "ended" not in reasons(True, "b").values()
    assert reasons(True)["late"] == "gone"
