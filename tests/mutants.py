"""Small mistakes, written by hand, in the four modules that decide; each should turn a quick test of its module red.

``python tests/mutants.py [NAME…]`` applies each in a copy of the tree, runs the module's own quick tests, and prints
the table. Names choose modules ("judge"). It takes some minutes, so nothing runs it but a person; tests/test_mutants.py
checks that each still applies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JUDGE, BORN = "precision_debug/numbers/judge.py", "precision_debug/numbers/born.py"
ALIGN = "precision_debug/pairing/align.py"
PIPELINE, CULPRITS = "precision_debug/run/pipeline.py", "precision_debug/explain/culprits.py"
UNREPEATED = "precision_debug/explain/unrepeated.py"
OPEN_PAIR, ONE_SAMPLE = "precision_debug/run/open_pair.py", "precision_debug/run/one_sample.py"
COMPARING = "precision_debug/run/comparing.py"

TESTS = {
    JUDGE: "tests/test_judge.py", BORN: "tests/test_judge.py", ALIGN: "tests/test_align.py",
    PIPELINE: "tests/test_pipeline.py", OPEN_PAIR: "tests/test_pipeline.py", ONE_SAMPLE: "tests/test_pipeline.py",
    COMPARING: "tests/test_pipeline.py",
    CULPRITS: "tests/test_culprits.py", UNREPEATED: "tests/test_culprits.py",
}  # fmt: skip

MUTANTS: tuple[tuple[str, str, str], ...] = (
    (BORN, "MASK = 1e18", "MASK = 1e30"),
    (BORN, "CLAMPED = 1e4", "CLAMPED = 1e5"),
    (BORN, "CLAMPED = 1e4", "CLAMPED = 1e2"),
    (JUDGE, "HIDDEN = 1e-2", "HIDDEN = 5e-2"),
    (JUDGE, "HIDDEN = 1e-2", "HIDDEN = 5e-3"),
    (JUDGE, "if allowed is not None and not tolerance.given:", "if allowed is not None:"),
    (JUDGE, "return validated(row) if validate else row", "return row"),
    (
        JUDGE, "if not passes:\n        return Status.FAIL, reason",
        "if not passes:\n        return Status.INCONCLUSIVE, reason",
    ),
    (JUDGE, "if not comparison.base.elements:", "if False:"),
    (JUDGE, "(Status.INCONCLUSIVE, hidden) if hidden", "(Status.PASS, hidden) if hidden"),
    (JUDGE, "row.status is Status.FAIL or not row.non_finite", "not row.non_finite"),
    (
        JUDGE, "if error is None or not numbers.shapes_match or is_broken(numbers):",
        "if error is None or is_broken(numbers):",
    ),
    (JUDGE, "not numbers.shapes_match or is_broken(numbers):", "not numbers.shapes_match:"),
    (JUDGE, 'if "float" not in numbers.base.dtype and', "if False and"),
    (JUDGE, "numbers.mismatched == 0 == numbers.max_abs", "numbers.mismatched == 0"),
    (JUDGE, "if error <= allowed or", "if error < allowed or"),
    (JUDGE, "if error <= allowed or _is_mask_alone(row, numbers, allowed):", "if error <= allowed:"),
    (JUDGE, "max(own.rel_l2, own.inherited) <= allowed", "min(own.rel_l2, own.inherited) <= allowed"),
    (JUDGE, "own.born_nan or own.born_inf or peak", "own.born_nan or peak"),
    (BORN, "numbers.apart != abs(more)", "numbers.apart < abs(more)"),
    (BORN, "numbers.base.nan != numbers.target.nan or", ""),
    (BORN, "(numbers.base) if more < 0 else", "(numbers.base) if more > 0 else"),
    (BORN, "_ONE_NUMBER if end > 0 else _TWO_MASKS", "_TWO_MASKS"),
    (JUDGE, "comparison.required_atol == math.inf", "comparison.required_atol is not None"),
    (
        JUDGE, 'tolerance.check_error_stat != "elemwise" and comparison.mean_abs is not None',
        'tolerance.check_error_stat == "mean"',
    ),
    (JUDGE, "tolerance.atol <= rms", "tolerance.atol < 10 * rms"),
    (JUDGE, "max(HIDDEN, tolerance.rtol)", "HIDDEN"),
    (
        JUDGE, "absolute <= tolerance.atol or relative <= tolerance.rtol",
        "absolute <= tolerance.atol and relative <= tolerance.rtol",
    ),
    (JUDGE, "if of_base and of_target:", "if False:"),
    (
        ALIGN, "        if pair is not None:\n            return pair\n        name = stem(target_name)",
        "        name = stem(target_name)",
    ),
    (ALIGN, "name=pair.base.name + target_name[len(name) :]", "name=pair.base.name"),
    (ALIGN, "before if at and _TURN.fullmatch(iteration) else name", "before if at else name"),
    (
        ALIGN, "if meta.origin:\n                self.by_source.setdefault",
        "if not meta.origin:\n                self.by_source.setdefault",
    ),
    (ALIGN, "        self.by_source.update(self.by_name)\n", ""),
    (ALIGN, "if new not in target_names or old not in self.by_name:", "if new not in target_names:"),
    (ALIGN, "if base is None or meta.name in self.pairs:", "if base is None:"),
    (ALIGN, "self.rivals.setdefault(meta.name, self.taken[base.name])", "self.rivals.setdefault(meta.name, base.name)"),
    (ALIGN, "        self.taken[base.name] = meta.name\n", ""),
    (ALIGN, "missing=matches.missing", "missing={}"),
    (
        ALIGN, "self.claim(meta, self.by_source.get(meta.origin))",
        'self.claim(meta, self.by_source.get(meta.origin), "graph metadata")',
    ),
    (ALIGN, "and not meta.unseen and not fits", "and not fits"),
    (ALIGN, "and not fits(base.op_type, meta.op_type)", "and False"),
    (ALIGN, " and not _raw(meta, self.by_name.get(name)):", ":"),
    (ALIGN, "if two_files and not strangers:", "if two_files:"),
    (ALIGN, "before is not None and fits(before.op_type, meta.op_type):", "before is not None:"),
    (ALIGN, "if name not in self.pairs},", "},"),
    (ALIGN, 'and "float" in base.dtype and', "and"),
    (ALIGN, "and not meta.view", ""),
    (ALIGN, "ranked.sort(key=lambda item: item[:2])", "ranked.sort(key=lambda item: item[1:2])"),
    (OPEN_PAIR, "paired if names is None else names & paired", "paired"),
    (OPEN_PAIR, "if not pair.target.unseen}", "}"),
    (PIPELINE, "work.journal.write(events.Again())", "pass"),
    (ONE_SAMPLE, "raise Enough(row)", "pass"),
    (COMPARING, 'self.spec.explain != "off" and not self.alone', 'self.spec.explain != "off"'),
    (PIPELINE, "both.base.announce(both.seen[0])", "pass"),
    (OPEN_PAIR, "if together and reason:", "if reason:"),
    (OPEN_PAIR, "if new != old and new in theirs and old in ours", "if new != old"),
    (OPEN_PAIR, "if feed_set.names.get(new) != old", ""),
    (OPEN_PAIR, "return {**both, **own}", "return {**own, **both}"),
    (OPEN_PAIR, "if spec.lockstep and not able:", "if False:"),
    (OPEN_PAIR, "return able if spec.lockstep is None else spec.lockstep", "return able"),
    (OPEN_PAIR, "side.mode is None or side.mode.concurrent for", "side.mode is not None and side.mode.concurrent for"),
    (OPEN_PAIR, "if not patterns and spec.marks_between is None:", "if not patterns:"),
    (PIPELINE, "if len(part) == 1:", "if len(part) == 2:"),
    (PIPELINE, "        if number == 0:\n            _announced(both, work.journal)",
     "        _announced(both, work.journal)"),
    (CULPRITS, "FAR = 8.0", "FAR = 16.0"),
    (CULPRITS, "FAR = 8.0", "FAR = 4.0"),
    (CULPRITS, "HALF = 0.5", "HALF = 0.7"),
    (CULPRITS, "PART = 0.15\n", "PART = 0.3\n"),
    (CULPRITS, "LEAST_PART = 0.05", "LEAST_PART = 0.1"),
    (CULPRITS, "LEAST_PART = 0.05", "LEAST_PART = 0.0"),
    (CULPRITS, "STRONG = 32.0", "STRONG = 4.0"),
    (CULPRITS, "_NEARLY = 0.25", "_NEARLY = 0.5"),
    (CULPRITS, "MATTERS = 0.02", "MATTERS = 0.2"),
    (CULPRITS, "MATTERS = 0.02", "MATTERS = 0.002"),
    (CULPRITS, 'row.op_type in {"Input", "Constant"} and not row.non_finite', 'row.op_type in {"Input", "Constant"}'),
    (
        CULPRITS, "if non_finite_alone(row) or subject.far(row.relative_l2, subject.error_units(row), BEYOND):\n     "
        "       return row.name",
        "if subject.far(row.relative_l2, subject.error_units(row), BEYOND):\n            return row.name",
    ),
    (CULPRITS, "> numbers.base.inf and not may_be_mask(numbers.base)", "> numbers.base.inf"),
    (CULPRITS, "numbers.target.nan > numbers.base.nan or", "numbers.target.nan or"),
    (CULPRITS, "growth = max(growth, 1e6)", "pass"),
    (CULPRITS, "-min(units, 1e9) if units > FAR else 0.0, place", "-min(units, 1e9), place"),
    (CULPRITS, "return -born, ", "return 0.0, "),
    (CULPRITS, "return subject.moves_on(name) and not more", "return subject.moves_on(name)"),
    (CULPRITS, "(subject.two_files and bool(own.flips))", "bool(own.flips)"),
    (CULPRITS, "row.comparison is not None and row.comparison.identical:", "False:"),
    (CULPRITS, "or bool(introduced.flips)", ""),
    (CULPRITS, "poisons = born and effect.non_finite > 0 and", "poisons = effect.non_finite > 0 and"),
    (CULPRITS, "if sink.name not in looked or not (poisons", "if not (poisons"),
    (CULPRITS, "DROP = 3.0", "DROP = 2.0"),
    (CULPRITS, "OUTWEIGHS = 8.0", "OUTWEIGHS = 4.0"),
    (CULPRITS, "OUTWEIGHS = 8.0", "OUTWEIGHS = 16.0"),
    (CULPRITS, "_FELT = 0.3", "_FELT = 0.6"),
    (CULPRITS, "if subject.same_steps and not far and not poisons:", "if False:"),
    (CULPRITS, "not (poisons or certain or share >= enough)", "not (certain or share >= enough)"),
    (
        CULPRITS, "if not sink.is_output and any(one.is_output for one in sinks):\n            continue",
        "if False:\n            continue",
    ),
    (CULPRITS, "round(share, 1)", "round(share, 3)"),
    (CULPRITS, "{kept: min(1.0, share)}", "{kept: share}"),
    (CULPRITS, "e.share > 0.1 * most[1]", "e.share >= most[1]"),
    (CULPRITS, "growth > 4.0 and", "growth > 8.0 and"),
    (CULPRITS, "own.rel_l2 > 0.3 * error", "own.rel_l2 > 0.5 * error"),
    (CULPRITS, "for other, part in group if part < PART", "for other, part in group"),
    (UNREPEATED, "if limit < largest < MASK and at:", "if limit < largest and at:"),
    (UNREPEATED, "if not broken or limit > MASK:", "if not broken:"),
    (CULPRITS, "if len(products) < 2:", "if len(products) < 3:"),
    (CULPRITS, "if found or first not in subject.row_of", "if found or True or first not in subject.row_of"),
)  # fmt: skip


def applied(text: str, before: str, after: str) -> str:
    """The text with the first occurrence changed. Raises ValueError where it has none: the module has changed."""
    if before not in text:
        raise ValueError(f"nowhere: {before!r}")
    return text.replace(before, after, 1)


def main(wanted: list[str]) -> None:
    root = Path(__file__).resolve().parents[1]
    chosen = [one for one in MUTANTS if not wanted or any(name in one[0] for name in wanted)]
    killed: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".git", "output", "__pycache__", ".*_cache"))
        print("| module | before | after | killed | s |\n|---|---|---|---|---:|")
        for path in dict.fromkeys(path for path, _, _ in chosen):
            _red(copy, TESTS[path], expected=False)
        for path, before, after in chosen:
            text = (copy / path).read_text(encoding="utf-8")
            begun = time.monotonic()
            try:
                (copy / path).write_text(applied(text, before, after), encoding="utf-8")
                dead = _red(copy, TESTS[path], expected=True)
            finally:
                (copy / path).write_text(text, encoding="utf-8")
            killed.setdefault(path, []).append(dead)
            cells = [Path(path).stem, *(" ".join(one.split())[:60].replace("|", "\\|") for one in (before, after))]
            took = time.monotonic() - begun
            print(f"| {' | '.join(cells)} | {'yes' if dead else '**no**'} | {took:.0f} |", flush=True)
    every = [dead for found in killed.values() for dead in found]
    for path, found in killed.items():
        print(f"{Path(path).stem}: {sum(found)} of {len(found)}")
    print(f"all: {sum(every)} of {len(every)} ({sum(every) / len(every):.0%})")


def _red(copy: Path, tests: str, *, expected: bool) -> bool:
    """Whether a module's tests fail. expected: no error is one that the tests must not have had before."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    env = {"PYTHONPATH": f"{copy}:{copy / 'backends'}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, check=False, cwd=copy, env={**os.environ, **env}, capture_output=True, text=True
    )
    if done.returncode and not expected:
        raise SystemExit(f"{tests} fails without a mutant:\n{done.stdout[-2000:]}")
    return done.returncode != 0


if __name__ == "__main__":
    main(sys.argv[1:])
