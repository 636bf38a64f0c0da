"""--compare: what a function of the user's returns decides only where it says something of the outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from precision_debug.errors import InputError
from precision_debug.run.answers import UserCompare

OUTPUTS = {"y": np.ones(2)}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return {}", "it returned an empty dict; return True or False, or a dict"),
        ("return {'x': True}", "it judged x, and no output is called so; e.g. 'y'"),
        ("yield True", "it returned generator; return True or False"),
        ("return {'y': {'a': True}}", "it returned dict; return True or False"),
        ("return object()", "it returned object; return True or False"), ("return {1}", "it returned set"),
        ("return b'x'", "it returned bytes"), ("return 1", "it returned int"),
    ],
)  # fmt: skip
def test_what_is_true_only_because_it_is_there_is_no_verdict(body: str, said: str) -> None:
    Path("f.py").write_text(f"def f(base, target):\n    {body}\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"f.py:f: {said}"):
        UserCompare("f.py:f").judge(OUTPUTS, OUTPUTS)


def test_a_coroutine_is_no_verdict() -> None:
    Path("f.py").write_text("import types\n@types.coroutine\ndef f(base, target):\n    yield\n", encoding="utf-8")
    with pytest.raises(InputError, match="return True or False"):
        UserCompare("f.py:f").judge(OUTPUTS, OUTPUTS)


def test_truth_by_output_of_a_class_of_its_own_and_arrays_that_are_changed() -> None:
    kind = "class T:\n    def __bool__(self):\n        return True\n"
    code = f"{kind}def f(b, t):\n    b['y'][:] = 5\n    return {{'y': T()}}\n"
    Path("f.py").write_text(code, encoding="utf-8")
    assert UserCompare("f.py:f").judge(OUTPUTS, OUTPUTS) == {"y": True}
    assert np.array_equal(OUTPUTS["y"], np.ones(2))
