"""What roads came to: in the terminal, and as .json, .md, .html and .xlsx."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import registry
from ...codec import json_text
from ...errors import UsageError
from ...numbers.arrays import as_array
from ...numbers.measure_tokens import Roles, measure_tokens
from ...numbers.number_types import find_promise
from ...observe.token_errors import split_by_token
from ...protocols import Feeds, Roads
from ...reasons import Text, same
from ...records import RunSpec, SessionSpec
from ...report.formats.html.blocks import make_block
from ...report.formats.html.text import make_small_page
from ...report.formats.md import escape_text
from ...report.formats.xlsx.formats import Formats, fit_cell_text, set_up_paper, write_sentences
from ...report.sections import Cell, Section
from ...report.words import count, format_figure
from ...run.plan import Opening
from ...run.side import guard_call

__all__ = ["ENDINGS", "Road", "road_lines", "travel_roads", "write_roads"]


# Roads of one language model, each held against the truth as the whole batch at once is.

Array = np.ndarray[Any, Any]

_TIMES = 4.0
"""Times that a road may be as far from the truth as the whole batch at once before it is more than rounding: in another
order of sums five small architectures came to 0.7 to 1.3 times, in float32 and bfloat16."""

_UNITS = {"float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
"""The largest relative error of rounding once."""

_FLOOR = 4
"""Roundings below which no tensor is looked at, however exact the other one is."""


@dataclass(frozen=True, kw_only=True)
class Road:
    """How a road compares with the whole batch at once.

    differs: by more than rounding. error, base_error: the largest relative L2 distance of a token's logits from
    float64's, by this road and at once. mean_abs, max_abs: of the log-probabilities' differences between the two.
    first: the first module, in execution order, where a token is that much farther from the truth, with its row and its
    place (from 0), and both distances there. modules: how many were compared.
    """

    name: str
    differs: bool
    error: float
    base_error: float
    mean_abs: float
    max_abs: float
    flips: int
    modules: int
    first: str = ""
    row: int = 0
    place: int = 0
    first_error: float = 0.0
    first_base: float = 0.0


def travel_roads(opening: Opening, feeds: Feeds, asked: Sequence[str] = ()) -> list[Road]:
    """Go every road that is asked for: the backend's own, and run modes by their names. Raises PrecisionDebugError."""
    roads = opening.capabilities.roads
    if roads is None:
        hint = "PyTorch's and vLLM's do, of a folder of transformers"
        raise UsageError(f"run mode {opening.label} knows no roads", hint=hint)
    modes = {mode.name: mode for mode in opening.backend.run_modes} if opening.backend is not None else {}
    known = [name for name in roads.roads if name != "whole"]
    if strange := [name for name in asked if name not in known and name not in modes]:
        hint = f"there are {', '.join(known)}, and run modes"
        raise UsageError(f"there is no road '{strange[0]}'", where="--roads", hint=hint)
    trip = _Trip(roads, opening, feeds)
    exact = dataclasses.replace(opening.spec, mode=roads.truth)
    if roads.truth in modes:
        truth, _ = trip.go("whole", exact)
    else:  # another engine's, of the same model
        truth, _ = _Trip(_find_roads(roads.truth), opening, feeds).go("whole", dataclasses.replace(exact, options={}))
    base, logits = trip.go("whole", opening.spec)
    errors = {name: trip.error(value, truth.get(name)) for name, value in base.items()}
    found = []
    for name in asked or known:
        mode = name if name in modes else opening.spec.mode
        spec = dataclasses.replace(opening.spec, mode=mode)
        seen, other = trip.go("whole" if name in modes else name, spec)
        units = [_UNITS.get(find_promise(modes[one].precision).computes, 2.0**-24) for one in (opening.spec.mode, mode)]
        found.append(trip.judged(name, seen, other, truth, errors, logits, units))
    return found


def _find_roads(mode: str) -> Roads:
    """Return the roads of whichever backend has a run mode. Raises UsageError."""
    for backend in registry.backends():
        found = backend.capabilities.roads
        if found is not None and any(one.name == mode for one in backend.run_modes):
            return found
    raise UsageError(f"roads are held against {mode}, which no backend here has")


class _Trip:
    """The same tokens by one road after the other."""

    def __init__(self, roads: Roads, opening: Opening, feeds: Feeds) -> None:
        self._roads, self._opening, self._feeds = roads, opening, feeds
        ids = np.asarray(feeds["input_ids"]) if "input_ids" in feeds else np.empty((0, 0))
        if ids.ndim != 2 or ids.shape[1] < 2:
            raise UsageError("roads need input_ids of shape [rows, tokens]", where="--inputs")
        self._shape: tuple[int, int] = (ids.shape[0], ids.shape[1])

    def go(self, road: str, spec: SessionSpec) -> tuple[dict[str, Array], Any]:
        """Return what each module made of each token, float32 or wider, and the logits."""
        seen: dict[str, Array] = {}

        def hook(_op: str, name: str, tensor: Any, /) -> None:
            lines = split_by_token(as_array(tensor, name=name), *self._shape)
            if lines is not None:
                seen[name] = lines.astype(np.float64 if lines.dtype == np.float64 else np.float32)

        outputs = guard_call(self._opening.label, lambda: self._roads.travel(spec, road, self._feeds, hook))
        return seen, outputs["logits"]

    @staticmethod
    def error(value: Array, truth: Array | None) -> Array | None:
        """Return the relative L2 distance from the truth, a token each; NaN where a token is masked."""
        if truth is None or truth.shape != value.shape:
            return None
        with np.errstate(all="ignore"):
            wide, exact = value.astype(np.float64), truth.astype(np.float64)
            off = np.sqrt(np.sum(np.square(wide - exact), axis=1) / np.sum(np.square(exact), axis=1))
            off = np.where(np.all(wide == exact, axis=1), 0.0, off)
            broken = np.isnan(wide).any(axis=1) & ~np.isnan(exact).any(axis=1)
            return np.where(broken, math.inf, off)

    def judged(
        self, name: str, seen: dict[str, Array], logits: Any, truth: dict[str, Array], base: dict[str, Array | None],
        at_once: Any, units: Sequence[float],
    ) -> Road:  # fmt: skip
        """Return whether and where first it is much farther from the truth than the whole batch at once."""
        coarser = max(1.0, units[1] / units[0])
        beyond: dict[str, tuple[int, float, float]] = {}
        compared = 0
        for one, value in seen.items():
            mine, theirs = self.error(value, truth.get(one)), base.get(one)
            if mine is None or theirs is None or np.isnan(mine).all() or np.isnan(theirs).all():
                continue
            compared += 1
            allowed = _TIMES * max(float(np.nanmax(theirs)) * coarser, _FLOOR * units[1])
            over = np.flatnonzero(np.nan_to_num(mine, nan=0.0) > allowed)
            if len(over):
                place = int(over[0])
                beyond[one] = place, float(mine[place]), float(theirs[place])
        tokens = measure_tokens(
            self._feeds, at_once, logits,
            Roles(ids="input_ids", logits="logits", target_logits="logits",
                  mask="attention_mask" if "attention_mask" in self._feeds else ""),
        )  # fmt: skip
        known = [d for one in tokens.tokens if (d := one.difference) is not None and not math.isnan(d)]
        differs = "logits" in beyond
        first = next(iter(beyond)) if differs else ""
        place, error, theirs_there = beyond.get(first, (0, 0.0, 0.0))
        row, column = divmod(place, self._shape[1])
        return Road(
            name=name, differs=differs, error=_largest_error(self.error(seen["logits"], truth["logits"])),
            base_error=_largest_error(base["logits"]), modules=compared,
            mean_abs=float(np.mean(np.abs(known))) if known else 0.0,
            max_abs=float(np.max(np.abs(known))) if known else 0.0,
            flips=sum(one.flips for one in tokens.tokens), first=first, row=row, place=column, first_error=error,
            first_base=theirs_there,
        )  # fmt: skip


def _largest_error(errors: Array | None) -> float:
    return math.nan if errors is None or np.isnan(errors).all() else float(np.nanmax(errors))


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
    """Return a road in the terminal."""
    mean, most = format_figure(road.mean_abs), format_figure(road.max_abs)
    numbers = Text(
        f"log-probabilities differ by {mean} in the mean, {most} at most; logits are {format_figure(road.error)}"
        f" from float64,"
        f" at once {format_figure(road.base_error)}",
        f"对数概率平均相差 {mean}，最大 {most}；logits 距 float64 {format_figure(road.error)}，"
        f"一次前向为 {format_figure(road.base_error)}",
    )
    if not road.differs:
        return [Text(f"{road.name:12s} rounding alone: {numbers.en}", f"{road.name:12s} 仅为舍入：{numbers.zh}")]
    first = Text(
        f"  first at {_describe_first_departure(road).en}", f"  首先出现在 {_describe_first_departure(road).zh}"
    )
    return [Text(f"{road.name:12s} MORE THAN ROUNDING: {numbers.en}", f"{road.name:12s} 超出舍入：{numbers.zh}"), first]


def write_roads(found: Sequence[Road], spec: RunSpec, path: Path, ending: str, language: str) -> None:
    """Write one file. language: that a page opens in; "": what the reader's browser prefers. Raises OSError."""
    if ending == ".xlsx":
        _write_book(found, spec, path)
        return
    said = _list_sentences(found)
    if ending == ".json":
        told = {"command": spec.command, "roads": [_without_special_values(dataclasses.asdict(road)) for road in found]}
        text = json_text(told, indent=1) + "\n"
    elif ending == ".html":
        chip = Text("Roads of one model", "同一模型的各条路径")
        lines = tuple(tuple(_make_cells(road)) for road in found)
        section = Section(key="roads", title=chip, head=_HEAD, lines=lines).without_empty_columns()
        text = make_small_page(
            chip, _describe_spec(spec), said, _tone_of(found), make_block(section, {}), language=language
        )
    else:
        text = "\n".join(_format_markdown(found, said)) + "\n"
    path.write_text(text, encoding="utf-8")


def _describe_first_departure(road: Road) -> Text:
    there, at_once = format_figure(road.first_error), format_figure(road.first_base)
    return Text(
        f"`{road.first}`, token {road.place} of row {road.row}: {there} from float64, at once {at_once}",
        f"`{road.first}`，第 {road.row} 行第 {road.place} 个词元：距 float64 {there}，一次前向为 {at_once}",
    )


def _list_sentences(found: Sequence[Road]) -> list[Text]:
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
        said = _describe_first_departure(road)
        more.append(Text(f"`{road.name}`: first at {said.en}.", f"`{road.name}`：首先出现在 {said.zh}。"))
    return [first, *more]


def _tone_of(found: Sequence[Road]) -> str:
    return "bad" if any(road.differs for road in found) else "good"


def _describe_spec(spec: RunSpec) -> str:
    return f"{spec.model.path} {spec.run_mode}"


def _values_of_road(road: Road) -> list[Any]:
    """In the order of the head; None where a road that does not differ has nothing to say."""
    there = (road.first, road.row, road.place, road.first_error, road.first_base) if road.differs else (None,) * 5
    return [
        road.name, _MORE if road.differs else _LESS, road.mean_abs, road.max_abs, road.flips, road.error,
        road.base_error, *there, road.modules,
    ]  # fmt: skip


def _make_cells(road: Road) -> list[Cell]:
    tone = "bad" if road.differs else "good"
    return [
        Cell(text=value, tone=tone) if isinstance(value, Text)
        else Cell(text=same("" if value is None else value if isinstance(value, str) else _format_value(value)),
                  right=isinstance(value, (int, float)))
        for value in _values_of_road(road)
    ]  # fmt: skip


def _format_value(value: float) -> str:
    return count(value) if isinstance(value, int) else format_figure(value)


def _format_markdown(found: Sequence[Road], said: Sequence[Text]) -> list[str]:
    lines = [
        f"**{escape_text(str(text))}**" if place == 0 else f"- {escape_text(str(text))}"
        for place, text in enumerate(said)
    ]
    rights = [any(_make_cells(road)[place].right for road in found) for place in range(len(_HEAD))]
    lines += ["", f"| {' | '.join(title.en for title in _HEAD)} |"]
    lines.append(f"|{'|'.join('---:' if right else '---' for right in rights)}|")
    return [*lines, *(f"| {' | '.join(escape_text(cell.text.en) for cell in _make_cells(road))} |" for road in found)]


def _write_book(found: Sequence[Road], spec: RunSpec, path: Path) -> None:
    """The table first, for programs; it opens on the sentence."""
    import xlsxwriter
    from xlsxwriter.exceptions import FileCreateError

    said = _list_sentences(found)
    book = xlsxwriter.Workbook(str(path), {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    try:
        book.set_properties({"title": "precision_debug roads", "comments": fit_cell_text(said[0].en)})
        formats = Formats(book)
        sheet = book.add_worksheet("Roads")
        look = formats.get(bold=True, font_color="#FFFFFF", bg_color="#1D3557", text_wrap=True)
        for place, (title, width) in enumerate(zip(_HEAD, _WIDTHS, strict=True)):
            sheet.set_column(place, place, width)
            sheet.write_string(0, place, f"{title.en}\n{title.zh}", look)
        for line, road in enumerate(found, 1):
            for place, value in enumerate(_values_of_road(road)):
                _put(sheet, formats, line, place, value)
        sheet.set_row(0, 34)
        sheet.freeze_panes(1, 1)
        sheet.autofilter(0, 0, max(1, len(found)), len(_HEAD) - 1)
        set_up_paper(sheet, 9)
        summary = book.add_worksheet("Summary")
        write_sentences(summary, formats, [*said, same(_describe_spec(spec))], _tone_of(found))
        summary.activate()
        book.close()
    except FileCreateError as error:
        cause = error.args[0] if error.args else error
        raise cause if isinstance(cause, OSError) else OSError(str(error)) from error


def _put(sheet: Any, formats: Formats, line: int, place: int, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, (str, Text)):
        sheet.write_string(line, place, fit_cell_text(str(value)), formats.get("text"))
    elif math.isfinite(value):
        sheet.write_number(line, place, value, formats.get() if isinstance(value, int) else formats.get("error"))
    else:
        sheet.write_string(line, place, "NaN" if math.isnan(value) else "Inf", formats.get("text", align="right"))


def _without_special_values(plain_values: Mapping[str, Any]) -> dict[str, Any]:
    """Strict JSON has no NaN and no infinity."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in plain_values.items()
    }
