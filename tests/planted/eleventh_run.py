"""A blind batch, one command a case: ``python tests/planted/eleventh_run.py FOLDER [BATCH] [WORD …]``.

Judged are the exit status, who is named first and whoever else, the cause, whether a fix is offered where one is due,
whether the facts of the label are told, and whether a first screen without a finding has at most 6 lines. What was
printed, the JSON report and both sides' outputs stay in FOLDER/NAME.
"""

from __future__ import annotations

import concurrent.futures
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted.eleventh_onnx import Blind
from planted.unseen import BATCHES, cases, command, list_named


def _right(case: Blind) -> set[int]:
    return {case.status, *getattr(case, "statuses", ())}


def judge(case: Blind, folder: Path) -> dict[str, Any]:
    """One case; True, False, or None where the label does not ask."""
    folder.mkdir(parents=True, exist_ok=True)
    many = bool({"--inputs", "--metric"} & {*case.options}) or case.name.startswith(
        ("three_quiet", "accuracy", "recall")
    )
    extra = [] if many else ["--save_outputs", str(folder / "outputs.json")]
    status, printed = command(case, folder, ["r.json"], extra)
    (folder / "printed.txt").write_text(printed)
    printed = printed.replace(case.name, "")  # which is in paths, and tells nothing of what was found
    if not (folder / "r.json").exists():
        right = status in _right(case)
        facts = all(re.search(one, printed, re.IGNORECASE) for one in case.facts) if case.facts else None
        none = {"status": right, "who": right and not case.who, "why": False if case.who else None, "facts": facts}
        return {**none, "told": printed[-300:]}
    report = json.loads((folder / "r.json").read_text())
    summary = report["summary"]
    allowed = {*case.who, *case.also, *case.extra}
    names = list_named(summary["culprits"], allowed)
    causes = [one["cause"] for one in summary["culprits"]]
    right: dict[str, Any] = {"status": status in _right(case) or (case.open and summary["verdict"] == "inconclusive")}
    right["who"] = {*names} <= allowed and (names[0] in case.who if names and case.who else not names and not case.who)
    right["who"] |= case.anyone and not names
    right["who"] &= {*case.also} <= {*names}
    right["why"] = (causes[0] in case.why if names else case.anyone) if case.who and right["who"] else None
    if case.who and not right["who"]:
        right["why"] = False
    right["fix"] = None if case.offered is None else bool(summary.get("paste") or summary.get("fix")) == case.offered
    right["facts"] = all(re.search(one, printed, re.IGNORECASE) for one in case.facts) if case.facts else None
    progress = "precision_debug: "  # of a loaded machine
    lines = [one for one in printed.splitlines() if one.strip() and not one.startswith(progress)]
    right["screen"] = None if case.who or status else len(lines) <= 6
    right["verdict"], right["named"] = summary["verdict"], list(zip(names, causes, strict=True))
    right["told"] = printed.splitlines()[0] if printed else ""
    return right


def main() -> int:
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    batch = words.pop(0) if words and words[0] in BATCHES else "eleventh"
    chosen: Any = [one for one in cases(batch) if not words or any(word in one.name for word in words)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda one: judge(one, folder / one.name), chosen))
    for one, right in zip(chosen, told, strict=True):
        print(f"{one.name} ({one.mode}): {json.dumps(right, ensure_ascii=False)}", flush=True)
    for key in ("status", "who", "why", "fix", "facts", "screen"):
        asked = [right[key] for right in told if right.get(key) is not None]
        print(f"{key}: {sum(asked)} of {len(asked)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
