"""The hooks as anybody's script uses them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from precision_debug import AssertClose, SaveBaseline, Status
from precision_debug.errors import BackendError
from precision_debug.numbers.arrays import HostComparer, as_array
from precision_debug.observe.hooks import BorrowedBaseline
from precision_debug.observe.lockstep import Meeting
from precision_debug.observe.store import Store
from precision_debug.report.model import Verdict


def test_rows_are_in_the_baselines_order_and_nothing_is_dropped() -> None:
    base = SaveBaseline()
    for place, name in enumerate("abcd"):
        base("Op" + name, name, np.full(4, place, np.float32))
    check = AssertClose(base, atol=1e-3, rtol=0)
    check("Q", "c", np.full(4, 2.5, np.float16))
    check("Q", "a", np.zeros(4, np.float16))
    check("Q", "new", np.zeros(2))
    report = check.report()
    assert [(row.name, row.status) for row in report.rows] == [
        ("a", Status.PASS),
        ("new", Status.UNMATCHED),
        ("b", Status.FUSED_AWAY),
        ("c", Status.FAIL),
        ("d", Status.FUSED_AWAY),
    ]
    assert [row.index for row in report.rows] == list(range(5))
    assert report.first_mismatch is not None
    assert report.first_mismatch.op_type == "Opc"
    assert report.first_mismatch.comparison is not None
    assert report.first_mismatch.comparison.max_abs == 0.5
    assert report.rows[2].base is not None
    assert report.rows[2].base.max == 1
    assert report.verdict is Verdict.FAIL


def test_the_hook_copies_because_the_buffer_is_used_again() -> None:
    base = SaveBaseline()
    buffer = np.ones(3, np.float32)
    base("Op", "a", buffer)
    buffer[...] = 7
    check = AssertClose(base)
    check("Op", "a", np.ones(3, np.float32))
    assert check.rows[0].status is Status.PASS


def test_a_lent_baseline_is_used_until_it_is_given_back() -> None:
    store = Store()
    meeting = Meeting(store)
    told: list[tuple[str, bool]] = []
    begun, gate = threading.Event(), threading.Event()

    class Slow(HostComparer):
        def describe(self, value: Any, then: Any) -> None:
            begun.set()
            gate.wait()
            super().describe(value, then)

    with ThreadPoolExecutor(1) as beside:
        base = BorrowedBaseline(
            meeting, beside, wanted=lambda key: key == "a", comparer=Slow(),
            on_saved=lambda key, stats: told.append((key, stats is not None)),
        )  # fmt: skip
        check = AssertClose(base, atol=0.5, rtol=0, consume=True)
        fused = base.borrow("Conv", "f", np.full(1 << 18, 5.0))
        first = base.borrow("Relu", "a", np.ones(3))
        assert begun.wait(10), "what is not wanted is described meanwhile"
        assert told == []
        check("Relu", "a", np.full(3, 1.25))
        gate.set()
        fused()
        first()
    assert told == [("f", True), ("a", False)]
    assert base.stats["f"].max == 5
    assert [(meta.name, meta.op_type) for meta in base.tensors] == [("f", "Conv"), ("a", "Relu")]
    assert [(row.name, row.status) for row in check.rows] == [("a", Status.PASS)]
    assert list(store) == []


def test_a_lent_baseline_keeps_the_named_ones_only() -> None:
    with ThreadPoolExecutor(1) as beside:
        base = BorrowedBaseline(Meeting(Store()), beside, names=["a"])
        base.borrow("Conv", "f", np.ones(3))()
        assert base.tensors == ()


def test_what_goes_wrong_with_a_lent_tensor_is_raised_when_it_is_given_back() -> None:
    class Broken(HostComparer):
        def describe(self, value: Any, then: Any) -> None:
            raise ValueError("no numbers")

    with ThreadPoolExecutor(1) as beside:
        base = BorrowedBaseline(Meeting(Store()), beside, wanted=lambda key: False, comparer=Broken())
        give_back = base.borrow("Conv", "f", np.ones(3))
        with pytest.raises(ValueError, match="no numbers"):
            give_back()


def test_a_name_that_comes_again_is_numbered_on_both_sides() -> None:
    base = SaveBaseline()
    check = AssertClose(base)
    for value in (1, 2):
        base("Op", "a", np.full(2, value, np.float32))
    for value in (1, 3):
        check("Op", "a", np.full(2, value, np.float32))
    assert [(row.name, row.status) for row in check.report().rows] == [("a", Status.PASS), ("a#2", Status.FAIL)]


def test_one_baseline_serves_several_targets() -> None:
    base = SaveBaseline()
    base("Op", "a", np.ones(2, np.float32))
    for value, status in ((1, Status.PASS), (2, Status.FAIL), (1, Status.PASS)):
        check = AssertClose(base)
        check("Op", "a", np.full(2, value, np.float32))
        assert check.rows[0].status is status


def test_only_the_wanted_names_are_kept() -> None:
    base = SaveBaseline(["b"])
    base("Op", "a", np.ones(2))
    base("Op", "b", np.ones(2))
    assert [meta.name for meta in base.tensors] == ["b"]


def test_error_growth_names_the_operator_that_lost_the_precision(tmp_path: Path) -> None:
    from precision_debug.pairing.align import align
    from precision_debug.records import TensorMeta
    from precision_debug.report.complete_table import make_complete_table

    base = SaveBaseline()
    check = AssertClose(base)
    values = {"a": 0.0, "gone": None, "b": 0.01, "c": 0.1}
    for name in values:
        base("Op", name, np.ones(8, np.float32))
    for name, error in values.items():
        if error is not None:
            check("Op", name, np.full(8, 1 + error, np.float32))
    metas = [
        TensorMeta(name="a", op_type="Op", inputs=()),
        TensorMeta(name="gone", op_type="Op", inputs=("a",)),
        TensorMeta(name="b", op_type="Op", inputs=("gone",)),
        TensorMeta(name="c", op_type="Op", inputs=("b", "gone")),
    ]
    table = make_complete_table(check.rows, align(metas, check.tensors))
    growth = {row.name: row.error_growth for row in table}
    assert growth["a"] == 1.0
    assert growth["b"] == np.inf
    assert growth["c"] == pytest.approx(10, rel=1e-5)


def test_error_growth_is_blank_where_nan_or_inf_are_born() -> None:
    from precision_debug.pairing.align import align
    from precision_debug.records import TensorMeta
    from precision_debug.report.complete_table import make_complete_table

    base = SaveBaseline()
    check = AssertClose(base)
    for name in ("a", "b"):
        base("Op", name, np.ones(8, np.float32))
    check("Op", "a", np.full(8, 1.01, np.float32))
    check("Op", "b", np.array([np.inf, *[1.0] * 7], np.float32))  # what is left of it agrees
    metas = [TensorMeta(name="a", op_type="Op", inputs=()), TensorMeta(name="b", op_type="Op", inputs=("a",))]
    table = make_complete_table(check.rows, align(metas, check.tensors))
    assert [row.error_growth for row in table] == [np.inf, None]


def test_error_growth_is_unknown_where_an_input_was_not_compared() -> None:
    from precision_debug.pairing.align import align
    from precision_debug.records import TensorMeta
    from precision_debug.report.complete_table import make_complete_table

    base = SaveBaseline()
    check = AssertClose(base)
    for name in ("hidden", "unmarked", "wrong", "after", "through", "marked", "shaped", "known"):
        base("Op", name, np.ones(8, np.float32))
    for name in ("after", "through", "marked", "shaped", "known"):
        check("Op", name, np.full(8, 1.01, np.float32))
    check("Op", "wrong", np.ones(9, np.float32))
    inputs = {
        "hidden": (), "unmarked": (), "wrong": (), "gone": ("hidden",), "after": ("hidden",), "through": ("gone",),
        "marked": ("unmarked", "after"), "shaped": ("wrong",), "known": ("after", "x"),
    }  # fmt: skip
    metas = [
        TensorMeta(name=name, op_type="Op", inputs=given, unseen="not to be seen" if name == "hidden" else "")
        for name, given in inputs.items()
    ]
    table = make_complete_table(check.rows, align(metas, check.tensors), selected=set(inputs) - {"unmarked"})
    growth = {row.name: row.error_growth for row in table}
    assert growth["known"] == pytest.approx(1)
    assert [growth[name] for name in ("after", "through", "marked", "shaped")] == [None] * 4


@pytest.mark.parametrize("tensor", [np.arange(3.0), [1.0, 2.0], 3.0])
def test_what_numpy_takes_is_taken(tensor: object) -> None:
    assert as_array(tensor).tolist() == np.asarray(tensor).tolist()


def test_raw_bfloat16_bits_of_a_tensor_that_says_so_are_decoded() -> None:
    class Paddle:
        dtype = "PaddleDType.BFLOAT16"

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:  # type: ignore[type-arg]
            return np.array([0x3F80, 0x4000], np.uint16)

    array = as_array(Paddle())
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(np.float32).tolist() == [1.0, 2.0]


def test_dlpack_is_taken() -> None:
    class Capsule:
        def __init__(self, array: np.ndarray) -> None:  # type: ignore[type-arg]
            self.array = array

        def __dlpack__(self, **kwargs: object) -> object:
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    assert as_array(Capsule(np.arange(4.0))).tolist() == [0, 1, 2, 3]


def test_what_cannot_be_read_is_one_clear_error() -> None:
    with pytest.raises(BackendError, match="a hook got object"):
        SaveBaseline()("Op", "a", object())


def test_the_report_reaches_excel(tmp_path: Path) -> None:
    base = SaveBaseline()
    base("Op", "a", np.ones(2, np.float32))
    check = AssertClose(base)
    check("Op", "a", np.ones(2, np.float32))
    assert check.report().to_excel(tmp_path / "o.xlsx").exists()


@pytest.mark.parametrize("names", [["T", "T", "T#2"], ["T#2", "T", "T"], ["T", "T#2", "T", "T#2", "T"]])
def test_names_that_look_like_a_repeat_are_told_apart(names: list[str]) -> None:
    base = SaveBaseline()
    for number, name in enumerate(names):
        base("Op", name, np.full(3, number, np.float32))
    check = AssertClose(base)
    for number, name in enumerate(names):
        check("Op", name, np.full(3, number, np.float32))
    report = check.report()
    assert len({row.name for row in report.rows}) == len(report.rows) == len(names)
    assert all(row.status is Status.PASS and row.comparison.identical for row in report.rows)


def test_error_growth_is_blank_where_nobody_told_what_an_operator_reads() -> None:
    baseline = SaveBaseline()
    check = AssertClose(baseline)
    values = np.arange(1, 5, dtype=np.float32)
    for hook, other in ((baseline, 1.0), (check, 1.01)):
        hook("relu", "a", values)
        hook("add", "b", values + other)
        hook("mul", "c", values * other)
    rows = check.report().rows
    assert [row.error_growth for row in rows] == [None, None, None]
    assert [row.introduced for row in rows] == [None, None, None]
    assert rows[1].relative_l2


def test_names_that_are_no_text_become_text() -> None:
    """At the end of a script of somebody's, an error about one of them would cost all rows."""
    base = SaveBaseline()
    names: list[Any] = [None, 3, ("a", 1), "x"]
    for name in names:
        base(name, name, np.ones(2))
    check = AssertClose(base)
    for name in names:
        check(name, name, np.ones(2))
    report = check.report()
    assert [(row.name, row.op_type) for row in report.rows] == [(str(name), str(name)) for name in names]
    assert report.verdict is Verdict.PASS
