"""Every reason that is given, as people read them: the page reasons.md of the site.

``precision_debug doctor --reasons_page reasons.md`` writes it, and so does the site's build (mkdocs_pages.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..reasons import Wording
from ..reasons.what_to_do import WHAT_TO_DO

__all__ = ["page"]

_TOP = """<!-- written by `python -m precision_debug doctor --reasons_page reasons.md` -->

# Reasons · 原因

What reports say of rows, sides and runs, and why an operator lost the precision. Each is a code with arguments; the
report shows its sentence in English or in Chinese, and JSON has both the sentence and, under `codes`, the code with its
arguments. A backend's own codes begin with its name. Words in braces are the arguments.

报告对各行、各侧和整个运行的说明，以及算子损失精度的原因。每一条都是带参数的代码；报告以英文或中文显示其句子，JSON 中
既有句子，也在 `codes` 下给出代码和参数。后端自己的代码以其名称开头。花括号中的词是参数。
"""


def page(catalogues: Mapping[str, Mapping[str, Wording]]) -> str:
    """Return the page as Markdown in English and Chinese. catalogues: titles to wordings by their codes."""
    return "\n".join([_TOP, *_lines(catalogues)]) + "\n"


def _lines(catalogues: Mapping[str, Mapping[str, Wording]]) -> Iterator[str]:
    for title, wordings in catalogues.items():
        yield f"## {title}\n"
        yield "| Code | English | 中文 | what to do | 怎么办 |"
        yield "|---|---|---|---|---|"
        for code, wording in wordings.items():
            cells = (f"`{code}`", *map(_plain, (wording.en, wording.zh, wording.do, WHAT_TO_DO.get(wording.do, ""))))
            yield f"| {' | '.join(cells)} |"
        yield ""


def _plain(text: str) -> str:
    """Return a cell, which Markdown shows as it is."""
    for special in "\\`*_<>|":
        text = text.replace(special, f"\\{special}")
    return text
