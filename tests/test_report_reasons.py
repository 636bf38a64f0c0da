"""Reasons in two languages: what the core and the built-in backends say has its Chinese."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from precision_debug import AssertClose, SaveBaseline
from precision_debug.report.layout import columns, columns_for_people
from precision_debug.report.reasons import explained
from precision_debug.report.summary import summary

SPOKEN = {
    "shape": "形状不同",
    "types: float32 against str": "类型不同：float32 与 str",
    "3 of 12 elements": "12 个元素中有 3 个",
    "3 of 12 elements, NaN in the target": "12 个元素中有 3 个，目标中有 NaN",
    "inf on both sides": "两侧都有 inf",
    "quantile 0.99 abs 1.2 > 0.0001 and quantile 0.99 rel 3 > 0.0001": (
        "quantile 0.99：绝对误差 1.2 > 0.0001，且相对误差 3 > 0.0001"
    ),
    "baseline: not a tensor": "基线：不是张量",
    "target: holds the same numbers as a{0}": "目标：与 a{0} 数值相同",
    "target: TensorRT refuses it as an output: Error Code 4\n{x} is one": (
        "目标：TensorRT 拒绝将其作为输出：Error Code 4\n{x} is one"
    ),
}


@pytest.mark.parametrize("reason", SPOKEN)
def test_a_reason_has_its_chinese_with_the_same_names_and_numbers(reason: str) -> None:
    assert explained(reason) == (reason, SPOKEN[reason])


def test_what_nobody_knows_stays_as_it_is() -> None:
    assert explained("the unicorn has left") == ("the unicorn has left", "the unicorn has left")
    assert explained("target: the unicorn has left").zh == "目标：the unicorn has left"
    assert explained("") == ("", "")


def _is_chinese(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def _said(tree: ast.Module) -> Iterator[str]:
    """What a module's source gives as ``unseen`` or as another reason, also by a constant; parts in braces are X."""
    constants = {
        target.id: node.value for node in tree.body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip

    def texts(node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.IfExp):
            yield from texts(node.body)
            yield from texts(node.orelse)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            yield from texts(node.args[-1])
        elif isinstance(node, ast.Name) and node.id in constants:
            yield from texts(constants[node.id])

    for node in ast.walk(tree):
        named = isinstance(node, ast.keyword) and node.arg == "unseen"
        if named or (isinstance(node, ast.Assign) and re.search(r"unseen|refused\[", ast.unparse(node.targets[0]))):
            yield from texts(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "refuse":
            yield from texts(node.args[1])
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("_why_"):
            for told in (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)):
                yield from texts(told.elts[-1] if isinstance(told, ast.Tuple) else told) if told is not None else ()


def test_every_reason_in_the_backends_source_has_its_chinese(root: Path) -> None:
    said = {
        (path.parent.name, text)
        for folder in ("backends", "precision_debug") for path in (root / folder).rglob("*.py")
        for text in _said(ast.parse(path.read_text(encoding="utf-8"))) if text
    }  # fmt: skip
    assert len(said) >= 25
    assert {place for place, _ in said} >= {
        "precision_debug_onnxruntime", "precision_debug_paddle", "precision_debug_tensorrt", "precision_debug_torch",
        "recording",
    }  # fmt: skip
    assert [text for _, text in sorted(said) if not _is_chinese(explained(text).zh)] == []


def test_people_read_both_languages_and_programs_english() -> None:
    base = SaveBaseline()
    check = AssertClose(base, atol=1e-3, rtol=0)
    base("Relu", "fused", np.ones(4))
    base("Relu", "a", np.zeros(4))
    check("Relu", "a", np.array([0, 1, math.nan, 0]))
    check("Relu", "new", np.zeros(2))
    report = check.report()
    plain = [next(c for c in columns(report) if c.key == "reason").get(row) for row in report.rows]
    shown = [next(c for c in columns_for_people(report) if c.key == "reason").get(row) for row in report.rows]
    assert plain == [
        "the target's graph has no such tensor", "2 of 4 elements, NaN in the target",
        "the baseline has no tensor of this name",
    ]  # fmt: skip
    assert shown == [
        "the target's graph has no such tensor / 目标图中没有该张量",
        "2 of 4 elements, NaN in the target / 4 个元素中有 2 个，目标中有 NaN",
        "the baseline has no tensor of this name / 基线中没有同名张量",
    ]
    said = next(section for section in summary(report).sections if section.key == "uncompared")
    assert {line[0].text.zh for line in said.lines} == {"目标图中没有该张量", "基线中没有同名张量"}
