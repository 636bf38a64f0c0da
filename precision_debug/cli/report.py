"""precision_debug report: write a report again in another format, or rescue one from an interrupted run.

SOURCE is a .json report, or the journal.jsonl of a run that was killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import registry
from ..report import write
from ..report.model import Report
from ..run.content import report_of_journal, with_changes
from . import overlay_outputs, summary
from .parser import make_flag, make_verb_parser, parse

__all__ = ["load", "run"]

SUMMARY = "write a report again in another format, or rescue one from an interrupted run"
SUMMARY_ZH = "以其他格式重写报告，或从中断的运行中恢复报告"

DESCRIPTION_ZH = """precision_debug report：以其他格式重写报告，或从中断的运行中恢复报告。

SOURCE 是 .json 报告，或进程全部被终止的运行所留下的 journal.jsonl。
"""


def run(arguments: Sequence[str]) -> int:
    """Write the outputs, print the summary, and return the report's exit status."""
    args = parse(make_verb_parser("report", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    outputs, shown = overlay_outputs.split_outputs(args.output)
    overlay_outputs.refuse(outputs, shown, args.source)
    report = with_changes(load(Path(args.source)), args.source)
    for output in outputs:
        write(report, output, language=args.lang)
    overlay_outputs.write(report, shown)
    summary.show(report, outputs, language=args.lang)
    if args.plots:
        registry.import_from_door("options", "plots")(report, args.plots, language=args.lang)
    return report.exit_status


_FLAGS = (
    make_flag("source", "output.json or journal.jsonl", "output.json 或 journal.jsonl", metavar="SOURCE"),
    make_flag("--output", "repeatable; format by suffix, or NAME:FILE", "可重复；格式由后缀或 NAME:FILE 决定",
         metavar="FILE", action="append", default=[]),
    make_flag("--plots", "draw the N worst tensors in the terminal", "在终端绘制误差最大的 N 个张量", metavar="N",
    type=int,
         nargs="?", const=1, default=0),
)  # fmt: skip


def load(source: Path) -> Report:
    """Return the report in a .json or a journal. Raises OutputError, RecordingError."""
    return Report.load(source) if source.suffix != ".jsonl" else report_of_journal(source)
