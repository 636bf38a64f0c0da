"""Every column of the table, as people read it: the page columns.md of the site.

``precision_debug doctor --columns_page columns.md`` writes it, and so does the site's build (mkdocs_pages.py).
"""

from __future__ import annotations

from ..report.layout import COLUMNS

__all__ = ["page"]

_TOP = """<!-- written by `python -m precision_debug doctor --columns_page columns.md` -->

# Columns · 列

The columns of the table, in the order of the workbook's; the first eight are those of Paddle-Inference-Demo's
tensorrt_precision_debug. The header cells carry the same explanations. *Key* is its stable name,
the column's in `to_pandas()`. Some runs add columns of their own: a backend's, and those of the run's tolerance.

对比表的各列，顺序与工作簿一致；
前八列与 Paddle-Inference-Demo 的 tensorrt_precision_debug 相同。表头单元格里有同样的说明。

| Column | 列 | Key | Meaning | 含义 |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the page as Markdown in English and Chinese."""
    lines = ((c.title, c.title_zh, f"`{c.key}`", c.help, c.help_zh) for c in COLUMNS)
    return _TOP + "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
