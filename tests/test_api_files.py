"""What ``compare`` leaves on disk, also where it cannot write what it was asked for."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from approval import raises_approved

from precision_debug import Report, compare, registry
from precision_debug.errors import BackendError, OutputError, PrecisionDebugError, UsageError


@pytest.fixture(autouse=True)
def model(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(root / "tests" / "fake"))
    # another test may have asked before the fake one could be found
    monkeypatch.setattr(registry, "plugins", registry.plugins.__wrapped__)
    (tmp_path / "m.fake").write_text(json.dumps({"layers": 10, "width": 4}), encoding="utf-8")


def test_a_report_and_its_inputs_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"  # another run may use the machine's meanwhile
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    report = compare("m.fake", run_mode="fake_off", output="out/r.json")
    assert report.inputs_file == "r.json.inputs.npz"
    assert sorted(os.listdir("out")) == ["r.json", "r.json.inputs.npz"]
    assert compare("m.fake", run_mode="fake_off").inputs_file == ""
    assert not os.listdir(temporary)


def test_a_failed_run_gives_its_partial_report() -> None:
    with pytest.raises(BackendError, match="unicorn"):
        compare("m.fake", run_mode="fake_raise", output="out/r.json")
    assert len(Report.load("out/r.json").compared) == 5
    assert sorted(os.listdir("out")) == ["r.json", "r.json.inputs.npz"]


def test_rows_outlive_a_report_that_cannot_be_written() -> None:
    Path("out/r.html").mkdir(parents=True)
    with raises_approved(OutputError) as raised:
        compare("m.fake", run_mode="fake_off", output=["out/r.html", "out/r.json"])
    assert "precision_debug report" in str(raised.value)
    assert "journal.jsonl" in str(raised.value)
    assert len(Report.load("out/r.json").compared) == 10
    assert len(list(Path("out").glob(".precision_debug-*/journal.jsonl"))) == 1


def test_an_output_that_is_read_is_refused() -> None:
    Path("in.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UsageError, match="which this command reads"):
        compare("m.fake", run_mode="fake_off", inputs="in.json", output="in.json")
    assert Path("in.json").read_text(encoding="utf-8") == "[]"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"explain": "x"}, "explain: 'x' is not one of off, fast, full"),
        ({"val_range": (1, 0)}, "val_range: 1, 0 has its low end above its high end"),
        ({"val_range": {"x": (0.5, 0.25)}}, "of 'x' has its low end above"),
        ({"output": "r.exe"}, "r.exe: no report format has the ending '.exe'"),
        ({"output": ["r.json", "r"]}, "r: the report's name has no ending"),
        ({"inputs": []}, "inputs: contains no samples"),
        ({"inputs": [3.0]}, "inputs: a sample is float"),
    ],
)
def test_a_call_that_is_wrong_is_refused_before_anything_runs(more: dict[str, Any], told: str) -> None:
    before = os.listdir()
    with pytest.raises(PrecisionDebugError, match=re.escape(told)):
        compare("m.fake", **{"run_mode": "fake_off", **more})
    assert os.listdir() == before
