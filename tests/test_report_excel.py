from __future__ import annotations

import dataclasses
import math
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import openpyxl
import pytest
from approval import begins_approved, holds_approved
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from openpyxl.worksheet.worksheet import Worksheet
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug.records import Culprit, Explanation, Row, Status
from precision_debug.report import Report, write
from precision_debug.report.formats.xlsx import table
from precision_debug.report.formats.xlsx.formats import CELL_LIMIT, escape_xml, fit_cell_text
from precision_debug.report.formats.xlsx.table import column_letters
from precision_debug.report.layout import BAND, list_columns, list_columns_for_people
from precision_debug.report.summary import name_status, summarise
from precision_debug.report.values import is_newly_broken
from precision_debug.report.words import explain_reason
from precision_debug.safety.untrusted import make_visible


def book_of(report: Report, folder: Path) -> Any:
    return openpyxl.load_workbook(write(report, folder / "o.xlsx"))


def with_rows(*rows: Row, **changes: Any) -> Report:
    return dataclasses.replace(make_report(0), rows=rows, **changes)


def texts(sheet: Worksheet) -> list[str]:
    return [str(cell.value) for line in sheet.iter_rows() for cell in line if cell.value is not None]


def unescaped(text: str) -> str:
    return re.sub("_x([0-9A-F]{4})_", lambda match: chr(int(match[1], 16)), text)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Any]:
    report = make_report(300, extra=True)
    return report, book_of(report, tmp_path_factory.mktemp("excel"))


def test_the_table_comes_first(big: tuple[Report, Any]) -> None:
    _, book = big
    assert book.sheetnames == ["Precision", "Summary", "Chart", "ChartData", "ChartBars"]
    assert book.active.title == "Summary", "people read the sentence first, programs the first sheet"
    assert book["ChartData"].sheet_state == book["ChartBars"].sheet_state == "hidden"


def test_the_sentence_is_the_first_thing_on_the_sheet_that_opens(big: tuple[Report, Any]) -> None:
    report, book = big
    first, *_ = texts(book["Summary"])
    assert first == "\n".join(summarise(report).lead[0]).replace("`", "")


def test_pandas_reads_the_table_with_its_header(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    report = make_report(30)
    frame = pandas.read_excel(write(report, tmp_path / "o.xlsx"))
    assert list(frame.columns) == [column.title for column in list_columns(report)]
    assert len(frame) == 30


def test_the_deciding_columns_are_printed_and_coloured(big: tuple[Report, Any]) -> None:
    report, book = big
    sheet = book["Precision"]
    places = {column.key: column_letters(number) for number, column in enumerate(list_columns(report))}
    coloured = {str(item.sqref).split(":")[0].rstrip("0123456789") for item in sheet.conditional_formatting}
    for key in ("relative_l2", "introduced_rel_l2", "rounding_units", "error_growth", "sqnr_db"):
        assert places[key] in coloured
        assert BAND > [column.key for column in list_columns(report)].index(key) >= 8
    assert sheet.print_area.endswith(f"${column_letters(BAND - 1)}${len(report.rows) + 1}")


def test_each_question_has_a_chart_and_none_is_empty(tmp_path: Path) -> None:
    row = make_row(3, 0.5)
    budget = {row.name: 0.9, "logits": 0.05}
    culprit = Culprit(name=row.name, node="", op_types=("Conv",), cause="overflow", keep=(row.name,))
    explanation = Explanation(state="culprits", culprits=(culprit,), at="logits", budget=budget)
    book = book_of(dataclasses.replace(make_report(60), explanation=explanation), tmp_path)
    assert len(book["Chart"]._charts) == 3
    bars = [(cells[0].value, cells[1].value) for cells in book["ChartBars"].iter_rows()]
    assert bars[:2] == list(budget.items())
    for chart in book["Chart"]._charts:
        assert all((series.val or series.yVal).numRef.f for series in chart.series)
    assert "Chart" not in book_of(with_rows(make_row(0, None)), tmp_path).sheetnames, "nothing to draw, no sheet"


def test_a_culprits_row_is_marked_and_a_reason_has_one_language(tmp_path: Path) -> None:
    report = make_report(60)
    row = next(row for row in report.rows if row.status is Status.FAIL and row.reason)
    culprit = Culprit(name=row.name, node="", op_types=("Conv",), cause="overflow", keep=(row.name,))
    report = dataclasses.replace(report, explanation=Explanation(state="culprits", culprits=(culprit,), at="logits"))
    for language, other in (("en", "zh"), ("zh", "en")):
        book = openpyxl.load_workbook(write(report, tmp_path / f"{language}.xlsx", language=language))
        lines = {line[1].value: line for line in book["Precision"].iter_rows(min_row=2)}
        marked = [name for name, line in lines.items() if line[1].font.b]
        assert marked == [row.name]
        assert "1" in lines[row.name][1].comment.text
        assert lines[row.name][0].border.left.style == "thick"
        reason = lines[row.name][BAND - 1]
        assert reason.value == explain_reason(row.reason).of(language)
        assert reason.comment is None or reason.comment.text == explain_reason(row.reason).of(other)
        words = {line[BAND - 1].value for line in lines.values() if line[BAND - 1].value}
        assert words
        assert not any(" / " in text for text in words)


@pytest.mark.parametrize(("asked", "name"), [(False, "as expected"), (True, "pass")])
def test_nothing_passes_beside_a_count_where_no_tolerance_was_given(tmp_path: Path, asked: bool, name: str) -> None:
    report = make_report(60)
    tolerance = dataclasses.replace(report.spec.tolerance, given=asked)
    report = dataclasses.replace(report, spec=dataclasses.replace(report.spec, tolerance=tolerance))
    book = book_of(report, tmp_path)
    place = [cell.value for cell in book["Precision"][1]].index("Status")
    said = {line[place] for line in book["Precision"].iter_rows(min_row=2, values_only=True)}
    assert said & {"pass", "as expected"} == {name}
    other = {"pass": "as expected", "as expected": "pass"}[name]
    assert not any(text.startswith(other) for text in texts(book["Summary"]))


def test_a_line_breaks_where_a_number_is_not_finite(tmp_path: Path) -> None:
    broken = make_row(1, comparison=make_comparison(0.1, target=dataclasses.replace(make_stats(), inf=3)))
    rows = (make_row(0, 0.1), broken, make_row(2, 0.2), make_row(3, 0.0), make_row(4, 0.1))
    book = book_of(with_rows(*rows), tmp_path)
    chart = book["Chart"]._charts[0]
    assert chart.display_blanks == "gap"
    lines = [cells[8:11] for cells in book["ChartData"].iter_rows(min_row=2, values_only=True)]
    assert [line[0] for line in lines if line[0] is not None] == [0, 1, 2, 4], "what has no error is passed over"
    assert lines[1][1:] == (None, None)
    assert all(number is not None for line in (lines[0], lines[2], lines[3]) for number in line)


def test_every_cell_of_the_table(big: tuple[Report, Any]) -> None:
    report, book = big
    sheet = book["Precision"]
    layout = list_columns_for_people(report, "en", {status: name_status(report, status) for status in Status})
    assert [cell.value for cell in sheet[1]] == [column.title for column in list_columns(report)]
    assert sheet.max_row == len(report.rows) + 1
    for row, cells in zip(report.rows, sheet.iter_rows(min_row=2), strict=True):
        for column, cell in zip(layout, cells, strict=True):
            value = column.get(row)
            if value is None or value == "":
                assert cell.value is None
            elif column.kind == "index":
                assert cell.value == str(list(value))
            elif column.kind == "flag":
                assert cell.value == ("yes" if value else "no")
            elif column.kind == "text":
                assert cell.value == value
            elif math.isfinite(value):
                assert cell.value == value, column.key
                assert cell.data_type == "n"
            else:
                assert cell.value == str(value)


def test_frozen_panes_filter_and_widths(big: tuple[Report, Any]) -> None:
    report, book = big
    sheet = book["Precision"]
    last = column_letters(len(list_columns(report)) - 1)
    assert sheet.freeze_panes == "C2"
    assert sheet.auto_filter.ref == f"A1:{last}{len(report.rows) + 1}"
    assert sheet.print_title_rows == "$1:$1"
    longest = max(len(row.name) for row in report.rows)
    assert min(longest, 56) <= sheet.column_dimensions["B"].width <= 60


def test_fills_show_the_status(big: tuple[Report, Any]) -> None:
    report, book = big
    sheet = book["Precision"]
    fills: dict[Status, set[str]] = {status: set() for status in Status}
    for row, cells in zip(report.rows, sheet.iter_rows(min_row=2), strict=True):
        band = {cell.fill.fgColor.rgb if cell.fill.fill_type else "" for cell in cells[:8]}
        assert len(band) == 1, "the band is of one colour, empty cells included"
        fills[row.status] |= band
        assert all(cell.fill.fill_type is None for cell in cells[BAND:])
    assert fills[Status.PASS] == {""}
    colours = {status: fill.pop() for status, fill in fills.items() if status is not Status.PASS}
    red, grey, amber = (colours[status] for status in (Status.FAIL, Status.FUSED_AWAY, Status.NOT_COMPARED))
    assert colours[Status.UNMATCHED] == amber
    assert len({red, grey, amber}) == 3
    assert int(red[2:4], 16) > int(red[4:6], 16) + 10, "red"
    assert int(amber[2:4], 16) > int(amber[6:8], 16) + 20, "amber"


def test_errors_are_scientific_and_can_be_sorted(big: tuple[Report, Any]) -> None:
    report, book = big
    formats = {}
    for column, cell in zip(list_columns(report), book["Precision"][2], strict=True):
        formats[column.key] = cell.number_format
    assert formats["max_abs"] == formats["rmse"] == "[=0]0;0.00E+00"
    assert formats["total"] == "#,##0"
    assert formats["name"] == "@"
    assert formats["base_min"] == "0.0000"


def test_header_notes_explain_in_both_languages(big: tuple[Report, Any]) -> None:
    report, book = big
    for column, cell in zip(list_columns(report), book["Precision"][1], strict=True):
        assert column.help in cell.comment.text
        assert column.help_zh in cell.comment.text


def test_the_chart_and_its_points(big: tuple[Report, Any]) -> None:
    report, book = big
    chart, _ = book["Chart"]._charts
    assert chart.y_axis.scaling.logBase == 10
    assert len(chart.series) == 5
    points = book["ChartData"]
    assert points.max_row == len(report.compared) + 1
    for row, cells in zip(report.compared, points.iter_rows(min_row=2, values_only=True), strict=True):
        assert cells[0] == row.index
        assert cells[1] == row.name
        assert cells[2] == pytest.approx(None if is_newly_broken(row) else row.relative_l2)
        assert cells[6] == pytest.approx(row.introduced.rel_l2 if row.introduced is not None else None)
        finite = row.comparison is not None and math.isfinite(row.comparison.max_abs or 0)
        assert (cells[4] is not None) == (row.status is Status.FAIL and finite)
        assert (cells[5] is not None) == (not finite)


def test_the_chart_holds_a_copy_of_its_data(tmp_path: Path) -> None:
    path = write(make_report(50), tmp_path / "o.xlsx")
    with zipfile.ZipFile(path) as archive:
        chart = archive.read("xl/charts/chart1.xml").decode()
    assert "<c:numCache>" in chart


def test_summary_says_what_happened(big: tuple[Report, Any]) -> None:
    report, book = big
    sheet = book["Summary"]
    shown = texts(sheet)
    assert "OUT OF TOLERANCE    超出容差" in shown
    first = report.first_mismatch
    assert first is not None
    assert first.name in shown
    for word in (
        report.spec.command, "What to look at / 建议检查", "Tolerance / 容差", "python", "0.1.0", "top-1 agreement",
        "98.06%", report.inputs_file, report.inputs[0].sha256[:32], "Calibrated (MinMax) on the given input: 1 sample.",
    ):  # fmt: skip
        assert any(word in text for text in shown), word
    assert any("|target - base| <= 0.0001 + 0.0001 * |base|" in text for text in shown)


def test_summary_links_to_the_row(big: tuple[Report, Any]) -> None:
    report, book = big
    first = report.first_mismatch
    assert first is not None
    links = {
        cell.value: cell.hyperlink.location for line in book["Summary"].iter_rows() for cell in line if cell.hyperlink
    }
    place = links[first.name].replace("'", "").split("!")
    assert book[place[0]][place[1]].value == first.name


def test_a_partial_report_opens_on_its_banner(tmp_path: Path) -> None:
    book = book_of(make_report(20, failure="the backend was killed (signal 9)"), tmp_path)
    assert book.active.title == "Summary"
    shown = texts(book["Summary"])
    assert begins_approved(list(shown))
    assert holds_approved(list(shown), 2)


def test_an_empty_report(tmp_path: Path) -> None:
    report = make_report(0)
    book = book_of(report, tmp_path)
    assert book.active.title == "Summary"
    assert book["Precision"].max_row == 1
    assert any(text.startswith("INCONCLUSIVE") for text in texts(book["Summary"]))
    assert "Chart" not in book.sheetnames


def test_an_inconclusive_report_names_the_outputs_that_are_missing(tmp_path: Path) -> None:
    report = with_rows(make_row(0, 1e-5), make_row(1, None, name="logits", is_output=True))
    book = book_of(report, tmp_path)
    shown = texts(book["Summary"])
    assert any(text.startswith("INCONCLUSIVE") for text in shown)
    assert holds_approved(list(shown))


def test_a_simulation_is_called_one(tmp_path: Path) -> None:
    report = make_report(5)
    report = dataclasses.replace(
        report, target=dataclasses.replace(report.target, mode="ort_fp16_sim", simulation=True)
    )
    assert any("is a simulation" in text for text in texts(book_of(report, tmp_path)["Summary"]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_excel_has_not(tmp_path: Path, value: float) -> None:
    numbers = make_comparison(0.1, max_abs=value, mean_abs=value, sqnr_db=value, share_rel_over_1pct=value)
    row = make_row(comparison=numbers, status=Status.FAIL, error_growth=value, inputs=("x",))
    report = with_rows(row)
    book = book_of(report, tmp_path)
    cells = dict(zip((column.key for column in list_columns(report)), book["Precision"][2], strict=True))
    for key in ("max_abs", "mean_abs", "sqnr_db", "share_rel_over_1pct", "error_growth"):
        assert cells[key].value == str(value)
        assert cells[key].data_type in ("s", "inlineStr")


def test_extreme_numbers_arrive_exactly(tmp_path: Path) -> None:
    base = make_stats(min=-1.7976931348623157e308, max=5e-324, elements=2**53, nan=2**60)
    row = make_row(comparison=make_comparison(0.1, base=base, target=base, mean_abs=0.1 + 0.2))
    report = with_rows(row)
    cells = dict(zip((c.key for c in list_columns(report)), book_of(report, tmp_path)["Precision"][2], strict=True))
    assert cells["base_min"].value == -1.7976931348623157e308
    assert cells["base_max"].value == 5e-324
    assert cells["mean_abs"].value == 0.1 + 0.2
    assert cells["total"].value == 2**53
    assert cells["base_nan"].value == str(2**60), "beyond 2**53 Excel would round it"


NASTY = [
    "=1+1", '=HYPERLINK("http://x")', "http://example.com", "+1", "-1", "@x", "123", "1e5", "<r>rich</r>", "a&b<c>'",
    "_x000D_", "tab\there", "line\nbreak", "return\rhere", "\x1e[ONNX Layer: a]\x1f\x00", " padded ", "\ud800",
    "\uffff", "卷积层/输出", "é" * 100, "😀", "true", "#N/A", "x" * 40000, "中" * 33000, "😀" * 17000,
]  # fmt: skip


def test_any_name_stays_text(tmp_path: Path) -> None:
    rows = [
        make_row(n, 0.01, name=name, reason=name, node=name, extra={name[:40]: name}) for n, name in enumerate(NASTY)
    ]
    path = write(with_rows(*rows), tmp_path / "o.xlsx")
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith((".xml", ".rels", ".vml")):
                ElementTree.fromstring(archive.read(member))
    for name, line in zip(NASTY, openpyxl.load_workbook(path)["Precision"].iter_rows(min_row=2), strict=True):
        cell = line[1]
        assert cell.data_type in ("s", "inlineStr")
        shown = unescaped(cell.value)
        assert len(shown.encode("utf-16-le")) // 2 <= CELL_LIMIT
        if len(name) < 1000:
            assert shown == make_visible(name, keep="\n\t")
        else:
            assert f"cut: {len(name)} characters" in shown
            assert shown.startswith(name[:15000])


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some=st.lists(st.tuples(st.text(max_size=60), st.floats(), st.integers(0, 2**70)), min_size=8, max_size=16))
@example(some=[("", -0.0, 0)])
def test_any_text_and_any_number_can_be_read_back(tmp_path: Path, some: list[tuple[str, float, int]]) -> None:
    """Many to a workbook: writing and reading one is what takes the time."""
    report = with_rows(*(
        make_row(place, name=name, node=name, extra={"x": name},
                 comparison=make_comparison(0.01, max_abs=number, mismatched=index, fp16_overflow=index))
        for place, (name, number, index) in enumerate(some)
    ))  # fmt: skip
    keys, sheet = [c.key for c in list_columns(report)], book_of(report, tmp_path)["Precision"]
    for place, (name, number, index) in enumerate(some):
        cells = dict(zip(keys, sheet[2 + place], strict=True))
        assert unescaped(cells["name"].value or "") == make_visible(name, keep="\n\t")
        assert cells["max_abs"].value == (number if math.isfinite(number) else str(number))
        assert cells["fp16_overflow"].value == (index if index <= 2**53 else str(index))


def test_text_that_is_cut_says_so() -> None:
    assert fit_cell_text("x" * CELL_LIMIT) == "x" * CELL_LIMIT
    cut = fit_cell_text("x" * (CELL_LIMIT + 1))
    assert len(cut) == CELL_LIMIT
    assert holds_approved(cut)
    assert escape_xml("a<b>&c\x07_x0041_") == "a&lt;b&gt;&amp;c_x0007__x005F_x0041_"


@pytest.mark.parametrize(
    ("number", "name"), [(0, "A"), (25, "Z"), (26, "AA"), (701, "ZZ"), (702, "AAA"), (16383, "XFD")]
)
def test_column_letters(number: int, name: str) -> None:
    assert column_letters(number) == name


def test_more_rows_than_a_sheet_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ROW_LIMIT", 40)
    report = make_report(100)
    book = book_of(report, tmp_path)
    sheets = ["Precision", "Precision 2", "Precision 3"]
    assert book.sheetnames[:3] == sheets
    names = [line[1] for title in sheets for line in book[title].iter_rows(min_row=2, values_only=True)]
    assert names == [row.name for row in report.rows]
    assert [book[title].freeze_panes for title in sheets] == ["C2"] * 3
    assert holds_approved(list(texts(book["Summary"])))
    links = {
        cell.value: cell.hyperlink.location for line in book["Summary"].iter_rows() for cell in line if cell.hyperlink
    }
    for name, link in links.items():
        title, _, place = link.replace("'", "").partition("!")
        assert book[title][place].value == name.removeprefix("Row of ").partition(" / ")[0]


def test_a_chart_of_many_rows_is_thinned_and_says_so(tmp_path: Path) -> None:
    report = make_report(12000)  # over 5000 of them are compared, see ``curve``
    path = write(report, tmp_path / "o.xlsx")
    # these sheets alone: openpyxl takes ten times as long for all of the table's cells as we to write them
    book = openpyxl.load_workbook(path, read_only=True)
    assert 1000 < sum(1 for _ in book["ChartData"].iter_rows(max_col=1, values_only=True)) <= 5001
    assert any("Thinned" in text for text in texts(book["Chart"]))
    book.close()


def test_the_engines_layers_are_a_sheet(tmp_path: Path, root: Path) -> None:
    from precision_debug.inspector import read_inspector

    layers = read_inspector(root / "tests" / "data" / "inspector" / "trt86_resnet18_fp32.json")
    report = dataclasses.replace(make_report(), layers=layers)
    book = openpyxl.load_workbook(report.save(tmp_path / "o.xlsx"))
    lines = list(book["Layers"].iter_rows(values_only=True))
    assert len(lines) == len(layers) + 1
    assert "TF32" in {line[2] for line in lines}
    assert type(report).load(report.save(tmp_path / "o.json")).layers == layers


def test_xlsxwriter_has_the_internals_that_rows_are_streamed_through(root: Path, tmp_path: Path) -> None:
    """Its public calls take ten times as long (see ``stream``), so it is held below the next major release."""
    import xlsxwriter

    assert re.search(r'"xlsxwriter>=3\.2,<4"', (root / "pyproject.toml").read_text(encoding="utf-8"))
    with xlsxwriter.Workbook(str(tmp_path / "o.xlsx"), {"constant_memory": True}) as book:
        sheet = book.add_worksheet()
        assert all(hasattr(sheet, name) for name in ("fh", "dim_rowmax", "previous_row", "_write_single_row"))
        assert isinstance(book.add_format({"bold": True})._get_xf_index(), int)


def test_long_names_and_reasons_are_whole(tmp_path: Path) -> None:
    long = "/model/encoder/layer.0/attention/self/query/" * 3 + "MatMul_output_0"
    book = book_of(with_rows(make_row(0, 1e-5, name="short"), make_row(1, 0.2, name=long)), tmp_path)
    sheet = book["Precision"]
    assert sheet["B3"].alignment.wrap_text
    assert sheet.row_dimensions[3].height > 2 * sheet.row_dimensions[1].height / 3
    assert sheet.row_dimensions[2].height is None, "one line has the usual height"
    cells = [cell for row in book["Summary"].iter_rows() for cell in row]
    links = [cell for cell in cells if cell.hyperlink and "MatMul" in str(cell.value)]
    tables = [cell for cell in links if str(cell.value).startswith("…")]
    assert tables, "a link of a narrow column shows the end of its name"
    assert all(str(cell.value).endswith("MatMul_output_0") for cell in tables)


def test_no_error_is_no_alarm(tmp_path: Path) -> None:
    sheet = book_of(with_rows(make_row(0, 0.0)), tmp_path)["Precision"]
    place = [cell.value for cell in sheet[1]].index("SQNR (dB)") + 1
    assert sheet.cell(2, place).value == "inf"
    assert not sheet.cell(2, place).font.bold
