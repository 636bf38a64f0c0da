"""A browser opens the page, and clicks and types: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from approval import holds_approved
from report_factory import make_report, make_row

from precision_debug.numbers.told import Token, TokenEffect, TokenEffects, Tokens
from precision_debug.records import Culprit, Explanation, Status
from precision_debug.report import Report
from precision_debug.report.layout import list_columns
from precision_debug.report.values import is_newly_broken
from precision_debug.search.fix import ToKeep

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, so no page can be opened")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed, so no page can be opened")

DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


OPTION = "--option 'node_block_list=[\"a\",\"b c\"]'"


def explained(rows: int = 300) -> Report:
    """A report whose culprit is known."""
    report = make_report(rows)
    row = next(row for row in report.rows if row.status is Status.FAIL)
    culprit = Culprit(
        name=row.name, node=row.node, op_types=(row.op_type,), cause="overflow",
        evidence={"largest": 1e6, "limit": 65504.0, "count": 12}, confidence="isolated", share=0.9, at="logits",
        keep=(row.name,),
    )  # fmt: skip
    made = Explanation(
        state="culprits", method="isolated", culprits=(culprit,), at="logits", budget={row.name: 0.9, "logits": 0.05},
        unit=2.0**-8,
    )  # fmt: skip
    kept = ToKeep(option=OPTION, keys=("a", "b c"), of=9, state="mended", before=0.5, after=1e-3, allowed=1e-2)
    return dataclasses.replace(report, explanation=made, to_keep=kept)


@dataclasses.dataclass
class Page:
    """An open page, and everything that it asked of a network or said to the console."""

    page: Any
    asked: list[str]
    said: list[str]

    def names(self) -> list[str]:
        """Of the rows that the table draws, in order."""
        cells = self.page.locator('.tabulator-row .tabulator-cell[tabulator-field="c1"]')
        return [str(text) for text in cells.all_text_contents()]

    def shown(self) -> int:
        """How many rows the page says that it shows."""
        return int(self.page.locator("#shown").inner_text().split()[0].replace(",", ""))


Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Report], Path]:
    folder = tmp_path_factory.mktemp("pages")
    kept: dict[int, Path] = {}

    def write(report: Report) -> Path:
        if id(report) not in kept:
            kept[id(report)] = report.save(folder / f"{len(kept)}.html")
        return kept[id(report)]

    return write


@pytest.fixture(scope="module")
def report() -> Report:
    return explained()


@pytest.fixture
def open_page(browser: Any, written: Callable[[Report], Path]) -> Iterator[Open]:
    opened: list[tuple[Any, Page]] = []

    def start(report: Report, size: dict[str, int] = DESK, address: str = "", **context: Any) -> Page:
        made = browser.new_context(viewport=size, **{"locale": "en-US", **context})
        page = made.new_page()
        found = Page(page, [], [])
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("console", lambda message: found.said.append(message.text))
        page.on("pageerror", lambda error: found.said.append(str(error)))
        page.goto(f"file://{written(report)}{address}")
        page.wait_for_selector("html[data-ready=yes]", timeout=30_000)
        opened.append((made, found))
        return found

    yield start
    for context, found in opened:
        context.close()
        assert found.said == [], "the console stays empty"
        assert all(url.startswith("file://") for url in found.asked)
        assert len(found.asked) == 1, "the page asks for nothing but itself"


def test_the_sentence_is_the_first_thing_that_is_read(open_page: Open, report: Report) -> None:
    for size in (DESK, PHONE):
        found = open_page(report, size)
        first = found.page.locator("h1").inner_text()
        assert "lost the precision: overflow" in first
        assert "keeping 2 of 9" in found.page.locator("main").inner_text()[: len(first) + 300]
        box = found.page.locator("h1").bounding_box()
        assert box["y"] + box["height"] < 400, "without scrolling, on a phone too"
        assert found.page.evaluate("document.documentElement.scrollWidth") <= size["width"], "nothing sticks out"


def test_the_option_to_paste_is_copied_by_its_button(open_page: Open, report: Report) -> None:
    for size, context in ((DESK, {"permissions": ["clipboard-read", "clipboard-write"]}), (PHONE, {})):
        found = open_page(report, size, **context)
        button = found.page.locator("#culprits button.copy")
        assert button.inner_text() == "Copy"
        button.click()
        found.page.wait_for_function("document.querySelector('#culprits button.copy').innerText === 'Copied'")
        assert found.page.evaluate("getSelection().toString()") == OPTION
        if context:
            assert found.page.evaluate("navigator.clipboard.readText()") == OPTION
        assert found.page.evaluate("document.documentElement.scrollWidth") <= size["width"], "nothing sticks out"


def test_columns_are_sorted_by_mouse_and_by_keyboard(open_page: Open, report: Report) -> None:
    found = open_page(report)
    errors = {
        row.name: math.inf if is_newly_broken(row) else row.relative_l2 or 0.0
        for row in report.rows if row.comparison is not None
    }  # fmt: skip
    worst = max(errors, key=errors.__getitem__)
    heading = found.page.locator(".heading", has_text="Rel L2").first
    heading.click()
    assert found.names()[0] == worst
    heading.focus()
    found.page.keyboard.press("Enter")
    assert found.names()[0] == min(errors, key=errors.__getitem__)
    found.page.keyboard.press("Enter")
    assert found.names()[0] == report.rows[0].name, "the third time, the order of execution is back"


def test_rows_are_filtered_by_text_number_status_and_layer(open_page: Open, report: Report) -> None:
    found = open_page(report)
    page = found.page
    folded = found.shown()
    page.locator("#fold input").uncheck()
    assert found.shown() == len(report.rows) > folded
    page.locator("#search").fill("LOGITS")
    assert found.names() == ["logits"]
    page.locator("#search").fill("没有同名")
    unmatched = [row.name for row in report.rows if row.status is Status.UNMATCHED]
    assert found.names() == unmatched, "reasons are found in both languages"
    page.locator("#reset").click()
    assert found.shown() == folded
    page.locator('input[aria-label="filter: Rel L2"]').press_sequentially(">1e-2")
    playwright.expect(page.locator("#shown")).not_to_contain_text(f"{folded} of")
    assert found.shown() == sum(is_newly_broken(row) or (row.relative_l2 or 0.0) > 1e-2 for row in report.rows)
    page.locator("#reset").click()
    for status in ("pass", "inconclusive", "not compared", "unmatched", "fused away"):
        page.locator(f'#chips button[data-status="{status}"]').click()
    assert found.shown() == report.counts[Status.FAIL]
    page.locator("#reset").click()
    page.locator("#group").check()
    groups = page.locator(".tabulator-group").all_inner_texts()
    assert any("layer1/" in text for text in groups), groups


def test_the_keyboard_alone_reaches_a_row_and_comes_back(open_page: Open, report: Report) -> None:
    found = open_page(report)
    page = found.page
    page.locator("#grid").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    drawer = page.locator("#drawer")
    assert drawer.locator("h2").inner_text() == "logits"
    drawer.locator("[aria-label=Previous]").press("Enter")
    before = drawer.locator("h2").inner_text()
    assert before != "logits"
    page.keyboard.press("ArrowRight")
    assert drawer.locator("h2").inner_text() == "logits"
    page.keyboard.press("Escape")
    assert drawer.is_hidden()
    assert page.evaluate("document.activeElement.id") == "grid"
    page.locator("#plot").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert drawer.locator("h2").inner_text() == "logits", "so does the curve"


def test_rows_are_told_to_readers_of_screens_whatever_is_shown(open_page: Open, report: Report) -> None:
    """A grid owns rows and groups of rows alone, what has the focus may name a row, and names one that is there; what
    scrolls holds something to focus. axe's critical rules, without axe (tests/benchmarks/bench_axe.py asks it)."""
    page = open_page(report).page
    page.locator(".tabulator-row").nth(2).click()
    page.keyboard.press("Escape")
    wrong = """() => {
      const grid = document.getElementById("grid"), told = grid.getAttribute("aria-activedescendant");
      const plain = (one) => /^(presentation)?$/.test(one.getAttribute("role") ?? "") && !one.hasAttribute("tabindex");
      const below = (one) => [...one.children].flatMap((child) => plain(child) ? below(child) : [child]);
      const found = [];
      if (grid.tabIndex !== 0) found.push("the grid has no focus");
      if (told && !document.getElementById(told)) found.push(`${told} is not there`);
      for (const one of [grid, ...grid.querySelectorAll("[role=rowgroup]")])
        for (const child of below(one))
          if (!["row", "rowgroup"].includes(child.getAttribute("role"))) found.push(child.outerHTML.slice(0, 200));
      for (const one of document.querySelectorAll("[aria-activedescendant]"))
        if (one.getAttribute("role") !== "grid") found.push(one.className);
      const rows = [...grid.querySelectorAll(".tabulator-row")];
      if (rows.length && !rows.some((row) => row.tabIndex === 0)) found.push("no row can be focused");
      return found;
    }"""
    assert page.evaluate(wrong) == []
    page.locator("#group").check()
    page.wait_for_timeout(100)
    assert page.evaluate(wrong) == []
    page.locator("#group").uncheck()
    page.locator("#search").fill("no such name")
    page.wait_for_timeout(100)
    assert page.evaluate(wrong) == []


def test_details_link_to_inputs_and_readers_and_have_an_address(open_page: Open, report: Report) -> None:
    place = next(place for place, row in enumerate(report.rows) if row.status is Status.FAIL)
    row = report.rows[place]
    found = open_page(report, address=f"#row={place}")
    drawer = found.page.locator("#drawer")
    assert drawer.locator("h2").inner_text() == row.name
    assert drawer.locator("svg.graph a.who").count() == 1, "the culprit in the graph around it"
    drawer.locator(".links a", has_text=row.inputs[0]).first.click()
    assert drawer.locator("h2").inner_text() == row.inputs[0]
    assert found.page.evaluate("location.hash") == f"#row={place - 1}"
    drawer.locator(".links a", has_text=row.name).first.click()
    assert drawer.locator("h2").inner_text() == row.name
    found.page.locator("#drawer [aria-label=Close]").click()
    found.page.locator("#answer a.button").first.click()
    assert drawer.locator("h2").inner_text() == row.name, "the sentence leads to its row"


def test_everything_speaks_chinese(open_page: Open, report: Report) -> None:
    found = open_page(report, locale="zh-CN")
    page = found.page
    assert page.evaluate("document.documentElement.lang") == "zh"
    page.locator("#fold input").uncheck()
    seen = page.evaluate("""() => {
      const own = [...document.querySelectorAll('h1, h2, .heading, .chip, label, button, summary, th, #hint, .key')];
      return own.filter((one) => one.offsetParent).map((one) => one.innerText.trim())
        .filter((text) => text && !/[\\u4e00-\\u9fff]/.test(text));
    }""")
    assert [text for text in seen if text not in {"English", "◐", "SHA-256（前半）"}] == []
    page.locator("#language").click()
    assert page.locator("#chips button").first.inner_text().startswith("pass")


def test_a_phone_shows_numbers(open_page: Open, report: Report) -> None:
    found = open_page(report, PHONE)
    page = found.page
    page.locator("#table").scroll_into_view_if_needed()
    page.locator(".tabulator-row .tabulator-cell.bar").first.wait_for()
    right = page.evaluate("document.querySelector('.tabulator-row .tabulator-cell.bar').getBoundingClientRect().right")
    assert right <= PHONE["width"], "the first number is seen without scrolling"
    page.locator(".tabulator-row").first.click()
    page.locator("#drawer").wait_for()
    box = page.locator("#drawer").bounding_box()
    assert box["x"] >= 0
    assert box["width"] <= PHONE["width"]


def test_paper_has_every_row_that_is_shown(open_page: Open, report: Report) -> None:
    found = open_page(report, color_scheme="dark")
    page = found.page
    shown = found.shown()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#print tbody tr").count() == shown
    wide = page.evaluate("document.querySelector('#plot .uplot').getBoundingClientRect().width")
    assert wide <= 660, "the curve is wider than paper"
    assert page.locator("#grid").is_hidden()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("#print tbody tr").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_columns_are_picked(open_page: Open, report: Report) -> None:
    found = open_page(report)
    page = found.page
    assert page.locator(".heading", has_text="Cosine Distance").count() == 0
    page.locator("#picker summary").click()
    page.locator("#picker label", has_text="Cosine Distance").locator("input").check()
    assert page.locator(".tabulator-col", has_text="Cosine Distance").count() == 1
    named = page.locator(".tabulator-col", has_text="Cosine Distance").locator("input")
    assert named.get_attribute("aria-label") == "filter: Cosine Distance"
    before = found.shown()
    named.press_sequentially("1e30..2e30")  # NaN and Inf on one side alone are above every number
    page.locator(".tabulator-row").first.wait_for(state="detached")
    assert found.shown() == 0
    page.locator("#reset").click()
    assert found.shown() == before
    page.locator("#picker button", has_text="all").click()
    assert page.locator(".tabulator-col:visible").count() == len(list_columns(report)) + 1, "and the layer's"
    page.locator("#picker button", has_text="key columns").click()
    assert page.locator(".tabulator-col:visible", has_text="Cosine Distance").count() == 0


@pytest.mark.slow
def test_fifty_thousand_rows_scroll_sort_and_filter(open_page: Open) -> None:
    found = open_page(make_report(50_000))
    page = found.page
    page.locator("#fold input").uncheck()
    assert found.shown() == 50_000
    assert page.locator(".tabulator-row").count() < 300, "only what is seen is drawn"
    page.locator("#search").fill("logits")
    assert found.names() == ["logits"]


def test_names_are_text_whatever_they_hold(open_page: Open) -> None:
    nasty = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "<b>bold</b>", "a`b`<i>", "{{data}}"]
    rows = tuple(
        make_row(
            n,
            0.1,
            name=name,
            op_type=name,
            node=f"{name}/x",
            reason=name,
            is_output=True,
            extra={name: name},
            inputs=tuple(nasty),
        )
        for n, name in enumerate(nasty)
    )
    found = open_page(dataclasses.replace(make_report(0), rows=rows), address="#row=0")
    page = found.page
    assert page.locator("#drawer h2").inner_text() == nasty[0]
    page.locator("#group").check(force=True)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert (
        page.locator("main img, main i:not(.swatch), main script, main b:has-text('bold'):not(:has-text('<'))").count()
        == 0
    )


def test_where_nothing_differs_no_empty_curve_is_drawn(open_page: Open) -> None:
    rows = tuple(make_row(n, 0.0, name=f"t{n}", error_growth=1.0) for n in range(3))
    page = open_page(dataclasses.replace(make_report(0), rows=rows)).page
    assert holds_approved(page.locator("#plot").inner_text())
    assert page.locator("#plot canvas").count() == 0


def test_what_says_how_many_culprits_follow_stands_above_them(open_page: Open) -> None:
    report = explained()
    made = report.explanation
    assert made is not None
    names = [row.name for row in report.rows if row.status is Status.FAIL][:3]
    several = tuple(dataclasses.replace(made.culprits[0], name=name, keep=(name,)) for name in names)
    told = dataclasses.replace(report, explanation=dataclasses.replace(made, culprits=several))
    said = open_page(told).page.locator("#culprits").inner_text()
    assert said.index("2 more below.") < said.index("2. ")
    assert said.index("Tried: ") < said.index(OPTION) < said.index("lone it explains") < said.index("2 more below.")


def with_tokens(report: Report) -> Report:
    """The same, of a model that speaks eight tokens."""
    names = tuple(row.name for row in report.rows[:6])
    tokens = tuple(
        Token(row=n // 4, place=n % 4 + 1, id=7 + n, base=-2.0, target=-2.0 - 0.1 * n, rank=1, target_rank=1 + n,
              chosen=3, target_chosen=3 + (n == 5), kl=0.01 * n, margin=0.5, error=0.01)
        for n in range(8)
    )  # fmt: skip
    profiles = {str(n): tuple(1e-5 * (n + 1) * (k + 1) for k in range(6)) for n in range(8)}
    told = Tokens(ids="ids", logits="y", vocabulary=32, predictions=8, tokens=tokens, tensors=names, profiles=profiles)
    effects = TokenEffects(token=7, whole=-0.7, layers=(TokenEffect(name="a", group="layers.1", moved=-0.6),))
    return dataclasses.replace(report, tokens=told, token_effects=effects)


def test_a_token_shows_its_layers(open_page: Open, report: Report) -> None:
    told = with_tokens(report)
    small = open_page(told, PHONE).page
    assert small.evaluate("document.documentElement.scrollWidth") == PHONE["width"], "nothing makes the page wider"
    page = open_page(told).page
    assert page.locator(".token").count() == 8
    assert page.locator(".token.flips").count() == 1
    assert "layers.1" in page.locator("#token-layers").inner_text()  # the worst is open
    page.locator(".token").nth(5).click()
    assert page.locator(".token").nth(5).get_attribute("aria-pressed") == "true"
    assert "3 → 4" in page.locator("#token-layers").inner_text()
    assert page.locator("#token-layers circle").count() == 6
