"""The same commands alone, and beside busy processes: ``python tests/planted/load_same.py [COMMANDS] [BUSY]``.

Each report's JSON must be the same but for seconds, dates and what is measured of memory. By hand: 30 commands and 12
busy processes take a quarter of an hour on two cores; tests/test_explain_work.py runs two of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.unseen import Unseen, cases, command

_TIMED = frozenset({"seconds", "started", "machine", "command", "peak_memory", "load", "date", "slower"})
"""Keys of a report whose values are of the run, and not of the model."""

_SLOWER = re.compile(r"; a run takes [\d.]+ times as long|；单次运行耗时为原来的 [\d.]+ 倍")
"""How much longer a run takes with a fix, in a sentence: a time, too."""


def plain(report: Any) -> Any:
    """A report's JSON without what differs from run to run; folders are temporary, and called FOLDER."""
    if isinstance(report, dict):
        return {key: plain(value) for key, value in report.items() if key not in _TIMED}
    if isinstance(report, str):
        return _SLOWER.sub("", report)
    return [plain(one) for one in report] if isinstance(report, list) else report


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that compute as long as the block lasts."""
    code = "import os; os.nice(19)\nimport numpy as np\na = np.ones((256, 256))\nwhile True: a @ a"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def report_of(case: Unseen, folder: Path) -> Any:
    """What one command says, as a user runs it; case: made in this folder already."""
    status, printed = command(case, folder, ["r.json"])
    path = folder / "r.json"
    text = path.read_text() if path.exists() else json.dumps({"status": status, "printed": printed})
    path.unlink(missing_ok=True)
    return plain(json.loads(text.replace(str(folder), "FOLDER")))


@contextlib.contextmanager
def made(case: Unseen) -> Iterator[tuple[Unseen, Path]]:
    """A case whose files are made once: an exporter may number the second program of a process otherwise."""
    with tempfile.TemporaryDirectory() as name:
        files = case.make(Path(name))
        yield dataclasses.replace(case, make=lambda _: files), Path(name)


def chosen(count: int) -> Sequence[Unseen]:
    """So many, spread over the kinds and modes of the fourth batch."""
    found = cases("fourth")
    return found[:: max(1, len(found) // count)][:count]


def differences(first: Any, second: Any, place: str = "") -> Iterator[str]:
    """Where two reports are not the same."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted({*first, *second}):
            yield from differences(first.get(key), second.get(key), f"{place}.{key}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif first != second:
        yield f"{place}: {str(first)[:80]} | {str(second)[:80]}"


def main() -> int:
    count, beside = (int(word) for word in (*sys.argv[1:3], *("30", "12")[len(sys.argv[1:3]) :]))
    apart = 0
    for case in chosen(count):
        with made(case) as (once, folder):
            alone = report_of(once, folder)
            with busy(beside):
                loaded = report_of(once, folder)
        found = list(differences(alone, loaded))
        apart += bool(found)
        print(f"{'DIFFERS' if found else 'same':8s} {case.name} ({case.mode}) {'; '.join(found[:3])}", flush=True)
    print(f"{count - apart} of {count} commands say the same with {beside} busy processes beside them")
    return int(apart > 0)


if __name__ == "__main__":
    raise SystemExit(main())
