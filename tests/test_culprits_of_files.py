"""Who is accused of what two files differ by: tables, as in ``test_culprits``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from test_culprits import GRAPH, accused, alone_of, nothing_is_run, row, sink, subject_of

from precision_debug.explain import culprits
from precision_debug.explain.culprits import find_suspicious_sinks, list_candidates, rank
from precision_debug.explain.subject import Subject
from precision_debug.explain.units import LEAST
from precision_debug.records import Effect, Introduced, Row, TensorMeta

__all__ = ["nothing_is_run"]

OFF, ALIKE = 0.02, 5e-5

def of_two_files(
    errors: Mapping[str, Any], graph: Mapping[str, tuple[str, ...]] = GRAPH, held: Mapping[str, str] | None = None,
    op_types: Mapping[str, str] | None = None, **values: Any,
) -> Subject:  # fmt: skip
    """errors: see ``subject_of``; of a number within LEAST every element agrees. held: the target's types."""
    rows = {}
    for name, one in errors.items():
        own = one if isinstance(one, Row) else row(name, one, is_output=name == "y", target={"dtype": "float32"})
        if not isinstance(one, Row) and own.comparison is not None:
            agrees = dataclasses.replace(own.comparison, mismatched=0 if one <= LEAST else 4)
            own = dataclasses.replace(own, comparison=agrees)
        rows[name] = own
    held, op_types = held or {}, op_types or {}
    targets = {
        name: TensorMeta(name=name, op_type=op_types.get(name, "Add"), dtype=held.get(name, "float32"))
        for name in graph
    }  # fmt: skip
    given = {"precision": "float32", "two_files": True, "targets": targets, **values}
    return subject_of(rows, graph, **given)

SIDE = {"a": (), "b": ("a",), "c": ("a",), "y": ("b", "c")}
"""Two read what the first makes."""

@pytest.mark.parametrize(
    ("units", "error", "values", "candidate"),
    [
        (9.0, ALIKE, {}, False),  # it does something else to the same inputs, and gives the same
        (7.9, ALIKE, {}, True), (9.0, 1.1e-4, {}, True),
        (9.0, ALIKE, {"two_files": False}, True),
        # within a step of few bits much agrees that is not the same
        (9.0, ALIKE, {"held": dict.fromkeys(GRAPH, "float16")}, True),
        (9.0, ALIKE, {"held": {"a": "float16"}}, True), (9.0, ALIKE, {"op_types": {"a": "QuantizeLinear"}}, True),
    ],
)  # fmt: skip
def test_who_makes_up_for_a_difference_is_innocent(
    units: float, error: float, values: dict[str, Any], candidate: bool
) -> None:
    found = of_two_files({"a": OFF, "b": error, "c": OFF, "y": OFF}, **values)
    assert list_candidates(found, alone_of({"b": units}), []) == (["b"] if candidate else [])
    assert culprits.list_felt(found, alone_of({"b": units})) == (["b"] if candidate or not found.two_files else [])

@pytest.mark.parametrize("missing", ["non_finite", "shape"])
def test_what_nobody_can_compare_makes_up_for_nothing(missing: str) -> None:
    there = row("b", ALIKE, target={"dtype": "float32", "nan": int(missing == "non_finite")})
    if missing == "shape" and there.comparison is not None:
        there = dataclasses.replace(there, comparison=dataclasses.replace(there.comparison, shapes_match=False))
    found = of_two_files({"a": OFF, "b": there, "c": OFF, "y": OFF})
    assert list_candidates(found, alone_of({"b": 9.0}), []) == ["b"]

@pytest.mark.parametrize(
    ("errors", "graph", "values", "felt"),
    [
        # all that reads a agrees, and another operator is what the output is off by
        ({"a": OFF, "b": ALIKE, "c": ALIKE, "z": OFF, "y": OFF}, {**SIDE, "z": (), "y": ("b", "c", "z")}, {}, False),
        ({"a": OFF, "b": ALIKE, "c": OFF, "z": OFF, "y": OFF}, {**SIDE, "z": (), "y": ("b", "c", "z")}, {}, True),
        # behind others, too
        ({"a": OFF, "b": OFF, "c": ALIKE, "z": OFF, "y": OFF},
         {"a": (), "b": ("a",), "c": ("b",), "z": (), "y": ("c", "z")}, {}, False),
        ({"a": OFF, "b": OFF, "c": OFF, "z": OFF, "y": OFF},
         {"a": (), "b": ("a",), "c": ("b",), "z": (), "y": ("c", "z")}, {}, True),
        ({"a": OFF, "b": ALIKE, "c": ALIKE, "y": ALIKE}, SIDE, {}, True),  # no output is off
        ({"a": OFF, "b": ALIKE, "c": ALIKE, "z": OFF, "y": OFF}, {**SIDE, "z": (), "y": ("b", "c", "z")},
         {"two_files": False}, True),
        # its own small difference may be all that a logarithm behind it shows
        ({"a": ALIKE, "b": OFF, "y": OFF}, {"a": (), "b": ("a",), "y": ("b",)}, {}, True),
        ({"a": OFF, "z": OFF, "y": OFF}, {"a": (), "z": (), "y": ("z",)}, {}, True),  # nothing reads it at all
    ],
)  # fmt: skip
def test_a_difference_that_all_its_readers_take_back_is_felt_nowhere(
    errors: dict[str, float], graph: dict[str, tuple[str, ...]], values: dict[str, Any], felt: bool
) -> None:
    outputs = {name: None for name in errors if name == "y"}
    found = of_two_files(errors, graph, outputs=outputs, **values)
    alone = alone_of({"a": 7.0})
    assert culprits.list_felt(found, alone) == (["a"] if felt else [])
    assert list_candidates(found, alone, []) == (["a"] if felt else [])

def test_beside_huge_numbers_each_element_has_to_agree() -> None:
    """A mask's numbers hide any error of the others in a norm."""
    graph = {"a": (), "b": ("a",), "z": (), "y": ("b", "z")}
    masked = row("b", ALIKE, target={"dtype": "float32"})
    assert masked.comparison is not None
    for mismatched in (0, 1):
        there = dataclasses.replace(
            masked, comparison=dataclasses.replace(masked.comparison, mismatched=mismatched)
        )  # fmt: skip
        found = of_two_files({"a": OFF, "b": there, "z": OFF, "y": OFF}, graph, outputs={"y": None})
        assert list_candidates(found, alone_of({"a": 9.0}), []) == (["a"] if mismatched else [])

@pytest.mark.parametrize(
    ("out", "share", "values", "named"),
    [
        (ALIKE, 8.1, {}, False), (ALIKE, 7.9, {}, True), (OFF, 8.1, {}, True),
        (ALIKE, 8.1, {"two_files": False}, True),
    ],
)  # fmt: skip
def test_what_would_make_far_more_than_there_is_was_taken_back(
    out: float, share: float, values: dict[str, Any], named: bool
) -> None:
    """Where every output agrees: there the difference of two files alone is far more than all of the error."""
    found = of_two_files({"a": OFF, "b": OFF, "c": OFF, "y": out}, fails=True, **values)
    effects = {"a": [Effect(at="y", share=share)]}
    assert bool(rank(found, alone_of({"a": 100.0}), effects, (sink(out),), "", {"y"})) is named

def test_of_two_outputs_one_that_is_off_is_asked_about() -> None:
    found = of_two_files({"a": OFF, "b": OFF, "y": ALIKE}, {"a": (), "b": ("a",), "y": ("a",)})
    effects = {"a": [Effect(at="y", share=9.0), Effect(at="b", share=0.5)]}
    both = (sink(ALIKE), sink(OFF, "b"))
    assert culprits._without_taken_back(found, effects, both) == effects
    assert culprits._without_taken_back(found, effects, both[:1]) == {}
    inside = (sink(ALIKE), sink(OFF, "b", is_output=False))
    assert culprits._without_taken_back(found, {"a": effects["a"][1:]}, inside) == {"a": effects["a"][1:]}
    assert culprits._without_taken_back(found, effects, inside[1:]) == effects, "no output is seen"

@pytest.mark.parametrize(
    ("cause", "units", "told"),
    [
        ("files_differ", {"b": 9.0, "c": 1.0}, {"undone": "`b`", "kept": "`c`"}),
        ("files_differ", {"b": 1.0, "c": 1.0}, {}), ("files_differ", {"b": 9.0}, {}),
        ("coarse", {"b": 9.0, "c": 1.0}, {}),
    ],
)  # fmt: skip
def test_who_makes_up_for_a_difference_is_told_beside_who_does_not(
    cause: str, units: dict[str, float], told: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(culprits, "find_cause", lambda _subject, _alone, name, *_, **__: (cause, {"one": 1}, (name,)))
    found = of_two_files({"a": OFF, "b": ALIKE, "c": OFF, "y": OFF}, SIDE)
    effects = {"a": [Effect(at="y", share=0.9)]}
    (named,) = rank(found, alone_of({"a": 100.0, **units}), effects, (sink(OFF),), "", {"y"})
    assert named.evidence == {"one": 1, **told}

@pytest.mark.parametrize(
    ("dtypes", "method", "held", "candidate"),
    [
        (("float32", "int64"), "isolated", "float32", True), (("float32", "int64"), "replayed", "float32", False),
        (("float32", "int64"), "isolated", "float16", False),  # what is cast was rounded on the way to it
        (("int32", "int64"), "isolated", "float32", False), (("float32", "float64"), "isolated", "float32", False),
    ],
)  # fmt: skip
def test_a_cast_of_the_same_floats_to_other_whole_numbers_is_looked_at(
    dtypes: tuple[str, str], method: str, held: str, candidate: bool
) -> None:
    graph = {"a": (), "b": ("a",), "y": ("b",)}
    found = of_two_files({"a": OFF, "b": OFF, "y": OFF}, graph, two_files=False, held=dict.fromkeys(graph, held))
    tensors = [
        TensorMeta(name=name, op_type="Cast" if name == "b" else "Add", node=name, inputs=graph[name], dtype=dtype)
        for name, dtype in zip(graph, (*dtypes, "float32"), strict=True)
    ]  # fmt: skip
    found = dataclasses.replace(found, tensors=tensors)
    own: Any = Introduced(name="b", method=method, elements=4, flips=1)
    assert list_candidates(found, alone_of({"b": own}), []) == (["b"] if candidate else [])
    none = dataclasses.replace(own, flips=0)
    assert list_candidates(found, alone_of({"b": none}), []) == []

@pytest.mark.parametrize(
    ("method", "broken", "engines", "candidate"),
    [
        ("replayed", True, "12", False), ("isolated", True, "12", True), ("replayed", False, "12", True),
        ("replayed", True, "11", True),
    ],
)  # fmt: skip
def test_who_was_handed_nan_by_an_engine_that_nobody_saw_is_innocent(
    method: str, broken: bool, engines: str, candidate: bool
) -> None:
    errors = {
        "a": row("a", 1e-3, target={"nan": 1}), "b": row("b", 1e-3, target={"nan": int(broken)}), "c": 1e-4, "y": 0.09
    }  # fmt: skip
    targets = {
        name: TensorMeta(name=name, op_type="Add", dtype="float16", extra={"Seen In": engine})
        for name, engine in zip("abcy", f"{engines}22", strict=True)
    }  # fmt: skip
    own: Any = Introduced(name="b", method=method, elements=4, rel_l2=1.0, units=99.0, born_nan=1)
    assert list_candidates(subject_of(errors, targets=targets), alone_of({"b": own}), []) == (["b"] * candidate)

@pytest.mark.parametrize(("other", "share", "named"), [(True, 0.001, ["a"]), (False, 0.001, []), (False, 0.6, ["a"])])
def test_a_stored_number_that_no_rounding_explains_is_told_whatever_its_share(
    other: bool, share: float, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(culprits, "find_narrowed_constants", lambda _subject, name: (0.0, other and name == "a"))
    assert list(accused({"a": share, "b": 0.01}, {"a": 1.0})) == named
    found = subject_of({"a": 1e-4, "y": 0.1})
    assert find_suspicious_sinks(found, [sink(1e-7)], {}) == ({"y"} if other else set())

@pytest.mark.parametrize(
    ("share", "evidence", "named"),
    [
        (0.01, {"weight": "w"}, True),  # which the files prove
        (0.01, {}, False),  # few of its numbers, beside what all others are rounded by
        (0.03, {}, True), (8.1, {}, True),
        (8.1, {"weight": "w"}, True),
    ],
)  # fmt: skip
def test_a_weight_of_another_scale_is_told_whatever_its_share(
    share: float, evidence: dict[str, str], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(culprits, "holds_another_scale", lambda _subject, name: name == "a")
    monkeypatch.setattr(culprits, "find_cause", lambda *_, **__: ("scale", evidence, ("a",)))
    assert bool(accused({"a": share}, {"a": 1.0})) is named


def test_a_net_of_readers_is_gone_through_once() -> None:
    """Thirty forks that join again have a thousand million ways through."""
    graph: dict[str, tuple[str, ...]] = {"a": ()}
    last = "a"
    for number in range(30):
        graph |= {f"p{number}": (last,), f"q{number}": (last,), f"l{number}": (f"p{number}", f"q{number}")}
        last = f"l{number}"
    graph |= {"z": (), "y": (last, "z")}
    found = of_two_files(dict.fromkeys(graph, OFF) | {last: ALIKE}, graph, outputs={"y": None})
    assert list_candidates(found, alone_of({"a": 7.0}), []) == []
