"""Approved sentences: each is read by a test, a reworded one is replaced, and another one is not."""

from __future__ import annotations

import json
from pathlib import Path

import approval
import pytest
from approval import begins_approved, holds_approved, is_approved, raises_approved

pytestmark = pytest.mark.quick

SAID = "Nothing got worse, but 1 tensor is no longer compared."
REWORDED = "report: Nothing got worse, but one tensor is not compared any more. Look there."
OTHER = "The engine was built for another card, and cannot be loaded here."


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of approved sentences of this module's tests alone, where nothing is approved yet."""
    monkeypatch.setattr(approval, "FOLDER", tmp_path / "approved")
    monkeypatch.setattr(approval, "approving", False)
    return tmp_path / "approved"


def test_every_sentence_is_read_by_a_test_and_every_test_has_its_own(root: Path) -> None:
    """`python -m pytest --approve` drops what no test reads."""
    found = approval.out_of_step(root / "tests", root / "tests" / "approved")
    found.pop(Path(__file__).stem, None)
    assert found == {}


def test_a_reworded_sentence_is_replaced_by_one_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "test_approval.json"
    key = "test_a_reworded_sentence_is_replaced_by_one_command"
    approval.write(path, {key: SAID})
    assert holds_approved([OTHER, SAID])
    with pytest.raises(AssertionError, match=r"--approve tests/test_approval\.py -k test_a_reworded"):
        holds_approved(REWORDED)
    monkeypatch.setattr(approval, "approving", True)
    with pytest.raises(AssertionError):
        holds_approved(OTHER)
    assert json.loads(path.read_text(encoding="utf-8")) == {key: SAID}
    assert holds_approved(f"{OTHER}\n{REWORDED}\n{OTHER}")
    monkeypatch.setattr(approval, "approving", False)
    assert json.loads(path.read_text(encoding="utf-8"))[key] in REWORDED
    assert holds_approved(REWORDED)
    with pytest.raises(AssertionError):
        is_approved(REWORDED)
    with pytest.raises(AssertionError):
        begins_approved(REWORDED)


@pytest.mark.parametrize(
    ("sentence", "piece"),
    [
        ("of no account in any type", "of next to no account in any type"),
        ("the error begins at `add`", "the error begins at the first `add`"),
        ("is there in one and missing in the other", "is surely not there in one and missing in the other"),
        ("is a pipe, not a file", "is quite plainly a pipe, not a file"),
    ],
)
def test_what_is_put_in_after_the_first_word_or_before_the_last_stays(sentence: str, piece: str) -> None:
    """What is most alike is often a piece that leaves out the new word with all before it."""
    assert approval.closest(sentence, [f"It was said: {piece} Look there."], whole=False) == piece


def test_each_way_to_read_one(folder: Path) -> None:
    key = "test_each_way_to_read_one"
    approval.write(folder / "test_approval.json", {key: SAID, f"{key} 2": OTHER})
    assert begins_approved(one for one in (OTHER, SAID + " More."))
    assert is_approved(SAID)
    assert all(holds_approved(one, 2) for one in (OTHER, f"x {OTHER}"))
    with raises_approved(ValueError, 2):
        raise ValueError(OTHER)
    for wrong in (ValueError(SAID), KeyError(OTHER)):
        with pytest.raises((AssertionError, KeyError)), raises_approved(ValueError, 2):
            raise wrong


def test_what_no_test_reads_is_told_and_dropped(tmp_path: Path) -> None:
    kept = tmp_path / "approved"
    (tmp_path / "test_x.py").write_text("class A:\n    def test_one(self):\n        assert holds_approved(s, 2)\n")
    approval.write(kept / "test_x.json", {"test_one": SAID})
    approval.write(kept / "test_gone.json", {"test_one": SAID})
    assert approval.out_of_step(tmp_path, kept) == {
        "test_gone": ({"test_one"}, set()), "test_x": ({"test_one"}, {"test_one 2"}),
    }  # fmt: skip
    approval.prune(tmp_path, kept)
    assert list(kept.iterdir()) == []
