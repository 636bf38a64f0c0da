"""The hand-written mutants still apply: ``python tests/mutants.py`` is run by people, and must not rot meanwhile."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutants import MUTANTS, TESTS, applied

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("path", sorted(TESTS))
def test_each_changes_a_place_that_is_there_once(root: Path, path: str) -> None:
    text = (root / path).read_text(encoding="utf-8")
    mine = [words for where, *words in MUTANTS if where == path]
    assert mine
    assert len(MUTANTS) >= 60
    assert len(set(map(tuple, mine))) == len(mine)
    unchanged = ast.dump(ast.parse(text))
    for words in mine:
        changed = compile(applied(text, *words), path, "exec", ast.PyCF_ONLY_AST)
        assert ast.dump(changed) != unchanged
    assert (root / TESTS[path]).is_file()


@pytest.mark.parametrize("path", sorted(TESTS))
def test_another_layout_makes_none_stale(root: Path, path: str) -> None:
    """Without comments, with other line breaks and quotes, each changes the same place."""
    text = (root / path).read_text(encoding="utf-8")
    other = ast.unparse(ast.parse(text))
    for _, *words in (one for one in MUTANTS if one[0] == path):
        assert ast.dump(ast.parse(applied(text, *words))) == ast.dump(ast.parse(applied(other, *words))), words


def test_a_place_that_is_gone_or_there_twice_is_told() -> None:
    text = "def f(x):\n    y = 'é' if x else 1\n    return x if x else (x\n        if x else 2)\n"
    assert applied(text, "f", "'é' if x else 1", "x") == text.replace("'é' if x else 1", "(x)")
    assert applied(text, "f", "x if x else 2", "3") == text.replace("x\n        if x else 2", "(3)")
    other = applied(text, "f", "y = 'é' if x else 1", "if x:\n    y = 2")
    assert other.splitlines()[1:3] == ["    if x:", "        y = 2"]
    for place, before, told in (("g", "x", "nowhere"), ("f", "x + 1", "0 times"), ("f", "x", "times in f")):
        with pytest.raises(ValueError, match=told):
            applied(text, place, before, "x")
