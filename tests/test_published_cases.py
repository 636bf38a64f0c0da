"""The bench of published bugs: its models are valid, and the gallery shows reports that it has."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "published"))
from cases import CASES, Case  # noqa: E402


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_a_valid_model_with_its_inputs_and_a_label(case: Case) -> None:
    model, feeds = case.make()
    onnx.checker.check_model(model)
    assert {one.name for one in model.graph.input} == {*feeds}
    made = {name for node in model.graph.node for name in node.output}
    assert case.right or {*case.region} & made
    assert case.right != bool(case.region)
    assert all("==" in one for one in case.needs)


def test_the_bench_is_of_public_reports_and_of_controls() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    reports = {case.published for case in CASES if case.published}
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+(, #\d+)*", one) for one in reports)
    assert len(reports) >= 20
    assert sum(case.right for case in CASES) >= 10


def test_the_gallery_shows_ten_published_bugs_in_both_languages() -> None:
    published = {case.name for case in CASES if case.published}
    shown = [re.findall(r"^## (\w+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M)
             for page in ("gallery.md", "gallery.zh.md")]  # fmt: skip
    assert shown[0] == shown[1]
    assert len(shown[0]) >= 10
    assert {*shown[0]} <= published
