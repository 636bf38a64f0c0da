"""What axe says of the page: its findings by impact, in both languages, light and dark, on a desk and on a phone.

    python tests/benchmarks/bench_axe.py AXE [REPORT.html …]

AXE: axe.min.js, from npm (axe-core) or out of the wheel of axe-playwright-python. Without reports: pages with a
culprit, with nothing wrong and with tokens; as they open and with a row open, and light and wide also grouped by layer,
filtered to no row and with all columns. Ends with 1 where a finding is critical.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

IMPACTS = ("critical", "serious", "moderate", "minor")
STATES = {
    "as it opens": "",
    "a row open": "document.querySelector('.tabulator-row')?.click()",
    "grouped": "document.getElementById('group').click()",
    "no row left": "(() => { const s = document.getElementById('search'); s.value = 'no such name';"
    " s.dispatchEvent(new Event('input')); })()",
    "all columns": "document.querySelector('#picker summary').click();"
    " document.querySelector('#picker button').click()",
}


def pages(folder: Path) -> Iterator[tuple[str, Path]]:
    """Reports that have what the page can have."""
    from report_factory import make_report
    from test_report_browser import explained, with_tokens

    for name, report in {
        "culprit": explained(40), "nothing wrong": make_report(0), "tokens": with_tokens(explained(40)),
    }.items():  # fmt: skip
        yield name, report.save(folder / f"{name.replace(' ', '_')}.html")


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("axe", type=Path)
    parser.add_argument("reports", type=Path, nargs="*")
    options = parser.parse_args()
    source = options.axe.read_text(encoding="utf-8")
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    where: dict[tuple[str, str], str] = {}
    looked = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        given = [(path.name, path.resolve()) for path in options.reports] or list(pages(Path(folder)))
        for name, path in given:
            for scheme in ("light", "dark"):
                for width, height in ((1280, 800), (390, 844)):
                    context = browser.new_context(
                        viewport={"width": width, "height": height}, color_scheme=scheme, bypass_csp=True
                    )
                    plain = (scheme, width) != ("light", 1280)
                    for state, action in list(STATES.items())[: 2 if plain else None]:
                        page = context.new_page()
                        page.goto(f"file://{path}")
                        page.wait_for_selector("html[data-ready=yes]")
                        if action:
                            page.evaluate(action)
                            page.wait_for_timeout(300)
                        for one in violations(page, source):
                            key = (str(one["impact"]), str(one["id"]))
                            found[key] += len(one["nodes"])
                            first = one["nodes"][0]
                            where.setdefault(key, f"{name}, {state}, {scheme}, {width} wide: {first['html'][:160]}")
                        looked += 1
                        page.close()
                    context.close()
        browser.close()
    print(f"{looked} views")
    for (impact, rule), count in sorted(found.items(), key=lambda item: IMPACTS.index(item[0][0])):
        print(f"{impact:9s} {rule:32s} {count:5d}  {where[impact, rule]}")
    return int(any(impact == "critical" for impact, _ in found))


def violations(page: Any, source: str) -> list[dict[str, Any]]:
    """axe's findings of a page."""
    page.evaluate(source)
    found: list[dict[str, Any]] = page.evaluate("axe.run(document).then((found) => found.violations)")
    return found


if __name__ == "__main__":
    sys.exit(main())
