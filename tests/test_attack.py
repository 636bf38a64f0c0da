"""The quick part of tests/attack: some of every class, at a fixed seed."""

from __future__ import annotations

import pytest
from attack.run import CLASSES, run

CASES = 150


def _case(name: str) -> object:
    """Commands on files with ONNX Runtime meet no other framework, installed or not: once is enough of them."""
    plain = CLASSES[name][0].__module__ in {"attack.machine", "attack.stale"}
    return pytest.param(name, marks=() if plain else pytest.mark.installed)


@pytest.mark.parametrize("name", [_case(name) for name, (_, _, quick) in CLASSES.items() if quick])
def test_attacks_of_a_class_hold(name: str) -> None:
    count = max(1, round(CASES * CLASSES[name][2]))
    result = run(0, count, only=[name])[name]
    assert result.tried == count
    assert result.lost == []
