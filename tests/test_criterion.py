"""Whether something that was tried helps: its error before and after is of the same elements, by the same measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.numbers import compare
from precision_debug.numbers.slices import with_slices
from precision_debug.records import Comparison, Slices, Tolerance
from precision_debug.run.criterion import Criterion, Sample
from precision_debug.search.fix import SearchRequest

RNG = np.random.default_rng(5)
SMALL = np.abs(RNG.standard_normal((1, 3, 200))).astype(np.float32) * 0.01
LARGE = RNG.uniform(100, 600, (1, 4, 200)).astype(np.float32)
PACKED = np.concatenate([LARGE, SMALL], axis=1)


def _judge(target: Any, lost: tuple[Slices, ...], base: Any = PACKED, **asked: Any) -> Any:
    by_name = {"y": lost} if lost else {}
    criterion = Criterion.of(SearchRequest(**asked), Tolerance(given=False), {"y": "y"}, 0.1, lost=by_name)
    sample = Sample(feeds={}, target_feeds={}, values={"y": base}, low=1.0)
    return criterion.judge(sample, {"y": target})


def _lost(target: Any, base: Any = PACKED) -> tuple[Slices, ...]:
    found: Comparison = with_slices(compare(base, target), base, target, {})
    return found.lost


def _with_small(small: Any) -> Any:
    return np.concatenate([LARGE, small], axis=1).astype(np.float32)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4])
def test_slices_that_were_lost_are_measured_the_same_once_they_are_told(share: float) -> None:
    """1 beside their own size before, and the whole output's 0.00001 after: two measures of two things."""
    before = _with_small(np.zeros_like(SMALL))
    lost = _lost(before)
    assert [(one.first, one.last) for one in lost] == [(4, 6)]
    assert _judge(before, lost).error == pytest.approx(1.0)
    after = _with_small(SMALL * (1 + share))
    assert not _lost(after)
    found = _judge(after, lost)
    assert found.passes
    assert found.error == pytest.approx(share, abs=1e-6)
    assert found.outputs == pytest.approx(share * float(np.linalg.norm(SMALL) / np.linalg.norm(PACKED)), rel=1e-4)
    assert _judge(after, ()).outputs is None, "where nothing was lost there is one error"


def test_of_slices_on_steps_the_measure_is_their_spread() -> None:
    """Pressures of 1013 that vary by 1, in steps of 8, beside what is told."""
    base = np.concatenate([RNG.standard_normal((1, 2, 300)), 1013 + RNG.standard_normal((1, 1, 300))], 1)
    base = base.astype(np.float32)
    target = base.copy()
    target[:, 2] = np.round(base[:, 2] / 8) * 8
    lost = _lost(target, base)
    assert [(one.first, one.step > 0) for one in lost] == [(2, True)]
    before = _judge(target, lost, base).error
    spread = float(base[:, 2].std())
    assert before == pytest.approx(float(np.sqrt(np.mean((target[:, 2] - base[:, 2]) ** 2))) / spread, rel=1e-3)
    target[:, 2] = base[:, 2] + 0.25 * spread
    assert _judge(target, lost, base).error == pytest.approx(0.25, rel=1e-3)


def test_a_share_of_the_error_is_one_of_the_same_measure() -> None:
    lost = _lost(_with_small(np.zeros_like(SMALL)))
    assert _judge(_with_small(SMALL * 1.3), lost, limit="50%").passes
    assert not _judge(_with_small(SMALL * 1.3), lost, limit="20%").passes


def test_what_is_lost_of_another_input_alone_is_measured_there() -> None:
    criterion = Criterion.of(SearchRequest(), Tolerance(given=False), {"y": "y"}, 0.1)
    sample = Sample(feeds={}, target_feeds={}, values={"y": PACKED})
    sample = criterion.with_lost(sample, {"y": _with_small(np.zeros_like(SMALL))})
    assert criterion.judge(sample, {"y": _with_small(SMALL * 1.4)}).error == pytest.approx(0.4, rel=1e-4)


def test_a_fix_of_lost_slices_tells_one_measure_on_both_sides(tmp_path: Path) -> None:
    """The numbers of the sentence are those of numpy on the engine's own outputs."""
    graph = Graph(seed=3)
    graph.input("x", RNG.standard_normal((1, 8, 64)).astype(np.float32))
    for name, size in (("boxes", 600.0), ("scores", 0.02)):
        graph.op("Sigmoid", ["x"], f"{name}_in")
        graph.op("Mul", [f"{name}_in", graph.weight(f"{name}_size", np.float32(size))], name)
    graph.op("Concat", ["boxes", "scores"], "y", axis=1)
    path, feeds = tmp_path / "m.onnx", graph.feeds
    graph.save(path, ["y"])
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=feeds)
    kept, row = report.to_keep, report.outputs[0]
    assert row.comparison is not None
    assert row.comparison.lost
    assert kept is not None
    assert kept.slices
    assert kept.state == "mended"
    again = precision_debug.compare(
        path, run_mode="ort_int8", inputs=feeds, explain="off", **kept.settings
    )
    assert kept.outputs == pytest.approx(again.outputs[0].relative_l2, rel=1e-3)
    assert again.outputs[0].comparison is not None
    assert not again.outputs[0].comparison.lost
    lost = row.comparison.lost
    assert kept.before == pytest.approx(max(float(one.error / one.size) for one in lost))
    assert kept.after is not None
    assert kept.outputs is not None
    assert kept.after >= kept.outputs
