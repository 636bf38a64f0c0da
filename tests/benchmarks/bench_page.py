"""How long a browser takes with the page of a large report: chromium, headless.

    python tests/benchmarks/bench_page.py [--rows 1000 50000] [--repeat 3]

"open" is from the navigation until the table stands, the file's reading included; the others are from an action until
two frames after it, as a reader waits. "CPU" is the page's main thread alone: what the same takes where nothing else
runs on the machine.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

ACTIONS = {
    "unfold": "document.querySelector('#fold input').click()",
    "sort": "[...document.querySelectorAll('.heading')].find((h) => h.textContent.startsWith('Rel L2'))"
    ".closest('.tabulator-col').click()",
    "search": "(() => { const s = document.getElementById('search'); s.value = 'relu';"
    " s.dispatchEvent(new Event('input')); })()",
    "reset": "document.getElementById('reset').click()",
    "group": "document.getElementById('group').click()",
    "ungroup": "document.getElementById('group').click()",
    "scroll": "document.querySelector('.tabulator-tableholder').scrollTop = 1e7",
    "language": "document.getElementById('language').click()",
    "dark": "document.getElementById('theme').click()",
}


def measure(page: object, path: Path) -> dict[str, float]:
    """Milliseconds by action."""
    found: dict[str, float] = {}
    session = page.context.new_cdp_session(page)  # type: ignore[attr-defined]
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(f"file://{path}")  # type: ignore[attr-defined]
    page.wait_for_selector("html[data-ready=yes]", timeout=120_000)  # type: ignore[attr-defined]
    found["open CPU"] = busy(session)
    found["open"] = page.evaluate("window.performance.now()")  # type: ignore[attr-defined]
    for name, action in ACTIONS.items():
        before = busy(session)
        found[name] = page.evaluate(  # type: ignore[attr-defined]
            f"""() => new Promise((done) => {{
              const begun = performance.now();
              {action};
              requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
            }})"""
        )
        found[f"{name} CPU"] = busy(session) - before
    return found


def busy(session: object) -> float:
    """Milliseconds of its processor that the page's main thread has used."""
    metrics = session.send("Performance.getMetrics")["metrics"]  # type: ignore[attr-defined]
    return 1000 * next(float(item["value"]) for item in metrics if item["name"] == "TaskDuration")


def main() -> None:
    from playwright.sync_api import sync_playwright
    from report_factory import make_report

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 50_000])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    vendor = files("precision_debug.report.formats.html").joinpath("vendor")
    libraries = sum(len(path.read_bytes()) for path in vendor.iterdir() if path.name.endswith((".js", ".css")))
    print(f"libraries: {libraries:,} bytes of each page; medians of {options.repeat}, ms")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for rows in options.rows:
            path = make_report(rows).save(Path(folder, f"{rows}.html"))
            runs = []
            for _ in range(options.repeat):
                context = browser.new_context(viewport={"width": 1280, "height": 800})
                runs.append(measure(context.new_page(), path))
                context.close()
            print(f"{rows:>7} rows  {path.stat().st_size / 1e6:.1f} MB")
            for name in ("open", *ACTIONS):
                wall, cpu = (statistics.median(run[key] for run in runs) for key in (name, f"{name} CPU"))
                print(f"        {name:10s}{wall:8.0f} ms {cpu:8.0f} ms CPU", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
