from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import math
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from approval import holds_approved
from report_factory import make_comparison, make_report, make_row

from precision_debug.reasons import Reason
from precision_debug.reasons.ways import explain_way
from precision_debug.records import Status
from precision_debug.report import Report, write
from precision_debug.report.formats.md import ROWS_SHOWN
from precision_debug.report.layout import TWO_LANGUAGES, list_columns
from precision_debug.report.words import explain_reason
from precision_debug.safety.untrusted import make_visible

NASTY = [
    "</script><script>alert(1)</script>",
    "<b>&amp;",
    "a|b`c``d",
    "卷积\n层",
    "\u2028",
    "\ud800",
    "'\"",
    "{{data}}",
    "__x__*y*",
]


class Balanced(html.parser.HTMLParser):
    """Fails on a tag that is closed without having been opened, or the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(report: Report, folder: Path) -> str:
    return write(report, folder / "r.html").read_text(encoding="utf-8")


def data_of(page: str) -> Any:
    [text] = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    data = json.loads(text)
    for column, texts in data["texts"].items():  # as the page's script does
        for row in data["rows"]:
            row[int(column)] = None if row[int(column)] is None else texts[row[int(column)]]
    return data


@pytest.mark.parametrize("rows", [0, 20, 300])
def test_the_page_is_whole_and_needs_nothing_from_elsewhere(tmp_path: Path, rows: int) -> None:
    page = page_of(make_report(rows, extra=True), tmp_path)
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    for tag, attributes in parser.seen:
        assert "src" not in attributes
        assert tag not in ("link", "iframe", "img")
        assert (attributes.get("href") or "#").startswith("#")
    assert "{{" not in page.replace("{{data}}", "")
    assert "sourceMappingURL" not in page
    style = page[page.index("<style>") : page.index("</style>")]
    assert "@import" not in style
    assert "url(" not in style


def test_the_policy_allows_this_script_and_nothing_else(tmp_path: Path) -> None:
    page = page_of(make_report(5), tmp_path)
    script = page[page.rindex("<script>") + 8 : page.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")


def test_the_libraries_are_what_npm_has() -> None:
    """Byte for byte, with their licences beside them: anyone can check them against the registry."""
    vendor = files("precision_debug.report.formats.html").joinpath("vendor")
    told = vendor.joinpath("README.md").read_text(encoding="utf-8")
    names = [path.name for path in vendor.iterdir() if path.name.endswith((".js", ".css"))]
    assert len(names) == 5
    for name in names:
        assert hashlib.sha256(vendor.joinpath(name).read_bytes()).hexdigest() in told, name
        licence = vendor.joinpath(f"{name.partition('.')[0]}.LICENSE").read_text(encoding="utf-8")
        assert holds_approved(licence)


def test_what_says_nothing_is_folded_with_its_count(tmp_path: Path) -> None:
    alone: dict[str, Any] = {"error": None, "status": Status.UNMATCHED}
    rows = (
        make_row(0, 1e-4),
        make_row(1, None),
        make_row(2, **alone, op_type="DequantizeLinear", reason=Reason("", "onnxruntime.constant")),
        make_row(3, **alone, op_type="Transpose", reason=Reason("", "onnxruntime.same_as")),
        make_row(4, **alone, op_type="QuantizeLinear", reason="the baseline has no tensor of this name"),
        make_row(5, None, status=Status.NOT_COMPARED, reason="the run ended before this tensor"),
        make_row(6, None, is_output=True, op_type="QuantizeLinear"),
        make_row(7, 0.5, op_type="Transpose", error_growth=1.0),
    )
    data = data_of(page_of(dataclasses.replace(make_report(0), rows=rows), tmp_path))
    kinds = [text[0] for _, text in data["folds"]]
    assert [kinds[n - 1] if n else "" for n in data["noise"]] == [
        "", "fused away", "constants and the like", "copies", "quantiser helpers", "", "", "",
    ]  # fmt: skip
    assert [count for count, _ in data["folds"]] == [1, 1, 1, 1]


def test_layers_come_from_names_and_are_not_too_many(tmp_path: Path) -> None:
    report = make_report(300)
    layers = data_of(page_of(report, tmp_path))["layers"]
    assert {layer.split("/")[0] for layer in layers} == {"layer1", "layer2", "layer3", "layer4", "fc"}
    assert 4 < len(set(layers)) <= 300 // 5


@pytest.mark.parametrize("rows", [300, 2400])
def test_the_page_holds_every_row(tmp_path: Path, rows: int) -> None:
    report = make_report(rows, extra=True)
    data = data_of(page_of(report, tmp_path))
    keys = {data["columns"][int(column)]["key"] for column in data["texts"]}
    assert {"op_type", "shape", "status"} <= keys if rows == 2400 else not keys
    assert "name" not in keys
    layout = list_columns(report)
    assert [column["key"] for column in data["columns"]] == [column.key for column in layout]
    assert all(column["help"][1] for column in data["columns"])
    assert len(data["rows"]) == rows
    for row, values in zip(report.rows, data["rows"], strict=True):
        for column, shown in zip(layout, values, strict=True):
            value = column.get(row)
            if isinstance(shown, list):
                assert column.key in ("reason", *TWO_LANGUAGES)
                assert shown == list(explain_reason(value) if column.key == "reason" else explain_way(value))
            elif value is None or column.kind in ("int", "flag", "text"):
                assert shown == value
            elif column.kind == "index":
                assert shown == str(list(value))
            elif math.isfinite(value):
                assert shown == pytest.approx(value, rel=1e-6)
            else:
                assert shown == str(value)
    assert sum(status["count"] for status in data["statuses"]) == rows


def test_names_cannot_break_out(tmp_path: Path) -> None:
    rows = tuple(make_row(n, 0.1, name=name, reason=name, is_output=True) for n, name in enumerate(NASTY))
    report = dataclasses.replace(make_report(0), rows=rows, notes=tuple(NASTY))
    page = page_of(report, tmp_path)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert page.count("<script") == 2
    shown = [row[1] for row in data_of(page)["rows"]]
    assert shown == [make_visible(name, keep="\n\t") for name in NASTY]


def test_a_partial_report_has_its_banner(tmp_path: Path) -> None:
    page = page_of(make_report(5, failure="killed <by> a signal"), tmp_path)
    assert 'class="verdict warn"' in page
    assert holds_approved(page)
    assert "killed &lt;by&gt; a signal" in page


@pytest.mark.skipif(
    shutil.which("node") is None, reason="node is not installed, so the script's syntax cannot be checked"
)
def test_the_script_is_valid(tmp_path: Path) -> None:
    page = page_of(make_report(1), tmp_path)
    script = tmp_path / "page.js"
    script.write_text(page[page.rindex("<script>") + 8 : page.rindex("</script>")])
    subprocess.run(["node", "--check", str(script)], check=True)


def test_markdown_lists_what_failed(tmp_path: Path) -> None:
    report = make_report(60)
    text = write(report, tmp_path / "r.md").read_text(encoding="utf-8")
    failed = [row for row in report.rows if row.status is Status.FAIL]
    assert text.startswith("# ❌ Out of tolerance / 超出容差\n")
    table = text[text.index("## Out of tolerance") :].splitlines()
    lines = [line for line in table if line.startswith("| ")][1:]
    assert [line.split(" | ")[2] for line in lines] == [f"`{row.name}`" for row in failed]
    assert report.spec.command in text


def test_markdown_says_how_many_more_failed(tmp_path: Path) -> None:
    report = make_report(1500)
    failed = report.counts[Status.FAIL]
    assert failed > ROWS_SHOWN
    text = write(report, tmp_path / "r.md").read_text(encoding="utf-8")
    assert f"… and {failed - ROWS_SHOWN:,} more" in text
    assert len(text) < 60_000, "GitHub takes 65,536 characters"


def test_markdown_tables_stay_tables(tmp_path: Path) -> None:
    rows = tuple(make_row(n, 0.1, name=name, op_type=name, is_output=True) for n, name in enumerate(NASTY))
    report = dataclasses.replace(make_report(0), rows=rows)
    text = write(report, tmp_path / "r.md").read_text(encoding="utf-8")
    table = text[text.index("## Out of tolerance") :].splitlines()
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table if line.startswith("|")}
    assert widths == {10}
    assert "`</script>" in text
    assert "\\_\\_x\\_\\_\\*y\\*" in text


def test_markdown_of_numbers_that_are_not_finite(tmp_path: Path) -> None:
    numbers = make_comparison(0.1, max_abs=math.inf, sqnr_db=math.nan)
    report = dataclasses.replace(make_report(0), rows=(make_row(0, 0.1, comparison=numbers),))
    text = write(report, tmp_path / "r.md").read_text(encoding="utf-8")
    assert "| inf |" in text
    assert "| nan |" in text


def test_markdown_shows_names_as_code_and_nothing_else_of_a_sentence(tmp_path: Path) -> None:
    rows = (make_row(0, 0.5, name="a_b*c|d", is_output=True),)
    page = write(dataclasses.replace(make_report(0), rows=rows), tmp_path / "r.md").read_text(encoding="utf-8")
    first = next(line for line in page.splitlines() if line.startswith("**"))
    assert "`a_b*c\\|d`" in first
    assert "\\`" not in first


def test_nothing_to_click_is_printed() -> None:
    """Links to rows and buttons that copy stood on paper."""
    sheet = files("precision_debug.report.formats.html").joinpath("page.css").read_text(encoding="utf-8")
    hidden = sheet.partition("@media print {")[2].partition("display: none")[0]
    assert {".copy", ".verdict .button", "nav"} <= {one.strip() for one in hidden.replace("{", ",").split(",")}
