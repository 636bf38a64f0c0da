"""What the terminal says of a finished report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..records import Row, Status
from ..report.blame import blame, culprits, expectation
from ..report.doubts import decides, worded
from ..report.fix import fix_lines
from ..report.model import Report, Verdict
from ..report.summary import shares
from ..safety.visible import visible

__all__ = ["lines", "show"]

_STYLE = {
    Verdict.PASS: "bold green",
    Verdict.EXPECTED: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.PARTIAL: "bold yellow",
}
_ROW_STYLE = {Status.FAIL: "red", Status.INCONCLUSIVE: "yellow"}


def show(report: Report, outputs: Sequence[Path]) -> None:
    """Print the summary to standard output, coloured on a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for style, text in lines(report, outputs):
        console.print(Text(visible(text), style=style))


def lines(report: Report, outputs: Sequence[Path] = ()) -> Iterator[tuple[str, str]]:
    """Style and text of each line: verdict, first mismatch, worst operators, outputs, scores, notes, files."""
    target, baseline = report.target, report.baseline
    simulated = " (a simulation)" if target.simulation else ""
    yield (
        _STYLE[report.verdict],
        f"{report.verdict.value.upper()}  {target.mode}{simulated} against {baseline.mode}, {target.model}",
    )
    if report.failure:
        yield "yellow", f"  ended early       {report.failure}"
    yield from fix_lines(report)
    for sentence in expectation(report):
        yield "", f"  {sentence.en}"
    for text in said(report):
        yield "bold", f"  {text}"
    counts = report.counts
    parts = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
    yield "", f"  tensors           {len(report.rows)}: " + (", ".join(parts) or "none")
    if report.rows:
        yield "", f"  covered           {shares(report).en}"
    for doubt in report.doubts:
        label = "not proven" if decides(doubt) else "mind"
        yield "yellow", f"  {label:18s}{worded(doubt).en}"
    first = report.first_mismatch
    if first is not None:
        yield "", f"  first mismatch    {describe(first)}"
        worst = report.worst(5)
        if worst and not culprits(report):
            yield "", "  worst operators   (by the error that the operator itself added)"
            for row in worst:
                yield "", f"                    {describe(row)}"
    broken = report.first_non_finite
    if broken is not None:
        yield "yellow", f"  first NaN or Inf  #{broken.index} {broken.op_type} {broken.name}: {broken.non_finite}"
    if report.outputs:
        yield "", "  final outputs"
        for row in report.outputs[:10]:
            yield _ROW_STYLE.get(row.status, ""), f"    {row.status.value:15s} {describe(row)}"
        if len(report.outputs) > 10:
            yield "", f"    … and {len(report.outputs) - 10} more"
    if report.scores:
        shares_of = ", ".join(f"{name} {value:.2%}" for name, value in report.scores.items())
        yield "", f"  on the answer     {shares_of}" + (f" (n = {report.scored})" if report.scored else "")
    missing = Counter(row.reason for row in report.rows if row.status is Status.NOT_COMPARED)
    for reason, count in missing.most_common(5):
        yield "yellow", f"  not compared      {count}: {reason}"
    for note in dict.fromkeys(report.notes):
        yield "dim", f"  note              {note}"
    for note in dict.fromkeys((*baseline.notes, *target.notes)):
        whose = [side for side, info in (("baseline", baseline), ("target", target)) if note in info.notes]
        yield "dim", f"  note              {' and '.join(whose)}: {note}"
    for output in outputs:
        yield "", f"  report            {output}"
    if outputs and report.inputs_file:
        yield "", f"  inputs            {outputs[0].parent / report.inputs_file} ({report.inputs_source})"


def said(report: Report) -> Iterator[str]:
    """Who did it, and why, in a sentence each."""
    for line in blame(report).lines:
        yield " ".join(cell.text.en for cell in line if cell.text.en)


def describe(row: Row) -> str:
    """One row in words: place, operator, tensor, and the numbers that say how bad it is."""
    text = f"#{row.index} {row.op_type} {row.name}"
    comparison = row.comparison
    if comparison is None:
        return f"{text}: {row.reason}"
    if not comparison.shapes_match:
        return f"{text}: {row.shape_text}"
    parts = []
    if row.status is Status.INCONCLUSIVE:
        return f"{text}: {row.reason}"
    if comparison.identical and row.status is Status.PASS:
        return f"{text}: identical"
    if comparison.mismatched is not None and comparison.base.elements:
        share = comparison.mismatched / comparison.base.elements
        parts.append(f"{comparison.mismatched} of {comparison.base.elements} elements ({share:.2%})")
    if comparison.max_abs is not None:
        parts.append(f"max abs {comparison.max_abs:.3g}")
    if comparison.sqnr_db is not None and math.isfinite(comparison.sqnr_db):
        parts.append(f"SQNR {comparison.sqnr_db:.1f} dB")
    if row.error_growth is not None and math.isfinite(row.error_growth) and row.error_growth != 1:
        parts.append(f"{row.error_growth:.3g} x its inputs' error")
    for what, ours, theirs in (
        ("NaN", comparison.target.nan, comparison.base.nan),
        ("Inf", comparison.target.inf, comparison.base.inf),
    ):
        if ours != theirs or (ours and row.status is Status.FAIL):
            parts.append(f"{ours} {what} (baseline {theirs})")
    return f"{text}: " + ", ".join(parts)
