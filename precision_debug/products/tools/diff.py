"""precision_debug diff: what changed between two reports, such as before and after a fix or a release, or on another
card.

BEFORE and AFTER are .json reports. Tensors are matched by name; what got worse comes first. Exit status 0 if nothing
got worse, 1 if something did, or too little was compared to say so, 3 if the later run ended early.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...claims import status_of
from ...cli.parser import flag, language_of, parse, verb_parser
from ...codec import encode, json_text
from ...errors import UsageError
from ...reasons import Text, say
from ...report.atomic_file import replacing
from ...report.difference import NOISE, TIMES, Difference, difference
from ...report.formats.md import plain
from ...report.model import Report
from ...report.words import text_width, wrapped
from ...run.companion_files import refuse_overwriting
from ...run.content import with_changes
from ...safety.untrusted import visible
from .difference_reports import CHANGES, difference_book, difference_page, errors, ordered, ratio, sentences

__all__ = ["run"]

SUMMARY = "what changed between two reports: tensors that got better or worse, culprits that came or went"
SUMMARY_ZH = "两份报告之间的变化：哪些张量变好或变差，哪些元凶出现或消失"

DESCRIPTION_ZH = """precision_debug diff：两份报告之间的变化，例如修复、升级或更换显卡前后。

BEFORE 与 AFTER 是 .json 报告。张量按名字对应，变差的排在前面。
没有变差时退出码为 0；有变差或比较得太少为 1；较晚的运行提前结束为 3。
"""

_SHOWN = 20
"""Tensors that the terminal lists."""
_SUFFIXES = (".json", ".md", ".html", ".xlsx")


def run(arguments: Sequence[str]) -> int:
    """Print the difference and write it where asked; 1 where something got worse."""
    args = parse(verb_parser("diff", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    if not args.times >= 1:
        raise UsageError("must be at least 1", where="--times", hint="2 means twice or half the error")
    if not args.noise >= 0:
        raise UsageError("must be 0 or greater", where="--noise", hint="1e-6 is typical")
    outputs = [Path(path) for path in args.output]
    for output in outputs:
        if output.suffix.lower() not in _SUFFIXES:
            known = ", ".join(_SUFFIXES)
            raise UsageError(say("no_difference_format", known=known), where=str(output), hint=say("end_the_name"))
    for source in (args.before, args.after):
        refuse_overwriting(outputs, source)
    before, after = Report.load(args.before), with_changes(Report.load(args.after), args.after)
    found = difference(before, after, times=args.times, noise=args.noise)  # the earlier model may well be gone
    language = language_of(args.lang)
    sys.stdout.writelines(visible(line, keep="\n") + "\n" for line in _lines(found, language))
    for output in outputs:
        with replacing(output) as temporary:
            _write(found, temporary, output.suffix.lower(), args.lang)
        sys.stdout.write(f"{visible(str(output))}\n")
    return status_of([found.verdict])


_FLAGS = (
    flag("before", "the earlier report, .json", "较早的报告，.json", metavar="BEFORE"),
    flag("after", "the later one", "较晚的报告", metavar="AFTER"),
    flag("--times", "an error must change by more than this factor (default 2)", "误差变化超过此倍数才算（默认 2）",
         type=float, default=TIMES),
    flag("--noise", "relative L2 errors below this do not count (default 1e-6)",
         "低于此值的相对 L2 误差不计（默认 1e-6）", type=float, default=NOISE),
    flag("--output", "also write it as .xlsx, .html, .md or .json; repeatable",
         "另存为 .xlsx、.html、.md 或 .json；可重复", metavar="FILE", action="append", default=[]),
)  # fmt: skip


def _write(found: Difference, path: Path, suffix: str, asked: str) -> None:
    if suffix == ".xlsx":
        difference_book(found, path)
        return
    text = (
        json_text(_plain(found), indent=1) if suffix == ".json"
        else difference_page(found, asked) if suffix == ".html"
        else "\n".join(_markdown(found, language_of(asked))) + "\n"
    )  # fmt: skip
    path.write_text(text, encoding="utf-8")


def _lines(found: Difference, language: str) -> Iterator[str]:
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for text in sentences(found):
        said = text.of(language).replace("`", "")
        yield from wrapped(said, wide) if wide else [said]
    changed = ordered(found)
    if changed:
        yield ""
    for tensor in changed[:_SHOWN]:
        what = CHANGES[tensor.change].of(language)
        name = f"{tensor.op_type} {tensor.name}"
        line = f"{what}{' ' * (_WHAT - text_width(what))} {errors(tensor):24s} {ratio(tensor):>10s}  "
        room = max(16, wide - text_width(line)) if wide else len(name)
        yield line + (name if len(name) <= room else f"…{name[1 - room :]}")
    if len(changed) > _SHOWN:
        more = len(changed) - _SHOWN
        yield Text(f"… and {more} more", f"……另有 {more} 个").of(language)


_WHAT = max(text_width(part) for name in CHANGES.values() for part in name)


def _markdown(found: Difference, language: str) -> Iterator[str]:
    first, *more = (text.of(language) for text in sentences(found))
    yield f"# {plain(first)}"
    yield ""
    for line in more:
        yield f"- {plain(line)}"
    yield ""
    yield "| | Rel L2 | | |"
    yield "|---|---|---|---|"
    for tensor in ordered(found):
        cells = (CHANGES[tensor.change].of(language), errors(tensor), ratio(tensor),
                 f"{tensor.op_type} {tensor.name}")  # fmt: skip
        yield "| " + " | ".join(map(plain, cells)) + " |"


def _plain(found: Difference) -> dict[str, Any]:
    return {
        "before": {"verdict": str(found.before.verdict), "mode": found.before.target.mode},
        "after": {"verdict": str(found.after.verdict), "mode": found.after.target.mode},
        "regressed": found.regressed,
        "difference": str(found.verdict),
        "claims": [encode(claim) for claim in found.claims],
        "counts": {str(change): count for change, count in found.counts.items()},
        "sentences": [text.en for text in sentences(found)],
        "culprits": {
            "fresh": [culprit.name for culprit in found.fresh],
            "gone": [culprit.name for culprit in found.gone],
        },
        "tensors": [
            {
                "name": tensor.name,
                "op_type": tensor.op_type,
                "change": str(tensor.change),
                "before": encode(tensor.before.relative_l2) if tensor.before is not None else None,
                "after": encode(tensor.after.relative_l2) if tensor.after is not None else None,
                "ratio": encode(tensor.ratio),
            }
            for tensor in found.tensors
        ],
    }
