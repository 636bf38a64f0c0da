"""Which sets a comparison runs for its fix, what it takes of them, and what a fix that keeps much says of that."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from approval import begins_approved, holds_approved, is_approved

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.onnx_faults import Graph

import precision_debug
from precision_debug.events import Stage
from precision_debug.protocols import Executed
from precision_debug.records import ModelFiles, RunSpec, TensorMeta
from precision_debug.report.blame import blame
from precision_debug.report.fix import fix_sentences
from precision_debug.report.lead import lead
from precision_debug.report.model import Report
from precision_debug.report.next_step import NEXT, PASTE, search_command
from precision_debug.report.tried import tried_sentence
from precision_debug.run import fix_finder, fixes, trials
from precision_debug.run.criterion import Sample
from precision_debug.run.fix_finder import FixFinder
from precision_debug.run.journal import Journal
from precision_debug.run.plan import make_plan
from precision_debug.run.to_keep import Keepable
from precision_debug.search import Evaluation, Fix, FixRule, KeptUnit, ToKeep, TradePoint, Tried, Units


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


def kept_in_int8(folder: Path, layers: int, *, brought_back: bool) -> tuple[ToKeep, Tried, Executed, Executed]:
    """What a comparison of such a model in ov_int8 keeps, what came of it, and what ran in INT8 before and then."""
    kept = in_int8(folder, layers, brought_back=brought_back).to_keep
    assert kept is not None
    tried = kept.tried
    assert tried is not None
    assert tried.was is not None
    assert tried.still is not None
    return kept, tried, tried.was, tried.still


def test_what_was_rounded_before_the_culprit_is_kept_with_few_runs(tmp_path: Path) -> None:
    """The convolution with its bias is named; keeping that alone is enough."""
    kept, tried, was, still = kept_in_int8(tmp_path, 2, brought_back=False)
    assert tried.state == "mended"
    assert kept.keys == ("last",)
    assert tried.runs <= 5
    assert was.low > still.low > 0


def test_the_comparisons_own_calibration_serves_the_sets_that_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NNCF takes longest of all on a real model: it quantises what is compared, and what is offered as it is pasted."""
    nncf = pytest.importorskip("nncf", reason="nncf is not installed")
    calls, quantize = [], nncf.quantize
    monkeypatch.setattr(nncf, "quantize", lambda *given, **named: calls.append(0) or quantize(*given, **named))
    _, tried, _, _ = kept_in_int8(tmp_path, 2, brought_back=False)
    assert tried.runs > 1
    assert len(calls) in {2, 3}  # one that comes to something else where it is calibrated anew is run once more


def test_what_ends_in_an_exact_operator_is_not_blamed_on_that(tmp_path: Path) -> None:
    """OpenVINO takes nothing back between a product and its quantiser, so that a run with each tensor put back would
    give the softmax the error of all that comes before it: before, "this type is too coarse" was said of it."""
    report = in_int8(tmp_path, 2, brought_back=False)
    culprit = report.explanation.culprits[0]
    assert (culprit.name, culprit.cause) == ("shifted", "outlier_channel")
    assert "Convolution" in culprit.op_types
    own = {row.name: row.introduced.rel_l2 for row in report.rows if row.introduced is not None}
    assert own["y"] == 0
    assert all(row.introduced is not None for row in report.rows if row.comparison is not None)


def test_nobody_is_blamed_for_what_every_layer_adds(tmp_path: Path) -> None:
    """Before, the softmax was, for the error of all nine convolutions."""
    explanation = in_int8(tmp_path, 8, brought_back=True).explanation
    assert (explanation.state, explanation.culprits) == ("diffuse", ())
    assert max(explanation.budget, key=lambda name: explanation.budget[name]) == "scaled"


def test_an_error_of_many_operators_is_offered_what_helped_too(tmp_path: Path) -> None:
    """Nobody is named, and so, before, nothing was tried and nothing stood there to type."""
    report = in_int8(tmp_path, 8, brought_back=True)
    kept = report.to_keep
    assert kept is not None
    assert kept.tried is not None
    assert kept.tried.state in {"mended", "lessened"}
    assert kept.tried.after is not None
    assert kept.tried.before is not None
    assert kept.tried.after <= kept.tried.before / 2
    assert kept.option.startswith("--option 'nodes_to_exclude=")
    said = lead(report)
    assert said[0].en.startswith("Diffuse: no single culprit.")
    assert said[1].en.startswith("Tried: keeping ")
    labels = [line[0].text for line in blame(report).lines]
    assert labels[-2:] == [PASTE, NEXT]


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
    tried = Tried(
        state="mended", before=0.048, after=0.0043, allowed=0.0482, trade=points,
        was=Executed(low=10, of=16, precision="INT8"), still=Executed(low=1, of=16, precision="INT8"),
    )  # fmt: skip
    given_up = ToKeep(option="--option a", keys=tuple("abcdefg"), of=8, tried=tried)
    said = tried_sentence(dataclasses.replace(report, to_keep=given_up))
    assert said is not None
    assert begins_approved(said.en)
    assert holds_approved(said.en, 2)
    assert "须放弃大部分 INT8" in said.zh
    of_types = tried_sentence(dataclasses.replace(report, to_keep=dataclasses.replace(given_up, unit="operator type")))
    assert of_types is not None  # beside it stand operators that still run low: types are no number of these
    assert holds_approved(of_types.en, 3)
    assert "只保留 2 种算子类型时误差为 0.0481，4 种算子类型时误差为 0.0108" in of_types.zh
    half = dataclasses.replace(tried, still=Executed(low=5, of=16, precision="INT8"))
    said = tried_sentence(dataclasses.replace(report, to_keep=dataclasses.replace(given_up, tried=half)))
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
    unseen = Executed(low=0, of=16, precision="FP16")  # a region that names no kernel: nobody knows what runs in it
    few = dataclasses.replace(given_up, kept=kept[:2], was=unseen, still=unseen)
    said = fix_sentences(dataclasses.replace(report, fix=few))
    assert "FP16" not in said[0].en
    assert "FP16" not in said[0].zh


def test_the_time_of_a_fix_stands_between_nothing_and_everything_kept(tmp_path: Path) -> None:
    model, feeds = a_wide_channel(tmp_path, 1, brought_back=False)
    report = precision_debug.compare(model, run_mode="ort_fp16_sim", inputs=feeds)
    tried = Tried(state="mended", before=0.1, after=0.01, allowed=0.03, slower=1.2, whole_slower=1.92)
    said = tried_sentence(dataclasses.replace(report, to_keep=ToKeep(option="a", keys=("a",), of=8, tried=tried)))
    assert said is not None
    assert holds_approved(said.en)
    assert "单次运行耗时为不保留时的 1.20 倍（全部保留时为 1.92 倍）" in said.zh


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
    found = trials._times_as_long(clock.session(*kept), clock.session(*nothing), sample)
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
    assert [len(groups) for groups in keepable.before(["last"])] == [2, 3, 5, 7]
    assert [len(groups) for groups in keepable.before(["y"])] == [2, 3, 5, 9]
    assert not list(keepable.before(["conv0"]))


class _Units:
    """96 of them, each of one tensor."""

    units = tuple(SimpleNamespace(key=f"n{number}", metas=("t",)) for number in range(96))

    def __len__(self) -> int:
        return len(self.units)


def test_of_sets_that_do_not_hold_the_best_trade_is_taken() -> None:
    """As seen of basic-pitch in ov_int8: 27 of 96 units leave 0.098 of 0.43, 80 leave 0.039; 0.028 is expected."""
    finder = FixFinder(
        keepable=SimpleNamespace(units=_Units()), trials=SimpleNamespace(mode="ov_int8"), samples=(),
        rule=FixRule(before=(0.428,), allowed=0.0278), most=12,
    )  # fmt: skip
    few, many = (tuple((f"n{number}",) for number in range(count)) for count in (27, 80))
    for groups, error in ((few, 0.0978), (many, 0.0389)):
        finder.seen[groups] = Evaluation(kept=(), mode="ov_int8", passes=False, error=error)
    assert min(finder.seen, key=finder._rank) == few
    finder.seen[many] = Evaluation(kept=(), mode="ov_int8", passes=True, error=0.02)
    assert min(finder.seen, key=finder._rank) == many


def test_what_does_as_well_and_gives_up_no_more_is_offered_in_place_of_everything() -> None:
    """As seen of PP-OCRv4's recogniser in ov_bf16, where OpenVINO widens what lies between kept operators: 462 of 463
    were offered, although 109 of them leave as many layers in BF16, and an error far below what is expected."""
    was = Executed(low=71, of=74, precision="BF16")
    finder = FixFinder(
        keepable=SimpleNamespace(units=_Units()), trials=SimpleNamespace(mode="ov_bf16"), samples=(),
        rule=FixRule(before=(0.0254,), was=was, allowed=0.0117), most=12,
    )  # fmt: skip
    sets = {count: tuple((f"n{number}",) for number in range(count)) for count in (8, 20, 40, 95)}
    for count, error, low in ((8, 0.0005, 3), (20, 0.00063, 4), (40, 0.00046, 4), (95, 0.00046, 4)):
        ran, kept = Executed(low=low, of=79, precision="BF16"), tuple(key for group in sets[count] for key in group)
        finder.seen[sets[count]] = Evaluation(kept=kept, mode="ov_bf16", passes=True, error=error, executed=ran)
    assert finder._helps(sets[95])
    assert not finder._helps(sets[20])
    assert finder._cheaper(sets[95]) == sets[20]


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
    assert len(stages) == whole.to_keep.tried.runs > 2
    assert holds_approved(stages[0])
    assert whole.to_keep.tried.stopped is None
    stages.clear()
    monkeypatch.setattr(fixes, "PATIENCE", 0.0)
    ended = precision_debug.compare(model, run_mode="ort_int8", inputs=feeds)
    assert len(stages) == ended.to_keep.tried.runs == 1
    assert ended.to_keep.tried.stopped == 0.0
    said = tried_sentence(ended)
    assert said is not None
    assert "after 0 s" in said.en
    assert "0 秒后" in said.zh


class Wide(FixFinder):
    """Larger and larger sets, from the second of which on each helps, and none holds."""

    helps = True

    def _names(self, culprits: Any) -> tuple[str, ...]:
        return tuple(culprits)

    def _wider(self, _names: Any) -> Any:
        return (tuple((f"{unit}",) for unit in range(size)) for size in range(1, 30))

    def _run(self, groups: Any, *, rough: bool = True) -> None:
        if self.spent < self.most:
            self.spent += 1
            self.seen[groups] = Evaluation(kept=(), mode="", passes=not rough)

    def _helps(self, groups: Any) -> bool:
        return self.helps and groups in self.seen and len(groups) > 1

    def _leave_low(self) -> None:
        return

    def _best(self, _culprits: Any) -> None:
        return

    def _nothing(self) -> ToKeep:
        return ToKeep()


def test_runs_are_left_to_make_a_set_that_helps_smaller() -> None:
    """A captcha in INT8: the first of twelve sets all but did it, eleven larger ones did no more, and six operators
    were offered where two of them do the same (0.02096 and 0.02109)."""

    def spent(most: int, *, helps: bool = True) -> int:
        nothing: Any = SimpleNamespace(calibrates=False)
        rule = FixRule(before=[1.0], allowed=0.1)
        finder = Wide(keepable=nothing, trials=nothing, samples=(), rule=rule, most=most)
        finder.helps = helps
        finder.find(())
        return finder.spent

    assert 5 < spent(12) < 10
    assert spent(12, helps=False) == 12
    assert spent(3) == 3


class Answering(FixFinder):
    """Runs answer by which keys are kept: ``errors`` of (keys, error), the first whose keys are all kept."""

    errors: Any = ()

    def _run(self, groups: Any, *, rough: bool = True) -> Any:
        if groups not in self.seen:
            if self.spent >= self.most:
                return None
            self.spent += 1
            keys = {key for group in groups for key in group}
            error = next((one for needs, one in self.errors if set(needs) <= keys), 1.0)
            kept, ran = tuple(sorted(keys)), Executed(low=96 - len(keys), of=96, precision="FP16")
            self.seen[groups] = Evaluation(
                kept=kept, mode="m", passes=error <= 0.1, error=error, errors=(error,), held=(error <= 0.1,),
                executed=ran,
            )  # fmt: skip
        return self.seen[groups]

    def _again_so(self, groups: Any) -> Any:
        return self._run(groups)

    def _to_keep(self, groups: Any) -> ToKeep:
        return ToKeep(keys=tuple(key for group in groups for key in group))


def answering(*errors: tuple[str, float]) -> Answering:
    was = Executed(low=96, of=96, precision="FP16")
    finder = Answering(
        keepable=SimpleNamespace(units=_Units()), trials=SimpleNamespace(calibrates=False), samples=(),
        rule=FixRule(before=[1.0], was=was, allowed=0.1), most=12,
    )  # fmt: skip
    finder.errors = errors
    return finder


def test_of_what_is_offered_each_name_is_needed() -> None:
    """As seen of pastes with three names where two do: what only moves a kept operator's numbers, and an operator that
    brings the error a little further down than has to be."""
    finder = answering(("abc", 0.05), ("ab", 0.097))
    whole = (("a", "mover"), ("b",), ("c",))
    assert finder._run(whole).passes
    assert fix_finder._needed(finder, whole) == (("a",), ("b",))
    moved = answering(("am", 0.05))
    assert moved._run((("a", "m"),)).passes
    assert fix_finder._needed(moved, (("a", "m"),)) == (("a", "m"),)
    large = answering(("a", 0.05))
    large.most = 1  # one run of a model that takes long is all there is
    assert large._run(whole).passes
    assert fix_finder._needed(large, whole) == whole


def test_beside_a_set_that_keeps_many_stands_the_smallest_that_halves_the_error() -> None:
    """As seen of a pitch model in FP16: 190 of 213 operators were offered, and one of them halves the error."""
    finder = answering(("ab", 0.05), ("a", 0.4))
    many = tuple((one,) for one in "abcdefgh")
    for groups in (many, (("a",),), (("b",),)):
        finder._run(groups)
    assert [one.keys for one in fix_finder._beside(finder, many)] == [("a",)]
    assert fix_finder._beside(finder, (("a",), ("b",))) == ()  # two are few enough
