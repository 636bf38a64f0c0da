"""The hand-written mutants still apply: ``python tests/mutants.py`` is run by people, and must not rot meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import MUTANTS, TESTS, applied

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("path", sorted(TESTS))
def test_each_changes_a_place_that_is_there_once(root: Path, path: str) -> None:
    text = (root / path).read_text(encoding="utf-8")
    mine = [(before, after) for where, before, after in MUTANTS if where == path]
    assert mine
    assert len(MUTANTS) >= 60
    assert len(set(mine)) == len(mine)
    assert [before for before, _ in mine if text.count(before) != 1] == []
    for before, after in mine:
        compile(applied(text, before, after), path, "exec")
    assert (root / TESTS[path]).is_file()
