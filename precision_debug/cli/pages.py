"""Write the pages of the site that are lists: columns, reasons, settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..reasons import Wording
from ..reasons.what_to_do import WHAT_TO_DO
from ..report.layout import COLUMNS
from ..settings import Setting
from ..settings.options import GROUPS, OPTIONS

__all__ = ["columns_page", "describe_setting", "options_by_group", "reasons_page", "settings_page"]


# Every column of the table, as people read it: the page columns.md of the site.
#
# ``precision_debug doctor --columns_page columns.md`` writes it, and so does the site's build (mkdocs_pages.py).

_COLUMNS_TOP = """<!-- written by `python -m precision_debug doctor --columns_page columns.md` -->

# Columns · 列

The columns of the table, in the order of the workbook's; the first eight are those of Paddle-Inference-Demo's
tensorrt_precision_debug. The header cells carry the same explanations. *Key* is its stable name,
the column's in `to_pandas()`. Some runs add columns of their own: a backend's, and those of the run's tolerance.

对比表的各列，顺序与工作簿一致；
前八列与 Paddle-Inference-Demo 的 tensorrt_precision_debug 相同。表头单元格里有同样的说明。

| Column | 列 | Key | Meaning | 含义 |
|---|---|---|---|---|
"""


def columns_page() -> str:
    """Return the page as Markdown in English and Chinese."""
    lines = ((c.title, c.title_zh, f"`{c.key}`", c.help, c.help_zh) for c in COLUMNS)
    return _COLUMNS_TOP + "".join(f"| {' | '.join(map(_escape_cell, line))} |\n" for line in lines)


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


# Every reason that is given, as people read them: the page reasons.md of the site.
#
# ``precision_debug doctor --reasons_page reasons.md`` writes it, and so does the site's build (mkdocs_pages.py).

_REASONS_TOP = """<!-- written by `python -m precision_debug doctor --reasons_page reasons.md` -->

# Reasons · 原因

What reports say of rows, sides and runs, and why an operator lost the precision. Each is a code with arguments; the
report shows its sentence in English or in Chinese, and JSON has both the sentence and, under `codes`, the code with its
arguments. A backend's own codes begin with its name. Words in braces are the arguments.

报告对各行、各侧和整个运行的说明，以及算子损失精度的原因。每一条都是带参数的代码；报告以英文或中文显示其句子，JSON 中
既有句子，也在 `codes` 下给出代码和参数。后端自己的代码以其名称开头。花括号中的词是参数。
"""


def reasons_page(catalogues: Mapping[str, Mapping[str, Wording]]) -> str:
    """Return the page as Markdown in English and Chinese. catalogues: titles to wordings by their codes."""
    return "\n".join([_REASONS_TOP, *_reason_lines(catalogues)]) + "\n"


def _reason_lines(catalogues: Mapping[str, Mapping[str, Wording]]) -> Iterator[str]:
    for title, wordings in catalogues.items():
        yield f"## {title}\n"
        yield "| Code | English | 中文 | what to do | 怎么办 |"
        yield "|---|---|---|---|---|"
        for code, wording in wordings.items():
            cells = (
                f"`{code}`",
                *map(_escape_markdown, (wording.en, wording.zh, wording.do, WHAT_TO_DO.get(wording.do, ""))),
            )
            yield f"| {' | '.join(cells)} |"
        yield ""


def _escape_markdown(text: str) -> str:
    """Return a cell, which Markdown shows as it is."""
    for special in "\\`*_<>|":
        text = text.replace(special, f"\\{special}")
    return text


# Options and backends' settings as people read them: a table on the terminal, and the page settings.md of the site.
#
# ``precision_debug doctor --settings_page settings.md`` writes it, and so does the site's build (mkdocs_pages.py).

_KINDS: Mapping[str, str] = {
    "flag": "true or false", "whole": "whole number", "number": "number", "size": "bytes, e.g. 4G", "text": "text",
    "word": "text", "names": "names: a,b", "words": "text …", "pairs": "KEY=VALUE,…",
    "layers": "LAYER:TYPE …", "shapes": "NAME:SHAPE …",
    "ranges": "NAME:LOW,HIGH …", "renames": "TARGET=BASELINE …",
}  # fmt: skip
_MARK = "<!-- options -->\n"
_SETTINGS_TOP = """<!-- written by `python -m precision_debug doctor --settings_page settings.md` -->

# Options and settings · 选项与设置

What a comparison can be told stands first, below the headings of `--help`; the column *Python* has the keyword of
`compare()`. What its backends can be told follows.

先列出对比本身的选项，按 `--help` 的标题分组；*Python* 列为 `compare()` 的关键字参数。之后是各后端的设置。

<!-- options -->
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


def describe_setting(one: Setting) -> tuple[str, str, str, str]:
    """Return a setting's type (with its range), default, side and modes, in words."""
    what = " ".join(one.choices) if one.choices else _KINDS.get(one.kind, one.kind)
    if one.span:
        what = f"{what} {one.span}"
    side = "" if len(one.sides) > 1 else one.sides[0]
    return what, _format_default(one.default), side, " ".join(one.modes)


def settings_page(tables: Mapping[str, Sequence[Setting]]) -> str:
    """Return the page as Markdown in English and Chinese. tables: titles to settings."""
    top, _, of_backends = _SETTINGS_TOP.partition(_MARK)
    return "\n".join([f"{top.rstrip()}\n", *_option_lines(), of_backends, *_setting_lines(tables)]) + "\n"


def options_by_group(language: str) -> dict[str, list[Setting]]:
    """Return the options of a comparison below the headings of --help."""
    titles = {group: both[language == "zh"].partition("\n")[0] for group, both in GROUPS.items()}
    return {title: [one for one in OPTIONS if one.group == group] for group, title in titles.items()}


def _option_lines() -> Iterator[str]:
    for (title, table), zh in zip(options_by_group("en").items(), options_by_group("zh"), strict=True):
        yield f"## {title} · {zh}\n"
        yield "| Option | type | default | Python | meaning | 含义 |"
        yield "|---|---|---|---|---|---|"
        for one in table:
            what, default, _, _ = describe_setting(one)
            keyword = f"`{one.name}`" if one.field and not one.field.startswith("model.") else ""
            keyword = "" if "script" in one.not_with else keyword
            row = (f"`{one.option}`", what, f"`{default}`" if default else "", keyword, one.help, one.zh)
            yield _format_row(row)
        yield ""


def _format_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _setting_lines(tables: Mapping[str, Sequence[Setting]]) -> Iterator[str]:
    for title, table in tables.items():
        yield f"## {title}\n"
        yield "| Setting | type | default | side | modes | meaning | 含义 |"
        yield "|---|---|---|---|---|---|---|"
        for one in table:
            what, default, side, modes = describe_setting(one)
            side = f"`--baseline_{one.name}`: of the baseline alone" if one.by_side else side
            name = f"`--{one.name}`" if one.flag else f"`{one.name}`"
            default = f"`{default}`" if default else ""
            modes = " ".join(f"`{mode}`" for mode in modes.split())
            row = (name, what, default, side, modes, one.help, one.zh)
            yield _format_row(row)
        yield ""


def _format_default(value: Any) -> str:
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= 2**20 and value % 2**20 == 0:
        return f"{value // 2**30}G" if value % 2**30 == 0 else f"{value // 2**20}M"
    return " ".join(value) if isinstance(value, (tuple, list)) else str(value)
