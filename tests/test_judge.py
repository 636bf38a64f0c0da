"""Verdicts and their reasons."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from approval import is_approved

from precision_debug.numbers import compare, describe, measure
from precision_debug.numbers.born import is_broken
from precision_debug.numbers.judge import as_expected, decide_status, fail_non_finite, lost_slice_arguments
from precision_debug.numbers.judge import judge_row as judged_row
from precision_debug.numbers.merged import Merged
from precision_debug.records import Comparison, Introduced, Row, Slices, Status, Tolerance

NAN, INF = np.nan, np.inf
UNKNOWN = Status.INCONCLUSIVE


def judged(base: Any, target: Any, **tolerance: Any) -> tuple[Status, str]:
    wanted = Tolerance(**tolerance)
    return decide_status(compare(np.asarray(base), np.asarray(target), wanted), wanted)


@pytest.mark.parametrize(
    ("base", "target", "tolerance", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], {}, (Status.PASS, "")),
        ([1.0, 2.0], [1.0, 2.1], {}, (Status.FAIL, "1 of 2 elements")),
        ([1.0, 2.0], [1.0, 2.00005], {"atol": 1e-4, "rtol": 0}, (Status.PASS, "")),
        ([1.0, NAN], [1.0, NAN], {}, (Status.FAIL, "1 of 2 elements, NaN on both sides")),
        ([1.0, NAN], [1.0, NAN], {"equal_nan": True}, (Status.PASS, "")),
        ([1.0, 1.0], [3.0, NAN], {"equal_nan": True}, (Status.FAIL, "2 of 2 elements, NaN in the target")),
        ([1.0, INF], [1.0, 65504.0], {}, (Status.FAIL, "1 of 2 elements, inf in the baseline")),
        ([-INF, INF], [-INF, INF], {}, (Status.PASS, "")),
        ([-INF, INF], [INF, INF], {}, (Status.FAIL, "1 of 2 elements, inf on both sides")),
        ([1.0], [[1.0]], {}, (Status.FAIL, "shape")),
        ([], [], {}, (UNKNOWN, "0 elements on both sides")),
        ([], [], {"check_error_stat": "max"}, (UNKNOWN, "0 elements on both sides")),
        (["a"], [1.0], {}, (Status.FAIL, "types: str against float64")),
        (["a", "b"], ["a", "c"], {"check_error_stat": "max"}, (Status.FAIL, "1 of 2 elements")),
        (["a"], ["a"], {"check_error_stat": "max"}, (Status.PASS, "")),
    ],
)
def test_elements(base: Any, target: Any, tolerance: dict[str, Any], expected: tuple[Status, str]) -> None:
    assert judged(base, target, **tolerance) == expected


@pytest.mark.parametrize(
    ("base", "target", "tolerance", "expected"),
    [
        ([1.0, 1.0, 1.0], [1.0, 1.0, 2.0], {"check_error_stat": "median"}, (Status.PASS, "")),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 2.0], {"check_error_stat": "mean", "atol": 0.4}, (Status.PASS, "")),
        (
            [1.0, 1.0],
            [1.0, 1.3],
            {"check_error_stat": "max"},
            (Status.FAIL, "max abs 0.3 > 0.0001 and max rel 0.3 > 0.0001"),
        ),
        (
            [1.0, 1.0],
            [1.0, 2.0],
            {"check_error_stat": "quantile", "quantile": 0.9},
            (Status.FAIL, "quantile 0.9 abs 0.9 > 0.0001 and quantile 0.9 rel 0.9 > 0.0001"),
        ),
        # every element is within atol + rtol * |b|, but the largest error is within neither of the two
        (
            [1.0],
            [1.00015],
            {"check_error_stat": "max"},
            (Status.FAIL, "max abs 0.00015 > 0.0001 and max rel 0.00015 > 0.0001"),
        ),
        ([1e6], [1e6 + 1], {"check_error_stat": "max"}, (Status.PASS, "")),
        ([1.0, 1.0, 1.0], [1.0, 1.0, NAN], {"check_error_stat": "median"}, (Status.FAIL, "NaN in the target")),
        ([1.0, 1.0, 1.0], [1.0, 1.0, INF], {"check_error_stat": "median"}, (Status.FAIL, "inf in the target")),
        ([NAN, 1.0], [NAN, 1.0], {"check_error_stat": "max", "equal_nan": True}, (Status.PASS, "")),
        ([INF], [INF], {"check_error_stat": "mean"}, (Status.PASS, "")),
        ([NAN], [NAN], {"check_error_stat": "mean"}, (Status.FAIL, "1 of 1 element, NaN on both sides")),
    ],
)
def test_statistics(base: Any, target: Any, tolerance: dict[str, Any], expected: tuple[Status, str]) -> None:
    assert judged(base, target, **tolerance) == expected


def test_a_statistic_that_was_not_computed_does_not_pass() -> None:
    comparison = compare(np.zeros(2), np.zeros(2), Tolerance())
    assert decide_status(comparison, Tolerance(check_error_stat="mean")) == (Status.FAIL, "mean was not computed")


HIDDEN = "passes only because atol {} exceeds its RMS {}; its Rel L2 is {}"


@pytest.mark.parametrize(
    ("base", "target", "tolerance", "expected"),
    [
        # zeros would pass as well
        ([3e-5, 4e-5], [2e-5, 5e-5], {}, (UNKNOWN, HIDDEN.format("0.0001", "3.54e-05", "0.283"))),
        ([3e-5, 4e-5], [0.0, 0.0], {}, (UNKNOWN, HIDDEN.format("0.0001", "3.54e-05", "1"))),
        ([0.0, 0.0], [1e-5, 0.0], {}, (UNKNOWN, HIDDEN.format("0.0001", "0", "inf"))),
        ([1, 2, 3], [3, 2, 1], {"atol": 5}, (UNKNOWN, HIDDEN.format("5", "2.16", "0.756"))),
        (
            [0.5, 0.7],
            [0.4, 0.8],
            {"atol": 1, "check_error_stat": "max"},
            (UNKNOWN, HIDDEN.format("1", "0.608", "0.164")),
        ),
        # however small it is, it is right
        ([3e-5, 4e-5], [3.01e-5, 4e-5], {}, (Status.PASS, "")),
        ([3e-5, 4e-5], [3e-5, 4e-5], {}, (Status.PASS, "")),
        ([0.0, 0.0], [0.0, -0.0], {}, (Status.PASS, "")),
        ([1e-30], [1.005e-30], {}, (Status.PASS, "")),
        # as much as the user asked for, of the tensor's own size
        ([3e-5, 4e-5], [3.3e-5, 4e-5], {"rtol": 0.2}, (Status.PASS, "")),
        ([3e-5, 4e-5], [2e-5, 5e-5], {"rtol": 0.4, "check_error_stat": "max"}, (Status.PASS, "")),
        # atol below the RMS cannot pass zeros
        ([3e-4, 4e-4], [2.5e-4, 4.5e-4], {}, (Status.PASS, "")),
    ],
)
def test_a_tolerance_above_the_tensor_decides_nothing(
    base: Any, target: Any, tolerance: dict[str, Any], expected: tuple[Status, str]
) -> None:
    assert judged(base, target, **tolerance) == expected


def test_validating_fails_every_nan_and_inf_wherever_it_stands() -> None:
    def row(base: Any, target: Any) -> Row:
        wanted = Tolerance(equal_nan=True)
        comparison = compare(np.float32(base), np.float32(target), wanted)
        status, reason = decide_status(comparison, wanted)
        return fail_non_finite(
            Row(index=0, op_type="Op", name="a", status=status, reason=reason, comparison=comparison)
        )

    assert row([1.0], [1.0]).status is Status.PASS
    both = row([INF] * 8, [INF] * 8)
    assert (both.status, both.reason.code) == (Status.FAIL, "non_finite")
    assert [one.partition(" in the ")[0] for one in both.reason.args["found"]] == ["8 Inf", "8 Inf"]
    assert is_approved(row([NAN, 1.0], [NAN, 1.0]).reason)
    assert is_approved(row([1.0, 2.0], [1.0, NAN]).reason, 2)
    alone = Row(index=0, op_type="Op", name="a", status=Status.UNMATCHED, target=describe(np.float32([NAN, 1])))
    assert (fail_non_finite(alone).status, fail_non_finite(alone).reason) == (Status.FAIL, "1 NaN in the target")


@pytest.mark.parametrize(
    ("held", "rel_l2", "inherited", "passes"),
    [
        (-65504.0, 1e-3, 1e-3, True),
        (-1e4, 0.0, 0.0, True),
        (-65504.0, 0.5, 0.0, False),  # what is left of the tensor is wrong
        (-65504.0, 0.0, 0.5, False),
        (-65504.0, 0.0, None, False),  # not known
        (-10.0, 0.0, 0.0, False),  # no mask any more
    ],
)
def test_a_mask_at_the_end_of_the_targets_type_is_as_expected(
    held: float, rel_l2: float, inherited: float | None, passes: bool
) -> None:
    wanted = Tolerance(given=False)
    numbers = compare(np.float32([-3.4e38, 1.0]), np.float32([held, 1.0]), wanted)
    own = Introduced(name="x", method="isolated", elements=2, rel_l2=rel_l2, inherited=inherited)
    row = Row(index=0, op_type="Where", name="x", status=Status.FAIL, comparison=numbers, introduced=own)
    assert (as_expected(row, 0.01).status is Status.PASS) is passes


@pytest.mark.parametrize(
    ("base", "target", "passes"),
    [
        ([NAN, 1.0, 1.0], [NAN, 1.0, 1.0], True),
        ([NAN, 1.0, 1.0], [1.0, NAN, 1.0], False),  # it stands elsewhere
        ([INF, 1.0, 1.0], [1.0, INF, 1.0], False),
        ([INF, 1.0, 1.0], [-INF, 1.0, 1.0], False),
        ([NAN, INF, 1.0], [INF, NAN, 1.0], False),
        ([NAN, INF, 1.0], [1.0, NAN, 1.0], False),
        ([NAN, 1.0, INF], [NAN, INF, INF], False),
        ([-INF, -INF, 1.0], [-65504.0, -65504.0, 1.0], True),  # a mask, as a narrow type holds it
        ([-INF, NAN, 1.0], [-1e4, NAN, 1.0], True),
        ([INF, 1.0, 1.0], [1.5, 1.0, 1.0], False),  # no mask: a number where there was none
        ([-3e38, 1.0, 1.0], [-INF, 1.0, 1.0], True),
        ([1.0, 1.0, 1.0], [INF, 1.0, 1.0], False),
    ],
)
@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("many", [False, True])
def test_without_a_tolerance_nan_and_inf_have_to_stand_where_the_baselines_do(
    base: list[float], target: list[float], passes: bool, equal_nan: bool, many: bool
) -> None:
    wanted = Tolerance(equal_nan=equal_nan, given=False)
    one, two = np.float32(base), np.float32(target)
    if many:
        plain = np.ones(3, np.float32)
        samples = (Merged.of(measure(b, t, wanted), n) for n, (b, t) in enumerate([(plain, plain), (one, two)]))
        numbers = Merged.merge(*samples).comparison()
    else:
        numbers = compare(one, two, wanted)
    status, reason = decide_status(numbers, wanted)
    row = Row(index=0, op_type="X", name="x", status=status, reason=reason, comparison=numbers, is_output=True)
    assert (as_expected(row, 0.01).status is Status.PASS) is passes


@pytest.mark.parametrize(
    ("target", "given", "validate", "allowed", "status"),
    [
        ([1.0, 2.0], True, False, None, Status.PASS),
        ([1.0, 2.1], True, False, None, Status.FAIL),
        ([1.0, 2.1], True, False, 1.0, Status.FAIL),  # the user's tolerance decides, to the letter
        ([1.0, 2.1], False, False, None, Status.FAIL),  # no bound is known yet
        ([1.0, 2.1], False, False, 0.1, Status.PASS),
        ([1.0, 2.1], False, False, 0.01, Status.FAIL),
        ([1.0, NAN], False, False, 0.1, Status.FAIL),
        ([1.0, 2.0], True, True, None, Status.PASS),
        ([1.0, NAN], True, True, None, Status.FAIL),
    ],
)
def test_one_function_judges_a_row_and_a_judged_one_again(
    target: list[float], given: bool, validate: bool, allowed: float | None, status: Status
) -> None:
    wanted = Tolerance(given=given, equal_nan=True)
    numbers = compare(np.float32([1.0, 2.0]), np.float32(target), wanted)
    fresh = Row(index=0, op_type="X", name="x", status=Status.PASS, comparison=numbers)
    row = judged_row(fresh, wanted, allowed=allowed, validate=validate)
    assert row.status is status
    for other in (None, 1e-9, 0.5):  # whatever it was judged by before
        before = judged_row(fresh, wanted, allowed=other, validate=validate)
        assert judged_row(before, wanted, allowed=allowed, validate=validate) == row


def test_what_was_not_compared_keeps_its_status() -> None:
    for status in (Status.UNMATCHED, Status.FUSED_AWAY, Status.NOT_COMPARED):
        row = Row(index=0, op_type="X", name="x", status=status)
        assert judged_row(row, Tolerance(given=False), allowed=0.0, validate=True) is row


def test_validating_fails_what_stands_on_both_sides() -> None:
    wanted = Tolerance(equal_nan=True)
    both = compare(np.float32([NAN, 1.0]), np.float32([NAN, 1.0]), wanted)
    row = Row(index=0, op_type="X", name="x", status=Status.PASS, comparison=both)
    assert judged_row(row, wanted).status is Status.PASS
    assert judged_row(row, wanted, validate=True).status is Status.FAIL


def numbers_of(error: float, rms: float = 1.0, *, elements: int = 4, **values: Any) -> Comparison:
    """A pair whose relative L2 error is known to the digit; nothing of it is out of tolerance by elements."""
    side = describe(np.full(4, rms, np.float32))
    side = dataclasses.replace(side, rms=rms, elements=elements, dtype=values.pop("dtype", "float32"))
    sqnr = -20 * math.log10(error) if error else math.inf
    given = {"base": side, "target": side, "shapes_match": True, "mismatched": 0, "max_abs": error * rms,
             "mean_abs": 0.0, "sqnr_db": sqnr, "required_atol": 0.0}  # fmt: skip
    return Comparison(**{**given, **values})


@pytest.mark.parametrize(
    ("error", "atol", "rtol", "status"),
    [
        # HIDDEN: an atol above the tensor itself lets zeros pass; below 1 % of error the tensor is right all the same
        (0.0101, 2.0, 1e-4, Status.INCONCLUSIVE), (0.0099, 2.0, 1e-4, Status.PASS),
        (0.0101, 1.0, 1e-4, Status.PASS), (0.0101, 1.01, 1e-4, Status.INCONCLUSIVE),  # atol against the RMS
        (0.0101, 2.0, 0.02, Status.PASS), (0.0201, 2.0, 0.02, Status.INCONCLUSIVE),  # a larger rtol that was asked for
    ],
)  # fmt: skip
def test_an_atol_that_lets_zeros_pass_proves_nothing(error: float, atol: float, rtol: float, status: Status) -> None:
    assert decide_status(numbers_of(error), Tolerance(atol=atol, rtol=rtol))[0] is status


def test_of_a_statistic_that_is_within_rtol_an_atol_hides_nothing() -> None:
    wanted = Tolerance(check_error_stat="mean", atol=2.0)
    for relative, status in ((1e-4, Status.PASS), (2e-4, Status.INCONCLUSIVE)):
        assert decide_status(numbers_of(0.5, stat_abs=0.1, stat_rel=relative), wanted)[0] is status


def judged_by(allowed: float, numbers: Comparison, **values: Any) -> Status:
    row = Row(**{"index": 0, "op_type": "X", "name": "x", "status": Status.PASS, "comparison": numbers, **values})
    return judged_row(row, Tolerance(given=False), allowed=allowed).status


@pytest.mark.parametrize(
    ("numbers", "status"),
    [
        (numbers_of(0.01), Status.PASS), (numbers_of(0.0100001), Status.FAIL),  # up to the bound, and not beyond
        (numbers_of(0.5, mismatched=0, max_abs=0), Status.PASS),  # equal in every element
        (numbers_of(0.5, mismatched=0, max_abs=1.0), Status.FAIL),  # within the elements' tolerance alone
        (numbers_of(0.001, dtype="int64", mismatched=2), Status.FAIL),  # whole numbers have no rounding
        (numbers_of(0.001, mismatched=2), Status.PASS),
        (numbers_of(0.001, shapes_match=False, mismatched=None), Status.FAIL),
        (numbers_of(0.001, apart=1, mismatched=1), Status.FAIL),
        (numbers_of(0.5, elements=0), Status.INCONCLUSIVE),
        (numbers_of(0.001, sqnr_db=None, mismatched=1), Status.FAIL),
    ],
)
def test_what_the_arithmetic_must_lose_passes(numbers: Comparison, status: Status) -> None:
    assert judged_by(0.01, numbers) is status


@pytest.mark.parametrize(
    ("base", "held", "passes"),
    [
        # MASK: beyond 1e18 a number means "never"; CLAMPED: the least that a converter puts in its place
        (-1.1e18, -65504.0, True), (-0.9e18, -65504.0, False), (-3e38, -1.01e4, True), (-3e38, -0.99e4, False),
    ],
)  # fmt: skip
def test_a_mask_is_beyond_every_score_on_both_sides(base: float, held: float, passes: bool) -> None:
    numbers = compare(np.float32([base, 1.0]), np.float32([held, 1.0]), Tolerance(given=False))
    own = Introduced(name="x", method="isolated", elements=2, rel_l2=0.0, inherited=0.0)
    assert (judged_by(0.01, numbers, introduced=own) is Status.PASS) is passes
    infinite = compare(np.float32([base, 1.0]), np.float32([-np.inf, 1.0]), Tolerance(given=False))
    assert (judged_by(0.01, infinite) is Status.PASS) is (abs(base) > 1e18)
    clamped = compare(np.float32([-np.inf, 1.0]), np.float32([held, 1.0]), Tolerance(given=False))
    assert (judged_by(0.01, clamped) is Status.PASS) is (abs(held) > 1e4)


@pytest.mark.parametrize("born", [{"born_nan": 1}, {"born_inf": 1}])
def test_what_gave_birth_to_a_nan_has_no_mask_for_an_excuse(born: dict[str, int]) -> None:
    numbers = compare(np.float32([-3e38, 1.0]), np.float32([-65504.0, 1.0]), Tolerance(given=False))
    own = Introduced(name="x", method="isolated", elements=2, rel_l2=0.0, inherited=0.0)
    assert judged_by(0.01, numbers, introduced=own) is Status.PASS
    assert judged_by(0.01, numbers, introduced=dataclasses.replace(own, **born)) is Status.FAIL


def test_validating_adds_its_reason_only_to_what_had_passed() -> None:
    wanted = Tolerance(given=False)
    numbers = compare(np.float32([1.0, 2.0, NAN]), np.float32([1.0, 9.0, NAN]), wanted)
    row = judged_row(Row(index=0, op_type="X", name="x", status=Status.PASS, comparison=numbers), wanted, allowed=0.01)
    assert row.status is Status.FAIL
    again = judged_row(row, wanted, allowed=0.01, validate=True)
    assert again.reason == row.reason != row.non_finite


@pytest.mark.parametrize(
    ("base", "target", "broken"),
    [
        ([1e20, -3e20, 2.0, 5e19], [INF, -INF, 2.0, INF], True),  # results of either sign
        ([1e20, 3e20, 2e20, 5e19], [INF, INF, INF, INF], True),  # and of one: spread out, as no mask is
        ([-2e20, -3e20, -4e20, -1e21], [-INF, -INF, -INF, -INF], True),
        ([-3.4e38, 1.0, -3.4e38, 2.0], [-INF, 1.0, -INF, 2.0], False),
        ([-1e30, -2e30, -1e30, 0.5], [-INF, -INF, -INF, 0.5], False),  # two masks, added
        ([1e30, 0.0, 1e30, 0.0], [INF, 0.0, INF, 0.0], False),  # to be subtracted
    ],
)
def test_results_beyond_float32s_middle_are_no_mask(base: list[float], target: list[float], broken: bool) -> None:
    wanted = Tolerance(given=False)
    assert is_broken(compare(np.float32(base), np.float32(target), wanted)) is broken


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("by_kernel", [True, False])
def test_ids_are_equal_or_not(dtype: str, by_kernel: bool) -> None:
    """Without a tolerance nothing that counts or points may be off, however large it is; with one, that decides."""
    base = np.arange(40_000, 40_000 + 16, dtype=dtype)
    target = base + np.array([1] + [0] * 15, dtype=dtype)
    for given, status in ((False, Status.FAIL), (True, Status.PASS)):
        tolerance = Tolerance(given=given)
        counted = compare(base, target, tolerance if by_kernel else Tolerance())
        row = Row(index=0, op_type="ArgMax", name="ids", status=Status.PASS, comparison=counted, is_output=True)
        assert judged_row(row, tolerance, allowed=0.1).status is status
        same = dataclasses.replace(row, comparison=compare(base, base, tolerance))
        assert judged_row(same, tolerance, allowed=0.1).status is Status.PASS
    assert compare(base, target, Tolerance(given=False)).mismatched == 1


def shaped(base: tuple[int, ...], target: tuple[int, ...], **values: Any) -> Row:
    numbers = compare(np.ones(base, np.float32), np.ones(target, np.float32), Tolerance())
    given = {"index": 0, "op_type": "X", "name": "x", "status": Status.PASS, "target_name": "r", **values}
    return judged_row(Row(comparison=numbers, **given), Tolerance())


@pytest.mark.parametrize(
    ("base", "target", "values", "status"),
    [
        ((2, 1, 3), (3, 2), {}, Status.INCONCLUSIVE), ((4, 2, 3), (4, 3, 2), {}, Status.INCONCLUSIVE),
        ((2, 3), (2, 4), {}, Status.FAIL), ((2, 3), (3,), {}, Status.FAIL),
        ((2, 3), (3, 2), {"target_name": "x"}, Status.FAIL), ((2, 3), (3, 2), {"target_name": ""}, Status.FAIL),
        ((2, 3), (3, 2), {"is_output": True}, Status.FAIL),  # the model itself says how an output lies
    ],
)
def test_an_inner_tensor_that_may_be_turned_is_not_known_to_be_wrong(
    base: tuple[int, ...], target: tuple[int, ...], values: dict[str, Any], status: Status
) -> None:
    row = shaped(base, target, **values)
    assert (row.status, row.reason.code) == (status, "turned" if status is Status.INCONCLUSIVE else "shape")


def slices_of(*places: tuple[int, int], lost: bool = True, size: float = 0.5) -> tuple[Slices, ...]:
    return tuple(
        Slices(axis=1, first=first, last=last, of=32, error=0.25, size=size, spread=0.1, peak=0.6 + first,
               largest=90.0, lost=lost)
        for first, last in places
    )  # fmt: skip


def test_a_lost_slice_fails_an_output_that_is_right_as_a_whole() -> None:
    for given in (True, False):
        for slices, status in ((slices_of((3, 3)), Status.FAIL), (slices_of((3, 3), lost=False), Status.PASS)):
            numbers = numbers_of(0.001, mismatched=0, slices=slices)
            row = Row(index=0, op_type="X", name="x", status=Status.PASS, comparison=numbers, is_output=True)
            told = judged_row(row, Tolerance(given=given), allowed=0.01)
            assert told.status is status
            assert (told.reason.code == "slices_lost") is (status is Status.FAIL)
    numbers = numbers_of(0.001, slices=slices_of((1, 1)))
    row = Row(index=0, op_type="X", name="x", status=Status.PASS, comparison=numbers)
    assert as_expected(row, 0.01).status is Status.FAIL


def test_which_slices_are_lost_is_told_of_the_largest() -> None:
    told = lost_slice_arguments(numbers_of(0.001, slices=slices_of((1, 1), (4, 6), (2, 2))))
    wanted = {"slices": "1, 4-6, 2", "axis": 1, "count": 5, "all": 32, "part": 0.5, "peak": 4.6, "largest": 90.0}
    assert told == {**wanted, "step": 0.0, "spread": told["spread"]}, "not for standing on steps"
    many = lost_slice_arguments(numbers_of(0.001, slices=slices_of(*((n, n) for n in range(0, 12, 2)))))
    assert many["slices"].endswith("…")
    assert many["count"] == 6
    four = lost_slice_arguments(numbers_of(0.001, slices=slices_of(*((n, n) for n in range(0, 8, 2)))))
    assert four["slices"] == "0, 2, 4, 6"
    assert lost_slice_arguments(numbers_of(0.001, slices=slices_of((1, 1), size=0.0)))["part"] == 1.0


@pytest.mark.parametrize(
    ("base", "target", "values", "passes"),
    [
        (-3e38, -65504.0, {}, True), (3e38, 65504.0, {}, True), (3e38, -65504.0, {}, False),
        (-3e38, -9e3, {}, False), (-1e17, -65504.0, {}, False),
        (-3e38, -65504.0, {"inputs": ("a",)}, False),  # what it was given is not known to be right
    ],
)
def test_a_tensor_that_is_a_mask_everywhere_has_nothing_else(
    base: float, target: float, values: dict[str, Any], passes: bool
) -> None:
    numbers = compare(np.full(4, base, np.float32), np.full(4, target, np.float32), Tolerance(given=False))
    assert (judged_by(0.01, numbers, **values) is Status.PASS) is passes
    unknown = Introduced(name="x", method="isolated", elements=4)
    assert (judged_by(0.01, numbers, introduced=unknown, **values) is Status.PASS) is passes
    wrong = Introduced(name="x", method="isolated", elements=4, rel_l2=0.5, inherited=0.0)
    assert judged_by(0.01, numbers, introduced=wrong, **values) is Status.FAIL


def test_what_has_no_numbers_or_was_not_compared_is_as_it_was() -> None:
    given: dict[str, Any] = {"index": 0, "op_type": "X", "name": "x"}
    for row in (
        Row(status=Status.PASS, **given), Row(status=Status.NOT_COMPARED, comparison=numbers_of(0.5), **given),
    ):  # fmt: skip
        assert judged_row(row, Tolerance(given=False), allowed=0.01) is row
        assert as_expected(row, 0.01) is row


@pytest.mark.parametrize(
    ("op_type", "output", "rounded", "status"),
    [
        ("QuantizeLinear", False, False, Status.PASS), ("QuantizeLinear", True, False, Status.FAIL),
        ("ArgMax", False, False, Status.FAIL), ("ArgMax", True, True, Status.PASS),
    ],
)
def test_whole_numbers_that_stand_for_others_are_judged_by_their_size(
    op_type: str, output: bool, rounded: bool, status: Status
) -> None:
    numbers = compare(np.int8([100, 90]), np.int8([100, 91]), Tolerance(given=False))
    row = Row(index=0, op_type=op_type, name="x", status=Status.PASS, comparison=numbers, is_output=output)
    judged_one = judged_row(row, Tolerance(given=False), allowed=0.02, rounded=rounded)
    assert judged_one.status is status
    if status is Status.FAIL:
        assert judged_one.reason.code == "elements"
    within = dataclasses.replace(row, comparison=dataclasses.replace(numbers, mismatched=0))
    told = judged_row(within, Tolerance(given=False), allowed=0.02, rounded=rounded)
    assert told.status is status
    assert status is Status.PASS or (told.reason.code, told.reason.args["most"]) == ("whole", 1)


@pytest.mark.parametrize(
    ("error", "rtol", "code"),
    [(0.0101, 1.0, "hidden_rtol"), (0.0101, 0.99, ""), (0.0099, 1.0, ""), (0.5, 2.0, "hidden_rtol")],
)
def test_an_rtol_of_one_or_more_lets_zeros_pass_for_any_tensor(error: float, rtol: float, code: str) -> None:
    """However far below the tensor's size atol is."""
    status, reason = decide_status(numbers_of(error), Tolerance(rtol=rtol, atol=0.0))
    assert (status, reason.code) == (Status.INCONCLUSIVE if code else Status.PASS, code)


def test_where_the_relative_statistic_is_met_a_loose_absolute_one_hides_nothing() -> None:
    """Also where it is 0: the median of what is all but the same."""
    loose = {"check_error_stat": "median", "atol": 5.0, "rtol": 1e-3}
    assert judged([1.0, 1.0, 1.0], [1.0, 1.0, 9.0], **loose) == (Status.PASS, "")
    assert judged([1.0, 1.0, 1.0], [1.0, 1.5, 9.0], **loose)[0] is UNKNOWN


@pytest.mark.parametrize(
    ("base", "held", "passes"),
    [
        (-3e38, -1e4, True), (-3e38, -9999.0, False), (3e38, 1e4, True), (-3e38, 1e4, False), (-0.9e18, -1e4, False),
        (-1e18, -1e4, False), (-1.1e18, -1e4, True),
    ],
)
def test_what_reads_nothing_and_is_a_mask_everywhere_has_nothing_else(base: float, held: float, passes: bool) -> None:
    numbers = compare(np.float32([base, base]), np.float32([held, held]), Tolerance(given=False))
    assert (judged_by(0.01, numbers) is Status.PASS) is passes
    assert judged_by(0.01, numbers, inputs=("x",)) is not Status.PASS
    mixed = compare(np.float32([base, 1.0]), np.float32([held, 1.0]), Tolerance(given=False))
    assert judged_by(0.01, mixed) is not Status.PASS


@pytest.mark.parametrize("known", [{"stat_abs": 0.0, "stat_rel": None}, {"stat_abs": None, "stat_rel": 0.0}])
def test_a_statistic_of_which_one_part_is_missing_was_not_computed(known: dict[str, float | None]) -> None:
    status, reason = decide_status(numbers_of(0.5, **known), Tolerance(check_error_stat="mean"))
    assert (status, reason.code) == (Status.FAIL, "not_computed")
