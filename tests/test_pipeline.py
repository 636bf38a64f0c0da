"""The story of a run, in the journal's own words: what is told in which order, and what a failure leaves behind."""

from __future__ import annotations

import dataclasses
import gc
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from precision_debug.errors import BackendError, MarkError, UsageError
from precision_debug.events import (
    Again,
    End,
    Event,
    Explained,
    Inputs,
    Layers,
    Note,
    Paired,
    RepeatsFound,
    RowDone,
    Saved,
    Selected,
    ShardDone,
    SideDone,
    Start,
    Tensors,
)
from precision_debug.inspector import EngineLayer
from precision_debug.reasons import say
from precision_debug.records import ModelFiles, RunSpec, Status, TensorMeta
from precision_debug.report.from_journal import report_of_events
from precision_debug.run import pipeline
from precision_debug.run.journal import Journal, read_events
from precision_debug.run.open_pair import (
    Apart,
    find_renames,
    freeze_old_objects,
    refuse_lockstep,
    runs_together,
    select_marked,
)

X = {"x": np.zeros(4, np.float32)}


def told(fake: str, folder: Path, mode: str = "fake_off", **settings: Any) -> list[Event]:
    work = folder / "work"
    work.mkdir()
    spec = RunSpec(model=ModelFiles(model_file=fake), run_mode=mode, **settings)
    with Journal(work / "j") as journal:
        pipeline.execute(spec, journal, folder=work, feeds=(X,))
    return list(read_events(work / "j"))


def test_a_whole_run_is_told_from_its_start_to_its_end(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path)
    assert isinstance(events[0], Start)
    assert isinstance(events[-1], End)
    kinds = [type(event) for event in events]
    assert kinds.index(Paired) < kinds.index(Saved) < kinds.index(SideDone) < kinds.index(RowDone)
    assert sum(kind is Saved for kind in kinds) == sum(kind is RowDone for kind in kinds) == 8
    assert Inputs in kinds
    report = report_of_events(events)
    assert [row.status for row in report.rows] == [Status.PASS] * 3 + [Status.FAIL] * 5
    assert report.first_mismatch is not None
    assert report.first_mismatch.name == "t3"
    assert report.failure == ""


def test_only_what_was_marked_is_saved_and_compared(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path, marks=("t2", "t5"))
    assert [event.names for event in events if isinstance(event, Selected)] == [("t2", "t5", "t7")]
    assert [event.row.name for event in events if isinstance(event, RowDone)] == ["t2", "t5", "t7"], "t7 is the output"


def test_tensors_that_the_target_calls_otherwise_are_paired_by_their_origin(fake: str, tmp_path: Path) -> None:
    rows = [event.row for event in told(fake, tmp_path, "fake_fused") if isinstance(event, RowDone)]
    assert [(row.name, row.target_name, row.paired_by) for row in rows] == [
        (f"t{number}", f"f{number}", "graph metadata") for number in (1, 3, 5, 7)
    ]


def test_what_was_finished_before_a_failure_is_in_the_journal(fake: str, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="ValueError"):
        told(fake, tmp_path, "fake_raise")
    events = list(read_events(tmp_path / "work" / "j"))
    assert not any(isinstance(event, End) for event in events)
    report = report_of_events(events)
    assert [row.name for row in report.rows if row.comparison is not None] == [f"t{number}" for number in range(5)]
    assert report.verdict == "partial"


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"marks": ("nothing",)}, MarkError, "no tensor"),
        ({"lockstep": True}, UsageError, "run mode fake_fp32 cannot run side by side with another"),
    ],
)
def test_what_cannot_be_done_is_said(
    fake: str, tmp_path: Path, settings: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        told(fake, tmp_path, **settings)


def test_what_was_told_before_both_run_again_is_void(fake: str, tmp_path: Path) -> None:
    """As where two runs turn out to share state: the rows of the first attempt are none of the report's."""
    events = told(fake, tmp_path)
    rows = [event for event in events if isinstance(event, RowDone)]
    twice = [*events[:-1], Again(), *events[1:-1], events[-1]]
    assert sum(isinstance(event, RowDone) for event in twice) == 2 * len(rows)
    assert report_of_events(twice).rows == report_of_events(events).rows
    spoiled = [*events[:-1], Again(), events[-1]]
    assert all(row.comparison is None for row in report_of_events(spoiled).rows)


@pytest.mark.parametrize(
    ("marks", "compared"),
    [((), ["t1", "t3", "t5", "t7"]), (("t2", "t3", "t5"), ["t3", "t5", "t7"]), (("t2",), ["t7"])],
)
def test_what_fusion_left_of_what_was_marked(
    fake: str, tmp_path: Path, marks: tuple[str, ...], compared: list[str]
) -> None:
    """--fused_only takes from what --mark chose, and adds nothing to it; outputs are compared beside both."""
    events = told(fake, tmp_path, "fake_fused", marks=marks, fused_only=True)
    assert [event.row.name for event in events if isinstance(event, RowDone)] == compared
    chosen = [event.names for event in events if isinstance(event, Selected)][-1]
    assert chosen == tuple(compared)


def test_fail_fast_ends_the_run_with_the_first_failure(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path, fail_fast=True)
    rows = [event.row.name for event in events if isinstance(event, RowDone)]
    assert rows == ["t0", "t1", "t2", "t3"]
    assert any(isinstance(event, Note) and event.text.code == "fail_fast" for event in events)
    assert isinstance(events[-1], End)
    report = report_of_events(events)
    assert report.first_mismatch is not None
    assert (report.first_mismatch.name, str(report.verdict)) == ("t3", "out of tolerance")


def test_both_run_again_apart_where_they_turn_out_to_share_state(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import precision_debug_fake as module

    modes = tuple(dataclasses.replace(mode, concurrent=True) for mode in module.FakeBackend.run_modes)
    monkeypatch.setattr(module.FakeBackend, "run_modes", modes)
    alone = told(fake, tmp_path)
    assert not any(isinstance(event, Again) for event in alone)
    monkeypatch.setattr(module.FakeSession, "alone", "they share a counter")
    (tmp_path / "second").mkdir()
    events = told(fake, tmp_path / "second")
    assert sum(isinstance(event, Again) for event in events) == 1
    assert [event.text.code for event in events if isinstance(event, Note)][:1] == ["apart"]
    assert [event.row.name for event in events if isinstance(event, RowDone)] == [f"t{n}" for n in range(8)]


def test_sessions_that_run_one_after_the_other_may_share_what_they_like(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import precision_debug_fake as module

    monkeypatch.setattr(module.FakeSession, "alone", "they share a counter")
    assert not any(isinstance(event, Again) for event in told(fake, tmp_path))


def test_a_run_that_is_only_validated_explains_nothing(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path, baseline="none", validate=True)
    assert [event.text.code for event in events if isinstance(event, Note)][:1] == ["validated_alone"]
    assert not any(isinstance(event, Explained) for event in events)
    (tmp_path / "two").mkdir()
    assert any(isinstance(event, Explained) for event in told(fake, tmp_path / "two"))
    (tmp_path / "off").mkdir()
    assert not any(isinstance(event, Explained) for event in told(fake, tmp_path / "off", explain="off"))


def test_what_both_sides_showed_beyond_their_lists_is_announced_after_the_run(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path)
    last_row = max(place for place, event in enumerate(events) if isinstance(event, RowDone))
    later = [event.side for event in events[last_row:] if isinstance(event, Tensors)]
    assert later == ["baseline", "target"]


def names(*given: str) -> list[TensorMeta]:
    return [TensorMeta(name=name, op_type="Op") for name in given]


@pytest.mark.parametrize(
    ("own", "of_inputs", "found"),
    [
        ({}, {"new": "old"}, {"new": "old"}),
        ({}, {"same": "same"}, {}),
        ({}, {"absent": "old"}, {}), ({}, {"new": "absent"}, {}),  # a side does not list it
        ({"t": "b"}, {"new": "old"}, {"new": "old", "t": "b"}),
        ({"new": "b"}, {"new": "old"}, {"new": "b"}),  # the user's own wins
        ({"new": "old"}, {"new": "old"}, {"new": "old"}),
        ({"absent": "b"}, {"absent": "b"}, {}),  # an input's, which no side lists
        ({"absent": "b"}, {}, {"absent": "b"}),  # refused later, by name
    ],
)  # fmt: skip
def test_renames_of_the_user_and_of_inputs(
    own: dict[str, str], of_inputs: dict[str, str], found: dict[str, str]
) -> None:
    spec = RunSpec(model=ModelFiles(), run_mode="m", renames=own)
    given: Any = SimpleNamespace(names=of_inputs)
    there = names("new", "same", "t")
    assert find_renames(spec, given, names("old", "same", "b"), there) == found


@pytest.mark.parametrize(
    ("first", "second", "asked", "found"),
    [
        (True, True, None, True), (True, False, None, False), (False, True, None, False), (None, True, None, True),
        (None, False, None, False), (None, None, None, True), (True, True, False, False), (True, True, True, True),
        (True, False, False, False),
        (True, False, True, "run mode second cannot run side by side with another"),
        (False, True, True, "run mode first cannot run side by side with another"),
    ],
)  # fmt: skip
def test_whether_both_advance_together(
    first: bool | None, second: bool | None, asked: bool | None, found: bool | str
) -> None:
    """None: a recording, which always can."""
    sides: list[Any] = [
        SimpleNamespace(label=label, mode=None if able is None else SimpleNamespace(concurrent=able))
        for label, able in (("first", first), ("second", second))
    ]
    spec = RunSpec(model=ModelFiles(), run_mode="m", lockstep=asked)
    if isinstance(found, str):
        with pytest.raises(UsageError, match=found):
            runs_together(spec, *sides)
    else:
        assert runs_together(spec, *sides) is found


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({}, None), ({"marks": ("b", "d")}, {"b", "d"}), ({"marks_between": ("b", "c")}, {"b", "c"}),
        ({"marks": ("c", "d"), "marks_between": ("b", "c")}, {"c"}),
    ],
)  # fmt: skip
def test_what_is_selected(settings: dict[str, Any], chosen: set[str] | None, tmp_path: Path) -> None:
    spec = RunSpec(model=ModelFiles(), run_mode="m", **settings)
    with Journal(tmp_path / "j") as journal:
        assert select_marked(spec, names("a", "b", "c", "d"), journal) == chosen
    told = [event.names for event in read_events(tmp_path / "j") if isinstance(event, Selected)]
    assert [set(one) for one in told] == ([] if chosen is None else [chosen])


def test_parts_are_compared_or_explained_as_asked_and_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def again(number: int) -> str:
        done.append(f"again {number}")
        return "ran"

    samples: Any = SimpleNamespace(part=lambda *part: done.append(part), again=again)
    monkeypatch.setattr(pipeline, "explain_sample", lambda work, both, number, ran, _: done.append((number, ran)))
    monkeypatch.setattr(pipeline, "_record_late_tensors", lambda both, journal: done.append("announced"))
    monkeypatch.setattr(pipeline, "calibrates_on_compared", lambda *_: False)
    sides: Any = SimpleNamespace(base=None, target=None)
    for explains, last in ((True, [(3, "ran")]), (False, [])):
        done.clear()
        work: Any = SimpleNamespace(explains=explains, journal=None, feed_set=None)
        pipeline._run_parts([[0, 4], [4, 8], [3]], samples, work, sides)
        assert done == [(0, 4), "announced", (4, 8), "again 3", *last]


def test_two_runs_that_cannot_advance_together_say_why() -> None:
    sides: list[Any] = [SimpleNamespace(session=SimpleNamespace(alone=why)) for why in ("", "one counter")]
    with pytest.raises(Apart, match="one counter"):
        refuse_lockstep(True, *sides)
    refuse_lockstep(False, *sides)
    refuse_lockstep(True, sides[0], sides[0])


def test_the_engines_layers_are_told_after_the_run(fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import precision_debug_fake as module

    layer = EngineLayer(name="t0 + t1", layer_type="Fused")
    monkeypatch.setattr(module.FakeSession, "layers", (layer,))
    events = told(fake, tmp_path)
    places = [place for place, event in enumerate(events) if isinstance(event, Layers)]
    assert places
    assert events[places[-1]].layers == (layer,)  # type: ignore[union-attr]
    assert report_of_events(events).layers == (layer,)


def test_each_side_announces_its_own_tensors(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path, "fake_fused")
    announced = {event.side: {meta.name for meta in event.tensors} for event in events if isinstance(event, Tensors)}
    assert announced == {
        "baseline": {f"t{number}" for number in range(8)}, "target": {f"f{number}" for number in (1, 3, 5, 7)},
    }  # fmt: skip


def test_a_target_is_built_anew_as_often_as_was_asked(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path, repeat=2, explain="off")
    assert [event.repeats.count for event in events if isinstance(event, RepeatsFound)] == [2]
    assert isinstance(events[-1], End)


@pytest.mark.parametrize(("explain", "more"), [("off", False), ("fast", True)])
def test_a_sample_is_run_once_more_only_to_be_explained(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explain: str, more: bool
) -> None:
    import precision_debug_fake as module

    runs: list[float] = []
    real = module.FakeSession.run

    def counted(self: Any, feeds: Any, *given: Any, **named: Any) -> Any:
        runs.append(float(np.asarray(feeds["x"]).flat[0]))
        return real(self, feeds, *given, **named)

    monkeypatch.setattr(module.FakeSession, "run", counted)
    spec = RunSpec(model=ModelFiles(model_file=fake), run_mode="fake_off", explain=explain)
    with Journal(tmp_path / "j") as journal:
        pipeline.execute(spec, journal, folder=tmp_path, feeds=(X, {"x": X["x"] - np.float32(3.5)}))
    assert (runs.count(-3.5) > 2) is more  # the worse of two samples, once on each side


@pytest.mark.parametrize(("calibrates", "codes"), [(False, ()), (True, ("only_calibrated",))])
def test_that_only_what_calibrated_was_compared_is_told_where_nothing_is_explained(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrates: bool, codes: tuple[str, ...]
) -> None:
    """Zeros cannot be varied into other inputs, so that nothing else can be run."""
    import precision_debug_fake as module

    modes = tuple(dataclasses.replace(mode, calibrates=calibrates) for mode in module.FakeBackend.run_modes)
    monkeypatch.setattr(module.FakeBackend, "run_modes", modes)
    report = report_of_events(told(fake, tmp_path, explain="off"))
    assert tuple(doubt.code for doubt in report.target.doubts) == codes


def test_only_what_calibrated_was_compared_is_a_doubt_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    samples: Any = SimpleNamespace(part=lambda *_part: None)
    monkeypatch.setattr(pipeline, "_record_late_tensors", lambda *_: None)
    for explains in (False, True):
        for calibrates in (False, True):
            doubts: list[str] = []
            target: Any = SimpleNamespace(doubt=lambda found, doubts=doubts: doubts.extend(one.code for one in found))
            monkeypatch.setattr(pipeline, "calibrates_on_compared", lambda *_, calibrates=calibrates: calibrates)
            work: Any = SimpleNamespace(explains=explains, journal=None, feed_set=None)
            both: Any = SimpleNamespace(base=None, target=target)
            pipeline._run_parts([[0, 4], [4, 8]], samples, work, both)
            assert doubts == (["only_calibrated"] if calibrates and not explains else [])


@pytest.mark.parametrize(("count", "sample"), [(1, None), (2, 1)])
def test_of_several_samples_the_worst_is_built_anew_and_named(
    fake: str, tmp_path: Path, count: int, sample: int | None
) -> None:
    spec = RunSpec(model=ModelFiles(model_file=fake), run_mode="fake_off", explain="off", repeat=2)
    feeds = [{"x": X["x"] - np.float32(3.5 * number)} for number in range(count)]
    with Journal(tmp_path / "j") as journal:
        pipeline.execute(spec, journal, folder=tmp_path, feeds=feeds)
    (found,) = (event.repeats for event in read_events(tmp_path / "j") if isinstance(event, RepeatsFound))
    assert (found.count, found.sample) == (2, sample)
    assert found.errors["t7"][0] == pytest.approx(0.5 / (8 - 3.5 * (count - 1)))


def test_once_more_is_a_comparison_of_one_sample_that_writes_nothing(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command is with a fix pasted: the same files and modes, the setting in its place, and no other output."""
    ran: list[RunSpec] = []
    named: list[dict[str, Any]] = []
    found: list[Any] = []
    real = pipeline.execute

    def explain(work: Any, _both: Any, _number: int, _ran: Any, once_more: Any) -> None:
        with monkeypatch.context() as inside:
            inside.setattr(pipeline, "explain_sample", explain_sample)
            kind, fed = type(work), type(work).feeds
            others = {"x": X["x"] + np.float32(9)}  # the target's own, which are made of the baseline's again
            inside.setattr(kind, "feeds", lambda one, at: (fed(one, at)[0], others) if one is work else fed(one, at))
            found.append(once_more({"keep": "all"}))

    def execute(spec: RunSpec, journal: Journal, **given: Any) -> None:
        ran.append(spec)
        named.append(given)
        real(spec, journal, **given)

    explain_sample = pipeline.explain_sample
    monkeypatch.setattr(pipeline, "explain_sample", explain)
    monkeypatch.setattr(pipeline, "execute", execute)
    spec = RunSpec(
        model=ModelFiles(model_file=fake), run_mode="fake_off", explain="full", repeat=2, save_tensors=3,
        save_outputs=str(tmp_path / "o.json"), save_inputs=str(tmp_path / "i.json"), options={"pause": 0},
    )  # fmt: skip
    work = tmp_path / "work"
    work.mkdir()
    with Journal(work / "j") as journal:
        pipeline.execute(spec, journal, folder=work, feeds=(X, {"x": X["x"] - np.float32(3.5)}))
    assert json.loads((tmp_path / "o.json").read_text(encoding="utf-8")), "the command's own outputs were saved"
    _, again = ran
    assert (found[0].failing, found[0].explanation.state) == ("t3", "unknown")
    assert (again.run_mode, again.tolerance) == ("fake_off", spec.tolerance)
    assert (again.explain, again.run_once) == ("fast", True)
    off: dict[str, Any] = dict.fromkeys(("save_outputs", "save_inputs", "record", "metric"), "")
    off |= dict.fromkeys(("find_pass", "second_opinion", "validate", "fail_fast"), False)
    off |= dict.fromkeys(("save_tensors", "repeat", "top_k"))
    assert {name: getattr(again, name) for name in off} == off
    assert named[1]["fixes"] is False, "else a fix would be looked for of the fix"
    assert named[1]["feeds"][0]["x"].tolist() == [-3.5] * 4, "the sample that was explained"
    plan = named[1]["plan"]
    assert plan.target.spec.options["keep"] == "all"
    assert "keep" not in plan.baseline.spec.options
    assert not named[1]["folder"].exists()


def test_what_the_files_prove_is_told_before_either_side_is_opened(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the engine then cannot load them."""
    proof = say("proven_underflow", name="eps", by="Max floor", value=1e-10, to="float16", least=6e-8)
    monkeypatch.setattr(pipeline, "prove_faults_of_sides", lambda *_, **__: (proof,))
    with pytest.raises(BackendError):
        told(fake, tmp_path, "fake_raise")
    report = report_of_events(list(read_events(tmp_path / "work" / "j")))
    assert [note.code for note in report.notes][:1] == ["proven_underflow"]


def test_what_somebody_else_has_put_to_rest_stays_so_and_ours_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of comparisons within others; and the collector is not asked each time, since it counts what rests."""
    monkeypatch.setattr("precision_debug.run.open_pair._at_rest", False)
    there = gc.get_freeze_count() > 0  # the tests' own
    gc.unfreeze()
    try:
        for _ in range(2):
            with freeze_old_objects():
                with freeze_old_objects():
                    assert gc.get_freeze_count() > 0
                assert gc.get_freeze_count() > 0, "the inner one has not ended the outer one's"
            assert gc.get_freeze_count() == 0
        gc.freeze()
        asked: list[int] = []
        count = gc.get_freeze_count
        monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.append(1) or count())
        for _ in range(3):
            with freeze_old_objects():
                pass
            assert count() > 0
        assert len(asked) == 1
    finally:
        if not there:
            gc.unfreeze()


def test_parts_of_many_samples_are_asked_for_one_at_a_time(fake: str, tmp_path: Path) -> None:
    """As the workers of --jobs are: rows of each part for a merger, and of one sample who did it."""
    spec = RunSpec(model=ModelFiles(model_file=fake), run_mode="fake_off")
    feeds = [{"x": X["x"] + np.float32(number)} for number in range(4)]
    with Journal(tmp_path / "j") as journal:
        pipeline.execute(spec, journal, folder=tmp_path, feeds=feeds, parts=iter([[0, 2], [2, 4], [1]]))
    events = list(read_events(tmp_path / "j"))
    assert sum(isinstance(event, ShardDone) for event in events) == 2
    assert not any(isinstance(event, RowDone) for event in events), "whoever asked merges them"
    assert sum(isinstance(event, Explained) for event in events) == 1
    assert isinstance(events[-1], End)


def test_two_runs_that_turn_out_to_share_something_are_run_apart(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine may know only behind its run that it cannot have been beside another."""
    import precision_debug_fake as module

    modes = tuple(dataclasses.replace(mode, concurrent=True) for mode in module.FakeBackend.run_modes)
    monkeypatch.setattr(module.FakeBackend, "run_modes", modes)
    real = module.FakeSession.run

    def run(self: Any, *given: Any, **named: Any) -> Any:
        found = real(self, *given, **named)
        self.alone = "they shared a counter"
        return found

    monkeypatch.setattr(module.FakeSession, "run", run)
    events = told(fake, tmp_path, explain="off")
    assert sum(isinstance(event, Again) for event in events) == 1
    assert [event.text.code for event in events if isinstance(event, Note)][:1] == ["apart"]
    report = report_of_events(events)
    assert [row.name for row in report.rows] == [f"t{number}" for number in range(8)]


@pytest.mark.parametrize(("explain", "asked"), [("off", []), ("fast", [0])])
def test_where_nothing_is_asked_of_the_sample_nothing_is_done_with_it(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explain: str, asked: list[int]
) -> None:
    done: list[int] = []
    monkeypatch.setattr(pipeline, "explain_sample", lambda _work, _both, number, _ran, _once: done.append(number))
    monkeypatch.setattr(pipeline, "judge_unseen", lambda _work, _both, number, _ran: done.append(-1 - number))
    told(fake, tmp_path, explain=explain)
    assert done == asked


@pytest.mark.parametrize("named", [True, False])
def test_a_failure_of_which_a_pass_is_the_author_is_told_so_and_any_other_as_it_is(
    named: bool, fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = BackendError("it stops", where="fake"), BackendError("a pass stops it", where="fake")

    def stops(_work: Any) -> None:
        raise first

    monkeypatch.setattr(pipeline, "_compare", stops)
    monkeypatch.setattr(pipeline, "with_stopping_pass", lambda error, *_: second if named else error)
    with pytest.raises(BackendError) as told_of:
        told(fake, tmp_path)
    assert told_of.value is (second if named else first)
    assert told_of.value.__cause__ is (first if named else None)
