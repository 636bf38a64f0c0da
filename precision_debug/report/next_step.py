"""What to do about a culprit, or about an error of many: what was tried, what to paste, and what to type next."""

from __future__ import annotations

import re
import shlex

from ..explain import is_mended, is_of_many
from ..reasons import Text, same
from ..reasons.causes import CAUSES
from ..search.fix import ToKeep
from .fix import OF_THE_ENGINE, describe_other_fix, describe_tried
from .model import Report
from .sections import Cell, plain_cell
from .words import explain_reason

__all__ = [
    "FIX",
    "NEXT",
    "OR",
    "PASTE",
    "PROGRAM",
    "make_search_command",
    "search_command",
    "suggest_for_culprits",
    "suggest_for_diffuse",
]


# The command of a comparison as the search that follows it.

_VERB = "precision_debug"

_LEFT_OUT = (
    "--output", "--record", "--lang", "--gen_script", "--plots", "--checkpoint", "--demo_sheet", "--quiet", "--verbose",
)  # fmt: skip
"""Of a comparison's options, those that say where it goes, in which language and how loud: a search has a report of its
own."""

_SHORT = re.compile("-[oqv]")
"""The same by their letters: -o r.html, -or.html, -qo r.html."""

_DROP = "1%"
"""How much worse a metric may get in the search for what to keep, where nobody said it of the comparison."""


def search_command(command: str) -> str:
    """In backquotes; "" where the command is none that was typed, or is not of a comparison.

    "python -m precision_debug --model_file m.onnx --run_mode ov_int8 --output a.xlsx" becomes
    "`python -m precision_debug search --model_file m.onnx --run_mode ov_int8`".
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    place = words.index(_VERB) + 1 if _VERB in words else 0
    if not place or place >= len(words) or not words[place].startswith("--"):
        return ""
    kept: list[str] = []
    skipping = False
    for word in words[place:]:
        if re.match(r"--?[A-Za-z]", word):
            name = word.partition("=")[0].replace("-", "_").replace("__", "--", 1)
            skipping = name in _LEFT_OUT or _SHORT.match(word) is not None
        if not skipping:
            kept.append(word)
    named = {word.partition("=")[0] for word in kept}
    if "--metric" in named and not named & {"--metric_drop", "--limit"}:
        kept += ["--metric_drop", _DROP]
    return f"`{shlex.join([*words[:place], 'search', *kept])}`"


PASTE = Text("Paste", "可粘贴")
PROGRAM = Text("In your program", "用于您的程序")
MIND = Text("Mind", "注意")
FIX = Text("Fix", "修复")
OR = Text("Or", "或者")
NEXT = Text("Next", "下一步")


def suggest_for_culprits(report: Report) -> list[tuple[Cell, ...]]:
    """Return what to paste so that the culprits are kept, and what finds less to keep and verifies it."""
    target, explanation = report.target, report.explanation
    named = explanation.culprits if explanation is not None else ()
    kept = report.to_keep
    for one in named:
        known = CAUSES.get(one.cause)
        option = one.evidence.get(known.pastes) if known is not None else None
        if option:
            lines: list[tuple[Cell, ...]] = [(Cell(text=PASTE), Cell(text=same(str(option)), tone="paste"))]
            tried = describe_tried(report) if kept is not None and kept.off else None
            if kept is None or tried is None:
                return lines
            return [*([] if kept.option else lines), *_format_tried(report, kept, tried)]
    own = kept is not None and kept.unit in OF_THE_ENGINE
    mended = any(is_mended(one.cause, target.precision) for one in named)
    if report.fix is not None or not (own or mended):
        return []
    if kept is None:
        return [(Cell(text=NEXT), plain_cell(make_search_command(report)))]
    tried = describe_tried(report)
    if tried is None:
        return [(Cell(text=NEXT), plain_cell(_explain_no_option(target.mode, kept)))]
    return _format_tried(report, kept, tried)


def _format_tried(report: Report, kept: ToKeep, tried: Text) -> list[tuple[Cell, ...]]:
    """Return what was tried, what to paste, and what looks for less to keep."""
    lines: list[tuple[Cell, ...]] = [(Cell(text=FIX), plain_cell(tried))]
    if kept.option:
        lines.append((Cell(text=PASTE), Cell(text=same(kept.option), tone="paste")))
    if kept.option and kept.caution:
        lines.append((Cell(text=MIND), plain_cell(explain_reason(kept.caution))))
    if kept.option and kept.text:
        lines.append((Cell(text=PROGRAM), Cell(text=same(kept.text), tone="paste")))
    for other in kept.beside:
        lines.append((Cell(text=OR), plain_cell(describe_other_fix(report, other))))
        lines.append((Cell(text=PASTE), Cell(text=same(other.option), tone="paste")))
        if other.caution:
            lines.append((Cell(text=MIND), plain_cell(explain_reason(other.caution))))
    if kept.unit not in OF_THE_ENGINE:
        lines.append((Cell(text=NEXT), plain_cell(make_search_command(report))))
    return lines


def suggest_for_diffuse(report: Report) -> list[tuple[Cell, ...]]:
    """Return the same of an error that nobody is named for: what was tried on the engine, and what to type next."""
    explanation, kept, tried = report.explanation, report.to_keep, describe_tried(report)
    if explanation is None or not is_of_many(explanation) or report.fix is not None or kept is None:
        return []
    if tried is None:
        return [] if kept.why else [(Cell(text=NEXT), plain_cell(_explain_no_option(report.target.mode, kept)))]
    return _format_tried(report, kept, tried)


def make_search_command(report: Report) -> Text:
    """Return the search that follows a comparison, as it is typed where the comparison was typed."""
    kept, command = report.to_keep, report.spec.command
    off = kept.off if kept is not None and command and not kept.replaced else ""
    typed = search_command(f"{command} {off}".strip())
    return Text(
        f"{typed or 'precision_debug search, with the same options,'} finds the smallest set to keep, verifies it, and"
        " writes the model",
        f"{f'运行 {typed} ' if typed else '以相同选项运行 precision_debug search，'}可找出需保留的最小集合，加以验证并"
        "交付模型",
    )


def _explain_no_option(mode: str, kept: ToKeep) -> Text:
    why = explain_reason(kept.why)
    en, zh = (f" ({why.en})", f"（{why.zh}）") if kept.why else ("", "")
    if kept.modes:
        return Text(
            f"{mode} has no setting that keeps single operators{en}: precision_debug search in"
            f" {' or '.join(kept.modes)} finds what to keep",
            f"{mode} 没有可保留单个算子的设置{zh}：在 {' 或 '.join(kept.modes)} 中运行 precision_debug search"
            " 可找出应保留的算子",
        )
    return Text(
        f"{mode} has no setting that keeps single operators{en}: leave them out where the model is quantised, converted"
        " or built, and compare again",
        f"{mode} 没有可保留单个算子的设置{zh}：请在量化、转换或构建模型时排除这些算子，然后重新对比",
    )
