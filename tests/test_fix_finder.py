"""Which sets a comparison runs for its fix, what it takes of them, and what a fix that keeps much says of that."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from approval import begins_approved, holds_approved, is_approved

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.fifteenth_onnx import CASES as BLIND
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.events import Stage
from precision_debug.protocols import Executed
from precision_debug.records import Culprit, ModelFiles, RunSpec, TensorMeta
from precision_debug.report.blame import blame
from precision_debug.report.fix import describe_tried, fix_sentences
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Report
from precision_debug.report.next_step import NEXT, PASTE, search_command
from precision_debug.run import fixes, trials
from precision_debug.run.criterion import Sample
from precision_debug.run.fix_finder import FixFinder
from precision_debug.run.journal import Journal
from precision_debug.run.plan import make_plan
from precision_debug.run.side import OpenSide
from precision_debug.run.to_keep import Keepable
from precision_debug.search.fix import Evaluation, Fix, KeptUnit, ToKeep, TradePoint
from precision_debug.search.offer import FixRule
from precision_debug.search.units import Units
from precision_debug.settings import Setting


@pytest.mark.parametrize(
    ("session", "end"), [({"build_seconds": 31.0}, 162.0), ({"build_seconds": 0.0}, 180.0), ({}, 180.0)]
)
def test_a_builder_that_is_loaded_first_gives_sets_no_more_time(session: dict[str, float], end: float) -> None:
    """Opened at 100 after 40 s, 9 of which loaded TensorRT's builder."""
    side = cast("OpenSide", SimpleNamespace(opened=100.0, opening_seconds=40.0, session=SimpleNamespace(**session)))
    specs = [cast("RunSpec", SimpleNamespace(explain=how)) for how in ("fast", "full")]
    assert [fixes._find_shrink_deadline(side, spec) for spec in specs] == [end, math.inf]


def a_wide_channel(folder: Path, layers: int, *, brought_back: bool) -> tuple[str, dict[str, np.ndarray]]:
    """Convolutions, the last of which has a channel far wider than the others, in front of a softmax."""
    graph, wide = Graph(seed=4), 3000.0
    value = graph.input("x", graph.random.normal(size=(1, 8, 12, 12)).astype(np.float32))
    for number in range(layers):
        weight = graph.weight(f"w{number}", graph.random.normal(size=(8, 8, 3, 3)) / 6)
        bias = graph.weight(f"b{number}", 0.1 * graph.random.normal(size=(1, 8, 1, 1)))
        product = graph.op("Conv", [value, weight], f"conv{number}", pads=[1, 1, 1, 1])
        value = graph.op("Relu", [graph.op("Add", [product, bias], f"sum{number}")], f"relu{number}")
    last = graph.random.normal(size=(8, 8, 1, 1))
    last[7] = wide * (last[7] if brought_back else -np.abs(last[7]))
    product = graph.op("Conv", [value, graph.weight("w", last)], "last")
    value = graph.op("Add", [product, graph.weight("b", graph.random.normal(size=(1, 8, 1, 1)))], "shifted")
    if brought_back:
        back = np.ones((1, 8, 1, 1))
        back[0, 7] = 1 / wide
        value = graph.op("Mul", [value, graph.weight("back", back)], "scaled")
    return str(graph.save(folder / "wide.onnx", [graph.op("Softmax", [value], "y", axis=1)])), graph.feeds


def in_int8(folder: Path, layers: int, *, brought_back: bool) -> Report:
    """What a comparison of such a model in ov_int8 says."""
    pytest.importorskip("openvino", reason="openvino is not installed")
    pytest.importorskip("nncf", reason="nncf is not installed")
    model, feeds = a_wide_channel(folder, layers, brought_back=brought_back)
    return precision_debug.compare(model, run_mode="ov_int8", inputs=feeds)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Report]:
    """The same, of each model once."""

    @functools.cache
    def ask(layers: int, *, brought_back: bool) -> Report:
        return in_int8(tmp_path_factory.mktemp("int8"), layers, brought_back=brought_back)

    return ask


def kept_in(report: Report) -> tuple[ToKeep, Executed, Executed]:
    """What such a comparison keeps, what came of it, and what ran in INT8 before and then."""
    kept = report.to_keep
    assert kept is not None
    assert kept.was is not None
    assert kept.still is not None
    return kept, kept.was, kept.still


def test_what_was_rounded_before_the_culprit_is_kept_with_few_runs(once: Callable[..., Report]) -> None:
    """The convolution with its bias is named; keeping that alone is enough."""
    kept, was, still = kept_in(once(2, brought_back=False))
    assert kept.state == "mended"
    assert kept.keys == ("last",)
    assert kept.runs <= 5
    assert was.low > still.low > 0


def test_the_comparisons_own_calibration_serves_the_sets_that_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NNCF takes longest of all on a real model: it quantises what is compared, and what is offered as it is pasted."""
    nncf = pytest.importorskip("nncf", reason="nncf is not installed")
    calls, quantize = [], nncf.quantize
    monkeypatch.setattr(nncf, "quantize", lambda *given, **named: calls.append(named) or quantize(*given, **named))
    kept, _, _ = kept_in(in_int8(tmp_path, 2, brought_back=False))
    assert kept.runs > 1
    remedies = [named for named in calls if "advanced_parameters" in named]  # where this processor's sums saturate
    assert len(remedies) <= 1
    # one that comes to something else where it is calibrated anew is run once more
    assert len(calls) - len(remedies) in {2, 3}


def test_what_ends_in_an_exact_operator_is_not_blamed_on_that(once: Callable[..., Report]) -> None:
    """OpenVINO takes nothing back between a product and its quantiser, so that a run with each tensor put back would
    give the softmax the error of all that comes before it: before, "this type is too coarse" was said of it.

    NNCF gives each channel of a weight a scale of its own, but none below 1 % of the largest (``eps`` of its
    fix_zero_filters_symmetric): the wide channel is what makes the others' scales too coarse."""
    report = once(2, brought_back=False)
    culprit = report.explanation.culprits[0]
    assert (culprit.name, culprit.cause) == ("shifted", "outlier_channel")
    assert "Convolution" in culprit.op_types
    own = {row.name: row.introduced.rel_l2 for row in report.rows if row.introduced is not None}
    assert own["y"] == 0
    # what only a further compiled model shows, inside of a layer, is compared and no more
    inside = {"Convolution", "Add"}
    assert {row.op_type for row in report.rows if row.comparison is not None and row.introduced is None} <= inside


def test_the_last_operator_is_not_blamed_for_what_every_layer_adds(once: Callable[..., Report]) -> None:
    """Before, the softmax was, for the error of all nine convolutions. The wide channel is a third of it, and repairing
    whoever is named takes a part of it away."""
    explanation = once(8, brought_back=True).explanation
    assert [(one.name, one.cause) for one in explanation.culprits][:1] == [("scaled", "outlier_channel")]
    assert "y" not in {one.name for one in explanation.culprits}
    assert all((one.repaired or 0.0) < (explanation.actual or 0.0) for one in explanation.culprits)
    assert max(explanation.budget, key=lambda name: explanation.budget[name]) == "scaled"


def test_an_error_of_many_operators_is_offered_what_helped_too(once: Callable[..., Report]) -> None:
    """What one calibration for all sets promises to hold only lessens the error where it is calibrated as it is pasted:
    nothing was offered then."""
    report = once(8, brought_back=True)
    kept = report.to_keep
    assert kept is not None
    assert kept.state in {"mended", "lessened"}
    assert kept.after is not None
    assert kept.before is not None
    assert kept.after <= kept.before / 2
    assert kept.option.startswith("--option 'nodes_to_exclude=")
    assert any(one.en.startswith("Tried: keeping ") for one in lead_sentences(report))
    labels = [line[0].text for line in blame(report).lines]
    assert {PASTE, NEXT} <= {*labels}


def test_the_next_command_is_the_comparisons_own(tmp_path: Path) -> None:
    typed = "python -m precision_debug --model_file 'a b.onnx' --run_mode ov_int8 --output r.xlsx --lang=zh --seed 3"
    assert is_approved(search_command(typed))
    typed = "precision_debug --model_file m -o r.html -q --run_mode=trt_fp16 -or.xlsx --rtol -1"
    assert is_approved(search_command(typed), 2)
    for other in ("", "precision_debug.compare", "precision_debug search --model_file m", "precision_debug '"):
        assert search_command(other) == ""


def test_a_run_that_ends_while_fixes_are_tried_offers_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compared is told as whole; before, it read as if the rows were cut off, and "Keep … in FP32" stood there
    although nothing had been run with it."""

    def interrupted(*_: Any) -> ToKeep:
        raise KeyboardInterrupt

    monkeypatch.setattr(FixFinder, "find", interrupted)
    model, feeds = a_wide_channel(tmp_path, 1, brought_back=False)
    with pytest.raises(KeyboardInterrupt):
        precision_debug.compare(
            model, run_mode="ort_int8", inputs=feeds, output=[tmp_path / "r.md", tmp_path / "r.json"]
        )  # fmt: skip
    said = (tmp_path / "r.md").read_text()
    assert holds_approved(said)
    assert holds_approved(said, 2)
    assert "in FP32, and" not in said
    assert "compared before that" not in said


def test_a_fix_that_gives_up_most_of_int8_begins_with_that(tmp_path: Path) -> None:
    model, feeds = a_wide_channel(tmp_path, 1, brought_back=False)
    report = precision_debug.compare(model, run_mode="ort_fp16_sim", inputs=feeds)
    points = (
        TradePoint(what="curve", kept=2, error=0.0481, passes=False),
        TradePoint(what="curve", kept=4, error=0.0108, passes=True),
    )  # fmt: skip
    given_up = ToKeep(
        option="--option a", keys=tuple("abcdefg"), of=8, state="mended", before=0.048, after=0.0043, allowed=0.0482,
        trade=points,
        was=Executed(low=10, of=16, precision="INT8"), still=Executed(low=1, of=16, precision="INT8"),
    )  # fmt: skip
    said = describe_tried(dataclasses.replace(report, to_keep=given_up))
    assert said is not None
    assert begins_approved(said.en)
    assert holds_approved(said.en, 2)
    assert "须放弃大部分 INT8" in said.zh
    of_types = describe_tried(dataclasses.replace(report, to_keep=dataclasses.replace(given_up, unit="operator type")))
    assert of_types is not None  # beside it stand operators that still run low: types are no number of these
    assert holds_approved(of_types.en, 3)
    assert "只保留 2 种算子类型时误差为 0.0481，4 种算子类型时误差为 0.0108" in of_types.zh
    half = dataclasses.replace(given_up, still=Executed(low=5, of=16, precision="INT8"))
    said = describe_tried(dataclasses.replace(report, to_keep=half))
    assert said is not None
    assert "giving up" not in said.en


def test_a_search_that_gives_up_most_of_int8_says_so(tmp_path: Path) -> None:
    model, feeds = a_wide_channel(tmp_path, 1, brought_back=False)
    report = precision_debug.compare(model, run_mode="ort_fp16_sim", inputs=feeds)
    kept = tuple(KeptUnit(key=key, op_types=("Conv",)) for key in "abcdefg")
    was, still = (Executed(low=low, of=16, precision="INT8") for low in (10, 1))
    given_up = Fix(state="found", kept=kept, units=8, before=0.048, after=0.004, was=was, still=still)
    said = fix_sentences(dataclasses.replace(report, fix=given_up))
    assert begins_approved(said[0].en)
    assert said[0].zh.startswith("须放弃大部分 INT8：将 8 个算子中的 7 个")
    said = fix_sentences(dataclasses.replace(report, fix=dataclasses.replace(given_up, still=was)))
    assert said[0].en.startswith("Keep 7 of 8")
    none = dataclasses.replace(still, low=0)
    said = fix_sentences(dataclasses.replace(report, fix=dataclasses.replace(given_up, still=none, kept=kept[:1])))
    assert begins_approved(said[0].en, 2)
    assert said[0].zh.startswith("须放弃全部 INT8：将 8 个算子中的 1 个")
    assert any("nothing is left in INT8" in one.en for one in said)
    unseen = Executed(low=0, of=16, precision="FP16")  # a region that names no kernel: nobody knows what runs in it
    few = dataclasses.replace(given_up, kept=kept[:2], was=unseen, still=unseen)
    said = fix_sentences(dataclasses.replace(report, fix=few))
    assert "FP16" not in said[0].en
    assert "FP16" not in said[0].zh


def test_the_time_of_a_fix_stands_beside_that_of_nothing_kept(tmp_path: Path) -> None:
    model, feeds = a_wide_channel(tmp_path, 1, brought_back=False)
    report = precision_debug.compare(model, run_mode="ort_fp16_sim", inputs=feeds)
    kept = ToKeep(
        option="a", keys=("a",), of=8, state="mended", before=0.1, after=0.01, allowed=0.03, slower=1.2
    )  # fmt: skip
    said = describe_tried(dataclasses.replace(report, to_keep=kept))
    assert said is not None
    assert holds_approved(said.en)
    assert "单次运行耗时为不保留时的 1.20 倍" in said.zh


class Clock:
    """A clock that runs of a session move on: ``takes`` are their seconds, one after the other, over and over."""

    def __init__(self) -> None:
        self.now = 0.0

    def session(self, *takes: float) -> Any:
        left = itertools.cycle(takes)

        def run(_feeds: Any) -> None:
            self.now += next(left)

        return SimpleNamespace(run=run)


@pytest.mark.parametrize(
    ("kept", "nothing", "expected"),
    [
        ((0.02,), (0.01,), 2.0),
        ((0.00002,), (0.00001,), 2.0),  # less than a clock can tell: many runs in a turn
        ((0.01, 0.01, 0.09, 0.001, 0.03, 0.01, 0.2, 0.002), (0.01,), None),  # a busy machine: the turns disagree
        ((0.2,), (0.2,), None),  # more than a user waits for it
    ],
)  # fmt: skip
def test_a_time_is_told_where_the_turns_agree(
    kept: tuple[float, ...], nothing: tuple[float, ...], expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(trials.time, "perf_counter", lambda: clock.now)
    sample = Sample(feeds={}, target_feeds={}, values={})
    found = trials._compare_times(clock.session(*kept), clock.session(*nothing), sample)
    assert found == (expected if expected is None else pytest.approx(expected))


def test_what_lies_before_a_culprit_is_kept_up_to_all_of_it(tmp_path: Path) -> None:
    """One operator back, two, four, and everything that leads there where that is not the whole model."""
    model, _ = a_wide_channel(tmp_path, 2, brought_back=True)
    target = make_plan(RunSpec(model=ModelFiles(model_file=model), run_mode="ort_int8")).target
    assert target.capabilities.keeper is not None
    keep = target.capabilities.keeper.keep(target.spec)
    assert keep is not None
    names = ["conv0", "sum0", "relu0", "conv1", "sum1", "relu1", "last", "shifted", "scaled", "y"]
    chain = ["x", *names]
    tensors = [TensorMeta(name="x", op_type="Input", dtype="float32", node="")] + [
        TensorMeta(name=name, op_type="Add", dtype="float32", node=name, inputs=(before,))
        for before, name in itertools.pairwise(chain)
    ]
    units = Units(tensors, lambda meta: meta.node)
    keepable = Keepable(target=target, keep=keep, tensors=tensors, units=units)
    assert [len(units) for units in keepable.before(["last"])] == [2, 3, 5, 7]
    assert [len(units) for units in keepable.before(["y"])] == [2, 3, 5, 9]
    assert not list(keepable.before(["conv0"]))


def a_finder(count: int, rule: FixRule, run: Callable[[tuple[str, ...]], Evaluation], movers: int = -1) -> FixFinder:
    """One of a chain of operators, each a key of its own; the one numbered ``movers`` only moves numbers."""
    names = [f"n{number}" for number in range(count)]
    tensors = [TensorMeta(name="x", op_type="Input", dtype="float32")] + [
        TensorMeta(name=name, op_type="Transpose" if number == movers else "Add", dtype="float32", node=name,
                   inputs=(before,))
        for number, (before, name) in enumerate(itertools.pairwise(["x", *names]))
    ]  # fmt: skip
    units = Units(tensors, lambda meta: meta.node)
    trials: Any = SimpleNamespace(mode="m", calibrates=False, run=lambda keys, *_, **__: run(tuple(keys)))
    setting = Setting(name="kept", kind="names", help="What is kept.", zh="保留的。")
    target: Any = SimpleNamespace(precision="float16", settings=(setting,), spec=SimpleNamespace(options={}))
    keep: Any = SimpleNamespace(unit="operator", options=lambda keys: {"kept": list(keys)})
    keepable = Keepable(target=target, keep=keep, tensors=tensors, units=units)
    return FixFinder(keepable=keepable, trials=trials, samples=[cast(Any, None)], rule=rule, most=12)


def ran(keys: Sequence[str], error: float, low: int, *, allowed: float = 0.1, precision: str = "FP16") -> Evaluation:
    return Evaluation(
        kept=tuple(keys), mode="m", passes=error <= allowed, error=error, errors=(error,), held=(error <= allowed,),
        executed=Executed(low=low, of=96, precision=precision),
    )  # fmt: skip


def saw(finder: FixFinder, size: int, found: Evaluation) -> frozenset[int]:
    kept = frozenset(range(size))
    finder.oracle.asked[kept] = finder._as_judged(kept, found)
    return kept


def nothing_runs(_keys: tuple[str, ...]) -> Evaluation:
    raise AssertionError("nothing is run")


def keys_of(finder: FixFinder, size: int) -> tuple[str, ...]:
    return finder.keepable.units.keys(range(size))


def test_of_sets_that_do_not_hold_the_best_trade_is_taken() -> None:
    """As seen of basic-pitch in ov_int8: 27 of 96 units leave 0.098 of 0.43, 80 leave 0.039; 0.028 is expected."""
    finder = a_finder(96, FixRule(before=(0.428,), allowed=0.0278), nothing_runs)
    few = saw(finder, 27, ran(keys_of(finder, 27), 0.0978, 60, allowed=0.0278))
    saw(finder, 80, ran(keys_of(finder, 80), 0.0389, 60, allowed=0.0278))
    assert finder._best() == few
    saw(finder, 80, ran(keys_of(finder, 80), 0.02, 60, allowed=0.0278))
    assert finder._best() == few, "most of the model is no answer"
    thirty = saw(finder, 30, ran(keys_of(finder, 30), 0.02, 60, allowed=0.0278))
    assert finder._best() == thirty


def test_what_does_as_well_and_gives_up_no_more_is_offered_in_place_of_everything() -> None:
    """As seen of PP-OCRv4's recogniser in ov_bf16, where OpenVINO widens what lies between kept operators: 462 of 463
    were offered, although 109 of them leave as many layers in BF16, and an error far below what is expected."""
    was = Executed(low=71, of=74, precision="BF16")
    finder = a_finder(96, FixRule(before=(0.0254,), was=was, allowed=0.0117), nothing_runs)
    sets = {
        count: saw(finder, count, ran(keys_of(finder, count), error, low, allowed=0.0117, precision="BF16"))
        for count, error, low in ((8, 0.0005, 3), (20, 0.00063, 4), (40, 0.00046, 4), (95, 0.00046, 4))
    }  # fmt: skip
    assert [finder.oracle.asked[sets[count]].helps for count in (20, 95)] == [False, True]
    assert finder._best() == sets[95]
    assert finder._with_floor(sets[95]) == sets[20]


def test_fixes_say_how_far_they_are_and_end_in_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an engine that takes long to open, sets were tried for minutes behind "trying fixes on the engine"."""
    model, feeds = a_wide_channel(tmp_path, 2, brought_back=False)
    stages: list[str] = []
    written = Journal.write

    def heard(journal: Journal, event: Any) -> None:
        if isinstance(event, Stage) and event.text.code == "stage_trying_set":
            stages.append(str(event.text))
        written(journal, event)

    monkeypatch.setattr(Journal, "write", heard)
    whole = precision_debug.compare(model, run_mode="ort_int8", inputs=feeds)
    assert len(stages) == whole.to_keep.runs > 2
    assert holds_approved(stages[0])
    assert whole.to_keep.stopped is None
    stages.clear()
    monkeypatch.setattr(fixes, "PATIENCE", 0.0)
    ended = precision_debug.compare(model, run_mode="ort_int8", inputs=feeds)
    assert len(stages) == ended.to_keep.runs == 1
    assert ended.to_keep.stopped == 0.0
    said = describe_tried(ended)
    assert said is not None
    assert "after 0 s" in said.en
    assert "0 秒后" in said.zh


def test_runs_are_left_to_make_a_set_that_helps_smaller() -> None:
    """A captcha in INT8: the first of twelve sets all but did it, eleven larger ones did no more, and six operators
    were offered where two of them do the same (0.02096 and 0.02109)."""
    was = Executed(low=96, of=96, precision="FP16")

    def run(keys: tuple[str, ...]) -> Evaluation:
        return ran(keys, 0.2 if {"n4", "n40"} <= {*keys} else 1.0, 96 - len(keys))

    finder = a_finder(96, FixRule(before=[1.0], was=was, allowed=0.1), run)
    named = [Culprit(name=f"n{number}", node="", op_types=("Add",), cause="coarse") for number in (4, 20, 40)]
    found = finder.find(named)
    assert (found.keys, found.state) == (("n4", "n40"), "lessened")
    assert found.runs <= 20


def answering(*errors: tuple[str, float], movers: int = -1, most: int = 12) -> FixFinder:
    """Runs answer by which keys are kept: of (numbers, error) the first whose operators are all kept."""
    was = Executed(low=96, of=96, precision="FP16")

    def run(keys: tuple[str, ...]) -> Evaluation:
        error = next((one for needs, one in errors if {f"n{number}" for number in needs} <= {*keys}), 1.0)
        return ran(keys, error, 96 - len(keys))

    finder = a_finder(96, FixRule(before=[1.0], was=was, allowed=0.1), run, movers)
    finder.most = most
    return finder


def test_of_what_is_offered_each_name_is_needed() -> None:
    """As seen of pastes with three names where two do: what only moves a kept operator's numbers, and an operator that
    brings the error a little further down than has to be."""
    named = [Culprit(name=name, node="", op_types=("Add",), cause="coarse") for name in ("n1", "n3", "n4")]
    assert answering(("134", 0.05), ("13", 0.097), movers=2).find(named).keys == ("n1", "n3")
    moved = answering(("123", 0.05), movers=2).find(named).keys
    assert moved == ("n1", "n2", "n3"), "what moves them is needed here"
    joined = answering(("2", 0.05), movers=2).find([Culprit(name="n2", node="", op_types=("Concat",), cause="coarse")])
    assert joined.keys == ("n2",), "what moves them is all that is needed here"
    once = answering(("1", 0.05), most=1)
    once.oracle = once._asked_by(1)
    assert len(once.find(named).keys) > 1, "one run of a model that takes long is all there is"


def test_beside_a_set_that_keeps_many_stands_the_smallest_that_halves_the_error() -> None:
    """As seen of a pitch model in FP16: 190 of 213 operators were offered, and one of them halves the error."""
    finder = answering(("01", 0.05), ("0", 0.4))
    many, _, two = (saw(finder, size, finder._judged(frozenset(range(size))).found) for size in (80, 1, 2))
    assert [one.keys for one in finder._to_keep(many).beside] == [("n0",)]
    assert finder._to_keep(two).beside == ()  # two are few enough


def test_beside_a_set_that_does_not_hold_stands_the_smallest_that_does() -> None:
    """As seen of a distilled head under autocast: one line was offered, and the set that mends by most of FP16 not."""
    finder = answering(("01234567", 0.05), ("0", 0.4))
    several, one = (saw(finder, size, finder._judged(frozenset(range(size))).found) for size in (8, 1))
    finder.oracle.asked[several] = dataclasses.replace(finder.oracle.asked[several], gives_up=True)
    assert [kept.keys for kept in finder._to_keep(one).beside] == [tuple(f"n{number}" for number in range(8))]
    assert finder._to_keep(one).beside[0].beside == ()


def test_a_fix_counts_the_operators_that_its_option_names(tmp_path: Path) -> None:
    """A product with one number has its input's grid and is excluded with it: "keeping 1 of 3" stood beside two names,
    and of the operators there that can be excluded there are five."""
    graph = Graph(seed=4)
    given = graph.random.uniform(-1, 1, (64, 32)).astype(np.float32)
    given[:, 8] = 40
    half, mix = graph.weight("half", np.float32(0.5)), graph.weight("mix", np.eye(32))
    graph.op("MatMul", [graph.input("x", given), mix], "h")
    graph.op("Mul", [graph.op("Mul", ["h", half], "scaled"), "scaled"], "square")
    graph.op("Sqrt", [graph.op("Mul", ["square", half], "less")], "root")
    last = graph.random.normal(size=(32, 4))
    last[8] = 1e-4
    graph.op("MatMul", ["root", graph.weight("w", last)], "y")
    report = precision_debug.compare(graph.save(tmp_path / "m.onnx", ["y"]), run_mode="ort_int8", inputs=graph.feeds)
    kept = report.to_keep
    assert kept is not None
    assert kept.keys == tuple(kept.settings["nodes_to_exclude"]) == ("node_square", "node_less")
    assert kept.of == 5


@pytest.mark.skipif(not find_spec("onnx_ir"), reason="ONNX Runtime's own quantiser of 4 bits needs onnx_ir")
def test_what_brings_an_error_within_bounds_is_not_called_no_help(tmp_path: Path) -> None:
    """Two products in 4 bits, off by what 4 bits cost: each makes half of it, and either of them kept is enough."""
    one = next(one for one in BLIND if one.name == "head_in_four_bits")
    model, _, feeds = one.make(tmp_path)
    report = precision_debug.compare(model, run_mode="ort_int4", inputs=feeds)
    assert report.explanation is not None
    assert report.explanation.culprits == ()
    overlap = report.explanation.overlap
    assert overlap is not None
    assert (overlap.alone or 0) ** 2 + overlap.without**2 == pytest.approx((overlap.whole or 0) ** 2, rel=0.1)
    (lead, *_) = lead_sentences(report)
    assert "add up" not in lead.en  # as squares they do
    tried = describe_tried(report)
    assert tried is not None
    assert report.to_keep is not None
    (least,) = report.to_keep.trade
    assert (least.error or 1) < (report.to_keep.allowed or 0) == 0.1
    assert "as expected" in tried.en
    assert "none of them" not in tried.en
