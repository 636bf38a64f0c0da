from __future__ import annotations

import dataclasses
import html.parser
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from report_factory import make_comparison, make_report, make_row

from precision_debug.records import Status
from precision_debug.report import Report, write
from precision_debug.report.layout import columns
from precision_debug.report.markdown import ROWS_SHOWN
from precision_debug.report.reasons import explained
from precision_debug.safety.visible import visible

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
    return json.loads(text)


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
    assert "@import" not in page
    assert "url(" not in page


def test_the_page_holds_every_row(tmp_path: Path) -> None:
    report = make_report(300, extra=True)
    data = data_of(page_of(report, tmp_path))
    layout = columns(report)
    assert [column["key"] for column in data["columns"]] == [column.key for column in layout]
    assert all(column["help"][1] for column in data["columns"])
    assert len(data["rows"]) == 300
    for row, values in zip(report.rows, data["rows"], strict=True):
        for column, shown in zip(layout, values, strict=True):
            value = column.get(row)
            if isinstance(shown, list):
                assert column.key == "reason"
                assert shown == list(explained(value))
            elif value is None or column.kind in ("int", "flag", "text"):
                assert shown == value
            elif column.kind == "index":
                assert shown == str(list(value))
            elif math.isfinite(value):
                assert shown == pytest.approx(value, rel=1e-6)
            else:
                assert shown == str(value)
    assert sum(status["count"] for status in data["statuses"]) == 300


def test_names_cannot_break_out(tmp_path: Path) -> None:
    rows = tuple(make_row(n, 0.1, name=name, reason=name, is_output=True) for n, name in enumerate(NASTY))
    report = dataclasses.replace(make_report(0), rows=rows, notes=tuple(NASTY))
    page = page_of(report, tmp_path)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert page.count("<script") == 2
    shown = [row[1] for row in data_of(page)["rows"]]
    assert shown == [visible(name, keep="\n\t") for name in NASTY]


def test_the_curve_is_valid_and_marks_what_failed(tmp_path: Path) -> None:
    report = make_report(300)
    page = page_of(report, tmp_path)
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    marks = [int(mark.get("data-row") or -1) for mark in svg.iter() if mark.get("data-row")]
    assert marks == [row.index for row in report.rows if row.status is Status.FAIL]
    first = report.first_mismatch
    assert first is not None
    assert any((text.text or "").endswith(first.name[-40:]) for text in svg.iter("text"))


def test_a_partial_report_has_its_banner(tmp_path: Path) -> None:
    page = page_of(make_report(5, failure="killed <by> a signal"), tmp_path)
    assert 'class="verdict warn"' in page
    assert "Partial: the run ended early" in page
    assert "killed &lt;by&gt; a signal" in page


@pytest.mark.skipif(
    shutil.which("node") is None, reason="node is not installed, so the script's syntax cannot be checked"
)
def test_the_script_is_valid(tmp_path: Path) -> None:
    page = page_of(make_report(1), tmp_path)
    script = tmp_path / "page.js"
    script.write_text(page[page.rindex("<script>") + 8 : page.rindex("</script>")])
    subprocess.run(["node", "--check", str(script)], check=True)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed, so the page cannot be opened")
def test_a_browser_shows_sorts_and_filters(tmp_path: Path) -> None:
    report = make_report(400)
    page = page_of(report, tmp_path)
    probe = """<script>
      const all = (selector) => [...document.querySelectorAll(selector)];
      const names = () => all('#grid tbody tr:not(.space) td:nth-child(2)').map((cell) => cell.textContent);
      const found = { all: document.getElementById('shown').textContent, first: names()[0] };
      const search = document.getElementById('search');
      search.value = 'LOGITS'; search.dispatchEvent(new Event('input'));
      found.searched = names();
      document.getElementById('reset').click();
      all('#grid th').find((cell) => cell.textContent.startsWith('Max Atol')).click();
      found.worst = names()[0];
      document.getElementById('reset').click();
      const chip = (text) => all('#chips button').find((button) => button.textContent.startsWith(text));
      for (const text of ['pass', 'fail', 'inconclusive', 'fused away', 'not compared']) chip(text).click();
      found.unmatched = names();
      document.getElementById('reset').click();
      document.querySelector('#first a').click();
      found.linked = document.querySelector('#grid tr.flash td:nth-child(2)').textContent;
      document.querySelector('#grid tr.flash').click();
      found.drawer = document.querySelector('#drawer h2').textContent;
      document.getElementById('reset').click();
      search.value = '没有同名'; search.dispatchEvent(new Event('input'));
      const place = all('#grid th').findIndex((cell) => cell.textContent === 'Reason') + 1;
      const cells = () => all(`#grid tbody tr:not(.space) td:nth-child(${place})`);
      const reasons = () => [...new Set(cells().map((cell) => cell.textContent))];
      found.reasons = reasons();
      document.getElementById('language').click();
      found.chinese = document.querySelector('#grid th').textContent;
      found.reasons.push(...reasons());
      document.body.dataset.found = JSON.stringify(found);
    </script></body>"""
    (tmp_path / "probe.html").write_text(page.replace("</body>", probe), encoding="utf-8")
    shown = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--lang=en-US", "--virtual-time-budget=2000",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{tmp_path / 'probe.html'}"],
        check=True, capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip
    [text] = re.findall(r'<body data-found="(.*?)"', shown)
    found = json.loads(html.unescape(text))
    first = report.first_mismatch
    assert first is not None
    assert found["all"] == "400"
    assert found["first"] == report.rows[0].name
    assert found["searched"] == ["logits"]
    errors = {row.name: row.comparison.max_abs or 0.0 for row in report.rows if row.comparison is not None}
    assert found["worst"] == max(errors, key=errors.__getitem__)
    assert found["unmatched"] == [row.name for row in report.rows if row.status is Status.UNMATCHED]
    assert found["linked"] == found["drawer"] == first.name
    assert found["chinese"] == "算子类型"
    assert found["reasons"] == ["the baseline has no tensor of this name", "基线中没有同名张量"]


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
