"""What is to be pasted into a program is Python in Markdown, and what is typed a command."""

from __future__ import annotations

import pytest

from precision_debug.reasons import Text, same
from precision_debug.report.formats.md import _format_pairs
from precision_debug.report.next_step import PASTE, PROGRAM
from precision_debug.report.sections import Cell, Section


@pytest.mark.parametrize(("label", "language"), [(PASTE, "bash"), (PROGRAM, "python")])
def test_the_language_of_what_is_pasted(label: Text, language: str) -> None:
    section = Section(
        key="culprits", title=same("x"), lines=((Cell(text=label), Cell(text=same("a = 1\nb = 2"), tone="paste")),)
    )
    assert [*_format_pairs(section)][1:] == [f"  ```{language}", "  a = 1", "  b = 2", "  ```"]
