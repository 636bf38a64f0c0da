"""What each operator adds itself, measured on an engine of a few numpy operators that computes and really goes on with
the values that it is given.

The fault is known: one operator of the target is off, and it alone may be charged with that, whichever side replays.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from precision_debug import numbers
from precision_debug.errors import BackendError
from precision_debug.explain import introduced
from precision_debug.explain.introduced import (
    MASK,
    Passing,
    is_same_kind,
    make_empty_alone,
    measure_relative_error,
    run_alone,
    start_measuring,
)
from precision_debug.explain.subject import Subject
from precision_debug.records import Introduced, Row, Status, TensorMeta, Tolerance

Step = tuple[str, str, tuple[str, ...], Callable[..., Any]]
"""A tensor, the type of its operator, what that reads, and what it computes."""

UNIT = 2.0**-11  # of float16


def keeping(found: dict[str, Any]) -> Any:
    """A hook that keeps what it is shown, and puts nothing in its place."""
    return lambda _op, name, value: found.update({name: value})


class Engine:
    """Runs steps in float32, or in another type, and goes on with what it is given in place of a tensor.

    takes: the tensors in whose place it can take another value, which are all that it shows then; None: all. twice:
    what it shows once more, as an engine does that computes it twice.
    """

    notes = doubts = layers = ()
    alone = ""

    def __init__(
        self, steps: Collection[Step], dtype: Any = np.float32, *, takes: Collection[str] | None = None,
        replaces: bool = True, arithmetic: str = "", twice: str = "",
    ) -> None:  # fmt: skip
        self.steps, self.dtype, self.takes = steps, dtype, takes
        self.replaces, self.arithmetic, self.twice = replaces, arithmetic, twice
        self.versions: Mapping[str, str] = {}
        self.replaced: set[str] = set()

    @property
    def replacer(self) -> Any:
        return self

    @property
    def tensors(self) -> list[TensorMeta]:
        found = self.run({"x": np.ones((2, 3), np.float32)}, keeping(every := {}))
        return [
            TensorMeta(name=name, op_type=kind, node=name, inputs=reads, dtype=str(every[name].dtype),
                       is_output=name in found)
            for name, kind, reads, _ in (("x", "Input", (), None), *self.steps)
        ]  # fmt: skip

    def _held(self, value: Any) -> Any:
        return value.astype(self.dtype) if value.dtype.kind == "f" else value

    def run(self, feeds: Any, hook: Any = None, names: Any = None) -> dict[str, Any]:
        return self._run(feeds, hook or (lambda *_: None), names)

    def run_replacing(self, feeds: Any, replace: Any, names: Any = None) -> dict[str, Any]:
        shown = {name for name, *_ in self.steps} | {"x"} if self.takes is None else {*self.takes}
        return self._run(feeds, replace, shown if names is None else shown.intersection(names))

    def _run(self, feeds: Any, replace: Any, names: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        with np.errstate(all="ignore"):
            for name, kind, reads, compute in (("x", "Input", (), None), *self.steps):
                value = np.asarray(feeds["x"] if compute is None else compute(*map(values.get, reads)))
                value = value if kind == "Cast" else self._held(value)
                values[name] = value
                put = replace(kind, name, np.array(value)) if names is None or name in names else None
                if name == self.twice and (names is None or name in names):
                    replace(kind, name, np.array(value) * value.dtype.type(2))
                if put is not None:
                    assert put.shape == value.shape, name
                    self.replaced.add(name)
                    values[name] = self._held(np.asarray(put)).astype(value.dtype)
        return {name: values[name] for name, *_ in [*self.steps][-1:]}

    def held(self, _name: str, value: Any) -> Any:
        return value.astype(self.dtype).astype(value.dtype) if value.dtype.kind == "f" else None

    def operator(self, _name: str) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""


def chain(**other: Callable[..., Any]) -> list[Step]:
    """Five operators in a row; ``other`` computes some of them otherwise."""
    steps: list[Step] = [
        ("tripled", "Mul", ("x",), lambda x: x * x.dtype.type(3)),
        ("root", "Sqrt", ("tripled",), np.sqrt),
        ("moved", "Transpose", ("root",), np.transpose),
        ("shifted", "Sub", ("moved",), lambda x: x - x.dtype.type(1)),
        ("y", "Mul", ("shifted",), lambda x: x * x.dtype.type(7)),
    ]
    return [(name, kind, reads, other.get(name, compute)) for name, kind, reads, compute in steps]


X = np.random.default_rng(5).uniform(1, 4, (2, 3)).astype(np.float32)


def subject_of(base: Engine, target: Engine, x: Any = X, **values: Any) -> Subject:
    """As it is after a comparison of both."""
    seen: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for engine, found in zip((base, target), seen, strict=True):
        engine.run({"x": x}, keeping(found))
    rows = [
        Row(index=place, name=meta.name, op_type=meta.op_type, target_name=meta.name, status=Status.FAIL,
            is_output=meta.is_output,
            comparison=numbers.compare(seen[0][meta.name], seen[1][meta.name], Tolerance()))
        for place, meta in enumerate(base.tensors) if meta.name in seen[1]
    ]  # fmt: skip
    return Subject(**{
        "baseline": base, "target": target, "feeds": {"x": x}, "rows": rows, "tensors": base.tensors,
        "targets": {meta.name: meta for meta in target.tensors}, "precision": "float16", **values,
    })  # fmt: skip


def alone_of(subject: Subject, folder: Path, suspects: Any = lambda *_: False) -> Any:
    return contextlib.closing(run_alone(subject, suspects, folder))


def off_by(times: float) -> Callable[..., Any]:
    return lambda x: np.sqrt(x) * x.dtype.type(times)


WAYS = [
    pytest.param({}, {"together": False}, "isolated", id="isolated"),
    pytest.param({}, {"together": True}, "isolated", id="isolated, side by side"),
    pytest.param({"replaces": False}, {}, "replayed", id="replayed"),
]


@pytest.mark.parametrize(("engine", "values", "method"), WAYS)
def test_a_fault_is_charged_to_its_operator_alone(
    engine: dict[str, Any], values: dict[str, Any], method: str, tmp_path: Path
) -> None:
    """It is in all of what follows, and was brought in once; the others round once, whatever they were given."""
    subject = subject_of(Engine(chain()), Engine(chain(root=off_by(1.25)), np.float16, **engine), **values)
    with alone_of(subject, tmp_path) as alone:
        assert alone.method == method
        assert list(alone.found) == ["x", "tripled", "root", "moved", "shifted", "y"]
        assert alone.found["root"].rel_l2 == pytest.approx(0.25, rel=2e-3)
        assert alone.found["root"].units == pytest.approx(0.25 / UNIT, rel=2e-3)
        assert alone.found["root"].elements == 6
        assert alone.found["moved"].rel_l2 == 0
        for name in ("x", "tripled", "shifted", "y"):
            assert 0 <= alone.found[name].rel_l2 <= UNIT, name
        assert {one.method for one in alone.found.values()} == {method}
        assert not any(one.born_nan or one.born_inf or one.flips for one in alone.found.values())
    cumulative = {row.name: row.relative_l2 for row in subject.rows}
    assert all((cumulative[name] or 0) > 0.1 for name in ("moved", "shifted", "y"))


@pytest.mark.parametrize(("engine", "values", "method"), WAYS)
@pytest.mark.parametrize("born", ["nan", "inf"])
def test_what_is_not_finite_is_born_where_it_first_appears(
    born: str, engine: dict[str, Any], values: dict[str, Any], method: str, tmp_path: Path
) -> None:
    def breaks(x: Any) -> Any:
        found = np.sqrt(x)
        found[0, 0] = float(born)
        return found

    subject = subject_of(Engine(chain()), Engine(chain(root=breaks), np.float16, **engine), **values)
    with alone_of(subject, tmp_path) as alone:
        counts = {name: (one.born_nan, one.born_inf) for name, one in alone.found.items()}
        assert counts.pop("root") == ((1, 0) if born == "nan" else (0, 1))
        assert set(counts.values()) == {(0, 0)}
        assert alone.exact.get("root") is not None, "whoever gives birth to it is kept, suspected or not"
        assert [name for name in counts if alone.exact.get(name) is not None] == []
        assert alone.exact_of("root") == pytest.approx(np.sqrt(3 * X), rel=1e-3)
        assert not np.isfinite(alone.wrong_of("root")[0, 0])
        assert np.isfinite(alone.exact_of("root")).all()
        assert alone.exact_of("y") is None
        assert alone.wrong_of("y") is None


@pytest.mark.parametrize(("engine", "values", "method"), WAYS)
def test_the_tensors_of_those_that_are_suspected_are_kept(
    engine: dict[str, Any], values: dict[str, Any], method: str, tmp_path: Path
) -> None:
    asked: dict[str, float | None] = {}

    def suspects(name: str, units: float | None) -> bool:
        asked[name] = units
        return name in {"tripled", "y"}

    subject = subject_of(Engine(chain()), Engine(chain(root=off_by(1.25)), np.float16, **engine), **values)
    with alone_of(subject, tmp_path, suspects) as alone:
        assert {name for name in asked if name in alone.exact} == {"tripled", "y"}
        assert {name for name in asked if name in alone.wrong} == {"tripled", "y"}
        assert asked == {name: one.units for name, one in alone.found.items()}
        error = np.linalg.norm(alone.exact_of("y") - alone.wrong_of("y").astype(np.float32))
        assert error / np.linalg.norm(alone.exact_of("y")) == pytest.approx(alone.found["y"].rel_l2, rel=1e-4)


def test_of_integers_what_flips_is_counted_and_kept(tmp_path: Path) -> None:
    def steps(threshold: float) -> list[Step]:
        return [
            ("root", "Sqrt", ("x",), np.sqrt),
            ("above", "Greater", ("root",), lambda x: (x > threshold).astype(np.int32)),
            ("y", "Cast", ("above",), lambda x: x.astype(np.float32)),
        ]

    x = np.array([[1, 4, 9], [16, 25, 36]], np.float32)
    with alone_of(subject_of(Engine(steps(2.5)), Engine(steps(4.5)), x), tmp_path) as alone:
        found = alone.found["above"]
        assert (found.flips, found.elements, found.rel_l2, found.units) == (2, 6, None, None)
        assert "above" in alone.exact
        assert alone.found["y"].rel_l2 == 0, "it was given the baseline's integers"
        assert alone.found["root"].flips is None


def test_integers_that_the_target_holds_in_fewer_bits_wrap_for_all_that_read_them(tmp_path: Path) -> None:
    """What 300 becomes in int8 is the loss of who made it: the baseline goes on with 44 too."""

    def steps(dtype: Any) -> list[Step]:
        return [
            ("count", "Cast", ("x",), lambda x: x.astype(dtype)),
            ("y", "Cast", ("count",), lambda x: x.astype(np.float32) + 1),
        ]

    x = np.array([[1, 300, 3]], np.float32)
    with alone_of(subject_of(Engine(steps(np.int32)), Engine(steps(np.int8)), x), tmp_path) as alone:
        assert alone.found["count"].flips == 1
        assert alone.found["y"].rel_l2 == 0


@pytest.mark.parametrize("method", ["isolated", "replayed"])
def test_what_has_another_shape_is_wrong_as_a_whole_and_put_nowhere(method: str, tmp_path: Path) -> None:
    """The target transposes nothing: its readers go on with what they have, not with what does not fit."""
    target = Engine(chain(moved=lambda x: x), replaces=method == "isolated")
    base = Engine(chain())
    subject = subject_of(base, target)
    with alone_of(subject, tmp_path) as alone:
        assert alone.method == method
        assert (alone.found["moved"].flips, alone.found["moved"].elements) == (6, 6)
        assert alone.found["moved"].rel_l2 is None
        follower = target if method == "isolated" else base
        assert "moved" not in follower.replaced
        assert "tripled" in follower.replaced or method == "isolated"


def test_floats_and_integers_are_not_put_in_each_others_place(tmp_path: Path) -> None:
    def steps(dtype: Any) -> list[Step]:
        return [
            ("whole", "Round", ("x",), lambda x: np.round(x).astype(dtype)),
            ("y", "Add", ("whole",), lambda x: x.astype(np.float32) + np.float32(0.5)),
        ]

    for replaces in (True, False):
        base, target = Engine(steps(np.int32)), Engine(steps(np.float32), replaces=replaces)
        with alone_of(subject_of(base, target), tmp_path) as alone:
            assert "whole" not in (target if replaces else base).replaced
            assert alone.found["y"].rel_l2 == 0


def test_what_is_the_same_and_only_moved_is_left_in_the_engines_hands(tmp_path: Path) -> None:
    """Putting a tensor back costs a copy; one that would change nothing is not put back, unless it may differ."""
    target = Engine(chain())
    with alone_of(subject_of(Engine(chain()), target), tmp_path) as alone:
        assert {one.rel_l2 for one in alone.found.values()} == {0.0}
        assert target.replaced == {"x", "tripled", "root", "shifted", "y"}
    narrow = Engine(chain(moved=lambda x: x.T * x.dtype.type(1.5)), np.float16)
    with alone_of(subject_of(Engine(chain()), narrow), tmp_path) as alone:
        assert "moved" in narrow.replaced
        assert alone.found["shifted"].rel_l2 <= UNIT


def test_a_target_of_integers_that_takes_few_tensors_back_is_replayed(tmp_path: Path) -> None:
    """What lies between a product and its quantiser is not shown there: what would be measured is a region's."""
    for arithmetic, takes, method in (
        ("int8", {"x", "y"}, "replayed"), ("int8", None, "isolated"), ("float16", {"x", "y"}, "isolated"),
        ("int8", {"x", "tripled", "moved", "shifted", "y"}, "replayed"), ("int4", {"x", "y"}, "replayed"),
    ):  # fmt: skip
        target = Engine(chain(root=off_by(1.25)), arithmetic=arithmetic, takes=takes)
        with alone_of(subject_of(Engine(chain()), target), tmp_path) as alone:
            assert alone.method == method
            if method == "replayed":
                assert alone.found["root"].rel_l2 == pytest.approx(0.25, rel=1e-3)
                assert alone.found["y"].rel_l2 <= 1e-6
            else:
                assert alone.found.keys() == (takes or {"x", "tripled", "root", "moved", "shifted", "y"})


@pytest.mark.parametrize("together", [False, True])
def test_what_the_targets_own_casts_lose_is_measured_on_the_baselines_values(together: bool, tmp_path: Path) -> None:
    """A cast to float8 and back, between two tensors that both sides have: what it reads is as the baseline has it."""
    narrow = np.dtype(ml_dtypes.float8_e4m3fn)
    base: list[Step] = [("tripled", "Mul", ("x",), lambda x: x * x.dtype.type(3)), ("y", "Sqrt", ("tripled",), np.sqrt)]
    target: list[Step] = [
        ("tripled", "Mul", ("x",), lambda x: x * x.dtype.type(4)),
        ("cast", "Cast", ("tripled",), lambda x: x.astype(narrow)),
        ("y", "Sqrt", ("cast",), lambda x: np.sqrt(x.astype(np.float32))),
    ]
    with alone_of(subject_of(Engine(base), Engine(target), together=together), tmp_path) as alone:
        assert list(alone.casts) == ["cast"]
        lost, exact = alone.casts["cast"], (3 * X).astype(np.float64)
        error = np.linalg.norm(exact.astype(np.float32).astype(narrow).astype(np.float64) - exact)
        assert (lost.source, lost.dtype, lost.elements) == ("tripled", narrow.name, 6)
        assert lost.error == pytest.approx(error / np.linalg.norm(exact), rel=1e-5)
        assert lost.largest == pytest.approx(exact.max(), rel=1e-6)
        assert alone.found.keys() == {"x", "tripled", "y"}


@pytest.mark.parametrize(("engine", "values", "method"), WAYS)
def test_what_is_shown_twice_counts_as_it_was_first(
    engine: dict[str, Any], values: dict[str, Any], method: str, tmp_path: Path
) -> None:
    base, target = Engine(chain(), twice="moved"), Engine(chain(root=off_by(1.25)), twice="root", **engine)
    if method == "isolated":
        base.twice = ""
    with alone_of(subject_of(base, target, **values), tmp_path) as alone:
        assert alone.found["root"].rel_l2 == pytest.approx(0.25, rel=2e-3)
        assert alone.found["moved"].rel_l2 == 0
        assert list(alone.found) == ["x", "tripled", "root", "moved", "shifted", "y"]


@pytest.mark.parametrize(("taken", "method"), [(9, "isolated"), (8, "replayed")])
def test_nine_tensors_of_ten_are_enough_to_run_operators_one_by_one(taken: int, method: str, tmp_path: Path) -> None:
    names = ["x", *(f"t{number}" for number in range(8)), "y"]
    steps: list[Step] = [
        (name, "Add", (before,), lambda x: x + x.dtype.type(1)) for before, name in itertools.pairwise(names)
    ]
    target = Engine(steps, arithmetic="int8", takes=names[:taken])
    with alone_of(subject_of(Engine(steps), target), tmp_path) as alone:
        assert alone.method == method


def test_large_tensors_are_handed_over_without_a_copy(tmp_path: Path) -> None:
    """Beyond a megabyte a tensor waits for its partner, and is whole when it is looked at."""
    x = np.random.default_rng(1).uniform(1, 4, (2, 150_000)).astype(np.float32)
    subject = subject_of(Engine(chain()), Engine(chain(root=off_by(1.5)), np.float16), x, together=True)
    with alone_of(subject, tmp_path) as alone:
        assert alone.found["root"].rel_l2 == pytest.approx(0.5, rel=2e-3)
        assert max(one.rel_l2 for name, one in alone.found.items() if name != "root") <= UNIT


@pytest.mark.parametrize("replaces", [True, False])
def test_a_failure_closes_what_was_kept(replaces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_x: Any) -> Any:
        raise BackendError("it fails", where="root")

    base, target = Engine(chain()), Engine(chain(), replaces=replaces)
    subject = subject_of(base, target)
    closed: list[Any] = []

    def close(self: Any) -> None:
        closed.append(self)

    monkeypatch.setattr(introduced.Alone, "close", close)
    base.steps = chain(root=fails)
    with pytest.raises(BackendError):
        run_alone(subject, lambda *_: True, tmp_path)
    assert len(closed) == 1


def test_nothing_alone_is_of_the_way_that_will_be_gone(tmp_path: Path) -> None:
    for replaces, method in ((True, "isolated"), (False, "replayed")):
        with contextlib.closing(
            make_empty_alone(subject_of(Engine(chain()), Engine(chain(), replaces=replaces)), tmp_path)
        ) as alone:
            assert (alone.method, alone.found, alone.casts) == (method, {}, {})
            assert alone.exact_of("y") is None


def measured(subject: Subject, name: str, exact: Any, wrong: Any, method: str = "isolated") -> Introduced:
    found: list[Introduced] = []
    start_measuring(subject, name, exact, wrong, method, found.append)
    (one,) = found
    return one


def plain() -> Subject:
    return subject_of(Engine(chain()), Engine(chain(), np.float16))


def test_what_both_lack_was_born_in_neither() -> None:
    """More NaN than the baseline has; an Inf that became NaN is no Inf less than none."""
    nan, inf = math.nan, math.inf
    for exact, wrong, born in (
        ([nan, 1, 1, 1], [nan, 1, 1, 1], (0, 0)), ([nan, 1, 1, 1], [nan, nan, nan, 1], (2, 0)),
        ([1, 1, 1, 1], [1, inf, -inf, inf], (0, 3)), ([inf, inf, 1, 1], [inf, 1, 1, 1], (0, 0)),
        ([inf, inf, 1, 1], [nan, 1, 1, 1], (1, 0)), ([nan, nan, 1, 1], [1, 1, inf, 1], (0, 1)),
    ):  # fmt: skip
        found = measured(plain(), "y", np.array(exact, np.float32), np.array(wrong, np.float32))
        assert (found.born_nan, found.born_inf) == born, (exact, wrong)


def test_an_operator_that_was_given_nan_makes_none_of_its_own_where_it_is_replayed() -> None:
    def breaks(x: Any) -> Any:
        found = np.sqrt(x)
        found[0, 0] = np.nan
        return found

    subject = subject_of(Engine(chain()), Engine(chain(root=breaks), np.float16))
    exact, wrong = np.ones(4, np.float32), np.array([1, 1, np.nan, np.inf], np.float32)
    for name, method, born in (
        ("moved", "replayed", (0, 0)),
        ("moved", "isolated", (1, 1)),
        ("root", "replayed", (1, 1)),
    ):
        found = measured(subject, name, exact, wrong, method)
        assert (found.born_nan, found.born_inf) == born, (name, method)


def test_one_broken_input_of_two_is_enough_to_be_innocent() -> None:
    def steps(broken: bool) -> list[Step]:
        return [
            ("root", "Sqrt", ("x",), lambda x: np.sqrt(x) * x.dtype.type(np.nan if broken else 1)),
            ("plain", "Neg", ("x",), np.negative),
            ("y", "Add", ("root", "plain"), lambda a, b: a + b),
        ]

    subject = subject_of(Engine(steps(broken=False)), Engine(steps(broken=True)))
    exact, wrong = np.ones(2, np.float32), np.array([1, np.nan], np.float32)
    assert measured(subject, "y", exact, wrong, "replayed").born_nan == 0
    assert measured(subject, "plain", exact, wrong, "replayed").born_nan == 1


def test_units_are_of_the_coarser_of_the_tensors_own_rounding_and_the_models() -> None:
    subject = plain()
    exact = np.array([1.0, -2.0, 3.0], np.float32)
    wrong = exact * np.float32(1.01)
    found = measured(subject, "y", exact, wrong)
    assert found.unit == UNIT
    assert found.rel_l2 == pytest.approx(0.01, rel=1e-4)
    assert found.max_abs == pytest.approx(0.03, rel=1e-4)
    assert found.units == pytest.approx(0.01 / UNIT, rel=1e-4)
    wide = measured(subject, "not a row", exact, wrong)
    assert wide.unit == 0  # of a tensor that is not known to be held in anything
    assert wide.units == pytest.approx(0.01 / subject.typical_unit, rel=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_the_relative_error_is_that_of_the_numbers_in_the_types_range(seed: int) -> None:
    """Against float64, with masks, what overflows and what is not finite among them."""
    dice = np.random.default_rng(seed)
    exact = dice.normal(size=64) * 10.0 ** dice.integers(-3, 3)
    wrong = exact * (1 + 1e-3 * dice.normal(size=64))
    largest = [math.inf, 65504.0][seed % 2]
    odd = {0: [], 1: [7e4], 2: [-3e18], 3: [math.inf, 1e5], 4: [math.nan], 5: [6e4, -7e4]}[seed]
    exact[: len(odd)] = odd
    exact, wrong = exact.astype(np.float32), wrong.astype(np.float32)
    found = numbers.compare(exact, wrong, quantiles=False)
    fair = np.isfinite(exact) & np.isfinite(wrong) & (np.abs(exact) <= min(largest, MASK))
    off = (wrong.astype(np.float64) - exact.astype(np.float64))[fair]
    expected = np.linalg.norm(off) / np.linalg.norm(exact[fair].astype(np.float64))
    assert measure_relative_error(exact, wrong, found.base, largest, found.sqnr_db) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("exact", "wrong", "largest", "expected"),
    [
        ([0.0, 0.0], [0.0, 0.0], math.inf, 0.0), ([0.0, 0.0], [0.0, 1.0], math.inf, math.inf),
        ([math.nan, math.nan], [1.0, 1.0], math.inf, None), ([1e5, 1e6], [1.0, 1.0], 65504.0, None),
        ([65504.0, 65504.0], [65504.0, 65504.0], 65504.0, 0.0), ([0.0, 1e5], [0.0, 1.0], 65504.0, 0.0),
        ([0.0, 1e5], [2.0, 1.0], 65504.0, math.inf), ([3.0, 4.0], [3.0, 4.5], math.inf, 0.1),
        ([-1e5, 3.0, 4.0], [1.0, 3.0, 4.5], 65504.0, 0.1), ([1e5, 3.0, 4.0], [1.0, 3.0, 4.5], 65504.0, 0.1),
        ([-math.inf, 3.0, 4.0], [1.0, 3.0, 4.5], math.inf, 0.1),
    ],
)  # fmt: skip
def test_the_relative_error_at_the_edges(
    exact: list[float], wrong: list[float], largest: float, expected: float | None
) -> None:
    one, other = np.array(exact, np.float32), np.array(wrong, np.float32)
    found = numbers.compare(one, other, quantiles=False)
    got = measure_relative_error(one, other, found.base, largest, found.sqnr_db)
    assert got == (expected if expected is None else pytest.approx(expected, rel=1e-6))


def test_an_error_beyond_all_numbers_is_infinite() -> None:
    exact, wrong = np.array([1e-300, 0.0]), np.array([1e20, 0.0])
    found = numbers.compare(exact, wrong, quantiles=False)
    assert measure_relative_error(exact, wrong, found.base, math.inf, found.sqnr_db) == math.inf


def test_what_is_a_float() -> None:
    floats = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
    others = [np.int8, np.uint8, np.int64, np.bool_]
    for first in (*floats, *others):
        for second in (*floats, *others):
            kind = is_same_kind(np.ones(1, first), np.ones(1, second))
            assert kind is ((first in floats) == (second in floats)), (first, second)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("size", [4, 400_000])
def test_one_run_passes_its_tensors_to_the_other(together: bool, size: int, tmp_path: Path) -> None:
    """What the first run writes over afterwards is not what the second one gets; and nothing is left behind."""
    subject = subject_of(Engine(chain()), Engine(chain()), together=together)
    waiting = subject.bench.waiting(tmp_path, 1 << 30)
    passing = Passing(subject, waiting)
    got: list[tuple[float, bool]] = []

    def first() -> None:
        room = np.empty(size, np.float32)
        for number in range(3):
            room[:] = number
            assert passing.put(f"t{number}", room)[-1] == number
            room[:] = -1
        passing.end()

    def second() -> None:
        for number in range(3):
            theirs = passing.get(f"t{number}")
            put = passing.taken(f"t{number}", theirs, np.zeros(size, np.float32))
            got.append((float(theirs[0]), put is not None and bool((put == number).all())))
        own = np.zeros(size, np.float32)
        assert passing.get("another") is None
        assert passing.taken("same", own, own, same=True) is None
        assert passing.taken("shape", own, np.zeros(size + 1, np.float32)) is None
        assert passing.taken("kind", own, np.zeros(size, np.int32)) is None

    passing.run(first, second)
    assert [matches for _, matches in got] == [True] * 3
    assert [*waiting] == []
    waiting.close()


def test_a_target_whose_inputs_have_other_names_is_fed_its_own(tmp_path: Path) -> None:
    for replaces in (True, False):
        subject = subject_of(
            Engine(chain()), Engine(chain(), np.float16, replaces=replaces), target_feeds={"x": X * np.float32(2)}
        )
        with alone_of(subject, tmp_path) as alone:
            assert alone.found["x"].rel_l2 == pytest.approx(1.0, rel=1e-3)  # twice as much
            assert alone.found["y"].rel_l2 <= UNIT


def relative(own: Any, other: Any) -> float:
    own, other = own.astype(np.float64), other.astype(np.float64)
    return float(np.linalg.norm(other - own) / np.linalg.norm(own))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_is_inherited_is_what_the_baselines_operators_make_of_the_targets_inputs(
    together: bool, dtype: Any, tmp_path: Path
) -> None:
    """The author of the error inherits nothing; who follows it is given all of it, and adds nothing to this."""
    base, target = Engine(chain()), Engine(chain(root=off_by(1.25)), dtype)
    subject = subject_of(base, target, together=together)
    own: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    base.run({"x": X}, keeping(own))
    target.run({"x": X}, keeping(theirs))
    found = introduced.measure_inherited_errors(subject, tmp_path)
    assert list(found) == ["tripled", "root", "moved", "shifted", "y"], "an input has no operator"
    for name, _, reads, compute in chain():
        expected = relative(own[name], compute(theirs[reads[0]].astype(np.float32)))
        assert found[name] == pytest.approx(expected, rel=1e-3, abs=1e-6), name
    assert found["root"] < 1e-3 < 0.1 < found["moved"]
    assert "y" in base.replaced, "the baseline goes on with the target's values"


def test_an_error_that_is_inherited_as_nan_is_infinite_and_one_of_integers_is_none(tmp_path: Path) -> None:
    def steps(bad: float) -> list[Step]:
        return [
            ("root", "Sqrt", ("x",), lambda x: np.sqrt(x) * x.dtype.type(bad)),
            ("above", "Greater", ("root",), lambda x: (x > 1.5).astype(np.int32)),
            ("y", "Neg", ("root",), np.negative),
        ]

    subject = subject_of(Engine(steps(1.0)), Engine(steps(math.nan)))
    found = introduced.measure_inherited_errors(subject, tmp_path)
    assert found == {"root": 0.0, "y": math.inf}


def test_what_the_target_has_in_another_shape_is_inherited_by_nobody(tmp_path: Path) -> None:
    base = Engine(chain())
    found = introduced.measure_inherited_errors(subject_of(base, Engine(chain(moved=lambda x: x))), tmp_path)
    assert found == {"tripled": 0.0, "root": 0.0}, "nor is what follows of it compared"
    assert "moved" not in base.replaced


def test_what_the_baseline_makes_twice_is_inherited_as_it_was_first(tmp_path: Path) -> None:
    base, target = Engine(chain(), twice="root"), Engine(chain(), twice="tripled")
    found = introduced.measure_inherited_errors(subject_of(base, target), tmp_path)
    assert found["root"] == 0.0
    assert found["y"] == 0.0


def test_a_baseline_that_fails_leaves_no_file_of_what_was_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_x: Any) -> Any:
        raise BackendError("it fails", where="root")

    base = Engine(chain())
    subject = subject_of(base, Engine(chain()))
    closed: list[Any] = []

    def close(self: Any) -> None:
        closed.append(self)

    monkeypatch.setattr(type(subject.bench.waiting(tmp_path, 1 << 20)), "close", close)
    base.steps = chain(root=fails)
    with pytest.raises(BackendError):
        introduced.measure_inherited_errors(subject, tmp_path)
    assert len(closed) == 1


def test_what_was_kept_of_the_way_that_was_given_up_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    there = introduced.Alone.close
    monkeypatch.setattr(introduced.Alone, "close", lambda self: closed.append(self.method) or there(self))
    target = Engine(chain(), arithmetic="int8", takes={"x", "y"})
    with alone_of(subject_of(Engine(chain()), target), tmp_path) as alone:
        assert (alone.method, closed) == ("replayed", ["isolated"])
    assert closed == ["isolated", "replayed"]


@pytest.mark.parametrize(
    ("seen_in", "before", "born"),
    [
        ({"root": "first", "moved": "second"}, math.nan, 0), ({"root": "first", "moved": "first"}, math.nan, 1),
        ({}, math.nan, 1), ({"moved": "second"}, math.nan, 1), ({"root": "first", "moved": "second"}, 1.0, 1),
        ({"root": "first"}, math.nan, 0),
    ],
)  # fmt: skip
def test_finite_inputs_that_another_engine_showed_may_not_be_what_was_read(
    seen_in: dict[str, str], before: float, born: int
) -> None:
    """``tripled`` is broken, and ``root`` is finite where it was seen: in one engine for each few tensors."""
    engines = Engine(chain()), Engine(chain(tripled=lambda x: x * x.dtype.type(before), root=lambda x: np.sqrt(X)))
    metas = {
        meta.name: TensorMeta(name=meta.name, op_type=meta.op_type, dtype="float16",
                              extra={"Seen In": seen_in[meta.name]} if meta.name in seen_in else {})
        for meta in engines[1].tensors
    }  # fmt: skip
    subject = subject_of(*engines, targets=metas)
    exact, wrong = np.ones(2, np.float32), np.array([1, math.nan], np.float32)
    found = measured(subject, "moved", exact, wrong, "replayed")
    assert (found.born_nan, found.rel_l2 is None) == (born, born == 0)
    assert introduced.may_be_handed_nan(subject, "moved") is (born == 0)
    assert measured(subject, "moved", exact, wrong).born_nan == 1, "isolated, it was given what the baseline has"


def test_a_mask_that_overflowed_before_is_no_loss(tmp_path: Path) -> None:
    """Of what becomes -inf where the baseline has "minus infinity" as a number, nothing was lost."""
    for low, lost in ((-3e38, False), (-7e4, True)):
        def steps(low: float = low) -> list[Step]:
            return [
                ("masked", "Where", ("x",), lambda x: np.where(x > 2, x, np.float32(low))),
                ("root", "Sqrt", ("x",), np.sqrt), ("y", "Max", ("masked", "root"), np.maximum),
            ]  # fmt: skip

        engines = Engine(steps()), Engine(steps(), np.float16)
        metas = {meta.name: TensorMeta(name=meta.name, op_type=meta.op_type, extra={"Seen In": meta.name})
                 for meta in engines[1].tensors}  # fmt: skip
        metas["masked"] = TensorMeta(name="masked", op_type="Where", extra={"Seen In": "y"})  # one of two is enough
        assert introduced.may_be_handed_nan(subject_of(*engines, targets=metas), "y") is lost


@pytest.mark.parametrize(("arithmetic", "more"), [("int8", 1), ("int4", 1), ("float16", 0), ("", 0)])
def test_a_target_of_integers_alone_is_given_the_baselines_own_values(
    arithmetic: str, more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes a run of the baseline more; each operator is then given what it has there, and not what was computed
    of coarse ones before."""
    base = Engine(chain())
    subject = subject_of(base, Engine(chain(root=off_by(1.25)), np.float16, arithmetic=arithmetic))
    runs: list[Any] = []
    there = base.run
    monkeypatch.setattr(base, "run", lambda *given: runs.append(given) or there(*given))
    with alone_of(subject, tmp_path) as alone:
        assert alone.method == "isolated"
        assert len(runs) == more
        assert alone.found["root"].rel_l2 == pytest.approx(0.25, rel=2e-3)


def test_of_a_replayed_run_nothing_waits_any_longer(tmp_path: Path) -> None:
    """Each tensor of the target is put in its place once, and then dropped: of a large model they do not fit."""
    base = Engine(chain())
    subject = subject_of(base, Engine(chain(), np.float16, replaces=False))
    with contextlib.closing(subject.bench.waiting(tmp_path, 1 << 20)) as waiting:
        noted: list[str] = []
        introduced.replay_operators(subject, lambda name, _exact, _wrong: noted.append(name), waiting)
        assert noted == ["x", "tripled", "root", "moved", "shifted", "y"]
        assert [name for name in noted if name in waiting] == []
    assert base.replaced == set(noted)


class Watched(Engine):
    """Tells when its runs begin and end, and in the type of which side."""

    def __init__(self, told: list[str], *given: Any, **values: Any) -> None:
        super().__init__(*given, **values)
        self.told, self.seen = told, False

    def _run(self, *given: Any) -> dict[str, Any]:
        side = "target" if self.dtype == np.float16 else "baseline"
        self.told.append(f"{side} begins")
        found = super()._run(*given)
        self.told.append(f"{side} ends")
        return found


WIDE = np.random.default_rng(1).uniform(1, 4, (2, 150_000)).astype(np.float32)
"""More than a megabyte: too much to be lent, so that who is ahead waits."""


def order_of(together: bool, run: Callable[[Subject], object]) -> list[str]:
    told: list[str] = []
    subject = subject_of(Watched(told, chain()), Watched(told, chain(), np.float16), WIDE, together=together)
    told.clear()
    run(subject)
    return told[-4:]


def test_sides_that_may_not_run_together_run_one_after_the_other(tmp_path: Path) -> None:
    """The one that the other goes on with runs first; of those that may, neither waits for the other's end."""
    ways: list[tuple[Callable[[Subject], object], str, str]] = [
        (lambda subject: run_alone(subject, lambda *_: False, tmp_path).close(), "baseline", "target"),
        (lambda subject: introduced.measure_inherited_errors(subject, tmp_path), "target", "baseline"),
    ]
    for run, first, second in ways:
        apart = [f"{first} begins", f"{first} ends", f"{second} begins", f"{second} ends"]
        assert order_of(False, run) == apart
        beside = order_of(True, run)
        assert sorted(beside) == sorted(apart)
        assert beside.index(f"{second} begins") < beside.index(f"{first} ends")


@pytest.mark.parametrize("named", [None, 5 << 20])
def test_what_waits_keeps_to_the_users_budget_and_what_is_kept_to_its_own(
    named: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte waits where nobody named a budget, and a quarter of one is kept of all suspects; the rest on disk."""
    subject = subject_of(Engine(chain()), Engine(chain(), np.float16), memory_budget=named)
    waiting: list[int] = []
    kept: list[int] = []
    bench = type(subject.bench)
    there, other = bench.waiting, bench.store
    monkeypatch.setattr(
        bench, "waiting", lambda self, folder, budget: waiting.append(budget) or there(self, folder, budget)
    )
    monkeypatch.setattr(bench, "store", lambda self, folder, budget: kept.append(budget) or other(self, folder, budget))
    with alone_of(subject, tmp_path):
        assert sum(kept[:2]) == 256 << 20
    introduced.measure_inherited_errors(subject, tmp_path)
    assert waiting == [1 << 30 if named is None else named] * 3


def test_who_is_ahead_lends_no_more_than_64_megabytes(tmp_path: Path) -> None:
    """A side that is faster by far waits, and does not fill the memory with copies that nobody has taken yet."""
    subject = subject_of(Engine(chain()), Engine(chain()), together=True)
    waiting = subject.bench.waiting(tmp_path, 1 << 30)
    passing = Passing(subject, waiting)
    size, count = 1 << 18, 140  # a megabyte each
    put: list[int] = []
    most: list[int] = []

    def first() -> None:
        for number in range(count):
            passing.put(f"t{number}", np.full(size, number, np.float32))
            put.append(number)
        passing.end()

    def second() -> None:
        for number in range(count):
            if number < 2:  # long enough for all that may be lent; where that takes longer, less is seen
                time.sleep(0.3)
            most.append(len(put) - number)
            theirs = passing.get(f"t{number}")
            assert theirs[0] == number
            assert passing.taken(f"t{number}", theirs, np.zeros(size, np.float32)) is not None

    passing.run(first, second)
    assert len(put) == count
    assert max(most) <= 66
    waiting.close()


@pytest.mark.parametrize("lacking", [math.nan, math.inf])
def test_an_operator_that_lacks_what_the_baseline_lacks_has_an_error_of_its_own(lacking: float) -> None:
    """Its inputs may be another engine's, and NaN or Inf lies before them: what it computed of numbers is measured."""
    engines = Engine(chain()), Engine(chain(tripled=lambda x: x * x.dtype.type(math.nan), root=lambda x: np.sqrt(X)))
    metas = {meta.name: TensorMeta(name=meta.name, op_type=meta.op_type, extra={"Seen In": meta.name})
             for meta in engines[1].tensors}  # fmt: skip
    subject = subject_of(*engines, targets=metas)
    exact, wrong = np.array([1, 2, lacking], np.float32), np.array([1.1, 2.2, lacking], np.float32)
    found = measured(subject, "moved", exact, wrong, "replayed")
    assert (found.born_nan, found.born_inf) == (0, 0)
    assert found.rel_l2 == pytest.approx(0.1, rel=1e-4)


def test_the_numbers_of_two_results_are_told_at_once_where_they_are_asked_for() -> None:
    subject, exact = plain(), np.array([1.0, -2.0, 3.0], np.float32)
    for wrong in (exact * np.float32(1.01), exact[:2], np.array([math.nan, 1, 1], np.float32)):
        asked = introduced.measure(subject, "y", exact, wrong, "isolated")
        assert asked == measured(subject, "y", exact, wrong)
        assert (asked.name, asked.method, asked.elements) == ("y", "isolated", 3)


class Coarse(Engine):
    """Holds whole numbers alone."""

    def held(self, _name: str, value: Any) -> Any:
        return np.round(value) if value.dtype.kind == "f" else None


@pytest.mark.parametrize(("arithmetic", "own"), [("int8", True), ("", False)])
def test_an_operator_of_a_target_of_integers_is_given_the_baselines_own_tensor(
    arithmetic: str, own: bool, tmp_path: Path
) -> None:
    """Not what was computed of coarse ones before."""
    given: list[Any] = []

    def root(x: Any) -> Any:
        given.append(np.array(x))
        return np.sqrt(x)

    subject = subject_of(Engine(chain()), Coarse(chain(root=root), arithmetic=arithmetic))
    given.clear()
    with alone_of(subject, tmp_path) as alone:
        assert alone.method == "isolated"
    true, held = np.float32(3) * X, np.float32(3) * np.round(X)
    assert [any(np.array_equal(one, expected) for one in given) for expected in (true, held)] == [own, not own]
