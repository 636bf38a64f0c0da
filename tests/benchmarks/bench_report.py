"""How long a report takes to write and to read, and how much memory that needs.

    python tests/benchmarks/bench_report.py [--rows 50000 100000] [--repeat 3] [--formats .xlsx .csv .json .html .md]

Every measurement is a child process of its own. "peak" is its peak RSS less that of building the report, so that it is
the writer's alone; "plain" is the same table cell by cell through xlsxwriter's own calls, in constant_memory.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]


def measure(rows: int, what: str) -> None:
    """In the child: print seconds, CPU seconds, MB above the report's own, and MB of the file."""
    from report_factory import make_report

    from precision_debug import report as reports

    made = make_report(rows, extra=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"report{'.xlsx' if what == 'plain' else '.json' if what == 'load' else what}")
        if what == "load":
            reports.write(made, path)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start, cpu = time.perf_counter(), time.process_time()
        if what == "plain":
            write_plainly(made, path)
        elif what == "load":
            reports.Report.load(path)
        else:
            reports.write(made, path)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(seconds, cpu, peak / 1024, path.stat().st_size / 1e6)


def write_plainly(report: object, path: Path) -> None:
    """The reference: the same cells without formats, each by one call."""
    import math

    import xlsxwriter

    from precision_debug.report.layout import list_columns

    book = xlsxwriter.Workbook(str(path), {"constant_memory": True})
    sheet = book.add_worksheet()
    layout = list_columns(report)  # type: ignore[arg-type]
    for line, row in enumerate(report.rows, 1):  # type: ignore[attr-defined]
        for number, column in enumerate(layout):
            value = column.get(row)
            if isinstance(value, (int, float)) and math.isfinite(value):
                sheet.write_number(line, number, value)
            elif value is not None and value != "":
                sheet.write_string(line, number, str(value))
    book.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--formats", nargs="+", default=[".xlsx", "plain", ".csv", ".json", "load", ".html", ".md"])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(int(options.child[0]), options.child[1])
        return
    heads = "".join(f"{head:>9}" for head in ("rows", "format", "seconds", "CPU s", "peak MB", "file MB"))
    print(f"{heads}   medians of {options.repeat}")
    for rows in options.rows:
        for what in options.formats:
            runs: list[list[float]] = []
            for _ in range(options.repeat):
                child = [sys.executable, __file__, "--child", str(rows), what]
                runs.append(list(map(float, subprocess.run(child, check=True, capture_output=True).stdout.split())))
            seconds, cpu, peak, size = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"{rows:>9}{what:>9}{seconds:>9.2f}{cpu:>9.2f}{peak:>9.0f}{size:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
