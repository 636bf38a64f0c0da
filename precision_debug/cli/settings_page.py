"""The backends' settings as people read them: a table on the terminal, and the page docs/settings.md.

The page is written by ``precision_debug doctor --settings_page docs/settings.md``; a test keeps it equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..settings import CORE, Setting

__all__ = ["cells", "page"]

_KINDS: Mapping[str, str] = {
    "flag": "true or false", "whole": "whole number", "size": "bytes, e.g. 4G", "text": "text", "names": "names: a,b",
    "layers": "LAYER:TYPE …", "shapes": "NAME:SHAPE …",
}  # fmt: skip
_TOP = """<!-- written by `python -m precision_debug doctor --settings_page docs/settings.md`: do not edit -->

# Settings · 设置

What a backend can be told beyond a model and a run mode. Each is given with `--option KEY=VALUE`, or with the flag that
stands here; in Python as a keyword of `compare()`. A setting goes to every side that reads it, the baseline and the
target; `--option baseline.KEY=VALUE` and `--option target.KEY=VALUE` go to one side. One that no side reads is an error
(exit status 2), and so is a value of another type or out of range. The column *side* says where one side alone reads
it, the column *modes* which run modes do; empty: both, and all of the backend's.

后端除模型和运行模式之外可以接受的设置。用 `--option KEY=VALUE` 或表中的命令行选项给出；在 Python 中是 `compare()` 的
关键字参数。设置会交给读取它的每一侧（基线和目标）；`--option baseline.KEY=VALUE` 和 `--option target.KEY=VALUE` 只交给
一侧。没有任何一侧读取的设置是错误（退出码 2），类型不对或超出范围的值也是。*side* 列注明只有一侧读取的设置，
*modes* 列注明读取它的运行模式；空白表示两侧、该后端的全部模式。
"""


def cells(one: Setting) -> tuple[str, str, str, str]:
    """A setting's type (with its range), default, side and modes, in words."""
    what = " ".join(one.choices) if one.choices else _KINDS.get(one.kind, one.kind)
    if one.span:
        what = f"{what} {one.span}"
    side = "" if len(one.sides) > 1 else one.sides[0]
    return what, _default(one.default), side, " ".join(one.modes)


def page(tables: Mapping[str, Sequence[Setting]]) -> str:
    """Markdown in English and Chinese. tables: titles to settings."""
    return "\n".join([_TOP, *_lines({"every backend": CORE, **tables})]) + "\n"


def _lines(tables: Mapping[str, Sequence[Setting]]) -> Iterator[str]:
    for title, table in tables.items():
        yield f"## {title}\n"
        yield "| Setting | type | default | side | modes | meaning | 含义 |"
        yield "|---|---|---|---|---|---|---|"
        for one in table:
            what, default, side, modes = cells(one)
            side = f"`--baseline_{one.name}`: of the baseline alone" if one.by_side else side
            name = f"`--{one.name}`" if one.flag else f"`{one.name}`"
            default = f"`{default}`" if default else ""
            modes = " ".join(f"`{mode}`" for mode in modes.split())
            row = (name, what, default, side, modes, one.help, one.zh)
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        yield ""


def _default(value: Any) -> str:
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= 2**20 and value % 2**20 == 0:
        return f"{value // 2**30}G" if value % 2**30 == 0 else f"{value // 2**20}M"
    return " ".join(value) if isinstance(value, (tuple, list)) else str(value)
