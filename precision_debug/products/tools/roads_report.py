"""What roads came to: in the terminal, and as .json, .md, .html and .xlsx."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...codec import json_text
from ...reasons import Text, same
from ...records import RunSpec
from ...report.figures import count, figure
from ...report.formats.html.blocks import block
from ...report.formats.html.small_page import small_page
from ...report.formats.md import plain
from ...report.formats.xlsx.formats import Formats
from ...report.formats.xlsx.sentences import on_paper, write_sentences
from ...report.formats.xlsx.text import fit
from ...report.section import Cell, Section
from ...run.roads import Road

__all__ = ["ENDINGS", "road_lines", "write_roads"]

ENDINGS = (".json", ".md", ".html", ".xlsx")

_HEAD = (
    Text("Road", "路径"), Text("Differs By", "差异"), Text("Mean |Δ log p|", "|Δ log p| 均值"),
    Text("Max |Δ log p|", "|Δ log p| 最大值"), Text("Greedy Flips", "贪心选择改变"),
    Text("Logits From Float64", "logits 距 float64"), Text("At Once", "一次前向"), Text("First Module", "首个模块"),
    Text("Row", "行"), Text("Place", "位置"), Text("Error There", "该处误差"), Text("At Once There", "该处一次前向"),
    Text("Modules", "模块数"),
)  # fmt: skip
_WIDTHS = (16, 22, 15, 15, 12, 16, 12, 50, 8, 8, 14, 14, 10)
_MORE, _LESS = Text("more than rounding", "超出舍入"), Text("rounding alone", "仅为舍入")


def road_lines(road: Road) -> list[Text]:
    """A road in the terminal."""
    mean, most = figure(road.mean_abs), figure(road.max_abs)
    numbers = Text(
        f"log-probabilities differ by {mean} in the mean, {most} at most; logits are {figure(road.error)} from float64,"
        f" at once {figure(road.base_error)}",
        f"对数概率平均相差 {mean}，最大 {most}；logits 距 float64 {figure(road.error)}，"
        f"一次前向为 {figure(road.base_error)}",
    )
    if not road.differs:
        return [Text(f"{road.name:12s} rounding alone: {numbers.en}", f"{road.name:12s} 仅为舍入：{numbers.zh}")]
    first = Text(f"  first at {_where(road).en}", f"  首先出现在 {_where(road).zh}")
    return [Text(f"{road.name:12s} MORE THAN ROUNDING: {numbers.en}", f"{road.name:12s} 超出舍入：{numbers.zh}"), first]


def write_roads(found: Sequence[Road], spec: RunSpec, path: Path, ending: str, language: str) -> None:
    """Write one file. language: that a page opens in; "": what the reader's browser prefers. Raises OSError."""
    if ending == ".xlsx":
        _book(found, spec, path)
        return
    said = _sentences(found)
    if ending == ".json":
        told = {"command": spec.command, "roads": [_finite(dataclasses.asdict(road)) for road in found]}
        text = json_text(told, indent=1) + "\n"
    elif ending == ".html":
        chip = Text("Roads of one model", "同一模型的各条路径")
        lines = tuple(tuple(_cells(road)) for road in found)
        section = Section(key="roads", title=chip, head=_HEAD, lines=lines).without_empty_columns()
        text = small_page(chip, _about(spec), said, _tone(found), block(section, {}), language=language)
    else:
        text = "\n".join(_markdown(found, said)) + "\n"
    path.write_text(text, encoding="utf-8")


def _where(road: Road) -> Text:
    there, at_once = figure(road.first_error), figure(road.first_base)
    return Text(
        f"`{road.first}`, token {road.place} of row {road.row}: {there} from float64, at once {at_once}",
        f"`{road.first}`，第 {road.row} 行第 {road.place} 个词元：距 float64 {there}，一次前向为 {at_once}",
    )


def _sentences(found: Sequence[Road]) -> list[Text]:
    """The first one stands alone: whether any road differs by more than rounding."""
    wrong, more = [road for road in found if road.differs], list[Text]()
    if not wrong:
        number = len(found)
        return [Text(
            f"Each of the {number} roads differs by rounding alone." if number > 1 else "It differs by rounding alone.",
            f"{number} 条路径均仅有舍入之差。",
        )]  # fmt: skip
    names = ", ".join(f"`{road.name}`" for road in wrong)
    first = Text(f"More than rounding: {names}.", f"超出舍入：{names.replace(', ', '、')}。")
    for road in wrong:
        said = _where(road)
        more.append(Text(f"`{road.name}`: first at {said.en}.", f"`{road.name}`：首先出现在 {said.zh}。"))
    return [first, *more]


def _tone(found: Sequence[Road]) -> str:
    return "bad" if any(road.differs for road in found) else "good"


def _about(spec: RunSpec) -> str:
    return f"{spec.model.path} {spec.run_mode}"


def _values(road: Road) -> list[Any]:
    """In the order of the head; None where a road that does not differ has nothing to say."""
    there = (road.first, road.row, road.place, road.first_error, road.first_base) if road.differs else (None,) * 5
    return [
        road.name, _MORE if road.differs else _LESS, road.mean_abs, road.max_abs, road.flips, road.error,
        road.base_error, *there, road.modules,
    ]  # fmt: skip


def _cells(road: Road) -> list[Cell]:
    tone = "bad" if road.differs else "good"
    return [
        Cell(text=value, tone=tone) if isinstance(value, Text)
        else Cell(text=same("" if value is None else value if isinstance(value, str) else _shown(value)),
                  right=isinstance(value, (int, float)))
        for value in _values(road)
    ]  # fmt: skip


def _shown(value: float) -> str:
    return count(value) if isinstance(value, int) else figure(value)


def _markdown(found: Sequence[Road], said: Sequence[Text]) -> list[str]:
    lines = [f"**{plain(str(text))}**" if place == 0 else f"- {plain(str(text))}" for place, text in enumerate(said)]
    rights = [any(_cells(road)[place].right for road in found) for place in range(len(_HEAD))]
    lines += ["", f"| {' | '.join(title.en for title in _HEAD)} |"]
    lines.append(f"|{'|'.join('---:' if right else '---' for right in rights)}|")
    return [*lines, *(f"| {' | '.join(plain(cell.text.en) for cell in _cells(road))} |" for road in found)]


def _book(found: Sequence[Road], spec: RunSpec, path: Path) -> None:
    """The table first, for programs; it opens on the sentence."""
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    said = _sentences(found)
    book = xlsxwriter.Workbook(str(path), {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    try:
        book.set_properties({"title": "precision_debug roads", "comments": fit(said[0].en)})
        formats = Formats(book)
        sheet = book.add_worksheet("Roads")
        look = formats.get(bold=True, font_color="#FFFFFF", bg_color="#1D3557", text_wrap=True)
        for place, (title, width) in enumerate(zip(_HEAD, _WIDTHS, strict=True)):
            sheet.set_column(place, place, width)
            sheet.write_string(0, place, f"{title.en}\n{title.zh}", look)
        for line, road in enumerate(found, 1):
            for place, value in enumerate(_values(road)):
                _put(sheet, formats, line, place, value)
        sheet.set_row(0, 34)
        sheet.freeze_panes(1, 1)
        sheet.autofilter(0, 0, max(1, len(found)), len(_HEAD) - 1)
        on_paper(sheet, 9)
        summary = book.add_worksheet("Summary")
        write_sentences(summary, formats, [*said, same(_about(spec))], _tone(found))
        summary.activate()
        book.close()
    except FileCreateError as error:
        cause = error.args[0] if error.args else error
        raise cause if isinstance(cause, OSError) else OSError(str(error)) from error


def _put(sheet: Any, formats: Formats, line: int, place: int, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, (str, Text)):
        sheet.write_string(line, place, fit(str(value)), formats.get("text"))
    elif math.isfinite(value):
        sheet.write_number(line, place, value, formats.get() if isinstance(value, int) else formats.get("error"))
    else:
        sheet.write_string(line, place, "NaN" if math.isnan(value) else "Inf", formats.get("text", align="right"))


def _finite(plain_values: Mapping[str, Any]) -> dict[str, Any]:
    """Strict JSON has no NaN and no infinity."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in plain_values.items()
    }
