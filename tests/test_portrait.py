from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug.errors import OutputError
from precision_debug.numbers.draw_portrait import _find_bins, draw_portrait_of
from precision_debug.numbers.told import Bins, Density, ErrorMap, Portrait
from precision_debug.observe.hooks import SaveBaseline
from precision_debug.observe.portraits import Portraits
from precision_debug.report import Report
from precision_debug.report.formats.html.data import iterate_json
from precision_debug.run.script_hooks import AssertClose


def drawn(base: np.ndarray, target: np.ndarray) -> Portrait:
    found = draw_portrait_of("x", base, target)
    assert found is not None
    return found


def test_bins_that_arithmetic_finds_are_those_of_numpys_histogram() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        low = random.integers(-40, 10) / 2
        edges = np.linspace(low, low + random.integers(1, 60) / 2, int(random.choice([4, 21, 33])))
        near = np.nextafter(edges, np.inf)[:-1], np.nextafter(edges, -np.inf)[1:]
        values = np.concatenate([random.uniform(edges[0], edges[-1], 1000), edges, *near])
        counts, _ = np.histogram(values, edges)
        np.testing.assert_array_equal(np.bincount(_find_bins(values, edges), minlength=len(edges) - 1), counts)


def test_the_map_shows_where_the_error_lies() -> None:
    base = np.ones((2, 3, 70, 40), np.float32)
    target = base.copy()
    target[:, 1, 35:, :] += 0.5
    found = drawn(base, target)
    assert found.map is not None
    assert found.map.size == (70, 40)
    cells = np.array(found.map.cells, float)
    assert cells.shape == (32, 32)
    assert (cells[:15] == 0).all()
    assert cells[17:] == pytest.approx(0.5 / np.sqrt(3), rel=1e-2)
    assert found.channels is not None
    assert found.channels.cells == ((0.0, pytest.approx(0.5 / np.sqrt(2), rel=1e-2), 0.0),)


def test_histograms_count_every_finite_element_and_share_their_edges() -> None:
    random = np.random.default_rng(0)
    base = random.normal(size=(4, 500)).astype(np.float32)
    target = base.astype(np.float16)
    found = drawn(base, target)
    assert found.base is not None
    assert found.target is not None
    assert found.errors is not None
    assert found.base.edges == found.target.edges
    assert sum(found.base.counts) == sum(found.target.counts) == base.size
    assert sum(found.errors.counts) == np.count_nonzero(base != target)


def test_the_worst_elements_come_first_and_nan_before_all() -> None:
    base = np.zeros((3, 5), np.float32)
    target = base.copy()
    target[2, 1], target[0, 4], target[1, 0] = 3.0, -7.0, np.nan
    found = drawn(base, target)
    assert [element.index for element in found.worst] == [(1, 0), (0, 4), (2, 1)]
    assert found.map is not None
    assert found.map.cells[1][0] is None, "what is not finite has no number"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.float64])
def test_types_and_shapes_of_all_kinds(dtype: type) -> None:
    for shape in ((), (1,), (7,), (1, 1, 1, 1), (2, 3, 1, 1), (5, 1), (0, 3)):
        draw_portrait_of("x", np.ones(shape, np.float32), np.ones(shape, dtype))
    assert draw_portrait_of("x", np.ones(3), np.ones(4)) is None
    assert draw_portrait_of("x", np.array(["a"]), np.array(["a"])) is None


def test_few_rows_are_drawn_and_the_worst_among_them() -> None:
    told: list[str] = []
    base = np.ones(4, np.float32)
    with Portraits(0.01, lambda portrait: told.append(portrait.name)) as portraits:
        for number in range(500):
            error = 0.005 if number < 50 else 0.02 + (number * 37 % 450) / 1000
            row = make_row(number, error, comparison=make_comparison(error, base=make_stats(shape=(4,), elements=4)))
            portraits.look(row, base, base * (1 + error))
    assert told[0] == "/layer1/conv50/Conv_output_0", "the first beyond bounds"
    assert 8 < len(told) <= 41
    worst = sorted(range(50, 500), key=lambda number: number * 37 % 450)[-60:]
    assert {f"/layer1/conv{number}/Conv_output_0" for number in worst} & set(told)


def test_a_hook_draws_what_it_compares() -> None:
    told: list[Portrait] = []
    base, target = np.ones((4, 4), np.float32), np.full((4, 4), 1.5, np.float32)
    save = SaveBaseline()
    save("Add", "x", base)
    with Portraits(0.1, told.append) as portraits:
        AssertClose(save, observers=[portraits])("Add", "x", target)
        target[:] = base[:] = 7.0  # it is drawn beside the run, which goes on
    assert [portrait.name for portrait in told] == ["x"]
    assert told[0].worst[0].target == 1.5


def test_what_telling_of_a_portrait_raises_ends_the_run() -> None:
    def full(portrait: Portrait) -> None:
        raise OutputError("no room")

    base = np.ones((4, 4), np.float32)
    save = SaveBaseline()
    save("Add", "x", base)
    with pytest.raises(OutputError, match="no room"), Portraits(0.1, full) as portraits:
        AssertClose(save, observers=[portraits])("Add", "x", base * 2)


def test_portraits_survive_json_and_reach_the_page(tmp_path: Path) -> None:
    row = make_row(0, 0.1)
    portrait = dataclasses.replace(drawn(np.ones((3, 3)), np.full((3, 3), np.inf)), name=row.name)
    report = dataclasses.replace(make_report(0), rows=(row,), portraits=(portrait,))
    assert Report.load(report.save(tmp_path / "r.json")).portraits == (portrait,)
    assert '"portraits":{"0":[{' in report.save(tmp_path / "r.html").read_text(encoding="utf-8")


def test_of_a_large_tensor_only_some_blocks_are_read() -> None:
    """Also where its first axis is 1; maps say what they stand for, and cells lie where the error is."""
    base = np.zeros((1, 2048, 2048), np.float32)
    target = base.copy()
    target[:, 1024:, :512] = 1
    read: list[int] = []

    def counted(piece: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        read.append(piece.size)
        return np.asarray(piece)

    found = draw_portrait_of("x", base, target, read=counted)
    assert found is not None
    assert sum(read) < 1.5 * base.size
    assert found.map is not None
    assert found.map.size == (2048, 2048)
    assert (len(found.map.cells), len(found.map.cells[0])) == (32, 32)
    cells = np.array(found.map.cells, float)
    assert (cells[16:, :8] == 1).all()
    assert cells[:16].max() == cells[:, 8:].max() == 0
    assert found.channels is not None
    assert found.channels.size == (1, 2048)


@given(
    st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=60),
    st.sampled_from([np.float64, np.float32, np.float16]),
)
@example([(-1e308, 1e308), (1e308, -1e308)], np.float64)
@example([(1.0, 1.0), (1.0 + 2.3e-16, 1.0)], np.float64)
@example([(1e300, 1e300)], np.float64)
@example([(-1.7e308, -1.7e308), (0.0, 1.7e308)], np.float64)
@example([(0.0, 1.7975e308)], np.float64)
@example([(0.0, 5e-324)], np.float64)
def test_whatever_the_values_are(pairs: list[tuple[float, float]], dtype: type) -> None:
    with np.errstate(all="ignore"):
        base, target = np.array(pairs).T.astype(dtype)
    found = drawn(base, target)
    assert found.base is not None
    assert sum(found.base.counts) == np.isfinite(base).sum()
    for bins in (found.base, found.errors):
        assert bins is None or (np.isfinite(bins.edges).all() and (np.diff(bins.edges) >= 0).all())
    page_of(found)


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan")])
def test_a_page_of_a_portrait_whose_numbers_are_not_finite(odd: float) -> None:
    """A report's JSON is a file that anybody may have written."""
    bins, line = Bins(edges=(odd, 1.0), counts=(1,)), (odd, odd)
    density = Density(magnitudes=line, errors=line, counts=((1,),))
    cells = ErrorMap(size=(1, 2), cells=(line,))
    page_of(Portrait(name="", base=bins, target=bins, errors=bins, against=density, map=cells, channels=cells))


def page_of(portrait: Portrait) -> None:
    report = make_report(1)
    report = dataclasses.replace(report, portraits=(dataclasses.replace(portrait, name=report.rows[0].name),))
    assert json.loads("".join(iterate_json(report)), parse_constant=pytest.fail)["portraits"]
