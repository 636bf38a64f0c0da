"""What the page's script reads: columns, statuses, rows as arrays in the columns' order, and how rows hang together."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ....explain.operators import MOVE, plain_type
from ....numbers.number_types import QUANTISED
from ....reasons import Text
from ....reasons.ways import explain_way
from ....records import Row, Status
from ....safety.untrusted import find_linked_file, make_visible
from ...advice import list_advice
from ...blame import named_culprits
from ...columns import Column
from ...layout import DECIDING, TWO_LANGUAGES, list_columns
from ...model import Report
from ...sections import unit_of
from ...summary import STATUS_TONE, describe_status, name_status
from ...tokens import find_first_beyond
from ...words import explain_reason, fit_width, is_whole, measure_text_width, strip_side

__all__ = ["KINDS", "group_rows", "iterate_json", "layer_of"]


# Which layer of the model a row belongs to, from the names that its exporter left.

_NUMBERED = re.compile(r"^(?:[A-Za-z]+_?\d+[._])+")
_FEW = 8
"""Groups that a short table may have whatever the size of the groups."""

_MEMBERS = 5
"""Rows of a group, on average, at least."""


def layer_of(row: Row) -> tuple[str, ...]:
    """Return the path of modules around an operator, outermost first; () where the names tell of none.

    "/encoder/layer.0/fc/MatMul" is ("encoder", "layer.0", "fc")."""
    name = (row.node or row.name).strip("/")
    if "/" in name:
        return tuple(part for part in name.split("/")[:-1] if part)
    if "." in name:
        return tuple(part for part in name.split(".")[:-1] if part)
    numbered = _NUMBERED.match(name)
    return tuple(part for part in re.split(r"[._]", numbered[0]) if part) if numbered else ()


def group_rows(rows: Sequence[Row]) -> list[str]:
    """One group a row: its path, cut so short that a group has several rows; "" for rows without a path."""
    paths = [layer_of(row) for row in rows]
    deepest = max(map(len, paths), default=0)
    most = max(_FEW, len(rows) // _MEMBERS)
    depth = next((d for d in range(deepest, 1, -1) if len({path[:d] for path in paths}) <= most), 1)
    return ["/".join(path[:depth]) for path in paths]


# Rows that say nothing of an error: constants, copies, quantiser helpers, what was fused away. Pages fold them.

KINDS: Mapping[str, Text] = {
    "fused": Text("fused away", "被融合"),
    "constant": Text("constants and the like", "常量等"),
    "copy": Text("copies", "副本"),
    "quantiser": Text("quantiser helpers", "量化辅助张量"),
}
"""What is folded, in words that follow a number."""

_COPIES = frozenset({"same_as", "repeats", "taken", "dropped"})
"""What a reason is called whose tensor has its numbers in another row."""

_SAME = 1e-3
"""How far the error of a tensor that is only moved may be from its source's."""


def noise_of(row: Row) -> str:
    """Return a key of ``KINDS``, or "" where the row is worth a look; a final output, a failure and a NaN always
    are."""
    if row.is_output or row.status in (Status.FAIL, Status.INCONCLUSIVE):
        return ""
    if row.comparison is not None:
        growth = row.error_growth
        return "copy" if plain_type(row.op_type) in MOVE and (growth is None or abs(growth - 1) < _SAME) else ""
    if row.status is Status.FUSED_AWAY:
        return "fused"
    if is_whole(row.reason):
        return "copy" if strip_side(row.reason).code.rpartition(".")[2] in _COPIES else "constant"
    return "quantiser" if QUANTISED.search(row.op_type) or QUANTISED.search(row.target_op_type) else ""


_FIRST_SEEN = (
    "name", "op_type", *DECIDING, "status", "max_atol", "max_rtol", "mismatched_share", "shape", "reason", "index",
)  # fmt: skip
"""Columns that are seen before the reader asks for more, from the left; a backend's own ones follow them."""

_HEAT = {
    "relative_l2": "error", "introduced_rel_l2": "error", "inherited_rel_l2": "error", "mean_rel": "error",
    "rounding_units": "ratio", "error_growth": "ratio", "sqnr_db": "db", "mismatched_share": "share",
    "share_rel_over_1pct": "share",
}  # fmt: skip
"""How a column's numbers are coloured: in decades from one rounding to 1, as a multiple, in decibels, as a share."""

_CURVES = (
    ("relative_l2", Text("cumulative: Rel L2 of target and baseline", "累积：两侧的相对 L2"), "blue", "line", True),
    ("introduced_rel_l2", Text("introduced by the operator itself", "算子自身引入的误差"), "orange", "dots", True),
    ("inherited_rel_l2", Text("inherited from its inputs", "由输入继承的误差"), "green", "line", False),
    ("max_abs", Text("max absolute error", "最大绝对误差"), "grey", "line", False),
)  # fmt: skip

_MANY = 2000
"""Rows from which on texts that many of them share stand once, and the rows have their numbers."""
_SHARED = 8
"""Rows, at least, of every text of such a column, on average."""

_MOVERS = 12
"""Operators that the page lists of who moves a token."""

_ADVISED = 300
"""Rows out of tolerance that are given advice, in execution order; the others' is the same again."""


def iterate_json(report: Report) -> Iterator[str]:
    """One JSON object in parts, never holding more than one row's text."""
    layout = list_columns(report)
    noise = [noise_of(row) for row in report.rows]
    of_key = {"reason": _encode_reason, **dict.fromkeys(TWO_LANGUAGES, _encode_way)}
    encode = [(column.get, of_key.get(column.key, _ENCODE[column.kind])) for column in layout]
    shared = dict(_iterate_shared_columns(report, layout))
    texts = {number: [encode[number][1](value) for value in places] for number, places in shared.items()}
    yield _to_script_json({**_make_head(report, layout, noise), "texts": texts})[:-1]
    yield ', "rows": ['
    for number, places in shared.items():
        encode[number] = layout[number].get, places.__getitem__
    separator = "\n"
    for row in report.rows:
        values = [None if (value := get(row)) is None else convert(value) for get, convert in encode]
        yield separator + _to_script_json(values)
        separator = ",\n"
    yield "\n]}"


def _iterate_shared_columns(report: Report, layout: tuple[Column, ...]) -> Iterator[tuple[int, dict[Any, int]]]:
    """Columns whose texts many rows share, with each text's number: a page of 50,000 rows opens sooner for it."""
    if len(report.rows) < _MANY:
        return
    most = len(report.rows) // _SHARED
    for number, column in enumerate(layout):
        if column.kind not in ("text", "index"):
            continue
        places: dict[Any, int] = {}
        for row in report.rows:
            value = column.get(row)
            if value is not None:
                places.setdefault(value, len(places))
            if len(places) > most:
                break
        else:
            yield number, places


def _make_head(report: Report, layout: tuple[Column, ...], noise: list[str]) -> dict[str, Any]:
    rows = report.rows
    place = {row.name: number for number, row in enumerate(rows)}
    first = report.first_mismatch
    failed = [(number, row) for number, row in enumerate(rows) if row.status is Status.FAIL]
    filled = {column.key for column in layout if _is_filled(column, report)}
    kinds = list(KINDS)
    quiet = {row.status for row, kind in zip(rows, noise, strict=True) if kind and row.comparison is None}
    return {
        "columns": [_describe_column(column, report) for column in layout],
        "order": _order(layout),
        "statuses": [
            {
                "value": status.value, "tone": STATUS_TONE[status], "count": number,
                "help": list(describe_status(report, status)), "name": list(name_status(report, status)),
                "quiet": status in quiet,
            }
            for status, number in report.counts.items()
        ],
        "fail": Status.FAIL.value,
        "unit": unit_of(report),
        "layers": [make_visible(layer) for layer in group_rows(rows)],
        "noise": [kinds.index(kind) + 1 if kind else 0 for kind in noise],
        "folds": [[noise.count(kind), list(KINDS[kind])] for kind in kinds if kind in noise],
        "reads": [
            sorted({place[name] for name in row.inputs if place.get(name, number) != number})
            for number, row in enumerate(rows)
        ],
        "culprits": [place[one.name] for one in named_culprits(report) if one.name in place],
        "first": None if first is None else rows.index(first),
        "broken": [number for number, row in failed if _is_broken_row(row)],
        "curves": [
            {"key": key, "label": list(label), "colour": colour, "style": style, "first": shown}
            for key, label, colour, style, shown in _CURVES
            if key in filled
        ],
        "advice": {
            number: [list(text) for text in list_advice(row, report.target.precision)] for number,
            row in failed[:_ADVISED]
        },
        "portraits": _encode_portraits(report, place),
        "saved": {
            place[name]: number for number, name in enumerate(report.saved_tensors, 1) if name in place
        } if report.tensors_file else {},
        "tokens": _encode_tokens(report, place),
        "tensors": [make_visible(report.tensors_file), quote(find_linked_file(report.tensors_file))],
    }  # fmt: skip


def _encode_tokens(report: Report, place: Mapping[str, int]) -> dict[str, Any] | None:
    """Of a language model: each prediction, its tensors' errors, and who moves one of them."""
    tokens, effects = report.tokens, report.token_effects
    if tokens is None:
        return None
    moved = None
    if effects is not None:
        lines = [[make_visible(one.group or one.name), _encode_number(one.moved), _encode_if_known(one.left)]
                 for one in (*effects.layers, *effects.operators[:_MOVERS])]  # fmt: skip
        moved = {"token": effects.token, "lines": lines}
    return {
        "tokens": [
            [one.row, one.place, one.id, *map(_encode_if_known, (one.base, one.target)),
             _encode_number(one.kl), one.rank, one.target_rank, one.chosen, one.target_chosen,
             _encode_number(one.margin),
             _encode_number(one.error)]
            for one in tokens.tokens
        ],
        "first": find_first_beyond(report), "worst": tokens.worst, "effects": moved,
        "tensors": [make_visible(name) for name in tokens.tensors],
        "rows": [place.get(name) for name in tokens.tensors],
        "profiles": {
            number: list(map(_encode_if_known, errors))
            for number, errors in tokens.profiles.items()
        },
    }  # fmt: skip


def _encode_portraits(report: Report, place: Mapping[str, int]) -> dict[int, list[dict[str, Any]]]:
    """By row: that of the comparison first, then what the operator itself added."""
    made: dict[int, list[dict[str, Any]]] = {}
    for one in sorted(report.portraits, key=lambda portrait: portrait.introduced):
        if one.name not in place:
            continue
        drawn: dict[str, Any] = {"introduced": one.introduced, "sampled": one.sampled}
        if one.base is not None and one.target is not None:
            drawn["values"] = {
                "edges": _finite_edges(one.base.edges), "base": one.base.counts, "target": one.target.counts,
            }  # fmt: skip
        if one.errors is not None:
            drawn["errors"] = {"edges": _finite_edges(one.errors.edges), "counts": one.errors.counts}
        if one.against is not None:
            against = one.against
            drawn["against"] = {
                "x": _finite_edges(against.magnitudes), "y": _finite_edges(against.errors), "counts": against.counts,
            }  # fmt: skip
        if one.map is not None:
            drawn["map"] = {"rows": list(map(_encode_cells, one.map.cells)), "shape": one.map.size}
        if one.channels is not None:
            drawn["channels"] = {"values": _encode_cells(one.channels.cells[0]), "size": one.channels.size[1]}
        drawn["worst"] = [
            [
                each.index,
                _encode_number(each.base),
                _encode_number(each.target),
                _encode_number(abs(each.target - each.base)),
            ]
            for each in one.worst
        ]
        made.setdefault(place[one.name], []).append(drawn)
    return made


def _finite_edges(edges: Sequence[float]) -> list[float]:
    """Edges as a page can draw them: a report's JSON may have been written by anybody."""
    return [edge if math.isfinite(edge) else math.copysign(1e308, edge) for edge in edges]


def _encode_cells(line: Sequence[float | None]) -> list[float | None]:
    return [cell if cell is not None and math.isfinite(cell) else None for cell in line]


def _is_broken_row(row: Row) -> bool:
    numbers = row.comparison
    if numbers is None or not numbers.shapes_match:
        return True
    errors = (row.relative_l2, numbers.max_abs)
    return any(error is not None and not math.isfinite(error) for error in errors) or not any(errors)


def _order(layout: tuple[Column, ...]) -> list[int]:
    """Return places of the columns, from the left: those first that decide."""
    keys = [column.key for column in layout]
    seen = [keys.index(key) for key in _FIRST_SEEN if key in keys]
    own = [number for number, key in enumerate(keys) if key.startswith("extra.")]
    return [*seen, *own, *(number for number in range(len(keys)) if number not in {*seen, *own})]


def _describe_column(column: Column, report: Report) -> dict[str, Any]:
    least = max(measure_text_width(column.title), measure_text_width(column.title_zh)) + 3
    return {
        "key": make_visible(column.key), "title": [make_visible(column.title), make_visible(column.title_zh)],
        "help": [column.help, column.help_zh], "heat": _HEAT.get(column.key, ""),
        "kind": column.kind, "style": column.style, "width": fit_width(column, report.rows, least),
        "first": (column.key in _FIRST_SEEN or column.key.startswith("extra.")) and _is_filled(column, report),
    }  # fmt: skip


def _is_filled(column: Column, report: Report) -> bool:
    """Return whether some row has it; where nothing was measured an empty column only takes the place of another."""
    return not report.rows or any(column.get(row) is not None for row in report.rows)


def _to_script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _encode_number(value: Any) -> float | str:
    value = float(value)
    return float(f"{value:.7g}") if math.isfinite(value) else str(value)


def _encode_if_known(value: Any) -> float | str | None:
    return None if value is None else _encode_number(value)


def _encode_reason(value: str) -> str | list[str]:
    """Return both languages where there are two; the page shows one, and looks for words in both."""
    return _encode_text(explain_reason(value))


def _encode_way(value: str) -> str | list[str]:
    return _encode_text(explain_way(value))


def _encode_text(text: Text) -> str | list[str]:
    en, zh = (make_visible(one) for one in text)
    return en if en == zh else [en, zh]


_ENCODE: dict[str, Any] = {
    "text": lambda value: make_visible(str(value), keep="\n\t"), "int": int, "float": _encode_number,
    "share": _encode_number,
    "index": lambda value: str(list(value)), "flag": bool,
}  # fmt: skip
