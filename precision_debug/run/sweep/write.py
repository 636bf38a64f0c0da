"""The files of a sweep: .json, .md, .html and .xlsx, by suffix; the picture lies beside a .md as .svg."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...codec import encode
from ...errors import UsageError
from ...report.atomic_file import replacing
from ...report.formats.xlsx.text import fit
from .plot import svg
from .result import Sweep, front
from .table import heads, lines, shown

__all__ = ["SUFFIXES", "as_text", "write"]


def write(sweep: Sweep, path: Path) -> None:
    """Write one file. Raises UsageError for an unknown suffix, and OutputError."""
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise UsageError(f"no sweep format '{path.suffix}'", where=str(path), hint=f"known: {' '.join(SUFFIXES)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, what="the sweep") as temporary:
        writer(sweep, temporary, path.stem)
    if path.suffix.lower() == ".md" and (drawn := svg(sweep)):
        with replacing(path.with_suffix(".svg"), what="the plot") as temporary:
            temporary.write_text(drawn, encoding="utf-8")


def as_text(sweep: Sweep) -> str:
    """The table for a terminal: columns that hold something, aligned."""
    found = lines(sweep)
    columns = [
        head for head in heads(sweep)
        if head.key != "reason" and any(line.get(head.key) not in (None, "") for line in found)
    ]  # fmt: skip
    cells = [[head.title for head in columns]]
    cells += [[shown(head, line.get(head.key)) for head in columns] for line in found]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    text = [
        "  ".join(
            cell.ljust(width) if head.kind == "text" else cell.rjust(width)
            for cell, width, head in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in cells
    ]
    text += [f"{line['mode']}: {line['reason']}" for line in found if line.get("reason")]
    best = [mode.name for mode in front(sweep.modes)]
    return "\n".join([*text, *([f"no other mode is as exact and as fast as: {', '.join(best)}"] if best else [])])


def _json(sweep: Sweep, path: Path, stem: str) -> None:  # noqa: ARG001
    plain: dict[str, Any] = {**encode(sweep), "front": [mode.name for mode in front(sweep.modes)]}
    plain["table"] = [{key: encode(value) for key, value in line.items()} for line in lines(sweep)]
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _markdown(sweep: Sweep, path: Path, stem: str) -> None:
    found = lines(sweep)
    columns = [head for head in heads(sweep) if any(line.get(head.key) not in (None, "") for line in found)]
    text = ["# Sweep", "", f"`{sweep.command}`" if sweep.command else "", ""]
    text.append("| " + " | ".join(_md(head.title) for head in columns) + " |")
    text.append("|" + "|".join("---" if head.kind == "text" else "---:" for head in columns) + "|")
    for line in found:
        text.append("| " + " | ".join(_md(shown(head, line.get(head.key))) for head in columns) + " |")
    best = [mode.name for mode in front(sweep.modes)]
    if best:
        text += ["", f"No other mode is as exact and as fast as: {', '.join(map(_md, best))}."]
        text += ["", f"![error against latency]({stem}.svg)"] if svg(sweep) else []
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def _md(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\|`*_<>[]#!" else letter for letter in " ".join(text.split()))


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#1c2430}table{border-collapse:collapse;font-size:14px}"
    "th,td{border-bottom:1px solid #e3e7ee;padding:.4rem .7rem;text-align:right;white-space:nowrap}"
    "th.text,td.text{text-align:left}td.wrap{white-space:normal;min-width:16rem}th small{display:block;color:#5b6576;"
    "font-weight:normal}td.ratio,th.ratio{color:#5b6576}tr.best td:first-child{font-weight:600;color:#0a7d5a}"
    "svg{max-width:860px;display:block}"
    "tr.refused td{color:#8a93a5}.scroll{overflow-x:auto}code{background:#f3f5f9;padding:.1rem .3rem}"
)


def _html(sweep: Sweep, path: Path, stem: str) -> None:  # noqa: ARG001
    found = lines(sweep)
    columns = [head for head in heads(sweep) if any(line.get(head.key) not in (None, "") for line in found)]
    best = {mode.name for mode in front(sweep.modes)}
    head = "".join(
        f'<th class="{one.kind}">{html.escape(one.title)}<small>{html.escape(one.title_zh)}</small></th>'
        for one in columns
    )
    body = []
    for line in found:
        kind = "best" if line["mode"] in best else "refused" if line.get("reason") else ""
        cells = "".join(
            f'<td class="{one.kind}{" wrap" if one.key == "reason" else ""}">'
            f"{html.escape(shown(one, line.get(one.key)))}</td>"
            for one in columns
        )
        body.append(f'<tr class="{kind}">{cells}</tr>')
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sweep</title>'
        f"<style>{_STYLE}</style></head><body><h1>Sweep</h1><p><code>{html.escape(sweep.command)}</code></p>"
        f'{svg(sweep)}<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
        "</div><p>Green: no other mode is as exact and as fast. · 绿色：没有其他模式同时更准且更快。</p></body></html>"
        "\n",
        encoding="utf-8",
    )


def _excel(sweep: Sweep, path: Path, stem: str) -> None:  # noqa: ARG001
    import xlsxwriter

    found = lines(sweep)
    columns = heads(sweep)
    book = xlsxwriter.Workbook(str(path), {"strings_to_formulas": False, "strings_to_urls": False})
    try:
        sheet = book.add_worksheet("Sweep")
        bold = book.add_format({"bold": True, "bottom": 1, "text_wrap": True})
        formats = {
            "share": book.add_format({"num_format": "0.00%"}), "ratio": book.add_format({"num_format": '0.00"x"'}),
            "number": book.add_format({"num_format": "0.####"}), "ms": book.add_format({"num_format": "0.000"}),
            "bytes": book.add_format({"num_format": "#,##0"}), "text": book.add_format(),
            "error": book.add_format({"num_format": "0.00E+00"}),
        }  # fmt: skip
        for place, head in enumerate(columns):
            sheet.write_string(0, place, fit(f"{head.title}\n{head.title_zh}"), bold)
            wide = {"reason": 60, "worst": 30, "culprit": 30}.get(head.key, 22 if head.kind == "text" else 12)
            sheet.set_column(place, place, wide)
            for number, line in enumerate(found, 1):
                value = line.get(head.key)
                if value is None or value == "":
                    continue
                if head.kind == "text":
                    sheet.write_string(number, place, fit(str(value)))
                elif math.isfinite(value):
                    kind = "error" if head.key in ("mean_rel", "rel_l2") else head.kind
                    sheet.write_number(number, place, value * (1e3 if head.kind == "ms" else 1), formats[kind])
        sheet.set_row(0, 32)
        sheet.freeze_panes(1, 1)
        sheet.autofilter(0, 0, max(1, len(found)), len(columns) - 1)
        _chart(book, sheet, sweep, {head.key: place for place, head in enumerate(columns)})
    finally:
        book.close()


def _chart(book: Any, sheet: Any, sweep: Sweep, place: dict[str, int]) -> None:
    found = lines(sweep)
    rows = [number for number, line in enumerate(found, 1) if line.get("median") and line.get("rel_l2") is not None]
    if not rows:
        return
    chart = book.add_chart({"type": "scatter"})
    for number in rows:
        name = ["Sweep", number, 0]
        at = [["Sweep", number, place[key], number, place[key]] for key in ("median", "rel_l2")]
        chart.add_series(
            {
                "name": name, "categories": at[0], "values": at[1], "marker": {"type": "circle", "size": 8},
                "data_labels": {"series_name": True, "value": False, "position": "right"},
            }
        )  # fmt: skip
    chart.set_title({"name": "Error against latency"})
    chart.set_x_axis({"name": "median latency (ms)"})
    chart.set_y_axis({"name": "relative L2 error of the worst output", "num_format": "0.0E+00"})
    chart.set_legend({"none": True})
    chart.set_size({"width": 760, "height": 440})
    sheet.insert_chart(len(found) + 3, 0, chart)


_WRITERS: dict[str, Callable[[Sweep, Path, str], None]] = {
    ".json": _json, ".md": _markdown, ".html": _html, ".xlsx": _excel,
}  # fmt: skip
SUFFIXES = tuple(_WRITERS)
