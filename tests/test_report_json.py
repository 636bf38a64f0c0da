from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import raises_approved
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug.errors import OutputError
from precision_debug.reasons import say
from precision_debug.records import Comparison, ModelFiles, Row, Side, Status, TensorStats, Tolerance
from precision_debug.report import Report, write
from precision_debug.report.formats.json import from_dict, load, to_dict
from precision_debug.report.words import is_whole, reason_text
from precision_debug.search.fix import ToKeep

NUMBERS = st.none() | st.floats() | st.integers(-(2**70), 2**70).map(float)
INDICES = st.none() | st.lists(st.integers(0, 2**63), max_size=5).map(tuple)
STATS = st.builds(
    TensorStats, dtype=st.sampled_from(["float32", "uint64", "str"]),
    shape=st.lists(st.integers(0, 99), max_size=4).map(tuple),
    elements=st.integers(0, 2**64), min=NUMBERS, max=NUMBERS, mean=NUMBERS, rms=NUMBERS, nan=st.integers(0, 9),
)  # fmt: skip
COMPARISONS = st.builds(
    Comparison, base=STATS, target=STATS, shapes_match=st.booleans(), mismatched=st.none() | st.integers(0, 2**64),
    max_abs=NUMBERS, max_rel=NUMBERS, max_abs_index=INDICES, first_mismatch=INDICES, sqnr_db=NUMBERS,
    required_atol=NUMBERS, quantiles_exact=st.booleans(), identical=st.booleans(),
)  # fmt: skip
NAMES = st.text(max_size=20)
ROWS = st.builds(
    Row, index=st.integers(0, 10**6), op_type=NAMES, name=NAMES, status=st.sampled_from(Status), reason=NAMES,
    comparison=st.none() | COMPARISONS, base=st.none() | STATS, error_growth=NUMBERS,
    inputs=st.lists(NAMES, max_size=3).map(tuple), extra=st.dictionaries(NAMES.filter(bool), NAMES, max_size=3),
)  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Equality in which NaN equals NaN, and 1 does not equal 1.0 nor True."""
    return repr(one) == repr(other)


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_is_written_can_be_read_back(tmp_path: Path) -> None:
    report = make_report(300, extra=True)
    assert load(write(report, tmp_path / "r.json")) == report


def test_every_field_survives(tmp_path: Path) -> None:
    """A report in which no field has its default."""
    report = make_report(40)
    spec = dataclasses.replace(
        report.spec, baseline="ort_fp64", baseline_model=ModelFiles(model_dir="d", params_file="p"), inputs="x.npz",
        seed=7, val_range={"": (0.0, math.inf)}, marks=("a", "b*"), marks_between=("first", "last"),
        marks_from_inspector="*.json", fused_only=True,
        renames={"t": "b"}, labels="l.npy", record="rec",
        options={"workspace": 2**40, "list": [1, "x", None, {"a": 1.5}]},
        tolerance=Tolerance(atol=0.1, rule="either", check_error_stat="max", equal_nan=True),
    )  # fmt: skip
    report = dataclasses.replace(report, spec=spec, notes=("中文",), failure="killed", scores={"x": math.nan, "y": 1.0})
    back = load(write(report, tmp_path / "r.json"))
    assert same(back, report)
    for name in ("spec", "baseline", "target"):
        assert dataclasses.asdict(getattr(back, name)) == dataclasses.asdict(getattr(report, name))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROWS, max_size=4).map(tuple))
def test_any_rows_survive(tmp_path: Path, rows: tuple[Row, ...]) -> None:
    report = dataclasses.replace(make_report(0), rows=rows)
    path = write(report, tmp_path / "r.json")
    strict(path.read_text(encoding="utf-8"))
    assert same(load(path), report)
    assert same(from_dict(to_dict(report)), report)


def test_numpy_scalars_are_written_as_numbers(tmp_path: Path) -> None:
    numbers = make_comparison(0.1, max_abs=np.float32(0.5), mean_abs=np.float64(0.25), mismatched=np.int64(3))
    report = dataclasses.replace(make_report(0), rows=(make_row(comparison=numbers),))
    [row] = load(write(report, tmp_path / "r.json")).rows
    assert row.comparison is not None
    assert (row.comparison.max_abs, row.comparison.mean_abs, row.comparison.mismatched) == (0.5, 0.25, 3)


def test_for_people_and_scripts(tmp_path: Path) -> None:
    report = make_report(20, failure="killed")
    text = write(report, tmp_path / "r.json").read_text(encoding="utf-8")
    plain = strict(text)
    assert plain == to_dict(report)
    assert list(plain)[:3] == ["format", "format_version", "summary"]
    assert plain["summary"]["verdict"] == "partial"
    assert plain["summary"]["exit_status"] == 3
    assert plain["summary"]["counts"]["fused away"] == report.counts[Status.FUSED_AWAY]
    lines = [line for line in text.splitlines() if line.startswith("  {")]
    assert [strict(line.rstrip(","))["name"] for line in lines] == [row.name for row in report.rows]


def test_an_option_without_json_form(tmp_path: Path) -> None:
    report = make_report(1)
    report = dataclasses.replace(report, spec=dataclasses.replace(report.spec, options={"device": object()}))
    with pytest.raises(OutputError, match="object"):
        write(report, tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a whole JSON file"),
        ("{", "not a whole JSON file"),
        ("[" * 100_000, "not a whole JSON file"),
        ("[]", "not a precision_debug report"),
        ("null", "not a precision_debug report"),
        ('{"Layers": []}', "not a precision_debug report"),
        ('{"format": "precision_debug report"}', "format version None"),
        (
            '{"format": "precision_debug report", "format_version": 99}',
            "format version 99, this precision_debug reads 1",
        ),
        ('{"format": "precision_debug report", "format_version": 1}', "damaged"),
        ('{"format": "precision_debug report", "format_version": 1, "seconds": NaN}', "NaN is not JSON"),
    ],
)
def test_foreign_files(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(OutputError) as caught:
        load(path)
    assert what in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(b"\xff\xfe\x00PK")
    with pytest.raises(OutputError, match="not UTF-8 text"):
        load(tmp_path / "r.json")
    with pytest.raises(OutputError, match="cannot be read"):
        load(tmp_path / "absent.json")
    with pytest.raises(OutputError, match="cannot be read"):
        load(tmp_path)


def test_damage_anywhere_is_one_clear_error(tmp_path: Path) -> None:
    whole = to_dict(make_report(2))
    damages: list[tuple[Any, ...]] = [
        ("rows", 0, "status"), ("rows", 0, "comparison", "base"), ("spec",), ("spec", "model"),
        ("baseline",), ("rows",),
    ]  # fmt: skip
    for path in damages:
        for wrong in ({"odd": 1}, 3.5, None, "text", [1]):
            if path == ("spec", "model") and isinstance(wrong, dict):
                continue  # a field that this version does not know, and none that must be there
            plain = json.loads(json.dumps(whole))
            place = plain
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = wrong
            with pytest.raises(OutputError, match="damaged"):
                from_dict(plain)


@pytest.mark.parametrize("at", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_short(tmp_path: Path, at: float) -> None:
    path = write(make_report(20), tmp_path / "r.json")
    text = path.read_text()
    path.write_text(text[: int(len(text) * at)])
    with raises_approved(OutputError):
        load(path)


def test_fields_of_a_newer_version_are_left_out() -> None:
    report = make_report(1)
    plain = to_dict(report)
    plain["rows"][0]["new_number"] = 1
    assert from_dict(plain) == report


def test_of_an_older_file_what_came_of_a_fix_is_read_too() -> None:
    """It had what was tried in a record inside of what is to be kept."""
    kept = ToKeep(option="--option a=b", keys=("a",), of=3, state="mended", before=0.5, after=0.1, runs=2)
    report = dataclasses.replace(make_report(1), to_keep=dataclasses.replace(kept, beside=(kept,)))
    plain = json.loads(json.dumps(to_dict(report)))
    old = plain["to_keep"]
    for one in (old, *old["beside"]):
        one["tried"] = {name: one.pop(name) for name in ("state", "before", "after", "runs")}
    assert from_dict(plain).to_keep == report.to_keep
    assert (kept.tried, ToKeep(option="--option a=b").tried) == (kept, None)  # as programs read it


def test_reasons_keep_their_codes_and_older_files_their_sentences() -> None:
    inner = say("of_target", why=say("fused_into", operator="Conv", node="c\n{x}"))
    numbers = say("hidden", atol=0.1, rms=math.inf, error=0.25)
    rows = (make_row(0, None, reason=inner), make_row(1, reason=numbers), make_row(2, reason="by hand"))
    report = dataclasses.replace(make_report(1), rows=rows, notes=(say("several", names=["a", "b"]), "by hand"))
    plain = json.loads(json.dumps(to_dict(report)))
    assert [row["reason"] for row in plain["rows"]] == [str(row.reason) for row in rows]
    assert plain["rows"][0]["codes"]["reason"]["code"] == "of_target"
    assert "codes" not in plain["rows"][2]
    assert plain["codes"]["notes"] == [{"code": "several", "args": {"names": ["a", "b"]}}, None]
    back = from_dict(plain)
    assert same(back, report)
    assert [row.reason.code for row in back.rows] == ["of_target", "hidden", ""]
    assert back.rows[1].reason.args == numbers.args
    assert reason_text(back.rows[0].reason, "zh") == "目标：已融合进 Conv 节点 c\n{x}"
    assert reason_text(back.notes[0], "zh") == "有同样匹配的多个候选：a、b"
    for row in plain["rows"]:
        row.pop("codes", None)
    old = from_dict(plain)
    assert [row.reason for row in old.rows] == [row.reason for row in rows]
    assert not any(row.reason.code for row in old.rows)
    assert is_whole("target: holds the same values as x")
    assert reason_text("target: holds the same values as x", "zh") == "目标：与 x 数值相同"


def test_sides_keep_their_notes() -> None:
    side = Side(mode="m", backend="b", model="x", notes=("one", "two"), versions={"a": "1"}, seconds=math.inf)
    report = dataclasses.replace(make_report(1), target=side)
    assert Report.load is not None
    assert from_dict(to_dict(report)).target == side


def test_stats_of_uint64_tensors_survive() -> None:
    stats = make_stats(dtype="uint64", max=float(2**64 - 1), elements=2**64 - 1)
    report = dataclasses.replace(make_report(0), rows=(make_row(error=None, base=stats),))
    assert from_dict(json.loads(json.dumps(to_dict(report)))).rows[0].base == stats
