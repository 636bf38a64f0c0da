"""Who is accused, from a table: graphs of a few operators with the numbers that an explanation would have measured.

No engine runs here. Each constant that decides stands with a case on both sides of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from report_factory import make_row

from precision_debug.explain import causes, culprits
from precision_debug.explain.broken_outputs import find_hidden_overflow
from precision_debug.explain.criteria import LEAST_PART, MATTERS, PART
from precision_debug.explain.culprits import (
    find_first_failing,
    find_suspicious_sinks,
    is_non_finite_in_target_alone,
    list_candidates,
    list_early_suspects,
    rank,
)
from precision_debug.explain.effects import Sink
from precision_debug.explain.introduced import Alone
from precision_debug.explain.subject import Subject
from precision_debug.explain.units import BEYOND, LEAST, MOST, error_worth_failing, is_suspicious
from precision_debug.numbers.born import compute_finite_l2
from precision_debug.records import Comparison, Effect, Introduced, Row, Status, TensorMeta, TensorStats

UNIT = 2.0**-11  # of float16
GRAPH = {"a": (), "b": ("a",), "c": ("b",), "y": ("c",)}


@pytest.fixture(autouse=True)
def nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an error grows to is what the table says: no baseline is there to be run with it."""

    def grows(subject: Any, _alone: Any, name: str, at: str) -> float:
        return (compute_finite_l2(subject.row_of[at]) or 0.0) / (compute_finite_l2(subject.row_of[name]) or math.inf)

    monkeypatch.setattr(causes, "measure_growth", grows)
    monkeypatch.setattr(causes, "find_noise", lambda *_: {})


class Nothing:
    """Of what was kept of a tensor: nothing, or these arrays."""

    def __init__(self, names: Any = (), arrays: Mapping[str, Any] | None = None) -> None:
        self._names, self._arrays = set(names), arrays or {}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def get(self, name: str) -> Any:
        return self._arrays.get(name)

    def close(self) -> None:
        """Nothing is open."""


def stats(**values: Any) -> TensorStats:
    given = {"dtype": "float16", "shape": (4,), "elements": 4, "min": -1.0, "max": 1.0, "rms": 1.0, **values}
    return TensorStats(**given)


def row(name: str, error: float, **values: Any) -> Row:
    base = stats(dtype="float32", **values.pop("base", {}))
    target = stats(**values.pop("target", {}))
    numbers = Comparison(
        base=base, target=target, shapes_match=True, sqnr_db=-20 * math.log10(error) if error else math.inf,
        fp16_overflow=values.pop("fp16_overflow", 0),
    )  # fmt: skip
    given = {"index": 0, "op_type": "Add", "status": Status.FAIL, "target_name": name, "comparison": numbers, **values}
    return Row(name=name, **given)


def subject_of(
    errors: Mapping[str, Any], graph: Mapping[str, tuple[str, ...]] = GRAPH, types: Mapping[str, str] | None = None,
    **values: Any,
) -> Subject:  # fmt: skip
    """errors: relative L2 by tensor, or a Row. y is the output."""
    types = types or {}
    rows = [one if isinstance(one, Row) else row(name, one, op_type=types.get(name, "Add"), is_output=name == "y")
            for name, one in errors.items()]  # fmt: skip
    tensors = [TensorMeta(name=name, op_type=types.get(name, "Add"), node=name, inputs=inputs, dtype="float32")
               for name, inputs in graph.items()]  # fmt: skip
    targets = {name: TensorMeta(name=name, op_type="Add", dtype="float16") for name in graph}
    replacer = SimpleNamespace(operator=lambda _name: None, replaces=True)
    side: Any = SimpleNamespace(arithmetic="", replacer=replacer)
    return Subject(**{"baseline": side, "target": side, "feeds": {}, "rows": rows, "tensors": tensors,
                      "targets": targets, "precision": "float16", **values})  # fmt: skip


def alone_of(own: Mapping[str, Any]) -> Alone:
    """own: units of rounding that each operator added, or a whole Introduced."""
    found = {
        name: one if isinstance(one, Introduced) else
        Introduced(name=name, method="isolated", elements=4, rel_l2=one * UNIT, unit=UNIT, units=one)
        for name, one in own.items()
    }  # fmt: skip
    kept: Any = Nothing(found)
    return Alone(method="isolated", found=found, exact=kept, wrong=kept)


def sink(error: float, name: str = "y", **values: Any) -> Sink:
    return Sink(**{"name": name, "squared": error**2, "size": 1.0, "elements": 4, "is_output": True, **values})


def accused(
    shares: Mapping[str, Any], units: Mapping[str, Any], errors: Mapping[str, Any] | None = None, *,
    out: float = 0.09, sinks: tuple[Sink, ...] = (), first: str = "", **values: Any,
) -> dict[str, Any]:  # fmt: skip
    """Who is named, with what was found of it. shares: of the squared error at y, or effects."""
    found = subject_of(errors or {"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": out}, **values)
    effects = {name: one if isinstance(one, list) else [Effect(at="y", share=one)] for name, one in shares.items()}
    given = dict.fromkeys(effects, 1.0) | dict(units)
    sinks = sinks or (sink(out),)
    named = rank(found, alone_of(given), effects, sinks, first, find_suspicious_sinks(found, sinks, {}))
    return {one.name: one for one in named}


@pytest.mark.parametrize(
    ("units", "share", "named"),
    [
        # FAR: an operator's own error far above one rounding is accused from MATTERS on, ordinary rounding from HALF on
        (8.01, 0.021, True), (7.99, 0.021, False), (8.01, 0.019, False), (1000.0, 0.5, True), (1000.0, 0.0, False),
        (7.99, 0.5, True), (7.99, 0.49, False), (1.0, 0.51, True), (1.0, 0.16, False),
    ],
)  # fmt: skip
def test_far_above_one_rounding_or_over_half_of_the_error(units: float, share: float, named: bool) -> None:
    assert (list(accused({"a": share}, {"a": units})) == ["a"]) is named


@pytest.mark.parametrize(
    ("out", "share", "named"),
    [
        # BEYOND units of rounding, about 0.0117 of float16, one that is far above a rounding is accused from MATTERS on
        (BEYOND * UNIT * 1.01, 0.1, True), (BEYOND * UNIT * 0.99, 0.1, False), (BEYOND * UNIT * 0.99, 0.5, True),
        (2.9 * UNIT, 0.99, False),  # that is nobody's
    ],
)  # fmt: skip
def test_how_far_an_output_must_be_off(out: float, share: float, named: bool) -> None:
    assert bool(accused({"a": share}, {"a": 100.0}, out=out)) is named


def test_an_operator_that_makes_all_of_a_healthy_output_is_accused_of_another() -> None:
    """y is off by much, and z by a rounding, all of which is the same operator's: it was looked at z, and let go."""
    graph = {"a": (), "y": ("a",), "z": ("a",)}
    errors = {"a": 1e-4, "y": 0.09, "z": row("z", 1e-4, is_output=True)}
    shares = {"a": [Effect(at="z", share=1.0), Effect(at="y", share=0.85)]}
    found = accused(shares, {"a": 100.0}, errors, graph=graph, sinks=(sink(1e-4, "z"), sink(0.09)))
    assert found["a"].at == "y"
    assert found["a"].share == 0.85


def test_an_error_of_no_account_is_not_far_however_many_roundings_it_is() -> None:
    """LEAST: float32 sums in another order differ by so much."""
    own = Introduced(name="a", method="isolated", elements=4, rel_l2=LEAST * 0.9, unit=2.0**-24, units=1e3)
    assert not accused({"a": 0.3}, {"a": own})
    own = Introduced(name="a", method="isolated", elements=4, rel_l2=LEAST * 1.1, unit=2.0**-24, units=1e3)
    assert accused({"a": 0.3}, {"a": own})


def test_a_decision_that_flips_is_far() -> None:
    own = Introduced(name="a", method="isolated", elements=4, flips=1)
    assert accused({"a": 0.1}, {"a": own})["a"].cause == "flips"
    assert not accused({"a": 0.1}, {"a": Introduced(name="a", method="isolated", elements=4, flips=0)})


TWO = {"a": (), "b": (), "y": ("a", "b")}


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        # PART: two authors of ordinary rounding that one operator makes large, together over HALF
        (0.4, 0.16, {"a", "b"}), (0.4, 0.14, {"a"}), (0.16, 0.4, {"a", "b"}), (0.3, 0.19, set()),
        (0.4, PART, {"a", "b"}),
        # LEAST_PART: below it an author is none of several, and does not count to their sum
        (0.46, 0.051, {"a"}), (0.46, 0.049, set()), (0.46, LEAST_PART, {"a"}),
    ],
)  # fmt: skip
def test_several_whose_rounding_one_operator_amplifies(first: float, second: float, named: set[str]) -> None:
    errors = {"a": 1e-4, "b": 1e-4, "y": 0.09}
    assert set(accused({"a": first, "b": second}, {}, errors, graph=TWO)) == named


def test_who_is_too_little_to_be_accused_is_kept_with_the_others() -> None:
    errors = {"a": 1e-4, "b": 1e-4, "y": 0.09}
    found = accused({"a": 0.45, "b": 0.1}, {}, errors, graph=TWO)
    assert set(found["a"].keep) == {"a", "b", "y"}
    assert (found["a"].cause, found["a"].amplifier) == ("amplified", "y")
    both = accused({"a": 0.4, "b": 0.3}, {}, errors, graph=TWO)
    assert set(both["a"].keep) == {"a", "y"}  # the other is accused itself
    alone = accused({"a": 0.55, "b": 0.1}, {}, errors, graph=TWO)
    assert set(alone["a"].keep) == {"a", "y"}


@pytest.mark.parametrize(("growth", "named"), [(33.0, {"a", "b"}), (31.0, set())])
def test_two_amplifiers_in_a_row_count_together_where_both_are_strong(growth: float, named: set[str]) -> None:
    """STRONG: each is amplified by an operator of its own, and neither author makes over half."""
    graph = {"a": (), "b": (), "p": ("a",), "q": ("b",), "y": ("p", "q")}
    errors = {"a": 1e-4, "b": 1e-4, "p": growth * 1e-4, "q": growth * 1e-4, "y": growth * 1e-4}
    found = accused({"a": 0.3, "b": 0.3}, {}, errors, graph=graph)
    assert set(found) == named


@pytest.mark.parametrize(
    ("factor", "own", "amplifier"),
    [
        (4.1, 0.0, "c"), (3.9, 0.0, "y"),  # less than four times is not an amplifier: then where it shows
        (10.0, 0.29, "c"), (10.0, 0.31, "y"),  # what it lost itself it did not amplify
    ],
)  # fmt: skip
def test_what_makes_an_error_much_larger_is_named_beside_its_author(
    factor: float, own: float, amplifier: str
) -> None:
    errors = {"a": 5e-3, "b": 5e-3, "c": factor * 5e-3, "y": factor * 5e-3}
    lost = Introduced(name="c", method="isolated", elements=4, rel_l2=own * factor * 5e-3, unit=UNIT, units=1.0)
    found = culprits.find_largest_growth(subject_of(errors), alone_of({"a": 1.0, "c": lost}), {"b", "c", "y"})
    assert found == ("c" if amplifier == "c" else "")


@pytest.mark.parametrize(("before", "named"), [(0.26, "b"), (0.24, "c")])
def test_of_nearly_equal_growth_the_first_in_execution_order_is_the_amplifier(before: float, named: str) -> None:
    """SEVERAL: a quarter of the largest growth."""
    errors = {"a": 1e-5, "b": 40 * before * 1e-5, "c": 1600 * before * 1e-5, "y": 1600 * before * 1e-5}
    assert culprits.find_largest_growth(subject_of(errors), alone_of({}), {"b", "c", "y"}) == named


def test_a_nan_that_is_born_and_gets_out_is_accused_whatever_its_share() -> None:
    own = Introduced(name="a", method="isolated", elements=4, born_nan=1)
    poisoned = [Effect(at="y", share=0.0, non_finite=4)]
    assert accused({"a": poisoned}, {"a": own}, sinks=(sink(0.09, non_finite=4),))
    assert not accused({"a": [Effect(at="y", share=0.0)]}, {"a": own}, sinks=(sink(0.09, non_finite=4),))
    finite = Introduced(name="a", method="isolated", elements=4, rel_l2=UNIT, units=1.0)
    assert not accused({"a": poisoned}, {"a": finite}, sinks=(sink(0.09, non_finite=4),))


def test_what_poisons_comes_first_then_the_largest_share_then_execution_order() -> None:
    inf = Introduced(name="c", method="isolated", elements=4, born_inf=1)
    found = accused(
        {"a": 0.6, "b": 0.9, "c": [Effect(at="y", share=0.1, non_finite=1)]}, {"c": inf, "a": 9.0, "b": 9.0},
        sinks=(sink(0.09, non_finite=1),),
    )  # fmt: skip
    assert list(found) == ["c", "b", "a"]
    assert list(accused({"b": 0.62, "a": 0.58}, {"a": 9.0, "b": 9.0})) == ["a", "b"]  # about as much


@pytest.mark.parametrize(
    ("shares", "named"),
    [((0.72, 0.74, 0.81), "abc"), ((0.42, 1.0, 0.5), "bca"), ((0.1, 0.3, 0.9), "cba"), ((0.74, 0.76, 0.4), "abc")],
)
def test_of_overflows_in_a_row_the_first_is_named_first(shares: tuple[float, ...], named: str) -> None:
    """Each breaks elements of its own; whoever breaks half as many as any is mended first where it runs first."""
    own = {name: Introduced(name=name, method="isolated", elements=4, born_inf=1) for name in "abc"}
    effects = {name: [Effect(at="y", share=share, non_finite=1)] for name, share in zip("abc", shares, strict=True)}
    assert "".join(accused(effects, own, sinks=(sink(0.09, non_finite=4),))) == named


def test_an_error_that_the_outputs_absorb_is_nobodys() -> None:
    """One that shows at the first failing tensor before a healthy output."""
    sinks = (sink(0.09, "b", is_output=False), sink(1e-5))
    effects = {"a": [Effect(at="b", share=0.9), Effect(at="y", share=0.0)]}
    assert not accused(effects, {"a": 100.0}, sinks=sinks)
    alone = {"a": [Effect(at="b", share=0.9)]}
    assert accused(alone, {"a": 100.0}, sinks=(sink(0.09, "b", is_output=False),))  # no output was seen


def test_where_nobody_stands_out_at_an_output_those_of_the_first_failing_tensor_are_named() -> None:
    effects = {"a": [Effect(at="b", share=0.9), Effect(at="y", share=0.1)]}
    sinks = (sink(0.09, "b", is_output=False), sink(0.09))
    errors = {"a": 1e-4, "b": 0.09, "c": 0.09, "y": 0.09}
    found = accused(effects, {"a": 1.0}, errors, sinks=sinks, first="b")
    assert (found["a"].at, found["a"].fails_first) == ("b", "b")
    assert not accused(effects, {"a": 1.0}, errors, sinks=sinks, first="")


def test_one_operator_of_a_loop_is_one_culprit_with_the_shares_of_all_iterations() -> None:
    graph = {"s": (), "x@0": ("s",), "x@1": ("x@0",), "x@2": ("x@1",), "y": ("x@2",)}
    errors = {"s": 1e-4, "x@0": 1e-4, "x@1": 1e-4, "x@2": 1e-4, "y": 0.09}
    found = accused({"x@0": 0.2, "x@1": 0.2, "x@2": 0.2}, {}, errors, graph=graph)
    assert list(found) == ["x@0"]
    assert found["x@0"].share == pytest.approx(0.6)
    late = accused({"x@0": 0.001, "x@1": 0.3, "x@2": 0.3}, {}, errors, graph=graph)
    assert list(late) == ["x@1"]  # the first that matters
    tenth = accused({"x@0": 0.03, "x@1": 0.3, "x@2": 0.3}, {}, errors, graph=graph)
    assert list(tenth) == ["x@1"]
    early = accused({"x@0": 0.05, "x@1": 0.4, "x@2": 0.4}, {}, errors, graph=graph)
    assert list(early) == ["x@0"]  # a tenth of the largest is enough
    turned = accused({"x@2": 0.2, "x@1": 0.2, "x@0": 0.2}, {}, errors, graph=graph)
    assert list(turned) == ["x@0"]  # in whatever order they were tried
    whole = accused({"x@0": 0.6, "x@1": 0.6}, {}, errors, graph=graph)
    assert whole["x@0"].share == pytest.approx(1.2)  # as it was measured


def test_a_step_that_fell_to_the_other_side_is_nobodys() -> None:
    """Where both sides hold the same integers, and nothing else is rounded."""
    found = subject_of({"a": 1e-4, "y": 0.09})
    found.__dict__["same_steps"] = True
    effects = {"a": [Effect(at="y", share=0.9)]}
    assert not rank(found, alone_of({"a": 7.9}), effects, [sink(0.09)], "", {"y"})
    assert rank(found, alone_of({"a": 8.1}), effects, [sink(0.09)], "", {"y"})


def test_tf32_is_one_switch_for_all_products() -> None:
    own = {"a": 0.3, "b": 0.2}
    kept = [
        culprits.Culprit(
            name=name, node="", op_types=("MatMul",), cause="tf32", evidence={"units": units, "count": 1}
        )
        for name, units in own.items()
    ]
    other = culprits.Culprit(name="c", node="", op_types=("Add",), cause="coarse")
    found = culprits._keep_one_of_a_switch([kept[0], other, kept[1]])
    assert [(one.name, one.evidence.get("count")) for one in found] == [("a", 2), ("c", None)]
    assert culprits._keep_one_of_a_switch([kept[0], other]) == (kept[0], other)


@pytest.mark.parametrize(
    ("error", "values", "first"),
    [
        (BEYOND * UNIT * 1.01, {}, "b"), (BEYOND * UNIT * 0.99, {}, ""),
        (1e-5, {"target": {"nan": 1}}, "b"), (1e-5, {"target": {"inf": 1}}, "b"),
        (1e-5, {"target": {"nan": 1}, "base": {"nan": 1}}, ""),
        (1e-5, {"target": {"inf": 1}, "base": {"min": -1e19}}, ""),  # a mask that became -inf
        (0.5, {"op_type": "Input"}, "y"), (0.5, {"op_type": "Constant"}, "y"),
        (0.5, {"op_type": "Input", "target": {"nan": 1}}, "b"),
    ],
)  # fmt: skip
def test_the_first_tensor_out_of_bounds(error: float, values: dict[str, Any], first: str) -> None:
    later = 0.5 if first == "y" else 1e-5
    subject = subject_of({"y": later, "b": row("b", error, **values)})
    assert find_first_failing(subject) == first
    if values.get("op_type") is None:
        assert is_non_finite_in_target_alone(subject.row_of["b"]) is (first == "b" and error < 1e-4)


@pytest.mark.parametrize(
    ("one", "expected", "wanted"),
    [
        # LOOK: three units; LOOK_TIMES: one and a half times the prediction
        (sink(3.01 * UNIT), None, True), (sink(2.99 * UNIT), None, False),
        (sink(1.51 * UNIT), UNIT, True), (sink(1.49 * UNIT), UNIT, False),
        (sink(0.99 * UNIT), UNIT / 10, False),  # less than one rounding is nobody's
        (sink(0.0, non_finite=1), None, True), (sink(0.0, flips=1), None, True), (sink(0.0, flips=0), None, False),
        (sink(0.0, squared=0.0, size=0.0), None, False),
    ],
)  # fmt: skip
def test_whose_author_is_looked_for(one: Sink, expected: float | None, wanted: bool) -> None:
    known = {} if expected is None else {"y": expected}
    assert bool(find_suspicious_sinks(subject_of({"a": 1e-4, "y": 0.1}), [one], known)) is wanted


def test_where_the_users_tolerance_failed_every_output_with_an_error_is_asked_about() -> None:
    failed = subject_of({"a": 1e-4, "y": 0.1}, fails=True)
    assert find_suspicious_sinks(failed, [sink(1e-7)], {}) == {"y"}
    assert find_suspicious_sinks(failed, [sink(1e-7, is_output=False), sink(0.0, "z")], {}) == set()


def test_sums_of_float32_in_another_order_are_nobodys() -> None:
    """LOOK_LEAST, whatever the unit."""
    assert is_suspicious(1.1e-5, 2.0**-24, None)
    assert not is_suspicious(0.9e-5, 2.0**-24, None)


def test_what_no_answer_passes_with_is_asked_about_however_few_bits() -> None:
    """MOST, where one rounding of four bits is as large."""
    assert is_suspicious(1.1 * MOST, 0.16, 0.5)
    assert not is_suspicious(0.9 * MOST, 0.16, 0.5)


@pytest.mark.parametrize(("unit", "error"), [(UNIT, 3 * UNIT), (2.0**-24, LEAST), (0.5, MOST)])
def test_what_a_culprit_makes_fails_a_run_from_there(unit: float, error: float) -> None:
    assert error_worth_failing(unit) == pytest.approx(error)


SMALL = 5 * UNIT  # below BEYOND: an error that nobody may have to answer for


@pytest.mark.parametrize(
    ("out", "shares", "named"),
    [
        # ALONE: without it the error must be a third, 8/9 of its square
        (SMALL, {"a": 0.9, "b": 0.2}, ["a"]), (SMALL, {"a": 0.88, "b": 0.2}, []),
        # FAR: or it makes eight times as much as any other, of an error of more than LOOK units
        (SMALL, {"a": 0.6, "b": 0.074}, ["a"]), (SMALL, {"a": 0.6, "b": 0.076}, []),
        (SMALL, {"a": 0.49, "b": 0.01}, []),
    ],
)  # fmt: skip
def test_of_a_small_error_one_operator_must_make_nearly_all(
    out: float, shares: dict[str, float], named: list[str]
) -> None:
    errors = dict.fromkeys("abc", out / 2) | {"y": out}  # nothing amplifies
    assert list(accused(shares, {}, errors, out=out)) == named


@pytest.mark.parametrize(("felt", "named"), [(0.34, ["a"]), (0.32, [])])
def test_the_author_of_a_large_error_before_a_small_one_is_named_where_it_is_felt(
    felt: float, named: list[str]
) -> None:
    """A third (DROP) of the squared error at an output that is only looked at."""
    effects = {"a": [Effect(at="b", share=0.95), Effect(at="y", share=felt)]}
    sinks = (sink(0.09, "b", is_output=False), sink(SMALL))
    errors = {"a": 1e-4, "b": 0.09, "c": 0.09, "y": SMALL}
    assert list(accused(effects, {"a": 1.0}, errors, sinks=sinks, first="b")) == named


def test_candidates_are_those_with_the_most_units_beyond_far_then_the_suspects_in_order() -> None:
    subject = subject_of({"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": 0.09})
    born = Introduced(name="y", method="isolated", elements=4, born_inf=1)
    alone = alone_of({"a": 7.9, "b": 8.1, "c": 100.0, "y": born})
    assert list_candidates(subject, alone, ["a", "b"]) == ["y", "c", "b", "a"]
    for order in (["a", "b"], ["b", "a"]):
        assert list_candidates(subject, alone_of({"a": 1.0, "b": 7.9}), order) == order


def test_what_only_moves_numbers_is_innocent_unless_it_did_more() -> None:
    moves = {"types": {"b": "Transpose"}}
    errors = {"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": 0.09}
    assert list_candidates(subject_of(errors, **moves), alone_of({"a": 1.0, "b": 7.9}), []) == ["a"]
    assert list_candidates(subject_of(errors, **moves), alone_of({"a": 1.0, "b": 8.1}), []) == ["b", "a"]
    flips = {"a": 1.0, "b": Introduced(name="b", method="isolated", elements=4, flips=2)}
    assert list_candidates(subject_of(errors, **moves), alone_of(flips), []) == ["a"]
    other = subject_of(errors, **moves, two_files=True)  # may move others, or elsewhere
    assert sorted(list_candidates(other, alone_of(flips), [])) == ["a", "b"]


def test_what_was_run_alone_and_has_another_shape_ends_no_explanation() -> None:
    """Heads that are grouped otherwise: the operators' results are replayed, and their rows have no numbers."""
    errors = {name: row(name, 0.5) for name in GRAPH}
    numbers = errors["a"].comparison
    assert numbers is not None
    errors["a"] = dataclasses.replace(errors["a"], comparison=dataclasses.replace(numbers, shapes_match=False))
    own = Introduced(name="a", method="replayed", elements=4, rel_l2=0.5, unit=UNIT, units=0.5 / UNIT)
    assert "a" in list_candidates(subject_of(errors), alone_of({"a": own}), [])


def test_what_gave_the_same_is_innocent() -> None:
    same = row("a", 0.0)
    assert same.comparison is not None
    same = dataclasses.replace(same, comparison=dataclasses.replace(same.comparison, identical=True))
    assert list_candidates(subject_of({"a": same, "b": 1e-4, "y": 0.09}), alone_of({"a": 99.0, "b": 1.0}), []) == ["b"]


def test_suspects_are_those_whose_readers_amplify_their_error_and_their_makers() -> None:
    errors = {"a": 1e-3, "b": 1e-3, "c": 0.5, "y": 0.5}
    assert list_early_suspects(subject_of(errors), 2) == ["b", "c"]
    assert list_early_suspects(subject_of(errors, types={"b": "Reshape"}), 3) == ["a", "b", "c"]
    assert len(list_early_suspects(subject_of(errors), 1)) == 1
    broken = subject_of({**errors, "a": row("a", 1e-3, target={"nan": 1})})
    assert list_early_suspects(broken, 1) == ["a"]


@pytest.mark.parametrize(
    ("largest", "non_finite", "named"),
    [(7e4, 1, True), (6.5e4, 1, False), (7e4, 0, False), (2e18, 1, False)],
)
def test_an_overflow_that_an_engine_hides(largest: float, non_finite: int, named: bool) -> None:
    """Beyond float16's 65504 in the baseline, before an output that is not finite; a mask is none."""
    errors = {"a": 1e-4, "b": row("b", 1e-4, base={"max": largest}, fp16_overflow=3), "c": 1e-4, "y": 0.1}
    found = find_hidden_overflow(subject_of(errors), [sink(0.1, non_finite=non_finite)])
    assert (found is not None) is named
    if found is not None:
        assert (found.name, found.cause, found.confidence, found.at) == ("b", "overflow", "ranked", "y")
        assert found.evidence == {"largest": largest, "limit": 65504.0, "count": 3}


def test_a_type_that_reaches_as_far_as_float32_hides_no_overflow() -> None:
    errors = {"a": row("a", 1e-4, base={"max": 3.4e38}), "y": row("y", 0.1, target={"dtype": "bfloat16"})}
    subject = subject_of(errors, precision="bfloat16")
    subject = subject_of(errors, precision="bfloat16", targets={
        name: TensorMeta(name=name, op_type="Add", dtype="bfloat16") for name in subject.row_of})  # fmt: skip
    assert find_hidden_overflow(subject, [sink(0.1, non_finite=1)]) is None


def test_a_culprit_says_how_it_was_measured_and_where_it_shows() -> None:
    found = accused({"a": 0.9}, {"a": 100.0})["a"]
    assert (found.confidence, found.node, found.op_types, found.at) == ("isolated", "a", ("Add",), "y")
    assert (found.units, found.share, found.fails_first, found.amplifier) == (100.0, 0.9, "y", "")
    assert accused({"a": 0.9}, {"a": 100.0}, simulation=True)["a"].confidence == "simulated"
    assert found.non_finite == 0
    inf = Introduced(name="a", method="isolated", elements=4, born_inf=1)
    broken = [Effect(at="y", share=0.75, non_finite=3)]
    assert accused({"a": broken}, {"a": inf}, sinks=(sink(0.09, non_finite=4),))["a"].non_finite == 3
    ordinary = accused({"a": 0.9}, {"a": 1.0}, {"a": 0.03, "b": 0.03, "c": 0.03, "y": 0.05}, out=0.05)["a"]
    assert ordinary.fails_first == "a"


@pytest.mark.parametrize(
    ("seen", "out", "units", "named"),
    [
        ({"y": 2.5}, 2.5, 2.5, set()),  # four operators, of which the last alone is seen
        ({"y": 3.5}, 3.5, 3.5, {"y"}),  # more than anybody may make: the stretch is where to look
        ({"y": 2.5}, 2.5, 9.0, {"y"}),  # and so it is of what no rounding of its own makes
        ({"b": 0.5, "y": 2.5}, 2.5, 2.5, {"y"}),  # two of four operators, and 98 % of the error
    ],
)
def test_a_stretch_of_the_whole_model_is_nobody(seen: Any, out: float, units: float, named: set[str]) -> None:
    found = subject_of({name: one * UNIT for name, one in seen.items()})
    effects = {name: [Effect(at="y", share=0.98 if name == "y" else 0.02)] for name in seen}
    own = alone_of({name: units if name == "y" else 0.5 for name in seen})
    assert {one.name for one in rank(found, own, effects, (sink(out * UNIT),), "", {"y"})} == named


class _Moved:
    """A product, what a Transpose shows of it with a larger error, and what is computed of that."""

    region_of: Mapping[str, Any] = MappingProxyType({})

    def __init__(self) -> None:
        errors = {"product": 0.01, "moved": 0.5, "bent": 0.5}
        self.order = {name: number for number, name in enumerate(errors)}
        self.row_of = {name: make_row(self.order[name], error, name=name) for name, error in errors.items()}

    def sources(self, name: str) -> tuple[str, ...]:
        return {"product": (), "moved": ("product",), "bent": ("moved",)}[name]

    def descendants(self, name: str) -> set[str]:
        return {"product": {"moved", "bent"}, "moved": {"bent"}, "bent": set()}[name]

    def ancestors(self, name: str) -> set[str]:
        return {one for one in self.order if name in self.descendants(one)}

    def moves_on(self, name: str) -> bool:
        return name == "moved"


class _Chain(_Moved):
    """What a recurrence makes of rounding, and an addition behind it in which that first is out of bounds."""

    def __init__(self) -> None:
        errors = {"product": 0.01, "moved": 0.0267, "bent": 0.0433}
        self.order = {name: number for number, name in enumerate(errors)}
        self.row_of = {name: make_row(self.order[name], error, name=name) for name, error in errors.items()}

    def moves_on(self, name: str) -> bool:
        return False


def test_who_enlarges_an_error_most_is_named_not_where_it_shows() -> None:
    """As seen: "amplified 1.62 x by Add", while a GRU before it makes 2.67 times as much of it."""
    subject: Any = _Chain()
    assert culprits._find_largest_enlarger(subject, "product", "bent") == "moved"
    subject.row_of["moved"] = make_row(1, 0.012, name="moved")
    assert culprits._find_largest_enlarger(subject, "product", "bent") == "bent"


def test_what_only_moves_numbers_amplifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As seen: "ordinary rounding, amplified 4.9 x by Transpose"."""
    subject: Any = _Moved()
    alone: Any = SimpleNamespace(found={})
    assert culprits.find_largest_growth(subject, alone, {"moved", "bent"}) == ""
    effect: Any = SimpleNamespace(at="bent")
    monkeypatch.setattr(culprits, "_fails_first", lambda *_: "moved")
    assert culprits._find_first_shown(subject, "product", effect) == ""
    monkeypatch.setattr(culprits, "_fails_first", lambda *_: "bent")
    assert culprits._find_first_shown(subject, "product", effect) == "bent"


def uncompared(name: str, **values: Any) -> Row:
    return Row(index=0, op_type="Add", name=name, status=Status.NOT_COMPARED, **values)


def test_a_tensor_without_numbers_fails_nothing() -> None:
    found = subject_of({"a": uncompared("a"), "b": 1e-5, "y": 0.5})
    assert find_first_failing(found) == "y"
    assert not is_non_finite_in_target_alone(found.row_of["a"] if "a" in found.row_of else uncompared("a"))


def test_suspects_are_those_behind_whom_an_error_grows_most() -> None:
    """An error below one rounding grows from nothing that anybody lost: it is held against a rounding."""
    graph = {"a": (), "b": ("a",), "c": ("b",), "d": ("c",), "e": ("d",), "y": ("e",)}
    errors = {"a": 1e-9, "b": 1e-6, "c": 0.01, "d": 0.05, "e": 0.06, "y": 0.06}
    found = list_early_suspects(subject_of(errors, graph))
    assert found[:3] == ["b", "c", "d"]  # c grew 20-fold over one rounding, d fivefold over c
    assert set(found) == set(errors)
    assert list_early_suspects(subject_of(errors, graph), most=1) == ["b"]
    broken = {**errors, "e": row("e", 0.06, target={"nan": 1})}
    assert list_early_suspects(subject_of(broken, graph))[:2] == ["d", "e"]


def test_of_two_that_break_about_as_much_the_first_is_named_first_up_to_a_half() -> None:
    own = {name: Introduced(name=name, method="isolated", elements=4, born_inf=1) for name in "ab"}
    effects = {name: [Effect(at="y", share=share, non_finite=1)] for name, share in (("a", 0.5), ("b", 1.0))}
    assert list(accused(effects, own, sinks=(sink(0.09, non_finite=4),))) == ["a", "b"]


SMALL = 5 * UNIT  # of few roundings: looked at, and not far off


@pytest.mark.parametrize(
    ("shares", "named"),
    [((0.8, 0.1, 0.01), ["a"]), ((0.6, 0.2, 0.01), []), ((0.9, 0.05, 0.05), ["a"]), ((0.4, 0.04, 0.01), [])],
)
def test_of_a_small_error_the_author_outweighs_everybody_else(shares: tuple[float, ...], named: list[str]) -> None:
    errors = {"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": SMALL}
    assert list(accused(dict(zip("abc", shares, strict=True)), {}, errors, out=SMALL)) == named


def test_who_makes_nan_of_anothers_rounding_is_named_beside_it() -> None:
    nan = {"target": {"nan": 1}}
    errors = {"a": 1e-4, "b": 1e-4, "c": row("c", 0.09, **nan), "y": row("y", 0.09, is_output=True, **nan)}
    broken = [Effect(at="y", share=0.9, non_finite=2)]
    found = accused({"a": broken}, {"a": 1.0}, errors, sinks=(sink(0.09, non_finite=4),))["a"]
    assert (found.cause, found.amplifier) == ("amplified", "c")
    finite = accused({"a": 0.9}, {"a": 1.0}, {"a": 1e-4, "b": 1e-4, "c": row("c", 2e-4, **nan), "y": 0.09})["a"]
    assert finite.amplifier == "y"


def test_where_nothing_grows_much_it_is_told_where_the_error_shows() -> None:
    graph = {"a": (), "b": ("a",), "c": ("b",), "y": ("c",)}
    errors = {"a": 0.004, "b": 0.008, "c": 0.02, "y": 0.05}
    found = accused({"a": 0.9}, {"a": 1.0}, errors, out=0.05, graph=graph)["a"]
    assert (found.amplifier, found.fails_first) == ("c", "c")
    far = accused({"a": 0.9}, {"a": 100.0}, errors, out=0.05, graph=graph)["a"]
    assert far.amplifier == ""  # its own error is enough


@pytest.mark.parametrize(("first", "told"), [("c", "c"), ("z", "b"), ("", "b")])
def test_the_comparisons_first_failing_tensor_is_told_where_it_is_behind_the_author(first: str, told: str) -> None:
    errors = {"a": 1e-4, "b": 0.02, "c": 0.09, "y": 0.09}
    assert accused({"a": 0.9}, {"a": 100.0}, errors, first=first)["a"].fails_first == told


def test_where_no_tensor_is_out_of_bounds_nothing_fails_first() -> None:
    errors = {"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": SMALL}
    assert accused({"a": 0.95}, {"a": 1.0}, errors, out=SMALL)["a"].fails_first == ""


def test_of_a_loop_what_reaches_an_output_counts_and_not_what_stays_before_it() -> None:
    graph = {"s": (), "x@0": ("s",), "x@1": ("x@0",), "y": ("x@1",)}
    errors = {"s": 1e-4, "x@0": 1e-4, "x@1": 0.02, "y": 0.09}
    sinks = (sink(0.02, "x@1", is_output=False), sink(0.09))
    inside = [Effect(at="x@1", share=0.9), Effect(at="y", share=0.001)]
    found = accused({"x@0": inside, "x@1": 0.6}, {}, errors, graph=graph, sinks=sinks)
    assert {name: one.share for name, one in found.items()} == {"x@1": 0.6}
    assert not accused({"x@0": 0.0, "x@1": 0.0}, {}, errors, graph=graph, sinks=sinks)


@pytest.mark.parametrize(
    ("times", "other", "share"),
    [(4, 0.0, 0.8), (10, 0.0, 1.0), (10, 0.5, 0.5), (1, 0.0, 0.2)],
)
def test_iterations_that_were_not_tried_have_what_nothing_else_explains(
    monkeypatch: pytest.MonkeyPatch, times: int, other: float, share: float
) -> None:
    graph = {"s": (), "x@0": ("s",), "y": ("x@0",)}
    found = subject_of({"s": 1e-4, "x@0": 1e-4, "y": 0.09}, graph)
    monkeypatch.setattr(Subject, "times", lambda _self, name: times if name == "x@0" else 1)
    effects = {"x@0": [Effect(at="y", share=0.2)], "s": [Effect(at="y", share=other)]}
    shares = culprits._merge_iterations(found, effects, {"y": sink(0.09)})
    assert shares == {"x@0": (pytest.approx(share), 0.2)}, "what decides, and what was measured, which is told"


def test_of_a_small_error_three_authors_are_rounding_everywhere() -> None:
    """Two nearly equal numbers have an author each; where the error is large, any number may share it."""
    graph = {"a": (), "b": (), "c": (), "y": ("a", "b", "c")}
    for out, shares, named in (
        (SMALL, (0.31, 0.31, 0.31), set()), (SMALL, (0.46, 0.46, 0.0), {"a", "b"}), (SMALL, (0.4, 0.4, 0.0), set()),
        (0.09, (0.31, 0.31, 0.31), {"a", "b", "c"}), (SMALL, (0.46, 0.4, 0.06), {"a", "b"}),
    ):  # fmt: skip
        errors = {"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": out}
        assert set(accused(dict(zip("abc", shares, strict=True)), {}, errors, out=out, graph=graph)) == named


def test_the_author_of_the_first_failing_tensor_is_named_where_the_output_feels_it() -> None:
    """Of an output that is off by little: a third of its error is the least that it must feel."""
    errors = {"a": 1e-4, "b": SMALL, "c": SMALL, "y": SMALL}
    sinks = (sink(0.09, "b", is_output=False), sink(SMALL))
    for share, named in ((0.4, ["a"]), (0.2, [])):
        effects = {"a": [Effect(at="b", share=0.95), Effect(at="y", share=share)]}
        assert list(accused(effects, {"a": 1.0}, errors, sinks=sinks, first="b")) == named


def test_whose_effect_is_measured_first() -> None:
    """What gave birth to NaN, then what lost far more than a rounding, the most first, then as suspected before."""
    nan = Introduced(name="y", method="isolated", elements=4, born_nan=1)
    names = {"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": 0.09}
    own = alone_of({"a": 2.0, "b": 9.0, "c": 20.0, "y": nan})
    assert list_candidates(subject_of(names), own, ["a"]) == ["y", "c", "b", "a"]
    mild = alone_of({"a": 2.0, "b": 1.0, "c": 3.0})
    assert list_candidates(subject_of(names), mild, ["c", "b"]) == ["c", "b", "a"]


def with_outliers(
    places: Mapping[str, int], shares: Mapping[str, float], *, out: float = 0.5, held: str = "int8", cut: str = ""
) -> set[str]:
    """Who is named of quantised tensors that are added, each with one channel far wider than the others.

    places: that channel. cut: whose target's result is of another shape.
    """
    graph = {**dict.fromkeys(places, ()), "y": tuple(places)}
    exact = {name: np.ones((4, 8), np.float32) for name in places}
    for name, place in places.items():
        exact[name][:, place] = 100.0
    wrong = {name: array * np.float32(1.01) for name, array in exact.items()}
    if cut:
        wrong[cut] = wrong[cut][:2]
    targets = {name: TensorMeta(name=name, op_type="Add", dtype=held) for name in graph}
    # the stream carries the error already, so that nothing amplifies it
    found = subject_of({**dict.fromkeys(places, out), "y": out}, graph, targets=targets, precision=held)
    own = {
        name: Introduced(name=name, method="isolated", elements=32, rel_l2=0.01, unit=0.01, units=1.0)
        for name in places
    }
    kept: Any = Nothing(own, exact), Nothing(own, wrong)
    alone = Alone(method="isolated", found=own, exact=kept[0], wrong=kept[1])
    effects = {name: [Effect(at="y", share=share)] for name, share in shares.items()}
    sinks = (sink(out),)
    return {one.name for one in rank(found, alone, effects, sinks, "", {"y"})}


@pytest.mark.parametrize(
    ("places", "shares", "values", "named"),
    [
        ((3, 3), (0.3, 0.25), {}, "ab"),  # half of the error together
        ((3, 3), (0.3, 0.18), {}, "ab"),  # and where it is large, far more than any other
        ((3, 5), (0.3, 0.25), {}, ""),  # two channels have nothing to do with each other
        ((3, 3), (0.3, 0.25), {"held": "float16"}, ""),  # a float has no range that an outlier takes
        ((3, 3), (0.3, 0.25), {"cut": "a"}, ""),
        ((3, 3, 3), (0.4, 0.14, 0.04), {}, "a"), ((3, 3), (0.4, 0.15), {}, "ab"),  # PART, LEAST_PART
        ((3, 3, 5), (0.2, 0.2, 0.09), {}, "ab"), ((3, 3, 5), (0.2, 0.2, 0.11), {}, ""),  # _RATHER
        ((3, 3), (0.5, 0.4), {"out": 0.05}, "ab"), ((3, 3), (0.45, 0.4), {"out": 0.05}, "ab"),  # of a small error, too
        ((3, 3, 5), (0.45, 0.4, 0.3), {"out": 0.05}, ""),  # but for another of some size
    ],
)  # fmt: skip
def test_tensors_whose_range_one_channel_takes_count_together(
    places: tuple[int, ...], shares: tuple[float, ...], values: Any, named: str
) -> None:
    """An outlier goes through a residual stream, and each quantiser on its way loses by it."""
    of_name = dict(zip("abc", places, strict=False)), dict(zip("abc", shares, strict=False))
    assert with_outliers(*of_name, **values) == set(named)


def test_who_stands_out_at_an_output_is_named_for_that_and_not_for_the_first_failing_tensor() -> None:
    errors = {"a": 1e-4, "b": 0.09, "c": 0.09, "y": 0.09}
    sinks = (sink(0.09, "b", is_output=False), sink(0.09))
    effects = {"a": [Effect(at="b", share=0.95), Effect(at="y", share=0.2)],
               "c": [Effect(at="b", share=0.0), Effect(at="y", share=0.7)]}  # fmt: skip
    assert list(accused(effects, {}, errors, sinks=sinks, first="b")) == ["c"]
    healthy = (sink(0.09, "b", is_output=False), sink(1e-6))
    assert not accused({"a": effects["a"]}, {}, errors | {"y": 1e-6}, sinks=healthy, first="b")


@pytest.mark.parametrize(("alone", "differs", "named"), [(True, "a", ["a"]), (True, "b", []), (False, "a", [])])
def test_of_weights_alone_the_files_tell_whoever_makes_how_little(
    monkeypatch: pytest.MonkeyPatch, alone: bool, differs: str, named: list[str]
) -> None:
    """Nothing but weights is quantised: what else differs in the files is somebody's mistake, whatever its share."""
    monkeypatch.setattr(culprits, "find_file_difference", lambda _subject, name: {"what": 1} if name == differs else {})
    found = subject_of({"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": 0.09})
    found.__dict__["weights_alone"] = alone
    effects = {name: [Effect(at="y", share=share)] for name, share in (("a", 0.01), ("c", 0.3))}
    culprit = rank(found, alone_of({"a": 1.0, "c": 1.0}), effects, (sink(0.09),), "", {"y"})
    assert [one.name for one in culprit] == named


def test_of_weights_alone_one_file_that_differs_has_every_output_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = subject_of({"a": 1e-4, "b": 1e-4, "y": 1e-4})
    found.__dict__["weights_alone"] = True
    for differs, looked in ((["b"], {"y"}), ([], set())):
        monkeypatch.setattr(culprits, "find_file_difference", lambda _subject, name, differs=differs: name in differs)
        assert find_suspicious_sinks(found, [sink(1e-7)], {}) == looked


@pytest.mark.parametrize(("largest", "named"), [(7e4, ["a"]), (6.5e4, [])])
def test_an_overflow_of_numbers_that_the_baseline_does_not_have_is_anothers(
    monkeypatch: pytest.MonkeyPatch, largest: float, named: list[str]
) -> None:
    """An operator that was given what another one's overflow left is not the one that overflows."""
    monkeypatch.setattr(culprits, "find_cause", lambda *_, **__: ("overflow", {"limit": 65504.0}, ("a",)))
    errors = {"a": row("a", 1e-4, base={"min": -largest}), "b": 1e-4, "c": 1e-4, "y": 0.09}
    assert list(accused({"a": 0.9}, {"a": 100.0}, errors)) == named


def test_where_a_joined_tensor_shows_the_error_its_last_source_is_named() -> None:
    """Joining makes no more of it: what it was joined from, as far as that is behind the author."""
    graph = {"a": (), "z": (), "b": ("a",), "c": ("a",), "m": ("z", "b", "c"), "y": ("m",)}
    errors = {"a": 0.004, "z": 0.004, "b": 0.005, "c": 0.005, "m": 0.05, "y": 0.05}
    found = accused({"a": 0.9}, {"a": 1.0}, errors, out=0.05, graph=graph, types={"m": "Concat"})["a"]
    assert (found.fails_first, found.amplifier) == ("m", "c")


def test_a_stretch_of_two_operators_is_as_little_anybody() -> None:
    graph = {"a": (), "y": ("a",)}
    found = subject_of({"y": 2.5 * UNIT}, graph)
    effects = {"y": [Effect(at="y", share=0.98)]}
    assert not rank(found, alone_of({"y": 2.5}), effects, (sink(2.5 * UNIT),), "", {"y"})
    single = subject_of({"y": 2.5 * UNIT}, {"y": ()})
    assert rank(single, alone_of({"y": 2.5}), effects, (sink(2.5 * UNIT),), "", {"y"})


def test_of_a_fused_region_all_operators_are_named() -> None:
    graph = {"a": (), "b": ("a",), "c": ("b",), "y": ("c",)}
    types = {"a": "Conv", "b": "Mul", "c": "Relu"}
    found = accused({"c": 0.9}, {"c": 100.0}, {"a": 1e-4, "c": 1e-4, "y": 0.09}, graph=graph, types=types)["c"]
    assert (found.op_types, found.node) == (("Mul", "Relu"), "c")


def test_who_makes_nan_is_named_before_who_makes_the_error_largest() -> None:
    """The first of them in execution order, where several do."""
    nan = {"target": {"nan": 1}}
    broken = [Effect(at="y", share=0.9, non_finite=2)]
    errors = {"a": 1e-4, "b": 0.01, "c": row("c", 0.01, **nan), "y": row("y", 0.09, is_output=True, **nan)}
    found = accused({"a": broken}, {"a": 1.0}, errors, sinks=(sink(0.09, non_finite=4),))["a"]
    assert found.amplifier == "c", "b makes a hundred times as much of it, and no NaN"
    finite = accused({"a": 0.9}, {"a": 1.0}, {"a": 1e-4, "b": 0.01, "c": 0.01, "y": 0.09})["a"]
    assert finite.amplifier == "b"


@pytest.mark.parametrize(
    ("cause", "before", "named"),
    [("cancellation", 0.0107, "b"), ("cancellation", 0.006, "c"), ("amplified", 0.0107, "c")],
)
def test_of_several_small_steps_the_largest_before_it_shows_is_named(
    cause: str, before: float, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None makes four times as much; what is out of bounds first made less of it than the one before."""
    asked: list[bool] = []
    monkeypatch.setattr(
        culprits, "find_cause",
        lambda _subject, _alone, name, by, poisons: asked.append(poisons) or (cause, {"amplifier": by}, (name,)),
    )  # fmt: skip
    errors = {"a": 0.004, "b": before, "c": 0.0173, "y": 0.02}
    found = accused({"a": 0.9}, {"a": 1.0}, errors, out=0.02)["a"]
    assert (found.amplifier, found.evidence["amplifier"], found.fails_first) == (named, named, "c")
    assert asked == [False] * (2 if named == "b" else 1), "nothing of it becomes NaN or Inf"


def test_an_iteration_that_reaches_no_output_has_no_share_beside_those_that_do() -> None:
    graph = {"s": (), "x@0": ("s",), "x@1": ("x@0",), "y": ("x@1",)}
    found = subject_of({"s": 1e-4, "x@0": 1e-4, "x@1": 0.02, "y": 0.09}, graph)
    effects = {"x@0": [Effect(at="x@1", share=0.9)], "x@1": [Effect(at="y", share=0.6)]}
    sinks = {"x@1": sink(0.02, "x@1", is_output=False), "y": sink(0.09)}
    assert culprits._merge_iterations(found, effects, sinks) == {"x@0": (0.0, 0.0), "x@1": (0.6, 0.6)}
    effects["x@0"] = [Effect(at="y", share=MATTERS)]
    assert culprits._merge_iterations(found, effects, sinks)["x@1"] == (pytest.approx(0.6 + MATTERS),) * 2


@pytest.mark.parametrize("born", [{"born_nan": 1}, {"born_inf": 1}, {}])
def test_what_moves_numbers_and_breaks_one_is_looked_at(born: dict[str, int]) -> None:
    """By a cast of the target alone, on the way to it."""
    own = Introduced(name="b", method="isolated", elements=4, rel_l2=0.0, units=0.0, **born)
    found = subject_of({"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": 0.09}, types={"b": "Transpose"})
    assert list_candidates(found, alone_of({"b": own}), []) == (["b"] if born else [])


def kept(
    errors: Mapping[str, Any], keep: tuple[str, ...] = ("a",), cause: str = "coarse", amplifier: str = "", **values: Any
) -> tuple[str, ...]:
    return culprits.list_kept_through(subject_of(errors, **values), keep, cause, amplifier)


def chained(count: int) -> dict[str, tuple[str, ...]]:
    names = ["a", *(f"n{number}" for number in range(count)), "y"]
    return {name: (before,) if before else () for name, before in zip(names, ["", *names], strict=False)}


def test_what_only_moves_a_culprits_numbers_is_kept_with_it() -> None:
    types = {"b": "Transpose", "c": "Reshape"}
    assert kept(dict.fromkeys(GRAPH, 1e-4), types=types) == ("a", "b", "c")
    assert kept(dict.fromkeys(GRAPH, 1e-4), types={**types, "b": "Relu"}) == ("a",), "it chooses, for no amplifier"
    assert kept(dict.fromkeys(GRAPH, 1e-4)) == ("a",)


@pytest.mark.parametrize(("count", "named"), [(7, True), (8, False)])
def test_what_is_fused_into_a_culprit_is_named_where_it_is_little(count: int, named: bool) -> None:
    """_REGION: the tensor itself is the eighth operator; what only moves numbers is none."""
    graph = chained(count + 1)
    inside, last = [f"n{number}" for number in range(count)], f"n{count}"
    errors = dict.fromkeys(("a", last, "y"), 1e-4)
    assert kept(errors, (last,), graph=graph) == ((*inside, last) if named else (last,))
    moved = {"n0": "Reshape"}
    assert kept(errors, (last,), graph=graph, types=moved) == (*inside[1:], last)


@pytest.mark.parametrize(("count", "named"), [(4, True), (5, False), (0, True)])
def test_what_carries_an_authors_numbers_to_the_amplifier_is_kept_where_it_is_little(count: int, named: bool) -> None:
    graph = chained(count)
    found = kept(dict.fromkeys(graph, 1e-4), ("a", "y"), "amplified", "y", graph=graph)
    assert found == (tuple(graph) if named else ("a", "y"))
    assert kept(dict.fromkeys(graph, 1e-4), ("a", "y"), "amplified", graph=graph) == ("a", "y")


@pytest.mark.parametrize(
    ("cause", "base", "together"),
    [
        ("overflow", {"max": 7e4}, True), ("overflow", {"min": -7e4}, True), ("overflow", {"max": 6.5e4}, False),
        ("overflow", {"max": 2e18}, False),  # a mask
        ("overflow", {"min": None, "max": None}, False), ("overflow", {"min": None, "max": 7e4}, False),
        ("coarse", {"max": 7e4}, False), ("underflow", {"max": 7e4}, False),
        ("underflow", {"rms": 1e-5}, True), ("underflow", {"rms": 1e-3}, False), ("underflow", {"rms": 0.0}, False),
        ("underflow", {"rms": None}, False), ("overflow", {"rms": 1e-5}, False),
    ],
)  # fmt: skip
def test_who_reads_what_is_out_of_range_and_is_so_itself_is_kept(
    cause: str, base: dict[str, Any], together: bool
) -> None:
    errors = {"a": 1e-4, "b": row("b", 1e-4, base=base), "c": 1e-4, "y": 1e-4}
    assert kept(errors, cause=cause) == (("a", "b") if together else ("a",))
    assert kept({**errors, "b": uncompared("b")}, cause=cause) == ("a",)


@pytest.mark.parametrize(
    ("kind", "further", "behind", "again"),
    [
        ("Relu", "Add", 0.041, True), ("Relu", "Add", 0.039, False),  # SEVERAL
        ("Add", "Add", 0.041, False),  # it computes: what it adds is its own
        ("Relu", "Gather", 0.041, True), ("Gather", "Gather", 0.01, False),
    ],
)  # fmt: skip
def test_who_chooses_among_the_numbers_for_another_amplifier_is_kept(
    kind: str, further: str, behind: float, again: bool
) -> None:
    """Rounded there again they are as coarse again, and somebody makes much of that; m does so already."""
    graph = {"a": (), "m": ("a",), "s": ("a",), "t": ("s",), "y": ("m", "t")}
    errors = {"a": 0.01, "m": 0.05, "s": 0.01, "t": behind if further == "Add" else 0.01, "y": behind}
    types = {"s": kind, "t": further}
    found = kept(errors, ("a", "m"), "amplified", "m", graph=graph, types=types)
    assert ("s" in found) is again
    assert {"a", "m"} <= {*found}
    assert "s" not in kept(errors, ("a", "m"), "coarse", "", graph=graph, types=types)


def test_equal_shares_lead_where_they_are_far_above_the_others() -> None:
    """FAR: eight times as much is enough, to the digit."""
    for other, leads in ((0.0625, True), (0.0626, False)):
        effects = {"a": [Effect(at="y", share=0.5)], "b": [Effect(at="y", share=other)]}
        assert culprits._leads(sink(0.09), "a", effects) is leads
    assert not culprits._leads(sink(0.09), "a", {"a": [Effect(at="z", share=0.5)], "b": [Effect(at="y", share=0.1)]})


def test_who_was_replayed_is_a_candidate_like_others() -> None:
    """But where it was given numbers of which nobody saw whether they are what it read."""
    found = subject_of({"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": 0.09})
    own = Introduced(name="b", method="replayed", elements=4, rel_l2=0.1, unit=UNIT, units=100.0)
    assert list_candidates(found, alone_of({"b": own}), []) == ["b"]


def test_the_effect_that_says_most_is_that_at_an_output_it_reaches() -> None:
    sinks = {"b": sink(0.5, "b", is_output=False), "y": sink(0.5), "z": sink(0.5, "z")}
    before = Effect(at="b", share=0.9)
    for others, at in (
        ([Effect(at="y", share=0.1)], "y"), ([Effect(at="y", share=0.0)], "b"), ([Effect(at="y", share=0.001)], "b"),
        ([Effect(at="y", share=0.001, non_finite=1)], "y"), ([Effect(at="y", share=MATTERS)], "y"),
        ([Effect(at="y", share=0.1), Effect(at="z", share=0.2)], "z"), ([], "b"),
    ):  # fmt: skip
        found = culprits._find_largest_effect([before, *others], sinks)
        assert found is not None
        assert found.at == at, others
    assert culprits._find_largest_effect([], sinks) is None


def test_what_is_kept_with_a_culprit_ends_somewhere() -> None:
    """However much of a model only moves its numbers: a search through all of it would find no end in a large one."""
    graph = chained(100)
    found = kept(dict.fromkeys(graph, 1e-4), graph=graph, types=dict.fromkeys(graph, "Reshape"))
    assert found == tuple(graph)[:64]


@pytest.mark.parametrize("whole", [1, 10])
def test_a_loop_whose_iterations_break_and_have_no_share_is_its_first_one_that_breaks(
    monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """Beside an infinite error nobody has a share of it; of the iterations that were not tried none is made up."""
    graph = {"s": (), "x@0": ("s",), "x@1": ("x@0",), "y": ("x@1",)}
    found = subject_of({"s": 1e-4, "x@0": 1e-4, "x@1": 1e-4, "y": 0.09}, graph)
    monkeypatch.setattr(Subject, "times", lambda _self, name: whole)
    broken = {"x@0": [Effect(at="y", share=0.0)], "x@1": [Effect(at="y", share=0.0, non_finite=3)]}
    shares = culprits._merge_iterations(found, broken, {"y": sink(0.09, non_finite=3)})
    assert shares == {"x@0": (0.0, 0.0), "x@1": (0.0, 0.0)}


def test_beyond_a_billion_units_the_suspects_order_decides() -> None:
    """Of errors that large the size says nothing any more of who is worth a look first."""
    subject = subject_of({"a": 1e-4, "b": 1e-4, "y": 0.09})
    for order in (["a", "b"], ["b", "a"]):
        assert list_candidates(subject, alone_of({"a": 1.2e9, "b": 3e9}), order) == order
        assert list_candidates(subject, alone_of({"a": 0.6e9, "b": 0.9e9}), order) == ["b", "a"]


@pytest.mark.parametrize(("non_finite", "asked"), [(0, False), (2, True)])
def test_why_it_breaks_is_asked_where_it_breaks_something(
    monkeypatch: pytest.MonkeyPatch, non_finite: int, asked: bool
) -> None:
    told: list[bool] = []
    there = culprits.find_cause

    def find(*given: Any, poisons: bool) -> Any:
        told.append(poisons)
        return there(*given, poisons=poisons)

    monkeypatch.setattr(culprits, "find_cause", find)
    graph = {"a": (), "b": ("a",), "c": ("b",), "d": ("c",), "y": ("d",)}
    errors = {"a": 0.002, "b": 0.0055, "c": 0.0075, "d": 0.0125, "y": 0.02}
    effects = [Effect(at="y", share=0.9, non_finite=non_finite)]
    accused({"a": effects}, {"a": 1.0}, errors, out=0.02, graph=graph, sinks=(sink(0.02),))
    assert told == [asked]


def told(
    causes_of: Mapping[str, tuple[str, Mapping[str, Any]]], monkeypatch: pytest.MonkeyPatch, *,
    shares: Mapping[str, float] | None = None, **values: Any,
) -> dict[str, Any]:  # fmt: skip
    """Who is named where each one's cause is known, with its evidence. Each is far above one rounding."""
    monkeypatch.setattr(
        culprits, "find_cause", lambda _subject, _alone, name, *_, **__: (*causes_of[name], (name,))
    )  # fmt: skip
    return accused(shares or dict.fromkeys(causes_of, 0.4), dict.fromkeys(causes_of, 100.0), **values)


def test_whole_numbers_behind_those_that_wrap_around_decide_otherwise_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"a": ("flips", {}), "b": ("wrapped", {}), "c": ("flips", {}), "y": ("coarse", {})}
    assert set(told(known, monkeypatch)) == {"a", "b", "y"}
    assert set(told({**known, "b": ("coarse", {})}, monkeypatch)) == {"a", "b", "c", "y"}


@pytest.mark.parametrize(
    ("causes_of", "out", "named"),
    [
        # what the files prove beside what its size alone speaks against, at an output that is as expected
        ({"a": "files_differ", "b": "coarse"}, SMALL, {"a"}), ({"a": "files_differ", "b": "coarse"}, 0.09, {"a", "b"}),
        ({"a": "coarse", "b": "coarse"}, SMALL, {"a", "b"}),
        ({"a": "files_differ", "b": "overflow"}, SMALL, {"a", "b"}),
        ({"a": "files_differ", "b": "files_differ"}, SMALL, {"a", "b"}),
    ],
)  # fmt: skip
def test_beside_what_the_files_prove_size_alone_is_no_accusation(
    causes_of: Mapping[str, str], out: float, named: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: (cause, {"limit": 0.5}) for name, cause in causes_of.items()}
    shares = dict.fromkeys(causes_of, 1.0)
    assert set(told(known, monkeypatch, shares=shares, out=out)) == named
    helped = {name: (cause, {"limit": 0.5, "left": 0.1}) for name, cause in causes_of.items()}
    assert set(told(helped, monkeypatch, shares=shares, out=out)) == set(causes_of), "an experiment has borne it out"


def test_what_makes_nan_is_told_beside_what_the_files_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Any = {"a": ("files_differ", {}), "b": ("coarse", {})}
    shares: Any = {"a": 1.0, "b": [Effect(at="y", share=1.0, non_finite=1)]}
    sinks = (sink(SMALL, non_finite=1),)
    assert set(told(known, monkeypatch, shares=shares, out=SMALL, sinks=sinks)) == {"a", "b"}


def test_what_one_cast_costs_comes_behind_what_is_a_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Any = {"a": ("coarse", {}), "b": ("coarse", {})}
    assert list(told(known, monkeypatch, shares={"a": 0.9, "b": 0.3})) == ["a", "b"]
    monkeypatch.setattr(culprits, "is_within_one_cast", lambda _subject, name, _error: name == "a")
    assert list(told(known, monkeypatch, shares={"a": 0.9, "b": 0.3})) == ["b", "a"]


def test_of_those_that_make_more_than_all_there_is_the_first_comes_first() -> None:
    assert list(accused({"b": 4.0, "a": 1.2}, {"a": 9.0, "b": 9.0})) == ["a", "b"]
    assert list(accused({"b": 0.86, "a": 0.84}, {"a": 9.0, "b": 9.0})) == ["b", "a"], "by tenths"


def test_of_what_does_not_run_in_the_baseline_no_share_is_known() -> None:
    found = subject_of({"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": 0.09})
    effects = {"a": [Effect(at="y", share=0.9)]}
    for unlike, share in (({"a"}, None), ({"b"}, 0.9)):
        alone = dataclasses.replace(alone_of({"a": 100.0}), unlike=unlike)
        (one,) = rank(found, alone, effects, (sink(0.09),), "", {"y"})
        assert one.share == share


def test_what_has_another_shape_is_another_ones_choice() -> None:
    """Who chose otherwise before it is asked."""
    assert list(accused({"a": 0.5, "c": 0.9}, {"a": 9.0, "c": 9.0}, {"a": 1e-4, "b": 1e-4, "y": 0.09})) == ["a"]


def test_a_few_that_halve_an_error_together_are_named_whatever_the_share_of_each() -> None:
    found = subject_of({"a": 1e-4, "b": 1e-4, "c": 1e-4, "y": 0.09})
    effects = {name: [Effect(at="y", share=0.1)] for name in "abc"}
    named = rank(found, alone_of(dict.fromkeys("abc", 1.0)), effects, (sink(0.09),), "", {"y"}, few={"a", "c"})
    assert [one.name for one in named] == ["a", "c"]


def test_what_is_told_of_nan_is_what_the_output_has() -> None:
    """Where the output has none, what an effect had of it in a run of the baseline is nobody's."""
    effects = {"a": [Effect(at="y", share=0.9, non_finite=2)]}
    own = Introduced(name="a", method="isolated", elements=4, rel_l2=0.1, units=100.0)
    assert accused(effects, {"a": own})["a"].non_finite == 0
    assert accused(effects, {"a": own}, sinks=(sink(0.09, non_finite=1),))["a"].non_finite == 2


def test_what_gave_birth_to_nan_has_an_infinite_error() -> None:
    own = Introduced(name="a", method="isolated", elements=4, rel_l2=0.1, units=100.0, born_nan=1)
    found = accused({"a": [Effect(at="y", share=0.9, non_finite=1)]}, {"a": own}, sinks=(sink(0.09, non_finite=1),))
    assert (found["a"].introduced, found["a"].units) == (math.inf, math.inf)


def test_a_mask_among_the_readers_of_an_overflow_is_none() -> None:
    """Up to its size a number is one that the type cannot hold."""
    for largest, together in ((0.9e18, True), (1e19, False)):
        errors = {"a": 1e-4, "b": row("b", 1e-4, base={"max": largest}), "c": 1e-4, "y": 1e-4}
        assert kept(errors, cause="overflow") == (("a", "b") if together else ("a",))


def test_predicates_of_what_was_not_compared_are_false() -> None:
    assert is_non_finite_in_target_alone(uncompared("a")) is False
    for none in ({"target": {"nan": 1}, "base": {"nan": 2}}, {"target": {"inf": 1}, "base": {"inf": 1}}):
        assert is_non_finite_in_target_alone(row("a", 0.1, **none)) is False


@pytest.mark.parametrize(
    ("share", "other", "named"),
    [
        (0.16, 0.019, True), (0.14, 0.001, False),  # PART, of one far above any other
        (0.16, 0.021, False), (0.5, 0.4, True), (0.49, 0.4, False),  # else half of it
    ],
)
def test_of_a_small_error_what_is_far_above_one_rounding_makes_a_part_and_leads_or_half(
    share: float, other: float, named: bool
) -> None:
    errors = dict.fromkeys("abc", SMALL / 2) | {"y": SMALL}
    assert ("a" in accused({"a": share, "b": other}, {"a": 8.1}, errors, out=SMALL)) is named
    assert ("a" in accused({"a": share, "b": other}, {"a": 7.9}, errors, out=SMALL)) is False


def test_what_chooses_between_a_culprits_numbers_is_kept_for_another_amplifier() -> None:
    """The maximum that a softmax takes off: what reads it makes the error much larger."""
    graph = {"a": (), "y": ("a",), "m": ("a",), "n": ("m",), "z": ("n",)}
    for grown, types, together in (
        (4.1e-4, {"m": "ReduceMax", "n": "Relu"}, ("a", "y", "m", "n")), (3.9e-4, {"m": "ReduceMax"}, ("a", "y")),
        (4.1e-4, {"m": "ReduceSum"}, ("a", "y")), (4.1e-4, {"m": "ReduceMax", "n": "ReduceSum"}, ("a", "y")),
    ):  # fmt: skip
        errors = {"a": 1e-4, "m": 1e-4, "n": 1e-4, "z": grown, "y": 0.09}
        assert kept(errors, ("a", "y"), "amplified", "y", graph=graph, types=types) == together
        assert kept(errors, graph=graph, types=types) == ("a",), "of no amplifier"


@pytest.mark.parametrize(("out", "named"), [(3 * UNIT, False), (3.001 * UNIT, True)])
def test_of_three_roundings_nobody_outweighs_the_others(out: float, named: bool) -> None:
    """LOOK: beyond it one that leads makes half of an error; up to there nearly all."""
    found = subject_of(dict.fromkeys("abc", out / 2) | {"y": out})
    effects = {"a": [Effect(at="y", share=0.6)], "b": [Effect(at="y", share=0.01)]}
    assert bool(rank(found, alone_of({"a": 1.0, "b": 1.0}), effects, (sink(out),), "", {"y"})) is named


def test_two_dozen_suspects_are_looked_at_before_anything_is_measured() -> None:
    graph = chained(30)
    assert len(list_early_suspects(subject_of(dict.fromkeys(graph, 1e-3), graph))) == 24
