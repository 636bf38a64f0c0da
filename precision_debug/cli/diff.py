"""precision_debug diff: what changed between two reports, before and after a fix, a release or another card.

BEFORE and AFTER are .json reports. Tensors are matched by name; what got worse comes first. Exit status 0 where nothing
got worse, 1 where something did.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..report.atomic_file import replacing
from ..report.blame import sentence_of
from ..report.difference import NOISE, TIMES, Change, Difference, Tensor, difference
from ..report.figures import figure
from ..report.model import Report
from ..report.words import Text
from ..run.overwriting import refuse_overwriting
from ..safety.visible import visible
from .language import add_language, in_words, language_of
from .parser import Parser, formatter, parse, program

__all__ = ["run"]

SUMMARY = "what changed between two reports: tensors that got better or worse, culprits that came or went"

_CHANGES = {
    Change.WORSE: Text("worse", "变差"),
    Change.BETTER: Text("better", "变好"),
    Change.SAME: Text("same", "不变"),
    Change.LOST: Text("no longer compared", "不再比较"),
    Change.NEW: Text("newly compared", "新增比较"),
    Change.GONE: Text("gone", "已消失"),
}
_SHOWN = 20


def run(arguments: Sequence[str]) -> int:
    """Print the difference and write it where asked; 1 where something got worse."""
    parser: argparse.ArgumentParser = Parser(prog=program("diff"), formatter_class=formatter, description=__doc__)
    parser.add_argument("before", metavar="BEFORE", help="the earlier report, .json")
    parser.add_argument("after", metavar="AFTER", help="the later one")
    parser.add_argument(
        "--times", type=float, default=TIMES, help="an error must change by more than this factor (default 2)"
    )
    parser.add_argument(
        "--noise", type=float, default=NOISE, help="relative L2 errors below this do not count (default 1e-6)"
    )
    parser.add_argument("--output", metavar="FILE", default="", help="write it as .json or .md too")
    add_language(parser)
    parser.add_argument("--verbose", action="store_true", help="tracebacks")
    given = parse(parser, arguments)
    if not given.times >= 1:
        raise UsageError("must be at least 1", where="--times", hint="2 means twice or half the error")
    output = Path(given.output) if given.output else None
    if output is not None and output.suffix.lower() not in {".json", ".md"}:
        raise UsageError("a difference is written as .json or .md", where=str(output), hint="end the name in one")
    for source in (given.before, given.after):
        refuse_overwriting([output] if output is not None else [], source)
    found = difference(Report.load(given.before), Report.load(given.after), times=given.times, noise=given.noise)
    language = language_of(given.lang)
    sys.stdout.writelines(visible(line, keep="\n") + "\n" for line in _lines(found, language))
    if output is not None:
        with replacing(output) as temporary:
            if output.suffix.lower() == ".json":
                temporary.write_text(json.dumps(_plain(found), indent=1, ensure_ascii=False), encoding="utf-8")
            else:
                temporary.write_text("\n".join(_markdown(found, language)) + "\n", encoding="utf-8")
        sys.stdout.write(f"{visible(str(output))}\n")
    return int(found.regressed)


def _headline(found: Difference, language: str) -> str:
    sides = f"{found.before.verdict} -> {found.after.verdict}"
    told = ", ".join(
        f"{count} {in_words(_CHANGES[change], language)}" for change, count in found.counts.items() if count
    )
    return f"{sides}: {told}"


def _lines(found: Difference, language: str) -> Iterator[str]:
    yield _headline(found, language)
    for title, some in ((Text("new culprit", "新的罪魁"), found.fresh), (Text("no longer", "不再是"), found.gone)):
        for culprit in some:
            mode = found.after.target.mode
            yield f"{in_words(title, language)}: {in_words(sentence_of(culprit, mode), language)}"
    changed = found.of(Change.WORSE, Change.LOST, Change.GONE, Change.BETTER, Change.NEW)
    order = sorted(changed, key=lambda tensor: tensor.change in (Change.BETTER, Change.NEW))
    for tensor in order[:_SHOWN]:
        yield (
            f"{in_words(_CHANGES[tensor.change], language):8s} {_errors(tensor):28s} {_ratio(tensor):>10s}  "
            f"{tensor.op_type} {tensor.name}"
        )
    if len(order) > _SHOWN:
        yield f"… +{len(order) - _SHOWN}"


def _errors(tensor: Tensor) -> str:
    return " -> ".join("-" if row is None or row.relative_l2 is None else figure(row.relative_l2)
                       for row in (tensor.before, tensor.after))  # fmt: skip


def _ratio(tensor: Tensor) -> str:
    return "" if tensor.ratio is None else f"{tensor.ratio:.3g} x"


def _markdown(found: Difference, language: str) -> Iterator[str]:
    yield f"# {_headline(found, language)}"
    yield ""
    for line in list(_lines(found, language))[1 : 1 + len(found.fresh) + len(found.gone)]:
        yield f"- {_cell(line)}"
    yield ""
    yield "| | Rel L2 | | |"
    yield "|---|---|---|---|"
    for tensor in found.of(*(change for change in Change if change is not Change.SAME)):
        cells = (in_words(_CHANGES[tensor.change], language), _errors(tensor), _ratio(tensor),
                 f"{tensor.op_type} {tensor.name}")  # fmt: skip
        yield "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    plain = visible(text)
    for character in "\\`*_[]<>|#&":
        plain = plain.replace(character, f"\\{character}")
    return plain


def _plain(found: Difference) -> dict[str, Any]:
    def number(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    return {
        "before": {"verdict": str(found.before.verdict), "mode": found.before.target.mode},
        "after": {"verdict": str(found.after.verdict), "mode": found.after.target.mode},
        "regressed": found.regressed,
        "counts": {str(change): count for change, count in found.counts.items()},
        "culprits": {
            "fresh": [culprit.name for culprit in found.fresh],
            "gone": [culprit.name for culprit in found.gone],
        },
        "tensors": [
            {
                "name": tensor.name,
                "op_type": tensor.op_type,
                "change": str(tensor.change),
                "before": number(tensor.before.relative_l2) if tensor.before is not None else None,
                "after": number(tensor.after.relative_l2) if tensor.after is not None else None,
                "ratio": number(tensor.ratio),
            }
            for tensor in found.tensors
        ],
    }
