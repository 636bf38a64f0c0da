"""Reports, checkpoints and files of thresholds that somebody else has made, or that were cut off."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from precision_debug_paddle.keep import PaddleKeep
from precision_debug_paddle.modes import recipe
from report_factory import make_report

from precision_debug.errors import OutputError, UsageError
from precision_debug.observe.shard import Shard
from precision_debug.records import Culprit, Explanation, ModelFiles, RunSpec, SessionSpec
from precision_debug.report import write
from precision_debug.report.formats.json import from_dict, to_dict
from precision_debug.run.parallel_run import Checkpoint
from precision_debug.safety.untrusted import find_linked_file
from precision_debug.search.fix import Fix
from precision_debug.testing.thresholds import Thresholds


@pytest.mark.parametrize("name", ["r.tensors.npz", "../run/r.tensors.npz", "层.npz", "a b.npz"])
def test_a_file_beside_the_report_is_linked(name: str) -> None:
    assert find_linked_file(name) == name


@pytest.mark.parametrize(
    "name",
    ["http://x", "//host/x", "\\\\host\\share", "/etc/passwd", "C:\\x", "javascript:x", "file:x", "a\udcff", "a#b"],
)
def test_no_other_place_is_linked(name: str, tmp_path: Path) -> None:
    assert find_linked_file(name) == ""
    report = make_report(3)
    report = dataclasses.replace(report, tensors_file=name, saved_tensors=(report.rows[0].name,))
    for ending in (".html", ".xlsx", ".md"):
        made = write(report, tmp_path / f"r{ending}")
        if ending == ".xlsx":
            with zipfile.ZipFile(made) as book:
                assert not any(b"External" in book.read(member) for member in book.namelist())


def test_no_name_in_the_title_of_a_chart_is_a_place_in_the_workbook(tmp_path: Path) -> None:
    """xlsxwriter takes "words!A1" for one, and Excel then calls the workbook damaged."""
    report = make_report(3)
    at = "=cmd!A1\udcff"
    told = Explanation(
        state="culprits", at=at, budget={row.name: 0.5 for row in report.rows},
        culprits=(Culprit(name=report.rows[0].name, node="", op_types=("Conv",), cause="coarse", share=0.9),),
    )  # fmt: skip
    path = write(dataclasses.replace(report, explanation=told), tmp_path / "r.xlsx")
    with zipfile.ZipFile(path) as book:
        charts = [book.read(name).decode() for name in book.namelist() if "charts/chart" in name]
    assert any("cmd! A1" in chart for chart in charts)
    assert not any("cmd!A1" in chart for chart in charts)


def test_a_report_with_an_answer_of_no_kind_is_refused() -> None:
    plain = to_dict(dataclasses.replace(make_report(3), fix=Fix(state="found")))
    assert from_dict(plain).fix is not None
    plain["fix"]["state"] = "odd"
    with pytest.raises(OutputError, match="damaged"):
        from_dict(plain)


@pytest.fixture
def parts() -> list[str]:
    """Three finished parts of two samples each."""
    found = []
    for start in (0, 2, 4):
        shard = Shard()
        shard.samples.update((start, start + 1))
        found.append(shard.to_text())
    return found


def test_a_checkpoint_that_was_cut_off_is_gone_on_from(parts: list[str], tmp_path: Path) -> None:
    """What comes next stands on a line of its own, so that the file can be read once more."""
    spec, path = RunSpec(model=ModelFiles(), run_mode="m"), tmp_path / "kept"
    kept = Checkpoint(str(path), spec)
    for part in parts:
        kept.add(part)
    path.write_bytes(path.read_bytes()[:-9])
    again = Checkpoint(str(path), spec)
    assert len(again.shards) == 2
    again.add(parts[2])
    shards = [Shard.from_text(part) for part in Checkpoint(str(path), spec).shards]
    assert [shard.samples for shard in shards] == [{0, 1}, {2, 3}, {4, 5}]


def test_a_part_that_is_twice_in_a_checkpoint_counts_once(parts: list[str], tmp_path: Path) -> None:
    spec, path = RunSpec(model=ModelFiles(), run_mode="m"), tmp_path / "kept"
    kept = Checkpoint(str(path), spec)
    for part in (*parts, parts[1]):
        kept.add(part)
    assert len(Checkpoint(str(path), spec).shards) == 3


@pytest.mark.parametrize("line", ["{}", "[]", "null", "[" * 100_000, '{"samples": [[0, 1e99]]}'])
def test_a_damaged_checkpoint_is_one_line(line: str, parts: list[str], tmp_path: Path) -> None:
    spec, path = RunSpec(model=ModelFiles(), run_mode="m"), tmp_path / "kept"
    kept = Checkpoint(str(path), spec)
    for part in (parts[0], line):
        kept.add(part)
    with pytest.raises(OutputError, match="line 3 is damaged"):
        Checkpoint(str(path), spec)


def test_samples_beyond_all_measure_do_not_fill_the_memory() -> None:
    plain = {**json.loads(Shard().to_text()), "samples": [[0, 10**15]]}
    with pytest.raises(ValueError, match="samples 0 to"):
        Shard.from_text(json.dumps(plain))


_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{chr(ord(name) - 1)}'] * 9)}]\n" for name in "bcdefghij"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{_BOMB}thresholds: {{outputs: *j}}", "outputs"), ("1: 2\nx: 3\n", "int"),
        ("outputs: 1" + "0" * 400, "expects a number"), ("tensors: {1: 0.5}", "not text"),
    ],
)  # fmt: skip
def test_odd_thresholds_are_one_short_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        Thresholds.of_file(path)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["tool = 5", "[tool]\nprecision_debug = 5", "[tool]\nprecision_debug = [1]"])
def test_a_project_file_of_another_kind_is_not_passed_over(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match="must be a table"):
        Thresholds.of_project(tmp_path)


def test_a_name_with_a_line_end_is_no_code_in_what_is_pasted(tmp_path: Path) -> None:
    name = "relu\nimport os"
    spec = SessionSpec(model=ModelFiles(model_file="m.pdmodel"), mode="onednn_bf16")
    keep: Any = PaddleKeep(spec=spec, recipe=recipe("onednn_bf16"), types={name: 1, "conv2d": 1})
    text = next(handed.text for handed in keep.hand_over([name], [], tmp_path) if handed.kind == "config")
    assert not any(line.startswith("import os") for line in str(text).splitlines())
