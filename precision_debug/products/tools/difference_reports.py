"""Write the difference of two reports: sentences, a page, a workbook."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...reasons import Text
from ...records import Culprit, Row, Status
from ...report.blame import describe_culprit
from ...report.difference import Change, Difference, Tensor
from ...report.doubts import describe_doubt
from ...report.formats.html.text import both_languages, escape_html, make_small_page
from ...report.formats.xlsx.formats import TONES, Formats, fit_cell_text, set_up_paper, write_sentences
from ...report.summary import STATUS_NAME, STATUS_TONE, VERDICT_NAME
from ...report.words import count, explain_reason, format_figure, measure_text_width

__all__ = [
    "CHANGES",
    "format_errors",
    "format_ratio",
    "list_sentences",
    "make_difference_page",
    "order_tensors",
    "write_difference_book",
]


# What a difference between two reports says, in sentences: what got worse, what got better, who did it.

CHANGES = {
    Change.WORSE: Text("worse", "变差"),
    Change.LOST: Text("no longer compared", "不再比较"),
    Change.GONE: Text("gone", "已消失"),
    Change.BETTER: Text("better", "变好"),
    Change.NEW: Text("newly compared", "新增比较"),
    Change.SAME: Text("same", "不变"),
}
"""Each change in words, in the order in which they matter."""

TONE_OF = {
    Change.WORSE: "bad", Change.LOST: "bad", Change.GONE: "bad", Change.BETTER: "good", Change.NEW: "muted",
    Change.SAME: "",
}  # fmt: skip
"""As in ``section.Cell``."""


def list_sentences(found: Difference) -> list[Text]:
    """The first one stands alone: whether anything got worse, and what the most."""
    stale = [describe_doubt(doubt) for doubt in found.after.doubts if doubt.code == "model_changed"]
    said = [*stale, _first_sentence(found)]
    said += [_describe_culprit(Text("New culprit:", "新的元凶："), culprit, found) for culprit in found.fresh]
    said += _describe_output(found)
    said.append(_compare_verdicts(found))
    for one in found.gone:
        said.append(Text(f"No longer a culprit: `{one.name}`.", f"不再是元凶：`{one.name}`。"))
    counted = [(found.counts[change], name) for change, name in CHANGES.items() if found.counts[change]]
    said.append(
        Text(
            "Tensors: " + ", ".join(f"{count(number)} {name.en}" for number, name in counted) + ".",
            "张量：" + "，".join(f"{name.zh} {count(number)}" for number, name in counted) + "。",
        )
    )
    return said


def order_tensors(found: Difference) -> list[Tensor]:
    """Return every tensor that changed: what is worse before what is better, the largest change of a kind first."""
    return [tensor for change in CHANGES if change is not Change.SAME for tensor in found.of(change)]


def format_errors(tensor: Tensor) -> str:
    """Return both relative L2 errors of a tensor, as "0.0122 -> 0.00094"; "-" where there is none."""
    return " -> ".join("-" if row is None or row.relative_l2 is None else format_figure(row.relative_l2)
                       for row in (tensor.before, tensor.after))  # fmt: skip


def format_ratio(tensor: Tensor) -> str:
    """Return the later error over the earlier one; "" where that says nothing."""
    factor = tensor.ratio
    return "" if factor is None or not factor or not math.isfinite(factor) else f"{factor:.3g} x"


def _first_sentence(found: Difference) -> Text:
    worse, better = found.of(Change.WORSE), found.of(Change.BETTER)
    lost = len(found.of(Change.LOST, Change.GONE))
    if found.after.failure:
        why = explain_reason(found.after.failure)
        return Text(
            f"The later run ended early ({why.en}), so nothing is known of what it did not reach.",
            f"较晚的运行提前结束（{why.zh}），未到达之处一无所知。",
        )
    if worse:
        return _largest_change_text(worse, Text("got worse", "变差"))
    if lost:
        verb, noun = ("is", "tensor") if lost == 1 else ("are", "tensors")
        return Text(
            f"Nothing got worse, but {count(lost)} {noun} {verb} no longer compared.",
            f"没有张量变差，但有 {count(lost)} 个张量不再比较。",
        )
    if found.fresh:
        return Text("No tensor got worse, but there is a new culprit.", "没有张量变差，但出现了新的元凶。")
    if better:
        most = _largest_change_text(better, Text("got better", "变好"))
        return Text(f"Nothing got worse. {most.en}", f"没有张量变差。{most.zh}")
    return Text("Nothing got worse or better.", "没有变差，也没有变好。")


def _largest_change_text(some: Sequence[Tensor], became: Text) -> Text:
    worst = some[0]  # what became NaN or Inf is first, and has no ratio
    if "inf" not in format_errors(worst):
        worst = next((tensor for tensor in some if format_ratio(tensor)), worst)
    times = f" ({format_ratio(worst)})" if format_ratio(worst) else ""
    shi = f"（{format_ratio(worst)}）" if times else ""
    tensors = "1 tensor" if len(some) == 1 else f"{count(len(some))} tensors"
    name = f"{worst.op_type} `{worst.name}`"
    return Text(
        f"{tensors} {became.en}, {name} the most: {format_errors(worst).replace('->', 'to')}{times}.",
        f"{count(len(some))} 个张量{became.zh}，变化最大的是 {name}：{format_errors(worst).replace('->', '到')}{shi}。",
    )


def _describe_output(found: Difference) -> list[Text]:
    """Return the output that is worst afterwards."""
    rows = [one for one in found.tensors if one.after is not None and one.after.is_output and one.before is not None]
    measured = [one for one in rows if one.after is not None and one.after.relative_l2 is not None]
    worst = max(measured, key=lambda one: (one.after.relative_l2 if one.after is not None else 0) or 0, default=None)
    if worst is None or worst.before is None or worst.after is None or worst.before.relative_l2 is None:
        return []
    now, then = format_figure(worst.after.relative_l2), format_figure(worst.before.relative_l2)
    return [
        Text(
            f"The worst output `{worst.name}` is off by {now} (Rel L2), {then} before.",
            f"误差最大的输出 `{worst.name}` 相对 L2 误差为 {now}，之前为 {then}。",
        )
    ]


def _compare_verdicts(found: Difference) -> Text:
    then, now = VERDICT_NAME[found.before.verdict], VERDICT_NAME[found.after.verdict]
    if then == now:
        return Text(f"Verdict: {now.en.lower()}, as before.", f"结论：{now.zh}，与之前相同。")
    return Text(f"Verdict: {now.en.lower()}, before: {then.en.lower()}.", f"结论：{now.zh}，之前：{then.zh}。")


def _describe_culprit(title: Text, culprit: Culprit, found: Difference) -> Text:
    sentence = describe_culprit(found.after, culprit)
    return Text(f"{title.en} {sentence.en}", f"{title.zh}{sentence.zh}")


# The difference between two reports as one self-contained page.

_STYLE = """
#changes td:nth-child(2) { overflow-wrap: anywhere; min-width: 110px; } #changes td:first-child { min-width: 0; }
@media print { #changes { font-size: 9px; } }
"""

def make_difference_page(found: Difference, language: str = "") -> str:
    """Return the page. language: "en" or "zh", which it opens in; "": what the reader's browser prefers."""
    before, after = found.before, found.after
    model = after.spec.model.path or after.target.model
    about = f"{model} {before.target.mode} → {after.target.mode}"
    changed = order_tensors(found)
    lines = "".join(map(_format_page_line, changed))
    head = (Text("Change", "变化"), Text("Tensor", "张量"), Text("Rel L2", "相对 L2"), Text("Ratio", "比值"))
    top = "".join(f'<th{" class=right" * (place > 1)}>{both_languages(title)}</th>' for place, title in enumerate(head))
    title = both_languages(Text("What changed, worst first", "变化的张量（变差的在前）"))
    table = (
        f'<section class="card"><h2>{title}</h2><div class="wide"><table class="list" id="changes"><thead><tr>{top}'
        f"</tr></thead><tbody>{lines}</tbody></table></div></section>"
    )
    chip, tone = Text("Before and after", "前后对比"), "bad" if found.regressed else "good"
    return make_small_page(
        chip, about, list_sentences(found), tone, table if changed else "", style=_STYLE, language=language
    )


def _format_page_line(tensor: Tensor) -> str:
    chip = f'<span class="chip {TONE_OF[tensor.change]}">{both_languages(CHANGES[tensor.change])}</span>'
    numbers = "".join(
        f'<td class="right">{escape_html(text)}</td>' for text in (format_errors(tensor), format_ratio(tensor))
    )
    return f"<tr><td>{chip}</td><td>{escape_html(f'{tensor.op_type} {tensor.name}')}</td>{numbers}</tr>"


# The difference between two reports as a workbook: the table first, for programs; it opens on the sentence.

_HEAD = (
    Text("Change", "变化"), Text("Operator Type", "算子类型"), Text("Tensor Name", "张量名"),
    Text("Rel L2 before", "之前的相对 L2"), Text("Rel L2 after", "之后的相对 L2"), Text("Ratio", "比值"),
    Text("Status before", "之前的状态"), Text("Status after", "之后的状态"),
)  # fmt: skip
_WIDTHS = (26, 20, 60, 15, 15, 11, 22, 22)
_LIMIT = 1_048_575
"""Rows of a sheet below its head."""


def write_difference_book(found: Difference, path: Path) -> None:
    """Every tensor, what got worse first; numbers as numbers. Raises OSError."""
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    written = list_sentences(found)
    book = xlsxwriter.Workbook(str(path), {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    try:
        book.set_properties({"title": "precision_debug diff", "comments": fit_cell_text(written[0].en)})
        formats = Formats(book)
        _write_table(
            book.add_worksheet("Difference"), formats, [*order_tensors(found), *found.of(Change.SAME)][:_LIMIT]
        )
        summary = book.add_worksheet("Summary")
        write_sentences(summary, formats, [*written, *_describe_sides(found)], "bad" if found.regressed else "good")
        summary.activate()
        book.close()
    except FileCreateError as error:
        cause = error.args[0] if error.args else error
        raise cause if isinstance(cause, OSError) else OSError(str(error)) from error


def _describe_sides(found: Difference) -> list[Text]:
    """Return what was compared with what."""
    said = []
    for one, name in ((found.before, Text("Before", "之前")), (found.after, Text("After", "之后"))):
        model = one.spec.model.path or one.target.model
        title = f"{model} {one.target.mode} ({one.baseline.mode}) {one.started}".strip()
        said.append(Text(f"{name.en}: {title}", f"{name.zh}：{title}"))
    return said


def _write_table(sheet: Any, formats: Formats, tensors: list[Tensor]) -> None:
    for place, (title, width) in enumerate(zip(_HEAD, _WIDTHS, strict=True)):
        look = formats.get(
            bold=True, font_color="#FFFFFF", bg_color="#1D3557", text_wrap=True, border=1, border_color="#FFFFFF",
            align="center" if place in (3, 4, 5) else "left", indent=int(place not in (3, 4, 5)),
        )  # fmt: skip
        sheet.write_string(0, place, f"{title.en}\n{title.zh}", look)
        names = [tensor.name for tensor in tensors] if place == 2 else []
        sheet.set_column(place, place, min(width, max([20, *map(measure_text_width, names)]) + 4) if names else width)
    for line, tensor in enumerate(tensors, 1):
        _write_sheet_line(sheet, formats, line, tensor)
    sheet.set_row(0, 34)
    sheet.freeze_panes(1, 3)
    sheet.autofilter(0, 0, max(1, len(tensors)), len(_HEAD) - 1)
    set_up_paper(sheet, 9)
    sheet.repeat_rows(0)


def _write_sheet_line(sheet: Any, formats: Formats, line: int, tensor: Tensor) -> None:
    _write_text(sheet, formats, line, 0, str(CHANGES[tensor.change]), TONE_OF[tensor.change])
    _write_text(sheet, formats, line, 1, tensor.op_type, "")
    _write_text(sheet, formats, line, 2, tensor.name, "")
    for place, value, form in (
        (3, _error_of_row(tensor.before), "error"), (4, _error_of_row(tensor.after), "error"), (5, _ratio_of(tensor),
        "ratio"),
    ):  # fmt: skip
        if value is not None and math.isfinite(value):
            sheet.write_number(line, place, value, formats.get(form))
        elif value is not None:
            sheet.write_string(line, place, "NaN" if math.isnan(value) else "Inf", formats.get("text", align="right"))
    for place, row in ((6, tensor.before), (7, tensor.after)):
        status: Status | None = None if row is None else row.status
        if status is not None:
            _write_text(sheet, formats, line, place, str(STATUS_NAME[status]), STATUS_TONE[status])


def _error_of_row(row: Row | None) -> float | None:
    return None if row is None or row.relative_l2 is None else float(row.relative_l2)


def _ratio_of(tensor: Tensor) -> float | None:
    """None where it says nothing: after no error at all any is infinitely more."""
    return tensor.ratio if tensor.ratio is not None and math.isfinite(tensor.ratio) else None


def _write_text(sheet: Any, formats: Formats, line: int, place: int, text: str, tone: str) -> None:
    sheet.write_string(line, place, fit_cell_text(text), formats.get("text", indent=1, **TONES.get(tone, {})))
