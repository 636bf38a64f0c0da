from __future__ import annotations

import dataclasses
import math
import re

import pytest
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug.reasons import Text
from precision_debug.records import Row, Status, Tolerance
from precision_debug.report.formats.html.data import iterate_json
from precision_debug.report.layout import BAND, COLUMNS, list_columns, list_columns_for_people

PADDLE = [
    "Operator Type", "Tensor Name", "Shape", "Mismatched Elements", "Max Atol", "Max Rtol",
    "Min Val(base)", "Max Val(base)",
]  # fmt: skip
BY_KEY = {column.key: column for column in COLUMNS}


def cell(key: str, row: Row) -> object:
    return BY_KEY[key].get(row)


def test_first_columns_are_paddles() -> None:
    assert [column.title for column in COLUMNS[:8]] == PADDLE
    front = ["status", "relative_l2", "introduced_rel_l2", "rounding_units", "error_growth", "sqnr_db", "reason"]
    assert [column.key for column in COLUMNS[8:BAND] if column.key != "inherited_rel_l2"] == front


def test_every_column_is_described_in_both_languages() -> None:
    assert len(BY_KEY) == len(COLUMNS)
    assert len({column.title for column in COLUMNS}) == len(COLUMNS)
    for column in COLUMNS:
        assert column.help.endswith(".")
        assert column.help_zh.endswith("。")
        assert not column.title_zh.isascii()
        assert column.kind in {"text", "int", "float", "share", "index", "flag"}
        assert 5 <= column.width <= 60


def test_what_reads_nothing_has_no_growth() -> None:
    assert cell("error_growth", make_row(error_growth=math.inf)) is None
    assert cell("error_growth", make_row(error_growth=math.inf, inputs=("x",))) == math.inf


WAYS = [
    "exact", "rename map", "graph metadata", "before quantisation", "before rounding", "fingerprint, confidence 0.9876",
    "fingerprint and module; among copies by the order that both graphs force, confidence 1.0000",
    "graph neighbours, and the same values in most places",
    "outputs of the model, by position (1 of 2), shape and type",
    "graph neighbours: the same family of operator, inputs and shape; inputs agree, the output does not",
    "position and value, relative distance 1.2e-07", "without the padding of [0]",
    "4 chunks along axis 1, of each sample",
    "part 2 of 3 of qkv: axis 2, 16 to 31", "part 1 of 3 of qkv: axis 2, in another order",
]  # fmt: skip
VIEWS = ["dequantised, unblocked", "transposed", "cast", "unfused", "rounded to bfloat16 behind float32"]


@pytest.mark.parametrize(("key", "text"), [("paired_by", t) for t in WAYS] + [("view", t) for t in VIEWS])
def test_how_a_row_was_paired_and_taken_is_said_in_both_languages(key: str, text: str) -> None:
    report = make_report(3)
    report = dataclasses.replace(report, rows=(dataclasses.replace(report.rows[0], **{key: text}),))
    names = {status: Text(status.value, status.value) for status in Status}
    said = {}
    for language in ("en", "zh"):
        columns = {column.key: column for column in list_columns_for_people(report, language, names)}
        said[language] = str(columns[key].get(report.rows[0]))
    assert said["en"] == text
    words = re.sub(r"bfloat16|float32|qkv|[0-9.]e-", "", said["zh"])
    assert not re.search("[A-Za-z]", words), said["zh"]
    written = "".join(iterate_json(report))
    assert said["zh"] in written
    assert f'"{text}"' in written


def test_columns_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        COLUMNS[0].title = "other"  # type: ignore[misc]


def test_every_value_has_the_type_of_its_kind() -> None:
    types = {"text": str, "int": int, "float": (int, float), "share": (int, float), "index": tuple, "flag": bool}
    report = make_report(300, extra=True)
    assert {row.status for row in report.rows} == set(Status)
    seen = set()
    for column in list_columns(report):
        for row in report.rows:
            value = column.get(row)
            assert value is None or isinstance(value, types[column.kind]), (column.key, value)
            if value is not None and value != "":
                seen.add(column.key)
            if column.kind == "share" and value is not None:
                assert 0 <= value <= 1
    assert seen == {column.key for column in list_columns(report)}


@pytest.mark.parametrize(
    ("mismatched", "total", "text"),
    [
        (0, 640, "0 / 640"),
        (12, 640, "12 / 640 (1.88%)"),
        (640, 640, "640 / 640 (100%)"),
        (1, 802816, "1 / 802816 (<0.01%)"),
        (0, 0, "0 / 0"),
        (None, 640, ""),
    ],
)
def test_mismatched_elements(mismatched: int | None, total: int, text: str) -> None:
    base = make_stats(shape=(total,), elements=total)
    row = make_row(comparison=make_comparison(base=base, mismatched=mismatched))
    assert cell("mismatched_elements", row) == text
    share = cell("mismatched_share", row)
    assert share == (None if mismatched is None else mismatched / total if total else 0.0)


def test_min_and_max_show_target_and_base_as_paddle_does() -> None:
    base, target = make_stats(min=-1.157182, max=1.551287), make_stats(min=-1.157191, max=math.inf)
    row = make_row(comparison=make_comparison(base=base, target=target))
    assert cell("min_val", row) == "-1.15719 (-1.15718)"
    assert cell("max_val", row) == "inf (1.55129)"
    assert cell("base_min", row) == -1.157182
    assert cell("target_min", row) == -1.157191


def test_a_side_by_itself() -> None:
    fused = make_row(error=None)
    assert cell("min_val", fused) == "(-2.5)"
    assert cell("target_min", fused) is None
    assert cell("shape", fused) == "[8, 64, 56, 56]"
    assert cell("max_abs", fused) is None
    only_target = make_row(error=None, status=Status.UNMATCHED, base=None, target=make_stats())
    assert cell("min_val", only_target) == "-2.5"
    assert cell("total", only_target) == 1605632
    unseen = make_row(error=None, base=None)
    assert cell("min_val", unseen) == ""
    assert cell("total", unseen) is None


def test_a_backends_own_columns_come_last_in_the_order_of_their_appearance() -> None:
    rows = (make_row(0, extra={"Tactic": "a"}), make_row(1), make_row(2, extra={"Node": "n", "Tactic": "b"}))
    layout = list_columns(dataclasses.replace(make_report(0), rows=rows))
    assert [column.key for column in layout[len(COLUMNS) :]] == ["extra.Tactic", "extra.Node"]
    assert [layout[-2].get(row) for row in rows] == ["a", "", "b"]


def test_the_judged_statistic_has_its_columns() -> None:
    report = make_report(3)
    assert list_columns(report) == COLUMNS
    judged = Tolerance(check_error_stat="quantile", quantile=0.95)
    report = dataclasses.replace(report, spec=dataclasses.replace(report.spec, tolerance=judged))
    titles = [column.title for column in list_columns(report)[len(COLUMNS) :]]
    assert titles == ["Judged Abs (0.95 quantile)", "Judged Rel (0.95 quantile)"]
