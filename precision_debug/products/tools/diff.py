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

from ...claims import exit_status_of
from ...cli.parser import choose_language, make_flag, make_verb_parser, parse
from ...codec import encode, json_text
from ...errors import UsageError
from ...reasons import Text, say
from ...report.atomic_file import replace_atomically
from ...report.difference import NOISE, TIMES, Difference, compare_reports
from ...report.formats.md import escape_text
from ...report.model import Report
from ...report.words import measure_text_width, wrap_text
from ...run.companion_files import refuse_overwriting
from ...run.content import with_changes
from ...safety.untrusted import make_visible
from .difference_reports import (
    CHANGES,
    format_errors,
    format_ratio,
    list_sentences,
    make_difference_page,
    order_tensors,
    write_difference_book,
)

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
    args = parse(make_verb_parser("diff", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
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
    found = compare_reports(before, after, times=args.times, noise=args.noise)  # the earlier model may well be gone
    language = choose_language(args.lang)
    sys.stdout.writelines(make_visible(line, keep="\n") + "\n" for line in _format_lines(found, language))
    for output in outputs:
        with replace_atomically(output) as temporary:
            _write(found, temporary, output.suffix.lower(), args.lang)
        sys.stdout.write(f"{make_visible(str(output))}\n")
    return exit_status_of([found.verdict])


_FLAGS = (
    make_flag("before", "the earlier report, .json", "较早的报告，.json", metavar="BEFORE"),
    make_flag("after", "the later one", "较晚的报告", metavar="AFTER"),
    make_flag("--times", "an error must change by more than this factor (default 2)",
    "误差变化超过此倍数才算（默认 2）",
         type=float, default=TIMES),
    make_flag("--noise", "relative L2 errors below this do not count (default 1e-6)",
         "低于此值的相对 L2 误差不计（默认 1e-6）", type=float, default=NOISE),
    make_flag("--output", "also write it as .xlsx, .html, .md or .json; repeatable",
         "另存为 .xlsx、.html、.md 或 .json；可重复", metavar="FILE", action="append", default=[]),
)  # fmt: skip


def _write(found: Difference, path: Path, suffix: str, asked: str) -> None:
    if suffix == ".xlsx":
        write_difference_book(found, path)
        return
    text = (
        json_text(_to_plain_values(found), indent=1) if suffix == ".json"
        else make_difference_page(found, asked) if suffix == ".html"
        else "\n".join(_format_markdown(found, choose_language(asked))) + "\n"
    )  # fmt: skip
    path.write_text(text, encoding="utf-8")


def _format_lines(found: Difference, language: str) -> Iterator[str]:
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for text in list_sentences(found):
        said = text.of(language).replace("`", "")
        yield from wrap_text(said, wide) if wide else [said]
    changed = order_tensors(found)
    if changed:
        yield ""
    for tensor in changed[:_SHOWN]:
        what = CHANGES[tensor.change].of(language)
        name = f"{tensor.op_type} {tensor.name}"
        line = (
            f"{what}{' ' * (_WHAT - measure_text_width(what))} {format_errors(tensor):24s}"
            f" {format_ratio(tensor):>10s}  "
        )
        room = max(16, wide - measure_text_width(line)) if wide else len(name)
        yield line + (name if len(name) <= room else f"…{name[1 - room :]}")
    if len(changed) > _SHOWN:
        more = len(changed) - _SHOWN
        yield Text(f"… and {more} more", f"……另有 {more} 个").of(language)


_WHAT = max(measure_text_width(part) for name in CHANGES.values() for part in name)


def _format_markdown(found: Difference, language: str) -> Iterator[str]:
    first, *more = (text.of(language) for text in list_sentences(found))
    yield f"# {escape_text(first)}"
    yield ""
    for line in more:
        yield f"- {escape_text(line)}"
    yield ""
    yield "| | Rel L2 | | |"
    yield "|---|---|---|---|"
    for tensor in order_tensors(found):
        cells = (CHANGES[tensor.change].of(language), format_errors(tensor), format_ratio(tensor),
                 f"{tensor.op_type} {tensor.name}")  # fmt: skip
        yield "| " + " | ".join(map(escape_text, cells)) + " |"


def _to_plain_values(found: Difference) -> dict[str, Any]:
    return {
        "before": {"verdict": str(found.before.verdict), "mode": found.before.target.mode},
        "after": {"verdict": str(found.after.verdict), "mode": found.after.target.mode},
        "regressed": found.regressed,
        "difference": str(found.verdict),
        "claims": [encode(claim) for claim in found.claims],
        "counts": {str(change): count for change, count in found.counts.items()},
        "sentences": [text.en for text in list_sentences(found)],
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
