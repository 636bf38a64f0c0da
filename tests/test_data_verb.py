"""`data merge` and `data concat` give what Polygraphy's own tools of that name give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_debug.cli import main
from precision_debug.feeds.polygraphy_json import read_feeds, read_results, write_feeds_text
from precision_debug.run.saved import SavedOutputs

A = [{"x": np.float32([1, 2])}, {"x": np.float32([3, 4])}]
B = [{"y": np.int64([5])}, {"y": np.int64([6])}, {"y": np.int64([7])}]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a.json").write_text(write_feeds_text(A))
    (tmp_path / "b.json").write_text(write_feeds_text(B))
    saved = SavedOutputs(str(tmp_path / "out.json"), ["runner"], tmp_path)
    for one in A:
        saved.add([{"z": one["x"] * 2}], [0.5])
    saved.finish()
    return tmp_path


def same(one: Any, other: Any) -> bool:
    return [sorted(sample) for sample in one] == [sorted(sample) for sample in other] and all(
        np.array_equal(ours[name], theirs[name]) for ours, theirs in zip(one, other, strict=True) for name in ours
    )


def test_merge_takes_names_together_and_concat_puts_samples_in_a_row(files: Path) -> None:
    def data(what: str, *names: str) -> list[dict[str, Any]]:
        assert main(["data", what, *(str(files / name) for name in names), "-o", str(files / "c.json")]) == 0
        return read_feeds(files / "c.json")

    assert same(data("merge", "a.json", "b.json"), [{**A[0], **B[0]}, {**A[1], **B[1]}, B[2]])
    assert same(data("merge", "a.json", "out.json"), [{**one, "z": one["x"] * 2} for one in A])
    assert same(data("concat", "a.json", "b.json"), [*A, *B])
    np.savez(files / "n.npz", x=A[0]["x"])
    assert same(data("concat", "n.npz", "a.json"), [A[0], *A])


def test_outputs_follow_each_other_by_runner(files: Path) -> None:
    out = str(files / "out.json")
    assert main(["data", "concat", out, out, "--output", str(files / "c.json")]) == 0
    (iterations,) = read_results(files / "c.json").values()
    assert [list(one.outputs["z"]) for one in iterations] == [[2, 4], [6, 8]] * 2
    assert [one.seconds for one in iterations] == [0.5] * 4
    assert main(["data", "concat", out, str(files / "a.json"), "--output", str(files / "c.json")]) == 2


@pytest.mark.parametrize("what", ["merge", "concat"])
def test_as_polygraphy_itself_does_it(files: Path, what: str) -> None:
    """Merged are files of one sample: of several, Polygraphy 0.53 gives each the values of the last one."""
    pytest.importorskip("polygraphy.json", reason="needs polygraphy")
    if what == "merge":
        (files / "a.json").write_text(write_feeds_text(A[:1]))
        (files / "b.json").write_text(write_feeds_text(B[:1]))
    names = [str(files / "a.json"), str(files / "b.json")]
    words = ["data", what, *names, "-o", str(files / "theirs.json")]
    code = f"import sys; from polygraphy.tools import main; sys.argv = ['polygraphy', *{words!r}]; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert main(["data", what, *names, "--output", str(files / "ours.json")]) == 0
    assert same(read_feeds(files / "ours.json"), read_feeds(files / "theirs.json"))


@pytest.mark.parametrize(
    "words",
    [["merge", "a.json", "-o", "c.npz"], ["merge", "a.json", "-o", "a.json"], ["merge", "absent.json", "-o", "c.json"]],
)
def test_what_is_wrong_is_said(files: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    assert main(["data", *words]) == 2
