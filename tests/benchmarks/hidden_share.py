"""How much of each model's tensors is compared, and in one sentence what hides the rest, of reports that were written.

    python tests/benchmarks/hidden_share.py REPORT.json…

A line a report: tensors of the baseline that were compared, of all, and of those that the target's compiled graph still
has; then what hides the others, most first: fused into which operator, computed otherwise if it were shown, removed.
The last lines are the means by mode.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_COMPARED = {"pass", "fail"}
_WORDS = {
    "openvino.constant": "removed in the baseline, too", "openvino.disturbs": "computed otherwise if they were shown",
}  # fmt: skip


def hidden(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """What hides the baseline's tensors that were not compared: why, and the type of operator that makes them."""
    readers: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        for name in row.get("inputs", ()):
            readers[name].append(row)
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["status"] in _COMPARED or row["status"] == "unmatched":
            continue
        why = row.get("codes", {}).get("reason", {})
        args = why.get("args", {})
        why = args.get("why", why)
        if row["status"] == "fused away":
            into = args.get("operator") or _reader(row, readers)
            found[f"fused into {into}" if into else "gone", row["op_type"]] += 1
        else:
            told = row["reason"].partition(": ")[2][:60] or row["reason"]
            found[_WORDS.get(why.get("code", ""), told), row["op_type"]] += 1
    return found


def _reader(row: Mapping[str, Any], readers: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The type of the first compared tensor behind one; "" where none is."""
    waiting, seen = [row], set()
    while waiting:
        one = waiting.pop(0)
        for reader in readers[one["name"]]:
            if reader["status"] in _COMPARED:
                return str(reader["op_type"])
            if reader["name"] not in seen:
                seen.add(reader["name"])
                waiting.append(reader)
    return ""


def sentence(found: Counter[tuple[str, str]], most: int = 3) -> str:
    """The reasons, most first, each with the types of what it hides."""
    by_reason: dict[str, Counter[str]] = defaultdict(Counter)
    for (why, kind), count in found.items():
        by_reason[why][kind] += count
    ranked = sorted(by_reason.items(), key=lambda pair: -sum(pair[1].values()))
    told = [f"{sum(kinds.values())} {why} ({', '.join(kind for kind, _ in kinds.most_common(most))})"
            for why, kinds in ranked[:most]]  # fmt: skip
    rest = sum(sum(kinds.values()) for _, kinds in ranked[most:])
    return "; ".join([*told, *([f"{rest} otherwise"] if rest else [])]) or "nothing"


def main(files: Sequence[str]) -> int:
    shares: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for file in files:
        report = json.loads(Path(file).read_text())
        rows = [row for row in report["rows"] if row["status"] != "unmatched"]
        compared = sum(row["status"] in _COMPARED for row in rows)
        there = compared + sum(row["status"] == "not compared" for row in rows)
        if not rows or not compared:
            continue
        found = hidden(rows)
        mode = report["target"]["mode"]
        shares[mode].append((compared / len(rows), compared / there))
        print(f"| {Path(file).stem} | {compared} of {len(rows)} | {compared} of {there} | {sentence(found)} |")
    for mode, pairs in sorted(shares.items()):
        means = [100 * sum(pair[place] for pair in pairs) / len(pairs) for place in (0, 1)]
        print(f"{mode}: mean of {len(pairs)}: {means[0]:.0f} % of all, {means[1]:.0f} % of those that the target has")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
