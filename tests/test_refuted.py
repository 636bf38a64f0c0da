"""Whoever is named is nobody where the engine does as badly with all of them kept, and better with more."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from approval import holds_approved

from precision_debug.codec import decode, encode
from precision_debug.explain import Subject
from precision_debug.protocols import Executed
from precision_debug.records import Culprit, Explanation, TensorMeta
from precision_debug.report.blame import diffuse_sentence
from precision_debug.run.fixes import add_repaired_culprit, note_kept_in_vain, withdraw_culprits
from precision_debug.search.fix import Evaluation, ToKeep, TradePoint

ALL = Executed(low=50, of=60, precision="INT8")
SOME = Executed(low=40, of=60, precision="INT8")
THEIRS = frozenset({0, 1})
BEFORE = 0.22


def evaluation(error: float | None, executed: Executed | None = SOME) -> Evaluation:
    return Evaluation(kept=(), mode="ort_int8", passes=False, error=error, executed=executed)


def point(found: Evaluation) -> TradePoint:
    return TradePoint(what="curve", kept=len(found.kept), error=found.error, passes=found.passes)


def outcome(seen: dict[Any, Evaluation], *, whole: float = 1e-6) -> TradePoint | None:
    kept = ToKeep(of=60, state="none", before=BEFORE, whole=whole)
    seen = {units: dataclasses.replace(found, kept=tuple(map(str, units))) for units, found in seen.items()}
    return note_kept_in_vain(kept, seen, THEIRS, BEFORE, ALL, point).in_vain


def kept_in_vain(kept: int, error: float) -> ToKeep:
    return ToKeep(
        of=222, state="none", in_vain=TradePoint(what="curve", kept=kept, error=error, passes=False)
    )  # fmt: skip


CULPRIT = Culprit(
    name="add", node="add", op_types=("Add",), cause="outlier_channel", share=1.0, at="y", introduced=0.1, units=2.9
)
EXPLANATION = Explanation(
    state="culprits", culprits=(CULPRIT,), at="y", actual=BEFORE, unit=0.0195, expected=0.268, allowed=0.058, tried=23,
    budget={"add": 1.0},
)  # fmt: skip


def test_culprits_that_were_kept_in_vain_are_told() -> None:
    larger = THEIRS | {2, 3, 4}
    found = outcome({THEIRS: evaluation(0.2179), larger: evaluation(0.1654)})
    assert found is not None
    assert (found.kept, found.error) == (2, 0.2179)


def test_culprits_are_refuted_by_an_error_that_grows_with_them_kept() -> None:
    """A detector of turns in OpenVINO's BF16: 0.1565, 0.4695 with the culprits kept, and 0.2428 with everything."""
    found = outcome({THEIRS: evaluation(0.66), frozenset(range(60)): evaluation(0.34)}, whole=0.34)
    assert found is not None
    assert (found.kept, found.error) == (60, 0.34)  # the least of what was run
    assert outcome({frozenset(range(60)): evaluation(0.34)}, whole=0.34) == found


def test_kept_operators_are_counted_as_the_fix_counts_them() -> None:
    """Of everything that was kept 522 operators were told, and 477 in the next line: an engine has more names."""
    kept, names = ToKeep(of=3, state="none", before=BEFORE, whole=0.34), ("a", "a/Convert", "b", "b/Convert", "c")
    found = note_kept_in_vain(
        kept, {frozenset(range(3)): dataclasses.replace(evaluation(0.34), kept=names)}, THEIRS, BEFORE, ALL, point
    ).in_vain
    assert found is not None
    assert found.kept == 3


@pytest.mark.parametrize(
    ("seen", "whole"),
    [
        ({THEIRS: evaluation(0.66, ALL)}, 0.34),  # larger, though the engine ran them in low precision all the same
        ({THEIRS: evaluation(0.66), THEIRS | {2}: evaluation(0.21)}, 0.34),  # with one more it is as it was
        ({THEIRS: evaluation(0.15)}, 1e-6),  # it helped
        ({THEIRS: evaluation(0.21)}, 0.2),  # nothing that is kept does anything on this engine
        ({THEIRS: evaluation(0.21, ALL)}, 1e-6),  # the engine ran them in low precision all the same
        ({THEIRS: evaluation(0.21, None)}, 1e-6),  # it does not tell what it ran them in
        ({THEIRS: evaluation(None)}, 1e-6),  # it did not run
        (
            {THEIRS: evaluation(0.21), THEIRS | {2}: evaluation(0.1)},
            1e-6,
        ),  # with what makes what they read it helped
        ({frozenset({0}): evaluation(0.21)}, 1e-6),  # not all of them were kept
    ],
)
def test_what_was_tried_does_not_refute(seen: dict[Any, Evaluation], whole: float) -> None:
    assert outcome(seen, whole=whole) is None


@pytest.mark.parametrize(
    ("low", "error", "refuted"),
    [
        ("other", 0.2179, True),  # in float all the while: kept, they leave the count as it was
        ("add", 0.2179, False),  # they count, and the count is what it was
        ("other", BEFORE, False),  # nothing changed at all
    ],
)
def test_who_runs_in_float_between_quantised_tensors_is_refuted_too(low: str, error: float, refuted: bool) -> None:
    """Tensors are what is quantised there, and the engine counts no such operator among those in INT8."""
    was = dataclasses.replace(ALL, names=((low,),))
    kept = ToKeep(of=60, state="none", before=BEFORE, whole=1e-6)
    found = note_kept_in_vain(kept, {THEIRS: evaluation(error, ALL)}, THEIRS, BEFORE, was, point, frozenset({"add"}))
    assert (found.in_vain is not None) == refuted


def test_nobody_is_nobody_where_the_outputs_pass() -> None:
    """Within what one operator may make, a culprit that is refuted leaves no error of many that would fail the run."""
    found = withdraw_culprits(dataclasses.replace(EXPLANATION, passes=True), kept_in_vain(2, 0.21))
    assert found is not None
    assert (found.state, found.culprits, found.overlap) == ("healthy", (), None)



def test_what_is_refuted_is_nobody_s_and_says_why() -> None:
    kept = kept_in_vain(21, 0.2179)
    found = withdraw_culprits(EXPLANATION, kept)
    assert found is not None
    assert (found.state, found.culprits) == ("diffuse", ())
    assert found.allowed is not None
    assert found.allowed > float(EXPLANATION.allowed or 0)
    assert decode(Explanation, encode(found)) == found
    said = diffuse_sentence(found)
    assert holds_approved(said.en)
    assert "(21 operators) 0.2179 of 0.22 is left" in said.en
    assert "21 个算子" in said.zh


@pytest.mark.parametrize(
    "changed",
    [
        {"non_finite": 3},  # NaN and Inf do not add up to anything
        {"without": 0.05, "with_all": BEFORE},  # the baseline's run says that it is the cause
    ],
)
def test_what_is_known_otherwise_is_not_withdrawn(changed: dict[str, Any]) -> None:
    culprit = dataclasses.replace(CULPRIT, **changed)
    assert withdraw_culprits(dataclasses.replace(EXPLANATION, culprits=(culprit,)), kept_in_vain(2, 0.21)) is None


def test_the_engine_s_own_run_overrules_a_replay_that_lacks_less_than_half() -> None:
    """A text detector in `ov_int8`: 0.1113 of 0.1734 replayed without the two that were named, 0.1745 on the engine."""
    culprit = dataclasses.replace(CULPRIT, without=0.1413, with_all=BEFORE)
    found = withdraw_culprits(dataclasses.replace(EXPLANATION, culprits=(culprit,)), kept_in_vain(11, 0.2214))
    assert found is not None
    assert (found.state, found.culprits) == ("diffuse", ())


@pytest.mark.parametrize(
    ("state", "keys", "after", "named"),
    [("lessened", ("add",), 0.0527, True), ("mended", ("add",), 0.0527, True), ("lessened", ("add",), 0.15, False),
     ("lessened", ("add", "mul"), 0.0527, False)],
)  # fmt: skip
def test_one_operator_that_takes_two_thirds_of_an_error_is_its_author(
    state: str, keys: tuple[str, ...], after: float, named: bool
) -> None:
    """A real voice detector: "no single culprit" beside a fix of one of 31 operators, which left 16 % of the error."""
    spread = Explanation(state="diffuse", at="y", actual=0.339, unit=0.0195, expected=0.4, allowed=0.1, tried=19)
    kept = ToKeep(of=31, keys=keys, unit="operator", option="--option a=b", state=state, before=0.339, after=after)
    tensors = [TensorMeta(name=f"{node}_out", op_type=node.capitalize(), node=node) for node in ("add", "mul")]
    nobody: Any = None
    subject = Subject(baseline=nobody, target=nobody, feeds={}, rows=(), tensors=tensors, targets={})
    found = add_repaired_culprit(spread, kept, subject)
    assert ([culprit.node for culprit in found.culprits] if found else []) == (["add"] if named else [])
