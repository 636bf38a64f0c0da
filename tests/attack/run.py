"""Runs the attacks and prints how many of each class were tried and held.

python tests/attack/run.py --seed 0 --cases 2000          all of them
python tests/attack/run.py --only json_files --verbose    one class, with what did not hold
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent
for _path in (_TESTS, _TESTS.parent, _TESTS.parent / "backends"):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

from attack import commands, data, graphs, machine, names, pairs, proofs, served, stale, surfaces, written  # noqa: E402
from attack.case import Attack, holds  # noqa: E402

__all__ = ["CLASSES", "Result", "main", "run", "table"]


CLASSES: dict[str, tuple[Attack, float, float]] = {
    # share of a full run, share of a quick one
    "json_files": (data.json_files, 0.30, 0.26),
    "values": (commands.values, 0.14, 0.20),
    "command_lines": (commands.command_lines, 0.13, 0.16),
    "spreadsheets": (names.spreadsheets, 0.08, 0.06),
    "web_and_markdown": (names.web_and_markdown, 0.06, 0.06),
    "on_the_terminal": (names.on_the_terminal, 0.05, 0.05),
    "differences": (written.differences, 0.03, 0.03),
    "sweeps": (written.sweeps, 0.03, 0.03),
    "scripts": (written.scripts, 0.04, 0.05),
    "viewers": (written.viewers, 0.04, 0.04),
    "step_summaries": (written.step_summaries, 0.02, 0.02),
    "hand_overs": (written.hand_overs, 0.03, 0.03),
    "thresholds": (surfaces.thresholds, 0.04, 0.05),
    "results": (surfaces.results, 0.04, 0.04),
    "checkpoints": (surfaces.checkpoints, 0.01, 0.006),
    "stale_checkpoints": (stale.stale_checkpoints, 0.06, 0.6),
    "tampered_checkpoints": (stale.tampered_checkpoints, 0.06, 1.0),
    "tmpdirs": (stale.tmpdirs, 0.06, 1.0),
    "options_of_a_comparison": (proofs.options_of_a_comparison, 0.05, 0.01),
    "drawn_pairs": (pairs.drawn_pairs, 0.04, 0.01),
    "stored_results": (proofs.stored_results, 0.02, 0.006),
    "criteria_of_a_test": (proofs.criteria_of_a_test, 0.04, 0.01),
    "machines_refusals": (stale.machines_refusals, 0.06, 1.0),
    "disks_full": (machine.disks_full, 0.05, 0.03),
    "memory_short": (machine.memory_short, 0.05, 0.02),
    "signals_at_random": (machine.signals_at_random, 0.05, 0.03),
    "other_threads": (machine.other_threads, 0.02, 0.006),
    "search_journals": (surfaces.search_journals, 0.02, 0.01),
    "looked_at": (surfaces.looked_at, 0.05, 0.05),
    "readers": (surfaces.readers, 0.04, 0.06),
    "users_own": (surfaces.users_own, 0.03, 0.04),
    "served": (served.served, 0.03, 0.03),
    "inputs": (data.inputs, 0.07, 0.07),
    "recordings": (data.recordings, 0.06, 0.06),
    "models": (data.models, 0.06, 0.04),
    "odd_graphs": (graphs.odd_graphs, 0.03, 0.02),
    "settings": (commands.settings, 0.03, 0.02),
    "special_files": (data.special_files, 0.03, 0.03),
    "programs": (data.programs, 0.015, 0.0),
    "beside_the_report": (commands.beside_the_report, 0.01, 0.006),
    "planted_modules": (commands.planted_modules, 0.008, 0.006),
    "dying_children": (commands.dying_children, 0.008, 0.006),
}


@dataclass
class Result:
    """Of one class. lost: seed of the case and what did not hold."""

    tried: int
    lost: list[tuple[str, str]]
    seconds: float


def run(
    seed: int, cases: int, *, quick: bool = False, only: Sequence[str] = (), progress: bool = False
) -> dict[str, Result]:
    """Every class's share of that many cases, at least one; the same for the same seed."""
    results = {}
    for name, (attack, full, short) in CLASSES.items():
        share = short if quick else full
        if (only and name not in only) or not share:
            continue
        begun, lost = time.monotonic(), []
        count = cases if only else max(1, round(cases * share))
        for number in range(count):
            key = f"{seed}:{name}:{number}"
            with tempfile.TemporaryDirectory(prefix="attack-") as folder:
                why = holds(attack, random.Random(key), Path(folder).resolve())
            if why:
                lost.append((key, why))
        results[name] = Result(count, lost, time.monotonic() - begun)
        if progress:
            print(f"{name}: {count - len(lost)} of {count} held, {results[name].seconds:.0f} s", file=sys.stderr)
    return results


def table(results: dict[str, Result]) -> str:
    """Markdown."""
    lines = ["| class | tried | held | seconds |", "|---|---:|---:|---:|"]
    for name, result in results.items():
        held = result.tried - len(result.lost)
        lines.append(f"| {name.replace('_', ' ')} | {result.tried} | {held} | {result.seconds:.0f} |")
    tried = sum(result.tried for result in results.values())
    lost = sum(len(result.lost) for result in results.values())
    lines.append(f"| all | {tried} | {tried - lost} | {sum(result.seconds for result in results.values()):.0f} |")
    return "\n".join(lines)


def main() -> int:
    """0 where everything held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="the shares of the quick part")
    parser.add_argument("--only", nargs="*", choices=sorted(CLASSES), default=[], help="these classes, CASES of each")
    parser.add_argument("--verbose", action="store_true", help="say what did not hold")
    given = parser.parse_args()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # a shell starts what runs in the background so, and the commands that are interrupted would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    results = run(given.seed, given.cases, quick=given.quick, only=given.only, progress=True)
    print(table(results))
    for result in results.values():
        for key, why in result.lost[: None if given.verbose else 3]:
            print(f"{key}: {why[:400]!a}", file=sys.stderr)
    return 1 if any(result.lost for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
