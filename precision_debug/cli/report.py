"""precision_debug report: write a report again in another format, or rescue one from an interrupted run.

SOURCE is a .json report, or the journal.jsonl of a run whose processes were all killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..report import write
from ..report.model import Report
from ..run.journal_report import report_of_journal
from ..run.overwriting import refuse_overwriting
from . import overlaid, summary
from .language import add_language
from .parser import Parser, formatter, parse, program
from .plots import show_plots

__all__ = ["load", "run"]

SUMMARY = "write a report again in another format, or rescue one from an interrupted run"


def run(arguments: Sequence[str]) -> int:
    """Write the outputs, print the summary, and return the report's exit status."""
    parser = Parser(prog=program("report"), formatter_class=formatter, description=__doc__)
    parser.add_argument("source", metavar="SOURCE", help="output.json or journal.jsonl")
    parser.add_argument(
        "--output", metavar="FILE", action="append", default=[], help="may be repeated; format by suffix, or NAME:FILE"
    )
    parser.add_argument(
        "--plots", metavar="N", type=int, nargs="?", const=1, default=0, help="draw the N worst tensors in the terminal"
    )
    add_language(parser)
    parser.add_argument("--verbose", action="store_true", help="tracebacks")
    given = parse(parser, arguments)
    outputs, shown = overlaid.asked(given.output)
    refuse_overwriting([*outputs, *shown.values()], given.source)
    report = load(Path(given.source))
    for output in outputs:
        write(report, output, language=given.lang)
    overlaid.write(report, shown)
    summary.show(report, outputs, language=given.lang)
    if given.plots:
        show_plots(report, given.plots, language=given.lang)
    return report.exit_status


def load(source: Path) -> Report:
    """The report in a .json or a journal. Raises OutputError, RecordingError."""
    return Report.load(source) if source.suffix != ".jsonl" else report_of_journal(source)
