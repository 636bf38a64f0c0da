"""The pictures of the documents are of today's page, workbook and words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from take_pictures import ROOT, TAKEN, code, reported, words

AGAIN = "the pictures of the documents are older than this: take them again with `python tests/take_pictures.py`"


def test_pictures_are_of_the_code_that_draws_today() -> None:
    assert json.loads(TAKEN.read_text(encoding="utf-8"))["code"] == code(), AGAIN


def test_pictures_show_the_words_of_today(tmp_path: Path) -> None:
    assert json.loads(TAKEN.read_text(encoding="utf-8"))["words"] == words(reported(tmp_path)), AGAIN


def test_every_picture_that_is_shown_is_there_and_every_one_there_is_shown() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]
    shown = {name for text in texts for name in re.findall(r"pictures/([\w.]+)\)", text)}
    assert shown == {path.name for path in TAKEN.parent.iterdir()} - {TAKEN.name}
