"""The summary and the rows out of tolerance as GitHub-flavoured Markdown, short enough to paste into an issue."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from ...errors import OutputError, UsageError
from ...reasons import Text
from ...records import Row, Status
from ...safety.untrusted import make_visible
from ..lead import lead_sentences
from ..model import Report, Verdict
from ..next_step import PROGRAM
from ..sections import Cell, Section
from ..summary import summarise
from ..values import compute_growth
from ..words import count, format_figure

__all__ = [
    "ROWS_SHOWN",
    "VARIABLE",
    "append",
    "escape_text",
    "format_head",
    "format_lines",
    "inline_code",
    "make_annotation",
    "step_summary_file",
    "write",
]


ROWS_SHOWN = 100
"""Rows out of tolerance that are listed; how many more there are is said."""

_MARKS = {"good": "✅", "bad": "❌", "warn": "⚠️"}
_FAILED_HEAD = (
    "Order",
    "Operator Type",
    "Tensor Name",
    "Shape",
    "Mismatched",
    "Max Atol",
    "Max Rtol",
    "Rel L2",
    "Growth",
)


def write(report: Report, path: Path) -> None:
    """Headings and sentences in both languages; of the table only what is out of tolerance."""
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for line in format_lines(report):
            file.write(line + "\n")


def format_lines(report: Report) -> Iterator[str]:
    """Yield the whole."""
    yield from format_head(report)
    for section in summarise(report).sections:
        yield ""
        yield f"## {section.title}"
        yield ""
        yield from _format_table(section) if section.head else _format_pairs(section)
    yield from _format_failed(report)


def format_head(report: Report) -> Iterator[str]:
    """Yield the verdict and the sentences about it."""
    content = summarise(report)
    target, baseline = report.target, report.baseline
    yield f"# {_MARKS[content.tone]} {content.headline}"
    yield ""
    yield (
        f"{inline_code(report.spec.model.path or target.model or '?')}: {inline_code(target.mode)} vs."
        f" {inline_code(baseline.mode)}"
    )
    yield ""
    for sentence in content.lead:
        yield f"**{_format_sentence(sentence)}**"
        yield ""
    for sentence in content.details:
        yield f"- {_format_sentence(sentence)}"


def _format_pairs(section: Section) -> Iterator[str]:
    label = ""
    for first, *rest in section.lines:
        label = first.text.en or label
        indent = "" if first.text.en else "  "
        head = f"**{escape_text(label)}**: " if first.text.en else ""
        if rest and rest[-1].tone == "paste":
            fenced = _fence_code(rest[-1].text.en, "python" if first.text == PROGRAM else "bash")
            yield from (f"{indent}- {head}".rstrip(), *(f"{indent}  {line}" for line in fenced))
            continue
        yield f"{indent}- {head}{' '.join(map(_format_cell, rest))}"


def _fence_code(text: str, language: str) -> list[str]:
    """Return what is to be copied: nothing in it is changed, and pages that show Markdown have a button for it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [f"{fence}{language}", *make_visible(text, keep="\n").splitlines(), fence]


def _format_table(section: Section) -> Iterator[str]:
    rights = [any(line[n].right for line in section.lines) for n in range(len(section.head))]
    yield from _format_rows(
        [title.en for title in section.head], rights, [[_format_cell(c) for c in line] for line in section.lines]
    )


def _format_failed(report: Report) -> Iterator[str]:
    failed = [row for row in report.rows if row.status is Status.FAIL]
    if not failed:
        return
    yield ""
    yield f"## {Text(f'Out of tolerance: {count(len(failed))} tensors', f'超出容差的张量：{count(len(failed))} 个')}"
    yield ""
    rights = [True, False, False, False, True, True, True, True, True]
    yield from _format_rows(_FAILED_HEAD, rights, (_format_numbers(row) for row in failed[:ROWS_SHOWN]))
    if len(failed) > ROWS_SHOWN:
        yield ""
        yield f"… and {count(len(failed) - ROWS_SHOWN)} more: they are in the other formats (.xlsx .csv .json .html)."


def _format_numbers(row: Row) -> list[str]:
    numbers = row.comparison
    errors = (None, None, None) if numbers is None else (numbers.mismatched, numbers.max_abs, numbers.max_rel)
    return [
        str(row.index), escape_text(row.op_type), inline_code(row.name), escape_text(row.shape_text),
        "" if errors[0] is None else count(errors[0]), format_figure(errors[1]), format_figure(errors[2]),
        format_figure(row.relative_l2), format_figure(compute_growth(row)),
    ]  # fmt: skip


def _format_rows(head: Sequence[str], rights: Sequence[bool], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---:' if right else '---' for right in rights)}|"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def _format_cell(cell: Cell) -> str:
    if cell.text.en and (cell.tone in ("code", "paste") or cell.row is not None):
        return inline_code(cell.text.en)
    if cell.file:
        return f"[{escape_text(cell.text.en)}]({quote(cell.file)})"
    return _format_sentence(cell.text)


def _format_sentence(text: Text) -> str:
    return _format_names(text.en) if text.en == text.zh else f"{_format_names(text.en)} {_format_names(text.zh)}"


def _format_names(text: str) -> str:
    """Return a sentence in which names stand between backticks, as the page shows them."""
    parts = re.split("`([^`]+)`", " ".join(text.split()))
    return "".join(inline_code(part) if place % 2 else _escape_characters(part) for place, part in enumerate(parts))


def escape_text(text: str) -> str:
    """Return the text that Markdown shows as it is, on one line and inside a table."""
    return _escape_characters(" ".join(text.split()))


def _escape_characters(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", make_visible(text))


def inline_code(text: str) -> str:
    """Inline code that survives backticks, bars and line ends."""
    text = make_visible(" ".join(text.split())).replace("|", "\\|")
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


# The report in a step of GitHub Actions: Markdown in the file that GITHUB_STEP_SUMMARY names, and one annotation.
#
# Source of the variables, of the limit and of what is escaped: GitHub's documentation of workflow commands, "Adding a
# job summary" and "Setting an error message", and its toolkit's packages/core/src/command.ts.

VARIABLE = "GITHUB_STEP_SUMMARY"

_MOST = 1 << 20
"""Bytes of a step's summary; of a longer one GitHub shows nothing."""


def step_summary_file() -> Path | None:
    """Return the file of the step that this runs in; None outside of GitHub Actions."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else None


def make_annotation(report: Report, *, title: str = "", language: str = "en") -> str:
    """Return the line that GitHub shows beside the step, for a report that does not pass; "" elsewhere.

    title: what was compared, in place of the report's model and run mode. The first sentence is its text; where the
    verdict is open it warns.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true" or report.exit_status == 0:
        return ""
    level = "warning" if report.verdict in (Verdict.INCONCLUSIVE, Verdict.PARTIAL) else "error"
    named = title or f"{report.target.mode} {Path(report.spec.model.path).name}"
    for plain, written in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), (":", "%3A"), (",", "%2C")):
        named = named.replace(plain, written)
    text = lead_sentences(report)[0].of(language)
    for plain, written in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(plain, written)
    return f"::{level} title={named}::{text}"


def append(report: Report, path: Path | None = None, *, title: str = "") -> None:
    """Add a report below what is there: whole, or its first sentences where the whole would be too long.

    path: in place of the step's file. title: a heading of its own before it. Raises UsageError outside of GitHub
    Actions, and OutputError where the file cannot be written.
    """
    path = path or step_summary_file()
    if path is None:
        raise UsageError(f"{VARIABLE} is not set", hint="this is for a step of GitHub Actions")
    heading = [f"## {escape_text(title)}", ""] if title else []
    try:
        room = _MOST - (path.stat().st_size if path.exists() else 0)
        for part in (format_lines(report), format_head(report)):
            data = ("\n".join([*heading, *part]) + "\n\n").encode("utf-8", "backslashreplace")
            if len(data) <= room:
                with path.open("ab") as file:
                    file.write(data)
                return
    except OSError as error:
        what = f"the step's summary cannot be written ({error.strerror})"
        raise OutputError(what, where=str(path), hint=f"see what {VARIABLE} names") from error
